"""Verify a log: check its hash chain and its snapshots, and recompute every decision.

Only the events are trusted: the log is replayed from the first one. A decision agrees if it is the same byte for byte,
or, if another processor or build made it, the same up to rounding. The same log gives the same bits in any process of
one build on one machine. Elsewhere another BLAS kernel or mathematical library rounds differently, and the learner's
numbers differ in their last digits: by 1e-14 if the ridge is as large as the contexts, by more if it is much
smaller. From these numbers to a decision it takes only a few well-conditioned operations. So a decision whose policy
bounds its rounding (`Policy.recorded`) agrees if

* the numbers of its estimate agree within 1e-9, or within the policy's own bound on rounding (bounds.rounding) if
  that is more; and
* the decision recomputed from the recorded numbers has the same actions, within 1e-12, and the same other numbers,
  within 1e-9.

Any other decision is compared with the recomputed one, with the same two tolerances. Values that are not numbers must
be equal. A choice that depends on the last digits (a reward index within rounding of 0, evidence within rounding of an
alarm) may differ elsewhere; no tolerance can tell that from a changed log.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require
from safedial.io import card, named_values
from safedial.rounds.outcome import Asked
from safedial.study.checkpoints import Checkpoint, read_marks, read_store_marks
from safedial.study.database import reading
from safedial.study.event import EVENT_KINDS, START, Event, canonical, follows, orjson
from safedial.study.log import (
    keyed_events,
    latest_decision,
    read_event,
    read_events,
    read_head,
    read_snapshot,
    snapshot_seqs,
    study_names,
)
from safedial.study.operations import UNIT, VISIT, label_entries, request_digest, request_of
from safedial.study.reducer import body_of, decide_next, noted_in, question_of
from safedial.study.replay_log import Source, apply_event, change_of, first_spec, read_study, replay, snapshot_body
from safedial.study.snapshot import pack, parts
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.study_errors import StoreUnavailable, StudyError

ACTION, NUMBER, STATE = 1e-12, 1e-9, 1e-6
"""How far actions, other numbers of a decision, and numbers of a snapshot may differ, relative to 1 or their size."""

ACTIONS = ("action", "intensity", "safe_action")


class Agreement:
    """Compares a log with what is recomputed, event by event.

    `spent` is how much rounding may have added up since the last decision that was equal to the bit: ln det is a sum of
    ln(1 + ω·width²) over rounds, and the evidence against the noise is a sum too. Each round adds twice its width's
    tolerance, but no more than its term can be.
    """

    def __init__(self) -> None:
        self.spent = 0.0

    def exact(self) -> None:
        """Record that a decision was equal to the bit, including ln det."""
        self.spent = 0.0

    def on_decision(self, state: State, asked: Asked, again: dict[str, Any], body: dict[str, Any]) -> bool:
        """Whether a decision's recorded `body` equals the recomputed one, `again`, up to rounding."""
        learning = state.learning
        vector, norm, raw = asked.vector, asked.norm, body["context"]
        room = learning.rounding(vector, norm)
        if room is None:
            return _agrees(_plain(again), body)
        rules = state.study.rules
        self.spent += min(2.0 * room, math.log1p(norm * norm / rules.spec.ridge))
        own, stated = (learning.estimated(_plain(each["numbers"])) for each in (again, body))
        sums = [
            {name: numbers.pop(name) for name in list(numbers) if name.endswith("log_det")} for numbers in (own, stated)
        ]
        if not (_close(sums[0], sums[1], NUMBER, self.spent) and _close(own, stated, NUMBER, room)):
            return False
        follows, _ = decide_next(state, asked, raw, recorded=learning.recorded(body["numbers"], vector))
        return _agrees(_plain(body_of(follows, raw, state, noted_in(body))), body)

    def on_snapshot(self, state: State, mine: bytes, theirs: bytes) -> bool:
        """Whether a snapshot equals the state up to rounding: every number within 1e-6, or `spent` if that is more."""
        try:
            (head, arrays), (other, others) = parts(mine), parts(theirs)
            near = all(_near(own, others[name], STATE + self.spent) for name, own in arrays.items())
            return near and _close(head, other, NUMBER, self.spent)
        except (LookupError, TypeError, ValueError):
            return False


