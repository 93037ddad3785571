"""The online learner of a policy over function classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.choice import Choice
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.rounds import function_class_terms
from safedial.rounds.decision import plain_choice
from safedial.rounds.learner import Learner
from safedial.rounds.outcome import Sample


class View(NamedTuple):
    """What a decision keeps of its prediction: plain numbers."""

    norm: float
    informative_rounds: float


class ClassLearner(Learner):
    """The states of the reward and cost class."""

    certificate_terms = function_class_terms
    fixed_assumptions: Any = staticmethod(function_class_terms.assumptions)

    def __init__(self, policy: Policy, dim: int, ridge: float) -> None:
        self.policy, self.dim = policy, dim
        self.classes = _classes(policy)
        self.held = policy.init(dim, ridge=ridge)
        self.samples = 0

    @classmethod
    def check(cls, policy: Policy, spec: SafetySpec) -> None:
        if policy.binary_cost:
            below = spec.threshold < 1
            require(below, "threshold", spec.threshold, "must be below 1 where costs are 0 or 1", "take 0.5")
            sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
            require(sensor == (0.0, 0.0), "sensor noise", sensor, "must be 0 where costs are 0 or 1")

    def predict(self, context: Array, norm: float) -> Any:
        return self.policy.predict(self.held, context)

    def view(self, prediction: Any, choice: Choice) -> tuple[View, Choice]:
        """The prediction and the choice as plain values that later rounds do not change."""
        return View(float(prediction.norm), float(prediction.informative_rounds)), plain_choice(choice)

    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Learn from an outcome with a positive weight."""
        if sample.weight > 0.0:
            seen = self.policy.predict(self.held, context)
            cost = sample.measured if self.policy.binary_cost else sample.cost
            values = (np.float64(sample.reward), np.float64(cost), np.float64(sample.weight))
            self.held = self.policy.update(self.held, seen, *values, intensity=np.float64(sample.intensity))
            self.samples += 1

    def coef(self, target: str) -> Array:
        raise InvalidInput(f"{target}_coef: a policy over function classes has no coefficients")

    def state(self) -> dict[str, Any]:
        """The arrays to save."""
        parts = {
            f"class{index}.{name}": np.asarray(array)
            for index, (class_, held) in enumerate(zip(self.classes, self.held, strict=True))
            for name, array in class_.pack(held).items()
        }
        return {**parts, "samples": np.array(self.samples)}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.samples = int(arrays["samples"])
        self.held = tuple(
            class_.unpack({name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(start)})
            for class_, start in ((class_, f"class{index}.") for index, class_ in enumerate(self.classes))
        )


def _classes(policy: Policy) -> tuple[Any, ...]:
    reward, cost = policy.options["reward_class"], policy.options["cost_class"]
    return (cost,) if reward is cost else (reward, cost)
