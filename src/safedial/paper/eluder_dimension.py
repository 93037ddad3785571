"""Eluder dimensions: of a finite class, exactly or from below; of linear functions and of RKHS balls, both bounds.

**Longest sequences at one level v**: each context needs a pair with gap ≥ v there and Σ gap² < v² before it.
Whether x can follow depends only on the set A of its predecessors, and what can follow A can follow any subset of A.
Hence

* any subsequence of a sequence is a sequence;
* no sequence that starts with the set A is longer than |A| + the number of contexts that can follow A (`_grow` prunes
  by it);
* if x can stand last in the set R it can stand after any sequence of the others, so a longest sequence within R is
  one within R without x, followed by x. If none can stand last, R is not a sequence and one of its contexts must go
  (`_shrink` branches on it).

`_grow` is fast if sequences are short, `_shrink` if they hold nearly all contexts. Both process all sets of one size
together and visit each set once.

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

**Linear functions and RKHS balls.** F = {⟨φ(x), w⟩ : ‖w‖ ≤ S}, so a difference of two functions has a ρ = w − w′ with
‖ρ‖ ≤ 2S, and every such ρ occurs; in an RKHS, S is the norm B. A larger ε′ amounts to a smaller ball, so ε′ = ε serves
as well as any other.

From above: fix c > 0 and let λ = c·ε²/(2S)², V = λI + Σ_{j<i} φ_jφ_jᵀ. If x_i is ε-independent of its
predecessors, its ρ has ρᵀVρ ≤ ε² + λ(2S)² = (1 + c)ε², so ε < ⟨φ_i, ρ⟩ ≤ ‖φ_i‖_{V⁻¹}·ε√(1 + c): u_i := ‖φ_i‖²_{V⁻¹} >
1/(1 + c). (u_i = σ²/λ, with σ² the posterior variance at ridge λ.) Each context multiplies the determinant by 1 +
u_i, so a sequence of k contexts has

    k·ln((2 + c)/(1 + c)) < ln det(I + ΦᵀΦ/λ) = ln det(I + K/λ)                                     (*)

where K is the kernel matrix of its contexts. At c = 1, which gives ln(3/2), this is the step of Russo & Van Roy. Any
c holds, so the least over a grid of c does. A sequence's first k contexts are a sequence, so dim_E is below the first
k that breaks (*).

References: Russo & Van Roy (2013), Eluder dimension and the sample complexity of optimistic exploration, NeurIPS;
Srinivas et al. (2010) for the information gain, here ln det(I + K/λ), twice theirs; Nemhauser, Wolsey & Fisher (1978)
for greedy choices of a submodular gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from safedial.errors import is_whole, require
from safedial.model.namespace import Array

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


# --- Longest sequences at one level v

Sets = NDArray[np.bool_]

CELLS = 4_000_000
LOOKAHEAD = 64
SHRINK_AT_MOST = 3


def longest(gaps: Array, level: float, tie: float, *, more_than: int) -> list[int]:
    """A longest sequence if it has more than `more_than` contexts, else []. `gaps`: pairs × contexts."""
    served = gaps.max(axis=0) >= level
    spare = int(served.sum()) - more_than - 1
    serving = gaps[gaps.max(axis=1) >= level]
    limit = level**2 * (1.0 - tie)
    if spare <= SHRINK_AT_MOST:
        return _shrink(serving**2, serving >= level, limit, start=served, spare=spare)
    return _grow(serving**2, serving >= level, limit, known=more_than)


def greedy(gaps: Array, level: float, tie: float) -> list[int]:
    """One sequence: each step takes the context after which the most contexts can still follow (on a tie, the most
    pairs remain).

    Looks ahead at no more than 64 contexts per step, spread evenly over those that can follow.
    """
    serves = (gaps >= level).astype(np.float32)
    squared, limit = gaps**2, level**2 * (1.0 - tie)
    sums, sequence = np.zeros(len(gaps)), []
    while True:
        follow = np.flatnonzero(serves[sums < limit].any(axis=0))
        if not len(follow):
            return sequence
        if len(follow) > LOOKAHEAD:
            follow = follow[np.linspace(0, len(follow) - 1, LOOKAHEAD).astype(int)]
        left = (sums[:, None] + squared[:, follow] < limit).astype(np.float32)
        score = ((left.T @ serves) > 0.0).sum(axis=1) + left.sum(axis=0) / (len(gaps) + 1.0)
        chosen = int(follow[np.argmax(score)])
        sequence.append(chosen)
        sums = sums + squared[:, chosen]


def _grow(squared: Array, serves: Sets, limit: float, *, known: int) -> list[int]:
    """Forward: sets of 1, 2, … contexts, each with one order that reaches it."""
    count, best = squared.shape[1], []
    orders = np.empty((1, 0), dtype=np.int64)
    while len(orders):
        if orders.shape[1] > known:
            known, best = orders.shape[1], orders[0].tolist()
        members = np.zeros((len(orders), count), dtype=bool)
        np.put_along_axis(members, orders, True, axis=1)
        follow = _followers(members, squared, serves, limit) & ~members
        hopeful = orders.shape[1] + follow.sum(axis=1) > known
        rows, columns = np.nonzero(follow & hopeful[:, None])
        grown = members[rows]
        grown[np.arange(len(rows)), columns] = True
        first = _first_of_each(grown)
        orders = np.column_stack([orders[rows[first]], columns[first]])
    return best


def _shrink(squared: Array, serves: Sets, limit: float, *, start: Sets, spare: int) -> list[int]:
    """Backward: remove contexts that can stand last; if none can, try without each one, at most `spare` times."""
    whole = rest = start[None, :]
    for lost in range(spare + 1):
        rest = _peel(rest, squared, serves, limit)
        done = np.flatnonzero(~rest.any(axis=1))
        if len(done):
            return _order(whole[done[0]], squared, serves, limit)
        if lost == spare:
            break
        rows, columns = np.nonzero(rest)
        whole, rest = whole[rows], rest[rows]
        whole[np.arange(len(rows)), columns] = rest[np.arange(len(rows)), columns] = False
        first = _first_of_each(rest)
        whole, rest = whole[first], rest[first]
    return []


def _peel(sets: Sets, squared: Array, serves: Sets, limit: float) -> Sets:
    """Each set after repeatedly removing the contexts that can stand last, until none can."""
    sets, active = sets.copy(), np.arange(len(sets))
    while len(active):
        last = _last(sets[active], squared, serves, limit)
        sets[active] &= ~last
        active = active[last.any(axis=1)]
    return sets


def _order(members: Sets, squared: Array, serves: Sets, limit: float) -> list[int]:
    """The sequence of a set from which `_peel` removes everything."""
    order = []
    while members.any():
        last = _last(members[None, :], squared, serves, limit)[0]
        order.extend(np.flatnonzero(last).tolist())
        members = members & ~last
    return order[::-1]


def _last(sets: Sets, squared: Array, serves: Sets, limit: float) -> Sets:
    """Which contexts of each set can stand last in it."""
    sums, last = sets @ squared.T, np.zeros_like(sets)
    for x in np.flatnonzero(sets.any(axis=0)):
        pairs = serves[:, x]
        last[:, x] = sets[:, x] & (sums[:, pairs] - squared[pairs, x] < limit).any(axis=1)
    return last


def _followers(members: Sets, squared: Array, serves: Sets, limit: float) -> Sets:
    """For each set which contexts can follow it."""
    step, weights = max(1, CELLS // max(1, len(squared))), serves.astype(np.float32)
    parts = [
        ((members[start : start + step] @ squared.T < limit).astype(np.float32) @ weights) > 0.0
        for start in range(0, len(members), step)
    ]
    return np.concatenate(parts)


def _first_of_each(sets: Sets) -> NDArray[np.int64]:
    """The index at which each distinct set first occurs."""
    codes = np.packbits(sets, axis=1)
    return np.unique(codes, axis=0, return_index=True)[1]


# --- The eluder dimension of a finite class, given as a matrix of values: functions × contexts

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


# --- Linear functions of bounded norm

SHARES = tuple(2.0**power for power in range(-8, 3))


def linear_lower(dim: int, *, epsilon: float, coefficient_bound: float, context_bound: float) -> Eluder:
    """d(1 + ⌈log₂ a⌉) with a = (2SL/ε)², and 0 if a ≤ 1: the contexts may be any x with ‖x‖ ≤ L.

    One axis: x₁ with x₁² just above (ε/2S)², x₂² just above x₁², then each x_k² just above Σ_{j<k} x_j². The ρ along
    the axis with ρ²·Σ_{j<k} x_j² = ε² (or |ρ| = 2S for the first) has |ρx_k| > ε. Sums double, so x_k² need only
    exceed 2^{k−2}(ε/2S)², and k contexts fit below L if 2^{k−2} < a. The axes do not affect each other, so d axes
    give d times as many.

    >>> linear_lower(3, epsilon=0.1, coefficient_bound=1, context_bound=1).dimension
    30
    """
    ratio = _ratio(dim, epsilon, coefficient_bound, context_bound) * (1.0 - TIE)
    count = dim * (1 + math.ceil(math.log2(ratio))) if ratio > 1.0 else 0
    return Eluder(count, "lower bound", epsilon, "doubling sequence on each axis")


def linear_upper(dim: int, *, epsilon: float, coefficient_bound: float, context_bound: float) -> Eluder:
    """The smallest proved bound for linear functions with ‖w‖ ≤ S on ‖x‖ ≤ L; a = (2SL/ε)². `method` says which.

    * `determinant`: in (*) ln det(I + ΦᵀΦ/λ) ≤ d ln(1 + kL²/(dλ)), by the inequality of the means; L²/λ = a/c. The
      largest k with k·ln((2 + c)/(1 + c)) < d ln(1 + ak/(cd)), least over c.
    * `closed form`: 3d·e/(e − 1)·ln(3 + 3a) + 1, which Russo & Van Roy derive from the same inequality at c = 1;
      never smaller.
    * `doubling`, for d = 1, is exact: there ε-independence of x_k means x_k² > Σ_{j<k} x_j² and x_k² > (ε/2S)²; so
      x_k² > 2^{k−2}(ε/2S)², and the sequence of `linear_lower` cannot be beaten.

    >>> linear_upper(3, epsilon=0.1, coefficient_bound=1, context_bound=1)
    Eluder(dimension=51, kind='upper bound', epsilon=0.1, method='determinant', scale=None, sequence=(), pairs=())
    """
    ratio = _ratio(dim, epsilon, coefficient_bound, context_bound)
    if ratio <= 1.0:
        return Eluder(0, "exact", epsilon, "no two functions differ by more than epsilon")
    if dim == 1:
        lower = linear_lower(1, epsilon=epsilon, coefficient_bound=coefficient_bound, context_bound=context_bound)
        return Eluder(lower.dimension, "exact", epsilon, "doubling")
    closed = math.floor(closed_form(dim, ratio))
    proved = min(_determinant(dim, ratio, share) for share in SHARES)
    return Eluder(min(proved, closed), "upper bound", epsilon, "determinant" if proved <= closed else "closed form")


def closed_form(dim: int, ratio: float) -> float:
    """3d·e/(e − 1)·ln(3 + 3a) + 1, a = (2SL/ε)²."""
    return 3.0 * dim * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * ratio) + 1.0


def _determinant(dim: int, ratio: float, share: float) -> int:
    """The largest k with k·ln((2 + c)/(1 + c)) < d ln(1 + ak/(cd)); the right side is concave, so these are 1 … k."""
    step = math.log((2.0 + share) / (1.0 + share))

    def fits(count: int) -> bool:
        return count * step < dim * math.log1p(ratio * count / (share * dim))

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _ratio(dim: int, epsilon: float, coefficient_bound: float, context_bound: float) -> float:
    """(2SL/ε)², with the arguments checked."""
    require(is_whole(dim), "dim", dim, "must be a whole number >= 1")
    size = check_positive("coefficient_bound", coefficient_bound) * check_positive("context_bound", context_bound)
    return (2.0 * size / check_positive("epsilon", epsilon)) ** 2


# --- Functions of a reproducing-kernel Hilbert space with norm ≤ B

LARGEST = 2_000
MARGIN = 1e-5
RESOLVED = 1e-9


def kernel_upper(gram: Any, *, epsilon: float, norm: float) -> Eluder:
    """Below the first k with k·ln((2 + c)/(1 + c)) ≥ G_k, where G_k bounds ln det(I + K_A/λ) over all sets A of k
    contexts (none appears twice, nor do two that the kernel cannot tell apart); least over c.

    A ↦ ln det(I + K_A/λ) is monotone and submodular. With A_i the first i contexts chosen greedily and
    gain(x | A) = ln(1 + σ²(x | A)/λ),

        G_k = min( gain(A_k)/(1 − (1 − 1/k)^k),   min_i gain(A_i) + the k largest gain(x | A_i) outside A_i,
                   the largest Σ_{i≤k} ln(1 + m_i/λ) with m_i ≤ the i-th eigenvalue of K and Σm_i ≤ k·max k(x, x) ).

    The first is at most e/(e − 1) times the greedy gain; the second holds because the best set adds to A_i at most the
    sum of its members' own gains; the third because the eigenvalues of K_A interlace those of K, and it is the bound
    for linear classes where K has low rank (a polynomial kernel).

    >>> kernel_upper(np.eye(5), epsilon=0.1, norm=1.0).dimension      # five contexts, all unrelated
    5
    >>> kernel_upper(np.ones((5, 5)), epsilon=1.9, norm=1.0).dimension         # five that are the same
    1
    """
    matrix, unit = _checked(gram, epsilon, norm)
    if float(matrix.diagonal().max()) <= unit:
        return Eluder(0, "exact", epsilon, "no two functions differ by more than epsilon")
    same = np.unique(matrix, axis=0, return_index=True)[1]
    matrix = matrix[np.ix_(same, same)]
    count = len(matrix)
    for share in SHARES:
        gains = _largest_gains(matrix, share * unit, count)
        step = math.log((2.0 + share) / (1.0 + share))
        broken = np.flatnonzero(step * np.arange(1, len(gains) + 1) >= gains)
        count = int(broken[0]) if len(broken) else count
    method = "information gain" if count < len(matrix) else "number of contexts"
    return Eluder(count, "upper bound", epsilon, method)


def kernel_lower(gram: Any, *, epsilon: float, norm: float) -> Eluder:
    """A sequence found greedily: each step takes the least independent context among those that are still
    ε-independent of the earlier ones.

    The largest h(x) over ‖h‖ ≤ 2B and Σ_j h(x_j)² ≤ ε² is a convex problem whose solution is a multiple of v_λ = (Φ +
    λI)⁻¹φ(x) for some λ ≥ 0. Any λ gives an h that is allowed, namely v_λ·min(ε/√q, 2B/‖v_λ‖), with q = Σ_j
    v_λ(x_j)², v_λ(x) = σ²/λ and ‖v_λ‖² = (v_λ(x) − q)/λ; the best of a grid of λ is taken. So the result is a valid
    sequence, though perhaps not the longest. Values must exceed ε by a relative 1e-5, and variances below 1e-9 of
    k(x, x) are not used, so rounding cannot produce a false sequence.

    >>> kernel_lower(np.eye(5), epsilon=0.1, norm=1.0).dimension
    5
    """
    matrix, unit = _checked(gram, epsilon, norm)
    sequence: list[int] = []
    while len(sequence) < len(matrix):
        reach = _reach(matrix, sequence, epsilon, unit)
        reach[sequence] = 0.0
        independent = np.flatnonzero(reach > epsilon * (1.0 + MARGIN))
        if not len(independent):
            break
        sequence.append(int(independent[np.argmin(reach[independent])]))
    scale = epsilon if sequence else None
    return Eluder(len(sequence), "lower bound", epsilon, "greedy sequence", scale, tuple(sequence))


def _largest_gains(matrix: Array, ridge: float, most: int) -> Array:
    """G_1 … G_most, by a Cholesky factorisation of K + λI that pivots on the largest posterior variance."""
    count = len(matrix)
    variance = matrix.diagonal().copy()
    columns, chosen = np.zeros((most, count)), np.zeros(count, dtype=bool)
    total, best = 0.0, _spectral_gains(matrix, ridge, most)
    for size in range(most):
        gain = np.log1p(np.where(chosen, 0.0, variance) / ridge)
        top = np.sort(gain)[::-1][:most]
        best = np.minimum(best, total + np.cumsum(top))
        pivot = int(np.argmax(np.where(chosen, -1.0, variance)))
        total += float(gain[pivot])
        best[size] = min(best[size], total / (1.0 - (1.0 - 1.0 / (size + 1)) ** (size + 1)))
        rest = matrix[pivot] - columns[:size, pivot] @ columns[:size]
        columns[size] = rest / math.sqrt(float(variance[pivot]) + ridge)
        variance = np.maximum(variance - columns[size] ** 2, 0.0)
        chosen[pivot] = True
    return best


def _spectral_gains(matrix: Array, ridge: float, most: int) -> Array:
    """The largest Σ_{i≤k} ln(1 + m_i/λ) with m_i ≤ e_i, Σm_i ≤ k·max k(x, x): concave, so m_i = min(e_i, one level)."""
    largest = float(matrix.diagonal().max())
    spectrum = np.maximum(np.linalg.eigvalsh(matrix)[::-1], 0.0) + 1e-13 * largest * len(matrix)
    gains = np.empty(most)
    for size in range(1, most + 1):
        rising = spectrum[:size][::-1]
        filled = np.cumsum(rising) + rising * np.arange(size - 1, -1, -1)
        level = np.interp(size * largest, np.r_[0.0, filled], np.r_[0.0, rising])
        gains[size - 1] = np.log1p(np.minimum(rising, level) / ridge).sum()
    return gains


def _reach(matrix: Array, sequence: list[int], epsilon: float, unit: float) -> Array:
    """For every context, a value that some allowed h attains there."""
    own = matrix.diagonal()
    values, basis = np.linalg.eigh(matrix[np.ix_(sequence, sequence)])
    cross, values = (basis.T @ matrix[sequence]) ** 2, np.maximum(values, 0.0)[:, None]
    reach = np.zeros(len(matrix))
    for ridge in unit * 2.0 ** np.arange(-12.0, 13.0):
        variance = own - np.sum(cross / (values + ridge), axis=0)
        at, before = variance / ridge, np.sum(cross / (values + ridge) ** 2, axis=0)
        size = np.maximum(at - before, 0.0) + 0.1 * MARGIN * np.abs(at) + 1e-300
        allowed = np.minimum(epsilon / np.sqrt(before + 1e-300), epsilon / np.sqrt(unit * size / ridge))
        reach = np.maximum(reach, np.where(variance > RESOLVED * own, at * allowed, 0.0))
    return reach


def _checked(gram: Any, epsilon: float, norm: float) -> tuple[Array, float]:
    """The kernel matrix, checked, and ε²/(2B)²."""
    try:
        matrix = np.asarray(gram, dtype=float)
    except (TypeError, ValueError):
        matrix = np.empty(())
    square = matrix.ndim == 2 and matrix.size > 0 and len(matrix) == len(matrix.T)
    require(square, "gram", gram, "must be a square matrix of numbers", "give kernel(X, X)")
    require(len(matrix) <= LARGEST, "contexts", len(matrix), f"must be at most {LARGEST} here", "give fewer contexts")
    scale = float(np.abs(matrix).max())
    require(np.isfinite(scale), "gram", gram, "must hold finite numbers")
    require(np.abs(matrix - matrix.T).max() <= 1e-9 * scale, "gram", gram, "must be symmetric")
    least = float(np.linalg.eigvalsh(matrix)[0])
    rule = f"must be positive semi-definite, not with eigenvalue {least:.3g}"
    require(least >= -1e-9 * scale * len(matrix), "gram", gram, rule)
    return matrix, (check_positive("epsilon", epsilon) / (2.0 * check_positive("norm", norm))) ** 2
