"""What each outcome added to the evidence against the noise, which a correction of that outcome takes back.

It is the only part of a state that grows with every round, because any outcome may be corrected later, so it is kept
small: 8 bytes for the decision and 8 for each product of `Watch.tails`, 24 bytes for an outcome with one cost.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np


class Scatter:
    """Rows of `width` numbers, each for one decision, in the order in which they were kept.

    >>> kept = Scatter(2)
    >>> kept.keep(7, [0.5, 0.25])
    >>> kept.keep(3, [0.0, 1.5])
    >>> kept.take(7), kept.take(7), len(kept)
    ([0.5, 0.25], [], 1)
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._decisions, self._added = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._decisions)

    def keep(self, decision: int, added: list[float]) -> None:
        """Keep the row of a decision that has none."""
        self._decisions.append(decision)
        self._added.extend(added)

    def take(self, decision: int) -> list[float]:
        """Remove the row of a decision and return it; [] if there is none."""
        places = np.flatnonzero(np.asarray(self._decisions) == decision)
        if not len(places):
            return []
        place = int(places[0])
        row = slice(self._width * place, self._width * (place + 1))
        found = self._added[row].tolist()
        del self._decisions[place], self._added[row]
        return found

    @property
    def nbytes(self) -> int:
        return 8 * (1 + self._width) * len(self)

    def copy(self) -> Scatter:
        """The same rows, which change apart from these."""
        made = Scatter(self._width)
        made._decisions, made._added = self._decisions[:], self._added[:]
        return made

    def arrays(self) -> tuple[Any, Any]:
        """(decisions, rows), for a snapshot; they are views, to be gone before the next row is kept."""
        return np.asarray(self._decisions), np.asarray(self._added).reshape(-1, self._width)

    def restore(self, decisions: Any, rows: Any) -> None:
        """Take over what `arrays` gave."""
        self._decisions, self._added = array("q", decisions.tobytes()), array("d", rows.tobytes())
