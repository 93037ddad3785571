"""The rules: everything that is fixed for the life of an agent or a study, and their one written form.

`Rules.to_dict` gives plain values, and `Rules.from_dict` reads and checks them. A study's log, a save file and a
certificate hold this form; a spec file and a cell of a sweep hold the parts that they state.

A certified `hp_probe` that a new agent or study names without these options has

| left open | by rule | why |
|---|---|---|
| radius and ridge, d ≤ 50 | `self-normalised` and its ridge | the largest doses under the same guarantee |
| the same, d > 50, or a margin that learns | `mixture`, λ = d·κ²/S² | decisions stay fast; a small ellipsoid |
| radius, where a ridge is stated | `mixture` | the ridge, or the constants with it, were chosen for that |

docs/choosing.md has what each is worth. Simulations keep the defaults of the policies themselves.

A save file cannot hold the user's own functions (a dose curve, a noise scale). It holds their names and their values on
`GRID`; on loading the user gives them again, and the values reveal a different function of the same name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.confidence import largest_noise
from safedial.errors import InvalidInput, require, require_fields
from safedial.model.brackets import Growth
from safedial.model.costs import Cost, limits, split_spec
from safedial.model.dial import Dial, Features
from safedial.model.dose import BUILT_IN, GRID, Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.noise_scale import NoiseScale
from safedial.model.spec import SafetySpec
from safedial.policies import FACTORIES, Policy, as_policy, make_policy
from safedial.policies.classes import FunctionClass
from safedial.policies.policy import BY_RULE


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
    parts: Any = None
    """The rules of each cost, by name, where a certified guarantee is split among several."""


class Rules(RuleFields):
    """Everything that is fixed for the life of an agent or a study, and what follows from that alone."""

    @cached_property
    def shown(self) -> dict[str, Any]:
        """What all certificates under these rules share, computed once. To be copied, never handed out."""
        from safedial.rounds.certificate import shown_rules

        return shown_rules(self)

    @cached_property
    def policy_reason(self) -> str:
        """Why this policy: what is stated, or that it was named."""
        stated, name = GUARANTEES[self.spec.guarantee], self.policy.name
        if name == stated.default_policy:
            return f"{name}, because {stated.because}{self._by_rule}"
        return f"{name}, because it was named; {stated.default_policy} is the default where {stated.because}"

    @property
    def _by_rule(self) -> str:
        """Which options are those of the rule for new agents and studies, in words."""
        policy, spec = by_rule(None, replace(self.spec, ridge=None), self.dim)
        same = {name: value for name, value in policy.options.items() if value == self.policy.options[name]}
        told = [f"radius {same['radius']}"] if "radius" in same else []
        told += [f"ridge {spec.ridge:.4g}"] if "radius" in same and spec.ridge == self.spec.ridge else []
        return f"; by rule: {', '.join(told)}" if told else ""

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
    def from_dict(cls, fields: Mapping[str, Any], *, world: frozenset[str] = frozenset()) -> Rules:
        """The inverse of `to_dict`, with checks. A part may also be an object; without `dim` the features give it.
        `world` is what is known of the rounds (`policies.supports`).
        """
        from safedial.rounds.validation import make_rules

        parts = read_parts({name: part for name, part in fields.items() if name != "policy"})
        dim = fields.get("dim", parts["features"].dim if "features" in parts else None)
        rest = {name: fields.get(name) for name in ("policy", "start_action", "fallback_action", "baseline_range")}
        return make_rules(dim=dim, world=world, **parts, **rest)


def split_rules(rules: Rules) -> Rules:
    """The rules with those of each cost, where a guarantee is split among several."""
    parts = {name: _part(rules, limits(rules.spec)[name], part) for name, part in split_spec(rules.spec).items()}
    return rules._replace(parts=parts) if parts else rules


def _part(rules: Rules, cost: Cost, spec: SafetySpec) -> Rules:
    """One cost's rules: its spec, and its own dose curve where it states one."""
    own = cost.curve or rules.dose.cost
    is_identity = rules.dial.is_plain and own.name == "identity"
    return rules._replace(spec=spec, dose=rules.dose._replace(cost=own), is_identity=is_identity)


def named_policy(fields: Mapping[str, Any]) -> Policy:
    """The policy that plain values name, with its options.

    >>> named_policy({"name": "hp_probe", "probe": 0.1}).options["probe"]
    0.1
    """
    require(isinstance(fields.get("name"), str), "policy", dict(fields), "must have a name")
    return make_policy(fields["name"], **{key: value for key, value in fields.items() if key != "name"})


PARTS: dict[str, tuple[Any, Callable[[Mapping[str, Any]], Any], Callable[[Any], dict[str, Any]]]] = {
    "spec": (SafetySpec, SafetySpec.from_dict, SafetySpec.to_dict),
    "policy": (Policy, named_policy, lambda policy: {"name": policy.name, **plain_options(policy.options)}),
    "dose": ((Dose, DoseCurve), Dose.from_dict, lambda dose: dose.to_dict()),
    "dial": (Dial, lambda fields: _made("dial", Dial, fields), Dial.to_dict),
    "features": (Features, lambda fields: _made("features", Features, fields), Features.to_dict),
}
"""The parts of the rules with their own written form: the class of each, its reader and its writer."""


