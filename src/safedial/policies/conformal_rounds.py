"""What a refit freezes: predictors, and every calibration round's score and group under them.

Between refits, bounds depend only on these. All are pure functions of the rounds so far; arrays start with any batch
shape and end with the axis of the n calibration rounds, oldest first.

The rounds that HP-Conformal remembers, in order of decision, for a whole batch at once.

A round's outcome may come late (`fill`) or never: until then its cost is +∞. A round that is void for an unrelated
reason is left out. Which rounds calibrate and when to refit depend only on the round's number, never on outcomes:
otherwise the scores would not be exchangeable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds import ranks
from safedial.bounds.ranks import conforming_bound, p_values, places
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array

Fitted = Callable[[Array], Array]

EARLY = 400
"""From this round on two of three rounds train r̂ and ĉ, and every second one before it."""

SLACK = 1e-12
"""The bound is raised by this share of the size of its parts, which is more than rounding can change."""


class Setup(NamedTuple):
    """How rounds are used; the options of `hp_conformal` with the same names.

    `trains_only`: rounds from before the first decision do not calibrate. `needs_information`: a group whose costs are
    tied has no bound. `signed`: rounds are grouped by the sign of r̂ too; otherwise every round trains and calibrates.
    """

    group: int | str | Callable[[Any], Hashable] | None = None
    window: int = 100_000
    lag: int = 0
    trains_only: bool = False
    needs_information: bool = False
    signed: bool = True


class Past(NamedTuple):
    """The rounds of a refit, oldest first: their numbers from 0, contexts, R/g, C/g (+∞: unknown) and labels.

    `measured` is C − b₀, if ties are to be found, and `first` the number of the first round that may calibrate.
    """

    numbers: Any
    context: Array
    reward: Array
    cost: Array
    label: Any
    measured: Array | None = None
    first: int = 0


class Ties(NamedTuple):
    """By group: the most common measured cost of the known calibration rounds, how many have it, how many are known.

    If more than a third are equal, the cost is flat or censored at a limit, and says nothing about the dose's effect.
    """

    value: Array
    count: Any
    known: Any

    @property
    def found(self) -> Any:
        """The groups in which more than a third, and at least two, have the same value."""
        return (self.count >= 2) & (3 * self.count > self.known)


class Frozen(NamedTuple):
    """What a refit froze: predictors, and the calibration rounds with which a new one is compared.

    `reward` and `cost` are functions of contexts (..., n, d), from rounds apart. `inverse` and `coef` are A⁻¹ and μ̂ of
    the ridge regression of C/g on every known round. `rows`, `residual`, `codes` and `ages` are the contexts of the
    calibration rounds, their residuals under μ̂, their groups and how many later rounds of the same group there are;
    `sizes` counts each group, and its last entry, always 0, stands for a group never seen. A group is twice the label's
    number, plus one if benefit is expected and signs make groups. `ties` says which groups' costs carry no information,
    if requested. `scores` and `scored` are watched: the scores under `cost` of rounds to which it was not fitted, and
    their groups; without sign groups these are not all that calibrate.
    """

    reward: Fitted
    cost: Fitted
    inverse: Array
    coef: Array
    rows: Array
    residual: Array
    codes: Any
    ages: Any
    sizes: Any
    scores: Array
    scored: Any
    ties: Ties | None

    def unknown(self, group: int, kept: int) -> int:
        """How many of the latest `kept` rounds that bound a group have no known outcome."""
        return int(np.sum((self.codes == group) & (self.ages < kept) & ~np.isfinite(self.residual)))


def calibrates(numbers: Any) -> Any:
    """Which rounds, numbered from 0, the fits of r̂ and ĉ leave out: every second one, from `EARLY` on every third."""
    return np.where(numbers < EARLY, numbers % 2 == 1, numbers % 3 == 0)


def freeze(setup: Setup, ridge: float, past: Past) -> Frozen:
    """Fit to the training rounds, then score and group the calibration rounds."""
    context, cost, label = past.context, past.cost, past.label
    known = np.isfinite(cost)
    apart = calibrates(past.numbers) & (past.numbers >= past.first)
    held, rest = np.flatnonzero(apart), np.flatnonzero(~apart)
    targets = np.stack([past.reward[..., rest], cost[..., rest]], axis=-1)
    _, both = ridge_fit(context[..., rest, :], targets, known[..., rest], ridge)
    predict_reward, predict_cost = linear(both[..., 0]), linear(both[..., 1])
    if not setup.signed:
        # The sign then only says how much of the safe dose is given, so r̂ may come from any rounds: from all of them.
        _, coef = ridge_fit(context, past.reward[..., None], known, ridge)
        predict_reward = linear(coef[..., 0])
    rows, outcome = context[..., held, :], cost[..., held]
    groups = 2 * (int(label.max(initial=0)) + 1)
    scored = 2 * label[..., held] + (setup.signed & (predict_reward(rows) >= 0.0))
    scores, codes = score(outcome, predict_cost(rows)), scored
    if not setup.signed:
        held = slice(int(np.searchsorted(past.numbers, past.first)), None)
        rows, outcome, codes = context[..., held, :], cost[..., held], 2 * label[..., held]
    ages, sizes = _ages(codes, groups)
    inverse, coef = ridge_fit(context, cost[..., None], known, ridge)
    residual = score(outcome, linear(coef[..., 0])(rows))
    ties = None if past.measured is None else find_ties(past.measured[held], np.isfinite(outcome), codes, len(sizes))
    fitted = predict_reward, predict_cost, inverse, coef[..., 0]
    return Frozen(*fitted, rows, residual, codes, ages, sizes, scores, scored, ties)


def find_ties(measured: Array, known: Any, codes: Any, groups: int) -> Ties:
    """The most common measured cost of each group's known rounds; for one learner, not a batch.

    >>> ties = find_ties(np.array([0.0, 0.0, 0.3, 0.0, 0.7]), np.ones(5, dtype=bool), np.array([0, 0, 0, 1, 1]), 3)
    >>> ties.value.tolist(), ties.count.tolist(), ties.known.tolist(), ties.found.tolist()
    ([0.0, 0.0, 0.0], [2, 1, 0], [3, 2, 0], [True, False, False])
    """
    value, count, size = np.zeros(groups), np.zeros(groups, dtype=np.int64), np.zeros(groups, dtype=np.int64)
    for code in np.unique(codes[known]):
        values, counts = np.unique(measured[known & (codes == code)], return_counts=True)
        most = int(np.argmax(counts))
        value[code], count[code], size[code] = values[most], counts[most], counts.sum()
    return Ties(value, count, size)


def score(cost: Array, guess: Array) -> Array:
    """C/g − ĉ(x); +∞ if the outcome or the prediction is unknown."""
    known = np.isfinite(guess)
    return np.where(known, cost - np.where(known, guess, 0.0), np.inf)


def linear(coef: Array) -> Fitted:
    """The function of contexts (..., n, d) with these coefficients (..., d)."""
    return lambda rows: (rows @ coef[..., None])[..., 0]


def ridge_fit(rows: Array, targets: Array, seen: Any, ridge: float) -> tuple[Array, Array]:
    """(A⁻¹, coefficients) of ridge regression on the known rows: rows (..., n, d), targets (..., n, k)."""
    if not np.all(seen):
        rows, targets = (np.where(seen[..., None], part, 0.0) for part in (rows, targets))
    gram = np.matrix_transpose(rows) @ rows + ridge * np.eye(rows.shape[-1])
    inverse = np.asarray(np.linalg.inv(gram), dtype=float)
    return inverse, inverse @ (np.matrix_transpose(rows) @ targets)


def _ages(codes: Any, groups: int) -> tuple[Any, Any]:
    """For each round, how many later rounds its group has; for each group, how many rounds it has, with a 0 at the end.

    The rank that bounds the next score often needs only the latest n′ rounds of a group (`bounds.ranks.places`):
    those with age < n′.
    """
    count, batch = codes.shape[-1], int(np.prod(codes.shape[:-1]))
    # A stable sort puts each group's rounds side by side, oldest first, for the whole batch at once: a round's age is
    # then its distance to the end of its run. Small codes as int16, because NumPy sorts those by radix, in linear time.
    order = np.argsort(codes.astype(np.int16) if groups < 2**15 else codes, axis=-1, kind="stable")
    ordered = np.take_along_axis(codes, order, axis=-1)
    places = np.arange(count)
    last = np.ones(codes.shape, dtype=bool)
    last[..., :-1] = ordered[..., 1:] != ordered[..., :-1]
    ends = np.minimum.accumulate(np.where(last, places, count)[..., ::-1], axis=-1)[..., ::-1]
    ages = np.empty(codes.shape, dtype=np.int64)
    np.put_along_axis(ages, order, ends - places, axis=-1)
    # One bincount for the whole batch: each element gets its own range of codes.
    offsets = np.arange(batch)[:, None] * (groups + 1)
    sizes = np.bincount((codes.reshape(batch, count) + offsets).ravel(), minlength=batch * (groups + 1))
    return ages, sizes.reshape((*codes.shape[:-1], groups + 1))


def upper(frozen: Frozen, context: Array, *, code: Any, risk: Any) -> Any:
    """U(x): C/g of a new round of this group exceeds it with probability at most δ; +∞ if there is no bound."""
    if frozen.ties is not None and frozen.ties.found[min(code, len(frozen.ties.known) - 1)]:
        return math.inf
    direction = (frozen.inverse @ context[..., None])[..., 0]
    centre = np.vecdot(context, frozen.coef)
    code = np.asarray(code)
    size = np.take_along_axis(frozen.sizes, np.minimum(code, frozen.sizes.shape[-1] - 1)[..., None], axis=-1)
    kept, top = places(size[..., 0], risk)
    slope = 1.0 + (frozen.rows @ direction[..., None])[..., 0]
    used = (frozen.codes == code[..., None]) & (frozen.ages < kept[..., None])
    # With a positive slope a round counts up to residual/slope, so a quantile of these values is exact. A slope ≤ 0,
    # which is rare, makes it count from a value on; `conforming_bound` handles that.
    if np.all(slope > 0.0):
        bound = _nth_largest(np.where(used, frozen.residual / slope, -np.inf), top)
    else:
        residual, slopes = np.broadcast_to(frozen.residual, used.shape), np.broadcast_to(slope, used.shape)
        bound = np.empty(top.shape)
        for index in np.ndindex(*top.shape):
            mine = used[index]
            bound[index] = conforming_bound(residual[index][mine], slopes[index][mine], int(top[index]))
    margin = (1.0 + np.vecdot(context, direction)) * bound
    found = centre + margin + SLACK * (np.abs(centre) + np.abs(margin))
    return found if np.ndim(found) else float(found)


def _nth_largest(values: Array, top: Any) -> Array:
    """The top-th largest along the last axis; +∞ if top is 0."""
    deepest, count = int(np.max(top, initial=0)), values.shape[-1]
    if deepest == 0:
        return np.full(top.shape, np.inf)
    best = np.sort(np.partition(values, count - deepest, axis=-1)[..., count - deepest :], axis=-1)
    chosen = np.take_along_axis(best, np.minimum(deepest - top, deepest - 1)[..., None], axis=-1)[..., 0]
    return np.where(top > 0, chosen, np.inf)


# --- The rounds that HP-Conformal remembers, in order of decision, for a whole batch at once

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
        self.capital = ranks.init(batch)
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
            self.capital = ranks.update(self.capital, chances[..., step])
            self.alarmed = self.alarmed | ranks.alarm(self.capital)


def _without(past: Past, gone: Any) -> Past:
    """The rounds that are not left out."""
    kept = np.flatnonzero(~gone)
    rows = {name: getattr(past, name)[..., kept] for name in ("numbers", "reward", "cost", "label")}
    measured = None if past.measured is None else past.measured[kept]
    return past._replace(context=past.context[..., kept, :], measured=measured, **rows)


def _room(size: int, batch: tuple[int, ...], shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Zeros (*batch, size, *shape), laid out so that one round of the whole batch is contiguous, as rounds arrive."""
    return np.moveaxis(np.zeros((size, *batch, *shape), dtype), 0, len(batch))
