"""What a refit freezes: predictors, and every calibration round's score and group under them.

Between refits, bounds depend only on these. All are pure functions of the rounds so far; arrays start with any batch
shape and end with the axis of the n calibration rounds, oldest first.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.conformal import conforming_bound, places, sure_places
from safedial.core.spec import SafetySpec
from safedial.policies.conformal.predictors import Fitted, fit_each, linear, ridge_fit

Array = NDArray[np.float64]

EARLY = 400
"""The full form keeps two of three rounds apart from this round on, and every second one before it."""

SLACK = 1e-12
"""The bound is raised by this share of the size of its parts, which is more than rounding can change."""


class Setup(NamedTuple):
    """How rounds are used; the options of `hp_conformal` with the same names.

    `trains_only`: rounds from before the first decision do not calibrate. `needs_information`: a group whose costs are
    tied has no bound. `signed`: rounds are grouped by the sign of r̂ too.
    """

    form: str = "split"
    group: int | str | Callable[[Any], Hashable] | None = None
    predictor: Any = None
    window: int = 100_000
    lag: int = 0
    trains_only: bool = False
    needs_information: bool = False
    signed: bool = True

    @property
    def all_calibrate(self) -> bool:
        """Whether every round trains and calibrates: in the full form, if groups are not learned."""
        return self.form == "full" and not self.signed


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


class Full(NamedTuple):
    """Full conformal ridge: A⁻¹ and μ̂ from every known round; the calibration rounds with their residuals,
    groups and ages, which are those of `Frozen` unless every round calibrates.
    """

    inverse: Array
    coef: Array
    rows: Array
    residual: Array
    codes: Any
    ages: Any


class Frozen(NamedTuple):
    """Predictors (functions of contexts (..., n, d)), and the calibration rounds under them.

    `codes` are groups: twice the label's number, plus one if benefit is expected and signs make groups. `ages` count
    the later rounds of the same group. `sizes` counts each group of the rounds that bound the next one; its last entry,
    always 0, stands for a group never seen. `ties` says which groups' costs carry no information, if requested. `cache`
    holds the quantiles for the last spec used. If every round calibrates, `scores` and `codes` are only watched: those
    of the rounds to which `cost` was not fitted.
    """

    reward: Fitted
    cost: Fitted
    scores: Array
    codes: Any
    ages: Any
    sizes: Any
    full: Full | None
    ties: Ties | None
    cache: list[Any]

    def unknown(self, group: int, kept: int) -> int:
        """How many of the latest `kept` rounds that bound a group have no known outcome."""
        codes, ages, scores = (self.codes, self.ages, self.scores)
        if self.full is not None:
            codes, ages, scores = self.full.codes, self.full.ages, self.full.residual
        return int(np.sum((codes == group) & (ages < kept) & ~np.isfinite(scores)))


def calibrates(numbers: Any, form: str) -> Any:
    """Which rounds, numbered from 0, calibrate: every second one; in the full form every third one from `EARLY` on."""
    if form == "split":
        return numbers % 2 == 1
    return np.where(numbers < EARLY, numbers % 2 == 1, numbers % 3 == 0)


def freeze(setup: Setup, ridge: float, past: Past) -> Frozen:
    """Fit to the training rounds, then score and group the calibration rounds."""
    context, cost, label = past.context, past.cost, past.label
    known = np.isfinite(cost)
    held, rest = _parts(past.numbers, setup.form, past.first)
    apart, seen = context[..., rest, :], known[..., rest]
    targets = np.stack([past.reward[..., rest], cost[..., rest]], axis=-1)
    predict_reward, predict_cost = _predictors(setup, ridge, apart, targets, seen)
    if not setup.signed:
        # The sign then only says how much of the safe dose is given, so r̂ may come from any rounds: from all of them.
        _, coef = ridge_fit(context, past.reward[..., None], known, ridge)
        predict_reward = _own(setup, context, past.reward, known, linear(coef[..., 0]))
    rows, outcome = context[..., held, :], cost[..., held]
    guess, benefit = predict_cost(rows), predict_reward(rows)
    if not np.all(np.isfinite(guess) & np.isfinite(benefit)):
        words = "a predictor gave values that are not finite: such rounds score +inf and get the start dose"
        warnings.warn(words, UserWarning, stacklevel=2)
    groups = 2 * (int(label.max(initial=0)) + 1)
    codes = 2 * label[..., held] + (setup.signed & (benefit >= 0.0))
    scores = score(outcome, guess)
    bounding = codes
    if setup.all_calibrate:
        held = slice(int(np.searchsorted(past.numbers, past.first)), None)
        rows, outcome, bounding = context[..., held, :], cost[..., held], 2 * label[..., held]
    ages, sizes = _ages(bounding, groups)
    full = None
    if setup.form == "full":
        inverse, coef = ridge_fit(context, cost[..., None], known, ridge)
        residual = score(outcome, linear(coef[..., 0])(rows))
        full = Full(inverse, coef[..., 0], rows, residual, bounding, ages)
    ties = None if past.measured is None else find_ties(past.measured[held], np.isfinite(outcome), bounding, len(sizes))
    return Frozen(predict_reward, predict_cost, scores, codes, ages, sizes, full, ties, [])


def _parts(numbers: Any, form: str, first: int) -> tuple[Any, Any]:
    """Which rows calibrate and which train; slices, which copy nothing, if they alternate."""
    held = calibrates(numbers, form) & (numbers >= first)
    gapless = held.size and numbers[0] >= first and numbers[-1] - numbers[0] + 1 == held.size
    if form == "split" and gapless:
        odd = int(held[0])
        return slice(1 - odd, None, 2), slice(odd, None, 2)
    return np.flatnonzero(held), np.flatnonzero(~held)


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


def _ages(codes: Any, groups: int) -> tuple[Any, Any]:
    """For each round, how many later rounds its group has; for each group, how many rounds it has, with a 0 at the end.

    The rank that bounds the next score often needs only the latest n′ rounds of a group (`core.conformal.places`):
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


