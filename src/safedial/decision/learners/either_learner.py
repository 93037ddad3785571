"""HP-Student with either=True: its dose, but never more than HP-Conformal's; the promise holds if either's does.

C > τ at the smaller of two doses means that C > τ at each of them, since noise scales with the intensity. So if the
noise is Gaussian, P(C > τ) ≤ δ by the Student bound, and if rounds are exchangeable, by the conformal one. Both learn
from all rounds, and neither sees the doses. Until both have a bound, the start dose is given.

Each learner watches its own assumption. If one of the two holds, its evidence ever reaches 100 with probability at most
0.01, so the smaller of both is the evidence, and the agent stops once both have reached it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.core.action import Choice
from safedial.core.rounding import rounded_spec
from safedial.decision.learners.conformal_learner import ConformalLearner
from safedial.decision.learners.student_learner import Seen, StudentLearner
from safedial.decision.outcome import Sample
from safedial.decision.written_choice import plain_choice
from safedial.policies.hp_student import conformal_bound, conformal_part

if TYPE_CHECKING:
    from safedial.decision.learners.student_learner import Array
    from safedial.decision.rules import Rules


class Conformal(NamedTuple):
    """What a decision keeps of the conformal part: its bound (None: none yet), and the rounds behind it."""

    cost_upper: float | None
    calibration_rounds: int
    rounds: int


class EitherLearner(StudentLearner):
    """A `StudentLearner`, and a `ConformalLearner` that sees the same rounds.

    Rounds from before the first decision are places of the conformal learner and none of the other's, so a round's
    place there is higher by their number.
    """

    def __init__(self, rules: Rules) -> None:
        options = rules.policy.options
        own = rules._replace(policy=conformal_part(options["start_dose"], options["lag"]))
        self.other = ConformalLearner(own)
        self.safe_spec = rounded_spec(rules.spec)
        super().__init__(rules)

    @classmethod
    def written(cls, prediction: Seen) -> dict[str, Any]:
        return {**super().written(prediction), "other": prediction.other._asdict()}

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> Seen:
        seen = super().read_written(rules, values)
        return seen._replace(other=Conformal(**values["other"]))

    def forget(self) -> None:
        super().forget()
        self.other.forget()

    def begin(self) -> None:
        super().begin()
        self.other.begin()

    def predict(self, context: Array, norm: float) -> Seen:
        return super().predict(context, norm)._replace(other=self.other.predict(context, norm))

    def foresee(self, context: Array, norm: float) -> Seen:
        known = super().foresee(context, norm)
        return known._replace(other=self.other.foresee(context, norm))

    def rounding(self, context: Array, norm: float) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- as for HP-Conformal
        """Unknown: ranks may change with the last digits."""

    def view(self, prediction: Seen, choice: Choice) -> tuple[Seen, Choice]:
        outlook = prediction.other
        bound, frozen = float(conformal_bound(outlook, self.safe_spec)), outlook.rounds.frozen
        count = int(frozen.sizes[0]) if frozen else 0
        plain = Conformal(bound if math.isfinite(bound) else None, count, outlook.rounds.count)
        return prediction._replace(other=plain), plain_choice(choice)

    def open(self, context: Array) -> int:
        self.other.open(context)
        return super().open(context)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        shift = self.other.rounds.count - self.opened
        known = place is None or place in self.waits
        super().learn(context, norm, sample, place)
        if known:
            self.other.learn(context, norm, sample, None if place is None else place + shift)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        if place in self.waits:
            self.other.throttled(context, sample, place + self.other.rounds.count - self.opened, advised)
        super().throttled(context, sample, place, advised)

    def leave_out(self, place: int) -> None:
        if place in self.waits:
            self.other.leave_out(place + self.other.rounds.count - self.opened)
        super().leave_out(place)

    @property
    def evidence(self) -> float:
        return min(self.watch.evidence, self.other.evidence)

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return self.watch.crossed and self.other.alarmed

    def restart_evidence(self) -> None:
        super().restart_evidence()
        self.other.restart_evidence()

    def state(self) -> dict[str, Any]:
        return super().state() | {f"other.{name}": np.asarray(value) for name, value in self.other.state().items()}

    def restore(self, arrays: dict[str, Any]) -> None:
        own = {name: value for name, value in arrays.items() if not name.startswith("other.")}
        super().restore(own)
        self.other.restore({name[6:]: value for name, value in arrays.items() if name.startswith("other.")})
