"""What HP-Shield has learned: the rounds of each group of contexts, the bases that they teach, and their rewards.

**Bases** (the setting that is scaled, as a function of the context). A learned base is the protocol's setting times the
exponential of a linear function of (1, x), by ridge regression, or of what a user's regressor (an object with `fit` and
`predict`) predicts. Whatever it says, the guarantee holds; a failure can only cost reward, and what it predicts then
counts as unknown.

Bases are learned with the time split: a base fitted when s rounds were decided may use all of them, and calibrates only
on rounds from s on. Splitting by parity instead is not valid here: the settings of the rounds that train depend on the
rounds that calibrate, so a learner could read off the calibration rounds and tolerate exactly those. Any base keeps the
guarantee; a good one earns more. The next one is fitted when there are a tenth more rounds.

**Choosers** (which setting is given under a cap). Below the cap anything may be given, so nothing here can break a
guarantee; a chooser may learn from all rounds, and sets neither the base nor the rounds that are counted.

`sign` predicts the reward per unit of the dose curve, by ridge regression on (1, x). `target` predicts the reward at a
setting a, by ridge regression on (1, x), a·(1, x) and a²·(1, x). Fits are made when there are a tenth more known
outcomes.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.bounds.count_rule import (
    CLIMB,
    RECENT,
    Range,
    adapted_rank,
    climb_limit,
    is_calibrated,
    scaled_setting,
    tolerated_scale,
)
from safedial.bounds.estimate import ridge_fit
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array, namespace, scalar, some, where
from safedial.policies.table import Table

if TYPE_CHECKING:
    from safedial.policies.shield import HPShield
    from safedial.policies.shield_question import Stated

FEWEST = 50
"""The fewest rounds to which a user's model is fitted; many models fail with only a few."""

ALIKE = 1e-4
"""How far a user's model may answer a row among others otherwise than alone, relatively: rounding to 32 bits does."""

LARGEST_LOG = 30.0
"""A learned base is at most e^30 times the protocol's setting, or as little."""

FARTHEST = 4.0
"""A base learns that a round tolerated at most so many times what it was given, or the protocol's setting if that is
more: a cost near 0 is mostly error, and would otherwise say that the round tolerated a hundred times as much."""

FIRST_FIT, GROWTH = 10, 1.1
"""The first fit is when there are so many rounds, the next one when there are a tenth more."""

FREE = 1e-9
"""The penalty of columns that are not penalised."""

NEVER = 2**40
"""More rounds than there are."""

LEAST = -1e300
"""A scale below all that are played: rounds that exceed at their start exceed there too."""


class Found(NamedTuple):
    """What the rounds of a group say of a context, in each lane.

    `safe` is the largest setting, `unfloored` the same before flooring to a level, `start` the start as it is played.
    `base` is the setting that is scaled; `allowed` is λ̂ (−∞: the start), `most` what the climb limit allows, `scale`
    what a climb may start from, `counted` the scale that is counted, `climbing` whether that limit set the setting;
    `size` and `rank` are n and m.
    """

    safe: Any
    unfloored: Any
    start: Any
    base: Any
    allowed: Any
    most: Any
    scale: Any
    counted: Any
    climbing: Any
    size: Any
    rank: Any


def next_fit(count: Any) -> Any:
    """At how many rounds the fit after one at `count` is due."""
    return scalar(np.maximum(count + 1, (GROWTH * np.asarray(count)).astype(np.int64)))


