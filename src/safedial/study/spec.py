"""The specification of a study: promise, policy, units and guard, checked once and stored as plain values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from safedial.core.promise import CERTIFIED, PROMISES
from safedial.core.spec import NAMES
from safedial.decision.label_names import read_labels
from safedial.decision.learners.protocol import Learner
from safedial.decision.own_functions import own_values
from safedial.decision.rules import Rules, plain_options
from safedial.errors import require
from safedial.policies import FACTORIES, Policy
from safedial.study.guard import Guard, read_guard

OPTIONS = (
    *("radius", "clip", "probe", "start_dose", "confidence", "group", "window", "lag"),
    *("reach", "history", "groups", "base", "growth", "start_scale"),
)
SHAPE = (
    *("dim", "policy", "dose", "dial", "features", "start_action", "fallback_action", "high_fallback"),
    *("baseline_range", "learning_order", "guard", "labels"),
)
STUDY_POLICIES = ("hp_probe", "hp_ucb", "hp_conformal", "hp_shield", "hp_student")


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study's specification. `fields` is its written form: `read_spec(fields)` gives it again.

    `learning_order` is "prefix" (the learner uses the longest run of rounds, from the first, whose outcomes are all
    known; this is valid under any delay) or "arrival" (it uses every outcome at once; delays must not depend on
    outcomes). `before` is the specification up to the amendment, event `since`,
    that made this one, and `began` is the amendment that began its phase (study/amendment.py); 0 if there was none.
    """

    rules: Rules
    guard: Guard
    learning_order: str
    fields: dict[str, Any]
    before: StudySpec | None = None
    since: int = 0
    began: int = 0

    @property
    def chain(self) -> Iterator[StudySpec]:
        """This specification, the one before it, and so on to the study's first."""
        spec: StudySpec | None = self
        while spec is not None:
            yield spec
            spec = spec.before

    def at(self, seq: int) -> StudySpec:
        """The specification that a decision at `seq` was made under."""
        return next(spec for spec in self.chain if seq > spec.since)

    @property
    def phases(self) -> list[StudySpec]:
        """The last specification of each phase, the first phase first."""
        return list({spec.began: spec for spec in reversed(list(self.chain))}.values())

    @property
    def first(self) -> StudySpec:
        """The specification that the study began with."""
        return self.at(1)

    @cached_property
    def learner(self) -> type[Learner]:
        """The class of its learner."""
        return self.rules.learner

    @cached_property
    def folds(self) -> bool:
        """Whether corrections of rewards and costs change the state in place (study/corrections.py)."""
        return self.learner.revises(self.rules)

    @cached_property
    def ordered(self) -> bool:
        """Whether outcomes are learned from in decision order."""
        return self.learning_order == "prefix" and self.learner.in_order


def read_spec(given: Any, *, quiet: bool = False, own: Policy | None = None) -> StudySpec:
    """Check a specification, a mapping of plain values as in JSON. `own` is the policy that it names, if that is the
    user's own.

    >>> spec = read_spec({"dim": 2, "threshold": 0.5, "total_risk": 0.02, "reward_noise": 1, "cost_noise": 1,
    ...                   "coefficient_bound": 1, "context_bound": 1})
    >>> spec.rules.policy.name, spec.learning_order
    ('hp_probe', 'prefix')
    """
    require(isinstance(given, Mapping), "spec", type(given).__name__, "must be an object of named values")
    fields = {str(name): value for name, value in given.items() if value is not None}
    unknown = sorted(set(fields) - {*NAMES, *OPTIONS, *SHAPE})
    near = get_close_matches(unknown[0], {*NAMES, *OPTIONS, *SHAPE}, n=1) if unknown else []
    require(not unknown, "spec", unknown, "has unknown names", f"did you mean {near[0]!r}?" if near else "")
    promise = {name: value for name, value in fields.items() if name in NAMES}
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        rules = Rules.from_dict({**fields, "spec": promise, "policy": _policy(fields, own)})
    curves = sorted(own_values(rules))
    rule = "is your own curve, which a log cannot hold"
    require(not curves, "spec", curves, rule, "use one of this package, or an Agent")
    rules.learner.check_study(rules)
    learning_order = fields.get("learning_order", "prefix")
    require(learning_order in ("prefix", "arrival"), "learning_order", learning_order, "must be 'prefix' or 'arrival'")
    guard = read_guard(fields.get("guard"), rules)
    confirmed = fields.get("high_fallback", False)
    require(isinstance(confirmed, bool), "high_fallback", confirmed, "must be true or false")
    written = _written(rules, guard, learning_order) | ({"high_fallback": True} if confirmed else {})
    labels = read_labels(fields.get("labels", {}), several=rules.spec.costs is not None)
    written |= {"labels": labels} if labels else {}
    return StudySpec(rules=rules, guard=guard, learning_order=learning_order, fields=_as_logged(written))


