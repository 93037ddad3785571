"""Which learner a policy needs: the one place that asks.

A policy of one's own may bring its learner, a subclass of `Learner` whose constructor takes the rules:
`Policy(..., learner=MyLearner)`.
"""

from __future__ import annotations

from safedial.core.conformal import TIE
from safedial.core.rounding import rounded_spec
from safedial.decision.learners.conformal_learner import ConformalLearner
from safedial.decision.learners.function_class_learner import ClassLearner
from safedial.decision.learners.linear_learner import LinearLearner
from safedial.decision.learners.protocol import Learner
from safedial.decision.learners.radius_state import make_radius_state
from safedial.decision.rules import Rules
from safedial.policies import Policy


def kind_of(policy: Policy) -> type[Learner]:
    """The class of a policy's learner."""
    if policy.learner is not None:
        return policy.learner
    if "cost_class" in policy.options:
        return ClassLearner
    return ConformalLearner if policy.promise == "conformal" else LinearLearner


def make_learner(rules: Rules) -> Learner:
    """The learner that the rules' policy needs, with nothing learned."""
    policy, dim, ridge = rules.policy, rules.dim, rules.spec.ridge
    kind = kind_of(policy)
    if kind is ClassLearner:
        return ClassLearner(policy, dim, ridge)
    if kind is ConformalLearner:
        tie = TIE if rules.version > 1 else 0.0
        return ConformalLearner(policy, dim, ridge, risk=rules.spec.violation_risk, tie=tie)
    if kind is LinearLearner:
        return LinearLearner(dim, ridge, make_radius_state(policy, dim, rounded_spec(rules.spec)))
    return kind(rules)  # pyright: ignore[reportCallIssue] -- a learner of one's own takes the rules