def _near(a: NDArray[Any], b: NDArray[Any], share: float) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    size = max(1.0, np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return np.allclose(a, b, rtol=0.0, atol=share * size, equal_nan=True)


def _plain(stated: dict[str, Any]) -> dict[str, Any]:
    """The values as they are read from a log."""
    return orjson.loads(canonical(stated))


def _agrees(again: dict[str, Any], body: dict[str, Any]) -> bool:
    names = again.keys() - {"version"}
    return names == body.keys() - {"version"} and all(
        _close(again[name], body[name], ACTION if name in ACTIONS else NUMBER) for name in names
    )


def _close(a: Any, b: Any, tolerance: float, room: float = 0.0) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[name], b[name], tolerance, room) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_close(*pair, tolerance, room) for pair in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) + room
    return a == b


# --- Verify a log: check its hash chain and its snapshots, and recompute every decision

CLOCK_SLACK = 1_000_000
"""Microseconds by which the clocks of two processes may differ without a mention."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `verify` found. `first_bad` is the first wrong seq, `problem` says what is wrong with it; `inexact` counts
    decisions that agree up to rounding but not bit for bit. `clock_back` counts events dated more than a second before
    the previous one, which is not an error but worth knowing; `clock_back_at` is the first of them.
    """

    ok: bool
    study: str
    events: int
    decisions: int
    inexact: int
    seq: int
    hash: str
    first_bad: int | None = None
    problem: str = ""
    clock_back: int = 0
    clock_back_at: int | None = None
    checkpoint: int | None = None
    """The seq of the checkpoint that the log was compared with."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        return card(f"Log of {self.study}: {'agrees' if self.ok else 'DOES NOT agree'}", named_values(self.to_dict()))


class _Bad(ArithmeticError):
    def __init__(self, seq: int, problem: str) -> None:
        super().__init__(problem)
        self.seq, self.problem = seq, problem


def verify_log(
    source: Source,
    *,
    checkpoint: Checkpoint | None = None,
    recompute: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check a study's log from its first event to its head; `recompute=False` checks only the chain."""
    marks = read_marks(checkpoint, source.name)
    check = _Check(source, recompute)
    bad = None
    try:
        check.run(marks, progress)
    except _Bad as error:
        bad = error
    return Report(
        ok=bad is None,
        study=source.name,
        events=check.seq,
        decisions=check.decisions,
        inexact=check.inexact,
        seq=check.seq,
        hash=check.hash.hex(),
        first_bad=bad.seq if bad else None,
        problem=bad.problem if bad else "",
        clock_back=check.clock_back,
        clock_back_at=check.clock_back_at,
        checkpoint=max(marks, default=None),
    )


def _entry(event: Event, key: str) -> tuple[str, bytes]:
    """The entry, among the idempotency keys, that an event's own request made."""
    body = event.fields()
    if key.startswith((UNIT, VISIT)):
        return key, label_entries(noted_in(body)).get(key, b"")
    stated = body.get("key", key) if EVENT_KINDS[event.kind].decides else key
    return stated, request_digest(request_of(event))


