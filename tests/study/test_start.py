"""What a process believes when it starts: nothing that the chain of hashes does not vouch for."""

import hashlib
import json

import pytest

from safedial.study import replay_log, transaction
from safedial.study.database import sa
from safedial.study.event import START, Event, canonical, digest
from safedial.study.log import append_events, read_events, snapshot_seqs
from safedial.study.snapshot import parts
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from safedial.study.verify import verify_study
from tests.study.conftest import SPEC


def change(storage, statement, **values):
    with Store(storage) as store, store.engine.begin() as connection:
        assert connection.execute(sa.text(statement), values).rowcount > 0


@pytest.fixture
def played(storage, monkeypatch):
    """A closed store with a study of three snapshots, and what it would advise next."""
    monkeypatch.setattr(transaction, "SNAPSHOT_EVENTS", 20)
    with Store(storage) as store:
        study = Study.create("trial", SPEC, storage=store)
        for number in range(40):
            study.tell(study.ask([0.6, 0.01 * number]).id, reward=0.1, cost=0.04)
    return storage


def next_action(storage):
    """What a fresh process would advise; nothing is written."""
    with Store(storage) as store:
        study = Study.open("trial", storage=store)
        return study.store.submit(study._id, study.name, advised).result()


def advised(each):
    import numpy as np

    from safedial.rounds.outcome import Asked
    from safedial.study.reducer import decide_next

    vector = np.array([0.6, 0.3])
    return decide_next(each.state, Asked(vector, float(np.linalg.norm(vector))), [0.6, 0.3])[0].action


def test_a_changed_byte_of_the_first_event_is_refused(played):
    with Store(played) as store, store.engine.begin() as connection:
        body = next(read_events(connection, 1)).body
    change(played, "UPDATE events SET body = :b WHERE study_id = 1 AND seq = 1", b=body.replace("0.5,", "0.9,"))
    with Store(played) as store, pytest.raises(StudyError, match="event 1 does not match its hash") as refused:
        Study.open("trial", storage=store)
    assert refused.value.code == "log_broken"


def test_a_first_event_with_a_fresh_hash_is_refused_too(played):
    """Its hash is that of what it says; but the snapshots, and the second event, follow another."""
    with Store(played) as store, store.engine.begin() as connection:
        first = next(read_events(connection, 1))
        told = (*first[:6], first.body.replace('"threshold":0.5', '"threshold":0.9'))
    new = digest(START, "trial", told)
    change(played, "UPDATE events SET body = :b, hash = :h WHERE study_id = 1 AND seq = 1", b=told[6], h=new)
    with Store(played) as store, pytest.raises(StudyError, match="event 2 does not follow"):
        Study.open("trial", storage=store).ask([0.6, 0.3])


def doctored(content):
    """A snapshot of a study that has never seen a cost: its sums of costs are gone."""
    head, arrays = parts(content)
    start = content.index(b"\n") + 1
    for name, kind, _ in head["arrays"]:
        size = arrays[name].nbytes
        if name.startswith("learning.") and kind == "<f8" and size:
            content = content[:start] + (arrays[name] * 1.5).tobytes() + content[start + size :]
        start += size
    return content


def test_a_doctored_snapshot_with_a_fresh_digest_is_not_believed(played):
    right = next_action(played)
    with Store(played) as store, store.engine.begin() as connection:
        seqs = [seq for seq, _ in snapshot_seqs(connection, 1)]
        for seq in seqs:
            where = {"s": seq}
            words = "SELECT content FROM snapshots WHERE study_id = 1 AND seq = :s"
            content = doctored(bytes(connection.execute(sa.text(words), where).scalar()))
            where |= {"c": content, "d": hashlib.sha256(content).digest()}
            words = "UPDATE snapshots SET content = :c, digest = :d WHERE study_id = 1 AND seq = :s"
            connection.execute(sa.text(words), where)
    assert len(seqs) >= 2
    assert next_action(played) == right
    with Store(played) as store:
        assert verify_study(store, "trial").first_bad == min(seqs)


