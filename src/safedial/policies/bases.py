"""Bases that are learned: the setting that a policy scales, as a function of the context.

A base is the protocol's setting times the exponential of a linear function of (1, x), by ridge regression, or of what a
user's regressor (an object with `fit` and `predict`) predicts. Whatever it says, the guarantee holds; a failure can
only cost reward, and what it predicts then counts as unknown.

Bases are learned with the time split: a base fitted when s rounds were decided may use all of them, and calibrates only
on rounds from s on. Splitting by parity instead is not valid here: the settings of the rounds that train depend on the
rounds that calibrate, so a learner could read off the calibration rounds and tolerate exactly those. Any base keeps the
guarantee; a good one earns more. The next one is fitted when there are a tenth more rounds.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from safedial.bounds.count_rule import is_calibrated
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array, where
from safedial.policies.table import Table

FEWEST = 50
"""The fewest rounds to which a user's model is fitted; many models fail with only a few."""

ALIKE = 1e-4
"""How far a user's model may answer a row among others otherwise than alone, relatively: rounding to 32 bits does."""

LARGEST_LOG = 30.0
"""A learned base is at most e^30 times the protocol's setting, or as little."""

FARTHEST = 4.0
"""A base learns that a round tolerated at most so many times what it was given, or the protocol's setting if that is
more: a cost near 0 is mostly error, and would otherwise say that the round tolerated a hundred times as much."""

FIRST_FIT = 10
"""The first fit is when there are so many rounds."""

GROWTH = 1.1
"""The next fit is when there are a tenth more rounds."""

NEVER = 2**40
"""More rounds than there are."""


def lesson(tolerated: Any, applied: Any, *, protocol: Any, start: Any, end: Any) -> Any:
    """What a base learns from a round: the logarithm of what it tolerated over the protocol's setting,
    neither far below its start nor far above the dial's end, what it was given and the protocol's setting.
    """
    most = np.minimum(FARTHEST * np.maximum(applied, protocol), 10.0 * end)
    return np.log(np.maximum(np.minimum(tolerated, most), 0.1 * start) / protocol)


class Ridge:
    """Sums for ridge regression of one target on `width` columns; the first is not penalised."""

    def __init__(self, lanes: tuple[int, ...], width: int, penalty: float, *, free: tuple[int, ...] = (0,)) -> None:
        """`free`: the columns that are not penalised."""
        self._penalty = penalty * np.eye(width)
        self._penalty[free, free] = 1e-9
        self.gram, self.moments = np.zeros((*lanes, width, width)), np.zeros((*lanes, width))

    def add(self, rows: Array, target: Any, known: Any) -> None:
        """One more row of each lane where it is known: (*lanes, width)."""
        rows = rows if known is True else rows * np.asarray(known)[..., None]
        self.gram += rows[..., :, None] * rows[..., None, :]
        self.moments += rows * np.where(known, target, 0.0)[..., None]

    def coef(self, size: Any = 1.0) -> Array:
        """The coefficients, (*lanes, width); the penalty is for columns divided by `size`."""
        gram = (
            self.gram / (np.asarray(size)[..., :, None] * np.asarray(size)[..., None, :])
            if np.ndim(size)
            else self.gram
        )
        gram, moments = gram + self._penalty, (self.moments / size)[..., None]
        try:
            found = np.linalg.solve(gram, moments)
        except np.linalg.LinAlgError:  # contexts so large and alike that the penalty is lost to rounding
            found = np.linalg.pinv(gram, hermitian=True) @ moments
        return np.asarray(found, dtype=float)[..., 0] / size


def with_one(rows: Array) -> Array:
    """(1, x) of contexts (*lanes, d)."""
    return np.concatenate([np.ones((*rows.shape[:-1], 1)), rows], axis=-1)


