"""A store: one database, many studies, one thread that writes.

Operations of all threads wait in one queue. The writer takes what is there, locks the heads of the studies concerned
(in the order of their ids, so that two processes never deadlock), lets each operation append its events, commits once
for all of them, and only then answers. So many callers share one commit, and only durable writes are acknowledged. If
anything fails, everything is rolled back and the states in memory are discarded.

Questions about a state (`read`) do not wait for the writer, nor it for them. A replay of a log, for a change of the
past, is done by the writer a little at a time, between what others want to write.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from safedial.errors import InvalidInput
from safedial.policies import Policy
from safedial.study import study_errors
from safedial.study.database import Writer, connect, is_read_only, meta, reading, shown, writing
from safedial.study.log import Head, find_study, lock_head, read_event, read_head
from safedial.study.replay_log import Change, NeedsReplay, Replay, Source, load_state, read_study
from safedial.study.state import State
from safedial.study.study_errors import StoreUnavailable, StudyError
from safedial.study.study_spec import StudySpec
from safedial.study.transaction import StudyTransaction

MOST_READ = 10_000
"""A state so many events behind is read again, from a snapshot."""

SLICE_SECONDS = 5e-3
"""How long the writer goes on with a replay at a time, while others wait."""

LARGEST_BATCH = 256
FAR_BEHIND = 1_000
"""A state so many events behind catches up before the store is locked."""

FAILED_SECONDS, FRESH_SECONDS = 5.0, 1.0
"""How long a store counts as not writable after a failed write, and as writable after a successful test."""

Operation = Callable[[StudyTransaction], Any]
Answer = TypeVar("Answer")


class Job(NamedTuple):
    """An operation on a study."""

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

    A SQLite file is opened for reading if it or its folder cannot be written: `verify`, `export`, `explain` and
    `status` answer, and everything that writes is refused.

    `_heads` are the last events that this process knows to be in the logs.
    """

    def __init__(self, storage: str, *, create: bool = True) -> None:
        self.storage = storage
        self.engine = connect(storage, create=create)
        self._ids: dict[str, int] = {}
        self._studies: dict[int, tuple[str, StudySpec]] = {}
        self._policies: dict[int, Policy] = {}
        self._heads: dict[int, Head] = {}
        self._read_states: dict[int, State] = {}
        self._read_locks: dict[int, threading.Lock] = {}
        self._closed = False
        self._lost = ""
        self._writer = Writer(self.engine)
        self._begin = partial(reading, self.engine) if is_read_only(self.engine) else self._writer.begin
        self._states: dict[int, State] = {}
        self._jobs: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._held: list[Job] | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._changes: list[tuple[Job, Change]] = []
        self._replays: dict[int, Replay] = {}
        self._failed = self._written = -math.inf

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
        self.release()
        if self._thread:
            self._jobs.put(None)
            self._thread.join()
        self._writer.close()
        self.engine.dispose()

    def find(self, name: str) -> int:
        """The id of a study."""
        if name not in self._ids:
            with reading(self.engine) as connection:
                found = find_study(connection, str(name))
            if not found:
                told = (
                    f"name = {str(name)[:80]!r}: there is no such study in this store; `safedial study list` names all"
                )
                raise StudyError("unknown_study", told)
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

    def read(
        self,
        study: int,
        name: str,
        question: Callable[[StudyTransaction], Answer],
        *,
        spec: StudySpec | None = None,
    ) -> Answer:
        """The answer of a study's state as of now, apart from the writer. `spec` as for `submit`."""
        self._check_open()
        self.spec(study, name)
        with self._read_locks.setdefault(study, threading.Lock()):
            acknowledged, state = self._heads.get(study), self._read_states.pop(study, None)
            with reading(self.engine) as connection:
                source, head = Source(connection, study, *self._about(study)), read_head(connection, study)
                lost = acknowledged is not None and head.seq < acknowledged.seq
                transaction = None if state is None or lost else StudyTransaction(source, state)
                far = transaction is None or transaction.state.seq < head.seq - MOST_READ
                if transaction is None or far or not _follows(transaction, head):
                    transaction = StudyTransaction(source, self._loaded(source, acknowledged))
                _, answer, error = run(Job(study, question, Future(), None, spec), transaction)
            self._read_states[study] = transaction.state
        if error is not None:
            raise error
        return answer

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
            self._check_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="safedial-writer", daemon=True)
                self._thread.start()
            job = Job(study, operation, future, key, spec)
            if self._held is None:
                self._jobs.put([job])
            else:
                self._held.append(job)
        return future

    def hold(self) -> None:
        """Keep operations back until `release`, which the caller must call soon: the writer is woken once for all."""
        with self._lock:
            self._held = [] if self._held is None else self._held

    def release(self) -> None:
        """Hand the operations that were kept back to the writer."""
        with self._lock:
            held, self._held = self._held, None
            if held:
                self._jobs.put(held)

    def prepare(self, name: str) -> None:
        """Read a study's log, so that its first decision need not wait for that."""
        study = self.find(name)
        self.spec(study, name)
        if study not in self._states:
            self._states.setdefault(study, self._load(study))

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

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("storage: the store was closed")

    def _about(self, study: int) -> tuple[str, Policy | None]:
        return self._studies[study][0], self.own_policy(study)

    def _load(self, study: int) -> State:
        """The state from the log as it is now; its specification replaces the known one."""
        acknowledged = self._heads.get(study)
        with reading(self.engine) as connection:
            state = self._loaded(Source(connection, study, *self._about(study)), acknowledged)
        self._studies[study] = self._studies[study][0], state.study
        return state

    def _loaded(self, source: Source, acknowledged: Head | None) -> State:
        """The state from the log as it is now. The specification is read again too, because a store may be restored.

        `acknowledged` is the last event that this process knew to be in the log before it began to read.
        """
        known, spec = self._studies[source.study][1], read_study(source)
        spec = known if same_spec(known, spec) else spec
        state = load_state(source, spec)
        event = None if acknowledged is None else read_event(source.connection, source.study, acknowledged.seq)
        if acknowledged is not None and (event is None or event.hash != acknowledged.hash):
            raise self._taken_back(source.name, acknowledged.seq)
        return state

    def _taken_back(self, name: str, seq: int) -> StudyError:
        """The error for a log that lacks an acknowledged event; it lasts until this process restarts."""
        words = f"event {seq}, which this process has read or acknowledged, is no longer in its log"
        way_out = "the store was restored or has lost writes; restart this process if that was intended"
        self._lost = f"study {name!r}: {words}; {way_out}"
        return StudyError("store_unavailable", self._lost)

    def _work(self) -> None:
        last = False
        while self._changes or self._replays or not last:
            jobs: list[Job] = []
            while not jobs or not (self._jobs.empty() or len(jobs) >= LARGEST_BATCH):
                if self._jobs.empty() and (self._replays or self._changes):
                    break
                more = self._jobs.get()
                if more is None:
                    last = True
                    break
                jobs += more
            self._batch([job for job in jobs if job.future.set_running_or_notify_cancel()])
            self._go_on()

    def _batch(self, jobs: list[Job]) -> None:
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
        self._answer(answers)

    def _go_on(self) -> None:
        """Go on with the replays; begin one for all changes of a study that wait, the first of each round."""
        for study in {job.study for job, _ in self._changes} - self._replays.keys():
            first: dict[int, tuple[Job, Change]] = {}
            for each in self._changes:
                if each[0].study == study:
                    first.setdefault(each[1].decision, each)
            self._changes = [each for each in self._changes if each not in first.values()]
            jobs, changes = (list(each) for each in zip(*first.values(), strict=True))
            source = Source(None, study, *self._about(study))
            self._replays[study] = Replay(self.engine, source, self._studies[study][1], jobs, changes)
        for study, replay in list(self._replays.items()):
            try:
                done = replay.advance(SLICE_SECONDS)
            except Exception as error:
                del self._replays[study]
                again = isinstance(error, NeedsReplay)  # another process has changed the past meanwhile
                self._retry(replay.jobs) if again else self._answer([(job, None, error) for job in replay.jobs])
                continue
            if done:
                del self._replays[study]
                self._replayed(study, replay)

    def _replayed(self, study: int, replay: Replay) -> None:
        """Bring the changes of a replay into the log: all of them, or, where one is refused by now, each alone."""
        try:
            answers = self._write(replay.jobs, {study: replay.state}, replay.changes)
            refused = any(error is not None for _, _, error in answers)
        except StoreUnavailable as error:
            self._failed = time.monotonic()
            answers, refused = [(job, None, error) for job in replay.jobs], False
        except (NeedsReplay, RuntimeError):
            answers, refused = [], True
        others = [job for job, _ in self._changes if job.study == study]
        self._changes = [each for each in self._changes if each[0].study != study]
        self._retry(replay.jobs) if refused else self._answer(answers)
        self._batch(others)  # what they change has changed meanwhile

    def _retry(self, jobs: list[Job]) -> None:
        """Run operations again, each alone."""
        for job in jobs:
            self._batch([job])

    def _answer(self, answers: Sequence[tuple[Job, Any, Exception | None]]) -> None:
        for job, answer, error in answers:
            if error is None:
                job.future.set_result(answer)
            elif isinstance(error, NeedsReplay) and error.change is not None:
                self._changes.append((job, error.change))
            else:
                job.future.set_exception(error)

    def _attempt(self, jobs: list[Job]) -> list[tuple[Job, Any, Exception | None]]:
        wanted = sorted({job.study for job in jobs})
        states = {study: self._states.pop(study, None) or self._load(study) for study in wanted}
        while True:
            try:
                return self._write(jobs, states)
            except NeedsReplay:  # others have written what takes long to follow: not while the store is locked
                states = {study: self._load(study) for study in wanted}

    def _write(
        self, jobs: list[Job], states: dict[int, State], replayed: Sequence[Change] = ()
    ) -> list[tuple[Job, Any, Exception | None]]:
        """The answers of jobs in one transaction. States that were `replayed` with changes know what the jobs bring, so
        either all of these bring them, or nothing is written.
        """
        with self._begin() as connection:
            transactions = {
                study: self._transaction(Source(connection, study, *self._about(study)), state)
                for study, state in states.items()
            }
            if study_errors.armed:
                study_errors.hit("locked")
            for study, transaction in transactions.items():
                keys = [job.key for job in jobs if job.key is not None and job.study == study]
                if keys:
                    transaction.look_up(keys)
            for transaction in transactions.values():
                transaction.replayed = list(replayed)
            answers = [run(job, transactions[job.study]) for job in jobs]
            for transaction in transactions.values():
                if transaction.replayed:
                    raise RuntimeError("a change that was replayed was not appended")
                transaction.finish()
            if study_errors.armed:
                study_errors.hit("before_commit")
        if study_errors.armed:
            study_errors.hit("after_commit")
        self._failed = -math.inf
        for study, transaction in transactions.items():
            state = transaction.state
            self._studies[study] = transaction.source.name, state.study  # amended here or by another process, perhaps
            self._states[study] = state
            self._heads[study] = Head(state.seq, state.hash)
        return answers

    def _transaction(self, source: Source, state: State) -> StudyTransaction:
        head, acknowledged = lock_head(source.connection, source.study), self._heads.get(source.study)
        transaction = StudyTransaction(source, state)
        if head.seq > state.seq + FAR_BEHIND:
            raise NeedsReplay
        if (acknowledged is not None and head.seq < acknowledged.seq) or not transaction.follow(head):
            raise self._taken_back(source.name, state.seq if acknowledged is None else acknowledged.seq)
        return transaction