def _as_logged(value: Any) -> Any:
    """Plain values as a log gives them back, so that equal specifications have equal fields."""
    if isinstance(value, Mapping):
        return {str(name): _as_logged(each) for name, each in value.items()}
    return [_as_logged(each) for each in value] if isinstance(value, (list, tuple)) else value


def _written(rules: Rules, guard: Guard, learning_order: str) -> dict[str, Any]:
    """The rules' written form, with the spec's fields at the same level, and what only a study has."""
    form = rules.to_dict()
    written = {**form.pop("spec"), **form, "learning_order": learning_order, "guard": dict(guard.fields)}
    if form["features"]:
        written["features"] = {"ranges": {}, "units": {}, **form["features"]}
    return {name: value for name, value in written.items() if value is not None}


def check_fallback(fields: Mapping[str, Any], spec: StudySpec) -> None:
    """A fallback in the upper half of the dial must be confirmed, because costs grow with the setting."""
    dial, fallback, start = spec.rules.dial, spec.rules.fallback_action, spec.rules.start_action
    high = fallback > 0.5 * (dial.low + dial.high) and fields.get("fallback_action") is not None and fallback != start
    rule = f"is in the upper half of the dial, {dial.low:g} to {dial.high:g}, but it is advised when costs are too high"
    way_out = "state a lower one, or high_fallback: true if lower settings are the dangerous ones"
    require(not high or "high_fallback" in spec.fields, "fallback_action", fallback, rule, way_out)


def own_policy(fields: Mapping[str, Any]) -> Policy | None:
    """The policy of a new study, if it is the user's own."""
    given = fields.get("policy")
    return given if isinstance(given, Policy) and given.name not in FACTORIES else None


def _policy(fields: Mapping[str, Any], own: Policy | None) -> dict[str, Any] | Policy:
    """The policy's written form, with the options in it or beside it; or the user's own policy."""
    stated = PROMISES.get(str(fields.get("promise")), CERTIFIED)
    default = {"name": stated.default_policy, **stated.default_options}
    given, options, own = fields.get("policy", default), {}, own_policy(fields) or own
    for each in (given, own):
        if isinstance(each, Policy) and each.name in FACTORIES:
            own_parts = ", ".join(each.own_parts)
            words = f"is a name of this package, and {own_parts} is your own, which a log could not tell apart"
            require(not own_parts, "policy", each.name, words, "give the policy another name, and a `learner`")
    if isinstance(given, Policy):
        given = {"name": given.name, **(plain_options(given.options) if own else given.options)}
    proper = isinstance(given, (str, Mapping))
    require(proper, "policy", given, "must be a name, or an object of a name and options", 'give {"name": "hp_probe"}')
    if isinstance(given, Mapping):
        require("name" in given, "policy", sorted(map(str, given)), "has no name", 'give {"name": "hp_probe", ...}')
        given, options = given.get("name"), {name: value for name, value in given.items() if name != "name"}
    options |= {name: fields[name] for name in OPTIONS if name in fields}
    if own is not None:
        return _checked(own, given, options)
    known = given in STUDY_POLICIES
    require(
        known or given not in FACTORIES, "policy", given, "cannot run a study", "choose " + ", ".join(STUDY_POLICIES)
    )
    group = options.get("group")
    plain = isinstance(group, (str, int, bool, type(None)))
    require(plain, "group", type(group).__name__, "cannot be stored in a log: give plain values")
    return {"name": str(given), **options}


def _checked(own: Policy, name: Any, options: Mapping[str, Any]) -> Policy:
    """The user's own policy, which must be the one that the study names."""
    require(own.name == name, "policy", own.name, f"must be the study's, {name!r}")
    stated = plain_options(own.options)
    other = sorted(each for each in {*stated, *options} if stated.get(each) != options.get(each))
    require(not other, "policy", own.name, f"differs from the study's policy in these options: {', '.join(other)}")
    return own