class Bases:
    """The bases of each lane, oldest first; the first, fitted on nothing, is the protocol itself.

    Columns of `fits`: how many rounds there were (`since`), how many of them count (`earlier`), how many lessons a
    user's model was fitted to (`told`), and the coefficients of (1, x). `current` is the row of the base in use.
    """

    def __init__(self, lanes: tuple[int, ...], dim: int, penalty: float) -> None:
        self.ridge = Ridge(lanes, 1 + dim, penalty)
        self.fits = Table(lanes, since=NEVER, earlier=NEVER, told=0, coef=(0.0, (1 + dim,)))
        self.fits.append()
        self.fits.since[..., 0] = self.fits.earlier[..., 0] = 0
        zero: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.current, self.next_fit = zero + 0, zero + FIRST_FIT
        self._lanes = np.arange(lanes[0]) if lanes else None

    @property
    def since(self) -> Any:
        """From which row on the rounds of the base in use count."""
        return self._now("since")

    @property
    def earlier(self) -> Any:
        """How many rounds before that would count."""
        return self._now("earlier")

    @property
    def coef(self) -> Array:
        """The coefficients of the base in use, (*lanes, 1 + d)."""
        return self.fits.coef[self.current] if self._lanes is None else self.fits.coef[self._lanes, self.current]

    def _now(self, name: str) -> Any:
        if self._lanes is None and not self.current:  # the protocol itself
            return 0
        column = getattr(self.fits, name)
        return column.item(self.current) if self._lanes is None else column[self._lanes, self.current]

    def leave_out(self, row: int, left: Any) -> None:
        """A round does not count, in these lanes."""
        fits = self.fits
        earlier, since = fits.rows("earlier"), fits.rows("since")
        earlier -= (since > row) & (since < NEVER) & np.asarray(left)[..., None]

    def renew(self, count: Any, rows: int, counted: Any, told: int) -> None:
        """Fit a base where it is due: `count` rounds were decided, `counted` of these `rows` count."""
        due = count >= self.next_fit
        if due is False or not np.any(due):
            return
        fits, row = self.fits, self.fits.append()
        for name, value in (("since", rows), ("earlier", counted), ("told", told)):
            column = getattr(fits, name)
            column[..., row] = where(due, value, column[..., row])
        fits.coef[..., row, :] = self.ridge.coef()
        following = np.maximum(count + 1, (GROWTH * np.asarray(count)).astype(np.int64))
        self.next_fit = int(following) if self._lanes is None else np.where(due, following, self.next_fit)

    def newest(self, total: Any, risk: float) -> Any:
        """The row of the newest base with enough rounds since its fit, of `total` that count."""
        first = 1 + (self.current if self._lanes is None else int(self.current.min()))
        if first >= self.fits.count:
            return self.current
        earlier = self.fits.rows("earlier")[..., first:]
        if (
            self._lanes is None
        ):  # a newer base has fewer rounds since its fit, so it is not ready if an older one is not
            found = self.current
            while found + 1 < self.fits.count and is_calibrated(total - earlier.item(found + 1 - first), total, risk):
                found += 1
            return found
        ready = is_calibrated(total[:, None] - earlier, total[:, None], risk)
        last = self.fits.count - 1 - np.argmax(ready[:, ::-1], axis=1)
        return np.where(ready.any(axis=1), np.maximum(last, self.current), self.current)


def scaled(protocol: Any, value: Any) -> Any:
    """The base at contexts with this prediction."""
    if type(value) is float:
        return protocol * math.exp(min(max(value, -LARGEST_LOG), LARGEST_LOG))
    return protocol * np.exp(np.clip(value, -LARGEST_LOG, LARGEST_LOG))


def predicted(coef: Array, context: Array) -> Any:
    """What coefficients (..., 1 + d) say of contexts (..., d).

    Not by BLAS, whose last digit can depend on where in memory an array begins, which loading changes.
    """
    found = coef[..., 0] + (coef[..., 1:] * context).sum(axis=-1)
    return found if found.ndim else float(found)


# --- A regressor of the user's

Fitted = Callable[[Array], Array]


def fit_own(model: Any, rows: Array, target: Array, early: Fitted) -> Fitted:
    """A copy of `model` fitted to rows (n, d), as a function of contexts (m, d); `early` if n is below `FEWEST`."""
    if len(target) < FEWEST:
        return early
    own = copy.deepcopy(model)
    try:
        own.fit(rows, target)
    except Exception as error:
        _warn("fit", error)
        return lambda contexts: np.full(len(contexts), np.nan)
    return lambda contexts: _predicted(own, contexts)


def _predicted(model: Any, rows: Array) -> Array:
    """The model's predictions; NaN for the rows on which it fails, found one by one."""
    try:
        return _one_each(model.predict(rows), len(rows))
    except Exception as error:
        _warn("predict", error)
    if len(rows) == 1:
        return np.full(1, np.nan)
    return np.concatenate([_predicted(model, rows[place : place + 1]) for place in range(len(rows))])


def try_out(model: Any, dim: int) -> None:
    """Refuse at the start a model that would fail at every refit: no `fit` or `predict`, or a result of wrong shape;
    and one whose prediction at a context depends on the other rows, which no proof allows.

    Later failures only cost reward: such predictions count as unknown.
    """
    able = callable(getattr(model, "fit", None)) and callable(getattr(model, "predict", None))
    able = able and not isinstance(model, type)
    require(able, "regressor", model, "must be an object with fit(X, y) and predict(X), like scikit-learn's regressors")
    rng = np.random.default_rng(0)
    rows, target = rng.standard_normal((FEWEST, dim)), rng.random(FEWEST)
    own = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _trying("fit", own.fit, rows, target)
        together = _one_each(_trying("predict", own.predict, rows[:5]), 5)
        alone = np.concatenate([_predicted(own, rows[place : place + 1]) for place in range(5)])
    same = np.isnan(alone) | np.isclose(together, alone, rtol=ALIKE, atol=1e-9, equal_nan=True)
    rule = "must predict each row alike, alone and among others"
    require(np.all(same), "regressor", model, rule, "past and new rounds are compared by it")


def _trying(step: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise InvalidInput(f"regressor: its {step} failed on a trial ({_said(error)})") from error


def _warn(step: str, error: Exception) -> None:
    words = f"regressor: its {step} failed ({_said(error)}); such predictions count as unknown"
    warnings.warn(words, UserWarning, stacklevel=2)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _one_each(answer: Any, count: int) -> Array:
    values = np.asarray(answer)
    fine = values.shape == (count,) and values.dtype.kind in "iuf"
    given = f"an answer of shape {values.shape} and type {values.dtype}"
    require(fine, "regressor", given, f"predict must return one number for each of {count} contexts")
    return values.astype(float)
