"""The k-th statement or commit fails, for every k of a scripted run: nothing half-written, nothing lost."""

import sqlite3
import threading

import pytest

from safedial.study.database import sa
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StoreUnavailable, StudyError
from tests.study.conftest import SPEC
from tests.study.postgres import Server


class Fault:
    """Counts what the database is asked to do, and fails the k-th time."""

    def __init__(self, engine, kind, k):
        self.kind, self.k, self.seen = kind, k, 0
        if kind == "statement":
            sa.event.listen(engine, "before_cursor_execute", self.statement)
        else:
            sa.event.listen(engine, "commit", self.commit)

    def statement(self, *_):
        self.count()

    def commit(self, connection):
        if self.kind == "lost answer" and self.seen + 1 == self.k:
            connection.connection.driver_connection.commit()
        self.count()

    def count(self):
        self.seen += 1
        if self.seen == self.k:
            raise sa.exc.OperationalError("INSERT", {}, sqlite3.OperationalError("disk I/O error"))


def script(study, again):
    """Everything a study does, each step tried again until it is answered."""
    first = again(lambda: study.ask([0.3, 0.1], key="a"))
    second = again(lambda: study.ask([0.1, 0.3], key="b"))
    again(lambda: study.tell(second.id, reward=0.1, cost=0.2))
    again(lambda: study.tell(first.id, reward=0.1, cost=0.2))
    again(lambda: study.correct(first.id, cost=0.3, reason="typing error", key="c"))
    third = again(lambda: study.ask([0.2, 0.2], key="d"))
    again(lambda: study.amend(changes={"threshold": 0.6}, reason="a new guideline", key="f"))
    again(lambda: study.void(third.id, reason="device off", unrelated=True))
    return again(lambda: study.ask([0.5, 0.5], key="e"))


def run(url, kind, k):
    """(what the log says, how often the fault's place was passed, failures seen)."""
    failures = []

    def again(step):
        try:
            return step()
        except StoreUnavailable as error:
            failures.append(error.code)
            return step()

    with Store(url) as store:
        study = Study.create("trial", SPEC, storage=store, actor="tester")
        study.status()
        fault = Fault(store.engine, kind, k)
        last = script(study, again)
        places, fault.k = fault.seen, 0
        assert set(failures) <= {"store_unavailable"}
        assert study.verify().ok
        told = [(event["kind"], (event["decision_id"] or "").split(".")[:2]) for event in study.events()["events"]]
        return told, last.action, places, len(failures)


@pytest.mark.parametrize("kind", ["statement", "commit", "lost answer"])
def test_whatever_fails_the_log_ends_up_the_same(kind, tmp_path, postgres, count):
    told, action, places, none = run(f"sqlite:///{tmp_path}/clean.db", kind, 0)
    assert none == 0
    assert places >= 8
    for k in range(1, places + 1):
        assert run(f"sqlite:///{tmp_path}/{kind}{k}.db", kind, k)[:2] == (told, action)
    for k in range(1, places + 1, count(9, 1)):
        assert run(postgres.url(), kind, k)[:2] == (told, action)


