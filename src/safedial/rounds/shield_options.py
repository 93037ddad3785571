"""HP-Shield's options under the rules of an agent: its base, its start, and what a question must bring.

Settings, bases and brackets are in the dial's own units. Where the user states a dose curve, brackets speak of its
values g in [0, 1], and only bases and starts are settings.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.bounds.rounding import round_down
from safedial.bounds.tolerated import Cost, tolerated_setting
from safedial.errors import InvalidInput, refusal, require
from safedial.model.brackets import Growth
from safedial.model.dial import Dial, real
from safedial.model.namespace import Array
from safedial.policies.shield_rounds import ONE, stated_costs, try_out
from safedial.rounds.outcome import Asked
from safedial.rounds.rules import plain_options

if TYPE_CHECKING:
    from safedial.rounds.rules import Rules

DIGITS = 12
"""Raw values are taken back from a context in so many digits: centring and scaling cost the last few."""


GIVE_PROPOSAL = "give it with the question: proposal=..., on the command line --proposal"


class Stated(NamedTuple):
    """What HP-Shield takes from a question: the protocol's setting, the start that it, or the user, declares, the
    setting that is asked for (NaN: none), and the context's group ("": none).
    """

    protocol: float
    start: float
    request: float = math.nan
    group: str = ""


def started(rules: Rules, start_action: Any) -> Rules:
    """The rules with the declared start, and the fallback that follows from it."""
    options, dial = rules.policy.options, rules.dial
    sensor = rules.spec.reward_sensor_noise, rules.spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, "must be 0 for hp_shield", "state the bracket's `error`")
    require(dial.low >= 0.0, "dial", dial.low, "must begin at 0 or above: hp_shield scales settings")
    marks, request = options.get("levels"), options.get("request")
    require(marks is None, "levels", marks, "are for simulations", "give the Agent a dial with levels")
    require(request is None, "request", request, "is for simulations", "a question brings one, as its proposal")
    _check_names(rules)
    if options["regressor"] is not None:
        try_out(options["regressor"], rules.dim)
    share = options["start_scale"]
    one = (share is None) != (start_action is None)
    words = "and start_scale: give exactly one of them; it is the start until there are enough rounds"
    way_out = "declare a setting, or a share of the base, that is safe for every context"
    require(one, "start_action", start_action, words, way_out)
    if start_action is None:
        _warn_where_the_start_is_nothing(rules)
        return rules
    setting = real("start_action", start_action)
    inside = setting > 0.0 and dial.low <= setting <= dial.high
    require(inside, "start_action", setting, f"must lie above 0, and from {dial.low:g} to {dial.high:g}")
    settable = dial.levels is None or setting in dial.levels
    require(settable, "start_action", setting, f"must be one of the dial's levels {dial.levels}")
    return rules._replace(start_action=setting, fallback_action=setting)


def _warn_where_the_start_is_nothing(rules: Rules) -> None:
    """Warn if no context within the stated ranges can get a start that is a level: the climb limit then never opens."""
    options, dial, ranges = rules.policy.options, rules.dial, rules.features and rules.features.ranges
    if not dial.levels or not ranges or options["base"] not in ranges or options["climb"] is None:
        return
    largest = options["start_scale"] * ranges[options["base"]][1]
    if _gives_nothing(dial, max(largest, dial.low)):
        warnings.warn(
            f"the largest start, {dial.text(largest)}, lies below the dial's lowest level: nothing is ever given, and "
            "so the climb limit never allows more. State a larger start_scale, a start_action or climb=None",
            UserWarning,
            stacklevel=6,
        )


def check_study(rules: Rules) -> None:
    """A study's options must be plain values, from which its log can be replayed."""
    written = plain_options(rules.policy.options)
    own = [name for name, value in written.items() if isinstance(value, dict) and "custom" in value]
    rule = "is your own function or model, which a log cannot hold"
    require(not own, own[0] if own else "", own, rule, "make its value a feature or a proposal, or use an Agent")


def _check_names(rules: Rules) -> None:
    """The base and the bracket may name features that there are."""
    options, names = rules.policy.options, rules.features.names if rules.features else ()
    base = options["base"]
    known = "the features are " + ", ".join(names) if names else "there are no features; give Agent(features=...)"
    if isinstance(base, str) and base != "proposal":
        require(base in names, "base", base, "must be 'proposal' or the name of a feature", known)
    for name in ("base", "group"):
        if isinstance(place := options[name], int):
            require(place < rules.dim, name, place, f"must be a column of a context of dimension {rules.dim}")
            require(not names, name, place, "must be a name where there are features: columns are scaled", known)
    if isinstance(options["group"], str):
        require(options["group"] in names, "group", options["group"], "must be the name of a feature", known)
    for cost in costs_of(rules).values():
        plain = cost.growth.name != "spread" or rules.dose.cost.name == "identity"
        words = "does not go with a dose curve: its step and its sigma are of settings"
        require(plain, "growth", cost.growth.name, words, "leave the dose curve out")
        missing = [name for name in cost.growth.features if name not in names]
        require(not missing, "growth", missing, "takes its slopes from features that do not exist", known)


