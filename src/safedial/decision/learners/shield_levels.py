"""HP-Shield's adaptive levels: one recursion for each label, for example each patient, or one for all rounds.

`core.adaptive` has the recursion and the proof of its long-run statement. A label's own rounds give the statement for
that label, with its own slack, whatever the other labels do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.core.adaptive import adapted


class Tally(NamedTuple):
    """Counts for the long-run statement: known rounds that were given what was advised, or less; how many of them
    exceeded, and at their start; the most rounds ever open at once, the rounds that have ended, and all rounds.
    """

    followed: int = 0
    exceeded: int = 0
    at_start: int = 0
    open_at_once: int = 0
    ended: int = 0
    decided: int = 0


NONE = Tally()


class Levels:
    """δ_t and the counts of each label; without a unit the only label is ""."""

    def __init__(self, risk: float, rate: float | None) -> None:
        self.risk, self.rate = risk, rate
        self.levels: dict[str, float] = {}
        self.tallies: dict[str, Tally] = {}
        self.labels: list[str] = []

    def at(self, label: str) -> tuple[float, Tally]:
        return self.levels.get(label, self.risk), self.tallies.get(label, NONE)

    def open(self, label: str) -> None:
        """One more round of a label."""
        if label:
            self.labels.append(label)
        followed, exceeded, at_start, most, ended, decided = self.tallies.get(label, NONE)
        most = max(most, decided + 1 - ended)
        self.tallies[label] = Tally(followed, exceeded, at_start, most, ended, decided + 1)

    def tell(self, place: int, exceeded: bool | None, *, at_start: bool = False) -> None:
        """A round has ended; None where it is not known, was raised above its advice or is left out."""
        label = self.labels[place] if self.labels else ""
        tally = self.tallies[label]
        tally = tally._replace(ended=tally.ended + 1)
        if exceeded is not None:
            at_start = exceeded and at_start
            more = (tally.followed + 1, tally.exceeded + exceeded, tally.at_start + at_start)
            tally = Tally(*more, *tally[3:])
            if self.rate is not None:
                level = self.levels.get(label, self.risk)
                self.levels[label] = float(adapted(level, exceeded, risk=self.risk, rate=self.rate))
        self.tallies[label] = tally

    def state(self) -> dict[str, Any]:
        names = list(self.tallies)
        return {
            "label_names": np.array(names, dtype=str),
            "label_levels": np.array([self.levels.get(name, self.risk) for name in names], dtype=np.float64),
            "label_counts": np.array(list(self.tallies.values()), dtype=np.int64).reshape(-1, len(Tally._fields)),
            "labels": np.array(self.labels, dtype=str),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        names = arrays["label_names"].tolist()
        self.levels = dict(zip(names, arrays["label_levels"].tolist(), strict=True))
        self.tallies = {name: Tally(*row) for name, row in zip(names, arrays["label_counts"].tolist(), strict=True)}
        self.labels = arrays["labels"].tolist()
