"""Blocks of rounds by matrix products: the sequential algorithm, regrouped (docs/replay.md derives it).

Notation: a block has B rounds; contexts are the columns of X (d, B), Σ⁻¹ and coef = [θ̂, μ̂] are those before it.

    V = Σ⁻¹X (d, B)        G = XᵀV (B, B)        m = Xᵀcoef (B, 2)

Inside the block only G and m are needed: with width² = G_jj and, if round j has weight ω > 0, s = ω/(1 + ω·G_jj),

    [G, m] ← [G, m] − s·G_:j·[G_j:, m_j: − y_j]

which is Sherman–Morrison on Σ⁻¹ seen through X: one call of `ger`. After the block, with the **first** G and m, the
informative rounds S, D = diag(√ω_S) and LLᵀ = I + D·G_SS·D (Woodbury):

    W = V_S·D·L⁻ᵀ        Σ⁻¹ ← Σ⁻¹ − WWᵀ        coef ← coef + W·L⁻¹D(y − m)_S

Two levels: a rank-one update of G touches B² numbers, so a block is processed in runs of RUN rounds; after each run,
the same identity updates the rest of G and m by small matrix products. Work per round: 2d² (`symm`) + d² (`syrk`, which
computes only a triangle) + O(dB).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require
from safedial.simulation import rank_one
from safedial.simulation.replay_arguments import WAY_OUT
from safedial.simulation.replay_round import Turn, routines, scaled_identity

RUN = 32
"""Rounds in one run of the sequential loop: `ger` on 32 × 34 numbers costs little more than the call itself."""

PANEL = 128
"""Columns of G computed at a time, from the diagonal down: about half of the full product."""


@dataclass
class Kept(rank_one.Kept):
    """As for `rank_one`, but only the lower triangle of Σ⁻¹ is used; and space for V."""

    room: Any = None


def start(dim: int, ridge: float, dtype: Any, block: int) -> Kept:
    coef = np.zeros((dim, 2), dtype=dtype, order="F")
    return Kept(scaled_identity(dim, 1.0 / ridge, dtype), coef, room=np.empty((dim, block), dtype=dtype, order="F"))


def advance(state: Kept, rows: NDArray[Any], turn: Turn) -> None:
    """Replay the rounds of `rows` (n, d), in order, as one block."""
    blas = routines(rows.dtype)
    contexts = rows.T
    projected = blas.symm(1.0, state.inverse, contexts, lower=1, c=state.room[:, : len(rows)], overwrite_c=1)
    gram, means = inner_products(contexts, projected), blas.gemm(1.0, contexts, state.coef, trans_a=1)
    weights, targets = _decide_block(state, gram.copy(order="F"), means.copy(), turn)
    chosen = np.flatnonzero(weights)
    if len(chosen) == 0:
        return
    root = np.sqrt(weights[chosen])
    factor = _factor(gram, chosen, root)
    if len(chosen) < len(rows) or np.any(root != 1.0):
        projected = (projected.T[chosen] * root[:, None]).T
    moved = blas.trsm(1.0, factor, projected, side=1, lower=1, trans_a=1, overwrite_b=1)
    surprise = np.asfortranarray(root[:, None] * (targets - means)[chosen])
    surprise = blas.trsm(1.0, factor, surprise, lower=1, overwrite_b=1)
    blas.gemm(1.0, moved, surprise, beta=1.0, c=state.coef, overwrite_c=1)
    blas.syrk(-1.0, moved, beta=1.0, c=state.inverse, lower=1, overwrite_c=1)


finish = rank_one.finish


def inner_products(contexts: NDArray[Any], projected: NDArray[Any]) -> NDArray[Any]:
    """G = XᵀV, which is symmetric: panels from the diagonal down, mirrored."""
    size = contexts.shape[1]
    gemm = routines(contexts.dtype).gemm
    gram = np.empty((size, size), dtype=contexts.dtype, order="F")
    for left in range(0, size, PANEL):
        right = min(left + PANEL, size)
        panel = gemm(1.0, contexts[:, left:], projected[:, left:right], trans_a=1)
        corner = panel[: right - left]
        gram[left:right, left:right] = 0.5 * (corner + corner.T)
        gram[right:, left:right] = panel[right - left :]
        gram[left:right, right:] = panel[right - left :].T
    return gram


def _decide_block(state: Kept, gram: Any, means: Any, turn: Turn) -> tuple[NDArray[Any], NDArray[Any]]:
    """Decide the block's rounds, overwriting G and m. Returns (weights, targets), (B,) and (B, 2)."""
    size, blas = len(means), routines(means.dtype)
    learned = np.zeros((size, 3), dtype=means.dtype)
    for left in range(0, size, RUN):
        right = min(left + RUN, size)
        corner = np.empty((right - left, right - left + 2), dtype=means.dtype, order="F")
        corner[:, :-2], corner[:, -2:] = gram[left:right, left:right], means[left:right]
        learned[left:right] = _decide_run(state, corner, left, turn)
        chosen = left + np.flatnonzero(learned[left:right, 0])
        if right < size and len(chosen):
            root = np.sqrt(learned[chosen, 0])
            factor = _factor(gram, chosen, root)
            known = np.concatenate([gram[chosen, right:], means[chosen] - learned[chosen, 1:]], axis=1) * root[:, None]
            known = blas.trsm(1.0, factor, np.asfortranarray(known), lower=1, overwrite_b=1)
            change = blas.gemm(1.0, known[:, : size - right], known, trans_a=1)
            gram[right:, right:] -= change[:, : size - right]
            means[right:] -= change[:, size - right :]
    return learned[:, 0], learned[:, 1:]


def _decide_run(state: Kept, corner: Any, left: int, turn: Turn) -> list[tuple[float, float, float]]:
    """The sequential loop: `corner` is [G, m] of a run, (n, n + 2) in column order, updated in place."""
    size = len(corner)
    item, ger = corner.item, routines(corner.dtype).ger
    log_det, count, learned = state.log_det, state.informative_rounds, []
    for index in range(size):
        squared = max(item(index, index), 0.0)
        means = item(index, size), item(index, size + 1)
        told = turn(left + index, *means, squared, log_det=log_det, informative_rounds=count)
        weight, reward, cost = told
        learned.append(told)
        if weight > 0.0:
            row, column = corner[index].copy(), corner[:, index].copy()
            row[size] -= reward
            row[size + 1] -= cost
            ger(-weight / (1.0 + weight * squared), column, row, a=corner, overwrite_a=1)
            log_det += math.log1p(weight * squared)
            count += 1
    state.log_det, state.informative_rounds = log_det, count
    return learned


def _factor(gram: Any, chosen: Any, root: Any) -> NDArray[Any]:
    """L of I + D·G_SS·D. G is off by about u·L²/λ, so with a very small ridge the factorisation can fail: refused."""
    first, last = chosen[0], chosen[-1] + 1
    inner = gram[first:last, first:last] if last - first == len(chosen) else gram[np.ix_(chosen, chosen)]
    inner = inner * (root[:, None] * root)
    inner.ravel(order="K")[:: len(chosen) + 1] += 1.0
    factor, failed = routines(gram.dtype).potrf(np.asfortranarray(inner), lower=1, overwrite_a=1)
    require(failed == 0, "ridge", "the spec's", "is too small for the contexts in this dtype", WAY_OUT)
    return factor
