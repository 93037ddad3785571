"""The double-precision BLAS and LAPACK routines the online path calls directly, without checks or copies, and
a copy of a triangle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

_BLAS: Any = get_blas_funcs(("axpy", "dot", "nrm2", "symv", "syr"), dtype=np.float64)
_LAPACK: Any = get_lapack_funcs(("posv", "potrf", "potri", "potrs"), dtype=np.float64)

daxpy, ddot, dnrm2, dsymv, dsyr = _BLAS
dposv, dpotrf, dpotri, dpotrs = _LAPACK

STRIPE = 256


def copy_lower_to_upper(source: NDArray[np.float64], target: NDArray[np.float64]) -> None:
    """Copy the lower triangle of `source`, with its diagonal, to the upper triangle of `target`, stripe by stripe."""
    for start in range(0, len(source), STRIPE):
        stop = start + STRIPE
        target[start:stop, stop:] = source[stop:, start:stop].T
        corner = target[start:stop, start:stop]
        upper = np.tri(len(corner), dtype=bool).T
        np.copyto(corner, source[start:stop, start:stop].T, where=upper)
