"""Longest sequences at one level v: each context needs a pair with gap ≥ v there and Σ gap² < v² before it.

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
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
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
