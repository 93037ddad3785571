"""The noise margin: how much room a round leaves for its noise. It costs reward in every round for ever.

P(ξ > margin | past) ≤ δ must hold for the noise of the next round. Each margin is the smallest under its assumption:

| margin | P(ξ > m) ≤ δ with m = | assumption |
|---|---|---|
| `subgaussian` | κ√(2 ln 1/δ) | ξ is κ-sub-Gaussian given the past (Chernoff) |
| `gaussian` | κΦ⁻¹(1−δ) | ξ is Gaussian given the past, its standard deviation at most κ |
| `bounded` | the least of four | low ≤ ξ ≤ high, of mean 0 |

The four of `bounded`: the end of the range, `high`; Hoeffding's lemma, which makes ξ ((high − low)/2)-sub-Gaussian;
κ√(2 ln 1/δ); and, if the conditional variance is constant and `margin_risk` is given, Cantelli's inequality with an
upper bound v on it that holds for all rounds at once (`core.noise`): P(ξ ≥ m) ≤ v/(v + m²), so m = √(v(1−δ)/δ). For one
variable with given variance no inequality of Bernstein's kind can be better: Cantelli's is attained, by two points.

With sensor noise, κ becomes the root of z²κ² + σ² (or zκ + σ): right for sub-Gaussian noise, and for noise and sensor
error that are jointly Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from safedial.core.namespace import namespace
from safedial.core.promise import PROMISES
from safedial.core.risks import tail
from safedial.core.spec import SafetySpec


def round_risk(spec: SafetySpec, round: Any) -> Any:
    """The violation risk that round number `round` (from 1) may spend."""
    if PROMISES[spec.promise].each_round:
        return spec.violation_risk
    return spec.violation_risk * (6.0 / math.pi**2) / (round * round)


def tail_factor(spec: SafetySpec, round: Any) -> Any:
    """q in units of κ: √(2 ln 1/δ_t), or Φ⁻¹(1−δ_t) if Gaussian; δ_t = 6δ/(π²t²) under the joint promise, else δ.

    >>> spec = SafetySpec(threshold=1, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> f"{tail_factor(spec, round=1):.3f}"
    '3.035'
    """
    return spec.tail if PROMISES[spec.promise].each_round else tail(round_risk(spec, round), spec.margin)


def noise_margin(spec: SafetySpec, round: Any, noise: Any = None) -> Any:
    """The margin of a round; `noise` is the learned bound on the variance, if there is one.

    >>> spec = SafetySpec(threshold=1, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1, margin="bounded", noise_low=-1.2, noise_high=1.5)
    >>> noise_margin(spec, round=1)
    1.5
    """
    factor = tail_factor(spec, round)
    margin = factor * spec.cost_noise
    if spec.margin == "bounded":
        hoeffding = factor * (0.5 * (spec.noise_high - spec.noise_low))
        xp = namespace(margin, hoeffding)
        margin = xp.minimum(xp.minimum(margin, hoeffding), spec.noise_high + 0.0 * margin)
        if noise is not None:
            risk = round_risk(spec, round)
            cantelli = noise * (1.0 - risk) / risk
            xp = namespace(margin, cantelli)
            margin = xp.minimum(margin, xp.sqrt(cantelli))
    return margin


def subgaussian_spec(spec: SafetySpec) -> SafetySpec:
    """The spec with the sub-Gaussian margin instead of its own, for comparison."""
    if spec.margin == "subgaussian":
        return spec
    return replace(spec, margin="subgaussian", margin_risk=None, noise_low=None, noise_high=None)


ASSUMPTIONS = {
    "gaussian": "noise is Gaussian given all earlier rounds, the context and the action, with a standard "
    "deviation of at most the stated constant (with a sensor: jointly Gaussian with its error)",
    "bounded": "the cost's noise lies between {low:g} and {high:g} and has mean zero, given all earlier rounds, the "
    "context and the action",
    "variance": "the conditional variance of the cost's noise is the same in every round",
}
"""The assumptions that a margin adds to the certified promise."""


def margin_assumptions(spec: SafetySpec) -> list[str]:
    """The margin's own assumptions, one sentence each; none for the sub-Gaussian margin."""
    if spec.margin == "subgaussian":
        return []
    lines = [ASSUMPTIONS[spec.margin].format(low=spec.noise_low or 0.0, high=spec.noise_high or 0.0)]
    return [*lines, ASSUMPTIONS["variance"]] if spec.learns_noise else lines
