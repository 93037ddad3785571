"""Watches a conformal promise over a log: do the rounds look exchangeable, as the promise assumes?

The promise is marginal: given the past, a round may exceed the threshold more often than δ. So a count of excesses is
not a supermartingale, and no number of them is evidence; they are shown as a count with an interval. The evidence is
that of core/exchangeability.py: bets on the p-values of calibration rounds, in decision order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from safedial.core.dose import Dose
from safedial.core.spec import SafetySpec
from safedial.diagnostics.conformal_rounds import walk_log
from safedial.diagnostics.residuals import Array
from safedial.errors import require
from safedial.notebook import card, named_values
from safedial.rounds_io import Log
from safedial.stats import binomial_interval

SURE = 0.95
"""The level of the interval around the share of excesses."""


@dataclass(frozen=True, kw_only=True)
class ExchangeabilityWatch:
    """What the watch found.

    Attributes:
        level: the alarm is raised at evidence 1/level; a false one has probability at most level, over all time.
        rounds, evidence: by calibration round with a known outcome: its number, and the evidence after it.
        alarm_round: the round of the first alarm, or None.
        counted, violated, allowed: by round with a dose of at most the advised one: its number, whether its cost
            exceeded the threshold, and δ.
        start_rounds: rounds that had no conformal bound and so the start dose.
        left_out: rounds of the log without a dose, or above the advice.
    """

    against: ClassVar[str] = "rounds are not exchangeable"

    level: float
    rounds: Array = field(repr=False)
    evidence: Array = field(repr=False)
    alarm_round: int | None
    counted: Array = field(repr=False)
    violated: Array = field(repr=False)
    allowed: Array = field(repr=False)
    start_rounds: int
    left_out: int

    @property
    def violations(self) -> int:
        return int(self.violated.sum())

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's interval for the share of excesses; it assumes independent rounds."""
        return binomial_interval(self.violations, len(self.counted), SURE)

    def to_dict(self) -> dict[str, Any]:
        """The summary, plain values."""
        low, high = self.interval
        return {
            "rounds": len(self.counted),
            "left_out": self.left_out,
            "start_rounds": self.start_rounds,
            "violations": self.violations,
            "violation_rate_low": low,
            "violation_rate_high": high,
            "promised_risk": float(self.allowed[0]),
            "ranked_rounds": len(self.rounds),
            "evidence": float(self.evidence[-1]),
            "largest_evidence": float(self.evidence.max()),
            "level": self.level,
            "alarm_round": self.alarm_round,
        }

    @property
    def first_alarm(self) -> int | None:
        return self.alarm_round

    def counts(self) -> str:
        """The excesses, in plain words."""
        low, high = self.interval
        return (
            f"{self.violations} of {len(self.counted)} costs exceeded the threshold: a rate between {low:.2g} and "
            f"{high:.2g} (95 % interval, for independent rounds); the promise is {self.allowed[0]:g} on average. This "
            "is not evidence, because the promise is marginal."
        )

    def _repr_html_(self) -> str:
        return card("The monitor", named_values(self.to_dict()), [self.verdict()])

    def verdict(self) -> str:
        """What it means, in plain words."""
        seen = f"{self.counts()} {self.start_rounds} rounds had no conformal bound."
        if self.alarm_round is None:
            return f"{seen} No alarm: nothing speaks against exchangeable rounds, which the promise assumes."
        return (
            f"{seen} ALARM at round {self.alarm_round}: the costs of new rounds rank higher among those of earlier "
            "calibration rounds than exchangeable rounds would. Stop or fall back, and find out what changed, or where "
            "the dose curve is wrong (safedial check). A later, smaller value does not clear an alarm."
        )


def watch_conformal_log(log: Log, spec: SafetySpec, dose: Dose, *, policy: Any, level: float) -> ExchangeabilityWatch:
    """Read a log round by round and bet on the p-values of its calibration rounds."""
    walked = walk_log(log, spec, dose, policy)
    rule = "has no calibration round that can be ranked"
    require(walked.ranked.size, "log", f"{len(log)} rows", rule, "half of the rounds after the 20th are")
    rounds, counted = log.round[walked.ranked], walked.covered
    require(counted.any(), "log", f"{len(log)} rows", "has no round that the promise covers", "actions at most advised")
    over = np.flatnonzero(walked.evidence >= 1.0 / level)
    return ExchangeabilityWatch(
        level=level,
        rounds=rounds,
        evidence=walked.evidence,
        alarm_round=int(rounds[over[0]]) if over.size else None,
        counted=log.round[counted],
        violated=walked.exceeded[counted].astype(float),
        allowed=np.full(int(counted.sum()), float(spec.violation_risk)),
        start_rounds=int((~walked.bounded).sum()),
        left_out=len(log) - int(counted.sum()),
    )
