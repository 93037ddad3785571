"""Verify a log: check its hash chain and its snapshots, and recompute every decision.

Only the events are trusted: the log is replayed from the first one. A decision agrees if it is the same byte for byte,
or, if another processor or build made it, the same up to rounding (study.agreement).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from safedial.checkpoints import Checkpoint, read_marks
from safedial.notebook import card, named_values
from safedial.study.agreement import Agreement
from safedial.study.corrections import IN_PLACE
from safedial.study.errors import StoreUnavailable, StudyError
from safedial.study.event import START, Event, canonical, follows
from safedial.study.event_bodies import body_of, noted_in
from safedial.study.event_kinds import EVENT_KINDS
from safedial.study.kept_states import NEVER
from safedial.study.log import (
    keyed_events,
    read_event,
    read_events,
    read_head,
    read_snapshot,
    revisions,
    snapshot_seqs,
)
from safedial.study.operations import VISIT, request_digest, request_of, visit_entry
from safedial.study.reducer import decide_next, question_of
from safedial.study.replay_log import Source, apply_event, change_of, first_spec, replayed, snapshot_body
from safedial.study.snapshot import pack
from safedial.study.state import State

CLOCK_SLACK = 1_000_000
"""Microseconds by which the clocks of two workers may differ without a mention."""


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
    start: State | None = None,
    stop: int | None = None,
) -> Report:
    """Check a study's log from its first event to its head; `recompute=False` checks only the chain.

    `start` and `stop` select a part: after a trusted state, up to a seq whose snapshot must be exact.
    """
    marks = read_marks(checkpoint, source.name)
    check = _Check(source, recompute, start, stop)
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
    if key.startswith(VISIT):
        return visit_entry(noted_in(body))
    stated = body.get("key", key) if EVENT_KINDS[event.kind].decides else key
    return stated, request_digest(request_of(event))


def _replays(event: Event) -> bool:
    """Whether a change of an earlier round needs a replay, so that states must be kept to begin from; read from the
    text, because the body of an altered event may be no JSON.
    """
    written = str(event.body)
    if EVENT_KINDS[event.kind].reports:
        return f'"{IN_PLACE}":true' not in written
    return '"after_outcome":true' in written


class _Check:
    def __init__(self, source: Source, recompute: bool, start: State | None, stop: int | None) -> None:
        self.source, self.recompute, self.stop = source, recompute, stop
        self.seq, self.hash = (start.seq, start.hash) if start else (0, START)
        self.decisions = self.inexact = 0
        self.agreement = Agreement()
        self.state = start
        self.at = self.clock_back = 0
        self.shot: bytes | None = None
        self.keeps, self.changed = True, False
        self.clock_back_at: int | None = None

    def run(self, marks: dict[int, bytes], progress: Callable[[int], None] | None) -> None:
        source = self.source
        stored = dict(snapshot_seqs(source.connection, source.study)) if self.recompute else {}
        last = max(stored, default=0)
        upto = 2**62 if self.stop is None else self.stop
        if self.stop is not None and self.stop not in stored:
            raise _Bad(self.stop, "no longer has a snapshot")
        before = read_event(source.connection, source.study, self.seq)
        self.at = before.at if before is not None else 0
        self.shot = stored.get(self.seq)
        self.keeps = any(_replays(event) for event in revisions(source.connection, source.study, self.seq, upto))
        for event in read_events(source.connection, source.study, self.seq, upto):
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
        if self.stop is None:
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
                    words = (
                        "visit of another decision" if key.startswith(VISIT) else "idempotency key of another request"
                    )
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
            self.state = replayed(self.source, self.state, self.state.seq, trust=False)

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
        if not self.keeps:
            state.next_shot = NEVER
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
        asked = self.decide_again(state, event, body) if means.decides else None
        self.state = apply_event(self.source, state, event, body, known=asked, trust=False)

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
        """Recompute a decision, which must agree with its event. Returns its question."""
        asked = question_of(state, body)
        decision = decide_next(state, asked, body["context"])
        again = body_of(decision, body["context"], state, noted_in(body))
        self.decisions += 1
        if canonical(again) == event.body:
            self.agreement.exact()
            return asked
        if not self.agreement.on_decision(state, asked, again, body):
            raise _Bad(event.seq, f"advises {body['action']!r}; recomputed it is {again['action']!r}")
        self.inexact += 1
        return asked

    def compare_snapshot(self, seq: int, name: bytes) -> None:
        source, state = self.source, self.state
        content = read_snapshot(source.connection, source.study, seq, name)
        if content is None:
            raise _Bad(seq, "has a snapshot that was altered")
        if state is None or content == (own := pack(state)):
            return
        if seq == self.stop or not self.agreement.on_snapshot(state, own, content):
            raise _Bad(seq, "has a snapshot that is not the state after it")
