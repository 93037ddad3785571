"""What a reader of the audit trail must be able to trust: no forged lines, no slipped-in keys, no lost studies."""

import json
import secrets
import time

import pytest
from typer.testing import CliRunner

from safedial.cli import make_app
from safedial.study import Store, StudyError, create_study, open_study
from safedial.study.event import START, Event, canonical, digest
from safedial.study.keys import create_key, hash_key
from safedial.study.log import append_events, read_events
from safedial.study.schema import STORE_LOG, STORE_NAME, sa
from tests.study.conftest import SPEC

FORGED = "typing error)\n  2025-01-31T14:05:00.000000Z voided by the board (never given): unrelated True"
HIDDEN = ("\n", "\r", "\x1b", "\x9b", "\x7f", "\u2028", "\u2029", "\u202e", "\u2066")


def run(*words):
    done = CliRunner().invoke(make_app(), [str(word) for word in words])
    return done.exit_code, done.stdout


@pytest.fixture
def told(lite):
    """A study whose reasons and actors hold what could pass for lines of our own."""
    decision = lite.ask([0.3, 0.1])
    lite.tell(decision.id, reward=0.1, cost=0.1, actor="nurse\n  forged by the actor")
    lite.correct(decision.id, cost=0.2, reason=FORGED)
    lite.correct(decision.id, cost=0.3, reason="".join(HIDDEN) + "می‌خواهم", actor="\x1b[2K")
    return lite, decision


def test_no_reason_or_actor_forges_a_line_of_the_explanation(told):
    study, decision = told
    lines = str(study.explain(decision.id)).split("\n")
    assert sum("nurse\\n  forged by the actor" in line for line in lines) == 1
    assert len([line for line in lines if line.lstrip().startswith("20")]) == 3
    assert not any(hidden in line for line in lines for hidden in HIDDEN)
    assert "می‌خواهم" in lines[-1], "what some scripts are written with stays"


def test_no_unit_or_feature_forges_a_line_of_the_explanation(lite):
    forged = "mg\n  2025-01-31 voided by the board"
    features = {"names": ["age\n  forged", "weight"], "center": [50, 70], "scale": [100, 100]}
    spec = {**SPEC, "features": features, "dial": {"high": 20, "unit": forged}}
    study = create_study("named", spec, storage=lite.store)
    lines = str(study.explain(study.ask([65, 90]).id)).split("\n")
    assert not any(line.lstrip().startswith(("2025", "forged")) for line in lines)


@pytest.mark.parametrize("words", [["explain", "--format", "table"], ["explain", "--json"]])
def test_no_text_of_others_reaches_a_terminal_as_control_characters(told, words):
    study, decision = told
    code, out = run("study", words[0], decision.id, *words[1:], "--storage", study.store.storage)
    assert code == 0
    assert not any(hidden in out for hidden in HIDDEN[1:])
    if "--json" in words:
        assert json.loads(out)["events"][1]["reason"] == FORGED, "what is stored stays as it is"


def slip_in(store, role="admin"):
    """A key with its event, its hash and the log's head, as the owner of the database can write them."""
    name, text = secrets.token_hex(4), f"sd_{secrets.token_urlsafe(8)}"
    with store.engine.begin() as connection:
        last = list(read_events(connection, STORE_LOG))[-1]
        body = canonical({"id": name, "role": role, "study": "", "hash": hash_key(text).hex()})
        new = (last.seq + 1, "key_created", 0, last.at + 1, "admin", "rotation", body)
        append_events(connection, STORE_LOG, [Event(*new, digest(last.hash, STORE_NAME, new))])
        values = {"id": name, "hash": hash_key(text), "role": role, "at": last.at + 1}
        connection.execute(sa.text("INSERT INTO keys VALUES (:id, :hash, :role, '', :at, NULL)"), values)
    return name


def test_a_key_slipped_in_with_its_event_is_found_by_what_making_the_last_one_printed(store, study):
    done = CliRunner().invoke(make_app(), ["key", "create", "--role", "decide", "--storage", store.storage, "--json"])
    made = json.loads(done.stdout)
    verify = ("key", "verify", "--storage", store.storage)
    assert run(*verify)[0] == 0
    mark = made.get("checkpoint", "")
    assert run(*verify, "--checkpoint", mark)[0] == 0
    create_study("another", SPEC, storage=store)
    assert run(*verify, "--checkpoint", mark)[0] == 0, "a study is no key"
    slipped = slip_in(store)
    code, out = run(*verify, "--checkpoint", mark, "--json")
    assert (code, slipped in json.loads(out)["problem"], json.loads(out)["first_bad"]) == (1, True, 4)


