"""A state from the log: the latest usable snapshot, and the events after it.

A correction, or a void after an outcome, changes an earlier event. The log is then replayed with the new values, from a
state before the changed outcome, in the store or in memory (study/state.py); so the state is as if the right value had
been reported at first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from safedial.policies import FACTORIES, Policy
from safedial.study.amendment import amended_spec
from safedial.study.event import EVENT_KINDS, FORMAT, START, Event, follows
from safedial.study.log import events_about, read_event, read_events, read_head, read_snapshot, revisions, snapshot_seqs
from safedial.study.reducer import update_state
from safedial.study.snapshot import unpacked
from safedial.study.state import NEVER, NOT_YET, KeptState, State, half_way, keep
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec, read_spec


class Source(NamedTuple):
    """Where a state comes from: a connection and a log."""

    connection: Any
    study: int
    name: str
    policy: Policy | None = None
    """The study's policy, if it is the user's own."""


class Snapshot(NamedTuple):
    """A state to start from: how to get it, and what it knows (`KeptState`)."""

    seq: int
    knows: int
    make: Callable[[], State | None]


Kept = Sequence[KeptState]
"""States in memory, the latest first."""


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
        way_out = "open the study in Python and give it again: open_study(name, storage=..., policy=...)"
        raise StudyError("own_policy", f"study {name!r}: {words}; {way_out}")
    return read_spec(body["spec"], quiet=True, own=source.policy)


def load_state(source: Source, spec: StudySpec, kept: Kept = ()) -> State:
    """The state after the last event; `kept` are states that this process kept before."""
    head = read_head(source.connection, source.study).seq
    return replay_again(source, spec, head, kept)


def catch_up(source: Source, state: State, upto: int = 2**62, *, replay: bool = True) -> State:
    """Apply the events after a state, up to a seq; the hash of each must follow from the previous one.

    Of several events that change the past only the last needs a replay; with `replay=False` one raises `NeedsReplay`.
    """
    for event in read_events(source.connection, source.study, state.seq, upto):
        _check_link(source, state, event)
        body = event.fields()
        if change_of(event, body) is not None:
            if not replay:
                raise NeedsReplay
            changes = (change_of(each, each.fields()) for each in revisions(*source[:2], state.seq, upto))
            last = max(change.seq for change in changes if change is not None)
            return catch_up(source, replayed(source, state, last), upto)
        state = apply_event(source, state, event, body)
    return state


class NeedsReplay(Exception):
    """An event changes the past, so the log must be replayed; not while the store is locked."""

    def __init__(self, change: Change | None = None) -> None:
        super().__init__("an event changes the past")
        self.change = change


def _check_link(source: Source, state: State, event: Event) -> None:
    if event.seq != state.seq + 1 or not follows(state.hash, source.name, event):
        words = f"event {state.seq + 1} does not follow the previous one; verify the study"
        raise StudyError("log_broken", f"study {source.name!r}: {words}")


def apply_event(
    source: Source, state: State, event: Event, body: dict[str, Any], *, known: Any = None, trust: bool = True
) -> State:
    """The state after one more event, which must be in the database if it changes the past.

    `trust`: whether a replay may start from a stored snapshot, and not only from states seen before.
    """
    if change_of(event, body) is not None:
        state = replayed(source, state, event.seq, trust=trust)
    else:
        state = update_state(state, event, body, known=known)
    return reached(state, event)


def reached(state: State, event: Event) -> State:
    """The state, to which an event was applied; it is kept in memory if that is due."""
    state.hash = event.hash
    if state.seq >= state.next_shot:
        keep(state)
    return state


def replayed(source: Source, state: State, upto: int, *, trust: bool = True) -> State:
    """The state after the event `upto`, which changes the past. Everything learned since depends on the old outcome, so
    it cannot be removed from the present state.
    """
    made = replay_again(source, state.study, upto, state.snapshots, trust=trust, keeps=state.next_shot < NEVER)
    made.replayed += state.replayed
    return made


def replay_again(
    source: Source,
    spec: StudySpec,
    upto: int,
    kept: Kept,
    *,
    changes: Sequence[Change] = (),
    trust: bool = True,
    keeps: bool = True,
    pause: Callable[[], None] | None = None,
) -> State:
    """The state after event `upto`, with every change up to it applied to the outcome that it changes.

    The replay starts from the latest state, of those `kept` and, with `trust`, of those in the store, that knows none
    of the outcomes changed after it. `changes` are not in the log yet. `keeps`: states on the way are kept in memory.
    `pause` is called after each event.
    """
    for shot in _latest(source, spec, upto, kept, trust=trust):
        past = _changes(source, shot.seq, upto, changes)
        fits = all(each.outcome > shot.seq or each.seq <= shot.knows for each in past)
        state = shot.make() if fits else None
        if state is not None:
            break
    else:
        state, past = State(spec.first), _changes(source, 0, upto, changes)
    fixes: dict[int, dict[str, Any]] = {}
    for each in past:  # a round may be corrected and then voided: its last cost stays known
        fixes[each.decision] = {**fixes.get(each.decision, {}), **each.values}
    start, knows = state.seq, NOT_YET if changes else upto
    state.snapshots = [each for each in kept if each.seq <= start]  # later ones know what has changed
    state.next_shot = half_way(state, upto) if keeps else NEVER
    for event in read_events(source.connection, source.study, start, upto):
        _check_link(source, state, event)
        body = event.fields()
        state = update_state(state, event, body, fixes)
        state.hash = event.hash
        if state.seq >= state.next_shot:
            keep(state, knows)
            state.next_shot = max(state.next_shot, half_way(state, upto))
        if pause is not None:
            pause()
    state.replayed = upto - start if past else 0
    return state


def extend(source: Source, state: State, upto: int, changes: Sequence[Change]) -> State | None:
    """The state after the events up to a seq, from one that was replayed with `changes`, which are not in the log yet;
    None if one of them changes the past too, so that the replay must begin again.
    """
    for event in read_events(source.connection, source.study, state.seq, upto):
        _check_link(source, state, event)
        body = event.fields()
        if change_of(event, body) is not None:
            return None
        state = apply_event(source, state, event, body)
    return state


class Change(NamedTuple):
    """New values of an earlier outcome, which event `seq` brings."""

    seq: int
    decision: int
    outcome: int
    values: dict[str, Any]


def _changes(source: Source, after: int, upto: int, further: Sequence[Change]) -> list[Change]:
    """What a replay applies to the outcomes themselves: the changes of each round."""
    events = revisions(source.connection, source.study, after, upto)
    found = [*(change_of(event, event.fields()) for event in events), *further]
    return [each for each in found if each is not None]


def change_of(event: Event, body: dict[str, Any]) -> Change | None:
    """How an event changes an earlier outcome; None if it does not."""
    means = EVENT_KINDS[event.kind]
    if means.reports and means.revises:
        return Change(event.seq, event.decision, body["outcome_seq"], body)
    if body.get("after_outcome"):
        gone = {"gone": "skip" if body["unrelated"] else "block"}
        return Change(event.seq, event.decision, body["outcome_seq"], gone)
    return None


def _latest(source: Source, spec: StudySpec, upto: int, kept: Kept, *, trust: bool) -> list[Snapshot]:
    """The states in memory and, with `trust`, in the store, the latest first."""
    found = [Snapshot(each.seq, each.knows, partial(_in_memory, source, each)) for each in kept if each.seq <= upto]
    return sorted([*found, *(_stored(source, spec, upto) if trust else ())], key=lambda shot: shot.seq, reverse=True)


def _in_memory(source: Source, kept: KeptState) -> State | None:
    event = read_event(source.connection, source.study, kept.seq)
    return kept.restored() if event is not None and kept.hash == event.hash else None


def _stored(source: Source, spec: StudySpec, upto: int) -> list[Snapshot]:
    """The store's snapshots that the log confirms, by the `snapshot` event after each."""
    found = snapshot_seqs(source.connection, source.study, upto)
    return [Snapshot(seq, seq, partial(_restored, source, spec, seq, name)) for seq, name in found]


def _restored(source: Source, spec: StudySpec, seq: int, name: bytes) -> State | None:
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
