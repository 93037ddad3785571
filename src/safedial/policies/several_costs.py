"""A certified policy with several costs, in simulations: one learner for each, and the smallest of the settings.

`model.costs` has the proof. Where a cost states a dose curve of its own, intensities are the dial's settings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.bounds.choice import Choice
from safedial.bounds.safe_set import SafeSet
from safedial.bounds.tolerated import Cost
from safedial.model.costs import split_spec
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Family, Policy, learner_of


def takes_costs(policy: Policy, spec: SafetySpec, *, with_constants: bool) -> bool:
    """Whether several costs may be simulated: with brackets in a world without constants, with noise in one with
    constants, by a policy that has a proof for them or knows the truth.
    """
    bracketed, given = GUARANTEES[spec.guarantee].bracketed, GUARANTEES[policy.guarantee]
    alone = given.gaussian and not policy.options["either"]
    proved = given.bracketed if bracketed else given.from_constants or alone
    return (proved or policy.knows_truth) and bracketed != with_constants


def with_costs(policy: Policy, spec: SafetySpec) -> Policy:
    """The policy for a spec's several costs without brackets, each under its share of the risks; itself for others."""
    if isinstance(policy, Family) or spec.costs is None or GUARANTEES[spec.guarantee].bracketed:
        return policy
    parts, stated = split_spec(spec), spec.costs or {}
    learners = {name: learner_of(policy, part) for name, part in parts.items()}

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = ()) -> dict[str, Any]:
        return {name: learner.init(dim, ridge=ridge, batch=batch) for name, learner in learners.items()}

    def predict(state: dict[str, Any], context: Any) -> dict[str, Any]:
        return {name: learner.predict(state[name], context) for name, learner in learners.items()}

    def update(state: Any, prediction: Any, reward: Any, cost: dict[str, Any], weight: Any) -> dict[str, Any]:
        return {
            name: learner.update(state[name], prediction[name], reward, cost[name], weight)
            for name, learner in learners.items()
        }

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        choices = {
            name: policy.decide(prediction[name], part, round=round, coin=coin, baseline_cost=baseline_cost)
            for name, part in parts.items()
        }
        chosen = np.min([_setting(stated[name], each.intensity) for name, each in choices.items()], axis=0)
        safe = np.min([_setting(stated[name], each.safe.intensity) for name, each in choices.items()], axis=0)
        certified = np.all([each.safe.certified for each in choices.values()], axis=0)
        first = next(iter(choices.values()))
        return first._replace(intensity=chosen, safe=SafeSet(safe, certified))

    return policy._replace(decide=decide, init=init, predict=predict, update=update)


def _setting(cost: Cost, intensity: Any) -> Any:
    return intensity if cost.curve is None else cost.curve.action(intensity)
