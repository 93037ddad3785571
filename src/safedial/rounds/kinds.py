"""The driver of the rules' policy, the rules of each of several costs, and the policy of a save file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from safedial.errors import require
from safedial.model.costs import split_spec
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import FACTORIES, Policy, make_policy
from safedial.policies.policy import BY_RULE
from safedial.rounds.learner import Learner
from safedial.rounds.rules import Rules, plain_options


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


def saved_policy(saved: Mapping[str, Any], given: Policy | None) -> Policy:
    """The policy of a save file, from its written form; the given one if it or an option is the user's own."""
    name, options = saved["name"], {option: value for option, value in saved.items() if option != "name"}
    if given is not None:
        require(given.name == name, "policy", given.name, f"must be the saved one, {name!r}")
        return with_saved(given, options)
    own = [] if name in FACTORIES else ["policy"]
    own += sorted(key for key, value in options.items() if isinstance(value, dict) and "growth" not in value)
    rule = f"was saved with your own {', '.join(own)}, which the file does not hold"
    require(not own, "policy", name, rule, "give the policy again: Agent.load(path, policy=...)")
    return make_policy(name, **options)


def with_saved(policy: Policy, saved: Mapping[str, Any]) -> Policy:
    """A user's policy with the saved options, where it leaves them to a rule; the others must be the saved ones."""
    now = plain_options(policy.options)
    open_ = {option for option, value in now.items() if value in (None, BY_RULE)}
    other = sorted(option for option, value in saved.items() if option not in open_ and now.get(option) != value)
    require(not other, "policy", policy.name, f"has other options than the saved one: {', '.join(other)}")
    return replace(policy, **{option: saved[option] for option in open_ if option in saved})
