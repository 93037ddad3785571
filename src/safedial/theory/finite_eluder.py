"""The eluder dimension of a finite class, given as a matrix of values: functions × contexts.

**A context appears at most once.** If x stood at places i < j, its pair at j would have √Σ_{before j}(f − f′)² ≥ |(f
− f′)(x_i)| = |(f − f′)(x)| > ε′, and not ≤ ε′. The same holds for a pair: one that has served at x_i is > ε′ there,
so it serves no later one. Hence dim_E ≤ min(contexts, |F|(|F| − 1)/2). (|F| − 1 is no bound for real values:
`docs/eluder.md` has three functions with dimension 3.) Contexts at which all pairs differ equally count as one
context.

**Finitely many ε′ matter.** Let d_i = |f_i − f_i′| be the pair that serves the i-th context and S_i = √Σ_{j<i}
d_i(x_j)². One ε′ ≥ ε serves all i if and only if max(ε, max_i S_i) < v := min_i d_i(x_i). Such a v is one of the
differences |f − f′|(x), it is > ε, and every i has d_i(x_i) ≥ v and S_i < v; conversely these two, for any v > ε,
leave room for ε′ in [max(ε, max_i S_i), v). So dim_E is the largest, over differences v > ε, of the longest sequence
in which each context has a pair with

    d(x_i) ≥ v   and   Σ_{j<i} d(x_j)² < v².

The first i − 1 contexts enter only as a set, so `search` walks over sets of contexts.

**Rounding.** Sums within a relative 1e-12 of v² count as ties (not independent), and so do differences within 1e-12
of ε.

Reference: Russo & Van Roy (2013), Eluder dimension and the sample complexity of optimistic exploration, NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from safedial.errors import require
from safedial.theory.eluder_bound import Array, Eluder, check_positive, check_values
from safedial.theory.search import greedy, longest

EXACT_CONTEXTS = 16
EXACT_PAIRS = 20_000
GREEDY_PAIRS = 20_000
GREEDY_LEVELS = 32
TIE = 1e-12


def eluder_dimension(
    values: Any,
    epsilon: float,
    *,
    method: Literal["auto", "exact", "greedy"] = "auto",
    progress: Callable[[int], None] | None = None,
) -> Eluder:
    """dim_E(F, ε) of the class whose functions are the rows of `values`, with a sequence that attains it.

    `exact` searches all sets of contexts (at most 16 that differ, and 20,000 pairs of functions that do); `greedy`
    extends one sequence at a time, on at most 20,000 pairs and 32 levels v, and gives a lower bound, proved by its
    sequence. `auto` uses exact if possible. `progress` is called with 1 for each per cent done.

    >>> indicators = np.eye(4)
    >>> found = eluder_dimension(indicators, 0.5)
    >>> found.dimension, found.kind, len(found.sequence)      # the fourth has no function left to compare with
    (3, 'exact', 3)
    >>> eluder_dimension(np.vstack([indicators, np.zeros(4)]), 0.5).dimension
    4
    """
    functions, epsilon = check_values(values), check_positive("epsilon", epsilon)
    require(method in ("auto", "exact", "greedy"), "method", method, "must be auto, exact or greedy")
    distinct = np.unique(functions, axis=0, return_index=True)[1]
    pairs = distinct[_pairs(len(distinct))]
    gaps, contexts = _gaps(functions, pairs)
    exact = method == "exact" or (method == "auto" and searchable(functions))
    most = f"needs at most {EXACT_CONTEXTS} contexts that differ and {EXACT_PAIRS} pairs of functions"
    rule = f"{most}, not {gaps.shape[1]} and {len(distinct) * (len(distinct) - 1) // 2}"
    way_out = "use greedy, which gives a lower bound"
    require(not exact or searchable(functions), "method", "exact", rule, way_out)
    levels = _levels(gaps, epsilon)
    best, level = _best(gaps, levels, exact=exact, progress=progress)
    kind = "exact" if exact else "lower bound"
    how = "search over all sets of contexts" if exact else "greedy sequence"
    return _witness(
        functions, pairs, epsilon, label=(kind, how), sequence=[int(contexts[x]) for x in best], level=level
    )


def searchable(values: Any) -> bool:
    """Whether the class is small enough for the exact search."""
    functions = np.unique(check_values(values), axis=0)
    pairs = len(functions) * (len(functions) - 1) // 2
    return pairs <= EXACT_PAIRS and _gaps(functions, _pairs(len(functions)))[0].shape[1] <= EXACT_CONTEXTS


def _best(
    gaps: Array, levels: Array, *, exact: bool, progress: Callable[[int], None] | None
) -> tuple[list[int], float]:
    """The longest sequence found, with its level v: greedy at some levels, then, if exact, the search at every one."""
    best, at = [], 0
    tried = np.unique(np.linspace(0, len(levels) - 1, min(GREEDY_LEVELS, len(levels))).astype(int))
    for number in tried if exact else _watched(tried, progress):
        found = greedy(gaps, levels[number], TIE)
        if len(found) > len(best):
            best, at = found, number
    if exact:
        served = np.searchsorted(np.sort(-gaps.max(axis=0, initial=0.0)), -levels, side="right")
        for number in _watched(np.argsort(np.abs(np.arange(len(levels)) - at), kind="stable"), progress):
            if served[number] > len(best):
                found = longest(gaps, levels[number], TIE, more_than=len(best))
                best, at = (found, number) if found else (best, at)
    return best, float(levels[at]) if best else 0.0


def _watched(numbers: Any, progress: Callable[[int], None] | None) -> Iterator[int]:
    """The numbers, reporting every per cent to `progress`."""
    for place, number in enumerate(numbers):
        yield number
        step = (place + 1) * 100 // len(numbers) - place * 100 // len(numbers)
        if progress is not None and step:
            progress(step)


def _pairs(count: int) -> Any:
    """All pairs of functions, or a fixed random choice if there are too many."""
    if count * (count - 1) // 2 <= EXACT_PAIRS:
        return np.column_stack(np.triu_indices(count, 1))
    drawn = np.random.default_rng(0).integers(count, size=(2 * GREEDY_PAIRS, 2))
    return drawn[drawn[:, 0] != drawn[:, 1]][:GREEDY_PAIRS]


def _gaps(functions: Array, pairs: Any) -> tuple[Array, Any]:
    """|f − f′| of the pairs at the contexts that differ, without repeated rows; and which contexts these are."""
    gaps = np.abs(functions[pairs[:, 0]] - functions[pairs[:, 1]]).reshape(len(pairs), functions.shape[1])
    _, contexts = np.unique(gaps, axis=1, return_index=True)
    contexts = np.sort(contexts)
    return np.unique(gaps[:, contexts], axis=0), contexts


def _levels(gaps: Array, epsilon: float) -> Array:
    """The differences > ε in ascending order, one of each cluster of ties."""
    levels = np.unique(gaps)
    levels = levels[levels > epsilon * (1.0 + TIE)]
    return levels[np.diff(levels, prepend=0.0) > TIE * levels]


def _witness(functions: Array, pairs: Any, epsilon: float, *, label: Any, sequence: list[int], level: float) -> Eluder:
    """The pair of least sum at each place, and an ε′ in the middle of what is left between the sums and v."""
    served, floor = [], epsilon
    for place, context in enumerate(sequence):
        gaps = np.abs(functions[pairs[:, 0]] - functions[pairs[:, 1]])
        sums = np.where(gaps[:, context] >= level, np.sum(gaps[:, sequence[:place]] ** 2, axis=1), np.inf)
        pick = int(np.argmin(sums))
        floor = max(floor, float(np.sqrt(sums[pick])))
        served.append((int(pairs[pick, 0]), int(pairs[pick, 1])))
    scale = 0.5 * (floor + level) if sequence else None
    return Eluder(len(sequence), label[0], epsilon, label[1], scale, tuple(sequence), tuple(served))


def finite_upper(values: Any, epsilon: float) -> Eluder:
    """At most one place for each context that differs, where any pair differs by more than ε, and one for each pair
    of functions.

    >>> finite_upper(np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), 0.5).dimension     # one pair
    1
    """
    functions, epsilon = check_values(values), check_positive("epsilon", epsilon)
    spread = functions.max(axis=0) - functions.min(axis=0) > epsilon
    contexts = np.unique(functions[:, spread] - functions[:1, spread], axis=1).shape[1] if spread.any() else 0
    count = len(np.unique(functions, axis=0))
    least = min(contexts, count * (count - 1) // 2)
    return Eluder(least, "upper bound", epsilon, "number of contexts" if least == contexts else "number of pairs")
