"""Which learner a policy needs. No other module asks.

Your own policy may bring its own learner, a subclass of `Learner` whose constructor takes the rules:
`Policy(..., learner=MyLearner)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from safedial.errors import refusal, require
from safedial.model.costs import split_spec
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import FACTORIES, Family, Policy, make_policy
from safedial.policies.family import BY_RULE
from safedial.policies.linear import OwnRule
from safedial.rounds.learner import Learner
from safedial.rounds.policy_learner import Driver
from safedial.rounds.rules import Rules, plain_options


def kind_of(policy: Policy | Family, spec: SafetySpec | None = None) -> Any:
    """The class of a policy's learner under a spec; a policy without an online learner is refused."""
    kind: Any = Driver(policy) if isinstance(policy, Family) else _kind_of(policy)
    if spec is None or spec.costs is None or isinstance(kind, Driver):
        return kind
    rule = "takes one cost: only certified policies with a linear estimate, hp_student and hp_shield have a proof for "
    way_out = "use hp_probe or hp_ucb, guarantee='student' with hp_student, or guarantee='bracket' with hp_shield"
    raise refusal("policy", policy.name, f"{rule}several", way_out)


def _kind_of(policy: Policy) -> Any:
    if policy.learner is not None:
        return policy.learner
    words, out = "has its own learner, which runs only in simulations", "simulate it, or give the policy a `learner`"
    require(policy.is_linear, "policy", policy.name, words, out)
    return Driver(OwnRule(record=policy))


def make_learner(rules: Rules) -> Learner:
    """The learner that the rules' policy needs, before any outcome."""
    return rules.learner(rules)


def split_rules(rules: Rules) -> Rules:
    """The rules with those of each cost, where a guarantee is split among several."""
    if rules.spec.costs is None or not GUARANTEES[rules.spec.guarantee].splits:
        return rules
    parts = {name: _part(rules, name, spec) for name, spec in split_spec(rules.spec).items()}
    return rules._replace(parts=parts)


def _part(rules: Rules, name: str, spec: SafetySpec) -> Rules:
    """One cost's rules: its spec, and its own dose curve where it states one."""
    own = (rules.spec.costs or {})[name].curve or rules.dose.cost
    is_identity = rules.dial.is_plain and own.name == "identity"
    return rules._replace(spec=spec, dose=rules.dose._replace(cost=own), is_identity=is_identity)


def saved_policy(saved: Mapping[str, Any], given: Policy | Family | None) -> Policy | Family:
    """The policy of a save file, from its written form; the given one if it or an option is the user's own."""
    name, options = saved["name"], {option: value for option, value in saved.items() if option != "name"}
    if given is None:
        own = [] if name in FACTORIES else ["policy"]
        own += sorted(key for key, value in options.items() if isinstance(value, dict) and "growth" not in value)
        rule = f"was saved with your own {', '.join(own)}, which the file does not hold"
        require(not own, "policy", name, rule, "give the policy again: Agent.load(path, policy=...)")
        made = make_policy(name, **options)
    else:
        require(given.name == name, "policy", given.name, f"must be the saved one, {name!r}")
        if isinstance(given, Family):
            return with_saved(given, options)
        now, same = plain_options(given.options), kind_of(given).same_option
        other = sorted(key for key, value in options.items() if not same(key, now, value))
        require(not other, "policy", name, f"has other options than the saved one: {', '.join(other)}")
        made = given
    return made


def with_saved(policy: Family, saved: Mapping[str, Any]) -> Family:
    """A user's policy with the saved options, where it leaves them to a rule; the others must be the saved ones."""
    now = plain_options(policy.options)
    open_ = {option for option, value in now.items() if value in (None, BY_RULE)}
    other = sorted(option for option, value in saved.items() if option not in open_ and now.get(option) != value)
    require(not other, "policy", policy.name, f"has other options than the saved one: {', '.join(other)}")
    return replace(policy, **{option: saved[option] for option in open_ if option in saved})