class _Check:
    def __init__(self, source: Source, recompute: bool) -> None:
        self.source, self.recompute = source, recompute
        self.seq, self.hash = 0, START
        self.decisions = self.inexact = 0
        self.agreement = Agreement()
        self.state: State | None = None
        self.at = self.clock_back = 0
        self.shot: bytes | None = None
        self.changed = False
        self.trusted: list[tuple[int, bytes]] = []
        self.clock_back_at: int | None = None

    def run(self, marks: dict[int, bytes], progress: Callable[[int], None] | None) -> None:
        source = self.source
        stored = dict(snapshot_seqs(source.connection, source.study)) if self.recompute else {}
        last = max(stored, default=0)
        for event in read_events(source.connection, source.study, 0):
            self.link(event)
            if marks and marks.get(event.seq, event.hash) != event.hash:
                other = (
                    "" if event.seq > 1 else ": it is of another study of this name, or all of the log was rewritten"
                )
                raise _Bad(event.seq, f"does not match the checkpoint{other}")
            if self.recompute:
                self.attempt(event.seq, lambda event=event: self.follow(event))
                self.shot = stored.get(event.seq)
                if self.shot is not None:
                    self.attempt(event.seq, self.settle)
                    self.compare_snapshot(event.seq, self.shot)
            if progress and event.seq % 1000 == 0:
                progress(1000)
        self.end(marks)
        if last > self.seq:
            raise _Bad(self.seq + 1, f"is missing: there is a snapshot at {last}")
        self.check_keys()

    def end(self, marks: dict[int, bytes]) -> None:
        """After the last event: the head must name it, no checkpoint may lie beyond it, and no alarm may be due."""
        head = read_head(self.source.connection, self.source.study)
        if head.seq != self.seq:
            raise _Bad(self.seq + 1, f"is missing: the log ends at {self.seq}, its head says {head.seq}")
        if head.hash != self.hash:
            raise _Bad(self.seq, "is not the event that the head of the log names")
        if marks and max(marks) > self.seq:
            raise _Bad(self.seq + 1, f"is missing: a checkpoint was taken at {max(marks)}")
        self.attempt(self.seq, self.settle)
        if self.recompute and self.state and self.state.due:
            raise _Bad(self.seq + 1, f"is missing: an alarm is due ({self.state.due})")

    def check_keys(self) -> None:
        """Every idempotency key must belong to an event that its request made."""
        if not self.recompute:
            return
        with keyed_events(self.source.connection, self.source.study) as rows:
            for seq, key, name, *fields in rows:
                if fields[0] is None:
                    raise _Bad(seq, "is missing: an idempotency key refers to it")
                event = Event(seq, *fields)
                if (key, bytes(name)) != _entry(event, key):
                    named = {UNIT: "unit of another decision", VISIT: "visit of another decision"}
                    words = named.get(key[: key.find(":") + 1], "idempotency key of another request")
                    raise _Bad(seq, f"has the {words}")

    def link(self, event: Event) -> None:
        """The event must have the next seq and the right hash."""
        if event.seq != self.seq + 1:
            raise _Bad(self.seq + 1, "is missing")
        if not follows(self.hash, self.source.name, event):
            raise _Bad(event.seq, "does not match its hash")
        if event.at < self.at - CLOCK_SLACK:
            self.clock_back += 1
            self.clock_back_at = self.clock_back_at or event.seq
        self.seq, self.hash, self.at = event.seq, event.hash, event.at

    def attempt(self, seq: int, work: Callable[[], None]) -> None:
        """Apply the event at a seq; a body that cannot be read is a finding, not a failure."""
        try:
            work()
        except StoreUnavailable:
            raise
        except StudyError as error:
            words = "was not checked" if error.code == "own_policy" else "cannot be applied"
            raise _Bad(seq, f"{words} ({error})") from error
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise _Bad(seq, f"cannot be applied ({type(error).__name__}: {str(error)[:200]})") from error

    def settle(self) -> None:
        """Replay the log for the changes of the past that were read last."""
        if self.state is not None and self.changed:
            self.changed = False
            self.state = replay(self.source, self.state.study, self.state.seq, stored=self.trusted)

    def follow(self, event: Event) -> None:
        """Apply the event, after recomputing it if it is a decision or an alarm."""
        if self.state is None:
            self.state = State(first_spec(self.source))
        body, means = event.fields(), EVENT_KINDS[event.kind]
        changes = change_of(event, body) is not None
        if changes and self.changed:  # one replay for changes that follow each other
            self.state.seq, self.state.hash = event.seq, event.hash
            return
        self.settle()
        state = self.state
        due = state.due_at(event.at) if means.decides or means.stops else state.due
        if due != (body["rule"] if means.stops else ""):
            raise _Bad(event.seq, f"is not the alarm that is due: {due or 'none'}")
        if means.resumes and (body["rule"] != state.stop_reason or not (state.stop_reason or body["forget"])):
            raise _Bad(
                event.seq, f"clears {body['rule']!r}, but the study was stopped by {state.stop_reason or 'nothing'}"
            )
        if means.imports and state.decisions:
            raise _Bad(event.seq, "imports a round after the first decision")
        self.check_snapshot_event(state, event, body)
        self.changed = changes
        if changes:
            state.seq, state.hash = event.seq, event.hash
            return
        advice = self.decide_again(state, event, body) if means.decides else None
        self.state = apply_event(state, event, body, known=advice)

    def check_snapshot_event(self, state: State, event: Event, body: dict[str, Any]) -> None:
        """A stored snapshot must be the one that the event after it confirms. The digest of one that is no longer
        stored is not compared: another processor may have rounded otherwise.
        """
        if EVENT_KINDS[event.kind].confirms_snapshot:
            first = read_event(self.source.connection, self.source.study, 1)
            name = self.shot or bytes.fromhex(body["digest"])
            if first is None or body != snapshot_body(first, state.seq, name):
                raise _Bad(event.seq, "does not confirm the snapshot before it")
        elif self.shot is not None:
            raise _Bad(state.seq, "has a snapshot that the log does not confirm")

    def decide_again(self, state: State, event: Event, body: dict[str, Any]) -> Any:
        """Recompute a decision, which must agree with its event. Returns what it was made from."""
        asked = question_of(state, body)
        decision, advice = decide_next(state, asked, body["context"])
        again = body_of(decision, body["context"], state, noted_in(body))
        self.decisions += 1
        if canonical(again) == event.body:
            self.agreement.exact()
            return advice
        if not self.agreement.on_decision(state, asked, again, body):
            raise _Bad(event.seq, f"advises {body['action']!r}; recomputed it is {again['action']!r}")
        self.inexact += 1
        return advice

    def compare_snapshot(self, seq: int, name: bytes) -> None:
        source, state = self.source, self.state
        content = read_snapshot(source.connection, source.study, seq, name)
        if content is None:
            raise _Bad(seq, "has a snapshot that was altered")
        if state is None or content == (own := pack(state)):
            self.trusted.append((seq, name))
            return
        if not self.agreement.on_snapshot(state, own, content):
            raise _Bad(seq, "has a snapshot that is not the state after it")
        self.trusted.append((seq, name))