_latest: Any = (None, None, {})
"""The last rules' spec and options, with their costs: one study asks again and again."""


def costs_of(rules: Rules) -> dict[str, Cost]:
    """The limits on costs, by name: the spec's, or one, named "cost", from its threshold and the policy's options."""
    global _latest
    spec, options, costs = _latest
    if spec is not rules.spec or options is not rules.policy.options:
        costs = stated_costs(rules.spec, rules.policy.options)
        _latest = rules.spec, rules.policy.options, costs
    return costs


def _gives_nothing(dial: Dial, start: float) -> bool:
    """Whether a start on a dial with levels is floored to 0."""
    levels = played_levels(dial) or ()
    return levels[bisect_right(levels, start) - 1] <= 0.0


def played_levels(dial: Dial) -> tuple[float, ...] | None:
    """The settings that can be played, the dial's low end included; None where all can."""
    return None if dial.levels is None else tuple(sorted({dial.low, *dial.levels}))


def any_exceeded(costs: Mapping[str, Cost], measured: Any) -> bool:
    """Whether a cost, or any of several, lies on the wrong side of its threshold; None or NaN is not known to."""
    seen = by_name(measured)
    return any(seen[name] is not None and bool(cost.exceeded(seen[name])) for name, cost in costs.items())


def brackets(rules: Rules) -> list[Growth]:
    """The bracket of each cost."""
    costs = rules.spec.costs
    return [rules.policy.options["growth"]] if costs is None else [cost.growth for cost in costs.values()]


def by_name(measured: Any) -> Mapping[str, float]:
    """A sample's measured costs by name; one cost has the name "cost"."""
    return measured if isinstance(measured, Mapping) else {ONE: measured}


def read_question(rules: Rules, asked: Asked, proposal: Any) -> Asked:
    """A question, with its protocol's setting and its start; refused where either, or a slope, cannot be."""
    if asked.baseline_cost:
        way_out = "report the whole cost; an additive bracket allows for what arises without any action"
        raise refusal("baseline_cost", asked.baseline_cost, "is not for hp_shield", way_out)
    options, request = rules.policy.options, math.nan
    if options["chooser"] == "request":
        request = _request(rules, proposal)
    elif options["base"] != "proposal" and proposal is not None:
        way_out = "leave it out, or use base='proposal' or chooser='request'"
        raise refusal("proposal", proposal, "is not this policy's base, nor a request", way_out)
    protocol = _protocol(rules, asked.vector, proposal)
    if rules.features is not None:
        for growth in brackets(rules):
            growth_at(rules, growth, asked.vector)
    start, dial = rules.start_action, rules.dial
    if start is None:
        start = max(dial.low, options["start_scale"] * protocol)
        if start > dial.high:
            raise too_high(base_name(options["base"]), protocol, start, dial)
        relative = any(growth.name == "relative" for growth in brackets(rules))
        if relative and dial.levels and _gives_nothing(dial, start):
            way_out = "state a larger start_scale, a start_action, or an additive bracket"
            rule = "lies below the dial's lowest level, and a relative bracket says nothing of a round given nothing"
            raise refusal("start", start, rule, way_out)
    group = "" if options["group"] is None else _group(rules, asked.vector)
    proposed = None if proposal is None else float(proposal)
    return Asked(*asked[:4], Stated(protocol, start, request, group), proposed)


def _group(rules: Rules, context: Array) -> str:
    """The group of a context: a feature's value, or what a function of the context says."""
    group = rules.policy.options["group"]
    if isinstance(group, str):
        return f"{raw_value(rules, context, group):.{DIGITS}g}"
    if isinstance(group, int):
        return f"{context[group]:.{DIGITS}g}"
    value = _called("group", group, raw_features(rules, context) if rules.features else context)
    fine = isinstance(value, (str, int, float, np.generic)) and str(value)
    require(fine, "group(context)", value, "must be a text or a number", "it names the context's group")
    return str(value)


