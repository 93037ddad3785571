"""The rounds that HP-Conformal remembers, in order of decision, for a whole batch at once.

A round's outcome may come late (`fill`) or never: until then its cost is +∞. Which rounds calibrate and when to refit
are functions of the round's number alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.conformal import p_values
from safedial.errors import InvalidInput, require
from safedial.policies.conformal.frozen import Frozen, Setup, calibrates, freeze, score

Array = NDArray[np.float64]

FIRST_FIT = 20
GROWTH = 0.1
"""The first refit is after 20 rounds; then each time there are a tenth more (of the window, once it is full)."""

PLAIN = Setup()
COLUMNS = ("context", "reward", "cost", "label")


class Rounds:
    """Updated in place; `batch` is the shape before the rows, () for one learner."""

    def __init__(self, dim: int, *, ridge: Any, batch: tuple[int, ...] = (), setup: Setup = PLAIN) -> None:
        self.dim, self.ridge, self.batch, self.setup = dim, float(ridge), batch, setup
        self.count = self.dropped = self.fitted = 0
        self.next_fit = FIRST_FIT
        self.context, self.reward, self.cost = (_room(64, batch, shape) for shape in ((dim,), (), ()))
        self.label = _room(64, batch, (), np.int64)
        self.labels: dict[Hashable, int] = {}
        self.crowd = 100
        self.known = np.zeros((*batch, 0), dtype=bool)
        self.frozen: Frozen | None = None
        self.capital = exchangeability.init(batch)
        self.alarmed: Any = np.zeros(batch, dtype=bool)

    def append(self, context: Any, reward: Any, cost: Any) -> int:
        """Add a round, its cost +∞ where the outcome is not known; its number, from 0."""
        place = self.count - self.dropped
        if place == self.cost.shape[-1]:
            self._move(0, max(64, 2 * place))
        self.context[..., place, :] = context
        self.reward[..., place], self.cost[..., place] = reward, cost
        if self.setup.group is not None:
            self.label[..., place] = self.label_of(context, learn=True)
        self.count += 1
        return self.count - 1

    def fill(self, number: int, reward: float, cost: float) -> None:
        """The outcome of a round that was added without one; a round that left the window stays forgotten."""
        if number >= self.dropped:
            self.reward[..., number - self.dropped], self.cost[..., number - self.dropped] = reward, cost

    def refit(self) -> None:
        """Freeze new predictors, scores and groups from the rounds in the window, and forget what left it.

        The latest `lag` rounds have no part yet: their outcomes may be on their way.
        """
        last = max(self.dropped, self.count - self.setup.lag)
        drop = max(0, last - self.dropped - self.setup.window)
        part = slice(drop, last - self.dropped)
        frozen = self._freeze(self.dropped + drop, part, np.isfinite(self.cost[..., part]))
        if drop:
            self._move(drop, self.cost.shape[-1] - drop)
            self.dropped += drop
        self.known = np.isfinite(self.cost[..., : last - self.dropped])
        self.frozen, self.fitted = frozen, last
        self.next_fit = self.count + max(1, int(np.ceil(GROWTH * (self.count - self.dropped) - 1e-9)))

    def _move(self, first: int, size: int) -> None:
        """The rows from `first` on, in room for `size`."""
        axis = len(self.batch)
        for name in COLUMNS:
            old = getattr(self, name)
            kept = old[(slice(None),) * axis + (slice(first, None),)]
            new = _room(size, self.batch, old.shape[axis + 1 :], old.dtype)
            new[(slice(None),) * axis + (slice(0, kept.shape[axis]),)] = kept
            setattr(self, name, new)

    def refreeze(self) -> None:
        """What the last refit froze, again, from the rows and what was known of them then."""
        if self.fitted:
            self.frozen = self._freeze(self.dropped, slice(0, self.fitted - self.dropped), self.known)

    def _freeze(self, first: int, part: slice, known: Any) -> Frozen:
        cost = np.where(known, self.cost[..., part], np.inf)
        numbers = np.arange(first, first + known.shape[-1])
        context, reward, label = self.context[..., part, :], self.reward[..., part], self.label[..., part]
        return freeze(self.setup, self.ridge, numbers, context, reward, cost, label)

    def code(self, context: Any, benefit: Any) -> Any:
        """The group of rounds at `context`: twice the label's number, and one more where benefit is expected."""
        return 2 * self.label_of(context, learn=False) + (benefit >= 0.0)

    def label_of(self, context: Any, *, learn: bool) -> Any:
        """The number of the user-given group of each context; a group never seen is added, or is one past the last."""
        group = self.setup.group
        if group is None:
            return 0
        found = [self.name_of(vector) for vector in np.reshape(context, (-1, self.dim))]
        if learn:
            numbers = [self.labels.setdefault(each, len(self.labels)) for each in found]
            if self.crowd <= len(self.labels):
                self.crowd *= 10
                words = f"group has {len(self.labels)} labels so far; each needs rounds of its own, so few get a bound"
                warnings.warn(words, UserWarning, stacklevel=2)
        else:
            numbers = [self.labels.get(each, len(self.labels)) for each in found]
        return np.array(numbers, dtype=np.int64).reshape(np.shape(context)[:-1])

    def name_of(self, context: Any) -> Hashable:
        """The label of one context: a column's value, or what the user's function says."""
        group: Any = self.setup.group
        if isinstance(group, int):
            return float(context[group])
        try:
            label = group(np.array(context))
        except Exception as error:
            raise InvalidInput(f"group: failed on a context ({type(error).__name__}: {error})") from error
        label = label.item() if isinstance(label, np.generic) else label
        fine = isinstance(label, (str, int, float)) and label == label
        require(fine, "group", label, "must return a text or a number for each context")
        return label

    def watch(self) -> None:
        """Bet on the calibration rounds since the last refit, in order, under the predictors of that time."""
        frozen, first = self.frozen, self.fitted - self.dropped
        if frozen is None:
            return
        last = max(self.fitted, self.count - self.setup.lag)
        held = first + np.flatnonzero(calibrates(np.arange(self.fitted, last), self.setup.form))
        rows, cost = self.context[..., held, :], self.cost[..., held]
        scores = score(cost, frozen.cost(rows), frozen.scale(rows))
        codes = self.code(rows, frozen.reward(rows))
        chances = p_values(frozen.scores, frozen.codes, scores, codes)
        for step in range(held.size):
            self.capital = exchangeability.update(self.capital, chances[..., step])
            self.alarmed = self.alarmed | exchangeability.alarm(self.capital)


def _room(size: int, batch: tuple[int, ...], shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Zeros (*batch, size, *shape), laid out row after row for the whole batch, as rows are written."""
    return np.moveaxis(np.zeros((size, *batch, *shape), dtype), 0, len(batch))