def write_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of the rules, by name, as plain values."""
    return {name: None if part is None else PARTS[name][2](part) for name, part in parts.items()}


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
    kind, read, _ = PARTS[name]
    if isinstance(given, kind):
        return given
    require(isinstance(given, Mapping), name, given, "must be an object of named values")
    try:
        return read(given)
    except TypeError as error:
        raise InvalidInput(f"{name} = {sorted(given)}: {error}") from error


# --- The options of a new agent or study that its user leaves open, by rule

MOST_SOLVED = 50
"""The largest dimension for which the radius is `self-normalised` by rule."""


def by_rule(policy: Any, spec: SafetySpec, dim: int) -> tuple[Policy, SafetySpec]:
    """The policy and the spec of a new agent or study; what its user states is kept.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> policy, spec = by_rule(None, spec, 4)
    >>> policy.options["radius"], round(spec.ridge, 6)
    ('self-normalised', 3.6)
    """
    stated = GUARANTEES[spec.guarantee]
    if policy is None:
        policy = {"name": stated.default_policy, **stated.default_options}
    if not isinstance(policy, (str, Mapping)):
        made = as_policy(policy)
        return made, made.fitted(spec, dim)
    given = {"name": policy} if isinstance(policy, str) else policy
    name = given.get("name")
    options = OPEN[name](spec, dim) if name == stated.default_policy and name in OPEN else {}
    made = named_policy({**options, **given})
    if options.get("radius") == "mixture" and "radius" not in given and not spec.states_ridge:
        spec = replace(spec, ridge=float(f"{dim * (largest_noise(spec) / spec.coefficient_bound) ** 2:.3g}"))
    return made, made.fitted(spec, dim)


def open_options(spec: SafetySpec, dim: int) -> dict[str, Any]:
    """The options of a certified `hp_probe` whose user states none."""
    tight = dim <= MOST_SOLVED and not spec.states_ridge and not spec.learns_noise
    return {"radius": "self-normalised" if tight else "mixture"}


OPEN = {"hp_probe": open_options}
"""The policies with options that may be left open to the rule, and what that makes of them."""


# --- The user's own functions (a dose curve, a noise scale), which a save file cannot hold

NEAR = 1e-12
"""How far values may differ, relatively: another machine rounds differently."""


def longest_context(dim: int, bound: float) -> NDArray[np.float64]:
    """A context of norm L with equal parts, to check a noise scale before any context is known."""
    return np.full(dim, bound / math.sqrt(dim))


def own_values(rules: Rules) -> dict[str, list[float]]:
    """The values on `GRID` of each of the user's own functions, by name."""
    found = {target: curve.heights() for target, curve in rules.dose._asdict().items() if curve.is_own}
    scale = rules.spec.noise_scale
    if scale is not None and scale.is_own:
        found["noise_scale"] = _heights(scale, rules.dim, rules.spec.context_bound)
    return found


def with_own_functions(fields: Mapping[str, Any], *, dose: Any, noise_scale: NoiseScale | None) -> dict[str, Any]:
    """Saved rules with the functions that the user gives again, each compared with the saved one."""
    return {**fields, "dose": _dose(fields, dose), "spec": _spec(fields, noise_scale)}


def _dose(fields: Mapping[str, Any], given: Any) -> Any:
    """The saved curves, or the given ones if they are the user's own."""
    saved = fields["dose"]
    own = [target for target in ("reward", "cost") if saved[target]["curve"] not in BUILT_IN]
    if given is None:
        names = [saved[target]["curve"] for target in own]
        rule = "is your own curve, which the file does not hold"
        require(not own, "dose", names, rule, "give it again: Agent.load(path, dose=...)")
        return saved
    dose = as_dose(given)
    for target, curve in dose._asdict().items():
        written = json.loads(json.dumps(curve.to_dict()))
        require(written == saved[target], "dose", written, f"must be the saved one, {saved[target]}")
        if target in own:
            _check_values(fields, target, curve.heights())
    return dose


def _spec(fields: Mapping[str, Any], given: NoiseScale | None) -> dict[str, Any]:
    """The saved spec, with the given noise scale if it is the user's own."""
    spec = fields["spec"]
    saved = spec.get("noise_scale")
    if saved is None or saved["scale"] != "own_scale":
        require(given is None, "noise_scale", given, "was not your own when the agent was saved", "leave it out")
        return spec
    rule, way_out = "is your own, which the file does not hold", "give it again: Agent.load(path, noise_scale=...)"
    require(given is not None, "noise_scale", saved, rule, way_out)
    own = isinstance(given, NoiseScale) and given.to_dict() == saved
    require(own, "noise_scale", given, f"must be the saved one, {saved}")
    _check_values(fields, "noise_scale", _heights(given, fields["dim"], spec["context_bound"]))
    return {**spec, "noise_scale": given}


def _heights(scale: Any, dim: int, bound: float) -> list[float]:
    context = longest_context(dim, bound)
    return [float(scale.of(intensity, context)) for intensity in GRID]


def _check_values(fields: Mapping[str, Any], name: str, now: list[float]) -> None:
    """Refuse a different function of the same name."""
    then = fields["own"][name]
    off = max(abs(here - there) / (1.0 + abs(there)) for here, there in zip(now, then, strict=True))
    require(
        off <= NEAR, name, off, "is the distance of this function from the saved one, which must be the same function"
    )


# --- The policy of a save file


def saved_policy(saved: Mapping[str, Any], given: Policy | None) -> Policy:
    """The policy of a save file, from its written form; the given one if it or an option is the user's own."""
    name, options = saved["name"], {option: value for option, value in saved.items() if option != "name"}
    if given is not None:
        given = as_policy(given)
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


def check_same_policy(saved: Mapping[str, Any], now: Mapping[str, Any], name: str) -> None:
    """Refuse a class that goes by the name of the saved policy, but has another state or another answer."""
    pairs = zip(saved.get("answer", ()), now.get("answer", ()), strict=False)
    near = all(here == there or (None not in (here, there) and math.isclose(here, there)) for here, there in pairs)
    same = not saved or (saved["kinds"] == now["kinds"] and near)
    rule = "has this name, but not the state or not the answers of the one that was saved"
    require(same, "policy", name, rule, "give the class that it was saved with, unchanged")
