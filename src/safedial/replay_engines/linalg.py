"""The BLAS and LAPACK routines that the CPU engines call directly, for either precision, and helpers for symmetry.

Large products use these and never NumPy's `@`: SciPy and NumPy may each bring their own BLAS, and the idle threads of
one would take cores from the other.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

BLAS = ("gemm", "symm", "syrk", "trsm", "gemv", "ger", "symv", "syr", "dot", "axpy")
LAPACK = ("potrf", "potri")

STRIPE = 256


@cache
def routines(dtype: Any) -> Any:
    """`routines(dtype).gemm` and the like, for float64 or float32."""
    blas = zip(BLAS, get_blas_funcs(BLAS, dtype=dtype), strict=True)
    lapack = zip(LAPACK, get_lapack_funcs(LAPACK, dtype=dtype), strict=True)
    return SimpleNamespace(**dict(blas), **dict(lapack))


def scaled_identity(dim: int, value: float, dtype: Any) -> NDArray[Any]:
    """value·I in column order, without a temporary matrix."""
    matrix = np.zeros((dim, dim), dtype=dtype, order="F")
    np.fill_diagonal(matrix, value)
    return matrix


def fill_upper(matrix: NDArray[Any]) -> NDArray[Any]:
    """Copy the lower triangle onto the upper one, in place, stripe by stripe, without a temporary matrix."""
    for start in range(0, len(matrix), STRIPE):
        stop = start + STRIPE
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
        corner = matrix[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return matrix
