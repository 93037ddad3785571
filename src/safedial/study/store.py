"""A store: one database, many studies, one thread that writes.

Operations of all threads wait in one queue. The writer takes what is there, locks the heads of the studies concerned
(in the order of their ids, so that two processes never deadlock), lets each operation append its events, commits once
for all of them, and only then answers. So many callers share one commit, and only durable writes are acknowledged. If
anything fails, everything is rolled back and the states in memory are discarded.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from safedial.errors import InvalidInput
from safedial.policies import Policy
from safedial.study import failpoints
from safedial.study.database import connect, is_read_only, reading, shown, writing
from safedial.study.errors import StoreUnavailable, StudyError
from safedial.study.log import Head, find_study, lock_head, read_event, removed_study
from safedial.study.pseudonyms import read_unit_key
from safedial.study.replay_log import Kept, Source, load_state, read_study
from safedial.study.schema import meta
from safedial.study.spec import StudySpec
from safedial.study.state import State
from safedial.study.transaction import StudyTransaction

LARGEST_BATCH = 256
FAILED_SECONDS, FRESH_SECONDS = 5.0, 1.0
"""How long a store counts as not writable after a failed write, and as writable after a successful test."""

Operation = Callable[[StudyTransaction], Any]
Answer = TypeVar("Answer")


class _Job(NamedTuple):
    study: int
    operation: Operation
    future: Future[Any]
    key: str | None
    spec: StudySpec | None


class Store:
    """An open store. Make one for each process, share it between threads, and `close` it at the end, or use `with`.

    Args:
        storage: sqlite:///file.db or postgresql://user@host/database.
        create: create the tables if there are none; False refuses a file that does not exist.
        upgrade: upgrade an older store when it is opened; False leaves its tables as they are (`migrate`).
        unit_keys: keys of studies that store pseudonyms of their units, each env:NAME, file:PATH or bytes.

    A SQLite file is opened for reading if it or its folder cannot be written: `verify`, `export`, `explain` and
    `status` answer, and everything that writes is refused.
    """

    def __init__(
        self, storage: str, *, create: bool = True, upgrade: bool = True, unit_keys: Iterable[str | bytes] = ()
    ) -> None:
        self.storage = storage
        self.unit_keys = [read_unit_key(each) for each in unit_keys]
        self.engine = connect(storage, create=create, upgrade=upgrade)
        self._begin = reading if is_read_only(self.engine) else writing
        self._ids: dict[str, int] = {}
        self._studies: dict[int, tuple[str, StudySpec]] = {}
        self._policies: dict[int, Policy] = {}
        self._states: dict[int, State] = {}
        self._shots: dict[int, Kept] = {}
        self._heads: dict[int, Head] = {}
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failed = self._written = -math.inf
        self._lost = ""

    def __repr__(self) -> str:
        return f"Store({shown(self.storage)!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what waits and close the database."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        if self._thread:
            self._jobs.put(None)
            self._thread.join()
        self.engine.dispose()

    def find(self, name: str) -> int:
        """The id of a study."""
        if name not in self._ids:
            with reading(self.engine) as connection:
                found = find_study(connection, str(name))
                gone = None if found else removed_study(connection, str(name))
            if gone is not None:
                raise gone
            if not found:
                raise StudyError("unknown_study", f"name = {str(name)[:80]!r}: there is no such study in this store")
            self._ids[name] = found
        return self._ids[name]

    def spec(self, study: int, name: str, policy: Policy | None = None, *, since: int = 0) -> StudySpec:
        """The specification of a study, at least as of the amendment `since`; `policy` is its policy, if that is the
        user's own.
        """
        if study not in self._studies or policy is not None or self._studies[study][1].since < since:
            with reading(self.engine) as connection:
                found = read_study(Source(connection, study, name, policy or self.own_policy(study)))
            if policy is not None:
                self._policies.setdefault(study, policy)
            if study not in self._studies or leads_to(self._studies[study][1], found):
                self._studies[study] = name, found
        return self._studies[study][1]

    def own_policy(self, study: int) -> Policy | None:
        """The policy that a study was opened with."""
        return self._policies.get(study)

    def submit(
        self,
        study: int,
        name: str,
        operation: Callable[[StudyTransaction], Answer],
        *,
        key: str | None = None,
        spec: StudySpec | None = None,
    ) -> Future[Answer]:
        """Run an operation on a study in the writer's next transaction; the future is done after the commit.

        `key` is the operation's idempotency key, given here so that the keys of a batch are read together. `spec` is
        the specification that it was prepared with; it is refused if the study has another.
        """
        self.spec(study, name)
        future: Future[Answer] = Future()
        with self._lock:
            if self._closed:
                raise StoreUnavailable("storage: the store was closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="safedial-writer", daemon=True)
                self._thread.start()
            self._jobs.put(_Job(study, operation, future, key, spec))
        return future

    def check_writable(self) -> None:
        """Raise `StoreUnavailable` if the last write has just failed, or if a write that changes nothing fails."""
        if self._lost:
            raise StoreUnavailable(self._lost)
        since = time.monotonic()
        if since - self._failed < FAILED_SECONDS:
            raise StoreUnavailable("storage: the last write failed; its caller was told why")
        if since - self._written < FRESH_SECONDS:
            return
        with writing(self.engine) as connection:
            connection.execute(meta.update().where(meta.c.name == "schema").values(value=meta.c.value))
        self._written = since

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs, last = [job], False
            while len(jobs) < LARGEST_BATCH and not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    last = True
                    break
                jobs.append(more)
            self._batch([job for job in jobs if job.future.set_running_or_notify_cancel()])
            if last:
                return

    def _batch(self, jobs: list[_Job]) -> None:
        """Run all jobs in one transaction; after a job's error run each in its own, so that it fails alone."""
        try:
            answers = self._attempt(jobs) if jobs else []
        except StoreUnavailable as error:
            self._failed = time.monotonic()
            answers = [(job, None, error) for job in jobs]
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._batch([job])
                return
            answers = [(job, None, error) for job in jobs]
        for job, answer, error in answers:
            if error is None:
                job.future.set_result(answer)
            else:
                job.future.set_exception(error)

    def _attempt(self, jobs: list[_Job]) -> list[tuple[_Job, Any, InvalidInput | None]]:
        wanted = sorted({job.study for job in jobs})
        states = {study: self._states.pop(study, None) or self._load(study) for study in wanted}
        with self._begin(self.engine) as connection:
            transactions = {study: self._transaction(connection, study, state) for study, state in states.items()}
            if failpoints.armed:
                failpoints.hit("locked")
            for study, transaction in transactions.items():
                keys = [job.key for job in jobs if job.key is not None and job.study == study]
                if keys:
                    transaction.look_up(keys)
            answers = [_run(job, transactions[job.study]) for job in jobs]
            for transaction in transactions.values():
                transaction.finish()
            if failpoints.armed:
                failpoints.hit("before_commit")
        if failpoints.armed:
            failpoints.hit("after_commit")
        self._failed = -math.inf
        for study, transaction in transactions.items():  # it may have been amended, here or by another process
            self._studies[study] = transaction.source.name, transaction.state.study
        self._states |= {study: transaction.state for study, transaction in transactions.items()}
        self._shots |= {study: transaction.state.snapshots for study, transaction in transactions.items()}
        self._heads |= {
            study: Head(transaction.state.seq, transaction.state.hash) for study, transaction in transactions.items()
        }
        return answers

    def _load(self, study: int) -> State:
        """The state from the log as it is now. The specification is read again too, because a store may be restored."""
        name, known = self._studies[study]
        with reading(self.engine) as connection:
            source = Source(connection, study, name, self.own_policy(study))
            spec = read_study(source)
            if not _same(spec, known):
                self._studies[study] = name, spec
            state = load_state(source, self._studies[study][1], self._shots.get(study, ()))
            acknowledged = self._heads.get(study)
            event = None if acknowledged is None else read_event(connection, study, acknowledged.seq)
        if acknowledged is not None and (event is None or event.hash != acknowledged.hash):
            raise self._taken_back(name, acknowledged.seq)
        return state

    def _transaction(self, connection: Any, study: int, state: State) -> StudyTransaction:
        name, _ = self._studies[study]
        head, acknowledged = lock_head(connection, study), self._heads.get(study)
        transaction = StudyTransaction(Source(connection, study, name, self.own_policy(study)), state)
        if (acknowledged is not None and head.seq < acknowledged.seq) or not transaction.follow(head):
            raise self._taken_back(name, state.seq if acknowledged is None else acknowledged.seq)
        return transaction

    def _taken_back(self, name: str, seq: int) -> StudyError:
        """The error for a log that lacks an acknowledged event; it lasts until this process restarts."""
        words = f"event {seq}, which this process has read or acknowledged, is no longer in its log"
        way_out = "the store was restored or has lost writes; restart this process if that was intended"
        self._lost = f"study {name!r}: {words}; {way_out}"
        return StudyError("store_unavailable", self._lost)


def _same(one: StudySpec, other: StudySpec) -> bool:
    if one is other:
        return True
    return all(
        getattr(one, name) == getattr(other, name) for name in ("rules_version", "fields", "unit_check", "since")
    )


def leads_to(one: StudySpec, other: StudySpec) -> bool:
    """Whether a study with the first specification can have the other by now: the same, or amended since."""
    return any(_same(one, spec) for spec in other.chain)


def _run(job: _Job, transaction: StudyTransaction) -> tuple[_Job, Any, InvalidInput | None]:
    """An operation's answer, or its refusal; a refusal after appending events is a bug."""
    before = transaction.state.seq
    if job.spec is not None and not leads_to(job.spec, transaction.state.study):
        words = "has another specification than when it was opened: the store was restored; restart this process"
        return job, None, StudyError("store_unavailable", f"study {transaction.source.name!r}: {words}")
    try:
        return job, job.operation(transaction), None
    except StoreUnavailable:
        raise
    except InvalidInput as error:
        if transaction.state.seq != before:
            raise RuntimeError("an operation was refused after it had appended events") from error
        return job, None, error
