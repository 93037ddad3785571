"""How an outcome rises with the setting, given the context: slopes with their errors, in bands of the setting.

    y = h(x) + Σ_b slope_b·(how much of band b lies below s) + noise        h: the context, its squares and products

With y = ln cost and s = ln setting the slopes are elasticities. Rows of one unit (a patient) may be compared with each
other alone: unit means are then taken off every column. Errors allow for noise of any size at any row, for correlated
rows of a unit, and for single rows with much influence (HC3, and its form for clusters). For rounds that a policy
played, what it scaled belongs to the context; what remains of the setting is how the scale moved.

A slope is an average over units. `spread` is the standard deviation of the units' own slopes: within units from the
slopes themselves; without units from noise that grows with the distance of settings, where that is clearly seen.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.model.namespace import Array

BANDS = 3
ROWS_PER_BAND = 20
ROWS_PER_TERM = 5
"""Rows needed per term before squares and products of the context are used."""

NARROW = 0.02
"""The least width of a band, as a share of all settings: many rounds may have the start."""

FAINT = 1e-6
"""A slope is told if context and other bands leave more than this share of its column."""


class Slope(NamedTuple):
    """A slope over settings from `start` to `end`, its standard error and the degrees of freedom."""

    start: float
    end: float
    estimate: float
    error: float
    free: float

    def interval(self, level: float = 0.05) -> tuple[float, float]:
        """Student's interval, which misses with probability `level`."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.free, 1.0 - 0.5 * level)) * self.error
        return self.estimate - half, self.estimate + half


class Slopes(NamedTuple):
    """The slope over all settings, those of the bands (lowest first), and the spread of the units' own slopes."""

    whole: Slope
    bands: tuple[Slope, ...]
    spread: float


def slopes(outcome: Array, setting: Array, context: Array, *, unit: Any = None) -> Slopes | None:
    """Slopes of the outcome in the setting, for rows (n,) and contexts (n, d); None if the settings say nothing.

    >>> rng = np.random.default_rng(0)
    >>> weight, dose = rng.uniform(-1, 1, (2, 300))
    >>> found = slopes(2.0 * dose + weight**2 + 0.1 * rng.normal(size=300), dose, weight[:, None])
    >>> [round(end, 1) for end in found.whole.interval()], len(found.bands)
    ([2.0, 2.0], 3)
    """
    groups = np.arange(len(setting)) if unit is None else np.unique(unit, return_inverse=True)[1]
    ends = _edges(setting)
    parts = [np.clip(setting, low, high) - low for low, high in pairwise(ends)]
    columns, terms = np.column_stack([setting, *parts]), context_terms(context)
    if unit is not None:
        outcome, columns, terms = (_within(part, groups) for part in (outcome, columns, terms))
        terms = basis(terms[:, np.linalg.norm(terms, axis=0) > FAINT])  # what is constant within units is gone
    whole = _fit(outcome, columns[:, :1], terms, groups)
    if not whole.clear[0]:
        return None
    bands = _fit(outcome, columns[:, 1:], terms, groups)
    spread = _spread_between(whole, setting) if unit is None else _spread_within(whole, groups)
    found = [bands.at(place, pair) for place, pair in enumerate(pairwise(ends)) if bands.clear[place]]
    return Slopes(whole.at(0, (ends[0], ends[-1])), tuple(found), spread)


class _Fit(NamedTuple):
    """Slopes of columns with their errors, whether each can be told, the first column and what is left unexplained."""

    slope: Array
    error: Array
    clear: NDArray[np.bool_]
    free: float
    column: Array
    left: Array

    def at(self, place: int, ends: tuple[float, float]) -> Slope:
        return Slope(*ends, float(self.slope[place]), float(self.error[place]), self.free)


