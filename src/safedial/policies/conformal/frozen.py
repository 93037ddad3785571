"""What a refit freezes: predictors, and every calibration round's score and group under them.

Between refits, bounds depend only on these. All are pure functions of the rounds so far; arrays start with any batch
shape and end with the axis of the n calibration rounds, oldest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.conformal import conforming_bound, places

Array = NDArray[np.float64]
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
