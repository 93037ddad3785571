"""Which learner a policy needs. No other module asks.

Your own policy may bring its own learner, a subclass of `Learner` whose constructor takes the rules:
`Policy(..., learner=MyLearner)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from safedial.core.conformal import TIE
from safedial.core.rounding import rounded_spec
from safedial.decision.learners.conformal_learner import ConformalLearner
from safedial.decision.learners.function_class_learner import ClassLearner
from safedial.decision.learners.linear_learner import LinearLearner
from safedial.decision.learners.protocol import Learner
from safedial.decision.learners.radius_state import make_radius_state
from safedial.decision.learners.shield_learner import ShieldLearner
from safedial.decision.learners.student_learner import StudentLearner
from safedial.decision.rules import Rules, plain_options
from safedial.errors import require
from safedial.policies import FACTORIES, Policy, make_policy

NAMED: dict[str, type[Learner]] = {
    "hp_conformal": ConformalLearner,
    "hp_shield": ShieldLearner,
    "hp_student": StudentLearner,
}
"""Policies with a learner of their own."""


def kind_of(policy: Policy) -> type[Learner]:
    """The class of a policy's learner; a policy without an online learner is refused."""
    if policy.learner is not None:
        return policy.learner
    if "cost_class" in policy.options:
        return ClassLearner
    if policy.name in NAMED:
        return NAMED[policy.name]
    words, out = "has its own learner, which runs only in simulations", "simulate it, or give the policy a `learner`"
    require(policy.is_linear, "policy", policy.name, words, out)
    return LinearLearner


def make_learner(rules: Rules) -> Learner:
    """The learner that the rules' policy needs, before any outcome."""
    policy, dim, ridge = rules.policy, rules.dim, rules.spec.ridge
    kind = rules.learner
    if kind is ClassLearner:
        return ClassLearner(policy, dim, ridge)
    if kind is ConformalLearner:
        tie = TIE if rules.version > 1 else 0.0
        return ConformalLearner(policy, dim, ridge, risk=rules.spec.violation_risk, tie=tie)
    if kind is LinearLearner:
        spec = rounded_spec(rules.spec)
        stated = spec.coefficient_bound if rules.version > 1 else math.inf
        return LinearLearner(dim, ridge, make_radius_state(policy, dim, spec), coefficient_bound=stated)
    return kind(rules)


def saved_policy(name: str, options: Mapping[str, Any], given: Policy | None) -> Policy:
    """The policy of a save file, by name and options; the given one if it or an option is the user's own."""
    if given is None:
        own = [] if name in FACTORIES else ["policy"]
        own += sorted(key for key, value in options.items() if isinstance(value, dict) and "growth" not in value)
        rule = f"was saved with your own {', '.join(own)}, which the file does not hold"
        require(not own, "policy", name, rule, "give the policy again: Agent.load(path, policy=...)")
        made = make_policy(name, **options)
    else:
        require(given.name == name, "policy", given.name, f"must be the saved one, {name!r}")
        now, same = plain_options(given.options), kind_of(given).same_option
        other = sorted(key for key, value in options.items() if not same(key, now, value))
        require(not other, "policy", name, f"has other options than the saved one: {', '.join(other)}")
        made = given
    return kind_of(made).with_saved(made, options)