def check_functions(rules: Rules, histories: Mapping[str, Any]) -> None:
    """Refuse the user's functions where they answer otherwise than they did in a round of a loaded agent's."""
    options, way_out = rules.policy.options, "give the function that was saved; it must depend on the context alone"
    for group, history in histories.items():
        for number, context, then in zip(history.numbers, history.contexts, history.columns["protocol"], strict=True):
            if callable(options["group"]):
                now = _group(rules, context)
                require(now == group, "group(context)", now, f"was {group!r} in round {number}", way_out)
            if callable(options["base"]):
                base = _protocol(rules, context, None)
                same = math.isclose(base, then, rel_tol=1e-9)
                require(same, "base(context)", base, f"was {then:g} in round {number}", way_out)


def _request(rules: Rules, proposal: Any) -> float:
    """The setting that is asked for: any number from the dial's low end on, since no more than the cap is given."""
    way_out = GIVE_PROPOSAL
    require(proposal is not None, "proposal", proposal, "is missing, and the chooser is 'request'", way_out)
    setting = real("proposal", proposal)
    rule = f"must be at least {rules.dial.low:g}, the dial's low end"
    require(setting >= rules.dial.low, "proposal", setting, rule)
    return setting


def _protocol(rules: Rules, context: Array, proposal: Any) -> float:
    base = rules.policy.options["base"]
    if base == "proposal":
        value = proposal
        require(value is not None, base, value, "is missing, and it is this policy's base", GIVE_PROPOSAL)
    elif isinstance(base, str):
        value = raw_value(rules, context, base)
    elif isinstance(base, int):
        value = float(context[base])
    else:
        value = _called("base", base, raw_features(rules, context) if rules.features else context)
    if type(value) is float and 0.0 < value < math.inf:
        return value
    setting = real(base_name(base), value)
    if not setting > 0.0:
        raise refusal(base_name(base), setting, "must be > 0, since it is the setting that is scaled")
    return setting


def _called(name: str, function: Any, given: Any) -> Any:
    try:
        return function(given)
    except Exception as error:
        words = f"{name}: your function failed on this context ({type(error).__name__}: {error})"
        raise InvalidInput(words) from error


def raw_value(rules: Rules, context: Array, name: str) -> float:
    """A feature's value as the user gave it, but for rounding."""
    features: Any = rules.features
    place = features.names.index(name)
    center, scale, value = features.center[place], features.scale[place], float(context[place])
    if center == 0.0 and scale == 1.0:
        return value
    return float(f"{value * scale + center:.{DIGITS}g}")


def raw_features(rules: Rules, context: Array) -> dict[str, float]:
    features: Any = rules.features
    return {name: raw_value(rules, context, name) for name in features.names}


def growth_at(rules: Rules, growth: Growth, context: Array) -> Growth:
    """The bracket of a context: slopes that are features have their values."""
    if not growth.features:
        return growth
    values: Mapping[str, float] = {name: raw_value(rules, context, name) for name in growth.features}
    return growth.at(values)


def costs_at(rules: Rules, costs: Mapping[str, Cost], context: Array) -> dict[str, Cost]:
    """The limits at a context, with numbers for slopes that are features."""
    return {
        name: replace(cost, growth=growth_at(rules, cost.growth, context)) if cost.growth.features else cost
        for name, cost in costs.items()
    }


def tolerated(rules: Rules, costs: Mapping[str, Cost], measured: Any, applied: float) -> float:
    """z* in the dial's units: the largest setting at which a round would have kept every threshold, as far as the
    brackets say; `costs` have numbers for slopes.
    """
    curve, dial, seen = rules.dose.cost, rules.dial, by_name(measured)
    if curve.name == "identity":
        return tolerated_setting(costs, seen, applied)
    effect = float(curve.effect(dial.action(applied)))
    found = float(tolerated_setting(costs, seen, effect))
    if found >= 1.0 or found < 0.0:
        return math.copysign(math.inf, found)
    setting = dial.setting(float(curve.action(round_down(found, curve.error_units))))
    return max(setting, applied) if found >= effect else setting


def base_name(base: Any) -> str:
    """What an error calls the setting that is scaled."""
    if base == "proposal":
        return base
    return f"context[{base!r}]" if isinstance(base, (str, int)) else "base(context)"


def too_high(name: str, protocol: float, start: float, dial: Dial) -> InvalidInput:
    """The refusal of a base whose start the dial does not reach; most often the base is mistyped."""
    rule = "gives a start above the dial's end"
    way_out = "if it is right, state a dial that reaches further, in the base's unit, or a smaller start_scale"
    words = f"{name} = {protocol:g}: may be mistyped: it {rule} ({start:g}, above {dial.high:g}); {way_out}"
    return InvalidInput(words, public=f"{name}: may be mistyped: it {rule}; {way_out}")
