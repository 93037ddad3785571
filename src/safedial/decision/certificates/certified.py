"""The certificate of a decision, and the same in plain words.

It holds all numbers that led to the action, so that a person can recompute it with a pocket calculator, and every
assumption the promise rests on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safedial.core.margin import noise_margin, round_risk, tail_factor
from safedial.decision.certificates import conformal_terms as conformal
from safedial.decision.certificates import function_class_terms as classes
from safedial.decision.certificates.noise_terms import division, noise_assumptions, sensor_margin
from safedial.decision.decision import LIMITS, Decision
from safedial.decision.rules import Rules
from safedial.decision.units import rounded_down
from safedial.policies import Policy
from safedial.version import __version__

REPORTED = "every outcome of a non-zero action is reported, in decision order, whatever it was"


def assumptions(rules: Rules) -> list[str]:
    """All that the certified promise rests on, one sentence each."""
    spec = rules.spec
    return [
        "realizability: mean reward and mean cost per unit of intensity are linear in the context",
        f"the true coefficients have norm at most S = {spec.coefficient_bound:g}",
        f"every context has norm at most L = {spec.context_bound:g} (checked)",
        f"noise is mean-zero and sub-Gaussian with constants {spec.reward_noise:g} (reward) and {spec.cost_noise:g} "
        "(cost), given all earlier rounds, the context and the action",
        conformal.exact_curves(rules),
        "a stated baseline cost is exact",
        conformal.overrides(rules),
        REPORTED,
        *noise_assumptions(spec),
        f"ridge = {spec.ridge:g}, the radius, the margin and the policy were fixed before the first round",
    ]


def statement(decision: Decision) -> str:
    """The promise in one sentence, or that there is none."""
    rules, spec = decision.rules, decision.rules.spec
    if decision.doubt:
        return f"none: {LIMITS[decision.doubt]}{conformal.compared(decision)}"
    if rules.policy.promise == "conformal":
        return conformal.statement(decision)
    if rules.policy.promise == "heuristic":
        return "none: the cost's function class is heuristic, and nothing is proved"
    if rules.policy.promise == "expected":
        return f"none on the realized cost: only its mean is kept at or below {spec.threshold:g}"
    cost = f"{spec.threshold_on} cost" if spec.cost_sensor_noise else "cost"
    total = spec.promised_risk
    if spec.promise == "joint":
        return f"P({cost} > {spec.threshold:g} in any round, ever) <= {total:g}"
    return f"P({cost} > {spec.threshold:g}) <= {total:g} in this round"


def certificate(decision: Decision) -> dict[str, Any]:
    """Plain values only: what was known, what was bounded, what was chosen, what it rests on."""
    if decision.rules.policy.promise == "conformal":
        return {**_common(decision), **conformal.facts(decision)}
    if "cost_class" in decision.rules.policy.options:
        return {**_common(decision), **classes.facts(decision, REPORTED)}
    rules, choice, seen = decision.rules, decision.choice, decision.prediction
    spec, bounds = rules.spec, choice.bounds
    factor = tail_factor(spec, decision.round) if rules.policy.promise == "certified" else 0.0
    uncut = seen.cost + bounds.cost_radius * seen.width if bounds.cost_radius else bounds.cost_upper
    return {
        **_common(decision),
        "assumptions": assumptions(rules),
        "risk": {
            "violation_risk": spec.violation_risk,
            "estimation_risk": spec.estimation_risk,
            "this_round": round_risk(spec, decision.round),
            **({"margin_risk": spec.margin_risk} if spec.learns_noise else {}),
        },
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
        "constrained": _best_ridge(decision),
        "reward_upper": bounds.reward_upper,
        "cost_upper_uncut": uncut,
        "cost_upper": bounds.cost_upper,
        "margin": spec.margin,
        "noise_margin": noise_margin(spec, decision.round, bounds.noise) if factor else 0.0,
        "sensor_margin": sensor_margin(spec, decision.round) if factor else 0.0,
    }


def _best_ridge(decision: Decision) -> dict[str, float] | None:
    """With the constrained radius: the ridge whose bound is the least, and its three numbers."""
    seen, spec = decision.prediction, decision.rules.spec
    if getattr(seen, "ridges", None) is None:
        return None
    volume = seen.log_det + 2.0 * spec.log_inverse_risk
    squared = spec.cost_noise**2 * volume + seen.ridges.ridge * spec.coefficient_bound**2 + seen.ridges.gap
    radii = np.sqrt(np.maximum(squared, 0.0))
    best = int(np.argmin(seen.ridges.cost + radii * seen.ridges.width))
    found = {"ridge": seen.ridges.ridge, "cost": seen.ridges.cost, "radius": radii, "width": seen.ridges.width}
    return {name: float(values[best]) for name, values in found.items()}


def _common(decision: Decision) -> dict[str, Any]:
    """What every certificate holds, whatever the promise."""
    rules, choice, written = decision.rules, decision.choice, decision.rules.to_dict()
    return {
        "promise": decision.promise,
        "statement": statement(decision),
        "holds": decision.promise in ("certified", "conformal"),
        "round": decision.round,
        "context": decision.context.tolist(),
        "extrapolated": list(decision.extrapolated),
        "policy": written["policy"],
        "spec": written["spec"] | ({"promise": "none"} if rules.policy.promise == "heuristic" else {}),
        **{name: written[name] for name in ("dim", "dose", "dial", "features")},
        "baseline_cost": decision.baseline_cost,
        "safe_intensity": choice.safe.intensity,
        "reward_index": choice.reward_index,
        "limit": decision.limit,
        "intensity": decision.intensity,
        "action": decision.action,
        "safe_action": decision.safe_action,
        "fallback_action": rules.fallback_action,
        "version": __version__,
    }


def explain(decision: Decision, facts: dict[str, Any] | None = None) -> str:
    """What was advised, what set it, the promise, the arithmetic, the risks and the assumptions.

    `facts` is the decision's certificate, where it says more than `certificate` knows.
    """
    dial, facts = decision.rules.dial, facts or certificate(decision)
    largest = "no setting is certified"
    if decision.safe_action is not None:
        word = "allowed" if decision.rules.policy.promise in ("expected", "heuristic") else "safe"
        largest = f"the largest {word} one is {dial.text(decision.safe_action)}"
    head = f"Round {decision.round}: set the dial to {dial.text(decision.action)} "
    lines = [head + f"(intensity {rounded_down(decision.intensity)}); {largest}."]
    if decision.extrapolated:
        names = ", ".join(decision.extrapolated)
        lines.append(f"  WARNING: {names} lies outside the range stated for it, which the caller allowed.")
    if decision.doubt:
        lines.append("  WARNING: nothing is promised here; the fallback is advised.")
        return "\n".join([*lines, f"  Promise: {facts['statement']}."])
    lines.append(f"  What set it: {LIMITS[decision.limit]}.")
    lines.append(f"  Promise: {facts['statement']}.")
    arithmetic = _arithmetic_of(decision.rules.policy)
    lines += [f"  {line}" for line in arithmetic(decision, facts)]
    lines.append(f"  Expected benefit: the reward index is {facts['reward_index']:.4g} ({facts['policy']['name']}).")
    if decision.rules.policy.promise == "certified":
        learned = "margin_risk" in facts["risk"]
        lines.append(
            f"  Risks spent: {facts['risk']['this_round']:.3g} on noise in this round, "
            f"{facts['risk']['estimation_risk']:.3g} once, for all rounds, on the confidence set"
            + (f", {facts['risk']['margin_risk']:.3g} on what is learned about the noise." if learned else ".")
        )
    if facts["holds"] or decision.promise == "declared":
        lines += ["  This holds if:", *(f"    - {line}" for line in facts["assumptions"])]
    return "\n".join(lines)


def _arithmetic_of(policy: Policy) -> Callable[[Decision, dict[str, Any]], list[str]]:
    if policy.promise == "conformal":
        return conformal.arithmetic
    return classes.arithmetic if "cost_class" in policy.options else _arithmetic


def _norm_limit(decision: Decision) -> float:
    """S‖x‖, which the norms alone allow."""
    return decision.rules.spec.coefficient_bound * decision.prediction.norm * (1.0 - 1e-12)


def _arithmetic(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """The bound and the division that gave the largest safe intensity, with the numbers in it."""
    model, upper = facts["model"], facts["cost_upper"]
    how = f"the estimate {model['cost']:.4g} + radius {facts['radius']:.4g} x width {model['width']:.4g}"
    if not facts["radius"]:
        how = "what the norms alone allow"
    elif upper < facts["cost_upper_uncut"] and facts["constrained"] and upper < _norm_limit(decision):
        best = facts["constrained"]
        how = f"with ridge {best['ridge']:.4g}, {best['cost']:.4g} + {best['radius']:.4g} x width {best['width']:.4g}"
    elif upper < facts["cost_upper_uncut"]:
        how += f", cut at what the norms allow, {upper:.4g}"
    elif upper > facts["cost_upper_uncut"]:
        how = "what the norms alone allow, in round one"
    bound = f"The bound: mean cost per unit of intensity is at most {upper:.4g}: {how}"
    return [f"{bound} ({model['informative_rounds']:.0f} informative rounds).", *division(decision, facts)]
