"""The count rule round after round: for one sequence as it comes, and for a batch of simulated ones.

Both answer with the m-th smallest tolerated scale of the latest n countable rounds, as `core.count_rule` says, and
change only by what enters and leaves the window. `CountWindow` keeps it sorted. `BatchWindow` keeps each answer λ̂ and
how many scales lie below it and up to it: λ̂ is still the answer while fewer than m lie below and at least m up to it,
which fails in a share of about 2δ of the rounds; only then the window is searched.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.adaptive import adapted_rank
from safedial.core.count_rule import Window, window
from safedial.errors import require

LEFT_OUT = math.nan


class CountWindow:
    """The tolerated scales of one sequence of rounds, by number from 0, and the scale that the next may use.

    Args:
        risk: δ. lag: how many of the latest rounds do not count. confidence, least: as for `count_rule.window`.
        earlier: how many countable rounds came before the first one here, where a base was fitted in between.
        values: the tolerated scales so far, NaN for rounds that are left out.

    >>> rounds = CountWindow(0.25)
    >>> for tolerated in (0.8, 0.5, 0.9):
    ...     _ = rounds.append(tolerated)
    >>> rounds.scale(), rounds.exceeding(0.7)
    (0.5, [1])
    """

    def __init__(
        self,
        risk: float,
        *,
        lag: int = 0,
        confidence: float | None = None,
        least: int = 1,
        earlier: int = 0,
        values: Iterable[float] = (),
    ) -> None:
        whole = isinstance(lag, int) and not isinstance(lag, bool) and lag >= 0
        require(whole, "lag", lag, "must be a whole number >= 0")
        self.risk, self.lag, self.confidence, self.least, self.earlier = risk, lag, confidence, least, earlier
        self.values = list(values)
        self._ordered: list[float] = []
        self._first = self._last = self._count = 0
        self.window = window(0, risk, confidence=confidence, least=least)

    def append(self, tolerated: float = -math.inf) -> int:
        """The next round; −∞ until its outcome is known. Returns its number."""
        self.values.append(tolerated)
        return len(self.values) - 1

    def set(self, number: int, tolerated: float) -> None:
        """A round's tolerated scale, now that its outcome is known or corrected; NaN leaves the round out.

        Leaving a round out needs somebody's word that the reason is unrelated to its context, cost and setting.
        """
        before = self.values[number]
        self.values[number] = tolerated
        if number >= self._last:
            return
        self._count += (before != before) - (tolerated != tolerated)
        if number >= self._first:
            self._remove(before)
            self._insert(tolerated)

    def scale(self, level: float | None = None) -> float:
        """λ̂ for the next round; −∞ where it gets the start. `level`: δ_t ≤ δ of the adaptive rule."""
        self._advance()
        size, rank = self.window
        if level is not None:
            rank = adapted_rank(level, size, rank)
        return self._ordered[rank - 1] if rank else -math.inf

    @property
    def span(self) -> tuple[int, int]:
        """The first of the counted rounds, and the number after the last; none are counted where both are equal."""
        return (self._first if self.window.rank else self._last), self._last

    def exceeding(self, scale: float) -> list[int]:
        """The numbers of the counted rounds that would have exceeded at a scale."""
        self._advance()
        return [number for number in range(*self.span) if self.values[number] < scale]

    def _advance(self) -> None:
        """Move the window to the latest rounds."""
        last = max(self._last, len(self.values) - self.lag)
        for value in self.values[self._last : last]:
            self._count += value == value
            self._insert(value)
        self._last = last
        self.window = window(
            self.earlier + self._count,
            self.risk,
            since=self._count,
            confidence=self.confidence,
            least=self.least,
        )
        if self.window.rank:
            self._resize(self.window)

    def _resize(self, window: Window) -> None:
        while len(self._ordered) > window.size:
            self._remove(self.values[self._first])
            self._first += 1
        while len(self._ordered) < window.size:
            self._first -= 1
            self._insert(self.values[self._first])

    def _insert(self, value: float) -> None:
        if value == value:
            insort(self._ordered, value)

    def _remove(self, value: float) -> None:
        if value == value:
            del self._ordered[bisect_left(self._ordered, value)]


class BatchWindow:
    """The count rule for many sequences at once: one lane for each, or for each seed and group.

    `append` and `scales` take the lanes they are about; a lane's rounds that are not appended do not count.

    Args:
        lanes: how many, or the tolerated scales so far, (lanes, rounds).
        risk, confidence, least, earlier: as for `CountWindow`.
    """

    def __init__(
        self, lanes: Any, risk: float, *, confidence: float | None = None, least: int = 1, earlier: int = 0
    ) -> None:
        self.risk, self.confidence, self.least, self.earlier = risk, confidence, least, earlier
        past = np.empty((lanes, 0)) if isinstance(lanes, int) else np.asarray(lanes, dtype=float)
        lanes, rounds = past.shape
        self.values = np.full((lanes, rounds + 64), -math.inf)
        self.values[:, :rounds] = past
        self.count = np.full(lanes, rounds, dtype=np.int64)
        self._table = np.zeros((0, 2), dtype=np.int64)
        self._scale = np.full(lanes, -math.inf)
        self._held, self._below, self._upto = np.zeros((3, lanes), dtype=np.int64)

    def append(self, tolerated: Any, lanes: Any = None) -> None:
        """One more countable round of each lane; −∞ where its outcome is not known, as which NaN is taken."""
        tolerated = np.fmax(tolerated, -math.inf)
        lanes = np.arange(len(self.count)) if lanes is None else lanes
        places = self.count[lanes]
        if places.max(initial=0) >= self.values.shape[1]:
            self.values = np.concatenate([self.values, np.full(self.values.shape, -math.inf)], axis=1)
        self.values[lanes, places] = tolerated
        self.count[lanes] = places + 1
        self._move(lanes, tolerated, 1)

    def scales(self, lanes: Any = None, level: Any = None) -> NDArray[np.float64]:
        """λ̂ of the next round of each lane; −∞ where it gets the start. `level`: δ_t of the adaptive rule."""
        lanes = np.arange(len(self.count)) if lanes is None else lanes
        count = self.count[lanes]
        size, rank = self._windows(count)
        leaves = (size > 0) & (self._held[lanes] == size + 1)
        gone = lanes[leaves]
        self._move(gone, self.values[gone, (count - size - 1)[leaves]], -1)
        if level is not None:
            rank = adapted_rank(np.asarray(level, dtype=float), size, rank)
        held = (self._held[lanes] == size) & (self._below[lanes] < rank) & (rank <= self._upto[lanes])
        stale = np.flatnonzero(~held & (rank > 0))
        for common in np.unique(size[stale]):
            part = stale[size[stale] == common]
            self._search(lanes[part], int(common), rank[part])
        return np.where(rank > 0, self._scale[lanes], -math.inf)

    def _windows(self, count: Any) -> tuple[Any, Any]:
        most = int(count.max(initial=0))
        if most >= len(self._table):
            extra = range(len(self._table), 2 * most + 64)
            options = {"confidence": self.confidence, "least": self.least}
            rows = [window(self.earlier + each, self.risk, since=each, **options) for each in extra]
            self._table = np.concatenate([self._table, np.array(rows, dtype=np.int64)])
        found = self._table[count]
        return found[:, 0], found[:, 1]

    def _move(self, lanes: Any, values: Any, step: int) -> None:
        """Count scales that enter (1) or leave (−1) the windows of lanes."""
        scale = self._scale[lanes]
        self._held[lanes] += step
        self._below[lanes] += step * (values < scale)
        self._upto[lanes] += step * (values <= scale)

    def _search(self, lanes: Any, size: int, rank: Any) -> None:
        """Find the answers of lanes whose windows have one size."""
        last = self.count[lanes]
        if np.all(last == last[0]):
            rows = self.values[lanes, last[0] - size : last[0]]
        else:
            rows = self.values[lanes[:, None], (last - size)[:, None] + np.arange(size)]
        parted = np.partition(rows, np.unique(rank - 1), axis=-1)
        scale = np.take_along_axis(parted, rank[:, None] - 1, axis=-1)
        self._scale[lanes] = scale[:, 0]
        self._held[lanes] = size
        self._below[lanes], self._upto[lanes] = (rows < scale).sum(axis=-1), (rows <= scale).sum(axis=-1)
