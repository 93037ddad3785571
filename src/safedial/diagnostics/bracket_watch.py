"""Watches a bracket promise over a log: do rounds look exchangeable and within their bracket, and is the start safe?

Excesses are a count with an interval and no evidence, as for any marginal promise (conformal_watch.py). The evidence is
that of an Agent (`decision.learners.shield_watch`): of rounds, and separately of the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safedial.diagnostics.bracket_rounds import BracketRounds
from safedial.diagnostics.conformal_watch import ExchangeabilityWatch
from safedial.diagnostics.residuals import Array
from safedial.errors import require


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
            parts.append("No alarm: nothing speaks against exchangeable rounds within their bracket, or the start.")
        return " ".join(part for part in parts if part)


def watch_bracket_log(walked: BracketRounds, *, level: float) -> BracketWatch:
    """The watch over a log that `walk_bracket_log` has read."""
    covered = walked.covered
    require(
        covered.any(), "log", f"{len(covered)} rows", "has no round that the promise covers", "actions at most advised"
    )
    alarms = [np.flatnonzero(path >= 1.0 / level) for path in (walked.evidence, walked.start_evidence)]
    first, start = (int(walked.number[over[0]]) if over.size else None for over in alarms)
    return BracketWatch(
        level=level,
        rounds=walked.number,
        evidence=walked.evidence,
        alarm_round=first,
        counted=walked.number[covered],
        violated=walked.exceeded[covered].astype(float),
        allowed=np.full(int(covered.sum()), walked.risk),
        start_rounds=int(walked.at_start.sum()),
        left_out=len(covered) - int(covered.sum()),
        start_evidence=walked.start_evidence,
        start_alarm=start,
        by_cost={name: int(over[covered].sum()) for name, over in walked.over.items()},
        missing=walked.missing,
    )
