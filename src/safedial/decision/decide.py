"""From a policy's choice to a decision in the dial's units, by pure functions."""

from __future__ import annotations

from typing import Any

from safedial.core.action import check_intensities
from safedial.core.promise import PROMISES
from safedial.core.rounding import round_down, round_up
from safedial.core.spec import SafetySpec
from safedial.decision.decision import Decision, promise_of
from safedial.decision.rounds import Asked
from safedial.decision.rules import Rules

START_UNSAFE = ("no_certified_action", "start_refuted")


def decide(
    rules: Rules,
    spec: SafetySpec,
    learner: Any,
    prediction: Any,
    asked: Asked,
    *,
    number: int,
    coin: float = 0.5,
    stop_reason: str = "",
) -> Decision:
    """Decision `number`: the setting that the policy chooses, or the fallback if nothing can be promised.

    `spec` is the rules' spec, rounded to the safe side. `stop_reason` is "" or a key of `LIMITS`: the rule that stopped
    the study or agent until a person resumes it.
    """
    if spec.noise_scale is not None:
        prediction = prediction._replace(context=asked.vector)
    baseline = round_up(asked.baseline_cost) if asked.baseline_cost else 0.0
    prediction, choice = learner.choose(rules, spec, prediction, round=float(number), coin=coin, baseline_cost=baseline)
    fallback_reason = stop_reason or ("assumption_broken" if choice.bounds.refuted else "")
    if not fallback_reason and not choice.safe.certified:
        fallback_reason = "no_certified_action"
    if fallback_reason:
        safe_setting, setting = None, rules.fallback_action
        if fallback_reason in START_UNSAFE and setting == rules.start_action:
            # The start dose was declared safe without this baseline cost, or has proved unsafe: it is no fallback here.
            setting = rules.dial.low
    elif learner.reads_questions:
        setting, safe_setting = learner.settings(prediction)
    else:
        if not 0.0 <= choice.intensity <= 1.0:
            check_intensities(rules.policy.name, choice.intensity, choice.intensity)
        safe_setting = setting = setting_of(rules, choice.safe.intensity)
        if choice.intensity != choice.safe.intensity:
            setting = setting_of(rules, choice.intensity)
    certified = not fallback_reason and PROMISES[promise_of(rules, choice)].from_constants
    given = (setting, intensity_of(rules, setting), safe_setting, number, certified, asked.vector, prediction, choice)
    return Decision(
        *given, asked.baseline_cost, fallback_reason, rules, extrapolated=asked.extrapolated, proposal=asked.proposal
    )


def intensity_of(rules: Rules, setting: float) -> float:
    """g_c at a setting: the cost's share of a full dose."""
    return setting if rules.is_identity else float(rules.dose.cost.effect(rules.dial.action(setting)))


def setting_of(rules: Rules, intensity: float) -> float:
    """The largest setting whose intensity is at most this one; a declared start dose keeps its declared setting.

    If the learner gives at least the lowest level, rounding must not turn a positive intensity into nothing.
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
