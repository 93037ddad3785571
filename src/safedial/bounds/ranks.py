"""Conformal bounds: which of n calibration scores bounds the next one.

If n + 1 scores are exchangeable, the last is larger than the m-th largest of the others with probability at most
m/(n+1) (ties only help), over the draw of all of them. So with m = ⌊(n+1)δ⌋ the m-th largest, which is the
⌈(n+1)(1−δ)⌉-th smallest, bounds the next score with probability ≥ 1 − δ. Below n = 1/δ − 1 there is no such score.

**No waste.** m/(n+1) is below δ unless (n+1)δ is whole: with n = 148 scores and δ = .02, m = 2 spends .0134 of .02. The
same m serves for the latest n′ = ⌈m/δ⌉ − 1 scores alone, and spends m/(n′+1), which is δ where 1/δ is whole. Which
scores are used is decided by their number and order, not by their values, so the guarantee stays. `places` says both.

**Full conformal ridge** (`conforming_bound`). Let μ̂ be the ridge estimate from all n rounds, A its Gram matrix, r_i the
residuals. With a further round (x, y) the estimate moves along A⁻¹x; with v = (y − ⟨x,μ̂⟩)/(1 + xᵀA⁻¹x) and
k_i = x_iᵀA⁻¹x, the residuals after it are, exactly,

    e_new = v           e_i = r_i − k_i v

so that e_i ≥ e_new ⟺ r_i ≥ (1 + k_i)·v: each round is a half-line in v, and the y that conform,
#{i : e_i ≥ e_new} ≥ m, are bounded by sorting n numbers r_i/(1 + k_i). docs/conformal.md derives it.

Evidence that rounds are not exchangeable, valid whenever you look.

The p-values of calibration rounds, each ranked among the earlier ones under the predictor of its time, are independent
and uniform (or larger, where scores tie) if rounds are exchangeable. Bets with mean at most 1 then:

    m^{1{p ≤ a}} / (1 + a(m − 1))      the odds of a p-value at or below a are m times what they should be
    ½ p^{−½}                           p-values are small in general
    1                                  no bet

All pay off when costs are higher than calibration predicted; the first kind is the broken guarantee itself, at several
levels a. The capital of all bets, equal at the start, with a share 1/(t+1) spread evenly again before bet t, is a
supermartingale that starts at 1: by Ville's inequality it ever reaches 1/a with probability at most a. The spreading
lets capital that waited in "no bet" act when a drift begins late.

Reference for betting on conformal p-values: Vovk, Nouretdinov and Gammerman (2003).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.model.namespace import Array

TIE = 1e-9
"""Scores this close, relative to the largest, count as tied in a p-value. Costs and contexts with few different values
give scores that differ only by rounding, which varies between processors."""

TABLE = 10_000_000
"""Comparisons in memory at a time."""

NEAR = 1e-13
"""A product within this of a whole number, relatively, counts as that number: 100·0.29 is 29, not 28.999…96."""


def places(count: Any, risk: Any) -> tuple[Any, Any]:
    """(n′, m): the m-th largest of the latest n′ of n scores bounds the next one at risk δ; m = 0 if n is too small.

    >>> [int(part) for part in places(148, 0.02)], [int(part) for part in places(48, 0.02)]
    ([99, 2], [48, 0])
    """
    size = np.asarray(count, dtype=float)
    top = _floor((size + 1.0) * risk)
    kept = np.where(top > 0.0, -_floor(-top / risk) - 1.0, size)
    return kept.astype(np.int64), top.astype(np.int64)


def _floor(value: Any) -> Any:
    whole = np.round(value)
    return np.where(np.abs(value - whole) <= NEAR * np.abs(value), whole, np.floor(value))


def p_value(earlier: Array, score: float, *, unbounded: int = 0) -> float:
    """(1 + how many of the sorted `earlier` scores are ≥ this one)/(1 + how many there are); as many as `unbounded`
    are added to both, whose scores may be as large as any.

    If all are exchangeable, it is uniform or larger, and independent of the p-values of the earlier ones. Scores within
    `TIE` of the largest one's size count as tied, which makes it larger.

    >>> p_value(np.array([0.1, 0.4, 0.9]), 0.5), p_value(np.array([0.3]), 0.1 + 0.2)
    (0.5, 1.0)
    """
    room = TIE * max(abs(score), abs(earlier[0]), abs(earlier[-1])) if earlier.size else 0.0
    above = earlier.size - int(np.searchsorted(earlier, score - room, side="left"))
    return (1.0 + unbounded + above) / (1.0 + unbounded + earlier.size)


def p_values(old: Array, old_groups: Any, new: Array, new_groups: Any) -> Array:
    """`p_value` of each new score (..., m) among the earlier ones of its group: the old (..., n) and the new before it.

    A score of +∞ is unknown: it does not count, and its own p-value is NaN. All batches at once: scores are
    replaced by their ranks (a new one before an old one equal to it), and each batch and group is an interval of keys.
    """
    count, m = int(np.prod(new.shape[:-1])), new.shape[-1]
    scores, before = new.reshape(count, m), old.reshape(count, old.shape[-1])
    groups, former = new_groups.reshape(count, m), old_groups.reshape(count, old.shape[-1])
    kinds = 1 + int(max(groups.max(initial=0), former.max(initial=0)))
    known, counted = np.isfinite(scores), np.isfinite(before)
    sizes = [
        np.max(np.abs(part), axis=1, where=told, initial=0.0) for part, told in ((scores, known), (before, counted))
    ]
    lowered = scores - TIE * np.maximum(*sizes)[:, None]
    batch = np.arange(count)[:, None] * kinds
    width = m + old.shape[-1]
    order = np.argsort(np.concatenate([lowered, before], axis=1), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(width)[None, :], axis=1)
    keys = np.sort(((batch + former) * width + rank[:, m:])[counted])
    first = (batch + groups) * width
    place, low, high = (np.searchsorted(keys, edge) for edge in (first + rank[:, :m], first, first + width))
    above, total = high - place, high - low
    step = max(1, TABLE // (m * m + 1))
    for start in range(0, count, step):
        part = slice(start, start + step)
        mine, theirs = lowered[part, :, None], scores[part, None, :]
        beside = (groups[part, :, None] == groups[part, None, :]) & known[part, None, :] & np.tri(m, k=-1, dtype=bool)
        above[part] += (beside & (theirs >= mine)).sum(axis=-1)
        total[part] += beside.sum(axis=-1)
    return np.where(known, (1.0 + above) / (1.0 + total), np.nan).reshape(new.shape)


def chances(low: Array, up: Array, group: Any, member: Any, *, first: int = 0) -> Array:
    """The p-values of the rounds from `first` on, (lanes, n − first), each among the earlier rounds of its group.

    Rounds have two numbers, (lanes, n): `up`, by which they are ranked, and `low`, among which later ones are ranked:

        p_t = (1 + #{i < t : same group, low_i ≤ up_t}) / (1 + #{i < t : same group})

    If all are members of an exchangeable sequence and low = up, it is uniform or larger, and independent of the earlier
    ones. A lower `low` or a higher `up` only raises it, so an unknown round has −∞ and ∞. A round that is no member
    counts nowhere, and its own p-value is NaN.

    >>> low = np.array([[3.0, 1.0, 2.0]])
    >>> chances(low, low, np.zeros((1, 3)), np.ones((1, 3), dtype=bool)).tolist()
    [[1.0, 0.5, 0.6666666666666666]]
    """
    lanes, count = low.shape
    # Those before `first`, by one sort: each round from `first` on is put, by `up`, behind the lower ones of its group.
    values = np.concatenate([low[:, :first], up[:, first:]], axis=1)
    order = np.lexsort((values, group), axis=-1)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(count)[None, :], axis=1)
    counted = np.take_along_axis(member & (np.arange(count) < first), order, axis=1)
    groups = np.take_along_axis(group, order, axis=1)
    change = groups[:, 1:] != groups[:, :-1]
    edge = np.ones((lanes, 1), dtype=bool)
    seen = np.cumsum(counted, axis=1)
    starts = np.where(np.concatenate([edge, change], axis=1), seen - counted, 0)
    ends = np.where(np.concatenate([change, edge], axis=1), seen, count)
    before = np.maximum.accumulate(starts, axis=1)
    after = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    mine = places[:, first:]
    above, total = (np.take_along_axis(each - before, mine, axis=1) for each in (seen, after))
    # Those from `first` on are compared with each other.
    step = max(1, TABLE // ((count - first) ** 2 + 1))
    for lane in range(0, lanes, step):
        part = slice(lane, lane + step), slice(first, None)
        beside = (group[part][:, :, None] == group[part][:, None, :]) & member[part][:, None, :]
        beside &= np.tri(count - first, k=-1, dtype=bool)
        above[lane : lane + step] += (beside & (low[part][:, None, :] <= up[part][:, :, None])).sum(axis=-1)
        total[lane : lane + step] += beside.sum(axis=-1)
    return np.where(member[:, first:], (1.0 + above) / (1.0 + total), np.nan)


def conforming_bound(residual: Array, slope: Array, top: int) -> float:
    """The largest v with #{i : residual_i ≥ slope_i·v} ≥ top; +∞ if it has no bound, or none conforms, or top is 0.

    A round with slope > 0 counts for v ≤ residual/slope. A slope ≤ 0 is rare (it needs x_iᵀA⁻¹x ≤ −1): such a
    round counts for v ≥ residual/slope, or, at slope 0, always or never.

    >>> conforming_bound(np.array([1.0, 2.0, 3.0]), np.ones(3), 2)
    2.0
    """
    if top < 1:
        return np.inf
    ordinary = slope > 0.0
    limits = np.sort(residual[ordinary] / slope[ordinary])[::-1]
    starts = np.sort(residual[slope < 0.0] / slope[slope < 0.0])
    always = int(np.sum((slope == 0.0) & (residual >= 0.0)))
    if starts.size + always >= top:
        return np.inf
    counted = np.arange(1, limits.size + 1) + np.searchsorted(starts, limits, side="right") + always
    conforming = counted >= top
    return float(limits[np.argmax(conforming)]) if conforming.any() else np.inf


# --- Evidence that rounds are not exchangeable, valid whenever you look

LEVELS = np.repeat([0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001], 2)
ODDS = np.tile([2.0, 4.0], 7)
"""The pairs (a, m) that are bet on."""

WON, LOST = (paid / (1.0 + LEVELS * (ODDS - 1.0)) for paid in (ODDS, 1.0))
"""By what each multiplies its capital, for a p-value at or below its level, and above it."""

BETS = LEVELS.size + 2
LARGEST = 1e290


class Capital(NamedTuple):
    """What each bet holds, last axis, and how many p-values were seen."""

    held: Any
    seen: Any


def init(batch: tuple[int, ...] = ()) -> Capital:
    return Capital(np.full((*batch, BETS), 1.0 / BETS), np.zeros(batch))


def update(capital: Capital, p: Any) -> Capital:
    """Add one p-value in (0, 1]; NaN leaves the capital unchanged.

    >>> capital = init()
    >>> for _ in range(8):
    ...     capital = update(capital, 0.01)
    >>> bool(evidence(capital) > 100)
    True
    """
    if type(p) is float and p == p:
        return _update_one(capital, p)
    chance = np.asarray(p, dtype=float)[..., None]
    share = (1.0 / (np.asarray(capital.seen) + 2.0))[..., None]
    spread = (1.0 - share) * capital.held + share * np.mean(capital.held, axis=-1, keepdims=True)
    odds = np.where(chance <= LEVELS, WON, LOST)
    bets = np.concatenate([odds, 0.5 * chance**-0.5, np.ones_like(chance)], axis=-1)
    known = np.isfinite(chance)
    held = np.where(known, np.minimum(spread * bets, LARGEST), capital.held)
    return Capital(held, capital.seen + known[..., 0])


def _update_one(capital: Capital, p: float) -> Capital:
    """`update` for one learner, with the same bits in less time."""
    share, bets = 1.0 / (capital.seen + 2.0), np.ones(BETS)
    bets[:-2] = np.where(p <= LEVELS, WON, LOST)
    bets[-2:-1] = 0.5 * np.array([p]) ** -0.5
    spread = (1.0 - share) * capital.held + share * (np.add.reduce(capital.held) / BETS)
    return Capital(np.minimum(spread * bets, LARGEST), capital.seen + 1.0)


def evidence(capital: Capital) -> Any:
    """1 at the start; large when rounds do not look exchangeable."""
    return np.sum(capital.held, axis=-1)


def alarm(capital: Capital, level: float = 0.01) -> Any:
    """True if the evidence is at or above 1/level. Keep the first alarm: a later value does not cancel it."""
    return evidence(capital) >= 1.0 / level
