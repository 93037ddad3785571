"""The options of HP-Conformal under the rules of an agent or a study: its start dose, its group and its guards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from safedial.core.dose import Dose
from safedial.core.estimate import Prediction
from safedial.core.rounding import round_down
from safedial.core.safe_set import largest_safe_intensity
from safedial.core.spec import SafetySpec
from safedial.decision.units import Dial, Features, real
from safedial.errors import require
from safedial.policies import Policy, make_policy
from safedial.policies.fixed import fixed
from safedial.policies.hp_conformal import LEAN_PROBE, Unstated

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules

REACH = 2.0
"""How far beyond the doses tried an agent or a new study goes, as a factor."""

ABOVE = 1e-9
"""By how much the reach exceeds the next level, relatively: more than rounding can take away."""

OFF = {"reach": None, "history": "calibrate", "least_dose": None}
"""The guards switched off."""


def started(rules: Rules, start_action: Any) -> Rules:
    """The rules with the policy's start dose and group resolved, the start dose in the dial's units (None: certified),
    and the fallback that follows from it.

    They also state the guards: `reach`, `history` and, for a dial with levels, `least_dose`; and a smaller probe than a
    simulation's.
    """
    policy, spec, dose, dial = rules.policy, rules.spec, rules.dose, rules.dial
    sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, f"must be 0 for {policy.name}")
    options = {**policy.options, "group": _column(policy.options["group"], rules.features)}
    setting = None if start_action is None else real("start_action", start_action)
    if setting is not None:
        options["start_dose"] = declared(options["start_dose"], dose, dial, setting)
    options = {"reach": _reach(dose, dial), "history": "train", "least_dose": _least(dose, dial), **options}
    options["probe"] = LEAN_PROBE if isinstance(options["probe"], Unstated) else options["probe"]
    _check_reach(options["reach"], dose, dial)
    if options["start_dose"] is None:
        _check_certified_start(spec, options)
        fallback = certified_fallback(spec, dose, dial)
    else:
        fallback = setting = _declared_setting(options, dose, dial, setting)
    made = make_policy(policy.name, **options)
    return rules._replace(policy=made, start_action=setting, fallback_action=fallback)


def _check_certified_start(spec: SafetySpec, options: dict[str, Any]) -> None:
    """An undeclared start dose must follow from the constants, on a dial without levels."""
    require(
        spec.cost_noise is not None and spec.coefficient_bound is not None,
        "start_action",
        None,
        "is missing: there must be a dose until there are enough rounds",
        "declare one that is safe for every context, or give cost_noise and coefficient_bound to certify one",
    )
    require(
        options.get("least_dose") is None,
        "start_action",
        None,
        "is missing: a dial with levels needs a start dose that you declare safe; otherwise a round advised less than "
        "the lowest level would get no dose, and which rounds get none must not depend on outcomes",
        "declare one of the levels",
    )


def _declared_setting(options: dict[str, Any], dose: Dose, dial: Dial, setting: float | None) -> float:
    """The declared start dose in the dial's units; it must have an effect."""
    if setting is None:
        setting = dial.setting(float(dose.cost.action(options["start_dose"])))
    gives = float(dose.cost.effect(dial.action(setting))) > 0.0
    require(gives, "start_action", dial.text(setting), "has no effect, so nothing would ever be learned")
    if options.get("least_dose") is None:
        _warn_where_probes_are_nothing(options["probe"], dose, dial)
    return setting


def check_levels(rules: Rules) -> None:
    """On a dial with levels a study has a proof only if it gives at least the lowest level."""
    stated, lowest = rules.policy.options.get("least_dose"), rules.dial.lowest_level
    if lowest is not None:
        level = float(rules.dose.cost.effect(rules.dial.action(lowest)))
        rule = f"must be the intensity of the dial's lowest level, {level}"
        require(stated == level, "least_dose", stated, rule, "leave it out")


def with_saved(policy: Policy, saved: Mapping[str, Any]) -> Policy:
    """The policy with the saved guards and the saved probe."""
    return make_policy(policy.name, **{**policy.options, **{name: saved[name] for name in ("probe", *OFF)}})


def same_option(name: str, given: Mapping[str, Any], saved: Any) -> bool:
    """Whether an option is the saved one. Start dose, feature names and guards were resolved before saving."""
    stated = given.get(name)
    resolved = (name == "start_dose" and stated is None) or (name == "group" and isinstance(stated, str))
    resolved = resolved or (name == "probe" and isinstance(stated, Unstated))
    return resolved or stated == saved or (name in OFF and name not in given)


