"""The certificate of a decision with a linear learner: the estimate, its radius, the margins and the assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.bounds.margin import noise_margin
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.shared_terms import (
    REPORTED,
    division,
    exact_curves,
    noise_assumptions,
    overrides,
    risks,
    sensor_margin,
)

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules


def assumptions(rules: Rules) -> list[str]:
    """The assumptions behind the certified guarantee, one sentence each."""
    spec = rules.spec
    return [
        "mean reward and mean cost per unit of intensity are linear in the context",
        f"the true coefficients have norm at most S = {spec.coefficient_bound:g}",
        f"every context has norm at most L = {spec.context_bound:g} (checked)",
        f"noise is mean-zero and sub-Gaussian with constants {spec.reward_noise:g} (reward) and {spec.cost_noise:g} "
        "(cost), given all earlier rounds, the context and the action",
        exact_curves(rules),
        "any stated baseline cost is exact",
        overrides(),
        REPORTED,
        *noise_assumptions(spec),
        f"ridge = {spec.ridge:g}, the radius, the margin and the policy were fixed before the first round",
    ]


def facts(decision: Decision) -> dict[str, Any]:
    """Plain values: the estimate, the bound and the margins."""
    rules, choice, seen = decision.rules, decision.choice, decision.prediction
    spec, bounds = rules.spec, choice.bounds
    with_margins = GUARANTEES[rules.policy.guarantee].from_constants
    uncut = seen.cost + bounds.cost_radius * seen.width if bounds.cost_radius else bounds.cost_upper
    return {
        "risk": risks(decision) | ({"margin_risk": spec.margin_risk} if spec.margin_risk is not None else {}),
        "model": {
            "informative_rounds": seen.informative_rounds,
            "reward": seen.reward,
            "cost": seen.cost,
            "width": seen.width,
            "context_norm": seen.norm,
            "log_det": seen.log_det,
        },
        "radius_name": rules.policy.options.get("radius"),
        "radius": bounds.cost_radius,
        **_dual(decision),
        "reward_upper": bounds.reward_upper,
        "cost_upper_uncut": uncut,
        "cost_upper": bounds.cost_upper,
        "margin": spec.margin,
        "noise_margin": noise_margin(spec, decision.round, bounds.noise) if with_margins else 0.0,
        "sensor_margin": sensor_margin(spec, decision.round) if with_margins and spec.sensors_err else 0.0,
    }


def _dual(decision: Decision) -> dict[str, Any]:
    """For the self-normalised radius: the noise's part of the radius, and the three numbers of its bound."""
    seen, spec = decision.prediction, decision.rules.spec
    if getattr(seen, "dual", None) is None:
        return {}
    noise = spec.cost_noise * (seen.log_det + 2.0 * spec.log_inverse_risk) ** 0.5
    return {"self_normalised": {"noise_radius": noise, **seen.dual._asdict()}}


def _norm_limit(decision: Decision) -> float:
    """S‖x‖: the largest mean cost that the stated norms allow, with room for rounding."""
    return decision.rules.spec.coefficient_bound * decision.prediction.norm * (1.0 - 1e-12)


def arithmetic(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """The bound, and the division that gave the largest safe intensity."""
    model, upper = facts["model"], facts["cost_upper"]
    how = f"the estimate {model['cost']:.4g} + radius {facts['radius']:.4g} x width {model['width']:.4g}"
    if not facts["radius"]:
        how = "what the norms alone allow"
    elif upper < facts["cost_upper_uncut"] and "self_normalised" in facts and upper < _norm_limit(decision):
        best = facts["self_normalised"]
        how = (
            f"the estimate {best['cost']:.4g} + noise {best['noise_radius']:.4g} x width {best['width']:.4g} + "
            f"S {decision.rules.spec.coefficient_bound:.4g} x {best['miss']:.4g} for the part of the context that past "
            "rounds do not cover"
        )
    elif upper < facts["cost_upper_uncut"]:
        how += f", cut at what the norms allow, {upper:.4g}"
    elif upper > facts["cost_upper_uncut"]:
        how = "what the norms alone allow, in round one"
    bound = f"The bound: mean cost per unit of intensity is at most {upper:.4g}: {how}"
    return [f"{bound} ({model['informative_rounds']:.0f} informative rounds).", *division(decision, facts)]
