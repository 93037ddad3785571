"""From a policy's choice to a decision in the dial's units. Pure functions; nothing is changed here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.rounding import round_down
from safedial.online.decision import Decision, Rules, promise_of


def advise(
    rules: Rules,
    choice: Choice,
    prediction: Any,
    context: NDArray[np.float64],
    number: int,
    baseline_cost: float,
    alarmed: bool,
) -> Decision:
    """The decision: the choice's setting, or, where something is in doubt, the fallback."""
    doubt = ""
    if alarmed or choice.bounds.refuted or not choice.safe.certified:
        doubt = _doubt(rules, choice, alarmed)
        safe_setting, setting = None, rules.fallback_action
        if doubt == "no_certified_action" and setting == rules.start_action:
            setting = rules.dial.low
    else:
        safe_setting = setting = setting_of(rules, choice.safe.intensity)
        if choice.intensity != choice.safe.intensity:
            setting = setting_of(rules, choice.intensity)
    intensity = setting if rules.straight else float(rules.dose.cost.effect(rules.dial.action(setting)))
    certified = not doubt and promise_of(rules, choice) == "certified"
    return Decision(
        setting, intensity, safe_setting, number, certified, context, prediction, choice, baseline_cost, doubt, rules
    )


def setting_of(rules: Rules, intensity: float) -> float:
    """The largest setting whose intensity is at most this one; a declared start dose is its own setting."""
    if rules.start_action is not None and intensity == rules.policy.options["start_dose"]:
        return rules.start_action
    if rules.straight:
        return round_down(intensity)
    curve, dial = rules.dose.cost, rules.dial
    action = float(curve.action(round_down(intensity, curve.error_units)))
    return action if dial.is_plain else dial.setting(action)


def _doubt(rules: Rules, choice: Choice, alarmed: bool) -> str:
    if alarmed:
        return "alarm" if rules.policy.promise == "certified" else "drift"
    return "assumption_broken" if choice.bounds.refuted else "no_certified_action"
