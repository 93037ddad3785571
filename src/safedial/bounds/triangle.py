"""Ordinary least squares for one lane by QR, with bounds that hold whatever rounding did.

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
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from safedial.bounds.least_squares import SPARE, WORST, Fitted, is_due
from safedial.bounds.rounding import SAFETY, round_up
from safedial.model.namespace import UNIT, Array

_BLAS: Any = get_blas_funcs(("dot", "nrm2", "trsv"), dtype=np.float64)
_LAPACK: Any = get_lapack_funcs(("tpqrt", "trtri"), dtype=np.float64)

ddot, dnrm2, dtrsv = _BLAS
dtpqrt, dtrtri = _LAPACK


class Reading(NamedTuple):
    """What the certified numbers of every context share: factors for the mean's slack and for the width, √RSS, and by
    how much it was raised.
    """

    slack: float
    stretch: float
    spread: float
    raised: float


class Triangle:
    """The triangular factor of [X y_c y_r], the columns' squared norms, n, and an upper bound on K."""

    def __init__(self, factor: Array, columns: Array, rounds: int, condition: float) -> None:
        self.factor, self.columns, self.rounds, self.condition = factor, columns, rounds, condition
        self._reading: Reading | None = None

    @property
    def reading(self) -> Reading | None:
        """What can be certified; None where nothing is known."""
        if self._reading is None:
            self._reading = self._read()
        return self._reading

    def _read(self) -> Reading | None:
        dim, unit = self.columns.size - 2, _unit(self.columns, self.rounds)
        turned = unit * math.sqrt(dim) * self.condition
        part = 2.0 * turned + turned * turned
        if self.condition > WORST or self.rounds - dim < SPARE or part >= 0.5:
            return None
        target = math.sqrt(float(self.columns[dim]))
        slack = 2.0 * (1.0 + turned) * (3.0 * turned + 2.0 * unit) * target / (1.0 - part)
        computed = abs(float(self.factor[dim, dim]))
        spread = round_up(computed + 2.0 * (unit + turned) * target)
        return Reading(slack, round_up((1.0 + turned) / math.sqrt(1.0 - part)), spread, spread - computed)


def init(dim: int, lanes: tuple[int, ...] = ()) -> Triangle:
    """No rows yet. There is one lane only."""
    return Triangle(np.zeros((dim + 2, dim + 2), order="F"), np.zeros(dim + 2), 0, math.inf)


def update(fit: Triangle, seen: Fitted, reward: float, cost: float, known: bool = True) -> Triangle:
    """With one more row (x, y_c, y_r), of the context at which the fit was `seen`, if it is `known`."""
    if not known:
        return fit
    row = np.empty(fit.columns.size)
    row[:-2], row[-2], row[-1] = seen.context, cost, reward
    return append(fit, row)


def append(before: Triangle, row: Array) -> Triangle:
    """With one more row (x, y_c, y_r)."""
    columns, rounds = before.columns + row * row, before.rounds + 1
    factor, *_ = dtpqrt(0, min(row.size, 32), before.factor, row[None, :])
    # The sign of a row whose diagonal is nearly 0 hangs on rounding; without it processors agree.
    factor *= np.where(np.diagonal(factor) < 0.0, -1.0, 1.0)[:, None]
    dim, known = row.size - 2, before.condition
    if rounds < dim:
        known = math.inf
    elif known == math.inf or is_due(rounds):
        known = _condition(factor, columns)
    else:
        known *= math.sqrt(float(np.max(columns[:dim] / before.columns[:dim])))
    return Triangle(np.asfortranarray(factor), columns, rounds, known)


def _condition(factor: Array, columns: Array) -> float:
    """K = ‖DR⁻¹‖_F, or ∞ where R is singular."""
    dim = columns.size - 2
    inverse, singular = dtrtri(np.asfortranarray(factor[:dim, :dim]))
    if singular:
        return math.inf
    size = math.sqrt(float(columns[:dim] @ np.vecdot(inverse, inverse)))
    return size * (1.0 + 1e-6) if math.isfinite(size) else math.inf


def _unit(columns: Array, rounds: int) -> float:
    """γ: how far a column of the data may have been moved, relatively."""
    return 8.0 * SAFETY * UNIT * (rounds + columns.size + 8) * math.sqrt(columns.size)


def predict(fit: Triangle, context: Array, norm: float = 0.0) -> Fitted:
    """The fit at a context: cost, width and √RSS are upper bounds whatever rounding did; not ready if it did much."""
    factor, reading, dim, rounds = fit.factor, fit.reading, context.size, float(fit.rounds)
    degrees = rounds - dim
    if reading is None:
        return Fitted(
            0.0, 0.0, 0.0, 0.0, max(degrees, 1.0), False, norm, rounds, fit.condition, context=context
        )  # fmt: skip
    padded = np.zeros(dim + 2)
    padded[:dim] = context
    direction = dtrsv(factor, padded, trans=1, overwrite_x=1)
    length = dnrm2(direction, n=dim)
    cost = round_up(ddot(direction, factor[:, dim], n=dim) + reading.slack * length)
    reward = ddot(direction, factor[:, dim + 1], n=dim)
    width = round_up(length * reading.stretch)
    rounding = max(reading.slack * max(length, 1.0), reading.raised)
    return Fitted(
        reward, cost, width, reading.spread, degrees, True, norm, rounds, fit.condition, rounding, context=context
    )  # fmt: skip


def volume(before: Any, fit: Triangle, seen: Any, known: Any, *, ridge: float) -> tuple[float, float]:
    """(an upper bound on ln det(I + G/λ), a lower bound on g_min), whatever rounding did; from `fit` alone."""
    dim = fit.columns.size - 2
    values = np.linalg.svd(fit.factor[:dim, :dim], compute_uv=False)
    moved = _unit(fit.columns, fit.rounds) * math.sqrt(float(np.sum(fit.columns[:dim])))
    largest = float(np.sum(np.log1p((values + moved) ** 2 / ridge)))
    return round_up(largest) + UNIT * dim, max(float(values[-1]) - moved, 0.0) ** 2
