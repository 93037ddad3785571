"""Watches the guarantee over a log: do costs exceed the threshold more often than it allows?

The evidence is that of bounds/monitor.py, from the rounds that the guarantee covers, in decision order: certified
rounds whose applied action was at most the advised one (if the log has the advice). If more was applied and the dose
curve is given, the round counts with the cost that the advised setting would have had. Rounds of a study's export
without an outcome count as kept, which can only lower the evidence.

A conformal, a bracket or a student guarantee is marginal: given the past, a round may exceed the threshold more often
than δ. So a count of excesses is not a supermartingale, and no number of them is evidence; they are shown as a count
with an interval. The evidence is that of the assumption. Conformal: bets on the p-values of calibration rounds, in
decision order (bounds/ranks.py). Bracket: that of an Agent (policies/shield.py), of rounds, and separately of the
start. Student: bets on the p-values of costs (marginal_rounds.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from safedial.bounds import monitor
from safedial.errors import require
from safedial.io import card, named_values
from safedial.model.costs import require_one_cost
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.rounds.log_file import Log
from safedial.rounds.outcome import Sample, allowed_risk, counted, rescaled_cost
from safedial.stats import binomial_interval
from safedial.tools.marginal_rounds import (
    Array,
    BracketRounds,
    ConformalRounds,
    StudentRounds,
    WalkedRounds,
    walk_bracket_log,
    walk_log,
    walk_student_log,
)

LEVEL = 0.01

SURE = 0.95
"""The level of the interval around the share of excesses."""


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

    against: ClassVar[str] = "the guarantee is broken"
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
            "evidence": float(self.evidence[-1]),
            "largest_evidence": float(self.evidence.max()),
            "level": self.level,
            "alarm_round": self.alarm_round,
        }

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
            "fall back, and find out which assumption broke (safedial check). A later, smaller value does not clear "
            "an alarm."
        )


@dataclass(frozen=True, kw_only=True)
class ExchangeabilityWatch(Watch):
    """What the watch of a marginal guarantee found. `rounds` are calibration rounds with a known outcome; a false alarm
    has probability at most level, over all time. `counted` are rounds with a dose of at most the advised one, the
    others are left out; `start_rounds` had no conformal bound and so the start dose.
    """

    against: ClassVar[str] = "rounds are not exchangeable"
    allowance: ClassVar[str] = "guaranteed on average"

    start_rounds: int

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's interval for the share of excesses; it assumes independent rounds."""
        return binomial_interval(self.violations, len(self.counted), SURE)

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "rounds": len(self.counted),
            "left_out": self.left_out,
            "start_rounds": self.start_rounds,
            "violations": self.violations,
            "violation_rate_low": low,
            "violation_rate_high": high,
            "guaranteed_risk": float(self.allowed[0]),
            "ranked_rounds": len(self.rounds),
            "evidence": float(self.evidence[-1]),
            "largest_evidence": float(self.evidence.max()),
            "level": self.level,
            "alarm_round": self.alarm_round,
        }

    def counts(self) -> str:
        """The excesses, in plain words."""
        low, high = self.interval
        return (
            f"{self.violations} of {len(self.counted)} costs exceeded the threshold: a rate between {low:.2g} and "
            f"{high:.2g} (95 % interval, for independent rounds); the guarantee is {self.allowed[0]:g} on average. "
            "The rate alone is no evidence: the guarantee is an average over all courses that a study may take."
        )

    def verdict(self) -> str:
        seen = f"{self.counts()} {self.start_rounds} rounds had no conformal bound."
        if self.alarm_round is None:
            return f"{seen} No alarm: there is no evidence against exchangeable rounds, which the guarantee assumes."
        return (
            f"{seen} ALARM at round {self.alarm_round}: the costs of new rounds rank higher among those of earlier "
            "calibration rounds than exchangeable rounds would. Stop or fall back, and find out what changed, or where "
            "the dose curve is wrong (safedial check). A later, smaller value does not clear an alarm."
        )


@dataclass(frozen=True, kw_only=True)
class BracketWatch(ExchangeabilityWatch):
    """What the watch found; `start_rounds` are known rounds at the start or below.

    Attributes:
        start_evidence: after each round, that the start exceeds more often than δ. start_alarm: the first round with
            1/level of it, or None.
        by_cost: how many covered rounds exceeded each cost's threshold. missing: rounds without a known outcome.
    """

    start_evidence: Array = field(repr=False)
    start_alarm: int | None
    by_cost: dict[str, int]
    missing: int

    def to_dict(self) -> dict[str, Any]:
        own = {"missing": self.missing, "start_evidence": float(self.start_evidence.max())}
        costs = {f"violations_{name}": count for name, count in self.by_cost.items()} if len(self.by_cost) > 1 else {}
        return super().to_dict() | costs | own | {"start_alarm": self.start_alarm}

    @property
    def first_alarm(self) -> int | None:
        return min((each for each in (self.alarm_round, self.start_alarm) if each is not None), default=None)

    def verdict(self) -> str:
        several = ", ".join(f"{name} in {count}" for name, count in self.by_cost.items())
        parts = [self.counts(), f"By cost: {several}." if len(self.by_cost) > 1 else ""]
        parts.append(f"{self.start_rounds} rounds were at the start or below; {self.missing} outcomes are missing.")
        if self.start_alarm is not None:
            parts.append(
                f"ALARM at round {self.start_alarm}: the start exceeds more often than {self.allowed[0]:g}. Stop, and "
                "declare a lower start."
            )
        if self.alarm_round is not None:
            parts.append(
                f"ALARM at round {self.alarm_round}: rounds that exceed tolerate less than earlier ones surely did: "
                "rounds changed with time, or the bracket is false. Stop or fall back, and find out which (safedial "
                "check). A later, smaller value does not clear an alarm."
            )
        if self.first_alarm is None:
            parts.append(
                "No alarm: there is no evidence against exchangeable rounds within their bracket, or the start."
            )
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True)
class StudentWatch(ExchangeabilityWatch):
    """What the watch found: evidence that the noise is not as stated, and a count of excesses."""

    against = "noise is not Gaussian of one size"

    def verdict(self) -> str:
        seen = f"{self.counts()} {self.start_rounds} rounds had no bound."
        if self.alarm_round is None:
            return f"{seen} No alarm: no evidence against Gaussian noise of one size, which the guarantee assumes."
        return (
            f"{seen} ALARM at round {self.alarm_round}: costs lie above their predictions more than Gaussian noise of "
            "one size allows. Stop or fall back, and find out what changed (safedial check). A later, smaller value "
            "does not clear an alarm."
        )


