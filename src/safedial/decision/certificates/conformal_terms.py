"""The certificate of an HP-Conformal decision: its promise, its group, its calibration rounds and its assumptions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.core.conformal import places
from safedial.core.promise import PROMISES
from safedial.decision.certificates.shared_terms import (
    exact_curves,
    largest_intensity,
    overrides,
    part_given,
    start_assumptions,
)
from safedial.decision.learners.conformal_options import bound_intensity, guarded, guards_of
from safedial.decision.units import rounded_down

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules


def assumptions(decision: Decision) -> list[str]:
    """The assumptions behind this decision's promise, one sentence each."""
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
    """The rounds that the conformal promise is about."""
    if _signed(rules):
        return "for the group"
    whose = "all rounds" if rules.policy.options["group"] is None else "all rounds of your group"
    return f"over {whose}, not among those expected to benefit"


def _signed(rules: Rules) -> bool:
    return rules.policy.options["groups"] == "sign"


def statement(decision: Decision) -> str:
    """The promise in one sentence."""
    spec, promise = decision.rules.spec, PROMISES[decision.promise]
    if not promise.proved:
        whose = "you declared the start dose safe"
        if guarded(decision):
            whose = "the dial's lowest level is at most the start dose, which you declared safe"
        return f"none is proved yet: P(cost > {spec.threshold:g}) rests on your judgement alone ({whose})"
    words = f"P(cost > {spec.threshold:g}) <= {spec.violation_risk:g} in this round"
    if promise.from_constants:
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
        "assumptions": assumptions(decision) if PROMISES[decision.promise].claimed else [],
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
