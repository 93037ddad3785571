"""What an agent with HP-Conformal checks at the door: its start, its groups, and what voids its promise."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

from safedial.core.dose import Dose
from safedial.core.estimate import Prediction
from safedial.core.rounding import round_down
from safedial.core.spec import SafetySpec
from safedial.decision.units import Dial, Features, real
from safedial.errors import require
from safedial.policies import Policy, make_policy
from safedial.policies.fixed import fixed

REACH = 2.0
"""How far beyond the doses tried an agent or a new study goes."""

ABOVE = 1e-9
"""By how much the reach passes the next level, relatively: more than rounding takes from it."""

OFF = {"reach": None, "history": "calibrate", "least_dose": None}
"""The guards of rules from before there were any, stated."""


def conformal_start(
    policy: Policy,
    spec: SafetySpec,
    *,
    dose: Dose,
    dial: Dial,
    features: Features | None,
    start_action: Any,
    version: int,
) -> tuple[Policy, float | None]:
    """The policy with its start dose and group resolved, and the start dose in the dial's units (None: certified).

    From version 2 of the rules on its guards are stated too: `reach`, `history` and, for a dial with levels,
    `least_dose`.
    """
    sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, f"must be 0 for {policy.name}")
    options = {**policy.options, "group": _column(policy.options["group"], features)}
    setting = None if start_action is None else real("start_action", start_action)
    if setting is not None:
        options["start_dose"] = _declared(options["start_dose"], dose, dial, setting)
    if version > 1:
        options = {"reach": _reach(dose, dial), "history": "train", "least_dose": _least(dose, dial), **options}
        _check_reach(options["reach"], dose, dial)
    if options["start_dose"] is None:
        known = spec.cost_noise is not None and spec.coefficient_bound is not None
        require(
            known,
            "start_action",
            None,
            "is missing: until there are rounds enough, a dose must come from somewhere",
            "declare one that is safe for every context, or give cost_noise and coefficient_bound to certify one",
        )
        require(
            options.get("least_dose") is None,
            "start_action",
            None,
            "is missing: a dial with levels needs a start that you declare safe, since a round whose advice lies below "
            "the lowest level would be given nothing, and which rounds are must not depend on outcomes",
            "declare one of the levels",
        )
        return make_policy(policy.name, **options), None
    if setting is None:
        setting = dial.setting(float(dose.cost.action(options["start_dose"])))
    gives = float(dose.cost.effect(dial.action(setting))) > 0.0
    require(gives, "start_action", dial.text(setting), "gives nothing, and nothing would ever be learned")
    if options.get("least_dose") is None:
        _warn_where_probes_are_nothing(options["probe"], dose, dial)
    return make_policy(policy.name, **options), setting


def _steps(dose: Dose, dial: Dial) -> float:
    """The largest step between the dial's levels, as a ratio of their intensities; 1 for a continuous dial."""
    heights = [float(dose.cost.effect(dial.action(level))) for level in dial.levels or ()]
    given = [height for height in heights if height > 0.0]
    return max((above / below for below, above in pairwise(given)), default=1.0)


def _reach(dose: Dose, dial: Dial) -> float:
    """Twice, or the next level of the dial where that is more."""
    steps = _steps(dose, dial)
    return REACH if steps < REACH else steps * (1.0 + ABOVE)


def _check_reach(reach: Any, dose: Dose, dial: Dial) -> None:
    """A reach below the next level would hold the dose at one level for ever."""
    steps = _steps(dose, dial)
    far = reach is None or reach > steps
    rule = f"must be above {steps:.6g}, the largest step between the dial's levels, or the dose never passes it"
    require(far, "reach", reach, rule, "state more, or more levels between")


def _least(dose: Dose, dial: Dial) -> float | None:
    """The intensity of the dial's lowest level; None for a continuous dial."""
    lowest = dial.lowest_level
    return None if lowest is None else float(dose.cost.effect(dial.action(lowest)))


def _warn_where_probes_are_nothing(probe: Any, dose: Dose, dial: Dial) -> None:
    """Rules without a least dose give nothing below the lowest level."""
    share = probe if isinstance(probe, (int, float)) else 0.0
    if dial.levels and dial.setting(float(dose.cost.action(share))) == dial.low:
        warnings.warn(
            "where no benefit is expected only a small probe would be given, which lies below the dial's lowest level: "
            "such rounds are given nothing, teach nothing, and count as unknown; a larger probe would help",
            UserWarning,
            stacklevel=6,
        )


def certified_fallback(spec: SafetySpec, dose: Dose, dial: Dial) -> float | None:
    """The setting that the constants certify for every context, where they say how long contexts are."""
    if spec.context_bound is None:
        return None
    longest = Prediction(0.0, 0.0, 0.0, spec.context_bound, 0.0, 0.0, 1)
    safe = fixed().decide(longest, spec, round=1.0, coin=0.5).safe.intensity
    return dial.setting(float(dose.cost.action(round_down(safe, dose.cost.error_units))))


def _declared(given: float | None, dose: Dose, dial: Dial, setting: float) -> float:
    inside = dial.low < setting <= dial.high
    require(inside, "start_action", setting, f"must lie above {dial.low:g} and at most at {dial.high:g}")
    settable = dial.levels is None or setting in dial.levels
    require(settable, "start_action", setting, f"must be one of the dial's levels {dial.levels}")
    intensity = float(dose.cost.effect(dial.action(setting)))
    within = given is None or intensity <= given
    require(within, "start_action", setting, f"is above the policy's start_dose = {given}", "give one of them")
    return intensity if given is None else given


def _column(group: Any, features: Features | None) -> Any:
    """A feature's name as its column's number; anything else as it is."""
    if not isinstance(group, str):
        return group
    names = tuple(features.names) if features else ()
    require(group in names, "group", group, "must be the name of one of the features", ", ".join(names))
    return names.index(group)