def _fit(outcome: Array, columns: Array, terms: Array, groups: Any) -> _Fit:
    """Least squares on the columns, with the terms' part taken off both."""
    rows, told = (part - terms @ (terms.T @ part) for part in (columns, outcome))
    inverse = np.linalg.pinv(rows.T @ rows, rcond=1e-10, hermitian=True)
    slope = inverse @ (rows.T @ told)
    left = told - rows @ slope
    leverage = (terms**2).sum(axis=1) + np.vecdot(rows @ inverse, rows)
    sums = np.zeros((groups.max() + 1, columns.shape[1]))
    np.add.at(sums, groups, rows * (left / np.maximum(1.0 - leverage, 0.05))[:, None])
    error = np.sqrt(np.maximum((inverse @ (sums.T @ sums) @ inverse).diagonal(), 0.0))
    own = inverse.diagonal() * (columns**2).sum(axis=0)
    clear = (own > 0.0) & (own < 1.0 / FAINT) & (error > 0.0)
    used = terms.shape[1] + columns.shape[1] if len(sums) == len(left) else 1
    return _Fit(slope, error, clear, float(max(len(sums) - used, 1)), rows[:, 0], left)


def _spread_within(fit: _Fit, groups: Any) -> float:
    """√τ² by moments: a unit's score has variance τ²S² + σ²S, S its sum of squares; σ² from the units' own lines."""
    size, score, total = (
        np.bincount(groups, weights=part) for part in (fit.column**2, fit.column * fit.left, fit.left**2)
    )
    used = size > FAINT * size.max()
    free = (np.bincount(groups)[used] - 2).clip(min=0).sum()
    own = (total[used] - score[used] ** 2 / size[used]).sum()
    noise = own / free if free else 0.0
    return math.sqrt(max(((score[used] ** 2).sum() - noise * size[used].sum()) / (size[used] ** 2).sum(), 0.0))


def _spread_between(fit: _Fit, setting: Array) -> float:
    """√ of the coefficient of s² in squared residuals, wherever the units' lines cross; 0 unless twice its error."""
    middle = setting - setting.mean()
    design = np.column_stack([np.ones(len(setting)), middle, middle**2])
    inverse = np.linalg.pinv(design.T @ design)
    square = fit.left**2
    coef = inverse @ (design.T @ square)
    scores = design * (square - design @ coef)[:, None]
    error = math.sqrt(max(float((inverse @ (scores.T @ scores) @ inverse)[2, 2]), 0.0))
    return math.sqrt(coef[2]) if coef[2] > 2.0 * error else 0.0


def _edges(setting: Array) -> list[float]:
    """The ends of bands with equally many rows, each with `ROWS_PER_BAND` at least."""
    count = max(1, min(BANDS, len(setting) // ROWS_PER_BAND))
    first, *inner, last = np.quantile(setting, np.linspace(0.0, 1.0, count + 1)).tolist()
    marks, gap = [first], NARROW * (last - first)
    for mark in inner:
        if mark - marks[-1] > gap and last - mark > gap:
            marks.append(mark)
    return [*marks, last]


def _within(values: Array, groups: Any) -> Array:
    """Each row less the mean of its unit."""
    counts = np.bincount(groups)
    columns = values.reshape(len(values), -1)
    means = np.column_stack([np.bincount(groups, weights=column) / counts for column in columns.T])
    return values - means[groups].reshape(values.shape)


def context_terms(context: Array) -> Array:
    """A basis of 1, the context, and its squares and products where there are rows enough."""
    first, second = np.triu_indices(context.shape[1])
    plain = basis(np.column_stack([np.ones(len(context)), context]))
    rich = basis(np.column_stack([plain, context[:, first] * context[:, second]]))
    return rich if len(context) >= ROWS_PER_TERM * (rich.shape[1] + 2) else plain


def basis(columns: Array) -> Array:
    """Orthonormal columns with the same span; units and repeated columns do not matter."""
    if not columns.shape[1]:
        return columns
    scaled = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    return left[:, sizes > 1e-9 * sizes[0]]
