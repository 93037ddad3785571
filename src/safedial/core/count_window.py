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
from safedial.errors import is_whole, require

_NONE = -(2**40)
"""As many scales are held by a window that was not searched yet: never as many as it should hold."""


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
        require(is_whole(lag, 0), "lag", lag, "must be a whole number >= 0")
        self.risk, self.lag, self.confidence, self.least, self.earlier = risk, lag, confidence, least, earlier
        self.values = list(values)
        self._ordered: list[float] = []
        self._first = self._last = self._count = 0
        self._moved: tuple[int, int, int] | None = None
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
        self.advance()
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
        self.advance()
        return [number for number in range(*self.span) if self.values[number] < scale]

    def advance(self) -> None:
        """Move the window to the latest rounds. `scale` does so too; called when an outcome arrives, it saves the next
        decision that time.
        """
        last = max(self._last, len(self.values) - self.lag)
        if self._moved == (last, self._count, self.earlier):
            return
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
        self._moved = (last, self._count, self.earlier)

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
        self.options = {"risk": risk, "confidence": confidence, "least": least}
        past = np.empty((lanes, 0)) if isinstance(lanes, int) else np.asarray(lanes, dtype=float)
        count = len(past)
        self.values = np.full((count, 64), -math.inf)
        self.earlier, self.count, self._held, self._below, self._upto = np.zeros((5, count), dtype=np.int64)
        self._scale = np.full(count, -math.inf)
        self._lanes = np.arange(count)
        self._known: dict[tuple[int, int], Window] = {}
        self.restate(past, earlier)

    def restate(self, past: Any, earlier: Any, lanes: Any = None) -> None:
        """Begin anew with the tolerated scales of other rounds, (lanes, rounds); NaN leaves a round out.

        `earlier`: how many countable rounds of each lane came before the first of these.
        """
        part = slice(None) if lanes is None else lanes
        counted = past == past
        rounds = counted.sum(axis=1)
        self._even = lanes is None and np.unique(rounds).size <= 1 and np.unique(earlier).size == 1
        self._make_room(past.shape[1] + 1)
        order = np.argsort(~counted, axis=1, kind="stable")  # the rounds that count, in their order
        self.values[part, : past.shape[1]] = np.take_along_axis(past, order, axis=1)
        self.count[part], self.earlier[part] = rounds, earlier
        self._held[part] = _NONE

    def append(self, tolerated: Any, lanes: Any = None) -> None:
        """One more countable round of each lane; −∞ where its outcome is not known, as which NaN is taken."""
        tolerated = np.fmax(tolerated, -math.inf)
        part = slice(None) if lanes is None else lanes
        places = self.count[part]
        self._even = self._even and lanes is None
        self._make_room(int(places.max(initial=0)) + 1)
        self.values[self._lanes[part], places] = tolerated
        self.count[part] += 1
        self._move(part, tolerated, 1)

    def scales(self, lanes: Any = None, level: Any = None) -> NDArray[np.float64]:
        """λ̂ of the next round of each lane; −∞ where it gets the start. `level`: δ_t of the adaptive rule."""
        part = slice(None) if lanes is None else lanes
        size, rank = self._windows(part)
        held = self._held[part]
        leaves = (held == size + 1) & (size > 0)
        if leaves.any():
            gone = part if leaves.all() else self._lanes[part][leaves]
            rows, last = self._lanes[gone], self.count[gone]
            self._move(gone, self.values[rows, last - 1 - (size if isinstance(size, int) else size[leaves])], -1)
            held = self._held[part]
        if level is not None:
            rank = adapted_rank(np.asarray(level, dtype=float), size, rank)
        fits = (held == size) & (self._below[part] < rank) & (rank <= self._upto[part])
        stale = np.flatnonzero(~fits & (rank > 0))
        if stale.size:
            numbers, shape = self._lanes[part][stale], fits.shape
            if isinstance(size, int) and isinstance(rank, int):
                self._search(numbers, size, rank)
            else:
                size, place = (np.broadcast_to(each, shape)[stale] for each in (size, rank))
                for one, other in {*zip(size.tolist(), place.tolist(), strict=True)}:
                    self._search(numbers[(size == one) & (place == other)], one, other)
        return np.where(rank > 0, self._scale[part], -math.inf)

    def _windows(self, part: Any) -> tuple[Any, Any]:
        """n and m of lanes: two numbers where all lanes have as many rounds, as in most simulations."""
        if self._even:
            return self._window(int(self.earlier[0]), int(self.count[0]))
        pairs, place = np.unique(np.stack([self.earlier[part], self.count[part]]), axis=1, return_inverse=True)
        found = np.array([self._window(*pair) for pair in pairs.T.tolist()], dtype=np.int64).reshape(-1, 2)
        return found[place, 0], found[place, 1]

    def _window(self, earlier: int, count: int) -> Window:
        found = self._known.get((earlier, count))
        if found is None:
            found = self._known[earlier, count] = window(earlier + count, since=count, **self.options)
        return found

    def _make_room(self, rounds: int) -> None:
        while rounds > self.values.shape[1]:
            self.values = np.concatenate([self.values, np.full(self.values.shape, -math.inf)], axis=1)

    def _move(self, part: Any, values: Any, step: int) -> None:
        """Count scales that enter (1) or leave (−1) the windows of lanes."""
        scale = self._scale[part]
        self._held[part] += step
        self._below[part] += step * (values < scale)
        self._upto[part] += step * (values <= scale)

    def _search(self, lanes: Any, size: int, rank: int) -> None:
        """Find the answers of lanes anew whose windows have one size and rank."""
        last = self.count[lanes]
        if self._even:
            rows = self.values[lanes, last[0] - size : last[0]]
        else:
            rows = self.values[lanes[:, None], (last - size)[:, None] + np.arange(size)]
        scale = np.partition(rows, rank - 1, axis=-1)[:, rank - 1]
        self._scale[lanes] = scale
        self._held[lanes] = size
        self._below[lanes], self._upto[lanes] = (
            np.count_nonzero(each, axis=-1) for each in (rows < scale[:, None], rows <= scale[:, None])
        )
