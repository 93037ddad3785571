"""The state of a study after an event: its rounds (rounds/rounds.py), and what its guard counts. A pure function of the
log.

An amendment (study/amendment.py) may begin a new state; the one before it, `before`, goes on judging its own rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from safedial.rounds.outcome import Outcome, Round, is_over
from safedial.rounds.rounds import Rounds
from safedial.study.event import START
from safedial.study.study_spec import FEW_UNWATCHED, StudySpec

HOUR = 3_600_000_000
"""Microseconds."""


class State(Rounds):
    """The state after event `seq`, whose hash is `hash`.

    After an amendment that begins a phase, `before` is the state of the rounds before it. If what was learned was
    `kept`, both states have one learning and one numbering of rounds. `rounds_before` has the number of all earlier
    decisions, and the last round's number at the amendment.

    `recent` says of the last outcomes whether they were beyond the limit; `new_decisions` were made since the stop rule
    was resumed. `replayed` counts the events that were replayed since the last stored snapshot.
    """

    def __init__(self, study: StudySpec, before: State | None = None, *, kept: bool = False) -> None:
        super().__init__(
            study.rules, ordered=study.ordered, level=study.guard.alarm_level, kept=before if kept else None
        )
        self.study, self.before, self.kept = study, before, kept
        self.earlier: list[State] = [] if before is None else before.phases
        self.rounds_before = [0, 0]
        self.amendments: list[list[Any]] = []
        self.seq, self.hash = 0, START
        self.stop_reason = ""
        self.recent: deque[bool] = deque(maxlen=study.guard.stop_of_last)
        self.new_decisions = self.corrected_violations = 0
        self.resumes: list[list[Any]] = []
        self.replayed = 0

    def judged(self, over: bool) -> None:
        self.recent.append(over)

    def goes_on(self, study: StudySpec, amendments: list[list[Any]]) -> State:
        """This state under a specification whose guard or labels were amended; the guard judges what was counted."""
        self.study, self.amendments = study, amendments
        self.watch.judge(study.guard.alarm_level)
        self.recent = deque(self.recent, study.guard.stop_of_last)
        return self

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
    def forgets(self) -> int:
        """How often learning has started again without the earlier rounds."""
        return sum(forget for *_, forget in self.resumes)

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
        yield from watch.fired()
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
        """The earliest time of an open decision, in microseconds; a clock may have gone back since the first."""
        return min((one.at for each in self.phases for one in each.open.values()), default=None)

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

    def restart_counts(self, rule: str, seq: int) -> None:
        """Restart what a rule counts outside the watch, which event `seq` resumes."""
        if rule == "assumption_broken":
            self.broken = False
        elif rule == "too_many_void":
            self.new_void, self.void_from = 0, seq
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
            "waiting": len(self.learning.held),
            "waits_for": self.learning.queue[0] if self.learning.queue else None,
            "frozen": self.learning.frozen,
            "informative_rounds": self.learning.samples,
            "violations": self.total("violations"),
            "evidence": self.watch.evidence,
            "noise_evidence": self.watch.noise_evidence,
            "stop_reason": self.stop_reason,
            "unwatched": self.total("unwatched"),
            "resumes": len(self.resumes),
            "forgets": self.forgets,
            "corrected_violations": self.total("corrected_violations"),
        }
        if (against_start := self.watch.start_evidence) is not None:
            facts["start_evidence"] = against_start
        if self.learning.starts is not None:
            facts["start_rounds"] = self.learning.starts
        if self.amendments:
            began = [first for seq, first, *_ in self.amendments if seq == self.study.began]
            facts |= {"amendments": len(self.amendments), "since_round": began[0] if began else 1}
        return facts


def _is_blind(parts: list[State], share: float) -> bool:
    unwatched = sum(each.watch.new_unwatched for each in parts)
    return unwatched > FEW_UNWATCHED and unwatched > share * sum(each.watch.new_watched for each in parts)


# --- The values of an outcome

Body = Mapping[str, Any]


def outcome_of(round_: Round, body: Body) -> Outcome:
    """The outcome of a round, from the values of its event."""
    stated = body["applied_action"]
    applied = round_.action if stated is None else stated
    return Outcome(applied, body["reward"], body["cost"], round_.baseline_cost)


def takes_back(state: State, round_: Round | None, before: Body, after: Body) -> bool:
    """Whether new values of an outcome take back an excess: of its cost, or of its cost at the advice, which is what
    the watch counts; also where the round was declared void afterwards.
    """
    pairs = zip(_excesses(state, round_, before), _excesses(state, round_, after), strict=True)
    return any(was and not now for was, now in pairs)


def _excesses(state: State, round_: Round | None, body: Body) -> list[bool]:
    found = [is_over(state.rules, body["cost"])]
    if round_ is not None:
        sample = state.unlearned(round_, outcome_of(round_, body))
        found.append(state.watch.exceeded(round_, sample, throttled=bool(body.get("throttled"))))
    return found
