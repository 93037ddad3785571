"""HP-Shield's rule by brute force: rounds are counted one by one, by the bracket's bound itself and in fractions."""

import math
from fractions import Fraction
from typing import Any, NamedTuple

from safedial.model.brackets import Growth


class Past(NamedTuple):
    """A round: what was applied and measured (NaN: not known), and what would have been played at a scale."""

    applied: float
    cost: float
    played: Any


def shortest_window(count: int, risk: str) -> tuple[int, int]:
    """(n, m) of `count` countable rounds: m = max(1, ⌊δ(N/2 + 1)⌋), n = ⌈m/δ⌉ − 1; (0, 0) where there are too few."""
    delta = Fraction(risk)
    rank = max(1, math.floor(delta * (Fraction(count, 2) + 1)))
    size = math.ceil(rank / delta) - 1
    return (size, rank) if size <= count else (0, 0)


def exceeding(past: list[Past], scale: float, growth: Growth, threshold: float) -> int:
    """How many of the rounds would have exceeded at a scale, or are not known."""
    found = 0
    for each in past:
        bound = growth.bound(each.cost, each.applied, each.played(scale), threshold=threshold)
        found += not bound <= threshold
    return found


def is_largest(past: list[Past], scale: float, growth: Growth, *, threshold: float, rank: int, near: float) -> bool:
    """Whether fewer than `rank` of the rounds exceed at a scale, and at least so many at one that is `near` above."""
    above = scale + near * max(1.0, abs(scale))
    at_scale = exceeding(past, scale, growth, threshold)
    return at_scale < rank <= exceeding(past, above, growth, threshold)
