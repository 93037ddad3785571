"""HP-Shield in a simulation, for a whole batch at once: the rounds of each group, the settings that the next may have,
the bases that are learned, and what is given under caps.

Whatever a user's regressor (an object with `fit` and `predict`) says, the guarantee holds; a failure can only cost
reward, and what it predicts then counts as unknown.

Bases are learned with the time split: a base fitted when s rounds were known may use all of them, and calibrates only
on rounds from s on. Splitting by parity instead is not valid here: the settings of the rounds that train depend on the
rounds that calibrate, so a learner could read off the calibration rounds and tolerate exactly those. Any base keeps the
guarantee; a good one earns more.

A base is a linear function of (1, x): the logarithm of b(x) over the protocol's setting, by ridge regression.

A setting is an intensity in [0, 1]; arrays are (lanes,), one lane for each element of the batch. The cap is a function
of tolerated settings, contexts and the number of the round; rewards choose below it and have no part in it: below the
cap anything may be given, as by `rounds.shield_learner` for one agent.

A group's rounds are a batch of their own, in which the rounds of other groups are left out. So a learned base is fitted
when there are a tenth more rounds of all groups; an Agent's when there are of its own.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.count_rule import (
    CLIMB,
    RECENT,
    SPREAD_RANK,
    BatchWindow,
    adapted,
    climb_limit,
    is_calibrated,
    spread_risk,
)
from safedial.bounds.tolerated import Cost, Range, scaled_setting, tolerated_scale, tolerated_setting
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec

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


# --- The costs that HP-Shield limits, as a spec and the policy's options state them

ONE = "cost"
"""The name of a cost that has none."""


def stated_costs(spec: SafetySpec, options: Mapping[str, Any], *, baseline_cost: float = 0.0) -> dict[str, Cost]:
    """The limits on costs, by name: the spec's, or one, named "cost", from its threshold and the policy's options."""
    growth, direction = options["growth"], options["direction"]
    if spec.costs is None:
        require(growth is not None, "growth", growth, "is missing", "state a bracket, for example additive from 0 to 3")
        one = np.size(spec.threshold) == 1 and np.size(spec.violation_risk) == 1
        require(one, "threshold", spec.threshold, "must be one number, as must violation_risk", "sweep in a loop")
        threshold = float(np.squeeze(spec.threshold)) - baseline_cost
        cost = Cost(threshold=threshold, growth=growth, direction=direction, on=spec.threshold_on)
        told = growth.name != "spread" or cost.exceeded(0.0) != cost.exceeded(1.0)
        require(told, "threshold", cost.threshold, "must tell 0 from 1 where costs are 0 or 1", "take 0.5")
        return {ONE: cost}
    for name, given, plain in (("growth", growth, None), ("direction", direction, "above")):
        require(given == plain, name, given, "cannot be combined with the spec's costs", "state it in each Cost")
    zero_one = [name for name, cost in spec.costs.items() if cost.growth.name == "spread"]
    rule = "has a spread bracket, for which there is no proof among several costs"
    require(not zero_one, "costs", zero_one, rule, "report one cost that is 1 where any of them is")
    return dict(spec.costs)


# --- Bases that are learned, with the time split

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


# --- The rounds of one group that HP-Shield remembers

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


class Guarantee(NamedTuple):
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

    def state_guarantee(self, costs: dict[str, Cost], risk: float) -> None:
        """What is guaranteed, before the first advice."""
        growth = next(iter(costs.values())).growth
        spread = growth.name == "spread"
        lower = spread_risk(growth, risk) if spread else risk
        step, least = (growth.parameters["step"], SPREAD_RANK) if spread else (1.0, 1)
        middle = {name: middle_of(cost) for name, cost in costs.items()}
        self.guarantee = Guarantee(costs, middle, risk, lower, step, least)
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
        share = None if level is None else level * (self.guarantee.count_risk / self.guarantee.risk)
        scale = self.guarantee.step * self.window.scales(level=share)
        scale = np.minimum(scale, self._most())
        setting = scaled_setting(scale, predicted, played)
        scale = np.maximum(scale, start / predicted)
        self.advice = Advice(setting, range_.start, scale, range_, predicted)
        return self.advice

    def add(self, context: Array, *, applied: Array, known: Any, costs: Any, left_out: Any) -> None:
        """A round's outcome, the measured costs by name. Where one is not known the round tolerates nothing, and
        trains nothing; one that is left out does not count.
        """
        limit = tolerated_setting(self.guarantee.costs, costs, applied)
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
        return Range(np.asarray(levels)[place], levels[-1], levels if self.guarantee.step == 1.0 else None)

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
        likely = tolerated_setting(self.guarantee.middle, costs, applied)
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
        count, risk = self.counted[-1], self.guarantee.count_risk
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


# --- Which settings are given under HP-Shield's caps, for a whole batch at once

STEPS = 64
"""Into how many steps the settings from the start to the cap are divided, on a dial without levels."""

TINY = 1e-100
"""Columns of this size or less are 0."""

WINDOWS = 3
"""`target` gives the cap until there are so many times 1/δ outcomes: before, hardly any setting but the start was
tried, and what a higher one would bring cannot be told."""


class BatchChooser:
    """Chooses, and learns from known outcomes; lanes fit when they have a tenth more of them."""

    def __init__(self, lanes: int, dim: int, *, setup: Any, ridge: float, risk: float) -> None:
        self.setup, self.dim, self.penalty = setup, dim, ridge
        self.targets = setup.chooser == "target"
        width = (1 + dim) * (3 if self.targets else 1)
        self.gram, self.moments = np.zeros((lanes, width, width)), np.zeros((lanes, width))
        self.size, self.coef = np.full((lanes, width), TINY if self.targets else 1.0), np.zeros((lanes, width))
        self.count, self.fitted = np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=bool)
        self.next_fit = np.full(lanes, math.ceil(WINDOWS / risk) if self.targets else FIRST_FIT)

    def choose(self, cap: Array, start: Array, context: Array) -> tuple[Array, Array]:
        """The settings for contexts (lanes, d), at most the caps, and the predicted rewards, 0 where there are none."""
        kind, nothing = self.setup.chooser, np.zeros(cap.shape)
        if kind == "largest":
            return cap, nothing
        if kind == "request":
            return self._requested(cap, context), nothing
        rows = with_one(context)
        if kind == "sign":
            index = np.vecdot(rows, self.coef)
            return np.where(index >= 0.0, cap, start), index
        settings = self._settings(cap, start)
        level, slope, bend = np.moveaxis(self.coef.reshape(len(rows), 3, 1, -1) @ rows[:, None, :, None], 1, 0)[..., 0]
        rewards = level + settings * slope + settings * settings * bend
        rewards = np.where((settings >= start[:, None]) & (settings <= cap[:, None]), rewards, -math.inf)
        best = rewards.shape[1] - 1 - np.argmax(rewards[:, ::-1], axis=1)[:, None]  # the largest of equally good ones
        found, index = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (settings, rewards))
        return np.where(self.fitted, found, cap), np.where(self.fitted, index, 0.0)

    def learn(self, context: Array, applied: Array, reward: Array, total: Array, known: Any) -> None:
        """One round's rewards, per unit and in all, where they are known."""
        if self.setup.chooser not in ("sign", "target"):
            return
        rows = with_one(context)
        if self.targets:
            rows, reward = expanded(np.column_stack([context, applied])), total
            self.size = np.maximum(self.size, np.abs(rows) * known[:, None])
        rows = rows * known[:, None]
        self.gram += rows[:, :, None] * rows[:, None, :]
        self.moments += rows * np.where(known, reward, 0.0)[:, None]
        self.count += known
        due = np.flatnonzero(self.count >= self.next_fit)
        if due.size:
            self._fit(due)

    def _requested(self, cap: Array, context: Array) -> Array:
        asked, levels = self.setup.request(context), self.setup.levels
        require(np.all(asked >= 0.0), "request", float(np.min(asked)), "must be a number >= 0 in every context")
        request = np.minimum(asked, cap)
        if levels is None:
            return request
        return np.array((0.0, *levels))[np.searchsorted(levels, request, side="right")]

    def _settings(self, cap: Array, start: Array) -> Array:
        if self.setup.levels is not None:
            return np.broadcast_to(self.setup.levels, (len(cap), len(self.setup.levels)))
        return np.linspace(start, cap, STEPS + 1, axis=-1)

    def _fit(self, due: Any) -> None:
        """In units of each column's size, since the penalty is for columns of one size."""
        size, width = self.size[due], self.size.shape[1]
        ridge = Ridge(len(due), width - 1, 1, self.penalty)
        plain = np.arange(0, width, self.dim + 1)  # 1, a and a² are not penalised
        ridge.gram[:, plain, plain] = ridge.gram[0, 0, 0]
        ridge.gram += self.gram[due] / (size[:, :, None] * size[:, None, :])
        ridge.moments[..., 0] += self.moments[due] / size
        self.coef[due], self.fitted[due] = ridge.coef()[..., 0] / size, True
        self.next_fit[due] = np.maximum(self.count[due] + 1, (GROWTH * self.count[due]).astype(np.int64))


