"""The noise margin: how much room a round leaves for its noise. It costs reward in every round for ever.

P(ξ > margin | past) ≤ δ must hold for the noise of the next round. Each margin is the smallest under its assumption:

| margin | P(ξ > m) ≤ δ with m = | assumption |
|---|---|---|
| `subgaussian` | κ√(2 ln 1/δ) | ξ is κ-sub-Gaussian given the past (Chernoff) |
| `gaussian` | κΦ⁻¹(1−δ) | ξ is Gaussian given the past, its standard deviation at most κ |
| `bounded` | the least of four | low ≤ ξ ≤ high, of mean 0 |

The four of `bounded`: the end of the range, `high`; Hoeffding's lemma, which makes ξ ((high − low)/2)-sub-Gaussian;
κ√(2 ln 1/δ); and, if the conditional variance is constant and `margin_risk` is given, Cantelli's inequality with an
upper bound v on it that holds for all rounds at once (`bounds.margin`): P(ξ ≥ m) ≤ v/(v + m²), so m = √(v(1−δ)/δ). For
one variable with given variance no inequality of Bernstein's kind can be better: Cantelli's is attained, by two points.

With sensor noise, κ becomes the root of z²κ² + σ² (or zκ + σ): right for sub-Gaussian noise, and for noise and sensor
error that are jointly Gaussian.

What past rounds say about the noise, for all rounds at once: an upper bound on its variance.

Past noise is not observed, but on the confidence event it lies in a known interval: with the bounds of a later time t,

    y_s − UCB_t(x_s) ≤ ξ_s ≤ y_s − LCB_t(x_s)          for all s < t

Let low ≤ ξ ≤ high, E[ξ|past] = 0, E[ξ²|past] = v in every round, B the larger of low² and high². For Z in
[0, B] with mean v, exp is convex, so E exp(−ηZ) ≤ 1 − (v/B)(1 − e^{−ηB}). Hence Π exp(−ηξ_s²)/(1 − (v/B)(1 − e^{−ηB}))
is a supermartingale, and by Ville, for all n at once and each of J values of η, each at risk δ_q/J,

    v ≤ B(1 − (δ_q/J)^{1/n}·exp(−(η/n)Σξ_s²)) / (1 − e^{−ηB})

with Σξ_s² at most the sum of the larger ends' squares.

It holds for all n at once, so the least over all past looks holds too. A look is taken whenever the rounds have
grown by a tenth. Which rounds are informative is known before their noise, so leaving the others out changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import UNIT, Array, namespace
from safedial.model.spec import SafetySpec, tail


def round_risk(spec: SafetySpec, round: Any) -> Any:
    """The violation risk that round number `round` (from 1) may spend."""
    if GUARANTEES[spec.guarantee].each_round:
        return spec.violation_risk
    return spec.violation_risk * (6.0 / math.pi**2) / (round * round)


def tail_factor(spec: SafetySpec, round: Any) -> Any:
    """q in units of κ: √(2 ln 1/δ_t), or Φ⁻¹(1−δ_t) if Gaussian; δ_t = 6δ/(π²t²) under the joint guarantee, else δ.

    >>> spec = SafetySpec(threshold=1, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> f"{tail_factor(spec, round=1):.3f}"
    '3.035'
    """
    risk = round_risk(spec, round)
    return spec.tail if risk is spec.violation_risk else tail(risk, spec.margin)


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
"""The assumptions that a margin adds to the certified guarantee."""


def margin_assumptions(spec: SafetySpec) -> list[str]:
    """The margin's own assumptions, one sentence each; none for the sub-Gaussian margin."""
    if spec.margin == "subgaussian":
        return []
    lines = [ASSUMPTIONS[spec.margin].format(low=spec.noise_low or 0.0, high=spec.noise_high or 0.0)]
    return [*lines, ASSUMPTIONS["variance"]] if spec.learns_noise else lines


# --- What past rounds say about the noise, for all rounds at once

ETAS = 2.0 ** -np.arange(0.0, 14.0)
"""η in units of 1/B."""


def variance_bound(total: Any, count: Any, largest: float, failure: float) -> Any:
    """v: with probability ≥ 1 − `failure`, for all n, at least the variance; `total` ≥ Σξ², each ξ² ≤ `largest`.

    >>> f"{variance_bound(10.0, 1000.0, 1.0, 0.01):.4f}"
    '0.0270'
    """
    number = np.maximum(np.asarray(count, dtype=float), 1.0)[..., None]
    share = np.asarray(total, dtype=float)[..., None] / largest
    exponent = (math.log(len(ETAS) / failure) + ETAS * share) / number
    bound = -np.expm1(-exponent) / -np.expm1(-ETAS)
    return largest * np.minimum(bound.min(axis=-1) * (1.0 + 64.0 * UNIT), 1.0)


def past_variance(cost: Array, lower: Any, upper: Any, spec: SafetySpec) -> Any:
    """The variance bound from past normalised costs, (..., rounds), and the present bounds on their means; a cost of −∞
    is one that taught nothing.
    """
    known = np.isfinite(cost)
    cost = np.where(known, cost, 0.0)
    highest = cost - lower + 4.0 * UNIT * (np.abs(cost) + np.abs(lower))
    lowest = cost - upper - 4.0 * UNIT * (np.abs(cost) + np.abs(upper))
    # The noise lies between these and in its stated range.
    low = np.clip(np.where(known, lowest, 0.0), spec.noise_low, 0.0)
    high = np.clip(np.where(known, highest, 0.0), 0.0, spec.noise_high)
    squares = np.maximum(low * low, high * high) * (1.0 + 64.0 * UNIT)
    count = known.sum(axis=-1)
    largest = max(spec.noise_low**2, spec.noise_high**2)
    return variance_bound(squares.sum(axis=-1) * (1.0 + count * UNIT), count, largest, spec.margin_risk)