# --- Verify a study by its name


def verify_study(
    store: Store,
    name: str,
    *,
    checkpoint: Checkpoint | None = None,
    progress: Any = None,
) -> Report:
    """`Study.verify` by name, for a study whose log may be too broken to open.

    `checkpoint` is what `Study.checkpoint` or `checkpoint_store` gave, the path of its file, or SEQ:HASH.
    """
    study = store.find(name)
    read_marks(checkpoint, name)
    with reading(store.engine) as connection:
        return verify_log(
            Source(connection, study, name, store.own_policy(study)), checkpoint=checkpoint, progress=progress
        )


def check_own_policy(source: Source) -> None:
    """Refuse a policy that would not have taken the latest decision of the log, although it has the study's name."""
    latest = latest_decision(source.connection, source.study)
    if latest is None:
        return
    state, body = replay(source, read_study(source), latest.seq - 1), latest.fields()
    asked = question_of(state, body)
    decision, _ = decide_next(state, asked, body["context"])
    again = body_of(decision, body["context"], state, noted_in(body))
    same = canonical(again) == latest.body or Agreement().on_decision(state, asked, again, body)
    rule = f"has the study's name, but advises {again['action']!r} where event {latest.seq} has {body['action']!r}"
    way_out = "give the class that the study was created with, unchanged"
    require(same, "policy", decision.rules.policy.name, rule, way_out)


def verify_store(store: Store, *, checkpoint: Checkpoint | None = None, progress: Any = None) -> list[Report]:
    """A report of every study, and one of each that the checkpoint of the store names and the store no longer holds.

    A study that was created after the checkpoint is compared with nothing.
    """
    marked = read_store_marks(checkpoint)
    with reading(store.engine) as connection:
        names = [name for _, name, _ in study_names(connection)]
    lost = "is missing: the checkpoint names this study, and the store does not hold it"
    gone = [
        Report(ok=False, study=name, events=0, decisions=0, inexact=0, seq=0, hash="", first_bad=1, problem=lost)
        for name in marked.keys() - set(names)
    ]
    found = [verify_study(store, name, checkpoint=marked.get(name), progress=progress) for name in names]
    return [*found, *gone]