def watch_bracket_log(walked: BracketRounds, *, level: float) -> BracketWatch:
    """The watch over a log that `walk_bracket_log` has read."""
    covered = walked.covered
    return BracketWatch(
        **_counted_marginal(walked, level, walked.number, walked.risk),
        start_rounds=int(walked.at_start.sum()),
        start_evidence=walked.start_evidence,
        start_alarm=_first_alarm(walked.number, walked.start_evidence, level),
        by_cost={name: int(over[covered].sum()) for name, over in walked.over.items()},
        missing=walked.missing,
    )


def _ranked(walked: ConformalRounds | StudentRounds, level: float) -> dict[str, Any]:
    """The fields of a watch whose evidence is of rounds with a p-value."""
    counted = _counted_marginal(walked, level, walked.number[walked.ranked], float(walked.spec.violation_risk))
    return counted | {"start_rounds": int((~walked.bounded).sum())}


def _counted_marginal(walked: WalkedRounds | BracketRounds, level: float, rounds: Array, risk: float) -> dict[str, Any]:
    """The fields that all watches share; `rounds` are those that the evidence is of."""
    covered, count = walked.covered, len(walked.covered)
    require(covered.any(), "log", f"{count} rows", "has no round that the guarantee covers", "actions at most advised")
    return {
        "level": level,
        "rounds": rounds,
        "evidence": walked.evidence,
        "alarm_round": _first_alarm(rounds, walked.evidence, level),
        "counted": walked.number[covered],
        "violated": walked.exceeded[covered].astype(float),
        "allowed": np.full(int(covered.sum()), risk),
        "left_out": count - int(covered.sum()),
    }


def _first_alarm(rounds: Array, evidence: Array, level: float) -> int | None:
    over = np.flatnonzero(evidence >= 1.0 / level)
    return int(rounds[over[0]]) if over.size else None


# --- The watch over a log


def watch_log(
    log: Log,
    spec: SafetySpec,
    *,
    level: float = LEVEL,
    dose: DoseCurve | Dose | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    dial: Dial | None = None,
    features: Features | None = None,
) -> Watch:
    """Run the monitor over a log; for a conformal or a bracket guarantee, run the test of exchangeability, which needs
    the dose curve and the policy (or a spec file's table of one), for a bracket also the dial and the features. For a
    student guarantee, bet on the p-values of costs.

    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> watch_log(simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=300), spec).alarm_round is None
    True
    >>> watch_log(simulated_log("on_expectation", LinearWorld(dim=3), spec, rounds=300), spec).alarm_round is None
    False
    """
    require(0.0 < level < 1.0, "level", level, "must lie strictly between 0 and 1", "0.01 alarms at evidence 100")
    if GUARANTEES[spec.guarantee].bracketed:
        walked = walk_bracket_log(log, spec, as_dose(dose), policy=policy, dial=dial, features=features)
        return watch_bracket_log(walked, level=level)
    if GUARANTEES[spec.guarantee].exchangeable:
        ranked = walk_log(log, spec, as_dose(dose), policy)
        rule = "has no calibration round that can be ranked"
        require(ranked.ranked.size, "log", f"{len(log)} rows", rule, "half of the rounds after the 20th are")
        return ExchangeabilityWatch(**_ranked(ranked, level))
    require_one_cost(spec)
    if GUARANTEES[spec.guarantee].gaussian:
        student = walk_student_log(log.prefix, spec, as_dose(dose), policy)
        return StudentWatch(**_ranked(student, level))
    curve = None if dose is None or spec.noise_scale is not None else as_dose(dose).cost
    seen = {float(log.round[index]): _counted(log, spec, curve, index) for index in range(len(log))}
    seen |= {number: _kept(spec, number) for number in log.unseen.tolist()}
    state, told = monitor.init(), []
    for number, counts in sorted(seen.items()):
        if counts is not None:
            state = monitor.update(state, *counts)
            told.append((number, *counts, float(monitor.evidence(state))))
    require(
        told, "log", f"{len(log)} rows", "has no round that the guarantee covers", "actions must be at most advised"
    )
    rounds, violated, allowed, evidence = np.array(told, dtype=float).T
    return Watch(
        level=level,
        rounds=rounds,
        evidence=evidence,
        counted=rounds,
        violated=violated,
        allowed=allowed,
        alarm_round=_first_alarm(rounds, evidence, level),
        left_out=len(seen) - len(told),
        unseen=len(log.unseen),
    )


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
