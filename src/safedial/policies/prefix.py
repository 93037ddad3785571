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

from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, OPEN
from safedial.policies.table import Table

CUT = 256
"""So many passed rows are forgotten at a time, since that moves all rows behind them."""


class Prefix:
    """The rounds that wait, for each lane, and how far each lane is.

    Attributes:
        waiting: their rows: `context`, what the policy `chosen`, `reward` and `cost`, `fate`, and more columns of the
            policy's own, each by its fill value (`Table`).
        latest: context, choice and own columns of the latest round while it is `fresh`: it has no row yet, and needs
            none if it is told before anything else happens.
        learned: the place of the next round, so how many have been passed.
        lost: how many rounds were lost.
    """

    def __init__(self, lanes: tuple[int, ...], dim: int, **more: Any) -> None:
        given: dict[str, Any] = {"context": (0.0, (dim,)), "chosen": 0.0, "reward": 0.0, "cost": 0.0}
        self.waiting = Table(lanes, **given, fate=np.int8(OPEN), **more)
        self._own = {name: np.full(lanes, fill) for name, fill in more.items()}
        self.latest: dict[str, Any] = {"context": np.zeros((*lanes, dim)), "chosen": np.zeros(lanes), **self._own}
        self.fresh = False
        self.learned, self.lost = np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=np.int64)
        self._lanes = tuple(np.indices(lanes))

    @property
    def opened(self) -> int:
        """How many rounds were opened."""
        return self.waiting.first + self.waiting.count + self.fresh

    @property
    def waits(self) -> bool:
        """Whether any round waits in any lane."""
        return self.fresh or self.waiting.count > 0

    def open(self, context: Any, chosen: Any, **own: Any) -> int:
        """Add a decided round, with columns of the policy's own. Returns its place."""
        self._keep()
        self.latest, self.fresh = {"context": context, "chosen": chosen, **self._own, **own}, True
        return self.waiting.first + self.waiting.count

    def _keep(self) -> Table:
        """The rows, the latest round's too."""
        kept = self.waiting
        if self.fresh:
            row, self.fresh = kept.append(), False
            kept.context[..., row, :] = self.latest["context"]
            for name in ("chosen", *self._own):
                getattr(kept, name)[..., row] = self.latest[name]
        return kept

    def is_open(self, place: int) -> Any:
        """The lanes where the round at `place` waits for its outcome; those that nobody remembers do not."""
        row = place - self.waiting.first
        if row < 0:
            return np.zeros(self.learned.shape, dtype=bool)
        return self._keep().fate[..., row] == OPEN

    def at(self, name: str, place: int) -> Any:
        """A column's values at a remembered place."""
        row = place - self.waiting.first
        if self.fresh and row == self.waiting.count and name in self.latest:
            return self.latest[name]
        every = (slice(None),) * len(self._lanes)
        return getattr(self._keep(), name)[(*every, row)]

    def fill(self, name: str, value: Any) -> None:
        """Set a column of the policy's own in all rounds that wait."""
        self._keep().rows(name)[...] = value

    def tell(self, place: int, fate: Any, reward: Any = 0.0, cost: Any = 0.0) -> Any:
        """What became of a round. Returns the lanes where this is new: a round ends once."""
        kept = self._keep()
        row = place - kept.first
        told = self.is_open(place) & (np.asarray(fate) != OPEN)
        if row >= 0:
            for column, value in ((kept.reward, reward), (kept.cost, cost), (kept.fate, fate)):
                column[..., row] = np.where(told, value, column[..., row])
            self.lost += told & (np.asarray(fate) == LOST)
        return told

    def at_once(self, place: int, most: int) -> bool:
        """Pass the round at `place`, which has ended in every lane without being lost, if no other one waits and it is
        before `most`: as if it had been told, and had its turn.
        """
        kept = self.waiting
        if not self.fresh or kept.count or place != kept.first or place >= most:
            return False
        self.fresh, kept.first, self.learned = False, place + 1, self.learned + 1
        return True

    def turns(self, most: int) -> Iterator[tuple[Any, Any]]:
        """(rows, lanes) of the rounds before place `most` whose turn has come, one round for each lane at a time, in
        the lanes where it is KNOWN. Their columns are `take(name, rows)`.
        """
        kept = self._keep()
        while True:
            rows = np.minimum(self.learned - kept.first, kept.count - 1)
            fate = kept.fate[(*self._lanes, rows)]
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
        fate = self._keep().rows("fate")
        places = self.waiting.first + np.arange(self.waiting.count)
        return np.sum((fate == OPEN) & (places >= self.learned[..., None]) & (places < most), axis=-1)
