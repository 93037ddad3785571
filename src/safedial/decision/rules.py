"""The rules: everything that is fixed for the life of a learner, and their one written form.

`Rules.to_dict` gives plain values, and `Rules.from_dict` reads and checks them. A study's log, a save file and a
certificate hold this form; a spec file and a cell of a sweep hold the parts that they state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from safedial.core.brackets import Growth
from safedial.core.dose import Dose, DoseCurve
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.decision.units import Dial, Features
from safedial.errors import InvalidInput, require, require_fields
from safedial.function_classes import FunctionClass
from safedial.policies import Policy, make_policy


class RuleFields(NamedTuple):
    """The fields of `Rules`."""

    spec: SafetySpec
    policy: Policy
    dose: Dose
    dial: Dial
    dim: int
    fallback_action: float
    features: Features | None
    start_action: float | None
    is_identity: bool
    """Whether settings are intensities: a plain dial and the identity curve."""
    baseline_range: tuple[float, float] = (-math.inf, math.inf)
    """The range for a stated baseline cost."""
    learner: Any = None
    """The class of the learner that the policy needs (`decision.learners.protocol.Learner`)."""
    parts: Any = None
    """The rules of each cost, by name, where a certified promise is split among several."""


class Rules(RuleFields):
    """Everything that is fixed for the life of a learner, and what follows from that alone."""

    @cached_property
    def fixed_terms(self) -> tuple[dict[str, Any], list[str]]:
        """What all certificates under these rules share, computed once. To be copied, never handed out."""
        from safedial.decision.certificates.certified import fixed_terms

        return fixed_terms(self)

    @cached_property
    def takes_zero_one(self) -> bool:
        """Whether every outcome's cost must be 0 or 1: by the policy's class of costs, or by a spread bracket."""
        policy = self.policy
        return policy.binary_cost or getattr(policy.options.get("growth"), "name", "") == "spread"

    @cached_property
    def policy_reason(self) -> str:
        """Why this policy: what is stated, or that it was named."""
        stated, name = PROMISES[self.spec.promise], self.policy.name
        if name == stated.default_policy:
            return f"{name}, because {stated.because}{self._by_rule}"
        return f"{name}, because it was named; {stated.default_policy} is the default where {stated.because}"

    @property
    def _by_rule(self) -> str:
        """Which options are those of the rule for new agents and studies, in words."""
        from safedial.decision.defaults import by_rule

        if not PROMISES[self.spec.promise].from_constants:
            return ""
        policy, spec = by_rule(None, replace(self.spec, ridge=None), self.dim)
        same = {name: value for name, value in policy.options.items() if value == self.policy.options[name]}
        told = [f"radius {same['radius']}"] if "radius" in same else []
        told += [f"ridge {spec.ridge:.4g}"] if "radius" in same and spec.ridge == self.spec.ridge else []
        return f"; by rule: {', '.join(told)}" if told else ""

    @cached_property
    def sentence(self) -> str:
        """The policy's promise in one sentence, for a learner without a sentence of its own."""
        spec, promise = self.spec, PROMISES[self.policy.promise]
        if promise.from_constants:
            promise = PROMISES[spec.promise]
        event = self.learner.event(self)
        return promise.statement.format(event=event, threshold=spec.threshold, risk=spec.promised_risk)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON. The user's own functions appear only by name."""
        return {
            "dim": self.dim,
            **write_parts({name: getattr(self, name) for name in PARTS}),
            "start_action": self.start_action,
            "fallback_action": self.fallback_action,
            "baseline_range": [None if math.isinf(end) else end for end in self.baseline_range],
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Rules:
        """The inverse of `to_dict`, with checks. A part may also be an object; without `dim` the features give it."""
        from safedial.decision.validation import make_rules

        parts = read_parts({name: part for name, part in fields.items() if name != "policy"})
        dim = fields.get("dim", parts["features"].dim if "features" in parts else None)
        rest = {name: fields.get(name) for name in ("policy", "start_action", "fallback_action", "baseline_range")}
        return make_rules(dim=dim, **parts, **rest)


def named_policy(fields: Mapping[str, Any]) -> Policy:
    """The policy that plain values name, with its options.

    >>> named_policy({"name": "hp_probe", "probe": 0.1}).options["probe"]
    0.1
    """
    require(isinstance(fields.get("name"), str), "policy", dict(fields), "must have a name")
    return make_policy(fields["name"], **{key: value for key, value in fields.items() if key != "name"})


PARTS: dict[str, tuple[Any, Callable[[Mapping[str, Any]], Any]]] = {
    "spec": (SafetySpec, SafetySpec.from_dict),
    "policy": (Policy, named_policy),
    "dose": ((Dose, DoseCurve), Dose.from_dict),
    "dial": (Dial, lambda fields: _made("dial", Dial, fields)),
    "features": (Features, lambda fields: _made("features", Features, fields)),
}
"""The parts of the rules with their own written form: the class of each, and its reader."""


def write_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of the rules, by name, as plain values."""
    return {name: _plain_part(part) for name, part in parts.items()}


def read_parts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `write_parts`. Objects pass unchanged; parts that `fields` does not state are left out.

    >>> read_parts({"dial": {"high": 20, "unit": "mg"}, "dose": {"curve": "identity"}})["dial"].text(5)
    '5 mg'
    """
    return {name: _read_part(name, fields[name]) for name in PARTS if fields.get(name) is not None}


def shortest_dose(written: dict[str, Any]) -> dict[str, Any]:
    """A written dose in its shortest form: one curve where reward and cost have the same.

    >>> shortest_dose({"reward": {"curve": "identity"}, "cost": {"curve": "identity"}})
    {'curve': 'identity'}
    """
    return written["cost"] if written["reward"] == written["cost"] else written


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's options as plain values; a function or a model by its name."""
    return {name: _plain_option(value) for name, value in options.items()}


def _plain_part(part: Any) -> dict[str, Any] | None:
    if part is None:
        return None
    return {"name": part.name, **plain_options(part.options)} if isinstance(part, Policy) else part.to_dict()


def _plain_option(value: Any) -> Any:
    if isinstance(value, FunctionClass):
        return value.describe()
    if isinstance(value, Growth):
        return value.to_dict()
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return {"custom": str(getattr(value, "__name__", type(value).__name__))}


def _made(name: str, kind: Any, fields: Mapping[str, Any]) -> Any:
    require_fields(name, map(str, fields), kind)
    return kind(**fields)


def _read_part(name: str, given: Any) -> Any:
    kind, read = PARTS[name]
    if isinstance(given, kind):
        return given
    require(isinstance(given, Mapping), name, given, "must be an object of named values")
    try:
        return read(given)
    except TypeError as error:
        raise InvalidInput(f"{name} = {sorted(given)}: {error}") from error
