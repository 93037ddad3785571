"""Regularised least squares: one Gram matrix, two targets.

Reward and cost share the contexts, so they share Σ = λI + Σ_s ω_s x_s x_sᵀ and differ only in the right-hand side.
After division by the intensity, every informative round is an ordinary regression sample (eq. LSE_theta_mu):

    R_s / g(α_s) = ⟨x_s, θ*⟩ + ξ_s        C_s / g(α_s) = ⟨x_s, μ*⟩ + ξ_s

Shapes, with any batch shape `...` in front:

| field | shape | meaning |
|---|---|---|
| `inverse` | (..., d, d) | Σ⁻¹ |
| `reward_coef`, `cost_coef` | (..., d) | θ̂, μ̂ |
| `log_det` | (...) | ln det(Σ/λ) |
| `informative_rounds` | (...) | N |

A round with direction v = Σ⁻¹x and width² = xᵀv updates all of them (Sherman–Morrison, k = ω/(1 + ω·width²)):

    Σ⁻¹ ← Σ⁻¹ − k v vᵀ      θ̂ ← θ̂ + k v (y − ⟨x,θ̂⟩)      ln det ← ln det + ln(1 + ω·width²)

`update` needs only the round's `Prediction`, which carries v; weight 0 leaves the estimate unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.model.namespace import Array, namespace, where
from safedial.model.noise_scale import scaled_weight
from safedial.model.spec import SafetySpec


class Estimate(NamedTuple):
    inverse: Any
    reward_coef: Any
    cost_coef: Any
    log_det: Any
    informative_rounds: Any


class Dual(NamedTuple):
    """Of a vector w: ⟨w,b⟩ of the cost, ‖w‖_Σ and ‖x − Gw‖, with G = Σ − λI (`bounds.confidence`)."""

    cost: Any
    width: Any
    miss: Any


class Prediction(NamedTuple):
    """What a linear decision depends on: ⟨x,θ̂⟩, ⟨x,μ̂⟩, ‖x‖_{Σ⁻¹}, and what the radius and the margin need.

    The fields after `direction` are set if a radius or a margin needs them (`bounds.confidence`).
    """

    reward: Any
    cost: Any
    width: Any
    norm: Any
    log_det: Any
    informative_rounds: Any
    dim: int
    direction: Any = None
    context: Any = None
    reward_energy: Any = None
    cost_energy: Any = None
    dual: Dual | None = None
    noise: Any = None
    cost_slack: Any = 0.0
    """How far certified rounding may have raised `cost` above ⟨x,μ̂⟩."""
    unshrunk: Any = None
    """λ‖Σ⁻¹x‖: what share of S the estimate may miss because λ shrinks it."""


def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = (), xp: Any = np) -> Estimate:
    """No data yet: Σ = λI."""
    zeros = xp.zeros((*batch, dim), dtype=xp.float64)
    eye = xp.eye(dim, dtype=xp.float64) * xp.ones((*batch, 1, 1), dtype=xp.float64)
    inverse = eye / xp.reshape(xp.asarray(ridge, dtype=xp.float64) * xp.ones(batch, dtype=xp.float64), (*batch, 1, 1))
    count = xp.zeros(batch, dtype=xp.float64)
    return Estimate(inverse, zeros, zeros, count, count)


def predict(estimate: Estimate, context: Any, norm: Any = None) -> Prediction:
    """The two means and the width at `context` (..., d), whose `norm` may be known.

    >>> estimate = init(2, ridge=4.0)
    >>> float(predict(estimate, np.array([3.0, 4.0])).width)
    2.5
    """
    xp = namespace(context)
    direction = xp.matmul(estimate.inverse, context[..., None])[..., 0]
    width_squared = xp.vecdot(context, direction)
    return Prediction(
        reward=xp.vecdot(context, estimate.reward_coef),
        cost=xp.vecdot(context, estimate.cost_coef),
        width=xp.sqrt(xp.maximum(width_squared, 0.0 * width_squared)),
        norm=xp.sqrt(xp.vecdot(context, context)) if norm is None else norm,
        log_det=estimate.log_det,
        informative_rounds=estimate.informative_rounds,
        dim=context.shape[-1],
        direction=direction,
    )


def update(estimate: Estimate, prediction: Prediction, reward: Any, cost: Any, weight: Any) -> Estimate:
    """Learn from one round: normalised outcomes `reward` = R/g_r and `cost` = C/g_c with weight ω in [0, 1]."""
    direction = prediction.direction
    width_squared = prediction.width * prediction.width
    gain = weight / (1.0 + weight * width_squared)
    scaled = gain[..., None] * direction
    xp = namespace(direction)
    return Estimate(
        inverse=xp.einsum("...i,...j->...ij", -scaled, direction) + estimate.inverse,
        reward_coef=estimate.reward_coef + scaled * (reward - prediction.reward)[..., None],
        cost_coef=estimate.cost_coef + scaled * (cost - prediction.cost)[..., None],
        log_det=estimate.log_det + xp.log1p(weight * width_squared),
        informative_rounds=estimate.informative_rounds + xp.where(weight > 0, 1.0, 0.0),
    )


def ridge_fit(rows: Array, targets: Array, known: Any, ridge: Any) -> tuple[Array, Array]:
    """(Σ⁻¹, coefficients) from all known rows at once: rows (..., n, d), targets (..., n, k), `ridge` for each column.

    >>> ridge_fit(np.ones((3, 1)), np.array([[1.0], [2.0], [3.0]]), True, 0.0)[1]
    array([[2.]])
    """
    if not np.all(known):
        rows, targets = (np.where(known[..., None], part, 0.0) for part in (rows, targets))
    turned = np.matrix_transpose(rows)
    gram = turned @ rows + ridge * np.eye(rows.shape[-1])
    try:
        inverse = np.asarray(np.linalg.inv(gram), dtype=float)
    except np.linalg.LinAlgError:  # rows so large and alike that the penalty is lost to rounding
        inverse = np.linalg.pinv(gram, hermitian=True)
    return inverse, inverse @ (turned @ targets)


def sample_weight(spec: SafetySpec, reward_intensity: Any, cost_intensity: Any, context: Any = None) -> Any:
    """ω of a round applied at these intensities; 0 if there is nothing to learn (intensity 0).

    A normalised sample has noise ξ + ε/g. It is √(κ² + σ²/g²)-sub-Gaussian if ε is independent of ξ, and
    (κ + σ/g)-sub-Gaussian in any case; √ω times it is κ-sub-Gaussian again with

        ω = κ²/(κ² + σ²/g²)     or     ω = κ²/(κ + σ/g)²,

    and the smaller ω of reward and cost lets one Gram matrix serve both. Without sensor noise ω = 1. With the spec's
    `noise_scale` ω = (g/h)² instead (`model.noise_scale`).
    """
    if spec.noise_scale is not None:
        weights = [scaled_weight(spec.noise_scale, each, context) for each in (reward_intensity, cost_intensity)]
        return namespace(reward_intensity, cost_intensity).minimum(*weights)
    informative = (reward_intensity > 0.0) & (cost_intensity > 0.0)
    weight = where(informative, 1.0 + 0.0 * cost_intensity, 0.0 * cost_intensity)
    for target in spec.sensors:
        scaled = getattr(spec, f"{target}_noise") * (reward_intensity if target == "reward" else cost_intensity)
        sensor_noise = getattr(spec, f"{target}_sensor_noise")
        total = scaled + sensor_noise
        spread = total * total if spec.sensor_dependent else scaled * scaled + sensor_noise * sensor_noise
        weight = namespace(reward_intensity, cost_intensity).minimum(weight, scaled * scaled / spread)
    return weight
