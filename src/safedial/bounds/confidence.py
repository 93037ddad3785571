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

**`self-normalised`.** Its event is about the noise alone: ‖Xᵀξ‖_{Σ⁻¹} ≤ κ√V, with V = ln det(Σ/λ) + 2 ln(1/δ′),
Xᵀξ = b − Gμ*, b = Xᵀy and G = Σ − λI. The radius in the table, Theorem 2 of Abbasi-Yadkori et al. (2011), adds up two
worst cases of μ̂ − μ* = Σ⁻¹(Xᵀξ − λμ*); it serves the reward. For the cost `bounds.radii` bounds ⟨x,μ⟩ over the
event and ‖μ‖ ≤ S together. Because no estimate shrinks to 0 in it, λ may be large, which keeps ln det small. Of all
radii here it is the smallest but in the first few rounds (docs/choosing.md).

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
from typing import Any, NamedTuple

from safedial.bounds.estimate import Dual, Prediction
from safedial.errors import require
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


def cost_radius_of(radius: str, prediction: Prediction, spec: SafetySpec) -> Any:
    """The radius of the cost's ellipsoid."""
    if radius == "noise-adaptive":
        return adaptive(spec.cost_noise, prediction.cost_energy, spec)
    return RADII[radius](spec.cost_noise, prediction, spec)


def reward_radius_of(radius: str, prediction: Prediction, spec: SafetySpec) -> Any:
    """The radius of the reward's ellipsoid."""
    if radius == "noise-adaptive":
        return adaptive(spec.reward_noise, prediction.reward_energy, spec)
    return RADII[radius](spec.reward_noise, prediction, spec)


MOST_SOLVED = 500
"""The largest dimension for `self-normalised`, which solves four d×d systems in every round."""


def self_normalised_upper(dual: Dual, prediction: Prediction, spec: SafetySpec) -> Any:
    """⟨w,b⟩ + κ√V‖w‖_Σ + S‖x − Gw‖, which bounds ⟨x,μ⟩ over both sets whatever w is."""
    noise = spec.cost_noise * _root(_log_volume(prediction, spec))
    return dual.cost + noise * dual.width + spec.coefficient_bound * dual.miss


def resolve_clip(radius: str, clip: bool | None) -> bool:
    """Check the name of the radius. The clip is on by default, except for the paper's own form."""
    require(radius in NAMES, "radius", radius, "must be one of " + ", ".join(NAMES))
    require(clip in (None, True, False), "clip", clip, "must be True, False or None")
    return clip if clip is not None else radius != "paper"


def check_scale(radius: str | None, spec: SafetySpec) -> None:
    """Refuse `paper` with a noise scale: it counts rounds, and a weight may exceed 1."""
    fits = radius != "paper" or spec.noise_scale is None
    require(fits, "radius", radius, "does not hold with a noise_scale", "use 'mixture' or 'self-normalised'")


def check_dim(radius: str | None, dim: int) -> None:
    """Refuse `paper` at d = 1, where it is too small to hold, and a dimension that `self-normalised` cannot solve."""
    require(
        not (radius == "paper" and dim == 1),
        "radius",
        radius,
        "does not hold for dim = 1 (the paper writes d·ln(1/δ′) where the theorem has 2·ln(1/δ′))",
        "use 'mixture'",
    )
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
    cost_radius = cost_radius_of(radius, prediction, spec)
    shared = spec.same_noise and radius != "noise-adaptive"
    reward_radius = cost_radius if shared else reward_radius_of(radius, prediction, spec)
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
