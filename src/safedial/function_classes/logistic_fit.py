"""The norm-constrained logistic fit and the size of its confidence set, for a batch of learners at once.

Rounds s have context x_s, known offset o_s = ln z_s and label y_s ∈ {0, 1}; p_s = 1/(1 + exp(−(⟨x_s, μ⟩ + o_s))). The
negative log-likelihood is L(μ) = Σ_s [ln(1 + e^{u_s}) − y_s u_s], u_s = ⟨x_s, μ⟩ + o_s, and μ̂ minimises it on ‖μ‖ ≤ S.

**The confidence sequence** (after Lee, Yun and Jun, 2024, with another last step). exp(L(μ*) − L(μ)) is a martingale
for every μ, hence so is its average over μ uniform on the ball ‖μ‖ ≤ `PRIOR`·S; Ville: with probability ≥ 1 − δ′ the
average stays below 1/δ′ for all t. Bound it from below by Jensen over Q, uniform on the ball of radius h around μ̂,
which lies in the prior's ball for h ≤ (PRIOR − 1)S and has divergence d ln(PRIOR·S/h) from it:

    L(μ*) − E_Q L ≤ ln(1/δ′) + d ln(PRIOR·S/h)

Q has mean μ̂, so the first-order term of E_Q L vanishes; its curvatures exceed those at μ̂ by at most e^{hX}
(self-concordance of the logistic loss, X = max ‖x_s‖). With H = Σ p_s(1 − p_s) x_s x_sᵀ at μ̂, for every such h

    L(μ*) − L(μ̂) ≤ ln(1/δ′) + d ln(PRIOR·S/h) + ½ e^{hX} h² tr H/(d + 2) =: ln(1/δ′) + excess

and the least of them over a grid of h is used; it grows like (d/2) ln n, the published form like d ln n. μ̂ may be any
point of the ball ‖μ‖ ≤ S: nothing above needs it to be the exact minimiser.

**From the set to a range.** Again by self-concordance, for ‖μ‖ ≤ S and ū ≥ max_s |⟨x_s, μ − μ̂⟩|

    L(μ) − L(μ̂) ≥ ⟨∇L(μ̂), μ − μ̂⟩ + ‖μ − μ̂‖²_H/(2 + ū) ≥ −gap + ‖μ − μ̂‖²_H/(2 + ū),
    gap = ⟨∇L(μ̂), μ̂⟩ + S‖∇L(μ̂)‖ ≥ 0, zero at the exact minimiser.

Hence on the set ‖μ − μ̂‖²_A ≤ r² := (2 + ū)(ln(1/δ′) + excess + gap) + 4S²λ with A = H + λI, and |⟨x, μ − μ̂⟩| ≤
r‖x‖_{A⁻¹}. ū starts at 2SX and is replaced by r·max_s‖x_s‖_{A⁻¹} while that is smaller. `logistic_upper` goes on from
there to the set itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PRIOR = 1.5
SHRINKS = (PRIOR - 1.0) * np.exp(-np.linspace(0.0, 14.0, 57))
STEPS = 30
FARTHEST = 300.0
"""A radius h with larger hX is left out of the grid: e^{hX} times a curvature that underflows would not be a bound."""


class Fit(NamedTuple):
    """μ̂, A⁻¹, and what the range needs; the batch axes come first."""

    coef: Array
    inverse: Array
    excess: Array
    gap: Array
    reach: Array
    spread: Array


def nothing_yet(dim: int, ridge: float, batch: tuple[int, ...]) -> Fit:
    """Before any data: the ball itself."""
    inverse = np.broadcast_to(np.eye(dim) / ridge, (*batch, dim, dim)).copy()
    zeros = np.zeros(batch)
    excess = zeros + dim * np.log(PRIOR / (PRIOR - 1.0))
    return Fit(np.zeros((*batch, dim)), inverse, excess, zeros, zeros, zeros)


def fit(
    contexts: Array, offsets: Array, labels: Array, weights: Array, start: Array, *, size: float, ridge: float
) -> Fit:
    """Fit every learner of a batch: contexts (..., n, d), the rest (..., n); weights 0 or 1 say which rounds count."""
    coef = _minimise(contexts, offsets, labels, weights, start, size=size)
    gradient, hessian = derivatives(contexts, offsets, labels, weights, coef)
    dim = contexts.shape[-1]
    largest = np.sqrt(np.max(weights * np.vecdot(contexts, contexts), axis=-1))
    inverse: Any = np.linalg.inv(hessian + ridge * np.eye(dim))
    inner = np.vecdot(gradient, coef)
    spread = size * SHRINKS.reshape(-1, *[1] * inner.ndim)
    far = spread * largest > FARTHEST
    growth = np.exp(np.where(far, 0.0, spread * largest))
    curvature = np.trace(hessian, axis1=-2, axis2=-1) / (dim + 2)
    costs = dim * np.log(PRIOR * size / spread) + np.where(far, np.inf, 0.5 * growth * spread**2 * curvature)
    widths = np.vecdot(contexts, np.matmul(contexts, inverse)) * weights
    return Fit(
        coef,
        inverse,
        np.min(costs, axis=0),
        np.maximum(inner + size * np.sqrt(np.vecdot(gradient, gradient)), 0.0),
        np.sqrt(np.maximum(np.max(widths, axis=-1), 0.0)),
        2.0 * size * largest,
    )


def radius(fitted: Fit, log_inverse_risk: Any, *, size: float, ridge: float) -> Any:
    """r, by the self-bounding iteration for ū."""
    level = log_inverse_risk + fitted.excess + fitted.gap
    spread = fitted.spread + 0.0 * level
    for _ in range(STEPS):
        reach = np.sqrt((2.0 + spread) * level + 4.0 * size**2 * ridge)
        spread = np.minimum(spread, reach * fitted.reach)
    return np.sqrt((2.0 + spread) * level + 4.0 * size**2 * ridge)


def derivatives(contexts: Array, offsets: Array, labels: Array, weights: Array, coef: Array) -> tuple[Array, Array]:
    """∇L and H at a point."""
    from scipy.special import expit

    scores = np.matmul(contexts, coef[..., None])[..., 0] + offsets
    chance = expit(scores)
    gradient = np.matmul(np.swapaxes(contexts, -1, -2), (weights * (chance - labels))[..., None])[..., 0]
    curvature = weights * chance * expit(-scores)
    hessian = np.matmul(np.swapaxes(contexts, -1, -2), curvature[..., None] * contexts)
    return gradient, hessian


def _minimise(contexts: Array, offsets: Array, labels: Array, weights: Array, start: Array, *, size: float) -> Array:
    """Newton steps on L(μ) + (ν/2)‖μ‖², with ν ≥ 0 moved so that ‖μ‖ ≤ S; ends inside the ball."""
    coef, price = start.copy(), np.zeros(start.shape[:-1])
    eye = np.eye(start.shape[-1])
    for _ in range(STEPS):
        gradient, hessian = derivatives(contexts, offsets, labels, weights, coef)
        least = 1e-9 * (1.0 + np.trace(hessian, axis1=-2, axis2=-1))
        shifted = hessian + (price + least)[..., None, None] * eye
        right = np.matmul(hessian, coef[..., None]) - gradient[..., None]
        target = np.linalg.solve(shifted, right)[..., 0]
        norm = np.sqrt(np.vecdot(target, target))
        slope = np.vecdot(target, np.linalg.solve(shifted, target[..., None])[..., 0])
        move = norm**2 * (norm - size) / (size * np.maximum(slope, 1e-300))
        price = np.maximum(price + np.where(norm > 0.0, move, 0.0), 0.0)
        step = target - coef
        length = np.sqrt(np.vecdot(step, step))
        coef = coef + step * np.minimum(1.0, 2.0 * size / np.maximum(length, 1e-300))[..., None]
        if np.all(length <= 1e-10 * size) and np.all((norm <= size * (1.0 + 1e-9)) | (price == 0.0)):
            break
    norm = np.sqrt(np.vecdot(coef, coef))
    return coef * np.minimum(1.0, size / np.maximum(norm, 1e-300))[..., None]
