"""A state from the log: the latest usable snapshot, and the events after it.

A correction, or a void after an outcome, changes an earlier event. Unless it can be folded in place
(study/reducer.py), the log is then replayed with the new values, from a state before the changed outcome, in the
store or in memory (study/state.py); so the state is as if the right value had been reported at first.

Replays for events that change the past, in a thread of their own, so that no other write waits for them.

The writer hands such an event over before it appends it. The log is read and replayed with the change, while decisions
go on with the old values; then what was written meanwhile is applied. When little is left, the writer applies the rest
and appends the event, so that it counts from its place in the log on, as if the writer had replayed the log itself.

Changes of several rounds that wait together are one replay: their events follow each other in the log, and the guard
looks after the last of them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from safedial.policies import FACTORIES, Policy
from safedial.study.amendment import amended_spec
from safedial.study.database import reading
from safedial.study.event import EVENT_KINDS, FORMAT, START, Event, follows
from safedial.study.log import events_about, read_event, read_events, read_head, read_snapshot, revisions, snapshot_seqs
from safedial.study.reducer import IN_PLACE, fold_correction, update_state
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
    if body.get(IN_PLACE):
        fold_correction(source.connection, source.study, state, event)
    elif change_of(event, body) is not None:
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
    done, start, knows = {each.seq for each in past}, state.seq, NOT_YET if changes else upto
    state.snapshots = [each for each in kept if each.seq <= start]  # later ones know what has changed
    state.next_shot = half_way(state, upto) if keeps else NEVER
    for event in read_events(source.connection, source.study, start, upto):
        _check_link(source, state, event)
        body = event.fields()
        if body.get(IN_PLACE) and event.seq not in done:
            fold_correction(source.connection, source.study, state, event)
        else:
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
    changed = {change.decision for change in changes}
    for event in read_events(source.connection, source.study, state.seq, upto):
        _check_link(source, state, event)
        body = event.fields()
        if change_of(event, body) is not None or (body.get(IN_PLACE) and event.decision in changed):
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
    """What a replay applies to the outcomes themselves: all changes of a round up to the last that needs a replay."""
    events = revisions(source.connection, source.study, after, upto)
    found = [*(_change(event, event.fields()) for event in events), *further]
    changes = [each for each in found if each is not None]
    last = {each.decision: each.seq for each in changes if not each.values.get(IN_PLACE)}
    return [each for each in changes if each.seq <= last.get(each.decision, 0)]


def change_of(event: Event, body: dict[str, Any]) -> Change | None:
    """How an event changes an earlier outcome; None if it does not, or in place."""
    return None if body.get(IN_PLACE) else _change(event, body)


def _change(event: Event, body: dict[str, Any]) -> Change | None:
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


# --- Replays for events that change the past

FEW_EVENTS, MOST_ROUNDS = 256, 20
"""The writer applies the rest if there are so few events, or after so many attempts to catch up with it."""

WORK_SECONDS, PAUSE_SECONDS = 1e-3, 1e-4
"""A replay pauses so often and so long, so that threads that write and answer get the interpreter at once."""


class Ready(NamedTuple):
    """A state that was replayed with changes."""

    changes: tuple[Change, ...]
    state: State


class Task(NamedTuple):
    """Changes of `source`'s log, each for one of `jobs`; `kept` are states that this process kept before."""

    jobs: list[Any]
    source: Source
    spec: StudySpec
    kept: Kept
    changes: tuple[Change, ...]


class Replayer:
    """Replays one log after the other; `back` gets the jobs of a replay with their state, or with the error."""

    def __init__(self, engine: Any, back: Callable[[list[Any], Ready | Exception], None]) -> None:
        self._engine, self._back = engine, back
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, task: Task) -> None:
        """Replay a log later; called by one thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="safedial-replayer", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def close(self) -> None:
        """Finish what waits."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                ready = replay_for(self._engine, task)
            except Exception as error:
                ready = error
            self._back(task.jobs, ready)


def replay_for(engine: Any, task: Task) -> Ready:
    """The state at the end of a task's log, or near it, with its changes."""
    with reading(engine) as connection:
        source = task.source._replace(connection=connection)
        head = read_head(connection, source.study).seq
        placed = [change._replace(seq=head + number) for number, change in enumerate(task.changes, start=1)]
        state = replay_again(source, task.spec, head, task.kept, changes=placed, pause=_Pauses())
    state.next_shot = NEVER
    for _ in range(MOST_ROUNDS):
        with reading(engine) as connection:
            source, head = task.source._replace(connection=connection), read_head(connection, source.study).seq
            further = extend(source, state, head, task.changes) if head > state.seq + FEW_EVENTS else None
        if further is None:
            break
        state = further
    return Ready(task.changes, state)


class _Pauses:
    def __init__(self) -> None:
        self.due = time.monotonic() + WORK_SECONDS

    def __call__(self) -> None:
        if time.monotonic() > self.due:
            time.sleep(PAUSE_SECONDS)
            self.due = time.monotonic() + WORK_SECONDS
