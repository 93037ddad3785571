"""A changed log is found, and the first event that was changed is named."""

import hashlib
import sqlite3

import pytest

from safedial.errors import InvalidInput
from safedial.study import transaction
from safedial.study.database import sa
from safedial.study.event import START, Event, digest
from safedial.study.log import append_events, read_events
from safedial.study.snapshot import parts
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.verify import verify_study
from tests.study.conftest import SPEC, id_at


@pytest.fixture
def filled(storage):
    """A store with a short study in it, closed; and its checkpoint."""
    with Store(storage) as store:
        study = Study.create("trial", SPEC, storage=store, actor="tester")
        for number in range(4):
            decision = study.ask([0.1 * number, 0.2], key=str(number))
            study.tell(decision.id, reward=0.1, cost=0.1 * number)
        mark = study.checkpoint("for the safe")
    return storage, mark


def change(storage, statement, **values):
    with Store(storage) as store, store.engine.begin() as connection:
        assert connection.execute(sa.text(statement), values).rowcount > 0


def first_bad(storage, checkpoint=None):
    with Store(storage) as store:
        report = verify_study(store, "trial", checkpoint=checkpoint)
    assert not report.ok
    return report.first_bad


@pytest.mark.parametrize("seq", [1, 2, 5, 10])
@pytest.mark.parametrize("column", ["kind", "decision", "at", "actor", "reason", "body", "hash"])
def test_a_change_of_any_column_of_any_event_is_named(filled, seq, column):
    storage, _ = filled
    new = {"decision": 7, "at": 5, "hash": bytes(32)}.get(column, "x")
    if column == "body":
        with Store(storage) as store, store.engine.begin() as connection:
            new = connection.execute(
                sa.text("SELECT body FROM events WHERE study_id = 1 AND seq = :s"), {"s": seq}
            ).scalar()
        new = new[:-1] + " }"
    change(storage, f"UPDATE events SET {column} = :new WHERE study_id = 1 AND seq = :seq", new=new, seq=seq)  # noqa: S608
    assert first_bad(storage) == seq


def test_a_missing_event_and_a_cut_log_are_named(filled):
    storage, _ = filled
    change(storage, "DELETE FROM events WHERE study_id = 1 AND seq = 10")
    assert first_bad(storage) == 10
    change(storage, "DELETE FROM events WHERE study_id = 1 AND seq = 4")
    assert first_bad(storage) == 4


def test_an_event_moved_to_another_study_is_named(filled):
    storage, _ = filled
    change(storage, "UPDATE events SET study_id = 9 WHERE study_id = 1 AND seq = 3")
    assert first_bad(storage) == 3


def test_a_changed_head_is_named(filled):
    storage, _ = filled
    change(storage, "UPDATE studies SET head_hash = :new WHERE id = 1", new=bytes(32))
    assert first_bad(storage) == 10


def rewrite(storage, old, new):
    """Change what outcomes say, and make every hash anew, as the owner of the database can."""
    with Store(storage) as store, store.engine.begin() as connection:
        events, previous = [], START
        for event in read_events(connection, 1):
            told = (*event[:6], event.body.replace(old, new) if event.kind == "outcome" else event.body)
            events.append(Event(*told, digest(previous, "trial", told)))
            previous = events[-1].hash
        connection.execute(sa.text("DELETE FROM events WHERE study_id = 1"))
        append_events(connection, 1, events)


def test_a_log_rewritten_with_fresh_hashes_shows_in_the_decisions_that_follow(filled):
    storage, _ = filled
    rewrite(storage, '"cost":0.1,', '"cost":0.4,')
    assert first_bad(storage) == 6


def test_a_log_rewritten_with_fresh_hashes_is_found_by_a_checkpoint_kept_elsewhere(filled):
    storage, mark = filled
    rewrite(storage, '"cost":0.30000000000000004,', '"cost":0.3,')
    with Store(storage) as store:
        assert verify_study(store, "trial").ok
    assert first_bad(storage, mark) == first_bad(storage, f"{mark['seq']}:{mark['hash']}") == mark["seq"]
    assert first_bad(storage, f"99:{mark['hash']}") == 11
    for odd in ("nonsense", f"0:{mark['hash']}", f"-1:{mark['hash']}", f"{mark['seq']}:", f"{mark['seq']}:abcd", {}):
        with Store(storage) as store, pytest.raises(InvalidInput, match="SEQ:HASH"):
            verify_study(store, "trial", checkpoint=odd)


