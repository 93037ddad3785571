"""The options of HP-Conformal under the rules of an agent or a study, and the certificate of its decisions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from safedial.bounds.estimate import Prediction
from safedial.bounds.ranks import places
from safedial.bounds.rounding import round_down
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.errors import require
from safedial.model.dial import Dial, Features, real, rounded_down
from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, make_policy
from safedial.policies.baselines import fixed
from safedial.policies.conformal import LEAN_PROBE, Unstated
from safedial.rounds.shared_terms import exact_curves, largest_intensity, overrides, part_given, start_assumptions

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

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


# --- The certificate of an HP-Conformal decision


def assumptions(decision: Decision) -> list[str]:
    """The assumptions behind this decision's guarantee, one sentence each."""
    rules, options = decision.rules, decision.rules.policy.options
    shared = [
        exact_curves(rules),
        "sensors measure without error; any stated baseline cost is exact",
        overrides(", is above zero,"),
    ]
    if (own := start_assumptions(decision, shared)) is not None:
        return own
    marginal = f"the probability is over the calibration rounds too, and holds {_whole(rules)}, not for each context"
    late = "whether an outcome is late or missing depends neither on contexts nor on outcomes"
    before = {
        "train": ["rounds from before the first decision only train the predictors; nothing is assumed about them"],
        "calibrate": ["rounds from before the first decision, if any, are exchangeable with later rounds"],
    }
    return [
        "rounds are exchangeable: contexts and noise behave as if drawn independently from one source, without drift, "
        "and no round influences another (watched: see evidence)",
        *before.get(guards_of(rules)["history"], []),
        *shared,
        marginal,
        late,
        f"the groups, the window ({options['window']} rounds) and the ridge were fixed before the first round",
    ]


def _whole(rules: Rules) -> str:
    """The rounds that the conformal guarantee is about."""
    if _signed(rules):
        return "for the group"
    whose = "all rounds" if rules.policy.options["group"] is None else "all rounds of your group"
    return f"over {whose}, not among those expected to benefit"


def _signed(rules: Rules) -> bool:
    return rules.policy.options["groups"] == "sign"


def statement(decision: Decision) -> str:
    """The guarantee in one sentence."""
    spec, guarantee = decision.rules.spec, GUARANTEES[decision.guarantee]
    if not guarantee.proved:
        whose = "you declared the start dose safe"
        if guarded(decision):
            whose = "the dial's lowest level is at most the start dose, which you declared safe"
        return f"none is proved yet: P(cost > {spec.threshold:g}) rests on your judgement alone ({whose})"
    words = f"P(cost > {spec.threshold:g}) <= {spec.violation_risk:g} in this round"
    if guarantee.from_constants:
        return f"{words}, from the constants (start-up)"
    return (
        f"{words}, for exchangeable rounds, {'within its group' if _signed(decision.rules) else _whole(decision.rules)}"
    )


COMPARED = {
    "train": "; rounds from before the first decision were not compared",
    "calibrate": "; rounds from before the first decision were compared too: if these are the ones that differ, "
    "resume without the earlier rounds",
}


def compared(decision: Decision) -> str:
    """Whether a drift alarm also compared rounds from before the first decision."""
    return COMPARED.get(guards_of(decision.rules)["history"], "") if decision.fallback_reason == "drift" else ""


def facts(decision: Decision) -> dict[str, Any]:
    """Plain values: the model, the group, its rank, the bound and the assumptions."""
    rules, seen = decision.rules, decision.prediction
    kept, top = rank(decision)
    upper = decision.choice.bounds.cost_upper
    size = int(seen.sizes[min(seen.code, len(seen.sizes) - 1)])
    return {
        "assumptions": assumptions(decision) if GUARANTEES[decision.guarantee].claimed else [],
        "risk": {
            "violation_risk": rules.spec.violation_risk,
            "this_round": rules.spec.violation_risk,
        },
        "model": {
            "reward": seen.reward,
            "cost": seen.cost,
            "context_norm": seen.norm,
            "rounds": seen.rounds,
            "known_outcomes": seen.known,
            "rounds_at_refit": seen.fitted,
        },
        "group": {
            "label": _label(rules, seen.label),
            "benefit_expected": decision.choice.reward_index >= 0.0,
            "calibration_rounds": size,
            "used": kept,
            "rank_from_top": top,
            "rank": kept + 1 - top if top else None,
        },
        "start_dose": rules.policy.options["start_dose"],
        "cost_upper": upper if math.isfinite(upper) else None,
        **({} if seen.starts is None else _guards(decision)),
    }


