"""A state from the log: the latest usable snapshot, and the events after it.

A correction, or a void after an outcome, changes an earlier event. The log is then replayed with the new values, from
the last snapshot before the changed outcome; so the state is as if the right value had been reported at first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from safedial.policies import FACTORIES, Policy
from safedial.study.amendment import amended_spec
from safedial.study.database import reading
from safedial.study.event import EVENT_KINDS, FORMAT, START, Event, follows
from safedial.study.log import events_about, read_event, read_events, read_head, read_snapshot, revisions, snapshot_seqs
from safedial.study.reducer import update_state
from safedial.study.snapshot import unpacked
from safedial.study.state import State
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec, read_spec


class Source(NamedTuple):
    """Where a state comes from: a connection and a log."""

    connection: Any
    study: int
    name: str
    policy: Policy | None = None
    """The study's policy, if it is the user's own."""


def read_study(source: Source) -> StudySpec:
    """The specification of a study as of now: of its first event and of every amendment, whose hashes must be right."""
    spec = first_spec(source)
    for event in events_about(source.connection, source.study, 1):
        if EVENT_KINDS[event.kind].amends:
            before = read_event(source.connection, source.study, event.seq - 1)
            if before is None or not follows(before.hash, source.name, event):
                words = f"event {event.seq} does not follow the previous one; verify the study"
                raise StudyError("log_broken", f"study {source.name!r}: {words}")
            spec = amended_spec(spec, event.fields()["spec"], since=event.seq)
    return spec


def first_spec(source: Source) -> StudySpec:
    """The specification that a study began with, from its first event, whose hash must be right."""
    name, first = source.name, read_event(source.connection, source.study, 1)
    if first is None or not EVENT_KINDS[first.kind].creates_study:
        raise StudyError("log_broken", f"study {name!r}: its log does not begin with study_created")
    if not follows(START, name, first):
        raise StudyError("log_broken", f"study {name!r}: event 1 does not match its hash; verify the study")
    body = first.fields()
    if body.get("format") != FORMAT:
        words = f"its log has format {body.get('format')!r}; this safedial reads format {FORMAT}"
        raise StudyError("wrong_schema", f"study {name!r}: {words}; open it with the version that wrote it")
    policy = body["spec"]["policy"]["name"]
    if policy not in FACTORIES and source.policy is None:
        words = f"its policy {policy!r} is your own, which a log cannot hold"
        way_out = "open the study in Python and give it again: Study.open(name, storage=..., policy=...)"
        raise StudyError("own_policy", f"study {name!r}: {words}; {way_out}")
    return read_spec(body["spec"], quiet=True, own=source.policy)


# --- Changes of the past


class Change(NamedTuple):
    """New values of an earlier outcome, which event `seq` brings."""

    seq: int
    decision: int
    outcome: int
    values: dict[str, Any]


class NeedsReplay(Exception):
    """An event changes the past, so the log must be replayed; not while the store is locked."""

    def __init__(self, change: Change | None = None) -> None:
        super().__init__("an event changes the past")
        self.change = change


def change_of(event: Event, body: dict[str, Any]) -> Change | None:
    """How an event changes an earlier outcome; None if it does not."""
    means = EVENT_KINDS[event.kind]
    if means.reports and means.revises:
        return Change(event.seq, event.decision, body["outcome_seq"], body)
    if body.get("after_outcome"):
        gone = {"gone": "skip" if body["unrelated"] else "block"}
        return Change(event.seq, event.decision, body["outcome_seq"], gone)
    return None


def changes_in(source: Source, after: int, upto: int) -> list[Change]:
    """The changes that the log brings after one seq, up to another."""
    events = revisions(source.connection, source.study, after, upto)
    return [each for each in (change_of(event, event.fields()) for event in events) if each is not None]


def merged(changes: Sequence[Change]) -> dict[int, dict[str, Any]]:
    """The last values of each changed round. One may be corrected and then voided: its last cost stays known."""
    fixes: dict[int, dict[str, Any]] = {}
    for each in changes:
        fixes[each.decision] = {**fixes.get(each.decision, {}), **each.values}
    return fixes


# --- Replays


def load_state(source: Source, spec: StudySpec) -> State:
    """The state after the last event."""
    return replay(source, spec, read_head(source.connection, source.study).seq)


def catch_up(source: Source, state: State, upto: int = 2**62) -> State:
    """Apply the events after a state, up to a seq; the hash of each must follow from the previous one. An event that
    changes the past raises `NeedsReplay`.
    """
    for event in read_events(source.connection, source.study, state.seq, upto):
        _check_link(source, state, event)
        body = event.fields()
        if change_of(event, body) is not None:
            raise NeedsReplay
        state = apply_event(state, event, body)
    return state


def _check_link(source: Source, state: State, event: Event) -> None:
    if event.seq != state.seq + 1 or not follows(state.hash, source.name, event):
        words = f"event {state.seq + 1} does not follow the previous one; verify the study"
        raise StudyError("log_broken", f"study {source.name!r}: {words}")


def apply_event(state: State, event: Event, body: dict[str, Any], *, known: Any = None) -> State:
    """The state after one more event, which does not change the past."""
    state = update_state(state, event, body, known=known)
    state.hash = event.hash
    return state


def replay(
    source: Source, spec: StudySpec, upto: int = 2**62, *, stored: Sequence[tuple[int, bytes]] | None = None
) -> State:
    """The state after event `upto`, with every change up to it applied to the outcome that it changes. It may begin at
    one of the `stored` snapshots, by default any that the log confirms.
    """
    state, changes = begin_replay(source, spec, upto, (), stored=stored)
    fixes, start = merged(changes), state.seq
    for event in read_events(source.connection, source.study, start, upto):
        state = _replayed(source, state, event, fixes)
    state.replayed = state.seq - start if changes else 0
    return state


def _replayed(source: Source, state: State, event: Event, fixes: dict[int, dict[str, Any]]) -> State:
    """The state after one more event, whose values are those of the fixes."""
    _check_link(source, state, event)
    state = update_state(state, event, event.fields(), fixes)
    state.hash = event.hash
    return state


def begin_replay(
    source: Source,
    spec: StudySpec,
    upto: int,
    further: Sequence[Change],
    *,
    stored: Sequence[tuple[int, bytes]] | None = None,
) -> tuple[State, list[Change]]:
    """The latest state, of a snapshot or before the first event, that knows none of the outcomes that are changed after
    it; and these changes: those of the log, and `further` ones.
    """
    shots = snapshot_seqs(source.connection, source.study, upto) if stored is None else stored
    for seq, name in sorted(shots, reverse=True):
        past = [*changes_in(source, seq, upto), *further]
        if all(each.outcome > seq for each in past):
            state = _restored(source, spec, seq, name)
            if state is not None:
                return state, past
    return State(spec.first), [*changes_in(source, 0, upto), *further]


def _restored(source: Source, spec: StudySpec, seq: int, name: bytes) -> State | None:
    """A stored state, if the log confirms it by the `snapshot` event after it."""
    first, event, mark = (read_event(source.connection, source.study, each) for each in (1, seq, seq + 1))
    content = read_snapshot(source.connection, source.study, seq, name)
    if content is None or first is None or event is None or mark is None:
        return None
    right = EVENT_KINDS[mark.kind].confirms_snapshot and mark.fields() == snapshot_body(first, seq, name)
    if not right or not follows(event.hash, source.name, mark):
        return None
    state = unpacked(spec, content)
    return state if state is not None and state.hash == event.hash else None


def snapshot_body(first: Event, seq: int, name: bytes) -> dict[str, Any]:
    """The body of the event that confirms a snapshot: the state's seq, its digest, the study's first event."""
    return {"after": seq, "digest": name.hex(), "first": first.hash.hex()}


FEW_EVENTS = 256
"""The writer applies the rest of a replay itself if there are so few events left."""

PAGE = 1_000


class Replay:
    """A log that is replayed with changes which are not in it yet, a little at a time, while others write on.

    Attributes:
        jobs: the operations that bring the changes.
        state: the state so far.
    """

    def __init__(self, engine: Any, source: Source, spec: StudySpec, jobs: list[Any], changes: list[Change]) -> None:
        self.jobs, self.changes, self._source, self._engine = jobs, changes, source, engine
        self.state: Any = None
        self._steps = self._run(spec)

    def advance(self, seconds: float) -> bool:
        """Go on for about so long. Returns whether little is left."""
        end = time.monotonic() + seconds
        for done in self._steps:
            if done or time.monotonic() > end:
                return done
        return True

    def _run(self, spec: StudySpec) -> Iterator[bool]:
        """Whether little is left, after each event."""
        with reading(self._engine) as connection:
            source = self._source._replace(connection=connection)
            known = read_head(connection, source.study).seq
            self.state, changes = begin_replay(source, spec, known, self.changes)
        fixes, begun = merged(changes), self.state.seq
        while True:
            with reading(self._engine) as connection:
                head, first = read_head(connection, source.study).seq, self.state.seq
                rows = list(read_events(connection, source.study, first, min(head, first + PAGE)))
            for event in rows:
                if event.seq > known and change_of(event, event.fields()) is not None:
                    raise NeedsReplay  # another process has changed the past too
                self.state = _replayed(source, self.state, event, fixes)
                yield False
            self.state.replayed = self.state.seq - begun
            # The writer, who applies the rest, does not know the values of earlier changes.
            yield self.state.seq >= known and head - self.state.seq <= FEW_EVENTS