class Bases:
    """The bases of each lane, oldest first; the first, fitted on nothing, is the protocol itself.

    Columns of `fits`: how many rounds there were (`since`), how many of them count (`earlier`), how many lessons a
    user's model was fitted to (`told`), and the coefficients of (1, x). Those of the base in use, the row `current`,
    are attributes too: rounds count from the row `since` on, and `earlier` before it would.
    """

    def __init__(self, lanes: tuple[int, ...], dim: int) -> None:
        self.fits = Table(lanes, since=NEVER, earlier=NEVER, told=0, coef=(0.0, (1 + dim,)))
        self.fits.append()
        self.fits.since[..., 0] = self.fits.earlier[..., 0] = 0
        zero: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.next_fit: Any = zero + FIRST_FIT
        self._lanes = tuple(np.indices(lanes))
        self.use(zero)

    def use(self, row: Any) -> None:
        """Use the base in this row, of each lane."""
        at = (*self._lanes, row)
        self.current, self.coef = row, self.fits.coef[at]
        self.since, self.earlier = (scalar(getattr(self.fits, name)[at]) for name in ("since", "earlier"))

    def leave_out(self, row: int, left: Any) -> None:
        """A round does not count, in these lanes."""
        earlier, since = self.fits.rows("earlier"), self.fits.rows("since")
        earlier -= (since > row) & (since < NEVER) & np.asarray(left)[..., None]
        self.use(self.current)

    def renew(self, due: Any, coef: Array, **columns: Any) -> None:
        """One more base, in the lanes where it is due."""
        row = self.fits.append()
        for name, value in columns.items():
            column = getattr(self.fits, name)
            column[..., row] = where(due, value, column[..., row])
        self.fits.coef[..., row, :] = coef

    def newest(self, total: Any, risk: float) -> Any:
        """The row of the newest base with enough rounds since its fit, of `total` that count."""
        first = 1 + int(np.min(self.current))
        if first >= self.fits.count:
            return self.current
        earlier, total = self.fits.rows("earlier")[..., first:], np.asarray(total)[..., None]
        ready = np.where(is_calibrated(total - earlier, total, risk), np.arange(first, self.fits.count), 0)
        return scalar(np.maximum(ready.max(axis=-1), self.current))