def with_one(rows: Array) -> Array:
    return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)


def expanded(points: Array) -> Array:
    """(1, x), a·(1, x) and a²·(1, x) of points (x, a)."""
    rows, setting = with_one(points[:, :-1]), points[:, -1:]
    return np.concatenate([rows, setting * rows, setting * setting * rows], axis=1)


# --- HP-Shield's state in a simulation


class ShieldBatch:
    """The state. `advise` and `add` take turns, as decisions and outcomes do."""

    def __init__(self, dim: int, *, ridge: float, batch: tuple[int, ...], setup: Setup) -> None:
        self.dim, self.ridge, self.batch, self.setup, self.lanes = dim, ridge, batch, setup, math.prod(batch)
        self.guarantee: Any = None
        self.count = 0
        self.groups: dict[float, ShieldRounds] = {}

    def state_guarantee(self, costs: dict[str, Cost], risk: float) -> None:
        """What is guaranteed, before the first advice."""
        self.guarantee, self.risk, self.level = costs, risk, np.full(self.lanes, risk)
        self.chooser = BatchChooser(self.lanes, self.dim, setup=self.setup, ridge=self.ridge, risk=risk)

    def advise(self, context: Array) -> tuple[Array, Array, Array]:
        """The largest settings at contexts (lanes, d), the starts, and the scales of the settings before clipping."""
        self.group = self._groups(context)
        for key in set(self.group.tolist()) - self.groups.keys():
            self.groups[key] = ShieldRounds(self.dim, ridge=self.ridge, lanes=self.lanes, setup=self.setup)
            self.groups[key].state_guarantee(self.guarantee, self.risk)
            self.groups[key].skip(context, self.count)
        level = None if self.setup.adapt is None else self.level
        found = np.zeros((3, self.lanes))
        for key, rounds in self.groups.items():
            found = np.where(self.group == key, rounds.advise(context, level)[:3], found)
        return found[0], found[1], found[2]

    def add(self, context: Array, reward: Array, *, told: Any, costs: dict[str, Array]) -> None:
        """A round's outcome: the reward per unit of the applied setting, the measured costs by name, and in `told`
        what was applied, the reward in all, where all is known, and which rounds are left out.
        """
        applied, total, known, left_out = told
        costs = {name: np.where(known, each, math.nan) for name, each in costs.items()}
        for key, rounds in self.groups.items():
            out, mine = left_out, known
            if self.setup.group is not None:
                other = self.group != key
                out, mine = other if left_out is None else other | left_out, known & ~other
            rounds.add(context, applied=applied, known=mine, costs=costs, left_out=out)
        if self.setup.adapt is not None:
            over = np.any([each.exceeded(costs[name]) for name, each in self.guarantee.items()], axis=0)
            told = np.where(known, over, self.risk)
            self.level = adapted(self.level, told, risk=self.risk, rate=self.setup.adapt)
        self.chooser.learn(context, applied, reward, total, known & (applied > 0.0))
        self.count += 1

    def _groups(self, context: Array) -> NDArray[Any]:
        """The groups of contexts: one value for each lane, all alike where nothing is stated."""
        stated = self.setup.group
        found = np.zeros(self.lanes) if stated is None else np.asarray(stated(context))
        rule = "must give one value for each context, (n,) for contexts (n, d)"
        require(found.shape == (self.lanes,), "group", found.shape, rule)
        real = found.dtype.kind != "f" or bool(np.all(np.isfinite(found)))
        require(real, "group", found, "must give finite values: a NaN equals no other, so it belongs to no group")
        return found
