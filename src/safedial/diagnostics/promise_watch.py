"""Watches the promise over a log: do costs exceed the threshold more often than it allows?

The evidence is that of core/monitor.py, from the rounds that the promise covers, in decision order: certified rounds
whose applied action was at most the advised one (if the log has the advice). If more was applied and the dose curve is
given, the round counts with the cost that the advised setting would have had. Rounds of a study's export without an
outcome count as kept, which can only lower the evidence. A conformal promise is watched through its assumption
(marginal_watch.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safedial.core import monitor
from safedial.core.costs import require_one_cost
from safedial.core.dose import Dose, DoseCurve, as_dose
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.decision.outcome import Sample, allowed_risk, counted, rescaled_cost
from safedial.decision.units import Dial, Features
from safedial.diagnostics.bracket_rounds import walk_bracket_log
from safedial.diagnostics.conformal_rounds import walk_log
from safedial.diagnostics.marginal_watch import (
    ExchangeabilityWatch,
    watch_bracket_log,
    watch_conformal_log,
    watch_student_log,
)
from safedial.diagnostics.residuals import Array
from safedial.diagnostics.student_rounds import walk_student_log
from safedial.errors import require
from safedial.notebook import card, named_values
from safedial.policies import Policy
from safedial.rounds_io import Log

LEVEL = 0.01


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What the monitor found.

    Attributes:
        level: alarms are raised at evidence 1/level; false ones have probability at most level + δ′ (+ δ_q with a
            margin that learns the noise), over all time.
        rounds, violated, allowed, evidence: by counted round: its number, whether its cost was counted as a violation,
            the risk it was allowed, and the evidence after it.
        alarm_round: the round of the first alarm, or None.
        left_out: rounds of the log that the promise does not cover.
        unseen: rounds without an outcome, which are counted as kept.
    """

    level: float
    rounds: Array = field(repr=False)
    violated: Array = field(repr=False)
    allowed: Array = field(repr=False)
    evidence: Array = field(repr=False)
    alarm_round: int | None
    left_out: int
    unseen: int = 0

    @property
    def counted(self) -> Array:
        return self.rounds

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
        allowed = f"the promise allows {self.allowed.sum():.3g} on average"
        seen = f"{self.violations} of {len(self.rounds)} costs exceeded the threshold; {allowed}."
        if self.unseen:
            seen += f" {self.unseen} of them are unknown and count as kept."
        if self.alarm_round is None:
            return f"{seen} No alarm: the costs are no evidence against the promise."
        return (
            f"{seen} ALARM at round {self.alarm_round}: costs exceed the threshold more often than promised. Stop or "
            "fall back, and find out which assumption broke (safedial check). A later, smaller value does not clear "
            "an alarm."
        )


def watch_log(
    log: Log,
    spec: SafetySpec,
    *,
    level: float = LEVEL,
    dose: DoseCurve | Dose | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    dial: Dial | None = None,
    features: Features | None = None,
) -> Watch | ExchangeabilityWatch:
    """Run the monitor over a log; for a conformal or a bracket promise, run the test of exchangeability, which needs
    the dose curve and the policy (or a spec file's table of one), for a bracket also the dial and the features. For a
    student promise, bet on the p-values of costs.

    >>> from safedial.simulation.logged import simulated_log
    >>> from safedial.worlds.linear import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> watch_log(simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=300), spec).alarm_round is None
    True
    >>> watch_log(simulated_log("on_expectation", LinearWorld(dim=3), spec, rounds=300), spec).alarm_round is None
    False
    """
    require(0.0 < level < 1.0, "level", level, "must lie strictly between 0 and 1", "0.01 alarms at evidence 100")
    if PROMISES[spec.promise].bracketed:
        walked = walk_bracket_log(log, spec, as_dose(dose), policy=policy, dial=dial, features=features)
        return watch_bracket_log(walked, level=level)
    if PROMISES[spec.promise].exchangeable:
        return watch_conformal_log(walk_log(log, spec, as_dose(dose), policy), level=level)
    require_one_cost(spec)
    if PROMISES[spec.promise].gaussian:
        return watch_student_log(walk_student_log(log.prefix, spec, as_dose(dose), policy), level=level)
    curve = None if dose is None or spec.noise_scale is not None else as_dose(dose).cost
    seen = {float(log.round[index]): _counted(log, spec, curve, index) for index in range(len(log))}
    seen |= {number: _kept(spec, number) for number in log.unseen.tolist()}
    state, told = monitor.init(), []
    for number, counts in sorted(seen.items()):
        if counts is not None:
            state = monitor.update(state, *counts)
            told.append((number, *counts, float(monitor.evidence(state))))
    require(told, "log", f"{len(log)} rows", "has no round that the promise covers", "actions must be at most advised")
    rounds, violated, allowed, evidence = np.array(told, dtype=float).T
    over = np.flatnonzero(evidence >= 1.0 / level)
    return Watch(
        level=level,
        rounds=rounds,
        violated=violated,
        allowed=allowed,
        evidence=evidence,
        alarm_round=int(rounds[over[0]]) if over.size else None,
        left_out=len(seen) - len(told),
        unseen=len(log.unseen),
    )


def _kept(spec: SafetySpec, number: float) -> tuple[bool, float] | None:
    """A round without an outcome, counted as one that kept the promise."""
    risk = allowed_risk(spec, 0.0, number)
    return None if risk is None else (False, risk)


def _counted(log: Log, spec: SafetySpec, curve: DoseCurve | None, index: int) -> tuple[bool, float] | None:
    """(violated, allowed risk), or None where the promise does not cover the round."""
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