class Group:
    """The rounds of one group, and their tolerated scales under the base in use.

    Columns of `rounds`: the context, the protocol's setting, its start, the tolerated setting and scale (−∞ where not
    known, NaN where the round does not count), the applied setting (NaN where not known), the advised one, the largest
    that was allowed (`cap`) and the scale of that (`used`), what a base learns from it (`lesson`, NaN where it is not
    known), and the decision's number.
    """

    def __init__(self, policy: HPShield, lanes: tuple[int, ...], name: str = "") -> None:
        self.name, self._policy = name, policy
        unknown = {"limit": -math.inf, "scale": -math.inf, "applied": math.nan, "lesson": math.nan}
        stated = {"protocol": 1.0, "start": 0.0, "advised": 0.0, "cap": 0.0, "used": 0.0}
        self.rounds = Table(lanes, context=(0.0, (policy.task.dim,)), number=0, **unknown, **stated)
        zero: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.count, self.counted, self.slot = zero + 0, zero + 0, zero + 0
        """How many rounds of each lane are in the group, how many of them count, and where `recent` goes on."""
        self.recent, self.used = np.full((*lanes, RECENT), -1), np.full((*lanes, RECENT), -math.inf)
        """The last known rounds, and the scales that they used, for the climb limit."""
        self.bases = Bases(lanes, policy.task.dim)
        self.lessons = Table((), row=0)
        """The rounds that a user's model is fitted to, in the order of the reports."""
        self._window, self._lanes = policy.window(lanes), lanes
        self._models: dict[int, Fitted] = {}

    # --- A decision

    def find(self, context: Array, stated: Stated, level: Any) -> Found:
        """The largest setting: λ̂ times the base, under the climb limit, never below the start."""
        policy = self._policy
        base, start = self.base_at(context, stated.protocol), policy.floored(stated.start)
        window, bases, xp = self._window, self.bases, namespace(stated.protocol)
        last = max(window.last, self.rounds.count - policy.lag)
        found = window.read(self.rounds.scale, last, bases.since, bases.earlier, level)
        size, rank = window.window
        rank = rank if level is None else adapted_rank(level, size, rank)
        if policy.learned:  # a user's model may give no number
            found = where(base == base, found, -math.inf)
        allowed, most = policy.step * found, math.inf
        if policy.climb is not None:
            used = self.used if self._lanes else self.used.tolist()
            most = climb_limit(used, -math.inf, climb=policy.climb)
        scale = xp.minimum(allowed, most)
        counted = xp.maximum(xp.minimum(found, most / policy.step), LEAST)  # a quotient of λ̂ may round up
        unfloored = scaled_setting(scale, base, Range(start, policy.end))
        # A start that is one setting for all gives small bases large scales, which say nothing of the large bases.
        reached = stated.start / (base if policy.task.start_action is None else xp.maximum(base, policy.end))
        scale = xp.maximum(scale, reached)
        safe = unfloored if policy.marks is None else Range(start, policy.end, policy.marks).played(unfloored)
        return Found(safe, unfloored, start, base, allowed, most, scale, counted, most < allowed, size, rank)

    # --- Its base

    def base_at(self, context: Array, protocol: Any) -> Any:
        """The setting that is scaled; NaN where a user's model gives no number."""
        if not self._policy.learned:
            return protocol
        own = self._model()
        return scaled(protocol, predicted(self.bases.coef, context) if own is None else float(own(context[None])[0]))

    def _predicted(self, those: tuple[Any, ...], at: Any) -> Array:
        """What the base in use, of those lanes, predicts `at` past rounds, as their decisions would have asked it."""
        own, context = self._model(), self.rounds.context[at]
        return np.asarray(predicted(self.bases.coef[those][..., None, :], context) if own is None else own(context))

    def _model(self) -> Fitted | None:
        """The user's model of the base in use, fitted to the lessons of its time; None for ridge regression."""
        policy, row = self._policy, self.bases.current
        if policy.regressor is None or not row:
            return None
        if row not in self._models:
            fits, rounds = self.bases.fits, self.rounds
            places, coef = self.lessons.row[: fits.told.item(row)], fits.coef[row]
            early = lambda contexts: predicted(coef, contexts)  # noqa: E731 -- of this fit alone
            self._models = {row: fit_own(policy.regressor, rounds.context[places], rounds.lesson[places], early)}
        return self._models[row]

    def renew_base(self) -> None:
        """Fit a base if it is due, and use the newest that is calibrated."""
        bases, rounds, lag = self.bases, self.rounds, self._policy.lag
        if some(due := self.count >= bases.next_fit):
            rows, lesson = with_one(rounds.rows("context")), rounds.rows("lesson")
            found = penalised_fit(rows, lesson, self._policy.spec.ridge, free=(0,))
            bases.renew(due, found, since=rounds.count, earlier=self.counted, told=self.lessons.count)
            bases.next_fit = where(due, next_fit(self.count), bases.next_fit)
        waiting = rounds.scale[..., max(0, rounds.count - lag) : rounds.count]
        counted = self.counted - np.count_nonzero(waiting == waiting, axis=-1) if lag else self.counted
        newest = bases.newest(counted, self._policy.count_risk)
        if some(moved := newest != bases.current):
            bases.use(newest)
            self._restate((np.flatnonzero(moved),) if self._lanes else ())

    def _restate(self, moved: tuple[Any, ...]) -> None:
        """Count all rounds since a base's fit, and the scales of the last known ones, in the new base's scale."""
        rounds, since = self.rounds, self.bases.since
        for first in np.unique(np.asarray(since)[moved]).tolist():
            those = tuple(lanes[since[lanes] == first] for lanes in moved)
            rows = slice(first, rounds.count)
            rounds.scale[(*those, rows)] = self._past_scales(those, rows)
        recent = self.recent[moved]
        at = (*(lanes[:, None] for lanes in moved), np.maximum(recent, 0))
        given = rounds.applied[at] / scaled(rounds.protocol[at], self._predicted(moved, at))
        self.used[moved] = np.where((recent >= 0) & (given == given), given, -math.inf)

    def _past_scales(self, those: tuple[Any, ...], rows: slice) -> Array:
        """T̂ of past rounds under the base in use, of those lanes.

        A user's model may answer many rows at once a little otherwise than each alone, as a decision asks it. Past
        rounds take the end of that at which they tolerate less, so that none is counted for a setting above the one
        that it would get. Where it gives no number a round counts as not known: a model that fails for a while must
        not change the scale of others.
        """
        at, rounds = (*those, rows), self.rounds
        value = self._predicted(those, at)
        if self._model() is not None:
            value = value + ALIKE * np.maximum(np.abs(value), 1.0)
        limit, start, base = rounds.limit[at], rounds.start[at], scaled(rounds.protocol[at], value)
        tolerated = np.where(np.isnan(base), -math.inf, limit)
        return np.where(np.isnan(limit), math.nan, tolerated_scale(tolerated, base, self._policy.range(start)))

    def check_model(self) -> None:
        """Refuse a model of the user's that predicts otherwise than the one that the rounds were counted with."""
        rows = slice(self.bases.since, self.rounds.count)
        then, now = self.rounds.scale[rows], self._past_scales((), rows)
        size = np.abs(then[np.isfinite(then)])
        atol = 1e-3 * float(np.median(size)) if size.size else 0.0
        same = np.allclose(now, then, rtol=1e-3, atol=atol, equal_nan=True)
        require(same, "regressor", self._policy.regressor, "gives other predictions than the saved one")

    # --- A round

    def open(self, here: Any, context: Any, **columns: Any) -> int:
        """One more round, in the lanes that are `here`, with these columns. Returns its row."""
        rounds = self.rounds
        row = rounds.append()
        rounds.context[..., row, :] = context
        for name, value in columns.items():
            getattr(rounds, name)[..., row] = value
        if here is not True:  # the others have no round in this group
            for column in (rounds.limit, rounds.scale):
                column[..., row] = np.where(here, -math.inf, math.nan)
        self.count, self.counted = self.count + here, self.counted + here
        return row

    def learn(self, row: int, known: Any, costs: Mapping[str, Any], applied: Any) -> None:
        """What a round tolerates, under the base in use, for the climb limit, and for the next base."""
        policy, rounds = self._policy, self.rounds
        context, protocol, start = rounds.context[..., row, :], rounds.at("protocol", row), rounds.at("start", row)
        limits = policy.costs_at(context)
        base, before = self.base_at(context, protocol), rounds.at("scale", row)
        found = {"limit": policy.tolerated(limits, costs, applied), "applied": applied}
        known_base = where(base == base, found["limit"], -math.inf) if policy.learned else found["limit"]
        found["scale"] = tolerated_scale(known_base, base, policy.range(start))
        if policy.learned:
            likely = policy.tolerated({name: cost.middle for name, cost in limits.items()}, costs, applied)
            found["lesson"] = lesson(likely, applied, protocol=protocol, start=start, end=policy.end)
            if policy.regressor is not None:
                last = self.lessons.append()
                self.lessons.row[last] = row
        for name, value in found.items():
            column = getattr(rounds, name)
            column[..., row] = value if known is True else np.where(known, value, column[..., row])
        self._window.change(row, before, rounds.at("scale", row))
        self._use(row, known & (applied > 0.0) & (base == base), applied, base)

    def _use(self, row: int, known: Any, applied: Any, base: Any) -> None:
        """What a climb may start from. A setting that was rounded down is evidence for the scale it had. One that was
        lowered by much is neither evidence for its scale nor a reason to climb anew, unless there is nothing else.
        """
        rounds = self.rounds
        cap, scale, nothing = rounds.at("cap", row), rounds.at("used", row), self.recent[..., 0] < 0
        known = known & ((applied * CLIMB >= cap) | nothing)
        lower = applied < cap * (1.0 - 1e-9)
        if not self._lanes:
            if known:
                self.recent[self.slot], self.used[self.slot] = row, min(scale, applied / base) if lower else scale
                self.slot = (self.slot + 1) % RECENT
            return
        lanes = np.flatnonzero(known)
        scale, slot = np.where(lower, np.minimum(scale, applied / base), scale), self.slot[lanes]
        self.recent[lanes, slot], self.used[lanes, slot] = row, scale[lanes]
        self.slot[lanes] = (slot + 1) % RECENT

    def leave_out(self, row: int, left: Any) -> None:
        """A round does not count, in these lanes."""
        rounds, before = self.rounds, self.rounds.at("scale", row)
        for column in (rounds.limit, rounds.scale):
            column[..., row] = where(left, math.nan, column[..., row])
        self._window.change(row, before, rounds.at("scale", row))
        self.counted = self.counted - left
        self.bases.leave_out(row, left)


