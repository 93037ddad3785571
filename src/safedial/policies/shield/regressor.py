"""Regressors of the user's, objects with `fit` and `predict`, from which HP-Shield learns a base.

Whatever a regressor says, the promise holds; a failure can only cost reward, and what it predicts then counts as
unknown.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, require

Array = NDArray[np.float64]
Fitted = Callable[[Array], Array]

FEWEST = 50
"""The fewest rounds to which a user's model is fitted; many models fail with only a few."""

ALIKE = 1e-4
"""How far a user's model may answer a row among others otherwise than alone, relatively: rounding to 32 bits does."""


def fit_own(model: Any, rows: Array, target: Array, early: Fitted) -> Fitted:
    """A copy of `model` fitted to rows (n, d), as a function of contexts (1, m, d); `early` if n is below `FEWEST`."""
    if len(target) < FEWEST:
        return early
    own = copy.deepcopy(model)
    try:
        own.fit(rows, target)
    except Exception as error:
        _warn("fit", error)
        return lambda contexts: np.full(contexts.shape[:-1], np.nan)
    return lambda contexts: _predicted(own, contexts[0])[None]


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
