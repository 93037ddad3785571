"""One algorithm per file. A new policy is one short file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field
from difflib import get_close_matches
from functools import lru_cache
from inspect import signature
from typing import Any

from safedial.errors import InvalidInput, require
from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES, OF_POLICIES
from safedial.model.spec import SafetySpec, dose_free_learning
from safedial.policies.baselines import clairvoyant, epsilon_greedy, fixed, hp_bayes, on_expectation, thompson
from safedial.policies.conformal import hp_conformal
from safedial.policies.linear import hp_probe, hp_ucb
from safedial.policies.nonlinear import nonlinear_hp_probe, nonlinear_hp_ucb
from safedial.policies.policy import UNITS, Policy, missing_methods
from safedial.policies.shield import HPShield, hp_shield
from safedial.policies.student import hp_student

POLICIES: dict[str, Callable[..., Any]] = {
    "hp_ucb": hp_ucb,
    "hp_probe": hp_probe,
    "hp_conformal": hp_conformal,
    "hp_student": hp_student,
    "on_expectation": on_expectation,
    "epsilon_greedy": epsilon_greedy,
    "thompson": thompson,
    "clairvoyant": clairvoyant,
    "fixed": fixed,
    "hp_bayes": hp_bayes,
    "nonlinear_hp_ucb": nonlinear_hp_ucb,
    "nonlinear_hp_probe": nonlinear_hp_probe,
}
"""The policies that need no options."""

FACTORIES: dict[str, Callable[..., Any]] = {**POLICIES, "hp_shield": hp_shield}
"""All policies, by name: also those that somebody must configure."""

STUDIED = ("hp_probe", "hp_ucb", "hp_conformal", "hp_shield", "hp_student")
"""Those that can run a study by name."""


def make_policy(name: str, **options: Any) -> Policy:
    """The policy with this name and these options.

    >>> make_policy("hp_ucb", radius="paper").label
    'HP-UCB'
    >>> make_policy("hp_ubc")
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: policy = 'hp_ubc': there is no such policy; did you mean 'hp_ucb'?
    """
    known = option_names(name)
    for option in options:
        if option not in known:
            raise InvalidInput(f"policy {name}: has no option {option!r}; {_way_out(option, known)}")
    parameters = signature(FACTORIES[name]).parameters.values()
    missing = [each.name for each in parameters if each.default is each.empty and each.name not in options]
    rule = "needs options, without which it says nothing"
    call = f"make_policy({name!r}, {'=..., '.join([*missing, ''])[:-2]})"
    way_out = f"state {', '.join(missing)} under [[policy]] in a spec file, or, in Python, {call}"
    require(not missing, "policy", name, rule, way_out)
    return FACTORIES[name](**options)


def option_names(name: str) -> tuple[str, ...]:
    """The options of the policy of that name."""
    if name not in FACTORIES:
        near = get_close_matches(str(name), FACTORIES, n=1)
        way_out = f"did you mean {near[0]!r}?" if near else "choose from " + ", ".join(FACTORIES)
        raise InvalidInput(f"policy = {name!r}: there is no such policy; {way_out}")
    return tuple(signature(FACTORIES[name]).parameters)


ELSEWHERE = {
    "start_action": "it belongs to a study or an Agent (safedial study create --set start_action=..., "
    "Agent(start_action=...)); as an intensity, from 0 to 1, it is the option start_dose",
    "fallback_action": "it belongs to a study or an Agent (safedial study create --set fallback_action=..., "
    "Agent(fallback_action=...))",
}
"""Names that users mistake for options of a policy, and where they belong."""


def _way_out(option: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(option, known, n=1, cutoff=0.75)
    return ELSEWHERE.get(option) or (f"did you mean {near[0]!r}?" if near else "it has " + ", ".join(known))


@lru_cache(maxsize=64)
def _default(name: str) -> Policy:
    """The same object for the same name, so that code for a policy is compiled only once."""
    return make_policy(name)


def as_policy(policy: str | Policy) -> Policy:
    """A policy, given itself or by its name with default options."""
    made = _default(policy) if isinstance(policy, str) else policy
    way_out = "call it, which makes a policy" if callable(policy) else ", ".join(POLICIES)
    require(isinstance(made, Policy), "policy", policy, "must be a policy or the name of one", way_out)
    if made.is_own:
        _check_own(made)
    return made


def _check_own(policy: Policy) -> None:
    """Refuse a class of one's own that is not whole, or claims what there is not, or whose name is not its own: save
    files and logs know a policy by its name.
    """
    name, kind = policy.name, type(policy).__name__
    words = f"goes by {name!r}, which is " + ("a policy of this package" if name else "no name")
    require(name and name not in FACTORIES, "policy", kind, words, 'give the class one: name = "..."')
    rule, way_out = f"is not what a policy may claim, and {name} does", "choose " + ", ".join(OF_POLICIES)
    require(policy.guarantee in OF_POLICIES, "guarantee", policy.guarantee, rule, way_out)
    left = [name for each in type(policy).__mro__ for name, value in vars(each).items() if isinstance(value, Field)]
    rule, way_out = (
        f"has options ({', '.join(left)}), but is no dataclass",
        "decorate it with @dataclass(frozen=True, kw_only=True)",
    )
    require(not left, "policy", kind, rule, way_out)
    takes = signature(type(policy).init).parameters
    whole = "watch" in takes or any(each.kind is each.VAR_KEYWORD for each in takes.values())
    require(
        whole, f"init of policy {name!r}", list(takes), "must take `watch`", "def init(self, lanes=(), *, watch=True)"
    )
    unit: Any = type(policy).unit  # of a shield it depends on the task
    rule, way_out = f"is not what {name} may decide in", "choose " + " or ".join(UNITS)
    require(unit in UNITS or not isinstance(unit, str), "unit", unit, rule, way_out)
    missing = missing_methods(policy)
    way_out = "define it as docs/extend.md says, under 'A policy with a state of its own'"
    require(not missing, "policy", name, f"lacks {', '.join(missing)}", way_out)


def guaranteed_risk(policy: Policy, spec: SafetySpec) -> Any:
    """What a policy's guarantee risks under a spec: δ where it holds over the past too, else all parts together."""
    return spec.violation_risk if policy.marginal else spec.guaranteed_risk


def shown_spec(policy: Policy, written: dict[str, Any]) -> dict[str, Any]:
    """A spec's written form as results show it: it guarantees nothing where the policy proves nothing."""
    return written | ({"guarantee": "none"} if GUARANTEES[policy.guarantee].empty else {})


def rows_learn_alike(policy: Policy, spec: SafetySpec, dose: Dose, baseline_cost: Any) -> bool:
    """Whether the rows of a swept spec may share one estimate.

    With a policy of one's own, what is learned may depend on the dose.
    """
    free = policy.exact_dose and not (policy.is_own or policy.zero_one)
    return free and dose_free_learning(spec, dose, baseline_cost)


__all__ = [
    "FACTORIES",
    "POLICIES",
    "HPShield",
    "Policy",
    "as_policy",
    "make_policy",
    "option_names",
    "guaranteed_risk",
    "rows_learn_alike",
    "shown_spec",
    *FACTORIES,
]
