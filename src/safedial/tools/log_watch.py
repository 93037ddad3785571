"""What watches a guarantee over a log: do costs exceed the threshold more often than it allows?

The evidence is that of bounds/monitor.py, from the rounds that the guarantee covers, in decision order: certified
rounds whose applied action was at most the advised one (if the log has the advice). If more was applied and the dose
curve is given, the round counts with the cost that the advised setting would have had. Rounds of a study's export
without an outcome count as kept, which can only lower the evidence.

A marginal guarantee is one over the past rounds too: given the past, a round may exceed the threshold more often than
δ. So a count of excesses is not a supermartingale, and no number of them is evidence; they are shown as a count with an
interval. The evidence is against what the guarantee assumes, and is that of its policy (walk.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from safedial.bounds import monitor
from safedial.errors import require
from safedial.io import card, named_values
from safedial.model.costs import require_one_cost
from safedial.model.dose import DoseCurve
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.rounds.log_file import Log
from safedial.rounds.outcome import Sample, allowed_risk, counted, rescaled_cost
from safedial.stats import binomial_interval
from safedial.tools.walk import LogCase, Walk

SURE = 0.95
"""The level of the interval around the share of excesses."""

CLEARS = "A later, smaller value does not clear an alarm."


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What the monitor found.

    Attributes:
        level: alarms are raised at evidence 1/level; false ones have probability at most level + δ′ (+ δ_q with a
            margin that learns the noise), over all time.
        rounds, evidence: by round that bets: its number, and the evidence after it.
        counted, violated, allowed: by counted round: its number, whether its cost was counted as a violation, and the
            risk it was allowed.
        alarm_round: the round of the first alarm, or None.
        left_out: rounds of the log that the guarantee does not cover.
        unseen: rounds without an outcome, which are counted as kept.
    """

    allowance: ClassVar[str] = "allowed"

    level: float
    rounds: Array = field(repr=False)
    evidence: Array = field(repr=False)
    counted: Array = field(repr=False)
    violated: Array = field(repr=False)
    allowed: Array = field(repr=False)
    alarm_round: int | None
    left_out: int
    unseen: int = 0

    @property
    def against(self) -> str:
        """What the evidence is against."""
        return "the guarantee is broken"

    @property
    def first_alarm(self) -> int | None:
        return self.alarm_round

    @property
    def violations(self) -> int:
        return int(self.violated.sum())

    def to_dict(self) -> dict[str, Any]:
        """The summary, plain values."""
        return {
            "rounds": len(self.rounds),
            "left_out": self.left_out,
            "unseen": self.unseen,
            "violations": self.violations,
            "allowed_violations": float(self.allowed.sum()),
            **self._evidence(),
            "alarm_round": self.alarm_round,
        }

    def _evidence(self) -> dict[str, Any]:
        ends = {"evidence": float(self.evidence[-1]), "largest_evidence": float(self.evidence.max())}
        return {**ends, "level": self.level}

    def _repr_html_(self) -> str:
        return card("The monitor", named_values(self.to_dict()), [self.verdict()])

    def verdict(self) -> str:
        """What it means, in plain words."""
        allowed = f"the guarantee allows {self.allowed.sum():.3g} on average"
        seen = f"{self.violations} of {len(self.rounds)} costs exceeded the threshold; {allowed}."
        if self.unseen:
            seen += f" {self.unseen} of them are unknown and count as kept."
        if self.alarm_round is None:
            return f"{seen} No alarm: the costs are no evidence against the guarantee."
        return (
            f"{seen} ALARM at round {self.alarm_round}: costs exceed the threshold more often than guaranteed. Stop or "
            f"fall back, and find out which assumption broke (safedial check). {CLEARS}"
        )


def watch_counts(case: LogCase) -> Watch:
    """The monitor of counted violations over a log; without a dose curve no cost is rescaled."""
    require_one_cost(case.spec)
    log, spec = case.log, case.spec
    curve = None if case.dose is None or spec.noise_scale is not None else case.dose.cost
    seen = {float(log.round[index]): _counted(log, spec, curve, index) for index in range(len(log))}
    seen |= {number: _kept(spec, number) for number in log.unseen.tolist()}
    state, told = monitor.init(), []
    for number, counts in sorted(seen.items()):
        if counts is not None:
            state = monitor.update(state, *counts)
            told.append((number, *counts, float(monitor.evidence(state))))
    way_out = "actions must be at most advised"
    require(told, "log", f"{len(log)} rows", "has no round that the guarantee covers", way_out)
    rounds, violated, allowed, evidence = np.array(told, dtype=float).T
    return Watch(
        level=case.level,
        rounds=rounds,
        evidence=evidence,
        counted=rounds,
        violated=violated,
        allowed=allowed,
        alarm_round=first_alarm(rounds, evidence, case.level),
        left_out=len(seen) - len(told),
        unseen=len(log.unseen),
    )


def first_alarm(rounds: Array, evidence: Array, level: float) -> int | None:
    """The round in which evidence first reaches 1/level."""
    over = np.flatnonzero(evidence >= 1.0 / level)
    return int(rounds[over[0]]) if over.size else None


