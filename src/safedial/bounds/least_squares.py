"""Ordinary least squares without a ridge, round by round, for a batch.

With G = Σxxᵀ, u = G⁺x, w² = xᵀu and the residual e = y − ⟨x,μ̂⟩, a round whose context lies in the span of the earlier
ones updates (Sherman–Morrison)

    G⁺ ← G⁺ − uuᵀ/(1 + w²)        μ̂ ← μ̂ + ue/(1 + w²)        RSS ← RSS + e²/(1 + w²)

RSS is a sum of squares of recursive residuals, so nothing cancels. A context with a part c = (I − GG⁺)x outside that
span raises the rank and leaves RSS (Greville; Meyer 1973, with q = ‖c‖²):

    G⁺ ← G⁺ − (ucᵀ + cuᵀ)/q + (1 + w²)ccᵀ/q²        μ̂ ← μ̂ + ce/q

`Fit` is that, with the axes of any lanes in front. Rank and condition depend on contexts only.

For one lane `bounds.triangle` has the same four functions, by QR, with certified rounding: `init`, `predict`, `update`
and `volume`.
"""

from __future__ import annotations

import math
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
    """G⁺, I − GG⁺ (empty once every rank is full), θ̂, μ̂, the cost's RSS, the columns' squared norms, n, the rank."""

    inverse: Any
    outside: Any
    reward_coef: Any
    cost_coef: Any
    squares: Any
    columns: Any
    rounds: Any
    rank: Any


class Fitted(NamedTuple):
    """The fit at a context: ⟨x,θ̂⟩, ⟨x,μ̂⟩, w, √RSS, n − rank, whether the bound is known, ‖x‖, n, and of a certified
    fit K and how far rounding may have moved these numbers.

    `direction` is u, `beyond` is c (None once every rank is full); `log_det` and `least` (ln det(I + G/λ) and g_min)
    are for the anytime bound.
    """

    reward: Any
    cost: Any
    width: Any
    spread: Any
    degrees: Any
    ready: Any
    norm: Any
    rounds: Any
    condition: Any = math.inf
    rounding: Any = 0.0
    direction: Any = None
    beyond: Any = None
    log_det: Any = 0.0
    least: Any = 0.0
    context: Any = None


def init(dim: int, lanes: tuple[int, ...] = ()) -> Fit:
    """Nothing known: G = 0."""
    vector, count = np.zeros((*lanes, dim)), np.zeros(lanes)
    outside = np.broadcast_to(np.eye(dim), (*lanes, dim, dim))
    return Fit(np.zeros((*lanes, dim, dim)), outside, vector, vector, count, vector, count, count)


def predict(fit: Fit, context: Any, norm: Any = None) -> Fitted:
    """What the rounds so far say about `context` (..., d), whose `norm` may be known.

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
    ready = (fit.rank == dim) & (degrees >= SPARE) & (np.vecdot(fit.columns, diagonal) <= WORST * WORST)
    beyond = None if is_full(fit) else np.matmul(fit.outside, context[..., None])[..., 0]
    return Fitted(
        reward=np.vecdot(context, fit.reward_coef),
        cost=np.vecdot(context, fit.cost_coef),
        width=np.sqrt(np.maximum(np.vecdot(context, direction), 0.0)),
        spread=np.sqrt(fit.squares),
        degrees=degrees,
        ready=ready,
        norm=np.sqrt(np.vecdot(context, context)) if norm is None else norm,
        rounds=fit.rounds,
        direction=direction,
        beyond=beyond,
        context=context,
    )


def is_full(fit: Fit) -> bool:
    """Whether the contexts of every lane have full rank."""
    return fit.outside.shape[-1] == 0


def update(fit: Fit, seen: Fitted, reward: Any, cost: Any, known: Any = True) -> Fit:
    """Learn from one round, R/g_r and C/g_c, in the lanes where it is `known`."""
    known = np.asarray(known, dtype=bool)
    if seen.beyond is None:
        gain, step, rank, outside = known / (1.0 + seen.width * seen.width), seen.direction, fit.rank, fit.outside
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
    outside = fit.outside[..., :0, :0] if np.all(rank == dim) else fit.outside - share * two * other
    step = np.where(new[..., None], beyond, direction)
    return np.where(new, 1.0 / length, inside), step, rank, inverse, outside


LOOKS = 6
"""G's eigenvalues are computed again whenever the rounds have grown by a part of 1/6, or half of that."""


def volume(before: tuple[Any, Any], fit: Fit, seen: Fitted, known: Any, *, ridge: float) -> tuple[Any, Any]:
    """(an upper bound on ln det(I + G/λ), a lower bound on g_min) after the round at `seen`, from those before it.

    Exact when a look is due. In between g_min, which never falls, stays, and a round adds ln(1 + xᵀ(λI + G)⁻¹x) to
    ln det. With G's eigenvalues g, xᵀ(λI + G)⁻¹x is w² times a mean of g/(g + λ), which is concave in g, and that mean
    of g is ‖x‖²/w², so it is at most ‖x‖²/(λ + ‖x‖²/w²) (Jensen); ‖x‖²/λ before G has full rank.
    """
    log_det, least = before
    if is_full(fit) and (seen.beyond is not None or is_due(int(np.max(fit.rounds)), LOOKS)):
        values = 1.0 / np.linalg.eigvalsh(fit.inverse)
        return np.sum(np.log1p(values / ridge), axis=-1), values[..., -1]
    square, leverage = seen.norm * seen.norm, seen.width * seen.width
    added = square / ridge
    if seen.beyond is None:
        added = square * leverage / np.maximum(square + ridge * leverage, 1e-300)
    return log_det + np.where(known, np.log1p(added), 0.0), least
