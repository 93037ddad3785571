"""From a policy's choice to a decision in the dial's units. Pure functions; nothing is changed here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.promise import PROMISES
from safedial.core.rounding import round_down, round_up
from safedial.core.spec import SafetySpec
from safedial.decision.decision import Decision, promise_of
from safedial.decision.learners.protocol import Learner
from safedial.decision.rules import Rules


def advise(
    rules: Rules,
    choice: Choice,
    prediction: Any,
    context: NDArray[np.float64],
    number: int,
    baseline_cost: float,
    stopped: str,
) -> Decision:
    """The decision: the choice's setting, or, where something is in doubt, the fallback.

    `stopped` is "" or a key of `LIMITS`: why the fallback is advised until a person resumes.
    """
    doubt = ""
    if stopped or choice.bounds.refuted or not choice.safe.certified:
        doubt = stopped or ("assumption_broken" if choice.bounds.refuted else "no_certified_action")
        safe_setting, setting = None, rules.fallback_action
        if doubt == "no_certified_action" and setting == rules.start_action:
            setting = rules.dial.low
    else:
        safe_setting = setting = setting_of(rules, choice.safe.intensity)
        if choice.intensity != choice.safe.intensity:
            setting = setting_of(rules, choice.intensity)
    intensity = setting if rules.is_identity else float(rules.dose.cost.effect(rules.dial.action(setting)))
    certified = not doubt and PROMISES[promise_of(rules, choice)].from_constants
    return Decision(
        setting, intensity, safe_setting, number, certified, context, prediction, choice, baseline_cost, doubt, rules
    )


def setting_of(rules: Rules, intensity: float) -> float:
    """The largest setting whose intensity is at most this one; a declared start dose is its own setting.

    Where the learner gives at least the lowest level, rounding must not turn a positive intensity into nothing.
    """
    if rules.start_action is not None and intensity == rules.policy.options["start_dose"]:
        return rules.start_action
    if rules.is_identity:
        return round_down(intensity)
    curve, dial = rules.dose.cost, rules.dial
    action = float(curve.action(round_down(intensity, curve.error_units)))
    setting = action if dial.is_plain else dial.setting(action)
    least = rules.learner.least_setting(rules) if setting == dial.low else None
    return setting if least is None else least


def decide(
    rules: Rules,
    spec: SafetySpec,
    learner: Learner,
    prediction: Any,
    context: NDArray[np.float64],
    number: int,
    baseline_cost: float,
    *,
    coin: float = 0.5,
    stopped: str = "",
) -> Decision:
    """Decision number `number`, from a learner's prediction; `spec` is the rules' own, moved to the safe side."""
    baseline = round_up(baseline_cost) if baseline_cost else 0.0
    if spec.noise_scale is not None:
        prediction = prediction._replace(context=context)
    choice = rules.policy.decide(prediction, spec, round=float(number), coin=coin, baseline_cost=baseline)
    prediction, choice = learner.view(prediction, choice)
    return advise(rules, choice, prediction, context, number, baseline_cost, stopped)
