"""HP-Shield's adaptive level. `core.adaptive` has the recursion and the proof of its long-run statement."""

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


class Level:
    """δ_t, and the counts."""

    def __init__(self, risk: float, rate: float | None) -> None:
        self.risk, self.rate = risk, rate
        self.now, self.tally = risk, Tally()

    def open(self) -> None:
        """One more round."""
        followed, exceeded, at_start, most, ended, decided = self.tally
        most = max(most, decided + 1 - ended)
        self.tally = Tally(followed, exceeded, at_start, most, ended, decided + 1)

    def tell(self, exceeded: bool | None, *, at_start: bool = False) -> None:
        """A round has ended; None where it is not known, was raised above its advice or is left out."""
        tally = self.tally._replace(ended=self.tally.ended + 1)
        if exceeded is not None:
            at_start = exceeded and at_start
            more = (tally.followed + 1, tally.exceeded + exceeded, tally.at_start + at_start)
            tally = Tally(*more, *tally[3:])
            if self.rate is not None:
                self.now = float(adapted(self.now, exceeded, risk=self.risk, rate=self.rate))
        self.tally = tally

    def state(self) -> dict[str, Any]:
        return {"level": np.array(self.now), "tally": np.array(self.tally, dtype=np.int64)}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.now, self.tally = float(arrays["level"]), Tally(*arrays["tally"].tolist())
