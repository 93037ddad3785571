"""The state of a study after an event: what was learned, the waiting rounds, the watch. A pure function of the log.

    decided ─► open ─outcome─► held ─(all earlier rounds resolved)─► policy
       └───────────┴─► watch (at once: rounds/watch.py)

`queue` holds the rounds that the policy has not passed, in decision order. In learning order "prefix" the policy uses
a round when it is first in the queue and resolved: the bounds hold for every prefix at once, so they hold whatever the
delays depend on. A void round whose reason may be related to its outcome ends the prefix for ever (`frozen`): later
rounds are watched but not learned from. A policy that needs no order takes an unknown round for the worst.

An amendment (study/amendment.py) may begin a new state; the one before it, `before`, goes on judging its own rounds.

A replay for a change of a recent outcome (study/replay_log.py) should begin near that outcome, so states are often kept
in memory. A kept state shares with the others what no event changes (rounds, samples, specifications); only the
containers and the policy's arrays are its own. Of older states, one is kept for each doubling of age.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np

from safedial.rounds.learning import Learning
from safedial.rounds.outcome import Outcome, Round, Sample, for_the_watch, is_over, normalise, read_cost
from safedial.rounds.watch import Watch
from safedial.study.event import START
from safedial.study.study_spec import FEW_UNWATCHED, StudySpec

# --- The state of a study after an event

HOUR = 3_600_000_000
"""Microseconds."""


class State:
    """The state after event `seq`, whose hash is `hash`. Where the policy names rounds, `named` has SEQ.TAG of
    each decision, by which its numbers name earlier rounds.

    After an amendment that begins a phase, `before` is the state of the rounds before it. If what was learned was
    `kept`, both states have one learning, one queue and one numbering of rounds. `rounds_before` has the number of all
    earlier decisions, and the last round's number at the amendment.

    `snapshots` are earlier states that are kept in memory, the latest first, and `next_shot` is
    the event after which the next one is; `replayed` counts the events that were replayed since the last stored
    snapshot.
    """

    def __init__(self, study: StudySpec, before: State | None = None, *, kept: bool = False) -> None:
        self.study, self.before, self.kept = study, before, kept
        self.earlier: list[State] = [] if before is None else before.phases
        shared = before if kept else None
        self.learning = Learning(study.rules) if shared is None else shared.learning
        self.queue: deque[int] = deque() if shared is None else shared.queue
        self.held: dict[int, tuple[Round, Sample | None, bool]] = {} if shared is None else shared.held
        self.named: list[str] = [] if shared is None else shared.named
        self._end: list[bool] = [False] if shared is None else shared._end
        self.rounds_before = [0, 0]
        self.amendments: list[list[Any]] = []
        self.seq, self.hash = 0, START
        self.rounds = self.imported = self.outcomes = self.violations = self.void = 0
        self.open: dict[int, Round] = {}
        self.expired: dict[int, Round] = {}
        self.watch = Watch(study.rules, self.learning, study.guard.alarm_level)
        self.broken = False
        self.stop_reason = ""
        self.last_action = study.rules.dial.low
        self.recent: deque[bool] = deque(maxlen=study.guard.stop_of_last)
        self.new_decisions = self.new_void = self.corrected_violations = self.last_known = 0
        self.resumes: list[list[Any]] = []
        self.snapshots: list[Any] = []
        self.next_shot = 0
        self.replayed = 0

    def continues(self, other: State) -> State:
        """Take over the states that another kept in memory; returns this one."""
        self.snapshots, self.next_shot = other.snapshots, other.next_shot
        self.replayed += other.replayed
        return self

    def goes_on(self, study: StudySpec, amendments: list[list[Any]]) -> State:
        """This state under a specification whose guard or labels were amended; the guard judges what was counted."""
        self.study, self.amendments = study, amendments
        self.watch.judge(study.guard.alarm_level)
        self.recent = deque(self.recent, study.guard.stop_of_last)
        return self

    @property
    def frozen(self) -> bool:
        """Whether learning has ended, because a round was lost."""
        return self._end[0]

    @frozen.setter
    def frozen(self, frozen: bool) -> None:
        self._end[0] = frozen

    @property
    def phases(self) -> list[State]:
        """This state, the one before the amendment that began it, and so on to the first."""
        return [self, *self.earlier]

    def phase(self, seq: int) -> State:
        """The state that judges the decision at `seq`."""
        if self.before is None or seq > self.study.began:
            return self
        return self.before.phase(seq)

    @property
    def learned_in(self) -> list[State]:
        """The states whose rounds the learning has: this one, and earlier ones whose learning was kept."""
        phases = self.phases
        return phases[: 1 + next(number for number, each in enumerate(phases) if not each.kept)]

    def total(self, name: str) -> int:
        """A count of all phases together."""
        return getattr(self, name) if self.before is None else sum(getattr(each, name) for each in self.phases)

    @property
    def waiting(self) -> int:
        """The number of open decisions, of all phases."""
        return len(self.open) if self.before is None else sum(len(each.open) for each in self.phases)

    @property
    def decisions(self) -> int:
        """The number of decisions, of all phases."""
        return self.rounds_before[0] + self.rounds - self.rounds_before[1]

    @property
    def due(self) -> str:
        """The rule of the guard that has fired but has no event yet: a key of `LIMITS`, or ""."""
        if self.stop_reason:
            return ""
        if self.before is None:
            return next(self.fired(), "")
        return next((rule for each in self.phases for rule in each.fired(latest=each is self)), "")

    def fired(self, *, latest: bool = True) -> Iterator[str]:
        """The rules that have fired, stopped or not. Only the `latest` guard limits what is open, void or not watched,
        of all phases.
        """
        guard, watch = self.study.guard, self.watch
        parts: list[State] = self.phases if latest and self.before is not None else [self]
        if self.broken and not watch.crossed:
            yield "assumption_broken"
        if watch.crossed:
            yield watch.due
        if watch.noisy:
            yield "noise_broken"
        if latest and guard.max_open is not None and self.waiting > guard.max_open:
            yield "too_many_open"
        if latest and guard.max_void is not None and sum(each.new_void for each in parts) > guard.max_void:
            yield "too_many_void"
        if latest and guard.max_unwatched is not None and _is_blind(parts, guard.max_unwatched):
            yield "too_many_unwatched"
        if self._is_done():
            yield "stop_rule"

    def due_at(self, at: int) -> str:
        """`due` for a decision at a time, in microseconds, when an outcome may be overdue."""
        hours = self.study.guard.max_open_hours
        oldest = None if hours is None else self.oldest_open
        overdue = hours is not None and oldest is not None and at - oldest > hours * HOUR
        return self.due or ("outcome_overdue" if overdue and not self.stop_reason else "")

    @property
    def oldest_open(self) -> int | None:
        """The time of the oldest open decision, in microseconds."""
        if self.before is not None and (oldest := self.before.oldest_open) is not None:
            return oldest
        return next(iter(self.open.values())).at if self.open else None

    @property
    def unwatched(self) -> int:
        """The rounds that ended without an outcome that the watch could count."""
        return self.watch.unwatched

    def overdue_at(self, at: int) -> list[int]:
        """The times, in microseconds, since when outcomes that are open at a time have been overdue: each by the
        deadline that was stated when it was decided, in the order of the decisions.
        """
        before = [] if self.before is None else self.before.overdue_at(at)
        stated = ((one.at, self.study.at(seq).guard.deadline) for seq, one in self.open.items())
        waits = ((asked, hours * HOUR) for asked, hours in stated if hours is not None)
        return before + [asked + int(wait) for asked, wait in waits if at - asked > wait]

    def restart_counts(self, rule: str) -> None:
        """Restart what a resumed rule counts outside the watch."""
        if rule == "assumption_broken":
            self.broken = False
        elif rule == "too_many_void":
            self.new_void = 0
        elif rule == "stop_rule":
            self.recent.clear()
            self.new_decisions = 0

    def _is_done(self) -> bool:
        guard = self.study.guard
        many = guard.stop_violations is not None and sum(self.recent) >= guard.stop_violations
        return many or (guard.stop_decisions is not None and self.new_decisions >= guard.stop_decisions)

    def summary(self) -> dict[str, Any]:
        """Counts and evidence, for display."""
        facts = {
            "seq": self.seq,
            "decisions": self.decisions,
            "imported": self.total("imported"),
            "outcomes": self.total("outcomes"),
            "open": self.waiting,
            "expired": sum(len(each.expired) for each in self.phases),
            "void": self.total("void"),
            "waiting": len(self.held),
            "waits_for": self.queue[0] if self.queue else None,
            "frozen": self.frozen,
            "informative_rounds": self.learning.samples,
            "violations": self.total("violations"),
            "evidence": self.watch.evidence,
            "noise_evidence": self.watch.noise_evidence,
            "stop_reason": self.stop_reason,
            "unwatched": self.total("unwatched"),
            "resumes": len(self.resumes),
            "corrected_violations": self.total("corrected_violations"),
        }
        if self.learning.starts is not None:
            facts["start_rounds"] = self.learning.starts
        if self.amendments:
            began = [first for seq, first, *_ in self.amendments if seq == self.study.began]
            facts |= {"amendments": len(self.amendments), "since_round": began[0] if began else 1}
        return facts


def _is_blind(parts: list[State], share: float) -> bool:
    unwatched = sum(each.watch.new_unwatched for each in parts)
    return unwatched > FEW_UNWATCHED and unwatched > share * sum(each.watch.new_watched for each in parts)


# --- The values of an outcome as samples of its round

Body = Mapping[str, Any]


def sample_of(state: State, round_: Round, body: Body) -> Sample:
    """The sample of a round, from the values of its outcome."""
    outcome = Outcome(_applied(round_, body), body["reward"], body["cost"], round_.baseline_cost)
    return normalise(state.study.rules, outcome, round_.context)


def watched_sample(state: State, round_: Round, body: Body) -> Sample:
    """What the watch is told of an outcome from which nothing is learned."""
    rules = state.study.rules
    cost = read_cost(rules.spec, body["cost"])
    return for_the_watch(rules, _applied(round_, body), cost, round_.baseline_cost)


def _applied(round_: Round, body: Body) -> float:
    stated = body["applied_action"]
    return round_.action if stated is None else stated


def takes_back(state: State, round_: Round | None, before: Body, after: Body) -> bool:
    """Whether new values of an outcome take back an excess: of its cost, or of its cost at the advice, which is what
    the watch counts; also where the round was declared void afterwards.
    """
    pairs = zip(_excesses(state, round_, before), _excesses(state, round_, after), strict=True)
    return any(was and not now for was, now in pairs)


def _excesses(state: State, round_: Round | None, body: Body) -> list[bool]:
    found = [is_over(state.study.rules, body["cost"])]
    if round_ is not None:
        sample = watched_sample(state, round_, body)
        found.append(state.watch.exceeded(round_, sample, throttled=bool(body.get("throttled"))))
    return found


# --- Earlier states of a study that are kept in memory

KEPT_EVENTS, KEPT_BYTES = 32, 2_000
"""A state is kept after this many events, or one event for this many of its bytes if that is later."""

ROUND_BYTES, PHASE_BYTES = 100, 4_000
"""What a waiting round and a phase count as."""

NEVER = 2**62
"""Where the next state is kept, if none is to be."""

NOT_YET = 2**62
"""What a state knows that was replayed with changes which are not in the log yet."""

OF_LEARNING = ("learning", "queue", "held", "named", "_end")
"""What phases share if learning was kept between them."""

Shot = TypeVar("Shot")


class KeptState(NamedTuple):
    """The state after event `seq`. It knows every change of the past that the events up to `knows` brought: a replay
    for an event also keeps states from before that event. Nothing changes what it holds.
    """

    seq: int
    knows: int
    phases: list[State]
    """The latest first, without what was learned."""
    learned: list[dict[str, Any] | None]
    """The arrays of each phase's learning; None where that is the learning of the phase before it."""

    @property
    def hash(self) -> bytes:
        return self.phases[0].hash

    @property
    def size(self) -> int:
        """About how many bytes are its own."""
        arrays = sum(each.nbytes for learned in self.learned if learned is not None for each in learned.values())
        return arrays + sum(map(_size, self.phases))

    def restored(self) -> State:
        """The state again, which events may change."""
        before: Any = None
        for phase, arrays in zip(reversed(self.phases), reversed(self.learned), strict=True):
            made = _copied(phase)
            made.before, made.earlier = before, [] if before is None else before.phases
            if arrays is None:
                vars(made).update({name: getattr(before, name) for name in OF_LEARNING})
            else:
                made.learning = Learning(made.study.rules)
                made.learning.restore({name: each.copy() for name, each in arrays.items()})
            made.watch.learning = made.learning
            before = made
        return before