def _follows(transaction: StudyTransaction, head: Head) -> bool:
    """Whether a state could follow its log to the head without a replay."""
    try:
        return transaction.follow(head)
    except NeedsReplay:
        return False


def same_spec(one: StudySpec, other: StudySpec) -> bool:
    if one is other:
        return True
    names = ("fields", "since", "began")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def leads_to(one: StudySpec, other: StudySpec) -> bool:
    """Whether a study with the first specification can have the other by now: the same, or amended since."""
    return one is other or any(same_spec(one, spec) for spec in other.chain)


def run(job: Job, transaction: StudyTransaction) -> tuple[Job, Any, Exception | None]:
    """An operation's answer, or its refusal; a refusal after appending events is a bug."""
    before = transaction.state.seq
    if job.spec is not None and not leads_to(job.spec, transaction.state.study):
        words = "has another specification than when it was opened: the store was restored; restart this process"
        return job, None, StudyError("store_unavailable", f"study {transaction.source.name!r}: {words}")
    try:
        return job, job.operation(transaction), None
    except StoreUnavailable:
        raise
    except (InvalidInput, NeedsReplay) as error:
        if transaction.state.seq not in (before, transaction.checked_at):
            raise RuntimeError("an operation was refused after it had appended events") from error
        return job, None, error