def test_a_correction_begins_from_no_doctored_snapshot_either(played):
    with Store(played) as store:
        study = Study.open("trial", storage=store)
        first = next(iter(study.rows()))["decision_id"]
    test_a_doctored_snapshot_with_a_fresh_digest_is_not_believed(played)
    with Store(played) as store:
        study = Study.open("trial", storage=store)
        study.correct(first, cost=0.05, reason="typing error")
        mine = study.state_digest()
        change(played, "DELETE FROM snapshots WHERE study_id = 1")
    with Store(played) as store:
        study = Study.open("trial", storage=store)
        assert study.state_digest() == mine
        assert study.verify().ok


def test_a_snapshot_saves_the_replay_of_what_came_before_it(played, monkeypatch):
    """Otherwise nothing above would mean anything."""
    update, replayed = replay_log.update_state, []
    monkeypatch.setattr(replay_log, "update_state", lambda *words, **more: replayed.append(1) or update(*words, **more))
    next_action(played)
    assert 0 < len(replayed) < 20


def test_a_log_says_which_snapshots_it_vouches_for(played):
    with Store(played) as store:
        events = Study.open("trial", storage=store).events()["events"]
        with store.engine.begin() as connection:
            stored = dict(snapshot_seqs(connection, 1))
    told = [event for event in events if event["kind"] == "snapshot"]
    assert {event["seq"] - 1 for event in told} >= set(stored)
    for event in told:
        assert event["body"]["after"] == event["seq"] - 1
        assert event["body"]["first"] == events[0]["hash"]
        assert event["body"]["digest"] == stored.get(event["seq"] - 1, bytes.fromhex(event["body"]["digest"])).hex()


def rewritten(storage, alter):
    """The log with some bodies altered, every hash made anew, as the owner of the database can."""
    with Store(storage) as store, store.engine.begin() as connection:
        events, previous = [], START
        for event in read_events(connection, 1):
            told = (*event[:6], canonical(alter(event, json.loads(event.body))))
            events.append(Event(*told, digest(previous, "trial", told)))
            previous = events[-1].hash
        connection.execute(sa.text("DELETE FROM events WHERE study_id = 1"))
        append_events(connection, 1, events)


@pytest.mark.parametrize(
    ("stored", "altered"),
    [(True, {"digest": "0" * 64}), (False, {"after": 3}), (False, {"first": "0" * 64}), (False, {"more": 1})],
)
def test_verify_finds_a_snapshot_event_that_names_another_snapshot(played, stored, altered):
    def alter(event, body):
        return {**body, **altered} if event.kind == "snapshot" else body

    rewritten(played, alter)
    if not stored:
        change(played, "DELETE FROM snapshots WHERE study_id = 1")
    with Store(played) as store:
        report = verify_study(store, "trial")
    assert (report.ok, report.problem) == (False, "does not confirm the snapshot before it")


def test_verify_finds_a_snapshot_that_no_event_vouches_for(played):
    with Store(played) as store, store.engine.begin() as connection:
        words = "UPDATE snapshots SET seq = seq - 1 WHERE study_id = 1"
        connection.execute(sa.text(words))
    with Store(played) as store:
        assert not verify_study(store, "trial").ok


def test_a_study_restored_in_place_with_another_specification_is_refused(storage):
    """The dial went to 1; in the restored store it goes to 10."""
    with Store(storage) as store:
        study = Study.create("trial", SPEC, storage=store)
        with Store(storage) as other, other.engine.begin() as connection:
            first = next(read_events(connection, 1))
            body = json.loads(first.body)
            body["spec"]["dial"]["high"] = 10.0
            told = (*first[:6], canonical(body))
            connection.execute(sa.text("DELETE FROM events WHERE study_id = 1"))
            append_events(connection, 1, [Event(*told, digest(START, "trial", told))])
        with pytest.raises(StudyError, match="another specification") as refused:
            study.ask([0.6, 0.3])
        assert refused.value.code == "store_unavailable"
        assert Study.open("trial", storage=store).spec.rules.dial.high == 10.0
        assert Study.open("trial", storage=store).ask([0.6, 0.3]).action > 1.0
