"""One statement about an eluder dimension, and the definition itself as a check of a witness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require

Array = NDArray[np.float64]
Kind = Literal["exact", "lower bound", "upper bound"]


@dataclass(frozen=True)
class Eluder:
    """`dimension` is exact or a bound, as `kind` says, at `epsilon`, by `method`.

    If it is proved by a sequence of contexts, `sequence` holds their numbers, `scale` the common ε′, and `pairs`
    (finite classes) the two functions that show each one independent of its predecessors.
    """

    dimension: int
    kind: Kind
    epsilon: float
    method: str
    scale: float | None = None
    sequence: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


def is_eluder_sequence(values: Any, sequence: Sequence[int], scale: float) -> bool:
    """Whether every context of `sequence` is `scale`-independent of its predecessors: the definition, over all pairs.

    `values` holds one function per row and one context per column.

    >>> steps = np.tri(4, 3, -1)                    # 1{x < i}
    >>> is_eluder_sequence(steps, [0, 1, 2], 0.5), is_eluder_sequence(steps, [0, 0], 0.5)
    (True, False)
    """
    functions = check_values(values)
    for place, context in enumerate(sequence):
        before = functions[:, list(sequence[:place])]
        if not any(
            np.any((np.sum((before - row) ** 2, axis=1) <= scale**2) & (functions[:, context] - now > scale))
            for row, now in zip(before, functions[:, context], strict=True)
        ):
            return False
    return True


def check_values(values: Any) -> Array:
    """Functions × contexts as finite floats."""
    try:
        functions = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        functions = np.empty(())
    way_out = "one function per row, one context per column"
    require(functions.ndim == 2, "values", values, "must be a matrix of numbers", way_out)
    require(functions.size, "values", functions.shape, "must hold at least one function and one context")
    require(np.isfinite(functions).all(), "values", values, "must be finite numbers")
    return functions


def check_positive(name: str, value: Any) -> float:
    """A finite number > 0."""
    holds = isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0.0 < value < np.inf
    require(holds, name, value, "must be a finite number > 0")
    return float(value)
