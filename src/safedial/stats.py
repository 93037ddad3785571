"""Which seeds: one reader for Python, the command line and grid files.

Intervals for means and rates over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from safedial.errors import InvalidInput, require

Seeds = int | np.integer[Any] | str | Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]]
"""What `as_seeds` reads."""

RULE = "must be a count >= 1, a range such as 0:100, or a list of different whole numbers >= 0"


def as_seeds(given: Any, argument: str = "seeds") -> list[int]:
    """A count (0, 1, …), a list, a range or an array; as text "20", "0:100" (without 100) or "3,5,9".

    >>> as_seeds(3), as_seeds(range(7, 9)), as_seeds("2:5"), as_seeds("3,5,9")
    ([0, 1, 2], [7, 8], [2, 3, 4], [3, 5, 9])
    """
    found: Any = _from_text(given, argument) if isinstance(given, str) else given
    if type(found) is int or isinstance(found, np.integer):
        found = range(int(found))
    way_out = "a set has no order: give sorted(...) of it" if type(given) in (set, frozenset) else ""
    require(isinstance(found, (Sequence, np.ndarray)), argument, given, RULE, way_out)
    try:
        chosen = list(found)
    except (OverflowError, MemoryError) as error:
        raise InvalidInput(f"{argument} = {given!r}: are too many seeds; {RULE}") from error
    whole = all(isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0 for seed in chosen)
    require(chosen and whole and len(set(chosen)) == len(chosen), argument, given, RULE)
    return [int(seed) for seed in chosen]


def _from_text(text: str, argument: str) -> Any:
    first, colon, last = text.partition(":")
    try:
        if colon:
            return range(int(first or 0), int(last))
        return [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
    except ValueError as error:
        raise InvalidInput(f"{argument} = {text!r}: {RULE}") from error


# --- Intervals for means and rates over seeds


def seed_interval(values: Any, level: float = 0.95) -> tuple[float, float]:
    """Student's interval for a mean over seeds; with one seed, the value itself twice.

    >>> [round(end, 3) for end in seed_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    mean, half = seed_band(np.ravel(values), level)
    return float(mean - half), float(mean + half)


def seed_band(values: Any, level: float = 0.95) -> tuple[Any, Any]:
    """Means over the last axis, the seeds, and half the widths of Student's intervals; with one seed, 0."""
    from scipy.special import stdtrit

    seeds = np.asarray(values, dtype=float)
    size, mean = seeds.shape[-1], seeds.mean(axis=-1)
    if size == 1:
        return mean, np.zeros(mean.shape)
    return mean, float(stdtrit(size - 1, 0.5 + level / 2)) * seeds.std(axis=-1, ddof=1) / math.sqrt(size)


def share_interval(parts: Any, wholes: Any, level: float = 0.95) -> tuple[float, float] | None:
    """Student's interval for Σ parts / Σ wholes over seeds, linearised; None if the wholes add up to nothing.

    >>> [round(end, 3) for end in share_interval([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])]
    [0.5, 0.5]
    """
    part, whole = np.asarray(parts, dtype=float), np.asarray(wholes, dtype=float)
    if whole.sum() <= 0.0:
        return None
    share = part.sum() / whole.sum()
    return seed_interval(share + (part - share * whole) / whole.mean(), level)


def binomial_interval(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval for a chance, from how many of `count` independent tosses hit.

    >>> [round(end, 4) for end in binomial_interval(0, 1000)]
    [0.0, 0.0037]
    """
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0
    return low, float(betaincinv(hits + 1, count - hits, 1.0 - tail)) if hits < count else 1.0


def violation_interval(violations: Any, rounds: float, level: float = 0.95) -> tuple[float, float]:
    """An interval for the violation rate: the hull of two.

    Wilson's interval pools all rounds; it is accurate for rare events but ignores that seeds differ (each has its own
    θ* and μ*). Student's interval over the rates of the seeds accounts for that, but is empty if no seed has a
    violation. The hull covers at least as often as either.

    >>> low, high = violation_interval([2, 3, 1], rounds=10_000)
    >>> bool(0 <= low < 0.0002 < high < 0.001)
    True
    """
    counts = np.asarray(violations, dtype=float).ravel()
    require(counts.size, "violations", violations, "must hold at least one count")
    rate, low, high = _wilson(counts, rounds, level)
    by_seed = seed_interval(counts / rounds, level)
    low, high = min(low, by_seed[0]), max(high, by_seed[1])
    return max(low, 0.0) if rate > 0.0 else 0.0, min(high, 1.0) if rate < 1.0 else 1.0


def difference_interval(violations: Any, others: Any, rounds: float, level: float = 0.95) -> tuple[float, float]:
    """An interval for the difference of two violation rates of the same seeds: Student's over the paired differences.

    If all seeds tie, as they do where excesses are rare or there is one seed, that would be a point. Then it is
    Newcombe's, which combines Wilson's intervals of both rates over the pooled rounds.

    >>> low, high = difference_interval([0, 0, 0], [0, 0, 0], rounds=1000)
    >>> bool(low < 0 < high < 0.002)
    True
    """
    counts, other = (np.asarray(each, dtype=float).ravel() for each in (violations, others))
    if np.ptp(counts - other) > 0.0:
        return seed_interval((counts - other) / rounds, level)
    (rate, low, high), (base, least, most) = _wilson(counts, rounds, level), _wilson(other, rounds, level)
    less, more = math.hypot(rate - low, most - base), math.hypot(high - rate, base - least)
    return rate - base - less, rate - base + more


def _wilson(counts: Any, rounds: float, level: float) -> tuple[float, float, float]:
    """The rate of all rounds together, and the ends of Wilson's interval."""
    from scipy.special import ndtri

    total, rate = counts.size * rounds, float(counts.mean() / rounds)
    quantile = float(ndtri(0.5 + level / 2))
    centre = (rate + quantile**2 / (2 * total)) / (1 + quantile**2 / total)
    half = quantile * math.sqrt(rate * (1 - rate) / total + quantile**2 / (4 * total**2)) / (1 + quantile**2 / total)
    return rate, centre - half, centre + half