def upper(frozen: Frozen, context: Array, *, cost: Any, code: Any, spec: SafetySpec, confidence: float | None) -> Any:
    """U(x): C/g of a new round of this group exceeds it with probability at most δ; +∞ if there is no bound."""
    if frozen.ties is not None and frozen.ties.found[min(code, len(frozen.ties.known) - 1)]:
        return math.inf
    if frozen.full is not None:
        return _full_upper(frozen, frozen.full, context, code=code, spec=spec, confidence=confidence)
    quantile = quantiles(frozen, spec, confidence)
    if isinstance(code, int):
        margin = float(quantile[min(code, len(quantile) - 1)])
    else:
        group = np.broadcast_to(np.minimum(code, quantile.shape[-1] - 1), quantile.shape[:-1])
        margin = np.take_along_axis(quantile, group[..., None], axis=-1)[..., 0]
    return cost + margin + SLACK * (abs(cost) + abs(margin))


def quantiles(frozen: Frozen, spec: SafetySpec, confidence: float | None) -> Array:
    """The score that bounds the next one of each group, (..., groups + 1); +∞ if there is none."""
    if not frozen.cache or frozen.cache[0] is not spec:
        kept, top = places_of(frozen.sizes, spec.violation_risk, confidence)
        found = np.full(kept.shape, np.inf)
        for code in np.flatnonzero(np.any(top.reshape(-1, top.shape[-1]) > 0, axis=0)):
            used = (frozen.codes == code) & (frozen.ages < kept[..., code, None])
            found[..., code] = _nth_largest(np.where(used, frozen.scores, -np.inf), top[..., code])
        frozen.cache[:] = [spec, found]
    return frozen.cache[1]


def _full_upper(
    frozen: Frozen, full: Full, context: Array, *, code: Any, spec: SafetySpec, confidence: float | None
) -> Any:
    direction = (full.inverse @ context[..., None])[..., 0]
    centre = np.vecdot(context, full.coef)
    code = np.asarray(code)
    kept, top = group_places(frozen, code, spec.violation_risk, confidence)
    slope = 1.0 + (full.rows @ direction[..., None])[..., 0]
    used = (full.codes == code[..., None]) & (full.ages < kept[..., None])
    # With a positive slope a round counts up to residual/slope, so a quantile of these values is exact. A slope ≤ 0,
    # which is rare, makes it count from a value on; `conforming_bound` handles that.
    if np.all(slope > 0.0):
        bound = _nth_largest(np.where(used, full.residual / slope, -np.inf), top)
    else:
        residual, slopes = np.broadcast_to(full.residual, used.shape), np.broadcast_to(slope, used.shape)
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


def group_places(frozen: Frozen, code: Any, risk: Any, confidence: float | None) -> tuple[Any, Any]:
    """(kept, top) of the group of each new round; (n, 0) if it has too few rounds, known or not."""
    size = np.take_along_axis(frozen.sizes, np.minimum(code, frozen.sizes.shape[-1] - 1)[..., None], axis=-1)
    kept, top = places_of(size, risk, confidence)
    return kept[..., 0], top[..., 0]


def places_of(size: Any, risk: Any, confidence: float | None) -> tuple[Any, Any]:
    """(kept, top) for each group: `places`, or `sure_places` if a confidence is given."""
    chance = np.asarray(risk)[..., None]
    return places(size, chance) if confidence is None else sure_places(size, chance, confidence)


def _predictors(setup: Setup, ridge: float, apart: Array, targets: Array, seen: Any) -> tuple[Fitted, Fitted]:
    _, coef = ridge_fit(apart, targets, seen, ridge)
    reward, cost = (_own(setup, apart, targets[..., side], seen, linear(coef[..., side])) for side in (0, 1))
    return reward, cost


def _own(setup: Setup, rows: Array, target: Array, seen: Any, early: Fitted) -> Fitted:
    """The user's model fitted to the known rows, if there is one; else, and while it has too few, `early`."""
    if setup.predictor is None:
        return early
    return fit_each(setup.predictor, rows, target, seen, name="predictor", early=early)