def test_a_store_that_is_gone_says_so_and_an_open_one_comes_back(tmp_path):
    with pytest.raises(StoreUnavailable):
        Store("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable, match="no such file"):
        Store(f"sqlite:///{tmp_path}/none.db", create=False)


def test_a_locked_store_is_unavailable_and_then_available_again(storage, monkeypatch):
    monkeypatch.setattr("safedial.study.database.BUSY_SECONDS", 0.1)
    with Store(storage) as store, Store(storage) as other:
        study = Study.create("trial", SPEC, storage=store)
        study.ask([0.1, 0.1])
        with other.engine.connect().execution_options(safedial_write=True) as connection, connection.begin():
            connection.execute(sa.text("UPDATE studies SET head_seq = head_seq WHERE id = 1"))
            with pytest.raises(StoreUnavailable, match="lock"):
                study.ask([0.1, 0.1])
        assert study.ask([0.1, 0.1]).seq == 3


def test_an_operation_that_breaks_hurts_nobody_else(lite):
    lite.ask([0.1, 0.1])
    futures = [lite.ask([0.1, 0.1], wait=False) for _ in range(3)]
    futures.insert(1, lite.store.submit(lite._id, lite.name, lambda transaction: 1 / 0))

    def refused_too_late(transaction):
        from safedial.errors import InvalidInput

        transaction.append("checkpoint", {}, actor="x")
        raise InvalidInput("too late")

    futures.insert(2, lite.store.submit(lite._id, lite.name, refused_too_late))
    kinds = [type(future.exception()).__name__ for future in futures]
    assert kinds == ["NoneType", "ZeroDivisionError", "RuntimeError", "NoneType", "NoneType"]
    assert lite.status()["decisions"] == 4
    assert lite.verify().ok


def test_a_closed_store_refuses_and_closing_twice_is_fine(tmp_path):
    store = Store(f"sqlite:///{tmp_path}/trial.db")
    study = Study.create("trial", SPEC, storage=store)
    waiting = [study.ask([0.1, 0.1], wait=False) for _ in range(20)]
    store.close()
    store.close()
    assert [future.result().seq for future in waiting] == list(range(2, 22))
    with pytest.raises(StoreUnavailable, match="closed"):
        study.ask([0.1, 0.1])


def put_back(url, events):
    """Restore a store to an earlier time, in place, under a running process."""
    with Store(url) as other, other.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM events WHERE study_id = 1 AND seq > :s"), {"s": events})
        where = {"s": events}
        head = connection.execute(sa.text("SELECT hash FROM events WHERE study_id = 1 AND seq = :s"), where).scalar()
        words = "UPDATE studies SET head_seq = :s, head_hash = :h WHERE id = 1"
        connection.execute(sa.text(words), {"s": events, "h": head})


@pytest.mark.parametrize("again", [0, 1, 3])
def test_a_process_that_is_ahead_of_its_log_refuses_until_it_is_started_anew(storage, again):
    """After a restore, or a crash of a server that acknowledged too early; others may have gone on since."""
    with Store(storage) as store:
        study = Study.create("trial", SPEC, storage=store)
        for _ in range(3):
            study.ask([0.1, 0.1])
        put_back(storage, 3)
        with Store(storage) as other:
            for _ in range(again):
                Study.create("trial", storage=other, load_if_exists=True).ask([0.3, 0.1])
        for _ in range(2):
            with pytest.raises(StudyError) as refused:
                study.ask([0.2, 0.1])
            assert refused.value.code in ("store_unavailable", "log_broken")
        assert "restart this process" in str(refused.value)
        with pytest.raises(StoreUnavailable, match="restart this process"):
            store.check_writable()
    with Store(storage) as store:
        study = Study.create("trial", storage=store, load_if_exists=True)
        assert study.ask([0.2, 0.1]).seq == 4 + again
        assert study.verify().ok


def test_a_study_whose_process_is_ahead_does_not_hurt_the_others_of_its_batch(storage):
    with Store(storage) as store:
        back, whole = (Study.create(name, SPEC, storage=store) for name in ("back", "whole"))
        for study in (back, whole):
            study.ask([0.1, 0.1])
        put_back(storage, 1)
        start = threading.Event()
        hold = store.submit(2, "whole", lambda _: start.wait(30))
        answers = [study.ask([0.2, 0.2], wait=False) for study in (back, whole) * 3]
        start.set()
        assert hold.result()
        assert [answer.exception() is None for answer in answers] == [False, True] * 3


def test_a_study_whose_log_is_broken_does_not_hurt_the_others_of_its_batch(tmp_path):
    url = f"sqlite:///{tmp_path}/trial.db"
    with Store(url) as store:
        for name in ("broken", "whole"):
            Study.create(name, SPEC, storage=store).ask([0.1, 0.1])
        with store.engine.begin() as connection:
            connection.execute(sa.text("UPDATE events SET actor = 'x' WHERE study_id = 1 AND seq = 2"))
    with Store(url) as store:
        broken, whole = (Study.create(name, storage=store, load_if_exists=True) for name in ("broken", "whole"))
        start = threading.Event()
        hold = store.submit(2, "whole", lambda _: start.wait(30))
        answers = [study.ask([0.2, 0.2], wait=False) for study in (broken, whole) * 5]
        start.set()
        assert hold.result()
        assert [answer.exception() is None for answer in answers] == [False, True] * 5
        assert {getattr(answer.exception(), "code", "") for answer in answers} == {"log_broken", ""}
        assert whole.verify().ok


@pytest.mark.parametrize(
    ("default", "used"), [("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply", "remote_apply")]
)
def test_a_postgresql_that_acknowledges_before_the_disk_has_it_is_told_to_wait(postgres, default, used):
    with Store(postgres.url(synchronous_commit=default)) as store, store.engine.connect() as connection:
        assert connection.execute(sa.text("SHOW synchronous_commit")).scalar() == used


@pytest.mark.slow
def test_what_was_acknowledged_survives_the_crash_of_a_server_that_acknowledges_too_early():
    server = Server(durable=True, settings="-c synchronous_commit=off -c wal_writer_delay=10s")
    try:
        url = server.url()
        with Store(url) as store:
            study = Study.create("trial", SPEC, storage=store)
            told = [study.ask([0.1, 0.01 * number]).seq for number in range(20)]
            server.crash()
        with Store(url) as store:
            events = Study.create("trial", storage=store, load_if_exists=True).events()["events"]
    finally:
        server.stop()
    assert {event["seq"] for event in events} >= set(told)


@pytest.mark.parametrize("found", ["", "one", "1.0", "-1", "1; DROP", "9" * 5000, "Ⅴ"])
def test_a_schema_version_that_is_no_number_is_refused_in_one_sentence(tmp_path, found):
    url = f"sqlite:///{tmp_path}/trial.db"
    Store(url).close()
    with sqlite3.connect(tmp_path / "trial.db") as connection:
        connection.execute("UPDATE safedial_meta SET value = ? WHERE name = 'schema'", (found,))
    connection.close()
    with pytest.raises(StudyError, match="must be a whole number") as refused:
        Store(url)
    assert (refused.value.code, str(refused.value).count("\n")) == ("wrong_schema", 0)