def kept_state(state: State, knows: int = 0) -> KeptState:
    """The state as it is now; `knows` if it knows more than the events up to its own brought."""
    phases = state.phases
    learned = [None if each.kept else _arrays(each) for each in phases]
    return KeptState(state.seq, max(knows, state.seq), [_copied(each) for each in phases], learned)


def keep(state: State, knows: int = 0) -> None:
    """Keep a state. The next is due later the larger it is."""
    kept = kept_state(state, knows)
    state.snapshots = [kept, *thinned(state.seq, state.snapshots, lambda each: each.seq, KEPT_EVENTS)]
    state.next_shot = state.seq + max(KEPT_EVENTS, kept.size // KEPT_BYTES)


def half_way(state: State, upto: int) -> int:
    """Where a replay keeps its next state: those that are closer together would soon be thinned out."""
    return state.seq + max(KEPT_EVENTS, (upto - state.seq) // 2)


def placed(kept: list[KeptState], knows: int) -> list[KeptState]:
    """States that were replayed with changes, when the last of these is the event `knows`."""
    return [each._replace(knows=knows) if each.knows == NOT_YET else each for each in kept]


def thinned(seq: int, shots: list[Shot], place: Callable[[Shot], int], unit: int) -> list[Shot]:
    """Of states before `seq`, the latest first, the oldest for each doubling of age, so that it can age further."""
    return list({((seq - place(shot)) // unit).bit_length(): shot for shot in shots}.values())


def _arrays(state: State) -> dict[str, Any]:
    return {name: np.array(value, order="C") for name, value in state.learning.state().items()}


def _copied(phase: State) -> State:
    """A phase with containers of its own, without the learning and what it shares with the phase before it."""
    left = OF_LEARNING if phase.kept else ("learning",)
    made, watch = object.__new__(State), copy(phase.watch)
    vars(made).update(
        {
            name: value.copy() if isinstance(value, (list, dict, deque)) else value
            for name, value in vars(phase).items()
            if name not in left
        }
    )
    vars(watch).pop("learning", None)
    made.before, made.earlier, made.snapshots, made.watch = None, [], [], watch
    return made


def _size(phase: State) -> int:
    waiting = len(phase.open) + len(phase.expired) + (0 if phase.kept else len(phase.held) + len(phase.named))
    return PHASE_BYTES + ROUND_BYTES * waiting
