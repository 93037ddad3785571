"""Sentences that certificates share, from a decision or its rules; `policies.words` has them from plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.policies import words
from safedial.policies.words import REPORTED, noise_assumptions, overrides, sensor_margin

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

__all__ = ["REPORTED", "noise_assumptions", "overrides", "sensor_margin"]


def exact_curves(rules: Rules) -> str:
    return words.exact_curves(rules.dose)


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


def risks(decision: Decision) -> dict[str, Any]:
    """The stated risks, and that of this round, of a guarantee from the constants."""
    return words.risks(decision.rules.spec, decision.round)


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
    return words.room(decision.rules.spec, decision.baseline_cost)


def largest_intensity(decision: Decision, upper: float, allowed: float) -> str:
    """The division of the threshold by a bound on the whole cost per unit of intensity."""
    return words.largest_intensity(decision.rules.spec, decision.baseline_cost, upper, allowed)


def division(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """How the bound and the margins gave the largest safe intensity, and what share of it is given."""
    margins = {"margin": facts["noise_margin"], "sensor": facts["sensor_margin"]}
    return words.division(decision.rules.spec, decision.plain, upper=facts["cost_upper"], **margins)


def part_given(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """What share of the largest safe intensity a probe or an exploring round gets."""
    return words.part_given(decision.plain)
