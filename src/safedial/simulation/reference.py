"""The paper's way: each round factors Σ again. Slow but simple: the other engines must agree with it.

With Σ = LLᵀ and z = L⁻¹[x, b_r, b_c]:  width² = z₀·z₀,  ⟨x,θ̂⟩ = z₀·z₁,  ⟨x,μ̂⟩ = z₀·z₂,  ln det Σ = 2 Σ ln L_ii.
Σ and b are plain sums over informative rounds; nothing is carried from one round's factor to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.estimate import Estimate
from safedial.errors import require
from safedial.simulation.replay_round import Turn, fill_upper, routines, scaled_identity


@dataclass
class Sums:
    """Σ (lower triangle, column order), b = [b_r, b_c] as (d, 2), and how many rounds are in them."""

    gram: NDArray[Any]
    rhs: NDArray[Any]
    ridge: float
    informative_rounds: int = 0


def start(dim: int, ridge: float, dtype: Any, block: int) -> Sums:
    return Sums(scaled_identity(dim, ridge, dtype), np.zeros((dim, 2), dtype=dtype, order="F"), ridge)


def advance(state: Sums, rows: NDArray[Any], turn: Turn) -> None:
    """Replay the rounds of `rows` (n, d), in order."""
    lapack = routines(rows.dtype)
    for index, context in enumerate(rows):
        factor = _factor(state)
        sides = np.column_stack([context, state.rhs]).astype(rows.dtype, order="F", copy=False)
        solved = lapack.trsm(1.0, factor, sides, lower=1, overwrite_b=1)
        squared, reward, cost = (float(lapack.dot(solved[:, 0], column)) for column in solved.T)
        log_det, count = _log_det(factor, state.ridge), state.informative_rounds
        weight, *targets = turn(index, reward, cost, squared, log_det=log_det, informative_rounds=count)
        if weight > 0.0:
            lapack.syr(weight, context, a=state.gram, lower=1, overwrite_a=1)
            state.rhs += weight * np.outer(context, targets)
            state.informative_rounds += 1


def finish(state: Sums) -> Estimate:
    """The estimate, from one last factor."""
    factor = _factor(state)
    log_det = _log_det(factor, state.ridge)
    inverse, _ = routines(factor.dtype).potri(factor, lower=1, overwrite_c=1)
    coef = routines(factor.dtype).symm(1.0, inverse, state.rhs, lower=1)
    return Estimate(fill_upper(inverse), coef[:, 0], coef[:, 1], log_det, state.informative_rounds)


def _factor(state: Sums) -> NDArray[Any]:
    factor, failed = routines(state.gram.dtype).potrf(state.gram, lower=1)
    rule = "is too small for the contexts in this dtype"
    require(failed == 0, "ridge", state.ridge, rule, "use float64 or a larger ridge")
    return factor


def _log_det(factor: NDArray[Any], ridge: float) -> float:
    diagonal = factor.diagonal().astype(np.float64)
    return max(0.0, 2.0 * float(np.log(diagonal).sum()) - len(factor) * math.log(ridge))
