"""From vectors to contexts: centred, whitened, extended by three numbers, and of norm at most 1.

Raw embeddings are nearly parallel, so they are centred, rotated to their principal axes, and divided by the standard
deviation of each axis, but at least by that of an axis with `floor` times the largest variance. With a floor of 1e-6
nearly every axis gets the same variance; with 1 all keep their own. Everything is fitted only on the fit part.

The three numbers are a constant, the kind of the next step (+1 discharge, −1 charge; it is planned, so it is known) and
the mean temperature of the last step, standardised. The paper also adds three, but does not say which.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require

Array = NDArray[np.float64]

LONGEST = 0.999
"""Contexts are divided by this quantile of the fit part's norms; longer ones are shortened to norm 1."""


class Contexts(NamedTuple):
    """`rows` (n, d), norms at most 1; `shortened`: the share of rows that were longer."""

    rows: Array
    shortened: float


def make_contexts(vectors: Array, kind: Any, temperature: Array, fit: Any, *, floor: float) -> Contexts:
    """Contexts of all rounds; all estimates come from the rounds marked by `fit`."""
    check_floor(floor)
    require(fit.any(), "split", "fit", "has no rounds")
    centred = vectors - vectors[fit].mean(axis=0)
    values, axes = np.linalg.eigh(centred[fit].T @ centred[fit] / max(int(fit.sum()) - 1, 1))
    largest = max(float(values[-1]), 1e-300)
    white = centred @ (axes / np.sqrt(np.maximum(values, floor * largest)))
    mean, spread = float(np.nanmean(temperature[fit])), float(np.nanstd(temperature[fit]))
    warmth = np.nan_to_num((temperature - mean) / max(spread, 1e-12))
    mode = np.where(np.asarray(kind) == "discharge", 1.0, -1.0)
    rows = np.column_stack([white, np.ones(len(white)), mode, warmth])
    norms = np.linalg.norm(rows, axis=1)
    unit = float(np.quantile(norms[fit], LONGEST))
    scaled = rows / np.maximum(norms, unit)[:, None] * (1.0 - 1e-12)
    return Contexts(scaled, float(np.mean(norms > unit)))


def halves(group: Any, start: Any, how: str) -> Any:
    """Which rounds are for fitting: the first half of each battery, or of the calendar. Rounds are in time order."""
    check_split(how)
    count = len(group)
    if how == "calendar":
        require(
            not np.isnat(np.asarray(start, dtype="datetime64[ns]")).any(), "split", how, "needs the start of each step"
        )
        rank = np.argsort(np.argsort(np.asarray(start), kind="stable"), kind="stable")
        return rank < count // 2
    fit = np.zeros(count, dtype=bool)
    names = np.asarray(group)
    for name in np.unique(names):
        mine = np.flatnonzero(names == name)
        fit[mine[: mine.size // 2]] = True
    return fit


def check_floor(floor: float) -> None:
    require(0.0 < floor <= 1.0, "floor", floor, "must lie in (0, 1]")


def check_split(how: str) -> None:
    require(how in ("battery", "calendar"), "split", how, "must be 'battery' or 'calendar'")