def _kept(spec: SafetySpec, number: float) -> tuple[bool, float] | None:
    """A round without an outcome, counted as one that kept the guarantee."""
    risk = allowed_risk(spec, 0.0, number)
    return None if risk is None else (False, risk)


def _counted(log: Log, spec: SafetySpec, curve: DoseCurve | None, index: int) -> tuple[bool, float] | None:
    """(violated, allowed risk), or None where the guarantee does not cover the round."""
    action, advised, cost, baseline = (
        float(getattr(log, name)[index]) for name in ("action", "advised", "cost", "baseline_cost")
    )
    if action > advised:
        if curve is None or advised < 0.0:
            return None
        rescaled = rescaled_cost(curve, cost - baseline, action, advised)
        if rescaled is None:
            return None
        cost = baseline + rescaled
    return counted(spec, Sample(0.0, 0.0, 0.0, action, cost, baseline), float(log.round[index]))


# --- The watch of a marginal guarantee


class WatchWords(NamedTuple):
    """What the evidence is `against`, how the rounds at the start are told ({starts}, {missing}), and what it means
    that there is no alarm, or that there is one.
    """

    against: str
    starts: str
    quiet: str
    alarm: str


@dataclass(frozen=True, kw_only=True)
class MarginalWatch(Watch):
    """What the watch of a marginal guarantee found. `rounds` are those that are bet on; a false alarm has probability
    at most level, over all time. `counted` are rounds with a dose of at most the advised one, the others are left out.

    Attributes:
        start_rounds: rounds that had no bound, and so the start.
        by_cost: how many counted rounds exceeded each cost's threshold.
        start_evidence: where the start is watched, after each round: that it exceeds more often than δ. start_alarm:
            the first round with 1/level of it, or None.
        missing: rounds without a known outcome.
    """

    allowance: ClassVar[str] = "guaranteed on average"

    words: WatchWords = field(repr=False)
    start_rounds: int
    by_cost: Mapping[str, int]
    start_evidence: Array | None = field(default=None, repr=False)
    start_alarm: int | None = None
    missing: int = 0

    @property
    def against(self) -> str:
        return self.words.against

    @property
    def first_alarm(self) -> int | None:
        return min((each for each in (self.alarm_round, self.start_alarm) if each is not None), default=None)

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's interval for the share of excesses; it assumes independent rounds."""
        return binomial_interval(self.violations, len(self.counted), SURE)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        costs = {f"violations_{name}": count for name, count in self.by_cost.items()} if len(self.by_cost) > 1 else {}
        started = {}
        if self.start_evidence is not None:
            started = {"missing": self.missing, "start_evidence": float(self.start_evidence.max())}
            started |= {"start_alarm": self.start_alarm}
        return {
            "rounds": len(self.counted),
            "left_out": self.left_out,
            "start_rounds": self.start_rounds,
            "violations": self.violations,
            "violation_rate_low": low,
            "violation_rate_high": high,
            "guaranteed_risk": float(self.allowed[0]),
            "ranked_rounds": len(self.rounds),
            **self._evidence(),
            "alarm_round": self.alarm_round,
            **costs,
            **started,
        }

    def verdict(self) -> str:
        low, high = self.interval
        several = ", ".join(f"{name} in {count}" for name, count in self.by_cost.items())
        parts = [
            f"{self.violations} of {len(self.counted)} costs exceeded the threshold: a rate between {low:.2g} and "
            f"{high:.2g} (95 % interval, for independent rounds); the guarantee is {self.allowed[0]:g} on average. "
            "The rate alone is no evidence: the guarantee is an average over all courses that a study may take.",
            *([f"By cost: {several}."] if len(self.by_cost) > 1 else []),
            self.words.starts.format(starts=self.start_rounds, missing=self.missing),
        ]
        if self.start_alarm is not None:
            parts.append(
                f"ALARM at round {self.start_alarm}: the start exceeds more often than {self.allowed[0]:g}. Stop, and "
                "declare a lower start."
            )
        if self.alarm_round is not None:
            parts.append(f"ALARM at round {self.alarm_round}: {self.words.alarm} {CLEARS}")
        return " ".join(parts if self.first_alarm is not None else [*parts, f"No alarm: {self.words.quiet}"])


def watch_walk(walk: Walk, level: float, words: WatchWords, rounds: Any, evidence: Array, **more: Any) -> MarginalWatch:
    """The watch over a walk. `rounds` are the rows that are bet on, with the evidence after each."""
    covered, count, number = walk.covered, len(walk.rounds), walk.rounds.number
    rule = "has no round that the guarantee covers"
    require(covered.any(), "log", f"{count} rows", rule, "actions at most advised")
    counted, over = int(covered.sum()), walk.over
    fields: dict[str, Any] = {"start_rounds": int((~walk.ready).sum())}
    fields |= more
    return MarginalWatch(
        level=level,
        rounds=number[rounds],
        evidence=evidence,
        alarm_round=first_alarm(number[rounds], evidence, level),
        counted=number[covered],
        violated=walk.exceeded[covered].astype(float),
        allowed=np.full(counted, float(walk.spec.violation_risk)),
        left_out=count - counted,
        by_cost={name: int(each[covered].sum()) for name, each in over.items()},
        words=words,
        **fields,
    )