def test_an_idempotency_key_that_stands_for_another_request_or_for_nothing_is_named(filled):
    storage, _ = filled
    with Store(storage) as store:
        study = Study.create("trial", storage=store, load_if_exists=True)
        study.correct(id_at(study, 2), cost=0.2, reason="typing error", key="correction")
        assert study.verify().ok
    change(storage, "UPDATE idempotency SET seq = 6 WHERE key = '1'")
    assert first_bad(storage) == 6
    change(storage, "UPDATE idempotency SET seq = 3 WHERE key = '1'")
    assert first_bad(storage) == 3
    change(storage, "UPDATE idempotency SET seq = 99 WHERE key = '1'")
    assert first_bad(storage) == 99


@pytest.fixture
def shot(tmp_path, monkeypatch):
    """The URL of a store with one snapshot, at event 10 of 13; and how to put another in its place."""
    monkeypatch.setattr(transaction, "SNAPSHOT_EVENTS", 10)
    url = f"sqlite:///{tmp_path}/trial.db"
    with Store(url) as store:
        study = Study.create("trial", SPEC, storage=store)
        for number in range(6):
            study.tell(study.ask([0.1, 0.2]).id, reward=0.1, cost=0.01 * number)

    def replace(content, seq=10):
        values = {"content": content, "digest": hashlib.sha256(content).digest(), "seq": seq}
        change(
            url, "UPDATE snapshots SET content = :content, digest = :digest, seq = :seq WHERE study_id = 1", **values
        )

    with sqlite3.connect(tmp_path / "trial.db") as connection:
        content = connection.execute("SELECT content FROM snapshots WHERE seq = 10").fetchone()[0]
    connection.close()
    return url, content, replace


def test_a_snapshot_with_another_matrix_and_a_fresh_digest_is_named(shot):
    url, content, replace = shot
    head, arrays = parts(content)
    start = content.index(b"\n") + 1
    for name, kind, shape in head["arrays"]:
        size = arrays[name].nbytes
        if kind == "<f8" and size:
            changed = (arrays[name] * 1.001 + 0.001).tobytes()
            replace(content[:start] + changed + content[start + size :])
            assert first_bad(url) == 10, (name, shape)
        start += size
    replace(content)
    with Store(url) as store:
        assert verify_study(store, "trial").ok


def test_a_snapshot_that_is_none_is_named_and_the_study_goes_on_without_it(shot):
    url, content, replace = shot
    for odd in (b"garbage", b"{}\n", content.replace(b'"format":1', b'"format":9'), content[:-8]):
        replace(odd)
        assert first_bad(url) == 10
        with Store(url) as store:
            assert Study.create("trial", storage=store, load_if_exists=True).status()["decisions"] == 6


def test_a_cut_log_whose_head_was_moved_is_named_by_the_snapshot_beyond_it(shot):
    url, _, _ = shot
    change(url, "DELETE FROM events WHERE study_id = 1 AND seq > 8")
    last = "(SELECT hash FROM events WHERE study_id = 1 AND seq = 8)"
    change(url, f"UPDATE studies SET head_seq = 8, head_hash = {last} WHERE id = 1")  # noqa: S608 -- fixed
    assert first_bad(url) == 9


def test_any_flipped_bit_of_a_stored_event_is_found(tmp_path, count):
    """Bits of the database file itself, inside the bodies."""
    path = tmp_path / "trial.db"
    with Store(f"sqlite:///{path}") as store:
        study = Study.create("trial", SPEC, storage=store)
        study.tell(study.ask([0.3, 0.4]).id, reward=0.1, cost=0.2)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        bodies = [
            row[0].encode() for row in connection.execute("SELECT body FROM events WHERE study_id = 1 ORDER BY seq")
        ]
    connection.close()
    whole = path.read_bytes()
    for seq, body in enumerate(bodies, 1):
        start = whole.index(body)
        for place in range(start, start + len(body), count(37, 5)):
            changed = bytearray(whole)
            changed[place] ^= 1
            (tmp_path / "changed.db").write_bytes(changed)
            with Store(f"sqlite:///{tmp_path}/changed.db") as store:
                assert verify_study(store, "trial").first_bad == seq
