"""Sentences that certificates share, whatever the policy: what a guarantee says and rests on, and the arithmetic of the
largest setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from safedial.bounds.margin import margin_assumptions, noise_margin, round_risk, tail_factor
from safedial.errors import is_number
from safedial.model.dial import rounded_down
from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies.policy import Decided, Policy, Terms

SCALED = (
    "the noise of a dose of intensity z at context x is h(z, x) times the sub-Gaussian noise; h is exact and never "
    "falls as z grows: {}"
)
VOID = "; a dose of 0 counts as void unless somebody vouches that its reason is unrelated to the outcome"
REPORTED = "every outcome of a non-zero action is reported, in decision order, whatever it was"


def event(spec: SafetySpec) -> str:
    """What a guarantee limits the chance of: "cost > 0.5", or "heat > 2 C or load > 5"."""
    if spec.costs is not None:
        return " or ".join(f"{name} > {cost.threshold:g} {cost.unit}".rstrip() for name, cost in spec.costs.items())
    cost = f"{spec.threshold_on} cost" if spec.cost_sensor_noise else "cost"
    return f"{cost} > {spec.threshold:g}"


def statement(guarantee: str, spec: SafetySpec) -> str:
    """A policy's guarantee under a spec in one sentence; one from constants is what the spec states."""
    given = GUARANTEES[guarantee]
    given = GUARANTEES[spec.guarantee] if given.from_constants else given
    risk = spec.violation_risk if given.marginal else spec.guaranteed_risk
    return given.statement.format(event=event(spec), threshold=spec.threshold, risk=risk)


def own_terms(policy: Policy, decided: Decided) -> Terms:
    """The words of a policy of one's own, from the guarantee that its class claims, whose proof is the user's."""
    spec, given = policy.spec, decided.guarantee
    shown: dict[str, Any] = {"arithmetic": [own_largest(policy, decided)], "facts": {"numbers": dict(decided.numbers)}}
    if GUARANTEES[policy.guarantee].empty:
        return Terms(f"none: policy {policy.name} is your own, and nothing of it is proved here", [], **shown)
    if given == "none":  # nothing is claimed on the realized cost
        return Terms(statement(policy.guarantee, spec), [], **shown)
    assumptions = [] if GUARANTEES[given].proved else start_assumptions(given, spec, [])
    shown["facts"] |= {"risk": risks(spec, decided.number)} if GUARANTEES[policy.guarantee].from_constants else {}
    return Terms(statement(given, spec), assumptions or [], **shown)


def exact_curves(dose: Dose) -> str:
    return (
        "the dose curves are exact, down to the smallest action used: "
        f"reward {dose.reward.words}, cost {dose.cost.words}"
    )


def certified_assumptions(spec: SafetySpec, dose: Dose, own: list[str], *, fixed: str, noise: bool = True) -> list[str]:
    """What a guarantee from the constants rests on, one sentence each: a policy's `own`, and what all share, without
    that on the noise where there is none; `fixed` must not depend on outcomes.
    """
    return [
        *own,
        exact_curves(dose),
        *(["any stated baseline cost is exact"] if noise else []),
        "the applied action is at most the advised one and uses nothing about this round's outcome beyond the context"
        + VOID,
        REPORTED,
        *(noise_assumptions(spec) if noise else []),
        f"ridge = {spec.ridge:g}, {fixed}, the margin and the policy were fixed before the first round",
    ]


def start_assumptions(guarantee: str, spec: SafetySpec, shared: list[str]) -> list[str] | None:
    """What a start dose rests on: that you declared it, or the constants that it was certified from and what else is
    `shared`; None where the decision's guarantee is more than that of a start.
    """
    given = GUARANTEES[guarantee]
    if not given.proved:
        return ["the start dose and everything below it is safe for every context, as you declared"]
    if not given.from_constants:
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


def margins(spec: SafetySpec, round: float, noise: Any = None) -> dict[str, Any]:
    """The margin's name, how large it is, and the allowance for sensor error, if the threshold is on measured costs."""
    sensor = tail_factor(spec, round) * spec.cost_sensor_noise if spec.threshold_on == "measured" else 0.0
    return {"margin": spec.margin, "noise_margin": noise_margin(spec, round, noise), "sensor_margin": sensor}


def risks(spec: SafetySpec, round: float) -> dict[str, Any]:
    """The stated risks, and that of this round, of a guarantee from the constants."""
    return {
        "violation_risk": spec.violation_risk,
        "estimation_risk": spec.estimation_risk,
        "this_round": round_risk(spec, round),
    }


def room(spec: SafetySpec, baseline: float) -> str:
    """What the threshold leaves for the dose's cost, in words."""
    threshold = f"{spec.threshold:g}"
    return f"({threshold} less the baseline cost {baseline:g})" if baseline else threshold


def largest_intensity(spec: SafetySpec, baseline: float, upper: float, allowed: float) -> str:
    """The division of the threshold by a bound on the whole cost per unit of intensity."""
    left = room(spec, baseline)
    if allowed >= 1.0:
        return f"The largest intensity: 1, since {upper:.4g} is at most {left}."
    return f"The largest intensity: {left} / {upper:.4g} = {rounded_down(allowed)}."


def division(spec: SafetySpec, decided: Decided, upper: float, facts: Mapping[str, Any]) -> list[str]:
    """How the bound and the margins gave the largest safe intensity, and what share of it is given."""
    margin, sensor = facts["noise_margin"], facts["sensor_margin"]
    left, safe = room(spec, decided.baseline), rounded_down(decided.largest)
    if sensor and spec.sensor_dependent:
        line = f"The largest intensity: ({left} - {sensor:.4g}) / ({upper:.4g} + {margin:.4g}), at most 1: {safe}."
    elif sensor:
        both = f"sqrt(({margin:.4g} z)^2 + {sensor:.4g}^2)"
        line = f"The largest intensity z <= 1 with {upper:.4g} z + {both} <= {left}: {safe}."
    elif spec.noise_scale:
        line = f"The largest intensity z <= 1 with {upper:.4g} z + {margin:.4g} h(z, x) <= {left}: {safe}."
    elif decided.largest >= 1.0:
        line = f"The largest intensity: 1, since {upper:.4g} + noise margin {margin:.4g} is at most {left}."
    else:
        line = f"The largest intensity: {left} / ({upper:.4g} + noise margin {margin:.4g}) = {safe}."
    return [line, *part_given(decided)]


def own_largest(policy: Policy, decided: Decided, but: Sequence[str] = ()) -> str:
    """The largest setting that a rule of one's own gave, with its numbers, `but` for these."""
    shown = {name: value for name, value in decided.numbers.items() if is_number(value) and name not in but}
    numbers = [f"{name} = {value:.4g}" for name, value in shown.items()]
    told = f", from {', '.join(numbers)}" if numbers else ""
    return f"The largest {policy.unit}: {rounded_down(decided.largest)}, by the rule of {policy.name}{told}."


def part_given(decided: Decided) -> list[str]:
    """What share of the largest safe intensity a probe or an exploring round gets."""
    if decided.limit not in ("probe", "exploration"):
        return []
    return [f"This decision gives {decided.chosen / decided.largest:.4g} of it."]
