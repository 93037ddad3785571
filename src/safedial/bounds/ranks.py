"""Conformal bounds: which of n calibration scores bounds the next one.

If n + 1 scores are exchangeable, the last is larger than the m-th largest of the others with probability at most
m/(n+1) (ties only help), over the draw of all of them. So with m = ⌊(n+1)δ⌋ the m-th largest, which is the
⌈(n+1)(1−δ)⌉-th smallest, bounds the next score with probability ≥ 1 − δ. Below n = 1/δ − 1 there is no such score.

**No waste.** m/(n+1) is below δ unless (n+1)δ is whole: with n = 148 scores and δ = .02, m = 2 spends .0134 of .02. The
same m serves for the latest n′ = ⌈m/δ⌉ − 1 scores alone, and spends m/(n′+1), which is δ where 1/δ is whole. Which
scores are used is decided by their number and order, not by their values, so the guarantee stays. `places` says both.

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
    # Those before `first`, by one sort of all lanes: numbers are replaced by their ranks (a `low` before an `up` equal
    # to it), so that each lane and group is an interval of whole numbers.
    order = np.argsort(np.concatenate([low[:, :first], up[:, first:]], axis=1), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(count)[None, :], axis=1)
    starts = (np.arange(lanes)[:, None] * (1 + int(group.max(initial=0))) + group) * count
    keys = np.sort((starts + rank)[:, :first][member[:, :first]])
    starts, rank = starts[:, first:], rank[:, first:]
    place, begin, end = (np.searchsorted(keys, edge) for edge in (starts + rank, starts, starts + count))
    above, total = place - begin, end - begin
    # Those from `first` on are compared with each other.
    step = max(1, TABLE // ((count - first) ** 2 + 1))
    for lane in range(0, lanes, step):
        part = slice(lane, lane + step), slice(first, None)
        beside = (group[part][:, :, None] == group[part][:, None, :]) & member[part][:, None, :]
        beside &= np.tri(count - first, k=-1, dtype=bool)
        above[lane : lane + step] += (beside & (low[part][:, None, :] <= up[part][:, :, None])).sum(axis=-1)
        total[lane : lane + step] += beside.sum(axis=-1)
    return np.where(member[:, first:], (1.0 + above) / (1.0 + total), np.nan)


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
    return np.add.reduce(capital.held, axis=-1)


def alarm(capital: Capital, level: float = 0.01) -> Any:
    """True if the evidence is at or above 1/level. Keep the first alarm: a later value does not cancel it."""
    return evidence(capital) >= 1.0 / level
