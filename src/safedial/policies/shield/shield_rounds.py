"""The rounds that HP-Shield remembers, for a whole batch at once, and the setting that the next round may have.

A setting is an intensity in [0, 1]; arrays are (lanes,), one lane for each element of the batch. The cap is a function
of tolerated settings, contexts and the number of the round; rewards choose below it and have no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.adaptive import adapted
from safedial.core.brackets import Growth
from safedial.core.count_rule import CLIMB, RECENT, SPREAD_RANK, climb_limit, spread_risk
from safedial.core.count_window import BatchWindow
from safedial.core.tolerated import Cost, Range, offset_setting, scaled_setting, tolerated_offset, tolerated_scale
from safedial.policies.shield.bases import LARGEST_LOG, Bases, Fit, Ridge, target

Array = NDArray[np.float64]


class Setup(NamedTuple):
    """How HP-Shield was configured. `protocol` gives the settings of contexts (..., d)."""

    growth: Growth
    protocol: Callable[[Array], Array]
    learned: bool = False
    family: Literal["scale", "offset"] = "scale"
    start_scale: float = 0.25
    climb: float | None = CLIMB
    confidence: float | None = None
    adapt: float | None = None
    predicts_reward: bool = False
    direction: Literal["above", "below"] = "above"


class Promise(NamedTuple):
    """What the first decision states: the cost's limit, δ, and for 0/1 costs the lower risk and the step beyond.

    `middle` is the cost in the middle of its bracket, for the settings that a base learns from.
    """

    cost: Cost
    middle: Cost
    risk: float
    count_risk: float
    step: float
    least: int


class Advice(NamedTuple):
    """What the count rule allows: the largest setting, the start, and the scale of the setting before clipping."""

    setting: Array
    start: Array
    scale: Array


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

    def __init__(self, dim: int, *, ridge: float, batch: tuple[int, ...], setup: Setup) -> None:
        self.batch, self.setup, self.lanes = batch, setup, math.prod(batch)
        self.promise: Any = None
        self.ridge = Ridge(self.lanes, dim, 2, ridge)
        self.bases = Bases(self.lanes, dim)
        self.base = self.bases.waiting[0]
        self.reward_coef = np.zeros((self.lanes, 1 + dim))
        self.contexts: list[Array] = []
        self.limits: list[Array] = []
        self.applied: list[Array] = []
        self.recent = np.full((self.lanes, RECENT), -1)
        self.used = np.full((self.lanes, RECENT), -math.inf)

    @property
    def count(self) -> int:
        return len(self.limits)

    def advise(self, context: Array, *, threshold: float, risk: float) -> Advice:
        """The largest setting at contexts (lanes, d). The first call fixes threshold and risk."""
        promise = self.promise or self._state(threshold, risk)
        range_, learned = self._range(context), self._predicted(self.base, context)
        scale = promise.step * self.window.scales(level=None if self.setup.adapt is None else self._rates())
        if self.setup.family == "offset":
            setting = offset_setting(scale, learned, range_, threshold=promise.cost.limit)
            setting = np.maximum(np.minimum(setting, self._most()), range_.start)
            scale = setting
        else:
            scale = np.minimum(scale, self._most())
            setting = scaled_setting(scale, learned, range_)
            scale = np.maximum(scale, range_.start / learned)
        self.advice = Advice(setting, range_.start, scale)
        return self.advice

    def add(self, context: Array, reward: Array, cost: Array, *, applied: Array, known: Any) -> None:
        """A round's outcome: reward and cost per unit of the applied setting. Where it is not known it tolerates
        nothing, and trains nothing.
        """
        total = np.where(known, cost * applied, math.nan)
        limit = self.promise.cost.tolerated(total, applied)
        range_ = self._range(context)
        self.window.append(self._tolerated(self.base, limit, context, range_))
        self._remember(context, limit, applied)
        if self.setup.adapt is not None:
            exceeded = np.where(known, self.promise.cost.exceeded(total), self.promise.risk)
            self.level = adapted(self.level, exceeded, risk=self.promise.risk, rate=self.setup.adapt)
        if self.setup.learned or self.setup.predicts_reward:
            self._train(context, reward, cost, total=total, applied=applied, known=known)
        if self.setup.learned:
            self._change_base()

    def reward(self, context: Array) -> Array:
        """The predicted reward per unit, from all rounds up to the last fit."""
        return Fit(0, self.reward_coef).value(context)

    def _state(self, threshold: float, risk: float) -> Promise:
        growth = self.setup.growth
        spread = growth.name == "spread"
        cost = Cost(threshold=threshold, growth=growth, direction=self.setup.direction)
        lower = spread_risk(growth, risk) if spread else risk
        step, least = (growth.parameters["step"], SPREAD_RANK) if spread else (1.0, 1)
        self.promise = Promise(cost, middle_of(cost), risk, lower, step, least)
        self.window = BatchWindow(self.lanes, lower, confidence=self.setup.confidence, least=least)
        self.level = np.full(self.lanes, risk)
        return self.promise

    def _rates(self) -> Array:
        """δ_t as a share of the risk at which the count rule runs."""
        return self.level * (self.promise.count_risk / self.promise.risk)

    def _range(self, context: Array) -> Range:
        return Range(np.minimum(self.setup.start_scale * self.setup.protocol(context), 1.0), 1.0)

    def _predicted(self, base: Fit, context: Array) -> Array:
        """The base's settings, or its costs per unit in the offset family."""
        value = base.value(context)
        if self.setup.family == "offset":
            return value
        return self.setup.protocol(context) * np.exp(np.clip(value, -LARGEST_LOG, LARGEST_LOG))

    def _tolerated(self, base: Fit, limit: Array, context: Array, range_: Range) -> Array:
        learned = self._predicted(base, context)
        if self.setup.family == "offset":
            return tolerated_offset(limit, learned, range_, threshold=self.promise.cost.limit)
        return tolerated_scale(limit, learned, range_)

    def _most(self) -> Any:
        """The climb limit; −∞, which means the start, before any round is known."""
        return math.inf if self.setup.climb is None else climb_limit(self.used, -math.inf, climb=self.setup.climb)

    def _remember(self, context: Array, limit: Array, applied: Array) -> None:
        """Keep the round, and for the climb limit its scale: not if it was given less than it could have been, which
        is neither evidence for that scale nor a reason to fall back from it. (Less by rounding alone is not less.)
        """
        full = applied >= self.advice.setting * (1.0 - 1e-9)
        self.recent[full] = np.concatenate([self.recent[full, 1:], np.full((full.sum(), 1), self.count)], axis=1)
        self.used[full] = np.concatenate([self.used[full, 1:], self.advice.scale[full, None]], axis=1)
        self.contexts.append(context)
        self.limits.append(limit)
        self.applied.append(applied)

    def _train(self, context: Array, reward: Array, cost: Array, *, total: Array, applied: Array, known: Any) -> None:
        """Learn from a round, and fit a base when there are a tenth more."""
        lesson = cost
        if self.setup.family == "scale":
            likely, protocol = self.promise.middle.tolerated(total, applied), self.setup.protocol(context)
            lesson = target(likely, applied, protocol=protocol, start=self.setup.start_scale * protocol, end=1.0)
        self.ridge.add(context, np.stack([lesson, reward], axis=-1), known)
        if self.count >= self.bases.next_fit:
            coef = self.ridge.coef()
            self.reward_coef = coef[..., 1]
            self.bases.add(self.count, coef[..., 0])

    def _change_base(self) -> None:
        """Use the newest base that is calibrated: all rounds since its fit are restated in its scale."""
        base = self.bases.current(self.count, self.promise.count_risk)
        if base is self.base:
            return
        self.base = base
        context, limit = (np.stack(part[base.since :], axis=1) for part in (self.contexts, self.limits))
        past = self._tolerated(base, limit, context, self._range(context))
        options = {"confidence": self.setup.confidence, "least": self.promise.least, "earlier": base.since}
        self.window = BatchWindow(past, self.promise.count_risk, **options)
        if self.setup.family == "scale":
            self._restate()

    def _restate(self) -> None:
        """The scales of the last rounds in the new base's."""
        context, applied = np.stack(self.contexts, axis=1), np.stack(self.applied, axis=1)
        lane = np.arange(self.lanes)[:, None]
        given = applied[lane, self.recent] / self._predicted(self.base, context[lane, self.recent])
        self.used = np.where(self.recent >= 0, given, -math.inf)
