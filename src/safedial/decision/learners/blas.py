"""The double-precision BLAS and LAPACK routines the online path calls directly: no checks, no copies, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

_BLAS: Any = get_blas_funcs(("axpy", "dot", "nrm2", "symv", "syr"), dtype=np.float64)
_LAPACK: Any = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)

daxpy, ddot, dnrm2, dsymv, dsyr = _BLAS
dpotrf, dpotri = _LAPACK
