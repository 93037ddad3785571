"""A state from the log: the latest snapshot that fits, and the events behind it.

A correction, or a void after an outcome, changes what an earlier event said. The state is then folded again, with the
new values in place of the old, from a snapshot that knew nothing of the changed outcome yet; so the state after the
change is what it would have been had the right value come at the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from safedial.study.errors import StudyError
from safedial.study.event import Event, digest
from safedial.study.fold import fold
from safedial.study.log import changes, read_event, read_events, read_snapshot, snapshot_seqs
from safedial.study.snapshot import unpack
from safedial.study.spec import StudySpec, read_spec
from safedial.study.state import State


class Source(NamedTuple):
    """Where a state comes from: a connection, and which log."""

    connection: Any
    study: int
    name: str


Shots = Iterable[tuple[int, Callable[[], State | None]]]
"""States to start from, (seq, how to get it), the latest first."""


def read_study(connection: Any, study: int, name: str) -> StudySpec:
    """The specification of a study, from its first event."""
    first = read_event(connection, study, 1)
    if first is None or first.kind != "study_created":
        raise StudyError("log_broken", f"study {name!r}: its log does not begin with study_created")
    return read_spec(first.fields()["spec"], quiet=True)


def load_state(source: Source, spec: StudySpec) -> State:
    """The state after the last event."""
    state = next((state for _, make in stored_shots(source, spec, 2**62) if (state := make())), None)
    return catch_up(source, state or State(spec))


def catch_up(source: Source, state: State, upto: int = 2**62, shots: Shots | None = None) -> State:
    """Fold the events behind a state, up to a seq; each must follow the one before, by its hash."""
    for event in read_events(source.connection, source.study, state.seq, upto):
        if event.seq != state.seq + 1 or digest(state.hash, source.name, event) != event.hash:
            raise StudyError(
                "log_broken", f"study {source.name!r}: event {state.seq + 1} does not follow the one before"
            )
        state = take(source, state, event, event.fields(), shots)
    return state


def take(
    source: Source,
    state: State,
    event: Event,
    body: dict[str, Any],
    shots: Shots | None = None,
    vector: Any = None,
) -> State:
    """The state after one more event, which must be in the database where it changes the past."""
    if event.kind == "correction" or body.get("after_outcome"):
        if shots is None:
            shots = stored_shots(source, state.study, event.seq - 1)
        state = fold_again(source, state.study, event.seq, shots)
    else:
        fold(state, event.seq, event.kind, event.decision, body, vector=vector)
    state.hash = event.hash
    return state


def fold_again(source: Source, spec: StudySpec, upto: int, shots: Shots) -> State:
    """The state after event `upto`, with every change up to it in the place of what it changed."""
    past = [_fix(event) for event in changes(source.connection, source.study, upto)]
    past = [fix for fix in past if fix]
    state = None
    for seq, make in shots:
        if all(fix.outcome > seq for fix in past if fix.seq > seq):
            state = make()
            if state is not None:
                break
    state = state or State(spec)
    fixes = {fix.decision: fix.values for fix in past if fix.seq > state.seq}
    for event in read_events(source.connection, source.study, state.seq, upto):
        fold(state, event.seq, event.kind, event.decision, event.fields(), fixes)
        state.hash = event.hash
    return state


class _Fix(NamedTuple):
    seq: int
    outcome: int
    decision: int
    values: dict[str, Any]


def _fix(event: Event) -> _Fix | None:
    body = event.fields()
    if event.kind == "correction":
        return _Fix(event.seq, body["outcome_seq"], event.decision, body)
    if body.get("after_outcome"):
        gone = {"gone": "skip" if body["unrelated"] else "block"}
        return _Fix(event.seq, body["outcome_seq"], event.decision, gone)
    return None


def stored_shots(source: Source, spec: StudySpec, upto: int) -> Shots:
    """The store's snapshots, those that are whole and belong to this log."""
    for seq, name in snapshot_seqs(source.connection, source.study, upto):
        yield seq, lambda seq=seq, name=name: _restored(source, spec, seq, name)


def _restored(source: Source, spec: StudySpec, seq: int, name: bytes) -> State | None:
    content = read_snapshot(source.connection, source.study, seq, name)
    event = read_event(source.connection, source.study, seq)
    if content is None or event is None:
        return None
    state = unpack(spec, content)
    return state if state.hash == event.hash else None