def lesson(tolerated: Any, applied: Any, *, protocol: Any, start: Any, end: Any) -> Any:
    """What a base learns from a round: the logarithm of what it tolerated over the protocol's setting,
    neither far below its start nor far above the dial's end, what it was given and the protocol's setting.
    """
    most = np.minimum(FARTHEST * np.maximum(applied, protocol), 10.0 * end)
    return np.log(np.maximum(np.minimum(tolerated, most), 0.1 * start) / protocol)


def penalised_fit(rows: Array, target: Array, penalty: float, *, free: Sequence[int]) -> Array:
    """Coefficients of ridge regression on rows (*lanes, n, p), where the target is not NaN; the columns `free` are not
    penalised.
    """
    penalties = np.full(rows.shape[-1], penalty)
    penalties[list(free)] = FREE
    return ridge_fit(rows, target[..., None], target == target, penalties)[1][..., 0]


def with_one(rows: Array) -> Array:
    """(1, x) of contexts (*lanes, d)."""
    return np.concatenate([np.ones((*rows.shape[:-1], 1)), rows], axis=-1)


def scaled(protocol: Any, value: Any) -> Any:
    """The base at contexts with this prediction."""
    if type(value) is float:
        return protocol * math.exp(min(max(value, -LARGEST_LOG), LARGEST_LOG))
    return protocol * np.exp(np.clip(value, -LARGEST_LOG, LARGEST_LOG))


