"""What each outcome added to the evidence against the noise, which a correction of that outcome takes back.

It is the only part of a state that grows with every round, because any outcome may be corrected later, so it is kept
small: 8 bytes for the decision and 8 for each product of `Watch.tails`, 24 bytes for an outcome with one cost. States
that are kept in memory (study/kept_states.py) share it.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np


class Columns(NamedTuple):
    """Rows that are only ever added: a row that was taken is noted in `gone`."""

    decisions: array[int]
    added: array[float]
    gone: array[int]


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
        self._columns = Columns(array("q"), array("d"), array("q"))
        self._ends: list[int] | None = None
        """If the columns are another's: how much of each is also this one's."""

    def __len__(self) -> int:
        rows, _, gone = self._ends or map(len, self._columns)
        return rows - gone

    def keep(self, decision: int, added: list[float]) -> None:
        """Keep the row of a decision that has none."""
        columns = self._own()
        columns.decisions.append(decision)
        columns.added.extend(added)

    def take(self, decision: int) -> list[float]:
        """Remove the row of a decision and return it; [] if there is none."""
        columns = self._own()
        places = np.flatnonzero(np.asarray(columns.decisions) == decision)
        if not len(places) or np.any(np.asarray(columns.gone) == places[-1]):
            return []
        last = int(places[-1])
        columns.gone.append(last)
        found = columns.added[self._width * last : self._width * (last + 1)].tolist()
        if 2 * len(columns.gone) > len(columns.decisions):
            self.restore(*self.arrays())
        return found

    @property
    def nbytes(self) -> int:
        return 8 * (1 + self._width) * len(self)

    def copy(self) -> Scatter:
        """The same rows. They are copied when the copy first changes, and by then more may have been added to these."""
        made = Scatter(self._width)
        made._columns, made._ends = self._columns, self._ends or [len(column) for column in self._columns]
        return made

    def _own(self) -> Columns:
        """The columns, which nobody else adds to. A slice, not a view: nothing can be added to an array that is viewed,
        and a thread may be about to.
        """
        if self._ends is not None:
            cut: Any = [column[:end] for column, end in zip(self._columns, self._ends, strict=True)]
            self._columns, self._ends = Columns(*cut), None
        return self._columns

    def arrays(self) -> tuple[Any, Any]:
        """(decisions, rows), for a snapshot; they may be views, to be gone before the next row is kept."""
        decisions, added, gone = map(np.asarray, self._own())
        rows = added.reshape(-1, self._width)
        if not len(gone):
            return decisions, rows
        present = np.ones(len(decisions), dtype=bool)
        present[gone] = False
        return decisions[present], rows[present]

    def restore(self, decisions: Any, rows: Any) -> None:
        """Take over what `arrays` gave."""
        made = array("q", decisions.tobytes()), array("d", rows.tobytes()), array("q")
        self._columns, self._ends = Columns(*made), None
