"""Families of dose curves that can be fitted: how free numbers become the curve's parameters.

A logistic map takes the real line to the range of each parameter, so that a fit needs no bounds: low·(high/low)^σ(t)
for scales, low + (high − low)·σ(t) for locations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.dose import DoseCurve, hill, identity, logistic, power, tabulated

Array = NDArray[Any]

KNOTS = 4
"""The most inner knots of a spline."""

FULL = 0.95
"""A spline is fitted only if doses reach this share of the dial, because its last piece is free."""


class Family(NamedTuple):
    """A family: `make` turns its `size` free numbers into a curve; fits begin at `starts`."""

    name: str
    size: int
    make: Callable[[Array], DoseCurve]
    starts: tuple[tuple[float, ...], ...]


def families(actions: Array) -> dict[str, Family]:
    """The families that these dose levels can determine: one level for the height, one more for every free number.

    >>> list(families(np.array([0.2, 1.0, 0.2])))
    ['identity', 'power', 'emax', 'spline']
    """
    levels = np.unique(actions[actions > 0.0])
    every = [
        Family("identity", 0, lambda _: identity(), ((),)),
        Family("power", 1, lambda free: power(_scale(free[0], 0.1, 10.0)), ((0.0,),)),
        Family("emax", 1, lambda free: hill(_scale(free[0], 0.01, 100.0)), ((-0.5,), (1.0,))),
        Family("logistic", 2, _logistic, ((0.0, 0.0), (-1.0, 1.0))),
        Family("hill", 2, _hill, ((-0.5, 0.0), (-0.5, 1.5))),
    ]
    inner = _knots(levels)
    if inner.size and levels[-1] >= FULL:
        every.append(_spline(np.concatenate([[0.0], inner, [1.0]])))
    return {each.name: each for each in every if each.size < levels.size}


def _knots(levels: Array) -> Array:
    """Inner knots: the lower levels themselves if they are few, else the levels nearest to even spacing."""
    lower = levels[levels < FULL]
    if lower.size <= KNOTS:
        return lower
    even = np.linspace(0.0, 1.0, KNOTS + 2)[1:-1]
    return np.unique(lower[np.argmin(np.abs(lower[:, None] - even), axis=0)])


def _logistic(free: Array) -> DoseCurve:
    return logistic(-0.5 + 2.0 * _share(free[0]), _scale(free[1], 0.5, 40.0))


def _hill(free: Array) -> DoseCurve:
    return hill(_scale(free[0], 0.01, 100.0), _scale(free[1], 0.2, 10.0))


def _spline(knots: Array) -> Family:
    """Monotone through the knots: it rises by shares e^t/Σe^t, the last t being 0; fits start at the identity."""

    def make(free: Array) -> DoseCurve:
        shares = np.exp(np.clip(np.append(free, 0.0), -8.0, 8.0))
        heights = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
        heights[-1] = 1.0
        return tabulated(knots.tolist(), heights.tolist())

    steps = np.log(np.diff(knots))
    return Family("spline", len(knots) - 2, make, (tuple(float(step) for step in steps[:-1] - steps[-1]),))


def _share(free: float) -> float:
    return float(1.0 / (1.0 + np.exp(-np.clip(free, -30.0, 30.0))))


def _scale(free: float, low: float, high: float) -> float:
    return float(low * (high / low) ** _share(free))
