"""The safe set of a cost that is 0 or 1: realized safety is P(C = 1) ≤ δ itself.

    P(C = 1)/P(C = 0) = z·e^u,  u ≤ `log_odds_upper`      ⇒      z_safe = min(1, δ/(1 − δ)·exp(−log_odds_upper))

There is no noise margin: the probability itself describes the noise. C > τ means C = 1 for every threshold in [0, 1).
"""

from __future__ import annotations

import math
from typing import Any

from safedial.core.margin import round_risk
from safedial.core.namespace import namespace
from safedial.core.safe_set import SafeSet
from safedial.core.spec import SafetySpec

DOWN = 1.0 - 1e-13
"""exp and the division may err by a few units in the last place; the dose is rounded down by more than that."""


def binary_safe_set(log_odds_upper: Any, spec: SafetySpec, *, round: Any) -> SafeSet:
    """The largest z in [0, 1] with P(C = 1) ≤ δ_t; a NaN bound certifies nothing.

    >>> spec = SafetySpec(threshold=0.5, violation_risk=0.2, estimation_risk=0.05, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> round(binary_safe_set(0.0, spec, round=1).intensity, 6)
    0.25
    """
    risk = round_risk(spec, round)
    xp = namespace(log_odds_upper, risk)
    is_number = xp.abs(log_odds_upper) < math.inf
    log_odds = xp.log(risk) - xp.log1p(-risk) - xp.where(is_number, log_odds_upper, 0.0)
    intensity = xp.exp(xp.minimum(log_odds, 0.0 * log_odds)) * DOWN
    return SafeSet(xp.where(is_number, intensity, 0.0), xp.where(is_number, True, False))
