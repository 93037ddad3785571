"""Sherman–Morrison each round, on a kept Σ⁻¹ (core.estimate): 3d² flops, but every round reads and writes the matrix.

The matrix is symmetric, so only its lower triangle is kept: half the memory traffic of the textbook form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.estimate import Estimate
from safedial.replay.linalg import fill_upper, routines, scaled_identity
from safedial.replay.turn import Turn


@dataclass
class Kept:
    """Σ⁻¹ (lower triangle, column order), the coefficients [θ̂, μ̂] as (d, 2), ln det(Σ/λ) and N."""

    inverse: NDArray[Any]
    coef: NDArray[Any]
    log_det: float = 0.0
    informative_rounds: int = 0


def start(dim: int, ridge: float, dtype: Any, block: int) -> Kept:
    return Kept(scaled_identity(dim, 1.0 / ridge, dtype), np.zeros((dim, 2), dtype=dtype, order="F"))


def advance(state: Kept, rows: NDArray[Any], turn: Turn) -> None:
    """Replay the rounds of `rows` (n, d), in order."""
    blas = routines(rows.dtype)
    for index, context in enumerate(rows):
        direction = blas.symv(1.0, state.inverse, context, lower=1)
        squared = max(float(blas.dot(context, direction)), 0.0)
        reward, cost = (float(blas.dot(context, column)) for column in state.coef.T)
        weight, *targets = turn(index, reward, cost, squared, state.log_det, state.informative_rounds)
        if weight > 0.0:
            gain = weight / (1.0 + weight * squared)
            blas.syr(-gain, direction, a=state.inverse, lower=1, overwrite_a=1)
            for column, target, mean in zip(state.coef.T, targets, (reward, cost), strict=True):
                blas.axpy(direction, column, a=gain * (target - mean))
            state.log_det += math.log1p(weight * squared)
            state.informative_rounds += 1


def finish(state: Kept) -> Estimate:
    """The estimate, Σ⁻¹ filled to both triangles."""
    coef = state.coef
    return Estimate(fill_upper(state.inverse), coef[:, 0], coef[:, 1], state.log_det, state.informative_rounds)
