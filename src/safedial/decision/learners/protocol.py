"""What an agent and a study ask of a learner; a learner of one's own is a class that fulfils it.

`Learner` answers for a learner that needs nothing special: outcomes are learned from in decision order, and the
promise is watched from outside, by counting violations. A subclass must give `predict`, `learn`, `state` and
`restore`; the rest only where it differs. Nobody outside `decision.learners` asks which learner it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.decision.outcome import Sample
from safedial.errors import InvalidInput

Array = NDArray[np.float64]
Residuals = tuple[float, float, float, float, float]


class Learner(ABC):
    """One learner's state."""

    in_order: ClassVar[bool] = True
    """Whether outcomes must be learned from in decision order, and none may be left out without a reason."""
    watches_itself: ClassVar[bool] = False
    """Whether its own evidence stops it (the rule "drift"), and violations are only counted."""

    samples: int = 0
    """How many outcomes were learned from."""
    starts: Any = None
    """How many decisions were at a declared or certified start dose; None for a learner without one."""

    @property
    def evidence(self) -> float | None:
        """Its own evidence that what it assumes is broken; None where violations are the evidence."""
        return None

    @property
    def alarmed(self) -> bool:
        """Whether its own evidence has reached 100."""
        return False

    @property
    def stop_rule(self) -> str:
        """The rule that its evidence belongs to."""
        return "drift" if self.watches_itself else "alarm"

    def begin(self) -> None:
        """Before a decision."""

    @abstractmethod
    def predict(self, context: Array, norm: float) -> Any:
        """What a decision depends on. Changes nothing."""

    def foresee(self, context: Array, norm: float) -> Any:
        """`predict` as it will be after the next `begin`."""
        return self.predict(context, norm)

    def refutes(self, prediction: Any, choice: Choice, spec: Any) -> bool:
        """Whether the data contradict what the spec states about the cost."""
        return False

    def view(self, prediction: Any, choice: Choice) -> tuple[Any, Choice]:
        """What a decision keeps: plain values that later rounds leave alone."""
        return prediction, choice

    def open(self, context: Array) -> Any:
        """A round was decided; what is returned names its place when its outcome comes."""
        return None

    def check_report(self, context: Array, round: int, place: Any, decisions: int) -> None:
        """Refuse an outcome that is reported by its context and fits no round."""

    @abstractmethod
    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Learn from the outcome of the round at `place`; None: of a round from before the first decision."""

    def residuals(self, rules: Any, context: Array, norm: float, sample: Sample) -> Residuals | None:
        """(reward's residual, its slack, cost's residual, its slack, rounding) of an outcome that is yet to be learned:
        how far it lies from the predicted means and how far it may lie from them without any noise, times √ω, and what
        rounding may add to the cost's. None where this says nothing about the noise.
        """
        return None

    def leave_out(self, place: Any) -> None:
        """The round at `place` has no outcome, for a reason that has nothing to do with it."""

    def count_start(self, promise: str) -> None:
        """Count a decision by its promise."""

    def watch_afresh(self) -> None:
        """Begin its own evidence anew."""

    def forget(self) -> None:
        """Begin again without the earlier rounds."""
        raise InvalidInput("forget = True: is for hp_conformal: a certified learner's rounds stay true")

    def coef(self, target: str) -> Array:
        """The coefficients of "reward" or "cost"."""
        raise InvalidInput(f"{target}_coef: this learner has no coefficients")

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The arrays to save."""

    @abstractmethod
    def restore(self, arrays: dict[str, Any]) -> None:
        """Take back, bit for bit, what `state` gave."""
