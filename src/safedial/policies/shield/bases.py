"""Bases that are learned, with the time split.

A base fitted when s rounds were known may use all of them, and calibrates only on rounds from s on. Splitting by parity
instead is not valid here: the settings of the rounds that train depend on the rounds that calibrate, so a learner could
read off the calibration rounds and tolerate exactly those. Any base keeps the promise; a good one earns more.

A base is a linear function of (1, x): the logarithm of b(x) over the protocol's setting. Ridge regression, for a whole
batch at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.count_rule import is_calibrated

Array = NDArray[np.float64]

LARGEST_LOG = 30.0
"""A learned base is at most e^30 times the protocol's setting, or as little."""

FARTHEST = 4.0
"""A base learns that a round tolerated at most so many times what it was given, or the protocol's setting if that is
more: a cost near 0 is mostly error, and would otherwise say that the round tolerated a hundred times as much."""

FIRST_FIT = 10
"""The first fit is when there are so many rounds."""

GROWTH = 1.1
"""The next fit is when there are a tenth more rounds."""


def target(tolerated: Any, applied: Any, *, protocol: Any, start: Any, end: Any) -> Any:
    """What a base learns from a round: the logarithm of what it tolerated over the protocol's setting,
    neither far below its start nor far above the dial's end, what it was given and the protocol's setting.
    """
    most = np.minimum(FARTHEST * np.maximum(applied, protocol), 10.0 * end)
    return np.log(np.maximum(np.minimum(tolerated, most), 0.1 * start) / protocol)


class Fit(NamedTuple):
    """A base: how many rounds were known when it was fitted, and its coefficients (lanes, 1 + d); with a user's model,
    how many outcomes it was fitted to, and the model's predictions at contexts (1, n, d).
    """

    since: int
    coef: Array
    told: int = 0
    own: Any = None

    def value(self, context: Array) -> Array:
        """Its prediction at contexts (lanes, ..., d)."""
        coef = self.coef.reshape(len(self.coef), *([1] * (context.ndim - 2)), -1)
        return coef[..., 0] + np.vecdot(context, coef[..., 1:])


class Ridge:
    """Sums for ridge regression of several targets on (1, x), one lane for each sequence; 1 is not penalised."""

    def __init__(self, lanes: int, dim: int, targets: int, penalty: float) -> None:
        self.gram = np.tile(penalty * np.eye(1 + dim), (lanes, 1, 1))
        self.gram[:, 0, 0] = 1e-9
        self.moments = np.zeros((lanes, 1 + dim, targets))

    def add(self, context: Array, targets: Array, known: Any) -> None:
        """One more round of each lane where it is known: contexts (lanes, d), targets (lanes, k)."""
        rows = np.concatenate([np.ones((len(context), 1)), context], axis=1) * known[:, None]
        self.gram += rows[:, :, None] * rows[:, None, :]
        self.moments += rows[:, :, None] * np.where(known[:, None], targets, 0.0)[:, None, :]

    def coef(self) -> Array:
        """The coefficients, (lanes, 1 + d, k)."""
        try:
            return np.asarray(np.linalg.solve(self.gram, self.moments), dtype=float)
        except np.linalg.LinAlgError:  # contexts so large and alike that the penalty is lost to rounding
            return np.asarray(np.linalg.pinv(self.gram, hermitian=True) @ self.moments, dtype=float)


class Bases:
    """The bases fitted so far, oldest first; the first, fitted on nothing, predicts 0."""

    def __init__(self, lanes: int, dim: int) -> None:
        self.waiting = [Fit(0, np.zeros((lanes, 1 + dim)))]
        self.next_fit = FIRST_FIT

    def add(self, count: int, coef: Array) -> None:
        self.waiting.append(Fit(count, coef))
        self.next_fit = max(count + 1, int(GROWTH * count))

    def current(self, count: int, risk: float) -> Fit:
        """The newest base with enough rounds since its fit; older ones will not be asked for again."""
        ready = [place for place, fit in enumerate(self.waiting) if is_calibrated(count - fit.since, count, risk)]
        self.waiting = self.waiting[max(ready, default=0) :]
        return self.waiting[0]
