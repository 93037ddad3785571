"""Ordinary least squares for one learner by QR, with bounds that hold whatever rounding did.

[X y_c y_r] has the triangular factor T, updated by one row at a time with Householder reflections. The
computed T is that of [X + ΔX, y + Δy], each column moved by at most γ of its norm, γ = c(n + d)u (Higham 2002, section
19.3). Let R be its first d columns, D = diag(‖X_j‖), K = ‖DR⁻¹‖_F, η = γ√d·K, so that ‖ΔX·R⁻¹‖ ≤ η, and f = 2η + η².
With v = R⁻ᵀx, b the next column of T above the diagonal, ρ the entry on its diagonal:

    w² ≤ ‖v‖²/(1 − f)        √RSS ≤ ρ + (γ + η)‖y‖        |⟨x,μ̂⟩ − vᵀb| ≤ ‖v‖·(1 + η)(2η + γ)‖y‖/(1 − f)

(the first as R⁻ᵀXᵀXR⁻¹ = I − F with ‖F‖ ≤ f; the second as RSS is least at μ̂; the last from the two normal equations:
(I − F)R(μ̂ − μ̃) = −R⁻ᵀΔXᵀr̃ + R⁻ᵀXᵀ(ΔX·μ̃ − Δy)). The triangular solve for v is another such ΔR, so γ has a factor for it.
K falls as rounds come, apart from D, so a value computed earlier, times the growth of D, bounds it. Above `WORST` the
contexts count as ill-conditioned, and nothing is known.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from safedial.core.least_squares import SPARE, WORST, Fitted
from safedial.core.rounding import SAFETY, UNIT, round_up

Array = NDArray[np.float64]

_BLAS: Any = get_blas_funcs(("dot", "nrm2", "trsv"), dtype=np.float64)
_LAPACK: Any = get_lapack_funcs(("tpqrt", "trtri"), dtype=np.float64)

ddot, dnrm2, dtrsv = _BLAS
dtpqrt, dtrtri = _LAPACK


class Triangle(NamedTuple):
    """The triangular factor of [X y_c y_r], the columns' squared norms, n, and an upper bound on K."""

    factor: Array
    columns: Array
    rounds: int
    condition: float


def empty(dim: int) -> Triangle:
    """No rows yet."""
    return Triangle(np.zeros((dim + 2, dim + 2), order="F"), np.zeros(dim + 2), 0, math.inf)


def append(triangle: Triangle, row: Array) -> Triangle:
    """With one more row (x, y_c, y_r). K is computed anew about twenty times while the rounds double."""
    columns, rounds = triangle.columns + row * row, triangle.rounds + 1
    factor, *_ = dtpqrt(0, min(row.size, 32), triangle.factor, row[None, :])
    dim, known = row.size - 2, triangle.condition
    if rounds < dim:
        known = math.inf
    elif known == math.inf or rounds % (1 + rounds // 20) == 0:
        known = _condition(factor, columns)
    else:
        known *= math.sqrt(float(np.max(columns[:dim] / triangle.columns[:dim])))
    return Triangle(factor, columns, rounds, known)


def _condition(factor: Array, columns: Array) -> float:
    """K = ‖DR⁻¹‖_F, or ∞ where R is singular."""
    dim = columns.size - 2
    inverse, singular = dtrtri(np.asfortranarray(factor[:dim, :dim]))
    if singular:
        return math.inf
    size = math.sqrt(float(columns[:dim] @ np.vecdot(inverse, inverse)))
    return size * (1.0 + 1e-6) if math.isfinite(size) else math.inf


def unit_of(triangle: Triangle) -> float:
    """γ: how far a column of the data may have been moved, relatively."""
    size = triangle.columns.size
    return 8.0 * SAFETY * UNIT * (triangle.rounds + size + 8) * math.sqrt(size)


def certified(triangle: Triangle, context: Array, norm: float) -> Fitted:
    """The fit at a context: cost, width and √RSS are upper bounds whatever rounding did; not ready if it did much."""
    factor, columns, rounds, condition = triangle
    dim = context.size
    unit = unit_of(triangle)
    turned = unit * math.sqrt(dim) * condition
    part = 2.0 * turned + turned * turned
    degrees = float(rounds - dim)
    if not (degrees >= SPARE and condition <= WORST and part < 0.5):
        return Fitted(0.0, 0.0, 0.0, 0.0, max(degrees, 1.0), False, norm, float(rounds))
    padded = np.zeros(dim + 2)
    padded[:dim] = context
    direction = dtrsv(factor, padded, trans=1)[:dim]
    length, target = dnrm2(direction), math.sqrt(columns[dim])
    slack = 2.0 * length * (1.0 + turned) * (3.0 * turned + 2.0 * unit) * target / (1.0 - part)
    cost = ddot(direction, factor[:dim, dim])
    return Fitted(
        reward=ddot(direction, factor[:dim, dim + 1]),
        cost=round_up(cost + slack),
        width=round_up(length * (1.0 + turned) / math.sqrt(1.0 - part)),
        spread=round_up(abs(float(factor[dim, dim])) + 2.0 * (unit + turned) * target),
        degrees=degrees,
        ready=True,
        norm=norm,
        rounds=float(rounds),
    )


def volume(triangle: Triangle, ridge: float) -> tuple[float, float]:
    """(an upper bound on ln det(I + G/λ), a lower bound on g_min), whatever rounding did."""
    dim = triangle.columns.size - 2
    values = np.linalg.svd(triangle.factor[:dim, :dim], compute_uv=False)
    moved = unit_of(triangle) * math.sqrt(float(np.sum(triangle.columns[:dim])))
    largest = float(np.sum(np.log1p((values + moved) ** 2 / ridge)))
    return round_up(largest) + UNIT * dim, max(float(values[-1]) - moved, 0.0) ** 2
