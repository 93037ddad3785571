"""Ranges of plausible raw values, from a log: a value outside them is more likely a typing error or another unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

from safedial.rounds_io import Array

WIDER = 0.5
"""How far a range reaches beyond the values that were seen, as a share of their spread, on either side."""


def propose_ranges(names: Sequence[str], values: Array) -> dict[str, tuple[float, float]]:
    """By column of `values` (n, d): from the smallest to the largest, widened and rounded outwards.

    Where no value is negative, a range begins at half of the smallest at the least. A column of equal numbers says
    nothing about which others are plausible, and has no range.

    >>> import numpy as np
    >>> propose_ranges(("dose", "slope", "ward"), np.array([[300.0, -1.0, 3.0], [3000.0, 1.0, 3.0]]))
    {'dose': (100.0, 4400.0), 'slope': (-2.0, 2.0)}
    """
    found = {}
    for name, column in zip(names, values.T, strict=True):
        low, high = float(column.min()), float(column.max())
        spread = high - low
        if spread > 0.0:
            step = 10.0 ** (floor(log10(spread)) - 1)
            least = low - WIDER * spread if low < 0.0 else max(low - WIDER * spread, low / 2.0)
            ends = floor(least / step) * step, ceil((high + WIDER * spread) / step) * step
            found[name] = tuple(float(f"{end:.12g}") for end in ends)
    return found


def range_words(ranges: Mapping[str, tuple[float, float]]) -> str:
    """The proposal and its reason, in plain words; empty if there is none."""
    told = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in ranges.items())
    why = "The smallest and the largest value of the file, widened on either side by half of their distance"
    why += " (where none is negative, to no less than half of the smallest)"
    means = "A case outside them is refused unless extrapolation is allowed: change them where others are plausible"
    return f"ranges: {told}. {why}. {means}." if told else ""
