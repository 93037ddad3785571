"""The rounds that HP-Conformal remembers, in order of decision, for a whole batch at once.

A round's outcome may come late (`fill`) or never: until then its cost is +∞. A round that is void for an unrelated
reason is left out. Which rounds calibrate and when to refit depend only on the round's number, never on outcomes:
otherwise the scores would not be exchangeable.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np

from safedial.core import exchangeability
from safedial.core.conformal import p_values
from safedial.errors import InvalidInput, require
from safedial.policies.conformal.frozen import Frozen, Past, Setup, calibrates, freeze, score

FIRST_FIT = 20
GROWTH = 0.1
"""The first refit is after 20 rounds; then whenever rounds have grown by a tenth (of the window, once it is full)."""

PLAIN = Setup()
COLUMNS = ("context", "reward", "cost", "label")

TRIED = 10
"""`reach` uses the 10th largest applied intensity with a known outcome, so that one odd round does not move it."""


class Rounds:
    """Updated in place; `batch` is the shape before the rows, () for one learner.

    `history` is how many of the first rounds only train. `left` maps the number of each round that is left out to
    whether the last refit already left it out. `tried` holds the largest applied intensities with a known outcome,
    ascending, at most `TRIED`.
    """

    def __init__(self, dim: int, *, ridge: Any, batch: tuple[int, ...] = (), setup: Setup = PLAIN) -> None:
        self.dim, self.ridge, self.batch, self.setup = dim, float(ridge), batch, setup
        self.count = self.dropped = self.fitted = 0
        self.next_fit = FIRST_FIT
        self.context, self.reward, self.cost = (_room(64, batch, shape) for shape in ((dim,), (), ()))
        self.label = _room(64, batch, (), np.int64)
        self.columns = (*COLUMNS, "measured") if setup.needs_information else COLUMNS
        self.measured = _room(64 if setup.needs_information else 0, batch, ())
        self.history = 0
        self.left: dict[int, bool] = {}
        self.tried: list[float] = []
        self.labels: dict[Hashable, int] = {}
        self.crowd = 100
        self.known = np.zeros((*batch, 0), dtype=bool)
        self.frozen: Frozen | None = None
        self.capital = exchangeability.init(batch)
        self.alarmed: Any = np.zeros(batch, dtype=bool)

    def append(self, context: Any, reward: Any, cost: Any) -> int:
        """Add a round and return its number, from 0; the cost is +∞ if the outcome is unknown."""
        place = self.count - self.dropped
        if place == self.cost.shape[-1]:
            self._move(0, max(64, 2 * place))
        self.context[..., place, :] = context
        self.reward[..., place], self.cost[..., place] = reward, cost
        if self.setup.group is not None:
            self.label[..., place] = self.label_of(context, learn=True)
        self.count += 1
        return self.count - 1

    def fill(self, number: int, reward: float, cost: float, *, measured: float = 0.0, intensity: float = 0.0) -> None:
        """Add the outcome of a round that had none; ignored if the round has left the window or is left out."""
        if number < self.dropped or number in self.left:
            return
        place = number - self.dropped
        self.reward[..., place], self.cost[..., place] = reward, cost
        if self.setup.needs_information:
            self.measured[..., place] = measured
            self.tried = sorted([*self.tried, intensity])[-TRIED:]

    def leave_out(self, number: int) -> None:
        """Leave out a round without a known outcome: from the next refit on it neither calibrates nor trains."""
        if number >= self.dropped and not np.isfinite(self.cost[..., number - self.dropped]).any():
            self.left[number] = False

    @property
    def tenth(self) -> float | None:
        """The 10th largest applied intensity with a known outcome; None before there are ten."""
        return self.tried[0] if len(self.tried) == TRIED else None

    def calibrates(self, numbers: Any) -> Any:
        """Which of the numbered rounds calibrate."""
        return calibrates(numbers) & (numbers >= self.history)

    def refit(self) -> None:
        """Freeze new predictors, scores and groups from the rounds in the window, and forget older rounds.

        The latest `lag` rounds are not used yet, because their outcomes may still arrive.
        """
        last = max(self.dropped, self.count - self.setup.lag)
        drop = max(0, last - self.dropped - self.setup.window)
        part = slice(drop, last - self.dropped)
        self.left = {number: True for number in self.left if number >= self.dropped + drop}
        frozen = self._freeze(self.dropped + drop, part, np.isfinite(self.cost[..., part]))
        if drop:
            self._move(drop, self.cost.shape[-1] - drop)
            self.dropped += drop
        self.known = np.isfinite(self.cost[..., : last - self.dropped])
        self.frozen, self.fitted = frozen, last
        own = self.count - max(self.dropped, self.history)
        # 1e-9: rounding of GROWTH * own must not delay a refit by a round.
        grown = self.count + max(1, int(np.ceil(GROWTH * own - 1e-9)))
        self.next_fit = max(grown, self.history + FIRST_FIT)

    def _move(self, first: int, size: int) -> None:
        """Move the rows from `first` on into new arrays with room for `size`."""
        axis = len(self.batch)
        for name in self.columns:
            old = getattr(self, name)
            kept = old[(slice(None),) * axis + (slice(first, None),)]
            new = _room(size, self.batch, old.shape[axis + 1 :], old.dtype)
            new[(slice(None),) * axis + (slice(0, kept.shape[axis]),)] = kept
            setattr(self, name, new)

    def refreeze(self) -> None:
        """Rebuild what the last refit froze, from the rows and what was known then.

        Files do not hold the predictors. A new refit on loading would use later outcomes, and the loaded learner would
        decide differently from the saved one.
        """
        if self.fitted:
            self.frozen = self._freeze(self.dropped, slice(0, self.fitted - self.dropped), self.known)

    def _freeze(self, first: int, part: slice, known: Any) -> Frozen:
        numbers = np.arange(first, first + known.shape[-1])
        past = Past(
            numbers,
            self.context[..., part, :],
            self.reward[..., part],
            np.where(known, self.cost[..., part], np.inf),
            self.label[..., part],
            self.measured[part] if self.setup.needs_information else None,
            self.history,
        )
        gone = np.isin(numbers, [number for number, told in self.left.items() if told])
        return freeze(self.setup, self.ridge, _without(past, gone) if gone.any() else past)

    def code(self, context: Any, benefit: Any) -> Any:
        """The group of rounds at `context`: twice the label's number, plus one if benefit is expected, by sign."""
        return 2 * self.label_of(context, learn=False) + (self.setup.signed & (benefit >= 0.0))

    def label_of(self, context: Any, *, learn: bool) -> Any:
        """The number of each context's user-defined group; a new group is added if `learn`, else one past the last."""
        group = self.setup.group
        if group is None:
            return 0
        found = [self.name_of(vector) for vector in np.reshape(context, (-1, self.dim))]
        if learn:
            numbers = [self.labels.setdefault(each, len(self.labels)) for each in found]
            if self.crowd <= len(self.labels):
                self.crowd *= 10
                words = f"group has {len(self.labels)} labels so far; each needs its own rounds, so few get a bound"
                warnings.warn(words, UserWarning, stacklevel=2)
        else:
            numbers = [self.labels.get(each, len(self.labels)) for each in found]
        return np.array(numbers, dtype=np.int64).reshape(np.shape(context)[:-1])

    def name_of(self, context: Any) -> Hashable:
        """The label of one context: a column's value, or the result of the user's function."""
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

    def chances(self) -> tuple[Any, Any]:
        """The numbers and the p-values of the calibration rounds since the last refit, under its predictors."""
        frozen, first = self.frozen, self.fitted - self.dropped
        last = max(self.fitted, self.count - self.setup.lag)
        held = np.flatnonzero(self.calibrates(np.arange(self.fitted, last)))
        if frozen is None:
            return held[:0], np.empty((*self.batch, 0))
        rows, cost = self.context[..., first + held, :], self.cost[..., first + held]
        scores = score(cost, frozen.cost(rows))
        codes = self.code(rows, frozen.reward(rows))
        return self.fitted + held, p_values(frozen.scores, frozen.scored, scores, codes)

    def watch(self) -> None:
        """Bet on the calibration rounds since the last refit, in order, with the predictors of that refit."""
        numbers, chances = self.chances()
        for step in range(len(numbers)):
            self.capital = exchangeability.update(self.capital, chances[..., step])
            self.alarmed = self.alarmed | exchangeability.alarm(self.capital)


def _without(past: Past, gone: Any) -> Past:
    """The rounds that are not left out."""
    kept = np.flatnonzero(~gone)
    rows = {name: getattr(past, name)[..., kept] for name in ("numbers", "reward", "cost", "label")}
    measured = None if past.measured is None else past.measured[kept]
    return past._replace(context=past.context[..., kept, :], measured=measured, **rows)


def _room(size: int, batch: tuple[int, ...], shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Zeros (*batch, size, *shape), laid out so that one round of the whole batch is contiguous, as rounds arrive."""
    return np.moveaxis(np.zeros((size, *batch, *shape), dtype), 0, len(batch))