def predicted(coef: Array, context: Array) -> Any:
    """What coefficients (..., 1 + d) say of contexts (..., d).

    Not by BLAS, whose last digit can depend on where in memory an array begins, which loading changes.
    """
    return scalar(coef[..., 0] + (coef[..., 1:] * context).sum(axis=-1))


# --- A regressor of the user's

Fitted = Callable[[Array], Array]


def fit_own(model: Any, rows: Array, target: Array, early: Fitted) -> Fitted:
    """A copy of `model` fitted to rows (n, d), as a function of contexts (m, d); `early` if n is below `FEWEST`."""
    if len(target) < FEWEST:
        return early
    own = copy.deepcopy(model)
    if _tried("fit", lambda: [own.fit(rows, target)]) is None:
        return lambda contexts: np.full(len(contexts), np.nan)
    return lambda contexts: _predicted(own, contexts)


def _predicted(model: Any, rows: Array) -> Array:
    """The model's predictions; NaN for the rows on which it fails, found one by one."""
    found = _tried("predict", lambda: _one_each(model.predict(rows), len(rows)))
    if found is None and len(rows) > 1:
        return np.concatenate([_predicted(model, row[None]) for row in rows])
    return np.full(1, np.nan) if found is None else found


def _tried(step: str, call: Callable[[], Any]) -> Any:
    """What a call of the user's model gives; None where it fails, with a warning."""
    try:
        return call()
    except Exception as error:
        words = f"regressor: its {step} failed ({_said(error)}); such predictions count as unknown"
        warnings.warn(words, UserWarning, stacklevel=2)
        return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


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
        try:
            own.fit(rows, target)
            together = _one_each(own.predict(rows[:5]), 5)
        except Exception as error:
            raise InvalidInput(f"regressor: it failed on a trial ({_said(error)})") from error
        alone = np.concatenate([_predicted(own, row[None]) for row in rows[:5]])
    same = np.all(np.isnan(alone) | np.isclose(together, alone, rtol=ALIKE, atol=1e-9, equal_nan=True))
    rule = "must predict each row alike, alone and among others"
    require(same, "regressor", model, rule, "past and new rounds are compared by it")


def _one_each(answer: Any, count: int) -> Array:
    values = np.asarray(answer)
    fine = values.shape == (count,) and values.dtype.kind in "iuf"
    given = f"an answer of shape {values.shape} and type {values.dtype}"
    require(fine, "regressor", given, f"predict must return one number for each of {count} contexts")
    return values.astype(float)


# --- Rewards