def guards_of(rules: Rules) -> dict[str, Any]:
    """The guards that the rules state, None for the others."""
    return {name: rules.policy.options.get(name) for name in OFF}


def bound_intensity(decision: Decision) -> float:
    """The largest intensity that the conformal bound allows; NaN if there is no bound."""
    upper = decision.choice.bounds.cost_upper
    if not math.isfinite(upper):
        return math.nan
    room = decision.rules.spec.threshold - decision.baseline_cost
    return float(largest_safe_intensity(upper, 0.0, threshold=room).intensity)


def guarded(decision: Decision) -> str:
    """The guard of `hp_conformal` that moved the largest intensity: below the bound "reach", above "lowest_level"."""
    options, largest = decision.rules.policy.options, decision.choice.safe.intensity
    if options.get("reach") is not None and largest < bound_intensity(decision) * (1.0 - NEAR):
        return "reach"
    above = options.get("least_dose") is not None and largest > bound_intensity(decision) * (1.0 + NEAR)
    return "lowest_level" if above else ""


NEAR = 1e-9
"""Intensities this close, relatively, count as equal: advice is rounded to the safe side."""


def _steps(dose: Dose, dial: Dial) -> float:
    """The largest step between the dial's levels, as a ratio of their intensities; 1 for a continuous dial."""
    heights = [float(dose.cost.effect(dial.action(level))) for level in dial.levels or ()]
    given = [height for height in heights if height > 0.0]
    return max((above / below for below, above in pairwise(given)), default=1.0)


def _reach(dose: Dose, dial: Dial) -> float:
    """2, or more if the dial's next level is further away."""
    steps = _steps(dose, dial)
    return REACH if steps < REACH else steps * (1.0 + ABOVE)


def _check_reach(reach: Any, dose: Dose, dial: Dial) -> None:
    """A reach below the next level would keep the dose at one level for ever."""
    steps = _steps(dose, dial)
    far = reach is None or reach > steps
    rule = f"must be above {steps:.6g}, the largest step between the dial's levels, or the dose never passes it"
    require(far, "reach", reach, rule, "state a larger reach, or more levels between")


def _least(dose: Dose, dial: Dial) -> float | None:
    """The intensity of the dial's lowest level; None for a continuous dial."""
    lowest = dial.lowest_level
    return None if lowest is None else float(dose.cost.effect(dial.action(lowest)))


def _warn_where_probes_are_nothing(probe: Any, dose: Dose, dial: Dial) -> None:
    """Warn that probes below the lowest level give nothing, where no least dose is set."""
    share = probe if isinstance(probe, (int, float)) else 0.0
    if dial.levels and dial.setting(float(dose.cost.action(share))) == dial.low:
        warnings.warn(
            "the probe for rounds without expected benefit lies below the dial's lowest level: such rounds get no "
            "dose, teach nothing, and count as unknown; a larger probe would help",
            UserWarning,
            stacklevel=8,
        )


def certified_fallback(spec: SafetySpec, dose: Dose, dial: Dial) -> float | None:
    """The setting that the constants certify for every context; None if no bound on contexts is stated."""
    if spec.context_bound is None:
        return None
    longest = Prediction(0.0, 0.0, 0.0, spec.context_bound, 0.0, 0.0, 1)
    safe = fixed().decide(longest, spec, round=1.0, coin=0.5).safe.intensity
    return dial.setting(float(dose.cost.action(round_down(safe, dose.cost.error_units))))


def declared(given: float | None, dose: Dose, dial: Dial, setting: float) -> float:
    """The intensity of a declared start setting, checked against the policy's own start dose, if it has one."""
    inside = dial.low < setting <= dial.high
    require(inside, "start_action", setting, f"must lie above {dial.low:g} and at most at {dial.high:g}")
    settable = dial.levels is None or setting in dial.levels
    require(settable, "start_action", setting, f"must be one of the dial's levels {dial.levels}")
    intensity = float(dose.cost.effect(dial.action(setting)))
    within = given is None or intensity <= given
    require(within, "start_action", setting, f"is above the policy's start_dose = {given}", "give one of them")
    return intensity if given is None else given


def _column(group: Any, features: Features | None) -> Any:
    """The column number of a feature's name; anything else unchanged."""
    if not isinstance(group, str):
        return group
    names = tuple(features.names) if features else ()
    require(group in names, "group", group, "must be the name of one of the features", ", ".join(names))
    return names.index(group)
