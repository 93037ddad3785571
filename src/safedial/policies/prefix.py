"""Learning in order of decision: a confidence set holds for every prefix of rounds, whatever delays depend on.

    opened ─► waits until all earlier rounds of its lane have ended ─► learned, in its turn
                 └─ LOST: the prefix ends before it, for good

Going on without a lost round would be learning from a selection: rounds that are missing because of their outcomes (a
patient who fell ill stays away) bias every estimate, unnoticed. A round that is LEFT_OUT is passed without harm.
Where outcomes come at once, nothing ever waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from safedial.policies.family import KNOWN, LEFT_OUT, LOST, OPEN, THROTTLED
from safedial.policies.table import Table

CUT = 256
"""So many passed rows are forgotten at a time, since that moves all rows behind them."""


class Prefix:
    """The rounds that wait, for each lane, and how far each lane is.

    Attributes:
        waiting: their rows: `context`, what the policy `chosen`, `reward` and `cost`, `fate`, and more columns of the
            policy's own, each by its fill value (`Table`).
        learned: the place of the next round, so how many have been passed.
        lost: how many rounds were lost.
    """

    def __init__(self, lanes: tuple[int, ...], dim: int, **more: Any) -> None:
        given: dict[str, Any] = {"context": (0.0, (dim,)), "chosen": 0.0, "reward": 0.0, "cost": 0.0}
        self.waiting = Table(lanes, **given, fate=np.int8(OPEN), **more)
        self.learned, self.lost = np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=np.int64)
        self._lanes = tuple(np.indices(lanes))

    @property
    def opened(self) -> int:
        """How many rounds were opened."""
        return self.waiting.first + self.waiting.count

    def open(self, context: Any, chosen: Any) -> int:
        """Add a decided round. Returns its place."""
        row = self.waiting.append()
        self.waiting.context[..., row, :], self.waiting.chosen[..., row] = context, chosen
        return self.waiting.first + row

    def is_open(self, place: int) -> Any:
        """The lanes where the round at `place` waits for its outcome; those that nobody remembers do not."""
        row = place - self.waiting.first
        return self.waiting.fate[..., row] == OPEN if row >= 0 else np.zeros(self.learned.shape, dtype=bool)

    def at(self, name: str, place: int) -> Any:
        """A column's values at a remembered place."""
        every = (slice(None),) * len(self._lanes)
        return getattr(self.waiting, name)[(*every, place - self.waiting.first)]

    def fate(self, place: int, fate: Any, taught: Any) -> Any:
        """The fate of a round whose outcome may teach nothing, because nothing was given. Where the policy chose that,
        the past and the context alone decided it, and the round is left out; where somebody withheld what it chose,
        and did not vouch for the reason, it is lost. A throttled round teaches nothing either.
        """
        row = place - self.waiting.first
        withheld = self.waiting.chosen[..., row] > 0.0 if row >= 0 else False
        told = np.where(np.asarray(fate) == THROTTLED, LOST, fate)
        return np.where((told == KNOWN) & np.logical_not(taught), np.where(withheld, LOST, LEFT_OUT), told)

    def tell(self, place: int, fate: Any, reward: Any = 0.0, cost: Any = 0.0) -> Any:
        """What became of a round. Returns the lanes where this is new: a round ends once."""
        kept, row = self.waiting, place - self.waiting.first
        told = self.is_open(place) & (np.asarray(fate) != OPEN)
        if row >= 0:
            for column, value in ((kept.reward, reward), (kept.cost, cost), (kept.fate, fate)):
                column[..., row] = np.where(told, value, column[..., row])
            self.lost += told & (np.asarray(fate) == LOST)
        return told

    def turns(self, most: int) -> Iterator[tuple[Any, Any]]:
        """(rows, lanes) of the rounds before place `most` whose turn has come, one round for each lane at a time, in
        the lanes where it is KNOWN. Their columns are `take(name, rows)`.
        """
        kept = self.waiting
        while True:
            rows = np.minimum(self.learned - kept.first, kept.count - 1)
            fate = kept.fate[(*self._lanes, rows)] if kept.count else OPEN
            ended = (self.learned < most) & ((fate == KNOWN) | (fate == LEFT_OUT))
            if not np.any(ended):
                break
            self.learned = self.learned + ended
            known = ended & (fate == KNOWN)
            if np.any(known):
                yield rows, known
        passed = int(np.min(self.learned)) - kept.first
        if passed == kept.count or passed >= CUT:
            kept.cut(passed)

    def take(self, name: str, rows: Any) -> Any:
        """The values of a column, each lane's in its own row."""
        return getattr(self.waiting, name)[(*self._lanes, rows)]

    def awaited(self, most: int) -> Any:
        """How many rounds before place `most` are open that have not been passed."""
        fate = self.waiting.rows("fate")
        places = self.waiting.first + np.arange(self.waiting.count)
        return np.sum((fate == OPEN) & (places >= self.learned[..., None]) & (places < most), axis=-1)
