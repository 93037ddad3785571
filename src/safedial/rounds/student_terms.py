"""The certificate of an HP-Student decision: its fit, its bound and every condition of its proof."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.bounds.least_squares import SPARE, WORST
from safedial.bounds.t_laws import t_quantile
from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.shared_terms import exact_curves, largest_intensity, part_given, start_assumptions

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision

PER_ROUND = (
    "the cost's noise per unit of intensity is Gaussian, independent over rounds, and of one size for all contexts and "
    "doses (watched: see evidence)",
    "no context depends on past costs, past doses or other outcomes with the same noise; contexts may drift",
    "an outcome that is missing and vouched for as unrelated is unrelated to every cost",
)
ANYTIME = (
    "given the past, the context and the dose, the cost's noise per unit of intensity is Gaussian, and of one size "
    "for all; contexts may react to anything in the past",
    "an outcome that is missing and vouched for as unrelated is unrelated to its cost",
)
EXCHANGEABLE = (
    "rounds are exchangeable: contexts and outcomes per unit of intensity, without drift or carry-over; and whatever "
    "was left out was left out for an unrelated reason"
)


def assumptions(decision: Decision) -> list[str]:
    """The conditions of this decision's guarantee, one sentence each."""
    rules, options = decision.rules, decision.rules.policy.options
    shared = [
        exact_curves(rules),
        "sensors measure without error; any stated baseline cost is exact",
        "every applied action is above zero and at most the advised one; whoever chooses it may use any knowledge",
    ]
    if (own := start_assumptions(decision, shared)) is not None:
        return own
    anytime = options["guarantee"] == "anytime"
    fixed = "the features, the lag and the probe" + (", λ and a of the mixture" if anytime else "")
    over = (
        "the probability is over the past rounds too; among rounds given a full dose it is at most the stated one only "
    )
    over += "if the reward's noise is independent of the cost's"
    late = f"the lag, {options['lag']} rounds, was fixed in advance: outcomes that come later delay decisions"
    own = [
        "the mean cost per unit of intensity is linear in the context",
        *(ANYTIME if anytime else PER_ROUND),
    ]
    if options["either"]:
        own = [f"either {'; '.join(own)}; or {EXCHANGEABLE}"]
    return [
        *own,
        *shared,
        *([] if anytime else [late]),
        *([over] if options["guarantee"] == "per_round" else []),
        "rounds from before the first decision, if any, satisfy all of this too",
        f"{fixed} were fixed before the first round",
    ]


def statement(decision: Decision) -> str:
    """The guarantee in one sentence."""
    spec, guarantee = decision.rules.spec, GUARANTEES[decision.guarantee]
    event = decision.rules.learner.event(decision.rules)
    words = f"P({event}) <= {spec.violation_risk:g} in this round"
    if not guarantee.proved:
        return f"none is proved yet: P({event}) rests on your judgement alone (you declared the start dose safe)"
    if guarantee.from_constants:
        return f"{words}, from the constants (start-up)"
    kind = decision.rules.policy.options["guarantee"]
    if decision.rules.policy.options["either"]:
        return f"{words}, for Gaussian noise of any size, or for exchangeable rounds"
    if kind == "per_round":
        return f"{words}, for Gaussian noise of any size"
    failure = f"{1.0 - spec.estimation_risk:g}"
    if kind == "tolerance":
        return f"with probability {failure} over the past rounds, {words} given them, for Gaussian noise of any size"
    return f"with probability {failure}, in all rounds at once, {words} given the past, for Gaussian noise of any size"


def facts(decision: Decision) -> dict[str, Any]:
    """Plain values: the fit, the bound, what it waits for, and the conditions."""
    spec, seen, upper = decision.rules.spec, decision.prediction, decision.choice.bounds.cost_upper
    failure = {} if spec.estimation_risk is None else {"estimation_risk": spec.estimation_risk}
    return {
        "assumptions": assumptions(decision) if GUARANTEES[decision.guarantee].claimed else [],
        "risk": {"violation_risk": spec.violation_risk, "this_round": spec.violation_risk, **failure},
        "model": {
            "reward": seen.reward,
            "cost": seen.cost,
            "width": seen.width,
            "noise": seen.spread / math.sqrt(seen.degrees),
            "degrees_of_freedom": seen.degrees,
            "context_norm": seen.norm,
            "informative_rounds": seen.rounds,
            "condition": seen.condition if math.isfinite(seen.condition) else None,
        },
        "open_rounds_needed": seen.waiting,
        "lost_rounds": seen.lost,
        "start_rounds": seen.starts,
        "cost_upper": upper if math.isfinite(upper) else None,
        **({"conformal": seen.other._asdict()} if seen.other is not None else {}),
    }


def arithmetic(decision: Decision, facts: dict[str, Any]) -> list[str]:
    """The bound, and the division that gave the largest safe intensity."""
    spec, model, upper = decision.rules.spec, facts["model"], facts["cost_upper"]
    if upper is None:
        safe = rounded_down(facts["safe_intensity"])
        return [_no_bound(decision), f"Until then the largest intensity is {safe}.", *part_given(decision, facts)]
    how = f"the estimate {model['cost']:.4g} + {upper - model['cost']:.4g}"
    if seen_other := facts.get("conformal"):
        how = f"the larger of the Student bound and the conformal one, {seen_other['cost_upper']:.4g}"
    elif decision.rules.policy.options["guarantee"] == "per_round":
        quantile = float(t_quantile(float(model["degrees_of_freedom"]), spec.violation_risk))
        how = f"the estimate {model['cost']:.4g} + t quantile {quantile:.4g} x noise {model['noise']:.4g} x "
        how += f"sqrt(1 + {model['width']:.4g}^2)"
    count = f"{model['informative_rounds']:.0f} rounds, {model['degrees_of_freedom']:.0f} degrees of freedom"
    bound = f"The bound: cost per unit of intensity is at most {upper:.4g}: {how} ({count})."
    line = largest_intensity(decision, upper, facts["safe_intensity"])
    return [bound, line, *part_given(decision, facts)]


def _no_bound(decision: Decision) -> str:
    """Why the start dose is used."""
    seen, dim = decision.prediction, decision.rules.dim
    if seen.lost:
        return (
            f"The start: {seen.lost} rounds that this decision needs have no outcome, for a reason that may be related "
            "to it. Start again without the earlier rounds (resume with forget), or vouch for such reasons when you "
            "report."
        )
    if seen.waiting:
        lag = decision.rules.policy.options["lag"]
        return f"The start: {seen.waiting} rounds that this decision needs are still open (lag {lag})."
    if seen.ready and decision.rules.policy.options["either"]:
        return f"The start: the conformal bound needs more rounds; there are {seen.other.rounds}."
    if not seen.ready:
        return (
            f"The start: a bound needs {dim + SPARE} known rounds whose contexts have rank {dim} and a condition of at "
            f"most {WORST:g}; there are {seen.rounds:.0f} rounds."
        )
    return f"The start: the size of the noise has no upper bound yet, after {seen.rounds:.0f} rounds."
