"""The certificate of a decision over function classes: the class, its assumptions, and how its bound gave the dose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.bounds.margin import noise_margin
from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.shared_terms import (
    REPORTED,
    division,
    exact_curves,
    noise_assumptions,
    overrides,
    part_given,
    risks,
    sensor_margin,
)

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules


def assumptions(rules: Rules) -> list[str]:
    """The assumptions behind the guarantee, one sentence each; none if nothing is proved."""
    spec, class_ = rules.spec, rules.policy.options["cost_class"]
    if not GUARANTEES[class_.label].proved:
        return []
    noise = [
        f"the cost's noise is mean-zero and sub-Gaussian with constant {spec.cost_noise:g}, given all earlier rounds, "
        "the context and the action",
        "any stated baseline cost is exact",
    ]
    stated = f"S = {spec.coefficient_bound:g}; " if class_.name in ("linear", "features") else ""
    return [
        *(f"cost: {sentence}" for sentence in class_.assumptions),
        f"{stated}every context has norm at most L = {spec.context_bound:g} (checked)",
        *([] if class_.binary else noise),
        exact_curves(rules),
        overrides(),
        REPORTED,
        *([] if class_.binary else noise_assumptions(spec)),
        f"ridge = {spec.ridge:g}, the classes, the margin and the policy were fixed before the first round",
    ]


def facts(decision: Decision) -> dict[str, Any]:
    """Plain values: the classes, the bound and the margins."""
    rules, bounds, spec = decision.rules, decision.choice.bounds, decision.rules.spec
    options = rules.policy.options
    return {
        "risk": risks(decision),
        "model": {
            "cost_class": options["cost_class"].describe(),
            "reward_class": options["reward_class"].describe(),
            "informative_rounds": decision.prediction.informative_rounds,
            "context_norm": decision.prediction.norm,
        },
        "reward_upper": bounds.reward_upper,
        "cost_upper": bounds.cost_upper,
        "margin": spec.margin,
        "noise_margin": 0.0 if rules.policy.binary_cost else noise_margin(spec, decision.round),
        "sensor_margin": sensor_margin(spec, decision.round),
    }


def arithmetic(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """The bound and the division that gave the largest safe intensity."""
    upper, model = facts["cost_upper"], facts["model"]
    safe, rounds = rounded_down(facts["safe_intensity"]), f"{model['informative_rounds']:.0f} informative rounds"
    name = model["cost_class"]["name"]
    word = "is at most" if GUARANTEES[model["cost_class"]["label"]].proved else "was found to be at most"
    if decision.rules.policy.binary_cost:
        odds = facts["risk"]["this_round"] / (1.0 - facts["risk"]["this_round"])
        return [
            f"The bound: log-odds of an event at full dose are at most {upper:.4g} over the class {name} ({rounds}).",
            f"The largest intensity: {odds:.4g} / exp({upper:.4g}) = {odds / math.exp(upper):.4g}, at most 1: {safe}.",
            *part_given(decision, facts),
        ]
    bound = f"The bound: mean cost per unit of intensity {word} {upper:.4g} over the class {name} ({rounds})."
    return [bound, *division(decision, facts)]
