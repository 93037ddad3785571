"""The start dose of HP-Conformal where it is learned online: by HP-Probe's learner or HP-Student's, beside the rounds.

Rounds are learned in decision order, up to the first whose outcome is missing; a round that is left out is skipped. A
certified dose is valid for every such prefix. Student's is not, because which rounds are known may depend on costs: it
needs every round but the latest `lag`, and while one of them is missing there is no learned dose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.decision.learners.blas import dnrm2
from safedial.decision.learners.protocol import Learner
from safedial.decision.outcome import Sample
from safedial.policies.conformal.memory import Rounds

Array = NDArray[np.float64]

SAVED = "start_"
"""Before the names of its arrays in a saved learner."""


class Opening:
    """A learner of the start dose, made anew by `make`; it has learned the rounds before number `learned`."""

    def __init__(self, make: Callable[[], Learner], *, needs_all: bool) -> None:
        self._make, self._needs_all = make, needs_all
        self.forget()

    def forget(self) -> None:
        self.learner, self.learned, self.complete = self._make(), 0, True

    def follow(self, rounds: Rounds) -> None:
        """Learn the rounds whose turn has come. Those that only train predictors are not its own."""
        last = rounds.count - (rounds.setup.lag if self._needs_all else 0)
        self.learned = max(self.learned, rounds.history)
        while rounds.dropped <= self.learned < last:
            place = self.learned - rounds.dropped
            context, cost = rounds.context[place], float(rounds.cost[place])
            if self.learned not in rounds.left:
                if not np.isfinite(cost):
                    break
                sample = Sample(float(rounds.reward[place]), cost, 1.0, 0.0, 0.0, 0.0)
                self.learner.learn(context, dnrm2(context), sample, None)
            self.learned += 1
        self.complete = self.learned >= last

    def predict(self, context: Array, norm: float) -> Any:
        seen = self.learner.predict(context, norm)
        return seen._replace(ready=seen.ready and self.complete) if self._needs_all else seen

    def state(self) -> dict[str, Any]:
        arrays = {SAVED + name: array for name, array in self.learner.state().items()}
        return {**arrays, "start": np.array((self.learned, self.complete), dtype=np.int64)}

    def restore(self, arrays: dict[str, Any]) -> None:
        own = {name.removeprefix(SAVED): array for name, array in arrays.items() if name.startswith(SAVED)}
        self.learner.restore(own)
        self.learned, self.complete = int(arrays["start"][0]), bool(arrays["start"][1])
