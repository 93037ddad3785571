"""What HP-Shield takes from a question: the protocol's setting, the start, the request and the context's group; and
which tasks leave one of them open.

Settings, bases and brackets are in the dial's own units, in a simulation intensities. Where the user states a dose
curve, brackets speak of its values g in [0, 1], and only bases and starts are settings.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.errors import InvalidInput, refusal, require
from safedial.model.costs import Cost
from safedial.model.dial import real
from safedial.model.namespace import Array
from safedial.policies.policy import Asked, check_column

if TYPE_CHECKING:
    from safedial.policies.shield import HPShield

DIGITS = 12
"""Raw values are taken back from a context in so many digits: centring and scaling cost the last few."""

MISSING = "is missing, and the chooser is 'request'"
GIVE_PROPOSAL = "give it with the question: proposal=..., on the command line --proposal"


class Stated(NamedTuple):
    """What is taken from a question, in each lane: the protocol's setting, the start that it, or the user, declares,
    the setting that is asked for, and the context's group ("": none).
    """

    protocol: Any
    start: Any
    request: Any = math.nan
    group: Any = ""


class Questions:
    """Reads the questions of a policy's task."""

    def __init__(self, policy: HPShield) -> None:
        self.policy, self.task = policy, policy.task

    def check_task(self) -> None:
        """Refuse a task in which a question could not be answered."""
        for name in ("base", "group", "request"):
            check_column(name, getattr(self.policy, name), self.task.dim)
        if self.task.live:
            self._check_live()
        else:
            self._check_simulated()

    def _check_simulated(self) -> None:
        policy = self.policy
        named = [name for cost in policy.costs.values() for name in cost.growth.features]
        named += [each for each in (policy.base, policy.group) if isinstance(each, str)]
        rule = "are named, and only an Agent has names"
        require(not named, "base, growth, group", named, rule, "give columns and numbers")
        for name, value in (("lag", policy.lag), ("regressor", policy.regressor)):
            require(not value, name, value, "is for an Agent", "leave it out of a simulation")
        asked, rule = policy.chooser != "request" or policy.request is not None, MISSING
        require(asked, "request", policy.request, rule, "give a column or a function")

    def _check_live(self) -> None:
        policy, spec, dial = self.policy, self.task.spec, self.task.dial
        sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
        require(sensor == (0.0, 0.0), "sensor noise", sensor, "must be 0 for hp_shield", "state the bracket's `error`")
        require(dial.low >= 0.0, "dial", dial.low, "must begin at 0 or above: hp_shield scales settings")
        levels, request = policy.levels, policy.request
        require(levels is None, "levels", levels, "are for simulations", "give the Agent a dial with levels")
        require(request is None, "request", request, "is for simulations", "a question brings one, as its proposal")
        self._check_names()
        setting = self.task.start_action
        words = "and start_scale: give exactly one of them; it is the start until there are enough rounds"
        way_out = "declare a setting, or a share of the base, that is safe for every context"
        require((policy.start_scale is None) != (setting is None), "start_action", setting, words, way_out)
        if setting is None:
            self._warn_where_the_start_is_nothing()
            return
        inside = setting > 0.0 and dial.low <= setting <= dial.high
        require(inside, "start_action", setting, f"must lie above 0, and from {dial.low:g} to {dial.high:g}")
        settable = dial.levels is None or setting in dial.levels
        require(settable, "start_action", setting, f"must be one of the dial's levels {dial.levels}")

    def _check_names(self) -> None:
        """The base, the groups and the brackets may name features that there are."""
        policy, names = self.policy, self.task.features.names if self.task.features else ()
        known = "the features are " + ", ".join(names) if names else "there are no features; give Agent(features=...)"
        for name, place, others in (("base", policy.base, ("proposal",)), ("group", policy.group, ())):
            rule = "must be a name where there are features: columns are scaled"
            require(not (isinstance(place, int) and names), name, place, rule, known)
            rule = " or ".join([*map(repr, others), "the name of a feature"])
            named = isinstance(place, str) and place not in others
            require(not named or place in names, name, place, f"must be {rule}", known)
        for cost in policy.costs.values():
            plain = cost.growth.name != "spread" or policy.curve is None
            words = "does not go with a dose curve: its step and its sigma are of settings"
            require(plain, "growth", cost.growth.name, words, "leave the dose curve out")
            missing = [name for name in cost.growth.features if name not in names]
            require(not missing, "growth", missing, "takes its slopes from features that do not exist", known)

    def _warn_where_the_start_is_nothing(self) -> None:
        """Warn if no context within the stated ranges can get a start that is a level: nothing is ever given then."""
        policy, dial, ranges = self.policy, self.task.dial, self.task.features and self.task.features.ranges
        if not dial.levels or not ranges or policy.base not in ranges or policy.climb is None:
            return
        largest = policy.share * ranges[str(policy.base)][1]
        if policy.floored(max(largest, dial.low)) <= 0.0:
            warnings.warn(
                f"the largest start, {dial.text(largest)}, lies below the dial's lowest level: nothing is ever given, "
                "and so the climb limit never allows more. State a larger start_scale, a start_action or climb=None",
                UserWarning,
                stacklevel=8,
            )

    # --- One question, in the dial's units

    def read(self, asked: Asked) -> Stated:
        """What is taken from the question of one lane; refused where one of it cannot be."""
        policy, context, request = self.policy, asked.context, math.nan
        if asked.baseline:
            way_out = "report the whole cost; an additive bracket allows for what arises without any action"
            stated = float(f"{asked.baseline:.{DIGITS}g}")  # it was rounded up
            raise refusal("baseline_cost", stated, "is not for hp_shield", way_out)
        if policy.chooser == "request":
            low = self.task.dial.low  # any number from there on, since no more than the cap is given
            require(asked.proposal is not None, "proposal", asked.proposal, MISSING, GIVE_PROPOSAL)
            request = real("proposal", asked.proposal)
            require(request >= low, "proposal", request, f"must be at least {low:g}, the dial's low end")
        elif policy.base != "proposal" and asked.proposal is not None:
            way_out = "leave it out, or use base='proposal' or chooser='request'"
            raise refusal("proposal", asked.proposal, "is not this policy's base, nor a request", way_out)
        protocol, start = self.protocol(context, asked.proposal), self.task.start_action
        if policy.named:
            self.costs_at(context)
        start = self._start(protocol) if start is None else start
        return Stated(protocol, start, request, "" if policy.group is None else self.label(context))

    def _start(self, protocol: float) -> float:
        policy, dial = self.policy, self.task.dial
        start = max(dial.low, policy.share * protocol)
        if start > dial.high:
            rule, name = "may be mistyped: it gives a start above the dial's end", base_name(policy.base)
            way_out = "if it is right, state a dial that reaches further, in the base's unit, or a smaller start_scale"
            words = f"{name} = {protocol:g}: {rule} ({start:g}, above {dial.high:g}); {way_out}"
            raise InvalidInput(words, public=f"{name}: {rule}; {way_out}")
        if dial.levels and policy.floored(start) <= 0.0:
            relative = any(cost.growth.name == "relative" for cost in policy.costs.values())
            way_out = "state a larger start_scale, a start_action, or an additive bracket"
            rule = "lies below the dial's lowest level, and a relative bracket says nothing of a round given nothing"
            require(not relative, "start", start, rule, way_out)
        return start

    def protocol(self, context: Array, proposal: Any) -> float:
        """The protocol's setting."""
        base: Any = self.policy.base
        value = proposal if base == "proposal" else self._value("base", base, context)
        if type(value) is float and 0.0 < value < math.inf:
            return value
        require(value is not None, base_name(base), value, "is missing, and it is this policy's base", GIVE_PROPOSAL)
        setting = real(base_name(base), value)
        require(setting > 0.0, base_name(base), setting, "must be > 0, since it is the setting that is scaled")
        return setting

    def label(self, context: Array) -> str:
        """The group of a context: a feature's value, or what a function of the context says."""
        value = self._value("group", self.policy.group, context)
        if not callable(self.policy.group):
            return f"{value:.{DIGITS}g}"
        fine = isinstance(value, (str, int, float, np.generic)) and str(value)
        require(fine, "group(context)", value, "must be a text or a number", "it names the context's group")
        return str(value)

    def _value(self, name: str, what: Any, context: Array) -> Any:
        """A feature of a context as the user gave it, a column, or what a function of the user's says of it."""
        if isinstance(what, str):
            return self.raw_value(context, what)
        if isinstance(what, int):
            return context.item(what)
        try:
            names = self.task.features.names if self.task.features else ()
            return what({name: self.raw_value(context, name) for name in names} if names else context)
        except Exception as error:
            words = f"{name}: your function failed on this context ({type(error).__name__}: {error})"
            raise InvalidInput(words) from error

    def raw_value(self, context: Array, name: str) -> float:
        """A feature's value as the user gave it, but for rounding."""
        features: Any = self.task.features
        place = features.names.index(name)
        center, scale, value = features.center[place], features.scale[place], float(context[place])
        if center == 0.0 and scale == 1.0:
            return value
        return float(f"{value * scale + center:.{DIGITS}g}")

    def costs_at(self, context: Array) -> dict[str, Cost]:
        """The limits at a context (d,), or at contexts (lanes, d), with numbers for slopes that are features."""
        found = {}
        for name, cost in self.policy.costs.items():
            values: Mapping[str, Any] = {each: self._values(context, each) for each in cost.growth.features}
            found[name] = replace(cost, growth=cost.growth.at(values)) if values else cost
        return found

    def _values(self, context: Array, name: str) -> Any:
        if context.ndim == 1:
            return self.raw_value(context, name)
        return np.array([self.raw_value(row, name) for row in context])

    # --- The questions of many lanes

    def read_lanes(self, asked: Asked) -> tuple[Array, Stated]:
        """The contexts of a question, (lanes, d), and what is taken from it."""
        context = asked.context.reshape(-1, asked.context.shape[-1])
        if not self.task.live:
            return context, self._simulated(context)
        given = [None] * len(context) if asked.proposal is None else np.ravel(asked.proposal).tolist()
        rows = [self.read(Asked(row, 0.0, 0, proposal=each)) for row, each in zip(context, given, strict=True)]
        return context, Stated(*map(np.array, zip(*rows, strict=True)))

    def _simulated(self, context: Array) -> Stated:
        policy = self.policy
        protocol = _of_contexts(policy.base, context)
        require(np.all(protocol > 0.0), "base", float(np.min(protocol)), "must be a number > 0 in every context")
        request: Any = math.nan
        if policy.chooser == "request":
            request, rule = _of_contexts(policy.request, context), "must be a number >= 0 in every context"
            require(np.all(request >= 0.0), "request", float(np.min(request)), rule)
        start, marks = np.minimum(policy.share * protocol, 1.0), policy.marks
        if marks is not None:
            rule = "must begin at or below the start in every context"
            require(np.all(start >= marks[0]), "levels", marks[0], rule, "add a lower level, or raise start_scale")
        if policy.group is None:
            return Stated(protocol, start, request)
        group = np.asarray(_of_contexts(policy.group, context))
        rule = "must give one value for each context, (n,) for contexts (n, d)"
        require(group.shape == protocol.shape, "group", group.shape, rule)
        finite = group.dtype.kind != "f" or bool(np.all(np.isfinite(group)))
        require(finite, "group", group, "must give finite values: a NaN equals no other, so it belongs to no group")
        values, place = np.unique(group, return_inverse=True)
        return Stated(protocol, start, request, np.array([f"{each:.{DIGITS}g}" for each in values.tolist()])[place])


def _of_contexts(value: Any, context: Array) -> Any:
    """A column of contexts (lanes, d), or what a function says of them."""
    return context[..., value] if isinstance(value, int) else value(context)


def base_name(base: Any) -> str:
    """What an error calls the setting that is scaled."""
    if base == "proposal":
        return base
    return f"context[{base!r}]" if isinstance(base, (str, int)) else "base(context)"
