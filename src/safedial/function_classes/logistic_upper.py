"""The largest ⟨x, μ⟩ over the logistic confidence set itself, by duality: any multiplier gives a valid bound.

    maximise ⟨x, μ⟩   subject to   G(μ) := L(μ) + (λ/2)‖μ‖² ≤ B := L(μ̂) + ln(1/δ′) + excess + (λ/2)S²

contains the confidence set (‖μ*‖ ≤ S there). For every t > 0 and every point m, G being λ-strongly convex,

    max ⟨x, μ⟩ ≤ max_μ [⟨x, μ⟩ + (B − G(μ))/t] ≤ ⟨x, m⟩ + (B − G(m))/t + t‖x − ∇G(m)/t‖²/(2λ).

So the bound holds whatever the optimiser did, and is tight at the optimum. The optimiser is Newton's method on the
optimality conditions: with p = (∇²G)⁻¹∇G, q = (∇²G)⁻¹x at the present m, the quadratic model of G reaches B at

    m ← m − p + tq,      t² = 2(B − G(m) + ½⟨∇G, p⟩)/⟨x, q⟩.

If events are rare, the set reaches less far up than down, because curvature grows with the chance of an event; the
ellipsoid does not reflect this. The smaller of the two bounds is used; both hold on the same event.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.function_classes.logistic_fit import Fit, derivatives

Array = NDArray[np.float64]

Rounds = tuple[Array, Array, Array, Array]

STEPS = 8
ROUNDING = 1e-13
"""The bound is rounded up by this share of its terms: sums over rounds err by a few units in the last place."""


def loss(contexts: Array, offsets: Array, labels: Array, weights: Array, coef: Array) -> Array:
    """L(μ), (...)."""
    scores = np.matmul(contexts, coef[..., None])[..., 0] + offsets
    return np.sum(weights * (np.logaddexp(0.0, scores) - labels * scores), axis=-1)


def upper(rounds: Rounds, fitted: Fit, context: Array, start: Array, log_inverse_risk: Any, *, size: float) -> Array:
    """A bound on ⟨x, μ*⟩ for each learner of the batch, starting from `start`, the ellipsoid's bound."""
    damp = 1.0 / size**2
    level = loss(*rounds, fitted.coef) + log_inverse_risk + fitted.excess + 0.5
    direction = np.matmul(fitted.inverse, context[..., None])[..., 0]
    width = np.maximum(np.vecdot(context, direction), 1e-300)
    reach = (start - np.vecdot(context, fitted.coef)) / width
    point = fitted.coef + 0.7 * reach[..., None] * direction
    best = np.asarray(start, dtype=float)
    eye = np.eye(context.shape[-1])
    for _ in range(STEPS):
        value = loss(*rounds, point) + 0.5 * damp * np.vecdot(point, point)
        gradient, hessian = derivatives(*rounds, point)
        gradient = gradient + damp * point
        both = np.linalg.solve(hessian + damp * eye, np.stack([gradient, context], axis=-1))
        room = level - value + 0.5 * np.vecdot(gradient, both[..., 0])
        price = np.sqrt(np.maximum(2.0 * room, 1e-12) / np.maximum(np.vecdot(context, both[..., 1]), 1e-300))
        miss = context - gradient / price[..., None]
        along, slip = np.vecdot(context, point), price * np.vecdot(miss, miss) / (2.0 * damp)
        terms = np.abs(along) + (np.abs(level) + np.abs(value)) / price + slip
        bound = along + (level - value) / price + slip + ROUNDING * terms
        best = np.minimum(best, np.where(np.isfinite(bound), bound, np.inf))
        point = point - both[..., 0] + price[..., None] * both[..., 1]
    return best
