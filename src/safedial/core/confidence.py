"""Confidence radii and the bounds they give, each valid for every round at once.

    ‖θ̂ − θ*‖_Σ ≤ β_r   and   ‖μ̂ − μ*‖_Σ ≤ β_c   for all t,   each with probability ≥ 1 − δ′
    reward_upper = ⟨x,θ̂⟩ + β_r·width           cost_upper = ⟨x,μ̂⟩ + β_c·width      (Prop. KKT_theta, KKT_mu)

| radius | β | note |
|---|---|---|
| `paper` | κ√(d ln((1 + N L²/λ)/δ′)) + √λ S | the paper's; too small at d = 1 (d where the theorem has 2), so d ≥ 2 |
| `determinant` | κ√(ln det(Σ/λ) + 2 ln(1/δ′)) + √λ S | Abbasi-Yadkori et al. (2011), Theorem 2, itself |
| `mixture` | √(κ²(ln det(Σ/λ) + 2 ln(1/δ′)) + λS²) | tighter at the same price: √(a² + b²) ≤ a + b |

Why `mixture` holds: docs/design.md derives it. The clip: |⟨x,μ*⟩| ≤ S‖x‖ always, so `cost_upper` may be cut at S‖x‖
in every round; this also makes round one an ordinary round. Without the clip, round one takes S·L, as Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from safedial.core.estimate import Prediction
from safedial.core.namespace import namespace
from safedial.core.spec import SafetySpec
from safedial.errors import require


class Bounds(NamedTuple):
    """What holds with probability ≥ 1 − δ′ for each target. `refuted` marks data that contradict the assumptions."""

    reward_upper: Any
    cost_upper: Any
    reward_radius: Any
    cost_radius: Any
    refuted: Any


def paper(noise: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """κ√(d ln((1 + N L²/λ)/δ′)) + √λ S."""
    xp = namespace(prediction.informative_rounds, spec.estimation_risk)
    growth = 1.0 + prediction.informative_rounds * (spec.context_bound**2 / spec.ridge)
    return noise * xp.sqrt(prediction.dim * (xp.log(growth) + spec.log_inverse_risk)) + _bias(spec)


def determinant(noise: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """κ√(ln det(Σ/λ) + 2 ln(1/δ′)) + √λ S."""
    spread = _log_volume(prediction, spec)
    return noise * namespace(spread).sqrt(spread) + _bias(spec)


def mixture(noise: Any, prediction: Prediction, spec: SafetySpec) -> Any:
    """√(κ²(ln det(Σ/λ) + 2 ln(1/δ′)) + λS²)."""
    squared = noise * noise * _log_volume(prediction, spec) + spec.ridge * spec.coefficient_bound**2
    return namespace(squared).sqrt(squared)


RADII: dict[str, Callable[[Any, Prediction, SafetySpec], Any]] = {
    "paper": paper,
    "determinant": determinant,
    "mixture": mixture,
}


def resolve_clip(radius: str, clip: bool | None) -> bool:
    """Check the radius' name; the clip is on unless the paper's own form is asked for."""
    require(radius in RADII, "radius", radius, "must be one of " + ", ".join(RADII))
    require(clip in (None, True, False), "clip", clip, "must be True, False or None")
    return clip if clip is not None else radius != "paper"


def check_dim(radius: str | None, dim: int) -> None:
    """Refuse `paper` at d = 1, where it is too small to hold."""
    require(
        not (radius == "paper" and dim == 1),
        "radius",
        radius,
        "does not hold for dim = 1 (the paper writes d·ln(1/δ′) where the theorem has 2·ln(1/δ′))",
        "use 'mixture' or 'determinant'",
    )


def bound(prediction: Prediction, spec: SafetySpec, *, radius: str, clip: bool) -> Bounds:
    """Upper bounds on both means at the round's context.

    >>> import numpy as np
    >>> from safedial.core.estimate import init, predict
    >>> spec = SafetySpec(threshold=1, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> bounds = bound(predict(init(2, ridge=1.0), np.array([0.6, 0.0])), spec, radius="mixture", clip=True)
    >>> float(bounds.cost_upper)
    0.6
    """
    rule = RADII[radius]
    cost_radius = rule(spec.cost_noise, prediction, spec)
    reward_radius = cost_radius if spec.same_noise else rule(spec.reward_noise, prediction, spec)
    reward_upper = prediction.reward + reward_radius * prediction.width
    cost_upper = prediction.cost + cost_radius * prediction.width
    largest = spec.coefficient_bound * prediction.norm
    xp = namespace(cost_upper)
    refuted = xp.logical_or(cost_upper < -largest, reward_upper < -largest)
    if clip:
        cost_upper = xp.minimum(cost_upper, largest)
    else:
        first_round = prediction.informative_rounds == 0
        cost_upper = xp.where(first_round, spec.coefficient_bound * spec.context_bound, cost_upper)
    return Bounds(reward_upper, cost_upper, reward_radius, cost_radius, refuted)


def _bias(spec: SafetySpec) -> Any:
    return spec.ridge**0.5 * spec.coefficient_bound


def _log_volume(prediction: Prediction, spec: SafetySpec) -> Any:
    return prediction.log_det + 2.0 * spec.log_inverse_risk
