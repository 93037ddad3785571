"""Numerics that cannot break the guarantee.

Floating point computes a direction y ≈ Σ⁻¹x, from an inverse that 10⁵ rank-one updates may have degraded. Whatever y
is, with the residual ρ = x − Σy exact arithmetic gives

    width² = xᵀΣ⁻¹x = xᵀy + yᵀρ + ρᵀΣ⁻¹ρ ≤ xᵀy + yᵀρ + ‖ρ‖²/λ                              (Σ ⪰ λI)
    |⟨x,μ̂⟩ − yᵀb| = |ρᵀΣ⁻¹b| ≤ ‖ρ‖_{Σ⁻¹}·‖b‖_{Σ⁻¹} ≤ (‖ρ‖/√λ)·‖y_s‖                       (b = Σ_s ω y_s x_s)

where ‖y_s‖² = Σ ω y_s² (for bᵀΣ⁻¹b ≤ Σ ω y_s², as X Σ⁻¹Xᵀ ⪯ I). So a degraded inverse costs reward, never safety.

What remains is the rounding of these expressions and of the accumulators Σ and b themselves. Each entry of Σ is a sum
of N products, so the computed residual is off by at most (N + d + 3)u(|x| + (λI + Σ_s ω|x_s||x_s|ᵀ)|y|), u = 2⁻⁵³,
entry by entry. Keeping Σ_s|x_s||x_s|ᵀ would be a second matrix; by Cauchy–Schwarz its entries are at most
√(Σ_ii Σ_jj), so with r = √diag(Σ) the d×d product is replaced by the rank-one

    Δ = (N + d + 8)u·‖ |x| + (λ|y| + r⟨r,|y|⟩) ‖ ,

which needs no further state and O(d) work (it is looser by at most a factor d, at a scale of 1e-16). Likewise
|b − b̂| ≤ (N + 4)u·r·‖y_s‖ entry by entry, the division by g included.

`certify` returns these bounds. The constants of the spec enter a few further operations; `rounded_spec` moves each by
64u to the safe side once, which covers them, and `round_down` covers the final division. (Where cost_upper and the
noise margin nearly cancel, |cost_upper| ≤ margin, so the margin's 64u is larger than their sum's error.)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from safedial.model.namespace import FLOATS, UNIT

if TYPE_CHECKING:
    from safedial.model.spec import SafetySpec

SAFETY = 4.0
"""The bounds above hold to first order in u; this factor covers the products of their small terms."""


NORM_SLACK = 1e-12
"""How far a context's norm may exceed L, relatively: a vector scaled to norm L in floating point must pass."""


def certify(
    ridge: float,
    terms: int,
    *,
    quadratic: float,
    direction_residual: float,
    residual_norm: float,
    context_norm: float,
    direction_norm: float,
    scale_direction: float,
    scale_norm: float,
    target_norm: float,
    xp: Any = FLOATS,
) -> tuple[float, float, float]:
    """(width, mean_slack, relative_residual): upper bounds on the width and on the error of a mean, and y's quality.

    Args:
        terms: N + d. quadratic: xᵀy. direction_residual: yᵀρ̂. residual_norm: ‖ρ̂‖.
        scale_direction: ⟨r,|y|⟩ with r = √diag(Σ). scale_norm: ‖r‖. target_norm: √(Σ ω y_s²).

    With `xp` = NumPy the numbers may be arrays, for many contexts at once, without the relative residuals.
    """
    unit = SAFETY * UNIT * (terms + 8)
    drift = unit * (context_norm + ridge * direction_norm + scale_norm * scale_direction)
    residual = residual_norm + drift
    products = unit * (context_norm * direction_norm + direction_norm * residual_norm)
    squared = quadratic + direction_residual + direction_norm * drift + residual * residual / ridge + products
    slack = residual / math.sqrt(ridge) * target_norm + unit * scale_direction * target_norm
    width = round_up(xp.sqrt(xp.maximum(squared, 0.0)))
    return width, slack, residual / context_norm if xp is FLOATS and context_norm else 0.0


def certify_dual(
    ridge: float,
    terms: int,
    *,
    cost: float,
    squared: float,
    miss: float,
    context_norm: float,
    direction_norm: float,
    scale_direction: float,
    scale_norm: float,
    target_norm: float,
) -> tuple[float, float, float]:
    """Upper bounds on ⟨w,b⟩, ‖w‖_Σ and ‖x − Gw‖ of any w, G = Σ − λI, from their computed values.

    Args:
        cost: wᵀb̂. squared: wᵀ(x − ẑ), where ẑ is the computed x − Σw. miss: ‖ẑ + λw‖. The others as for `certify`,
            with w in place of y.

    |b_i| ≤ r_i‖y_s‖, so b̂'s own error and the product's are at most (N + d + 4)u·⟨r,|w|⟩·‖y_s‖. As there, Δ bounds the
    error of ẑ; adding λw and taking x − ẑ cost a rounding of terms that Δ contains, and ‖ẑ‖ ≤ ‖ẑ + λw‖ + λ‖w‖.
    """
    unit = SAFETY * UNIT * (terms + 8)
    drift = unit * (context_norm + 2.0 * ridge * direction_norm + scale_norm * scale_direction + miss)
    upper = cost + 32.0 * UNIT * abs(cost) + unit * scale_direction * target_norm
    return upper, round_up(math.sqrt(max(squared, 0.0) + 2.0 * direction_norm * drift)), round_up(miss + drift)


def rounded_spec(spec: SafetySpec) -> SafetySpec:
    """The spec with every number of the cost's bound moved to the safe side by 64u."""
    up, down = 1.0 + 64.0 * UNIT, 1.0 - 64.0 * UNIT
    lower = up if spec.threshold is not None and np.all(np.asarray(spec.threshold) < 0.0) else down
    moved = {"reward_noise": up, "cost_noise": up, "cost_sensor_noise": up, "coefficient_bound": up}
    moved |= {"threshold": lower, "context_bound": (1.0 + NORM_SLACK) * up, "noise_low": up, "noise_high": up}
    return replace(
        spec, **{name: getattr(spec, name) * by for name, by in moved.items() if getattr(spec, name) is not None}
    )


def round_up(value: float) -> float:
    """A float above the exact result of a few rounded operations that gave `value`."""
    return value + 32.0 * UNIT * abs(value)


def round_down(value: float, units: float = 0.0) -> float:
    """A float below the exact result of a few rounded operations that gave `value`; 0 stays 0, 1 stays 1.

    `units`: the relative rounding of the steps that follow, in u (a dose curve's own).
    """
    return value if value in (0.0, 1.0) else value * (1.0 - (32.0 + units) * UNIT)
