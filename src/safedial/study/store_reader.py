"""The studies of a store, for reading: which there are, their specifications, and their states as of now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from safedial.errors import InvalidInput
from safedial.policies import Policy
from safedial.study.database import connect, reading
from safedial.study.errors import StoreUnavailable, StudyError
from safedial.study.kept_states import NEVER
from safedial.study.log import Head, find_study, read_event, read_head
from safedial.study.replay_log import Kept, NeedsReplay, Source, load_state, read_study
from safedial.study.replayer import Ready
from safedial.study.spec import StudySpec
from safedial.study.state import State
from safedial.study.transaction import StudyTransaction

MOST_READ, MOST_FOLLOWED = 10_000, 256
"""A state so many events behind is read again, from a snapshot; or so many behind a state in memory, from that."""

Operation = Callable[[StudyTransaction], Any]
Answer = TypeVar("Answer")


class Job(NamedTuple):
    """An operation on a study; `ready` is what the replay gave that it needed. `parts` are jobs that share a replay."""

    study: int
    operation: Operation
    future: Future[Any]
    key: str | None
    spec: StudySpec | None
    ready: Ready | Exception | None = None
    parts: tuple[Job, ...] = ()


class StoreReader:
    """What reads a store. `_heads` are the last events that this process knows to be in the logs, `_shots` the states
    that it kept on the way.
    """

    def __init__(self, storage: str, *, create: bool) -> None:
        self.storage = storage
        self.engine = connect(storage, create=create)
        self._ids: dict[str, int] = {}
        self._studies: dict[int, tuple[str, StudySpec]] = {}
        self._policies: dict[int, Policy] = {}
        self._shots: dict[int, Kept] = {}
        self._heads: dict[int, Head] = {}
        self._read_states: dict[int, State] = {}
        self._read_locks: dict[int, threading.Lock] = {}
        self._closed = False
        self._lost = ""

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("storage: the store was closed")

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
                kept = [each.seq - MOST_FOLLOWED for each in self._shots.get(study, ())]
                least = max([head.seq - MOST_READ, *kept])
                lost = acknowledged is not None and head.seq < acknowledged.seq
                transaction = None if state is None or lost else StudyTransaction(source, state)
                if transaction is None or transaction.state.seq < least or not _follows(transaction, head):
                    transaction = StudyTransaction(source, self._loaded(source, acknowledged))
                    state = transaction.state  # the writer and the store keep states to replay from
                    state.snapshots, state.next_shot = [], NEVER
                _, answer, error = run(Job(study, question, Future(), None, spec), transaction)
            self._read_states[study] = transaction.state
        if error is not None:
            raise error
        return answer

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
        state = load_state(source, spec, self._shots.get(source.study, ()))
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


def _follows(transaction: StudyTransaction, head: Head) -> bool:
    """Whether a state could follow its log to the head without a replay, for which the writer keeps states."""
    try:
        return transaction.follow(head, replay=False)
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
    before, transaction.ready = transaction.state.seq, job.ready if isinstance(job.ready, Ready) else None
    if job.spec is not None and not leads_to(job.spec, transaction.state.study):
        words = "has another specification than when it was opened: the store was restored; restart this process"
        return job, None, StudyError("store_unavailable", f"study {transaction.source.name!r}: {words}")
    try:
        return job, job.operation(transaction), None
    except StoreUnavailable:
        raise
    except (InvalidInput, NeedsReplay) as error:
        if transaction.state.seq != before:
            raise RuntimeError("an operation was refused after it had appended events") from error
        return job, None, error
