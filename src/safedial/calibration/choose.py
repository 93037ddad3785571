"""Chooses the family of a curve by cross-validation, and its uncertainty by the bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safedial.calibration.curve_families import Array, Family, families
from safedial.calibration.fit import Data, Fit, Noise, fit_curve, scores

FOLDS = 5
GRID = np.linspace(0.0, 1.0, 41)
BAND = (0.05, 0.95)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A curve for one outcome.

    Attributes:
        fit: the chosen family, fitted to all rows.
        table: by family: free numbers, held-out loss per row, its difference from the best and the difference's
            standard error.
        grid, low, high: actions, and the 90 % band of g there by the bootstrap, widened to the rivals.
        error: ρ; in 95 % of bootstrap samples and for all rivals |c·g*(α)/ĝ(α) − 1| ≤ ρ at all doses of the log, where
            the constant c, which the coefficients absorb, makes the mean ratio 1.
        rivals: the other families within one standard error of the best; if there is none and the chosen one has no
            free number, so that the bootstrap has nothing to vary, the next best.
    """

    fit: Fit
    table: dict[str, dict[str, float]]
    grid: Array = field(repr=False)
    low: Array = field(repr=False)
    high: Array = field(repr=False)
    error: float
    rivals: tuple[str, ...]


def choose_curve(
    data: Data,
    *,
    noise: Noise,
    name: str = "auto",
    resamples: int = 100,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Chosen:
    """The simplest family whose held-out loss is within one standard error of the best, a spline only if no other is;
    then the bootstrap.

    Rows are assigned to folds at random. The standard error of the difference is over pairs of rows.
    """
    known = families(data.action)
    tried = known if name == "auto" else {name: known[name]}
    losses = {each: _held_out(family, data, noise, seed, progress) for each, family in tried.items()}
    best = min(losses, key=lambda each: float(losses[each].mean()))
    table = {each: _compared(tried[each], losses[each], losses[best]) for each in tried}
    near = [each for each, row in table.items() if row["difference"] <= row["error"] or each == best]
    chosen = min(near, key=lambda each: (each == "spline", tried[each].size, table[each]["loss"]))
    fit = fit_curve(tried[chosen], data, noise)
    curves = _resampled(fit, data, noise, family=tried[chosen], resamples=resamples, seed=seed, progress=progress)
    others = sorted((each for each in tried if each != chosen), key=lambda each: table[each]["loss"])
    close = [each for each in others if each in near] or others[: 1 if tried[chosen].size == 0 else 0]
    rivals = {each: fit_curve(tried[each], data, noise).curve for each in close}
    low, high = np.quantile([curve.effect(GRID) for curve in curves], BAND, axis=0)
    heights = [low, high, *(np.asarray(curve.effect(GRID)) for curve in rivals.values())]
    bootstrap = float(np.quantile(departures(fit, [curve.effect for curve in curves], data.action), 0.95))
    return Chosen(
        fit=fit,
        table=table,
        grid=GRID,
        low=np.min(heights, axis=0),
        high=np.max(heights, axis=0),
        error=max([bootstrap, *departures(fit, [curve.effect for curve in rivals.values()], data.action)]),
        rivals=tuple(rivals),
    )


def _held_out(family: Family, data: Data, noise: Noise, seed: int, progress: Any) -> Array:
    order = np.random.default_rng([seed, 1]).permutation(len(data.action))
    losses = np.empty(len(order))
    for part in np.array_split(order, FOLDS):
        fitted = fit_curve(family, data.rows(np.setdiff1d(order, part)), noise)
        losses[part] = scores(fitted, data.rows(part), noise)
        if progress:
            progress(1)
    return losses


def _compared(family: Family, losses: Array, best: Array) -> dict[str, float]:
    gaps = losses - best
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    return {"free": family.size, "loss": float(losses.mean()), "difference": float(gaps.mean()), "error": error}


def _resampled(
    fit: Fit, data: Data, noise: Noise, *, family: Family, resamples: int, seed: int, progress: Any
) -> list[Any]:
    rng, count = np.random.default_rng([seed, 2]), len(data.action)
    curves = []
    for _ in range(resamples):
        drawn = data.rows(rng.integers(0, count, count))
        curves.append(fit_curve(family, drawn, noise, start=fit.free).curve)
        if progress:
            progress(1)
    return curves


def departures(fit: Fit, effects: Sequence[Callable[[Any], Any]], actions: Array) -> list[float]:
    """The relative distance of each curve, given as a function, from the fitted one at the doses of the log."""
    doses = np.linspace(float(actions.min()), float(actions.max()), 50)
    weights = np.asarray(fit.curve.effect(actions))
    worst = []
    for effect in effects:
        constant = 1.0 / float(np.mean(np.asarray(effect(actions)) / weights))
        worst.append(float(np.max(np.abs(constant * effect(doses) / fit.curve.effect(doses) - 1.0))))
    return worst
