"""The largest safe intensity. This is where the guarantee is made.

The realized cost at intensity z is C = z(c + ξ) + ε with c ≤ `cost_upper` on the confidence event. With
q = √(2 ln 1/δ), the noise of C exceeds q times its sub-Gaussian constant with probability at most δ, so z is safe if

    z·cost_upper + q·√(z²κ² + σ²) ≤ τ            (ε independent of ξ)
    z·cost_upper + q·(zκ + σ)     ≤ τ            (ε any)

Without sensor noise both are Lemma constraintFormulation, z(cost_upper + noise_margin) ≤ τ with noise_margin = qκ,
and the largest z is eq. feasible_set, both cases. With it, u = cost_upper, a = (qκ)², s = (qσ)², the first is the
quadratic z²(u² − a) − 2τuz + τ² − s ≥ 0 on τ − zu ≥ 0, whose smallest positive root is, with D = aτ² + s(u² − a),

    z = (τ² − s) / (τu + √D)        for u ≥ 0
    z = (τ|u| + √D) / (a − u²)      for u < 0; every z in [0, 1] is safe where u² ≥ a.

The two forms are equal where both are defined; each is the one without cancellation. (Using the first for u < 0 as
well, as is tempting, turns √D − τ|u| into rounding noise when s nears τ², and then calls every dose safe.)

If s > τ² even z = 0 breaks the guarantee: there is no certified action. The same holds if the threshold is negative
after a known baseline cost b₀(x) is subtracted, τ − b₀(x). A NaN bound certifies nothing.

The safe set of a cost that is 0 or 1: realized safety is P(C = 1) ≤ δ itself.

    P(C = 1)/P(C = 0) = z·e^u,  u ≤ `log_odds_upper`      ⇒      z_safe = min(1, δ/(1 − δ)·exp(−log_odds_upper))

There is no noise margin: the probability itself describes the noise. C > τ means C = 1 for every threshold in [0, 1).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from safedial.bounds.margin import noise_margin, round_risk, tail_factor
from safedial.model.namespace import is_zero, namespace, where
from safedial.model.noise_scale import largest_scaled_intensity
from safedial.model.spec import SafetySpec


class SafeSet(NamedTuple):
    """[0, intensity] is safe. If `certified` is False nothing is safe, not even 0, and `intensity` is 0."""

    intensity: Any
    certified: Any


def largest_safe_intensity(
    cost_upper: Any, noise_margin: Any, *, threshold: Any, sensor_margin: Any = None, sensor_dependent: bool = False
) -> SafeSet:
    """The largest z in [0, 1] that keeps the guarantee, given an upper bound on the mean cost per unit of intensity.

    >>> largest_safe_intensity(0.2, 0.8, threshold=0.5)
    SafeSet(intensity=0.5, certified=True)
    >>> largest_safe_intensity(-0.9, 0.8, threshold=0.5)
    SafeSet(intensity=1.0, certified=True)
    >>> largest_safe_intensity(0.2, 0.8, threshold=-0.1)
    SafeSet(intensity=0.0, certified=False)
    """
    if sensor_margin is None:
        room, load, certified = threshold, cost_upper + noise_margin, threshold >= 0.0
    elif sensor_dependent:
        room, load, certified = threshold - sensor_margin, cost_upper + noise_margin, threshold >= sensor_margin
    else:
        room, load = _with_independent_sensor(cost_upper, noise_margin, threshold, sensor_margin)
        certified = threshold >= sensor_margin
    everything = load <= room
    divisor = load + (load == 0.0)  # not 0; where the load is 0, either everything is safe or nothing
    largest = where(everything, 1.0, room / divisor)
    is_number = largest >= 0.0
    certified = certified & is_number
    return SafeSet(where(certified, largest, 0.0), certified)


def _with_independent_sensor(cost_upper: Any, noise_margin: Any, threshold: Any, sensor_margin: Any) -> tuple[Any, Any]:
    """(room, load) with z_safe = room/load, or 1 where load ≤ 0: the root above, divided by τ, for either sign of u."""
    xp = namespace(cost_upper, noise_margin, threshold, sensor_margin)
    limit = xp.where(threshold > 0.0, threshold, 1.0)
    part = xp.minimum(sensor_margin / limit, 1.0 + 0.0 * limit)
    share = part * part
    size = xp.abs(cost_upper)
    spread = xp.sqrt(noise_margin * noise_margin * (1.0 - share) + share * size * size)
    room = xp.where(cost_upper >= 0.0, limit * (1.0 - share), limit * (size + spread))
    load = xp.where(cost_upper >= 0.0, size + spread, (noise_margin - size) * (noise_margin + size))
    full = xp.logical_and(cost_upper >= 0.0, share >= 1.0)
    return room, xp.where(full, 1.0, load)


def safe_set(
    cost_upper: Any,
    spec: SafetySpec,
    round: Any,
    baseline_cost: Any = 0.0,
    *,
    on_expectation: bool = False,
    noise: Any = None,
    context: Any = None,
) -> SafeSet:
    """The safe set of a spec in a round, with the spec's margins and τ minus the known baseline cost.

    `noise` is what was learned about the noise (`Bounds.noise`), for margins that learn it; `context` is for a
    `noise_scale` that depends on it.

    `on_expectation` drops both margins: the expected-cost constraint of earlier work, which guarantees nothing about
    the realized cost.
    """
    threshold = spec.threshold - baseline_cost
    if on_expectation:
        return largest_safe_intensity(cost_upper, 0.0, threshold=threshold)
    margin = noise_margin(spec, round, noise)
    if spec.noise_scale is not None:
        return SafeSet(
            *largest_scaled_intensity(cost_upper, margin, threshold=threshold, scale=spec.noise_scale, context=context)
        )
    if is_zero(spec.cost_sensor_noise) or spec.threshold_on == "true":
        return largest_safe_intensity(cost_upper, margin, threshold=threshold)
    sensor, dependent = tail_factor(spec, round) * spec.cost_sensor_noise, spec.sensor_dependent
    return largest_safe_intensity(
        cost_upper, margin, threshold=threshold, sensor_margin=sensor, sensor_dependent=dependent
    )


# --- The safe set of a cost that is 0 or 1: realized safety is P(C = 1) ≤ δ itself

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
