"""Sentences that certificates share, whatever the learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.bounds.margin import margin_assumptions, round_risk, tail_factor
from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

SCALED = (
    "the noise of a dose of intensity z at context x is h(z, x) times the sub-Gaussian noise; h is exact and never "
    "falls as z grows: {}"
)
REPORTED = "every outcome of a non-zero action is reported, in decision order, whatever it was"


def exact_curves(rules: Rules) -> str:
    return (
        "the dose curves are exact, down to the smallest action used: "
        f"reward {rules.dose.reward.words}, cost {rules.dose.cost.words}"
    )


def overrides(above: str = "") -> str:
    """What is assumed about the applied action; `above` adds a condition."""
    words = f"the applied action is at most the advised one{above} and uses nothing about this round's outcome beyond "
    void = "; a dose of 0 counts as void unless somebody vouches that its reason is unrelated to the outcome"
    return f"{words}the context{void}"


def fixed_assumptions(rules: Rules, own: list[str]) -> list[str]:
    """A learner's own assumptions, and those that every learner shares."""
    return [*own, exact_curves(rules), overrides(), REPORTED]


def start_assumptions(decision: Decision, shared: list[str]) -> list[str] | None:
    """What a start dose rests on: that you declared it, or the constants that it was certified from and what else is
    `shared`; None where the decision is more than the start.
    """
    guarantee, spec = GUARANTEES[decision.guarantee], decision.rules.spec
    if not guarantee.proved:
        return ["the start dose and everything below it is safe for every context, as you declared"]
    if not guarantee.from_constants:
        return None
    return [
        f"the mean cost per unit of intensity is at most S = {spec.coefficient_bound:g} times the context's norm",
        f"the cost's noise is mean-zero and sub-Gaussian with constant {spec.cost_noise:g}, given the context "
        "and the action",
        *shared,
    ]


def noise_assumptions(spec: SafetySpec) -> list[str]:
    """What the spec states about the noise beyond its constants: sensors, the margin, the scale."""
    kind = "of any kind, and" if spec.sensor_dependent else "independent of the outcome's own noise given the past, and"
    sensor = (
        f"sensor error is {kind} sub-Gaussian with constants {spec.reward_sensor_noise:g} (reward) and "
        f"{spec.cost_sensor_noise:g} (cost)"
    )
    return [
        *([sensor] if spec.reward_sensor_noise or spec.cost_sensor_noise else []),
        *margin_assumptions(spec),
        *([SCALED.format(spec.noise_scale.to_dict())] if spec.noise_scale else []),
    ]


def sensor_margin(spec: SafetySpec, round: float) -> float:
    """The allowance for sensor error; 0 unless the threshold is on the measured cost."""
    return tail_factor(spec, round) * spec.cost_sensor_noise if spec.threshold_on == "measured" else 0.0


def risks(decision: Decision) -> dict[str, Any]:
    """The stated risks, and that of this round, of a guarantee from the constants."""
    spec = decision.rules.spec
    this_round = round_risk(spec, decision.round)
    return {
        "violation_risk": spec.violation_risk,
        "estimation_risk": spec.estimation_risk,
        "this_round": this_round,
    }


def facts(decision: Decision) -> dict[str, Any]:
    """The certificate of a learner without terms of its own: its risks and its bounds."""
    bounds = decision.choice.bounds
    upper = {"reward_upper": float(bounds.reward_upper), "cost_upper": float(bounds.cost_upper)}
    return {"risk": risks(decision), **upper}


def arithmetic(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """The bound, and the largest intensity that it allows."""
    safe = rounded_down(facts["safe_intensity"])
    bound = f"The bound: mean cost per unit of intensity is assumed to be at most {facts['cost_upper']:.4g}."
    return [bound, f"The largest intensity: {safe}.", *part_given(decision, facts)]


def room(decision: Decision) -> str:
    """What the threshold leaves for the dose's cost, in words."""
    threshold, baseline = f"{decision.rules.spec.threshold:g}", decision.baseline_cost
    return f"({threshold} less the baseline cost {baseline:g})" if baseline else threshold


def largest_intensity(decision: Decision, upper: float, allowed: float) -> str:
    """The division of the threshold by a bound on the whole cost per unit of intensity."""
    if allowed >= 1.0:
        return f"The largest intensity: 1, since {upper:.4g} is at most {room(decision)}."
    return f"The largest intensity: {room(decision)} / {upper:.4g} = {rounded_down(allowed)}."


def division(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """How the bound and the margins gave the largest safe intensity, and what share of it is given."""
    spec, upper = decision.rules.spec, facts["cost_upper"]
    margin, sensor = facts["noise_margin"], facts["sensor_margin"]
    left, safe = room(decision), rounded_down(facts["safe_intensity"])
    if sensor and spec.sensor_dependent:
        line = f"The largest intensity: ({left} - {sensor:.4g}) / ({upper:.4g} + {margin:.4g}), at most 1: {safe}."
    elif sensor:
        both = f"sqrt(({margin:.4g} z)^2 + {sensor:.4g}^2)"
        line = f"The largest intensity z <= 1 with {upper:.4g} z + {both} <= {left}: {safe}."
    elif spec.noise_scale:
        line = f"The largest intensity z <= 1 with {upper:.4g} z + {margin:.4g} h(z, x) <= {left}: {safe}."
    elif facts["safe_intensity"] >= 1.0:
        line = f"The largest intensity: 1, since {upper:.4g} + noise margin {margin:.4g} is at most {left}."
    else:
        line = f"The largest intensity: {left} / ({upper:.4g} + noise margin {margin:.4g}) = {safe}."
    return [line, *part_given(decision, facts)]


def part_given(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """What share of the largest safe intensity a probe or an exploring round gets."""
    if facts["limit"] not in ("probe", "exploration"):
        return []
    return [f"This decision gives {decision.choice.intensity / decision.choice.safe.intensity:.4g} of it."]
