"""Several costs under a certified promise: one linear learner for each, and the smallest of their settings.

Each cost has its own rules: its threshold, noise and dose curve, and its share of the risks. `core.costs` has the proof
that the smallest of the settings keeps the promise. All learners see every outcome, so they agree about the reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.estimate import Prediction
from safedial.core.rounding import round_down, rounded_spec
from safedial.core.safe_set import SafeSet
from safedial.core.spec import SafetySpec
from safedial.decision.certificates import several_terms
from safedial.decision.learners.linear_learner import LinearLearner
from safedial.decision.learners.protocol import Learner
from safedial.decision.learners.shield_options import any_exceeded
from safedial.decision.outcome import Sample
from safedial.decision.written_choice import read_choice, written_choice

if TYPE_CHECKING:
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]


class View(NamedTuple):
    """What a decision rests on: each cost's prediction and choice, and the cost that allows least."""

    predictions: dict[str, Prediction]
    choices: dict[str, Choice]
    least: str


class SeveralLearner(Learner):
    """One learner for each cost, by name."""

    certificate_terms = several_terms
    event: Any = staticmethod(several_terms.event)
    fixed_assumptions: Any = staticmethod(several_terms.assumptions)
    part_kind: ClassVar[type[Learner]] = LinearLearner
    """The class of these learners."""

    def __init__(self, rules: Rules, learners: dict[str, Learner]) -> None:
        self.rules, self.learners = rules, learners
        self.safe_specs = {name: rounded_spec(part.spec) for name, part in rules.parts.items()}

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        for part in rules.parts.values():
            part.learner.started(part, start_action)
        return rules

    @classmethod
    def specs(cls, rules: Rules) -> list[SafetySpec]:
        return [part.spec for part in rules.parts.values()]

    @classmethod
    def exceeds(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        return any(
            rules.parts[name].learner.exceeds(rules.parts[name], part, advised) for name, part in sample.cost.items()
        )

    @classmethod
    def judges(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        return all(
            rules.parts[name].learner.judges(rules.parts[name], part, advised) for name, part in sample.cost.items()
        )

    @classmethod
    def is_over(cls, rules: Rules, cost: Any) -> bool:
        return any_exceeded(rules.spec.costs or {}, cost)

    @classmethod
    def written(cls, prediction: View) -> dict[str, Any]:
        seen, choices = prediction.predictions, prediction.choices
        costs = {
            name: {"prediction": cls.part_kind.written(seen[name]), "choice": written_choice(choice)}
            for name, choice in choices.items()
        }
        return {"costs": costs, "least": prediction.least}

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> View:
        read, costs = cls.part_kind.read_written, values["costs"]
        predictions = {name: read(part, costs[name]["prediction"]) for name, part in rules.parts.items()}
        return View(predictions, {name: read_choice(costs[name]["choice"]) for name in rules.parts}, values["least"])

    @property
    def samples(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return next(iter(self.learners.values())).samples

    def predict(self, context: Array, norm: float) -> dict[str, Any]:
        return {name: learner.predict(context, norm) for name, learner in self.learners.items()}

    def rounding(self, context: Array, norm: float) -> float | None:
        return max(learner.rounding(context, norm) or 0.0 for learner in self.learners.values())

    def reread(self, rules: Rules, values: Mapping[str, Any], context: Array, norm: float) -> dict[str, Any]:
        return {
            name: learner.reread(rules.parts[name], values["costs"][name]["prediction"], context, norm)
            for name, learner in self.learners.items()
        }

    def choose(
        self, rules: Rules, spec: SafetySpec, prediction: Any, *, round: float, coin: float, baseline_cost: float
    ) -> tuple[View, Choice]:
        """Each cost's choice under its own rules; the smallest is taken."""
        asked = {"round": round, "coin": coin, "baseline_cost": baseline_cost}
        found = {
            name: learner.choose(rules.parts[name], self.safe_specs[name], prediction[name], **asked)
            for name, learner in self.learners.items()
        }
        choices = {name: choice for name, (_, choice) in found.items()}
        safe = {name: self._shared(name, choice.safe.intensity) for name, choice in choices.items()}
        least = min(safe, key=lambda name: safe[name])
        choice = choices[least]._replace(
            intensity=min(safe[least], *(self._shared(name, choice.intensity) for name, choice in choices.items())),
            safe=SafeSet(safe[least], all(choice.safe.certified for choice in choices.values())),
            bounds=choices[least].bounds._replace(refuted=any(choice.bounds.refuted for choice in choices.values())),
        )
        return View({name: seen for name, (seen, _) in found.items()}, choices, least), choice

    def _shared(self, name: str, intensity: float) -> float:
        """An intensity of one cost's curve in that of the rules, which all costs share: never a higher setting."""
        own, shared = self.rules.parts[name].dose.cost, self.rules.dose.cost
        if own is shared or intensity in (0.0, 1.0):
            return intensity
        action = float(own.action(round_down(intensity, own.error_units)))
        return min(round_down(float(shared.effect(action)), shared.error_units), math.nextafter(1.0, 0.0))

    def parts(self, rules: Rules, sample: Sample) -> list[tuple[Rules, Learner, Sample]]:
        return [(rules.parts[name], self.learners[name], part) for name, part in sample.cost.items()]

    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Each cost from its own part; nothing where one is not known."""
        if sample.weight > 0.0:
            for name, learner in self.learners.items():
                learner.learn(context, norm, sample.cost[name], place)

    def coef(self, target: str) -> Array:
        """The reward's coefficients, or a row for each cost."""
        found = np.stack([learner.coef(target) for learner in self.learners.values()])
        return found[0] if target == "reward" else found

    def state(self) -> dict[str, Any]:
        return {
            f"{name}.{key}": array for name, learner in self.learners.items() for key, array in learner.state().items()
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        for name, learner in self.learners.items():
            start = f"{name}."
            learner.restore({key[len(start) :]: array for key, array in arrays.items() if key.startswith(start)})
