"""Sherman–Morrison each round on a kept Σ⁻¹, as in bounds.estimate: 4d² flops, and the matrix is read and written.

A matrix–vector product and an outer product, in place: the textbook form, limited by memory rather than arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.estimate import Estimate
from safedial.simulation.replay_round import Turn, fill_upper, routines, scaled_identity


@dataclass
class Kept:
    """Σ⁻¹ (column order), the coefficients [θ̂, μ̂] as (d, 2), ln det(Σ/λ) and N."""

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
        direction = blas.gemv(1.0, state.inverse, context, trans=1)
        squared = max(float(blas.dot(context, direction)), 0.0)
        reward, cost = (float(blas.dot(context, column)) for column in state.coef.T)
        log_det, count = state.log_det, state.informative_rounds
        weight, *targets = turn(index, reward, cost, squared, log_det=log_det, informative_rounds=count)
        if weight > 0.0:
            gain = weight / (1.0 + weight * squared)
            blas.ger(-gain, direction, direction, a=state.inverse, overwrite_a=1)
            for column, target, mean in zip(state.coef.T, targets, (reward, cost), strict=True):
                blas.axpy(direction, column, a=gain * (target - mean))
            state.log_det += math.log1p(weight * squared)
            state.informative_rounds += 1


def finish(state: Kept) -> Estimate:
    """The estimate; the lower triangle of Σ⁻¹ serves for both."""
    coef = state.coef
    return Estimate(fill_upper(state.inverse), coef[:, 0], coef[:, 1], state.log_det, state.informative_rounds)
