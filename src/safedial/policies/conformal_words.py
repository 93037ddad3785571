"""The certificate of an HP-Conformal decision, from its plain numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.bounds.ranks import places
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.policies import words
from safedial.policies.policy import Decided, Terms

if TYPE_CHECKING:
    from safedial.policies.conformal import HPConformal

COMPARED = {
    "train": "; rounds from before the first decision were not compared",
    "calibrate": "; rounds from before the first decision were compared too: if these are the ones that differ, "
    "resume without the earlier rounds",
}
"""Whether a drift alarm also compared rounds from before the first decision, by `history`."""


def terms(policy: HPConformal, decided: Decided) -> Terms:
    numbers, spec = decided.numbers, policy.spec
    kept, top = (int(part) for part in places(numbers["size"], spec.violation_risk))
    allowed = _allowed(policy, decided)
    claimed = GUARANTEES[decided.guarantee].claimed
    ties = [numbers.get(f"tied_{name}") for name in ("value", "rounds", "known")]
    facts = {
        "assumptions": _assumptions(policy, decided.guarantee) if claimed else [],
        "risk": {"violation_risk": spec.violation_risk, "this_round": spec.violation_risk},
        "model": {
            "reward": numbers["reward"],
            "cost": numbers["mean_cost"],
            "context_norm": numbers["norm"],
            "rounds": numbers["rounds"],
            "known_outcomes": numbers["known"],
            "rounds_at_refit": numbers["fitted"],
        },
        "group": {
            "label": _shown_label(policy, numbers.get("label")),
            "benefit_expected": decided.index >= 0.0,
            "calibration_rounds": numbers["size"],
            "used": kept,
            "rank_from_top": top,
            "rank": kept + 1 - top if top else None,
        },
        "start_dose": policy.start_dose,
        "cost_upper": numbers["cost_upper"],
        "bound_intensity": allowed,
        "reach": {"factor": policy.reach, "tenth_applied": numbers["tenth"], "proof": False},
        "start_rounds": numbers["starts"],
        "unknown_scores": numbers.get("unknown"),
        "tied_costs": None if ties[0] is None else dict(zip(("cost", "rounds", "of"), ties, strict=True)),
    }
    note = COMPARED[policy.history] if decided.reason == "drift" else ""
    return Terms(_statement(policy, decided), facts["assumptions"], _arithmetic(policy, decided, facts), facts, note)


def _allowed(policy: HPConformal, decided: Decided) -> float | None:
    """The largest intensity that the conformal bound allows; None if there is no bound."""
    upper = decided.numbers["cost_upper"]
    if upper is None:
        return None
    return float(largest_safe_intensity(upper, 0.0, threshold=policy.spec.threshold - decided.baseline).intensity)


def _assumptions(policy: HPConformal, guarantee: str) -> list[str]:
    """The assumptions behind a guarantee, one sentence each."""
    exact = "sensors measure without error; any stated baseline cost is exact"
    shared = [words.exact_curves(policy.task.dose), exact, words.overrides(", is above zero,")]
    if (own := words.start_assumptions(guarantee, policy.spec, shared)) is not None:
        return own
    before = {
        "train": "rounds from before the first decision only train the predictors; nothing is assumed about them",
        "calibrate": "rounds from before the first decision, if any, are exchangeable with later rounds",
    }
    return [
        "rounds are exchangeable: contexts and noise behave as if drawn independently from one source, without "
        "drift, and no round influences another (watched: see evidence)",
        before[policy.history],
        *shared,
        f"the probability is over the calibration rounds too, and holds {policy.whole}, not for each context",
        "whether an outcome is late or missing depends neither on contexts nor on outcomes",
        f"the groups, the window ({policy.window} rounds) and the ridge were fixed before the first round",
    ]


def _statement(policy: HPConformal, decided: Decided) -> str:
    """The guarantee in one sentence."""
    spec, guarantee = policy.spec, GUARANTEES[decided.guarantee]
    if not guarantee.proved:
        whose = "you declared the start dose safe"
        if decided.limit == "lowest_level":
            whose = "the dial's lowest level is at most the start dose, which you declared safe"
        return f"none is proved yet: P(cost > {spec.threshold:g}) rests on your judgement alone ({whose})"
    said = f"P(cost > {spec.threshold:g}) <= {spec.violation_risk:g} in this round"
    if guarantee.from_constants:
        return f"{said}, from the constants (start-up)"
    return f"{said}, for exchangeable rounds, {'within its group' if policy.signed else policy.whole}"


def _arithmetic(policy: HPConformal, decided: Decided, facts: dict[str, Any]) -> list[str]:
    """The bound, and the division that gave the largest safe intensity."""
    group, upper, safe = facts["group"], facts["cost_upper"], rounded_down(decided.largest)
    whose = ["benefit expected" if group["benefit_expected"] else "no benefit expected"] if policy.signed else []
    whose += [] if group["label"] is None else [str(group["label"])]
    count = f"{group['calibration_rounds']} calibration rounds"
    count += f" of its group ({', '.join(whose)})" if whose else ""
    if upper is None:
        lines = [*_no_bound(policy, facts, count), f"Until then the largest intensity is {safe}."]
    else:
        predicted = facts["model"]["cost"]
        lines = [
            f"The bound: cost per unit of intensity is at most {upper:.4g}: the prediction {predicted:.4g} "
            f"and a margin {upper - predicted:.4g}, from the {_nth(group['rank'])} smallest of the latest "
            f"{group['used']} scores; there are {count}.",
            words.largest_intensity(policy.spec, decided.baseline, upper, facts["bound_intensity"]),
        ]
    return [*lines, *_guard_lines(policy, decided, facts, safe), *words.part_given(decided)]


def _no_bound(policy: HPConformal, facts: dict[str, Any], count: str) -> list[str]:
    """Why the start dose is used."""
    risk, group, unknown, ties = (
        policy.spec.violation_risk,
        facts["group"],
        facts["unknown_scores"],
        facts["tied_costs"],
    )
    lines = [
        f"The start: the last refit had {count}. A conformal bound at risk {risk:g} needs at least {fewest(risk)}, "
        "not too many of them without a known outcome, and a finite prediction."
    ]
    if unknown:
        lines.append(
            f"Of the latest {group['used']} scores, {unknown} have no known outcome (open, void, or no dose given); "
            f"at most {max(group['rank_from_top'] - 1, 0)} may lack one."
        )
    if ties:
        lines.append(
            f"{ties['rounds']} of {ties['of']} known calibration rounds of the group have the same measured cost, "
            f"{ties['cost']:g}. That is more than a third, so costs carry no information. Report the measured "
            "quantity, not its excess over a limit."
        )
    return lines


def _guard_lines(policy: HPConformal, decided: Decided, facts: dict[str, Any], safe: str) -> list[str]:
    """Which guard set the intensity, and how often the start dose was given."""
    allowed, tenth, lines = facts["bound_intensity"], facts["reach"]["tenth_applied"], []
    why = "" if allowed is None else policy.limit(allowed, decided.largest)
    if why == "reach" and tenth is None:
        lines.append("The reach: the start dose, until ten rounds have known outcomes. This is a guard, not a proof.")
    elif why == "reach":
        lines.append(
            f"The reach: {policy.reach:g} times {tenth:.4g}, the 10th largest applied intensity with a known "
            f"outcome, or the start dose if that is more: {safe}. This guards against costs that rise faster than "
            "the dose curve says beyond the doses tried; it is not a proof."
        )
    elif why == "lowest_level":
        lines.append(f"This decision gives the lowest level (intensity {safe}): at most the start dose you declared.")
    if facts["start_rounds"]:
        before = decided.number - 1
        lines.append(f"At the start dose so far: {facts['start_rounds']} of the {before} earlier decisions.")
    return lines


def _shown_label(policy: HPConformal, label: Any) -> Any:
    """A group's label for people: a feature with its raw value, anything else unchanged."""
    column, features = policy.column, policy.task.features
    if label is None or features is None or not isinstance(column, int) or column >= len(features.names):
        return label
    raw = label * (features.scale or ())[column] + (features.center or ())[column]
    return f"{features.names[column]} = {raw:g}"


def fewest(risk: float) -> int:
    """The smallest n that gives a bound: 1/δ − 1.

    >>> fewest(0.05)
    19
    """
    return math.ceil(1.0 / risk - 1e-9) - 1


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