CHOOSERS = ("largest", "request", "sign", "target")
LEARNING = ("sign", "target")
"""The choosers that learn from rewards."""

STEPS = 64
"""Into how many steps the settings from the start to the cap are divided, on a dial without levels."""

TINY = 1e-100
"""Columns of this size or less are 0."""

WINDOWS = 3
"""`target` gives the cap until there are so many times 1/δ outcomes: before, hardly any setting but the start was
tried, and what a higher one would bring cannot be told."""


class Rewards:
    """What `sign` or `target` has learned of rewards, in each lane.

    Columns of `rounds`: the context, the setting, and the reward per unit, or, for `target`, in all; NaN if not known.
    """

    def __init__(self, chooser: str, lanes: tuple[int, ...], dim: int, *, penalty: float, risk: float) -> None:
        self._dim, self._targets, self._penalty = dim, chooser == "target", penalty
        self.rounds = Table(lanes, context=(0.0, (dim,)), setting=0.0, reward=math.nan)
        self.coef = np.zeros((*lanes, (1 + dim) * (3 if self._targets else 1)))
        zero: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.count, self.fitted = zero + 0, zero + 0
        self.next_fit = zero + (math.ceil(WINDOWS / risk) if self._targets else FIRST_FIT)

    def learn(self, context: Array, applied: Any, reward: Any, total: Any, known: Any) -> None:
        """One round's rewards, per unit and in all, where they are known."""
        rounds, row = self.rounds, self.rounds.append()
        rounds.context[..., row, :], rounds.setting[..., row] = context, applied
        rounds.reward[..., row] = np.where(known, total if self._targets else reward, math.nan)
        self.count = self.count + known

    def begin(self) -> None:
        """Fit where it is due."""
        if some(due := self.count >= self.next_fit):
            self.coef = np.where(np.asarray(due)[..., None], self._fit(), self.coef)
            self.fitted = where(due, self.count, self.fitted)
            self.next_fit = where(due, next_fit(self.count), self.next_fit)

    def _fit(self) -> Array:
        """In units of each column's size, since the penalty is for columns of one size, and settings may be of any."""
        rounds = self.rounds
        rows, reward, width = with_one(rounds.rows("context")), rounds.rows("reward"), 1 + self._dim
        if not self._targets:
            return penalised_fit(rows, reward, self._penalty, free=(0,))
        setting = rounds.rows("setting")[..., None]
        rows = np.concatenate([rows, setting * rows, setting * setting * rows], axis=-1)
        size = np.max(np.abs(rows), axis=-2, where=(reward == reward)[..., None], initial=TINY)
        return penalised_fit(rows / size[..., None, :], reward, self._penalty, free=range(0, 3 * width, width)) / size

    def by_sign(self, cap: Any, start: Any, context: Array) -> tuple[Any, Any]:
        """The setting, and the predicted reward: 0 where there is none."""
        index = predicted(self.coef, context)
        return where(index >= 0.0, cap, start), index

    def by_target(self, cap: Any, start: Any, context: Array, marks: Any) -> tuple[Any, Any]:
        """The setting, one of `marks` where there are any, and the predicted reward."""
        lanes = np.shape(cap)
        settings = np.linspace(start, cap, STEPS + 1, axis=-1)
        if marks is not None:
            settings = np.broadcast_to(marks, (*lanes, len(marks)))
        parts = self.coef.reshape(*lanes, 3, 1 + self._dim) @ with_one(context)[..., None]
        level, slope, bend = np.moveaxis(parts, -2, 0)
        rewards = level + settings * slope + settings * settings * bend
        low, high = np.asarray(start)[..., None], np.asarray(cap)[..., None]
        rewards = np.where(np.isfinite(rewards) & (settings >= low) & (settings <= high), rewards, -math.inf)
        best = rewards.shape[-1] - 1 - np.argmax(rewards[..., ::-1], axis=-1)  # the largest of equally good ones
        found, index = (np.take_along_axis(part, best[..., None], axis=-1)[..., 0] for part in (settings, rewards))
        known = self.fitted > 0
        return where(known, scalar(found), cap), where(known, scalar(index), 0.0)
