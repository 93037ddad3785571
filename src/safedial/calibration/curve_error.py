"""Includes the uncertainty of a dose curve in the bound.

Let the true curve be h with |h/g − 1| ≤ ρ at every dose that is used. A normalised cost is then y = r(c + ξ), r = h/g:

* its noise rξ is (1 + ρ)κ-sub-Gaussian, and its mean is off by at most ρSL, so by XΣ⁻¹Xᵀ ⪯ I the estimate is off by at
  most ρSL√N in the norm of the radius: ‖μ̂ − μ*‖_Σ ≤ β + ρSL√N after N rounds, with β for the constant (1 + ρ)κ;
* the realized cost is at most z(1 + ρ)(c + ξ)⁺, and (1 + ρ)(U + qκ) ≤ U + q((1 + ρ)κ + ρSL/q) for U ≤ SL.

Both are covered by the same rule with larger constants:

    κ' = (1 + ρ)κ + ρSL/q,  q = √(2 ln 1/δ)         λS'² = λS² + 2b√(κ'²V + λS²) + b²,  b = ρSL√N

for the cost, the `mixture` radius and N up to a planned number of rounds, V the largest ln det(Σ/λ) + 2 ln(1/δ′) by
then: √(κ'²v + λS'²) ≥ √(κ'²v + λS²) + b for every v ≤ V. The promise then holds for every h within ρ of g, for that
many rounds. That ρ holds is the calibration's estimate, not a proof.

`paper` (d ≥ 2) is at least as wide as `mixture` with the same constants, so it is covered too.
`self-normalised` uses S' only for what the estimate does not reach, and `noise-adaptive` rests on another event:
neither is covered. The spec states its ridge, so an agent or a study that names no radius keeps `mixture`. It holds
neither the radius nor the number of rounds, and nothing checks them later: keep the policy that the spec was made for,
and calibrate again for more rounds.
"""

from __future__ import annotations

import math
from dataclasses import replace

from safedial.calibration.constants import round_up
from safedial.core.confidence import check_dim
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.errors import is_whole, require

RADII = ("mixture", "paper")
"""The radii that the proof covers."""


def fold_curve_error(spec: SafetySpec, *, error: float, dim: int, rounds: int, radius: str = "mixture") -> SafetySpec:
    """The spec whose bound covers every curve within `error` of the stated one, for `rounds` rounds.

    Args:
        error: ρ.
        dim: d.
        rounds: N, the planned number of rounds. After them the promise holds only for the stated curve.
        radius: the policy's radius. It must be one of `RADII`, and the policy must keep it.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> wider = fold_curve_error(spec, error=0.05, dim=3, rounds=500)
    >>> wider.cost_noise, wider.coefficient_bound
    (0.34, 2.6)
    """
    sound = isinstance(error, (int, float)) and 0.0 <= error < 1.0
    require(sound, "error", error, "must be a number in [0, 1)", "a curve this uncertain needs more data")
    require(is_whole(rounds), "rounds", rounds, "must be the planned number of rounds, >= 1")
    sensed = spec.cost_sensor_noise or spec.reward_sensor_noise or spec.margin != "subgaussian"
    stated = PROMISES[spec.promise]
    plain = not sensed and stated.from_constants and stated.each_round and spec.noise_scale is None
    rule = "works only with promise='certified', the sub-Gaussian margin, no sensor noise and no noise_scale"
    require(plain, "spec", spec.promise, rule)
    words = "has no proof for an uncertain curve"
    require(radius in RADII, "radius", radius, words, "use " + " or ".join(map(repr, RADII)))
    check_dim(radius, dim)
    reach = error * spec.coefficient_bound * spec.context_bound
    noise = round_up((1.0 + error) * spec.cost_noise + reach / spec.tail)
    shift = reach * math.sqrt(rounds)
    largest = dim * math.log1p(rounds * spec.context_bound**2 / (dim * spec.ridge)) + 2.0 * spec.log_inverse_risk
    base = spec.ridge * spec.coefficient_bound**2
    top = noise**2 * largest + base
    bound = round_up(math.sqrt((base + 2.0 * shift * math.sqrt(top) + shift**2) / spec.ridge))
    return replace(spec, cost_noise=noise, coefficient_bound=bound)