def test_a_rewritten_log_of_keys_is_found_by_a_checkpoint(store, study):
    from safedial.study import checkpoint_store, verify_store

    create_key(store, "read", reason="ward 3", actor="tester")
    mark = checkpoint_store(store, reason="for the safe", actor="tester")
    with store.engine.begin() as connection:
        events, previous = [], START
        for event in read_events(connection, STORE_LOG):
            told = (*event[:6], event.body.replace('"role":"read"', '"role":"admin"'))
            events.append(Event(*told, digest(previous, STORE_NAME, told)))
            previous = events[-1].hash
        connection.execute(sa.text("DELETE FROM events WHERE study_id = 0"))
        append_events(connection, STORE_LOG, events)
        connection.execute(sa.text("UPDATE keys SET role = 'admin'"))
    assert verify_store(store).ok
    assert not verify_store(store, checkpoint=mark).ok


def remove(store, name):
    with store.engine.begin() as connection:
        where = {"name": name}
        study = connection.execute(sa.text("SELECT id FROM studies WHERE name = :name"), where).scalar()
        for table, column in (("events", "study_id"), ("snapshots", "study_id"), ("studies", "id")):
            words = f"DELETE FROM {table} WHERE {column} = :study"  # noqa: S608 -- fixed
            connection.execute(sa.text(words), {"study": study})


def test_a_study_that_was_removed_whole_is_missed(storage):
    with Store(storage) as store:
        for name in ("first", "second"):
            create_study(name, SPEC, storage=store).ask([0.1, 0.1])
        assert run("study", "verify", "--storage", storage)[0] == 0
        remove(store, "second")
    with Store(storage) as store:
        with pytest.raises(StudyError, match="is gone; restore a backup"):
            create_study("second", SPEC, storage=store)
        with pytest.raises(StudyError, match="is gone") as refused:
            open_study("second", storage=store)
        assert refused.value.code == "log_broken"
        with pytest.raises(StudyError, match="no such study"):
            open_study("third", storage=store)
    code, out = run("study", "verify", "--storage", storage)
    assert (code, "records the study second, which is gone" in out, "first: 2 events" in out) == (1, True, True)


def test_a_study_made_anew_under_its_old_name_is_not_the_one_that_was_made(storage):
    from safedial.study import verify_store

    with Store(storage) as store:
        create_study("trial", SPEC, storage=store)
        with store.engine.begin() as connection:
            first = next(read_events(connection, 1))
            told = (*first[:6], first.body.replace('"threshold":0.5', '"threshold":0.9'))
            connection.execute(sa.text("DELETE FROM events WHERE study_id = 1"))
            append_events(connection, 1, [Event(*told, digest(START, "trial", told))])
        assert "not the one that was created" in verify_store(store).problem


def test_one_checkpoint_of_the_store_stands_for_the_heads_of_all_studies(storage):
    from safedial.study import checkpoint_store, verify_store, verify_study

    with Store(storage) as store:
        for name in ("first", "second"):
            create_study(name, SPEC, storage=store).ask([0.1, 0.1])
        mark = checkpoint_store(store, actor="tester")
        assert verify_store(store, checkpoint=mark).ok
        with store.engine.begin() as connection:
            one, two = read_events(connection, 2)
            told = (*two[:4], "somebody else", *two[5:7])
            connection.execute(sa.text("DELETE FROM events WHERE study_id = 2"))
            append_events(connection, 2, [one, Event(*told, digest(one.hash, "second", told))])
        assert verify_study(store, "second").ok, "a log rewritten with fresh hashes"
        assert (
            verify_store(store, checkpoint=mark).problem
            == "records the study second, which is not the one that was created"
        )
    assert run("study", "checkpoint", "--storage", storage)[0] == 0


def test_a_clock_that_goes_back_is_noted_and_is_no_error(lite, monkeypatch):
    for _ in range(3):
        lite.ask([0.1, 0.1])
    real = time.time_ns
    assert lite.status().get("notes") == []
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    assert "3600 s after this clock's time" in lite.status()["notes"][0]
    lite.ask([0.1, 0.1])
    assert lite.status()["notes"] == []
    monkeypatch.setattr(time, "time_ns", real)
    report = lite.verify()
    assert (report.ok, report.clock_back, report.clock_back_at) == (True, 1, 5)
    code, out = run("study", "verify", "trial", "--storage", lite.store.storage)
    assert (code, "Events dated earlier than the event before them: 1; the first is 5." in out) == (0, True)
