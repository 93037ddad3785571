"""What a decision of HP-Conformal keeps of its prediction."""

from __future__ import annotations

from typing import Any, NamedTuple


class View(NamedTuple):
    """What a decision keeps of its prediction: plain values, and the group sizes at the last refit.

    The last four are None under rules without the guards of `hp_conformal`. `starts` counts the earlier decisions at
    the start dose; `tenth` is the 10th largest applied intensity with a known outcome. If there is no bound, `unknown`
    counts the scores without an outcome among those it would use, and, if too many costs are tied, `ties` is the
    group's commonest measured cost, how many rounds have it, and how many are known.
    """

    reward: float
    cost: float
    norm: float
    code: int
    label: Any
    sizes: Any
    rounds: int
    known: int
    fitted: int
    starts: int | None = None
    unknown: int | None = None
    tenth: float | None = None
    ties: list[float] | None = None

    @property
    def informative_rounds(self) -> int:
        """The rounds that the predictors were fitted to."""
        return self.fitted
