"""Confidence radii and the bounds they give, each valid for every round at once.

    ‖θ̂ − θ*‖_Σ ≤ β_r   and   ‖μ̂ − μ*‖_Σ ≤ β_c   for all t,   each with probability ≥ 1 − δ′
    reward_upper = ⟨x,θ̂⟩ + β_r·width           cost_upper = ⟨x,μ̂⟩ + β_c·width      (Prop. KKT_theta, KKT_mu)

| radius | β | note |
|---|---|---|
| `paper` | κ√(d ln((1 + N L²/λ)/δ′)) + √λ S | the paper's; too small at d = 1 (d where the theorem has 2), so d ≥ 2 |
| `mixture` | √(κ²(ln det(Σ/λ) + 2 ln(1/δ′)) + λS²) | never above `paper` for d ≥ 2 |
| `self-normalised` | κ√(ln det(Σ/λ) + 2 ln(1/δ′)) + √λ S, and ‖μ‖ ≤ S at once | an event about the noise alone |
| `noise-adaptive` | √(λS² + E + 2κ² ln(1/δ′)), E = Σ ω·ω·width²/(1 + ω·width²)·(y − ⟨x,μ̂⟩)² | E stands for κ² ln det |

Why `mixture` holds: docs/design.md derives it.

**`self-normalised`.** With weights ω, rows √ω x of X and outcomes √ω y, let G = XᵀX, b = Xᵀy, Σ = G + λI and
V = ln det(Σ/λ) + 2 ln(1/δ′). Its event is about the noise alone. For a fixed v, exp((⟨v,Xᵀξ⟩ − ‖v‖²_G/2)/κ²) is a
supermartingale, because √ω ξ is κ-sub-Gaussian given the past, the context and the action. Averaged over
v ~ N(0, (κ²/λ)I) it still is one, and equals det(Σ/λ)^(-1/2)·exp(‖Xᵀξ‖²_{Σ⁻¹}/2κ²). By Ville's inequality, with
probability ≥ 1 − δ′ for all rounds at once,

    ‖Xᵀξ‖²_{Σ⁻¹} ≤ κ²V,     and Xᵀξ = b − Gμ*          (Abbasi-Yadkori et al. 2011, Theorem 1)

The radius in the table, their Theorem 2, adds up two worst cases of μ̂ − μ* = Σ⁻¹(Xᵀξ − λμ*); it serves the reward. The
cost is bounded over the event and ‖μ‖ ≤ S together: for every vector w whatever, every μ in both sets has

    ⟨x,μ⟩ = ⟨w,b⟩ − ⟨w, b − Gμ⟩ + ⟨x − Gw, μ⟩ ≤ ⟨w,b⟩ + κ√V·‖w‖_Σ + S·‖x − Gw‖                              (1)

by Cauchy–Schwarz. The least of these over w is the maximum of ⟨x,μ⟩ (Fenchel duality; there is no gap, because both
sets are convex and the second has an interior). w = Σ⁻¹x gives less than the radius, w = 0 gives the clip S‖x‖. So a
poor w costs reward, never safety: online only the three numbers of (1) need certified rounding. The Lagrange dual of
the squared constraints with weights in the ratio a is an ellipsoid with the matrix D = GΣ⁻¹G + aI, and its bound on
⟨x,μ⟩ belongs to

    w = Σ⁻¹G D⁻¹x − s·D⁻¹μ̂,     s = a·√(⟨x,D⁻¹x⟩/(κ²V + a(S² − ⟨b,D⁻¹μ̂⟩)))

We take the a with the lowest such bound among four multiples of κ²/S², which loses less than two parts in a thousand
of the reward against all a. The ridge λ, fixed in advance, trades ln det(Σ/λ) against ‖w‖_Σ ≈ ‖x‖_{G⁻¹}·√(1 + λ/G); the
best one grows with the number of rounds, and 6√d·κL/S is near the best for 100 to 1,000 rounds. Because no estimate
shrinks to 0 here, λ may be large, which keeps ln det small. Of all radii this is the smallest but in the first few
rounds (docs/choosing.md).

**`noise-adaptive`.** For ridge estimates in order, r_s = y_s − ⟨x_s,μ̂_{s−1}⟩ and Δ_s = ⟨x_s,μ* − μ̂_{s−1}⟩ = r_s − ξ_s,

    ‖μ̂_t − μ*‖²_Σ = λ‖μ*‖² + Σ ω_s²width_s²/(1 + ω_s width_s²)·r_s² − Σ ω_s(2ξ_sΔ_s + Δ_s²)

(each side's increment is that of the regularised loss). √ω ξ is κ-sub-Gaussian, so exp(−Σ ω(2ξΔ + Δ²)/2κ²) is a
supermartingale, and by Ville −Σ ω(2ξΔ + Δ²) ≤ 2κ² ln(1/δ′) for all t at once. So κ enters only beside ln(1/δ′): a κ
stated too large costs little. It is another event than that of `mixture`: their minimum would need a split δ′. It
adapts the radius, never the noise margin. (Jun and Kim 2024. They weight samples by w² = min(1, 1/width²) as well; any
weights ≤ 1 that are known before the outcome are valid, and these differ from 1 only where width > 1, so L² > λ.)

**Past rounds.** Every bound above holds for all t at once, so a bound from a past round may replace today's wherever
it is smaller. For the means that gains nothing (measured: 0.03 % of the reward with eight old ellipsoids kept), because
ellipsoids shrink nearly nested; for what is learned about the noise it is done (`bounds.margin`).

The clip: |⟨x,μ*⟩| ≤ S‖x‖ always, so `cost_upper` may be cut at S‖x‖
in every round; this also makes round one an ordinary round. Without the clip, round one takes S·L, as Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.estimate import Dual, Estimate, Prediction
from safedial.errors import require
from safedial.model.costs import each_spec
from safedial.model.namespace import namespace
from safedial.model.spec import SafetySpec


class Bounds(NamedTuple):
    """Bounds that hold with probability ≥ 1 − δ′ each. `refuted` marks data that contradict the assumptions."""

    reward_upper: Any
    cost_upper: Any
    reward_radius: Any
    cost_radius: Any
    refuted: Any
    noise: Any = None
    """What past rounds say about the noise, for margins that learn it."""
    context: Any = None
    """For a noise scale that depends on it."""


def paper(noise: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """κ√(d ln((1 + N L²/λ)/δ′)) + √λ S."""
    xp = namespace(prediction.informative_rounds, spec.estimation_risk)
    growth = 1.0 + prediction.informative_rounds * (spec.context_bound**2 / spec.ridge)
    return noise * xp.sqrt(prediction.dim * (xp.log(growth) + spec.log_inverse_risk)) + _bias(spec)


def self_normalised(noise: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """κ√(ln det(Σ/λ) + 2 ln(1/δ′)) + √λ S."""
    spread = _log_volume(prediction, spec)
    return noise * _root(spread) + _bias(spec)


def mixture(noise: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """√(κ²(ln det(Σ/λ) + 2 ln(1/δ′)) + λS²)."""
    return _root(noise * noise * _log_volume(prediction, spec) + spec.ridge * spec.coefficient_bound**2)


RADII: dict[str, Callable[[Any, Prediction, SafetySpec], Any]] = {
    "paper": paper,
    "mixture": mixture,
    "self-normalised": self_normalised,
}
"""Radii in closed form; for `self-normalised`, the radius of an ellipsoid that contains its set."""

NAMES = (*RADII, "noise-adaptive")


def adaptive(noise: Any, energy: Any, spec: SafetySpec) -> Any:
    """√(λS² + E + 2κ² ln(1/δ′))."""
    return _root(energy + 2.0 * spec.log_inverse_risk * (noise * noise) + spec.ridge * spec.coefficient_bound**2)


def energy(width: Any, error: Any, weight: Any) -> Any:
    """ω²width²/(1 + ω·width²)·error²: what one sample adds to the energy of `noise-adaptive`."""
    leverage = weight * width * width
    return weight * leverage / (1.0 + leverage) * error * error


def radius_of(radius: str, noise: Any, energy: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """The radius of the ellipsoid of the target with this noise and energy."""
    if radius == "noise-adaptive":
        return adaptive(noise, energy, spec)
    return RADII[radius](noise, prediction, spec)


MOST_SOLVED = 500
"""The largest dimension for `self-normalised`, which solves four d×d systems in every round."""


def check_scale(radius: str | None, spec: SafetySpec) -> None:
    """Refuse `paper` with a noise scale: it counts rounds, and a weight may exceed 1."""
    fits = radius != "paper" or spec.noise_scale is None
    require(fits, "radius", radius, "does not hold with a noise_scale", "use 'mixture' or 'self-normalised'")


def check_dim(radius: str | None, dim: int) -> None:
    """Refuse `paper` at d = 1, where it is too small to hold, and a dimension that `self-normalised` cannot solve."""
    rule = "does not hold for dim = 1 (the paper writes d·ln(1/δ′) where the theorem has 2·ln(1/δ′))"
    require(radius != "paper" or dim > 1, "radius", radius, rule, "use 'mixture'")
    solvable = radius != "self-normalised" or dim <= MOST_SOLVED
    require(solvable, "dim", dim, f"must be at most {MOST_SOLVED} for radius='self-normalised'", "use 'mixture'")


def bound(prediction: Prediction, spec: SafetySpec, *, radius: str, clip: bool) -> Bounds:
    """Upper bounds on both means at the round's context.

    >>> import numpy as np
    >>> from safedial.bounds.estimate import init, predict
    >>> spec = SafetySpec(threshold=1, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> bounds = bound(predict(init(2, ridge=1.0), np.array([0.6, 0.0])), spec, radius="mixture", clip=True)
    >>> float(bounds.cost_upper)
    0.6
    """
    reward_radius = cost_radius = radius_of(radius, spec.cost_noise, prediction.cost_energy, prediction, spec)
    if radius == "noise-adaptive" or not spec.same_noise:
        reward_radius = radius_of(radius, spec.reward_noise, prediction.reward_energy, prediction, spec)
    reward_upper = prediction.reward + reward_radius * prediction.width
    cost_upper = prediction.cost + cost_radius * prediction.width
    largest = spec.coefficient_bound * prediction.norm
    xp = namespace(cost_upper)
    if radius == "self-normalised" and prediction.dual is not None:
        cost_upper = xp.minimum(cost_upper, self_normalised_upper(prediction.dual, prediction, spec))
    refuted = xp.logical_or(cost_upper < -largest, reward_upper < -largest)
    if clip:
        cost_upper = xp.minimum(cost_upper, largest)
    else:
        first_round = prediction.informative_rounds == 0
        cost_upper = xp.where(first_round, spec.coefficient_bound * spec.context_bound, cost_upper)
    return Bounds(reward_upper, cost_upper, reward_radius, cost_radius, refuted, prediction.noise, prediction.context)


def _bias(spec: SafetySpec) -> Any:
    return spec.ridge**0.5 * spec.coefficient_bound


def _root(squared: Any) -> Any:
    return math.sqrt(squared) if type(squared) is float else namespace(squared).sqrt(squared)


def _log_volume(prediction: Prediction, spec: SafetySpec) -> Any:
    return prediction.log_det + 2.0 * spec.log_inverse_risk


# --- The radius `self-normalised`

MULTIPLES = (0.3, 2.0, 12.0, 72.0)
"""The a that are tried, in units of κ_c²/S²."""

LEAST = 1e-12
"""The least squared radius, in units of κ²V, where the data leave no μ at all: (1) is then far below -S‖x‖."""


def with_ridge(spec: SafetySpec, radius: str | None, dim: int) -> SafetySpec:
    """The spec with the ridge that is best for `self-normalised`, if that is the radius and the spec states none."""
    if radius != "self-normalised" or spec.states_ridge:
        return spec
    ridge = 6.0 * dim**0.5 * largest_noise(spec) * spec.context_bound / spec.coefficient_bound
    return replace(spec, ridge=float(f"{ridge:.3g}"))


def largest_noise(spec: SafetySpec) -> float:
    """κ of the cost, or the largest of several."""
    return max(part.cost_noise for part in each_spec(spec).values() if part.cost_noise is not None)


def multipliers(spec: SafetySpec) -> list[float]:
    """The a that are tried."""
    unit = (spec.cost_noise / spec.coefficient_bound) ** 2
    return [multiple * unit for multiple in MULTIPLES]


def dual_of(estimate: Estimate, seen: Prediction, spec: SafetySpec) -> Dual:
    """The vector w for each of a batch of contexts, in the coordinates in which Σ is diagonal."""
    inverse, axes = np.linalg.eigh(estimate.inverse)
    total = 1.0 / inverse
    gram = np.maximum(total - spec.ridge, 0.0)
    turned = np.stack(np.broadcast_arrays(seen.context, estimate.cost_coef), axis=-2)
    context, coef = np.moveaxis(turned @ axes, -2, 0)
    rhs = total * coef
    a = np.array(multipliers(spec))
    matrix = (gram * gram / total)[..., None, :] + a[:, None]
    volume = spec.cost_noise**2 * np.asarray(seen.log_det + 2.0 * spec.log_inverse_risk)
    width = np.sqrt((context[..., None, :] ** 2 / matrix).sum(-1))
    squared = volume[..., None] + a * (spec.coefficient_bound**2 - ((rhs * coef)[..., None, :] / matrix).sum(-1))
    root = np.sqrt(np.maximum(squared, LEAST * volume[..., None]))
    centre = ((context * (rhs - spec.ridge * coef))[..., None, :] / matrix).sum(-1)
    best = np.argmin(centre + root * width, axis=-1)[..., None]
    share = np.take_along_axis(a * width / root, best, axis=-1)
    chosen = np.take_along_axis(matrix, best[..., None], axis=-2)[..., 0, :]
    w = (gram / total * context - share * coef) / chosen
    return Dual((w * rhs).sum(-1), np.sqrt((w * w * total).sum(-1)), np.sqrt(((context - gram * w) ** 2).sum(-1)))


def self_normalised_upper(dual: Dual, prediction: Prediction, spec: SafetySpec) -> Any:
    """⟨w,b⟩ + κ√V‖w‖_Σ + S‖x − Gw‖, which bounds ⟨x,μ⟩ over both sets whatever w is."""
    noise = spec.cost_noise * _root(_log_volume(prediction, spec))
    return dual.cost + noise * dual.width + spec.coefficient_bound * dual.miss