def _guards(decision: Decision) -> dict[str, Any]:
    """What the guards know: how far the dose may reach, how often the start dose was given, and why it is given now."""
    seen = decision.prediction
    allowed = bound_intensity(decision)
    ties = None if seen.ties is None else dict(zip(("cost", "rounds", "of"), seen.ties, strict=True))
    return {
        "bound_intensity": None if math.isnan(allowed) else allowed,
        "reach": {"factor": guards_of(decision.rules)["reach"], "tenth_applied": seen.tenth, "proof": False},
        "start_rounds": seen.starts,
        "unknown_scores": seen.unknown,
        "tied_costs": ties,
    }


def rank(decision: Decision) -> tuple[int, int]:
    """(how many scores of the group were used, the rank from the top); (n, 0) if there were too few."""
    rules, seen = decision.rules, decision.prediction
    kept, top = places(seen.sizes[min(seen.code, len(seen.sizes) - 1)], rules.spec.violation_risk)
    return int(kept), int(top)


def fewest(risk: float) -> int:
    """The smallest n that gives a bound: 1/δ − 1.

    >>> fewest(0.05)
    19
    """
    return math.ceil(1.0 / risk - 1e-9) - 1


def arithmetic(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """The bound, and the division that gave the largest safe intensity."""
    group, upper = facts["group"], facts["cost_upper"]
    whose = ["benefit expected" if group["benefit_expected"] else "no benefit expected"]
    whose = (whose if _signed(decision.rules) else []) + ([] if group["label"] is None else [str(group["label"])])
    safe = rounded_down(facts["safe_intensity"])
    count = f"{group['calibration_rounds']} calibration rounds" + (
        f" of its group ({', '.join(whose)})" if whose else ""
    )
    if upper is None:
        lines = [*_no_bound(decision, count), f"Until then the largest intensity is {safe}."]
    else:
        predicted = facts["model"]["cost"]
        lines = [
            f"The bound: cost per unit of intensity is at most {upper:.4g}: the prediction {predicted:.4g} "
            f"and a margin {upper - predicted:.4g}, from the {_nth(group['rank'])} smallest of the latest "
            f"{group['used']} scores; there are {count}."
        ]
        lines.append(largest_intensity(decision, upper, bound_intensity(decision)))
    return [*lines, *_guard_lines(decision, safe), *part_given(decision, facts)]


def _no_bound(decision: Decision, count: str) -> list[str]:
    """Why the start dose is used."""
    spec, seen = decision.rules.spec, decision.prediction
    needed = fewest(spec.violation_risk)
    lines = [
        f"The start: the last refit had {count}. A conformal bound at risk {spec.violation_risk:g} needs at least "
        f"{needed}, not too many of them without a known outcome, and a finite prediction."
    ]
    if seen.unknown:
        used, top = rank(decision)
        lines.append(
            f"Of the latest {used} scores, {seen.unknown} have no known outcome (open, void, or no dose given); "
            f"at most {max(top - 1, 0)} may lack one."
        )
    if seen.ties:
        value, tied, known = seen.ties
        lines.append(
            f"{tied} of {known} known calibration rounds of the group have the same measured cost, {value:g}. That "
            "is more than a third, so costs carry no information. Report the measured quantity, not its excess over a "
            "limit."
        )
    return lines


def _guard_lines(decision: Decision, safe: str) -> list[str]:
    seen, options, lines = decision.prediction, decision.rules.policy.options, []
    why = guarded(decision)
    if why == "reach" and seen.tenth is None:
        lines.append("The reach: the start dose, until ten rounds have known outcomes. This is a guard, not a proof.")
    elif why == "reach":
        lines.append(
            f"The reach: {options['reach']:g} times {seen.tenth:.4g}, the 10th largest applied intensity with a known "
            f"outcome, or the start dose if that is more: {safe}. This guards against costs that rise faster than "
            "the dose curve says beyond the doses tried; it is not a proof."
        )
    if why == "lowest_level":
        lines.append(f"This decision gives the lowest level (intensity {safe}): at most the start dose you declared.")
    if seen.starts:
        before = decision.round - 1
        lines.append(f"At the start dose so far: {seen.starts} of the {before} earlier decisions.")
    return lines


def _label(rules: Rules, label: Any) -> Any:
    """A group's label for people: a feature with its raw value, anything else unchanged."""
    column, features = rules.policy.options["group"], rules.features
    if label is None or features is None or not isinstance(column, int) or column >= len(features.names):
        return label
    raw = label * (features.scale or ())[column] + (features.center or ())[column]
    return f"{features.names[column]} = {raw:g}"


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
