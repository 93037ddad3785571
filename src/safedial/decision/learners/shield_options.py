"""HP-Shield's options under the rules of an agent: its base, its start, and what a question must bring.

Settings, bases and brackets are in the dial's own units. Where the user states a dose curve, brackets speak of its
values g in [0, 1], and only bases and starts are settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from safedial.core.brackets import Growth
from safedial.core.rounding import round_down
from safedial.core.tolerated import Cost
from safedial.decision.rounds import Asked, Vector
from safedial.decision.units import real
from safedial.errors import InvalidInput, refusal, require

if TYPE_CHECKING:
    from safedial.decision.rules import Rules

DIGITS = 12
"""Raw values are taken back from a context in so many digits: centring and scaling cost the last few."""


class Stated(NamedTuple):
    """What HP-Shield takes from a question: the protocol's setting, and the start that it, or the user, declares."""

    protocol: float
    start: float


def started(rules: Rules, start_action: Any) -> Rules:
    """The rules with the declared start, and the fallback that follows from it."""
    options, dial = rules.policy.options, rules.dial
    for name, plain in (("family", "scale"), ("chooser", "largest"), ("probe", None)):
        require(options[name] == plain, name, options[name], "is for simulations", f"leave it at {plain!r} in an Agent")
    sensor = rules.spec.reward_sensor_noise, rules.spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, "must be 0 for hp_shield", "state the bracket's `error`")
    require(dial.low >= 0.0, "dial", dial.low, "must begin at 0 or above: hp_shield scales settings")
    _check_names(rules)
    cost_of(rules)
    share = options["start_scale"]
    one = (share is None) != (start_action is None)
    words = "and start_scale: exactly one must say where to start, until there are rounds enough"
    way_out = "declare a setting, or a share of the base, that is safe for every context"
    require(one, "start_action", start_action, words, way_out)
    if start_action is None:
        return rules
    setting = real("start_action", start_action)
    inside = setting > 0.0 and dial.low <= setting <= dial.high
    require(inside, "start_action", setting, f"must lie above 0, and from {dial.low:g} to {dial.high:g}")
    settable = dial.levels is None or setting in dial.levels
    require(settable, "start_action", setting, f"must be one of the dial's levels {dial.levels}")
    return rules._replace(start_action=setting, fallback_action=setting)


def _check_names(rules: Rules) -> None:
    """The base and the bracket may name features that there are."""
    options, names = rules.policy.options, rules.features.names if rules.features else ()
    base, growth = options["base"], options["growth"]
    known = "the features are " + ", ".join(names) if names else "there are no features; give Agent(features=...)"
    if isinstance(base, str) and base != "proposal":
        require(base in names, "base", base, "must be 'proposal' or the name of a feature", known)
    if isinstance(base, int):
        require(base < rules.dim, "base", base, f"must be a column of a context of dimension {rules.dim}")
        require(not names, "base", base, "must be a name where there are features: columns are scaled", known)
    plain = growth.name != "spread" or rules.dose.cost.name == "identity"
    words = "does not go with a dose curve: its step and its sigma are of settings"
    require(plain, "growth", growth.name, words, "leave the dose curve out")
    missing = [name for name in growth.features if name not in names]
    require(not missing, "growth", missing, "takes its slopes from features that there are not", known)


def cost_of(rules: Rules) -> Cost:
    """The limit on the cost: threshold, bracket and side."""
    options, spec = rules.policy.options, rules.spec
    limits: dict[str, Any] = {"direction": options["direction"], "on": spec.threshold_on}
    return Cost(threshold=spec.threshold, growth=options["growth"], **limits)


def read_question(rules: Rules, asked: Asked, proposal: Any) -> Asked:
    """A question, with its protocol's setting and its start; refused where either, or a slope, cannot be."""
    if asked.baseline_cost:
        way_out = "report the whole cost; an additive bracket allows for what arises without any action"
        raise refusal("baseline_cost", asked.baseline_cost, "is not for hp_shield", way_out)
    if rules.policy.options["base"] != "proposal" and proposal is not None:
        raise refusal("proposal", proposal, "is not this policy's base", "leave it out, or use base='proposal'")
    protocol = _protocol(rules, asked.vector, proposal)
    growth_at(rules, asked.vector)
    start, dial = rules.start_action, rules.dial
    if start is None:
        start = max(dial.low, rules.policy.options["start_scale"] * protocol)
        if start > dial.high:
            way_out = "bases are in the dial's units: state dial=Dial(high=...), or a smaller start_scale"
            raise refusal("start", start, f"lies above the dial's end, {dial.high:g}", way_out)
        if (
            dial.levels
            and rules.policy.options["growth"].name == "relative"
            and dial.setting(dial.action(start)) <= 0.0
        ):
            way_out = "state a larger start_scale, a start_action, or an additive bracket"
            rule = "lies below the dial's lowest level, and a relative bracket says nothing of a round given nothing"
            raise refusal("start", start, rule, way_out)
    return asked._replace(stated=Stated(protocol, start))


def _protocol(rules: Rules, context: Vector, proposal: Any) -> float:
    base = rules.policy.options["base"]
    if base == "proposal":
        name, value = "proposal", proposal
        require(value is not None, name, value, "is missing, and it is this policy's base", "decide(..., proposal=...)")
    elif isinstance(base, str):
        name, value = f"context[{base!r}]", raw_value(rules, context, base)
    elif isinstance(base, int):
        name, value = f"context[{base}]", float(context[base])
    else:
        name, value = "base(context)", _called(base, raw_features(rules, context) if rules.features else context)
    setting = real(name, value)
    if not setting > 0.0:
        raise refusal(name, setting, "must be > 0, since it is the setting that is scaled")
    return setting


def _called(base: Any, given: Any) -> Any:
    try:
        return base(given)
    except Exception as error:
        raise InvalidInput(f"base: your function failed on this context ({type(error).__name__}: {error})") from error


def raw_value(rules: Rules, context: Vector, name: str) -> float:
    """A feature's value as the user gave it, but for rounding."""
    features: Any = rules.features
    place = features.names.index(name)
    center, scale, value = features.center[place], features.scale[place], float(context[place])
    if center == 0.0 and scale == 1.0:
        return value
    return float(f"{value * scale + center:.{DIGITS}g}")


def raw_features(rules: Rules, context: Vector) -> dict[str, float]:
    features: Any = rules.features
    return {name: raw_value(rules, context, name) for name in features.names}


def growth_at(rules: Rules, context: Vector) -> Growth:
    """The bracket of a context: slopes that are features have their values."""
    growth: Growth = rules.policy.options["growth"]
    if not growth.features:
        return growth
    values: Mapping[str, float] = {name: raw_value(rules, context, name) for name in growth.features}
    return growth.at(values)


def tolerated(rules: Rules, cost: Cost, measured: float, applied: float) -> float:
    """z* in the dial's units: the largest setting at which a round would have kept the threshold, as far as its bracket
    says; `cost` has numbers for slopes.
    """
    curve, dial = rules.dose.cost, rules.dial
    if curve.name == "identity":
        return cost.tolerated(measured, applied)
    effect = float(curve.effect(dial.action(applied)))
    found = float(cost.tolerated(measured, effect))
    if found >= 1.0 or found < 0.0:
        return math.copysign(math.inf, found)
    setting = dial.setting(float(curve.action(round_down(found, curve.error_units))))
    return max(setting, applied) if found >= effect else setting
