"""Ordinary least squares without a ridge, round by round, for a batch.

With G = Σxxᵀ, u = G⁺x, w² = xᵀu and the residual e = y − ⟨x,μ̂⟩, a round whose context lies in the span of the earlier
ones updates (Sherman–Morrison)

    G⁺ ← G⁺ − uuᵀ/(1 + w²)        μ̂ ← μ̂ + ue/(1 + w²)        RSS ← RSS + e²/(1 + w²)

RSS is a sum of squares of recursive residuals, so nothing cancels. A context with a part c = (I − GG⁺)x outside that
span raises the rank and leaves RSS (Greville; Meyer 1973, with q = ‖c‖²):

    G⁺ ← G⁺ − (ucᵀ + cuᵀ)/q + (1 + w²)ccᵀ/q²        μ̂ ← μ̂ + ce/q

`Fit` is that, with any batch shape in front. Rank and condition depend on contexts only.
For one learner `bounds.triangle` has the same by QR, with certified rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

WORST = 1e6
"""The largest K, K² = Σ_j ‖X_j‖²(G⁻¹)_jj: the condition of the contexts, whatever the units of their columns. Above it
nothing is known."""

NEW = 1e-12
"""A context adds to the rank if more than this share of its squared norm lies outside the span of the earlier ones."""

SPARE = 2
"""Degrees of freedom before anything is known: with one, the bound is of no use."""


def is_due(rounds: int, often: int = 20) -> bool:
    """Whether what is expensive is computed again after this many rounds: always at first, then whenever they have
    grown by 1/`often` or half of that.

    >>> [number for number in range(150, 190) if is_due(number)]
    [152, 156, 160, 168, 176, 184]
    """
    return rounds % (1 << max((rounds // often).bit_length() - 1, 0)) == 0


class Fit(NamedTuple):
    """G⁺, I − GG⁺ (None once every rank is full), θ̂, μ̂, the cost's RSS, the columns' squared norms, n and the rank."""

    inverse: Any
    outside: Any
    reward_coef: Any
    cost_coef: Any
    squares: Any
    columns: Any
    rounds: Any
    rank: Any


class Fitted(NamedTuple):
    """The fit at a context: ⟨x,θ̂⟩, ⟨x,μ̂⟩, w, √RSS, n − rank, whether the bound is known, and ‖x‖.

    `direction` is u, `beyond` is c; `log_det` and `least` (ln det(I + G/λ) and g_min) are for the anytime bound;
    `other` is the prediction of another policy that must allow the dose too.
    """

    reward: Any
    cost: Any
    width: Any
    spread: Any
    degrees: Any
    ready: Any
    norm: Any
    rounds: Any
    direction: Any = None
    beyond: Any = None
    log_det: Any = 0.0
    least: Any = 0.0
    context: Any = None
    other: Any = None


def init(dim: int, *, batch: tuple[int, ...] = ()) -> Fit:
    """Nothing known: G = 0."""
    vector, count = np.zeros((*batch, dim)), np.zeros(batch)
    outside = np.broadcast_to(np.eye(dim), (*batch, dim, dim))
    return Fit(np.zeros((*batch, dim, dim)), outside, vector, vector, count, vector, count, count)


def predict(fit: Fit, context: Any) -> Fitted:
    """What the rounds so far say about `context` (..., d).

    >>> fit = init(1)
    >>> for cost in (1.0, 2.0, 3.0):
    ...     fit = update(fit, predict(fit, np.ones(1)), 0.0, cost, np.float64(1.0))
    >>> seen = predict(fit, np.ones(1))
    >>> [round(float(part), 6) for part in (seen.cost, seen.width, seen.spread, seen.degrees)], bool(seen.ready)
    ([2.0, 0.57735, 1.414214, 2.0], True)
    """
    dim = context.shape[-1]
    direction = np.matmul(fit.inverse, context[..., None])[..., 0]
    diagonal = np.diagonal(fit.inverse, axis1=-2, axis2=-1)
    degrees = fit.rounds - fit.rank
    full = fit.rank == dim
    ready = full & (degrees >= SPARE) & (np.vecdot(fit.columns, diagonal) <= WORST * WORST)
    beyond = None if fit.outside is None else np.matmul(fit.outside, context[..., None])[..., 0]
    return Fitted(
        reward=np.vecdot(context, fit.reward_coef),
        cost=np.vecdot(context, fit.cost_coef),
        width=np.sqrt(np.maximum(np.vecdot(context, direction), 0.0)),
        spread=np.sqrt(fit.squares),
        degrees=degrees,
        ready=ready,
        norm=np.sqrt(np.vecdot(context, context)),
        rounds=fit.rounds,
        direction=direction,
        beyond=beyond,
        context=context,
    )


def update(fit: Fit, seen: Fitted, reward: Any, cost: Any, weight: Any) -> Fit:
    """Learn from one round, R/g_r and C/g_c; weight 0 leaves the fit unchanged, any other counts as 1."""
    known = np.asarray(weight) > 0.0
    if seen.beyond is None:
        gain, step, rank, outside = known / (1.0 + seen.width * seen.width), seen.direction, fit.rank, None
        inverse = np.einsum("...i,...j->...ij", gain[..., None] * step, step)
        np.subtract(fit.inverse, inverse, out=inverse)  # in place, as another array of this size takes longer
    else:
        gain, step, rank, inverse, outside = _grown(fit, seen, known)
    scaled = gain[..., None] * step
    miss = cost - seen.cost
    within = rank == fit.rank
    return Fit(
        inverse,
        outside,
        fit.reward_coef + scaled * (reward - seen.reward)[..., None],
        fit.cost_coef + scaled * miss[..., None],
        fit.squares + np.where(within, gain * miss * miss, 0.0),
        fit.columns + known[..., None] * seen.context**2,
        fit.rounds + known,
        rank,
    )


def _grown(fit: Fit, seen: Fitted, known: Any) -> tuple[Any, Any, Any, Any, Any]:
    """(gain, step, rank, G⁺, I − GG⁺) of a round that may raise the rank."""
    beyond, direction, dim = seen.beyond, seen.direction, seen.beyond.shape[-1]
    length = np.vecdot(beyond, beyond)
    new = known & (length > NEW * seen.norm * seen.norm)
    length = np.where(new, length, 1.0)
    weight = 1.0 + seen.width * seen.width
    inside = np.where(new, 0.0, known / weight)
    one, two = direction[..., :, None], beyond[..., :, None]
    row, other = direction[..., None, :], beyond[..., None, :]
    share = np.where(new, 1.0 / length, 0.0)[..., None, None]
    inverse = fit.inverse - inside[..., None, None] * one * row
    inverse = inverse - share * (one * other + two * row) + weight[..., None, None] * share * share * two * other
    rank = fit.rank + new
    outside = None if np.all(rank == dim) else fit.outside - share * two * other
    step = np.where(new[..., None], beyond, direction)
    return np.where(new, 1.0 / length, inside), step, rank, inverse, outside
