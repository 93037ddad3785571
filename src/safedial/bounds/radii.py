"""The radius `self-normalised`: the largest ⟨x,μ⟩ over a set about the noise alone, and ‖μ‖ ≤ S.

With weights ω, rows √ω x of X and outcomes √ω y, let G = XᵀX, b = Xᵀy, Σ = G + λI and V = ln det(Σ/λ) + 2 ln(1/δ′).

**The event.** For a fixed v, exp((⟨v,Xᵀξ⟩ − ‖v‖²_G/2)/κ²) is a supermartingale, because √ω ξ is κ-sub-Gaussian given
the past, the context and the action. Averaged over v ~ N(0, (κ²/λ)I) it still is one, and equals
det(Σ/λ)^(-1/2)·exp(‖Xᵀξ‖²_{Σ⁻¹}/2κ²). By Ville's inequality, with probability ≥ 1 − δ′ for all rounds at once,

    ‖Xᵀξ‖²_{Σ⁻¹} ≤ κ²V,     and Xᵀξ = b − Gμ*          (Abbasi-Yadkori et al. 2011, Theorem 1)

**The bound.** For every vector w whatever, every μ in that set with ‖μ‖ ≤ S has

    ⟨x,μ⟩ = ⟨w,b⟩ − ⟨w, b − Gμ⟩ + ⟨x − Gw, μ⟩ ≤ ⟨w,b⟩ + κ√V·‖w‖_Σ + S·‖x − Gw‖                              (1)

by Cauchy–Schwarz. The least of these over w is the maximum of ⟨x,μ⟩ (Fenchel duality; there is no gap, because both
sets are convex and the second has an interior). w = Σ⁻¹x gives less than the ellipsoid's
radius κ√V + √λS, w = 0 gives the clip S‖x‖. So
a poor w costs reward, never safety: online only the three numbers of (1) need certified rounding.

**The vector.** The Lagrange dual of the squared constraints with weights in the ratio a is an ellipsoid with the matrix
D = GΣ⁻¹G + aI, and its bound on ⟨x,μ⟩ belongs to

    w = Σ⁻¹G D⁻¹x − s·D⁻¹μ̂,     s = a·√(⟨x,D⁻¹x⟩/(κ²V + a(S² − ⟨b,D⁻¹μ̂⟩)))

We take the a with the lowest such bound among four multiples of κ²/S², which loses less than two parts in a thousand
of the reward against all a.

**The ridge** λ, fixed in advance, trades ln det(Σ/λ) against ‖w‖_Σ ≈ ‖x‖_{G⁻¹}·√(1 + λ/G). The best one grows with the
number of rounds; 6√d·κL/S is near the best for 100 to 1,000 rounds (docs/choosing.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from safedial.bounds.estimate import Dual, Estimate, Prediction
from safedial.model.spec import SafetySpec

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
    noises = [spec.cost_noise] if spec.costs is None else [cost.noise for cost in spec.costs.values()]
    return max(noise for noise in noises if noise is not None)


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


def energy(width: Any, error: Any, weight: Any) -> Any:
    """ω²width²/(1 + ω·width²)·error²: what one sample adds to the energy of `noise-adaptive`."""
    leverage = weight * width * width
    return weight * leverage / (1.0 + leverage) * error * error
