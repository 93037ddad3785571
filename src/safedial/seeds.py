"""Which seeds: one reader for Python, the command line and grid files."""

from __future__ import annotations

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
