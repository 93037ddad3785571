"""The rounds of one group that HP-Shield remembers, for a whole batch at once, and the setting that the next may have.

A setting is an intensity in [0, 1]; arrays are (lanes,), one lane for each element of the batch. The cap is a function
of tolerated settings, contexts and the number of the round; rewards choose below it and have no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.count_rule import CLIMB, RECENT, SPREAD_RANK, climb_limit, is_calibrated, spread_risk
from safedial.core.count_window import BatchWindow
from safedial.core.tolerated import (
    Cost,
    Range,
    scaled_setting,
    tolerated_scale,
    tolerated_setting,
)
from safedial.errors import require
from safedial.policies.shield.bases import GROWTH, LARGEST_LOG, Bases, Fit, Ridge, target

Array = NDArray[np.float64]

NEVER = 2**40
"""More rounds than any simulation has."""


class Setup(NamedTuple):
    """How HP-Shield was configured. `protocol` gives the settings of contexts (..., d), `request` those asked for, and
    `group` what they belong to.
    """

    protocol: Callable[[Array], Array]
    learned: bool = False
    start_scale: float = 0.25
    climb: float | None = CLIMB
    confidence: float | None = None
    adapt: float | None = None
    levels: tuple[float, ...] | None = None
    chooser: str = "largest"
    request: Callable[[Array], Array] | None = None
    group: Callable[[Array], Array] | None = None


class Promise(NamedTuple):
    """What the first decision states: the costs' limits, δ, and for 0/1 costs the lower risk and the step beyond.

    `middle` has each cost in the middle of its bracket, for the settings that a base learns from.
    """

    costs: dict[str, Cost]
    middle: dict[str, Cost]
    risk: float
    count_risk: float
    step: float
    least: int


class Advice(NamedTuple):
    """What the count rule allows: the largest setting, the start, and the scale of the setting before clipping.

    `range` and `predicted` are what they were made from: the settings that count as played, and the base's prediction.
    """

    setting: Array
    start: Array
    scale: Array
    range: Range
    predicted: Array


def middle_of(cost: Cost) -> Cost:
    """The same cost with one elasticity or slope, the mean of both, and a floor low enough to learn from.

    The bracket's own bound lies the lower the further a setting was from the threshold, which a base would follow.
    """
    growth = cost.growth
    if growth.name == "spread":
        return cost
    parameters = dict(growth.parameters)
    parameters["low"] = parameters["high"] = 0.5 * (parameters["low"] + parameters["high"])
    if growth.name == "relative":
        parameters["floor"] = min(parameters["floor"], 0.01 * cost.limit)
    return replace(cost, growth=growth._replace(parameters=parameters))


class ShieldRounds:
    """The state. `advise` and `add` take turns, as decisions and outcomes do."""

    def __init__(self, dim: int, *, ridge: float, lanes: int, setup: Setup) -> None:
        self.setup, self.lanes = setup, lanes
        self.ridge = Ridge(self.lanes, dim, 1, ridge)
        self.bases = Bases(self.lanes, dim)
        self.base = Fit(0, np.zeros((self.lanes, 1 + dim)))
        self.place, self.slot = np.zeros((2, self.lanes), dtype=np.int64)
        self.next_counted = np.full(self.lanes, NEVER)
        self.counted = [np.zeros(self.lanes, dtype=np.int64)]
        self.contexts, self.limits = np.zeros((self.lanes, 64, dim)), np.zeros((self.lanes, 64))
        self.applied = self.limits.copy()
        self.recent = np.full((self.lanes, RECENT), -1)
        self.used = np.full((self.lanes, RECENT), -math.inf)

    @property
    def count(self) -> int:
        return len(self.counted) - 1

    def state_promise(self, costs: dict[str, Cost], risk: float) -> None:
        """What is promised, before the first advice."""
        growth = next(iter(costs.values())).growth
        spread = growth.name == "spread"
        lower = spread_risk(growth, risk) if spread else risk
        step, least = (growth.parameters["step"], SPREAD_RANK) if spread else (1.0, 1)
        middle = {name: middle_of(cost) for name, cost in costs.items()}
        self.promise = Promise(costs, middle, risk, lower, step, least)
        self.window = BatchWindow(self.lanes, lower, confidence=self.setup.confidence, least=least)

    def skip(self, context: Array, rounds: int) -> None:
        """Begin after so many rounds of other groups, in whose place these contexts stand."""
        self.counted *= 1 + rounds
        while self.bases.next_fit <= rounds:
            self.bases.next_fit = max(self.bases.next_fit + 1, int(GROWTH * self.bases.next_fit))
        while self.limits.shape[1] <= rounds:
            self._grow()
        self.contexts[:, :rounds], self.limits[:, :rounds] = context[:, None], math.nan

    def advise(self, context: Array, level: Array | None = None) -> Advice:
        """The largest setting at contexts (lanes, d), at the adaptive levels of the risk."""
        start, predicted = self._start(context), self._predicted(self.base, context)
        range_ = self._range(start)
        played = range_._replace(levels=self.setup.levels)
        share = None if level is None else level * (self.promise.count_risk / self.promise.risk)
        scale = self.promise.step * self.window.scales(level=share)
        scale = np.minimum(scale, self._most())
        setting = scaled_setting(scale, predicted, played)
        scale = np.maximum(scale, start / predicted)
        self.advice = Advice(setting, range_.start, scale, range_, predicted)
        return self.advice

    def add(self, context: Array, *, applied: Array, known: Any, costs: Any, left_out: Any) -> None:
        """A round's outcome, the measured costs by name. Where one is not known the round tolerates nothing, and
        trains nothing; one that is left out does not count.
        """
        limit = tolerated_setting(self.promise.costs, costs, applied)
        scale = tolerated_scale(limit, self.advice.predicted, self.advice.range)
        kept = None if left_out is None else np.flatnonzero(~left_out)
        self.window.append(scale if kept is None else scale[kept], kept)
        self._remember(context, limit if left_out is None else np.where(left_out, math.nan, limit), applied, known)
        self.counted.append(self.counted[-1] + (1 if left_out is None else ~left_out))
        if self.setup.learned:
            self._train(context, costs=costs, applied=applied, known=known)
            self._change_base()

    def _start(self, context: Array) -> Array:
        """The declared start, before flooring to levels."""
        return np.minimum(self.setup.start_scale * self.setup.protocol(context), 1.0)

    def _range(self, start: Array) -> Range:
        """What counts as played. Shares that exceed grow slowly with the scale, not from level to level."""
        levels = self.setup.levels
        if levels is None:
            return Range(start, 1.0)
        place = np.searchsorted(levels, start, side="right") - 1
        words = "must begin at or below the start in every context"
        require(np.all(place >= 0), "levels", levels[0], words, "add a lower level, or raise start_scale")
        return Range(np.asarray(levels)[place], levels[-1], levels if self.promise.step == 1.0 else None)

    def _predicted(self, base: Fit, context: Array) -> Array:
        """The base's settings."""
        value: Any = base.value(context) if self.setup.learned else 0.0
        return self.setup.protocol(context) * np.exp(np.clip(value, -LARGEST_LOG, LARGEST_LOG))

    def _most(self) -> Any:
        """The climb limit; −∞, which means the start, before any round is known."""
        return math.inf if self.setup.climb is None else climb_limit(self.used, -math.inf, climb=self.setup.climb)

    def _remember(self, context: Array, limit: Array, applied: Array, known: Any) -> None:
        """Keep the round, and for the climb limit its scale. A setting that was rounded down is evidence for the scale
        it had; one that was lowered by much is neither evidence for its scale nor a reason to fall back from it, unless
        there is nothing else to climb from.
        """
        cap, base = self.advice.setting, self.advice.predicted
        near = (applied * CLIMB >= cap) | (self.recent[:, 0] < 0)
        full = np.flatnonzero(known & (applied > 0.0) & near)
        slot, given = self.slot[full], applied / base
        scale = np.where(applied < cap * (1.0 - 1e-9), np.minimum(self.advice.scale, given), self.advice.scale)
        self.recent[full, slot], self.used[full, slot] = self.count, scale[full]
        self.slot[full] = (slot + 1) % RECENT
        if self.count == self.limits.shape[1]:
            self._grow()
        self.contexts[:, self.count], self.limits[:, self.count] = context, limit
        self.applied[:, self.count] = applied

    def _grow(self) -> None:
        """Make room for as many rounds again."""
        self.contexts, self.limits, self.applied = (
            np.concatenate([part, part], axis=1) for part in (self.contexts, self.limits, self.applied)
        )

    def _train(self, context: Array, *, costs: Any, applied: Array, known: Any) -> None:
        """Learn from a round, and fit a base when there are a tenth more."""
        likely = tolerated_setting(self.promise.middle, costs, applied)
        protocol = self.setup.protocol(context)
        lesson = target(likely, applied, protocol=protocol, start=self.setup.start_scale * protocol, end=1.0)
        self.ridge.add(context, lesson[:, None], known)
        if self.count >= self.bases.next_fit:
            self.bases.add(self.count, self.ridge.coef()[..., 0])
            self._await_next()

    def _change_base(self) -> None:
        """In each lane, use the newest base that is calibrated there; lanes differ where rounds were left out. A newer
        base has fewer rounds since its fit, so the next one tells whether there is any.
        """
        count, risk = self.counted[-1], self.promise.count_risk
        moving = np.flatnonzero(is_calibrated(count - self.next_counted, count, risk))
        if moving.size:
            before = np.stack([self.counted[fit.since][moving] for fit in self.bases.waiting])
            ready = is_calibrated(count[moving] - before, count[moving], risk)
            place = len(ready) - 1 - np.argmax(ready[::-1], axis=0)
            for each in set(place.tolist()):
                self._use(each, moving[place == each])
            self._await_next()

    def _await_next(self) -> None:
        """How many rounds counted, in each lane, when the base after the present one was fitted."""
        fitted = [self.counted[fit.since] for fit in self.bases.waiting]
        following = np.stack([*fitted[1:], np.full(self.lanes, NEVER)])
        self.next_counted = following[self.place, np.arange(self.lanes)]

    def _use(self, place: int, lanes: Any) -> None:
        """Restate all rounds since a base's fit, and the scales of the last ones for the climb limit, in its scale."""
        since, coef = self.bases.waiting[place][:2]
        self.place[lanes], self.base.coef[lanes] = place, coef[lanes]
        context, limit = self.contexts[lanes, since : self.count], self.limits[lanes, since : self.count]
        base = Fit(since, coef[lanes])
        past = tolerated_scale(limit, self._predicted(base, context), self._range(self._start(context)))
        past = np.where(np.isnan(limit), math.nan, past)
        self.window.restate(past, self.counted[since][lanes], lanes if len(lanes) < self.lanes else None)
        recent, rows = self.recent[lanes], lanes[:, None]
        bases = np.where(recent >= 0, self._predicted(base, self.contexts[rows, recent]), 1.0)
        self.used[lanes] = np.where(recent >= 0, self.applied[rows, recent] / bases, -math.inf)
