"""Samples that wait before they are added to a learner's two matrices, which are then written once for many samples.

A rank-one update reads and writes all of Σ and Σ⁻¹ for each sample. Instead the last k samples wait as columns,

    rows R = [√ω x, …]        moves W = [√(ω/(1 + ω·width²)) y, …]        y the direction of each sample at its time

and the full matrices follow from them (Sherman–Morrison, one sample after the other):

    Σ = gram + RRᵀ            Σ⁻¹ = inverse − WWᵀ

A product with either costs 4dk more flops. When k reaches `ROOM`, `syrk` applies all samples at once. Residuals are
taken against the full Σ, so what core.rounding certifies still holds: the waiting samples are among the N products that
its bound counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

Array = NDArray[np.float64]

ROOM, FROM_DIM = 16, 1024
"""How many samples may wait, and from which dimension on. Below it the matrices fit the cache, and waiting gains
nothing. With more samples, the update that applies them would take longer than the others save."""

_BLAS: Any = get_blas_funcs(("gemv", "syrk"), dtype=np.float64)
dgemv, dsyrk = _BLAS


class Pending:
    """The waiting columns; `count` of them are in use."""

    def __init__(self, dim: int) -> None:
        self.room = ROOM if dim >= FROM_DIM else 0
        self.rows, self.moves = (np.zeros((dim, self.room), order="F") for _ in range(2))
        self.count = 0

    def add(self, row: Array, move: Array) -> None:
        self.rows[:, self.count], self.moves[:, self.count] = row, move
        self.count += 1

    def less_moves(self, vector: Array, product: Array) -> Array:
        """inverse·vector − WWᵀ·vector, in place of `product`, its first term."""
        return _corrected(self.moves[:, : self.count], vector, product)

    def less_rows(self, vector: Array, residual: Array) -> Array:
        """x − gram·vector − RRᵀ·vector, in place of `residual`, its first two terms."""
        return _corrected(self.rows[:, : self.count], vector, residual)

    def apply(self, gram: Array, inverse: Array) -> None:
        """Add all waiting samples to the lower triangles of both matrices, in place."""
        if self.count:
            dsyrk(1.0, self.rows[:, : self.count], beta=1.0, c=gram, lower=1, overwrite_c=1)
            dsyrk(-1.0, self.moves[:, : self.count], beta=1.0, c=inverse, lower=1, overwrite_c=1)
            self.count = 0

    def add_to_diagonal(self, diagonal: Array) -> None:
        """Turn the diagonal of `gram` into that of Σ by adding the waiting samples one by one."""
        for row in self.rows.T[: self.count]:
            diagonal += row * row

    def state(self) -> dict[str, Array]:
        """The columns in use, to save; empty if samples never wait."""
        if self.room == 0:
            return {}
        return {"pending_rows": self.rows[:, : self.count], "pending_moves": self.moves[:, : self.count]}

    def restore(self, arrays: dict[str, Any]) -> None:
        rows = arrays.get("pending_rows")
        self.count = 0 if rows is None else rows.shape[1]
        if rows is not None:
            self.rows[:, : self.count], self.moves[:, : self.count] = rows, arrays["pending_moves"]


def _corrected(columns: Array, vector: Array, target: Array) -> Array:
    return dgemv(-1.0, columns, dgemv(1.0, columns, vector, trans=1), beta=1.0, y=target, overwrite_y=1)
