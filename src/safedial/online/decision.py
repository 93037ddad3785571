"""A decision, its certificate, and the certificate in plain words.

The certificate holds all numbers that led to the action, so that a person can recompute it with a pocket calculator,
and every assumption the promise rests on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from safedial.core.action import Choice
from safedial.core.dose import Dose
from safedial.core.estimate import Prediction
from safedial.core.safe_set import round_risk, tail_factor
from safedial.core.spec import SafetySpec
from safedial.online.units import Dial
from safedial.policies import Policy
from safedial.version import __version__


class Rules(NamedTuple):
    """What is fixed for the life of a learner."""

    spec: SafetySpec
    policy: Policy
    dose: Dose
    dial: Dial
    dim: int
    fallback_action: float


class Text(str):
    """A string that shows itself as it reads, at a prompt too."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Decision(NamedTuple):
    """One advised action.

    Attributes:
        action: what to set the dial to, in the dial's own units.
        intensity: g_c(action) in [0, 1], the cost's share of a full dose.
        safe_action: the largest setting that keeps the promise; the action is never above it.
        round: the decision's number, from 1.
        certified: False where not even the zero action keeps the promise, or where its assumptions are in doubt; the
            action is then the fallback.
        doubt: "" or a key of `LIMITS`: why the fallback is advised.
    """

    action: float
    intensity: float
    safe_action: float
    round: int
    certified: bool
    prediction: Prediction
    choice: Choice
    baseline_cost: float
    doubt: str
    rules: Rules

    def __repr__(self) -> str:
        action, safe = self.rules.dial.text(self.action), self.rules.dial.text(self.safe_action)
        return f"Decision(round={self.round}, action={action}, safe_action={safe}, certified={self.certified})"

    @property
    def limit(self) -> str:
        """Which rule set the action: a key of `LIMITS`."""
        return _limit(self)

    @property
    def certificate(self) -> dict[str, Any]:
        """Every number and assumption behind the action, as plain values."""
        return certificate(self)

    def explain(self) -> Text:
        """The certificate in plain words."""
        return Text(explain(self))


LIMITS = {
    "alarm": "costs exceeded the threshold more often than promised, so the fallback is advised until a person resumes",
    "assumption_broken": "the data contradict the stated norms (a bound lies below what they allow), "
    "so the fallback is advised",
    "no_certified_action": "the known baseline cost or the sensor noise alone exceeds what the threshold allows, "
    "so no action, not even zero, keeps the promise",
    "cost_bound": "the cost bound: a higher setting could break the promise",
    "full_dose": "the end of the dial: the largest setting is safe",
    "no_expected_benefit": "no benefit is expected here, so nothing is given",
    "probe": "no benefit is expected here, so only a small probe is given, to learn",
    "exploration": "a coin chose the cautious first-round setting, to explore",
    "level": "the dial's levels: the next level up is above the safe setting",
}


def _limit(decision: Decision) -> str:
    intensity, safe = decision.choice.intensity, decision.choice.safe.intensity
    if decision.doubt:
        return decision.doubt
    if intensity == 0.0 and safe > 0.0:
        return "no_expected_benefit"
    if intensity < safe:
        return "probe" if decision.choice.reward_index < 0.0 else "exploration"
    if decision.rules.dial.levels and decision.intensity < intensity:
        return "level"
    return "full_dose" if intensity >= 1.0 else "cost_bound"


def assumptions(rules: Rules) -> list[str]:
    """All that the promise rests on, one sentence each."""
    spec = rules.spec
    sensor = spec.reward_sensor_noise or spec.cost_sensor_noise
    kind = "any" if spec.sensor_dependent else "independent of the outcome's own noise given the past, and"
    lines = [
        "realizability: mean reward and mean cost per unit of intensity are linear in the context",
        f"the true coefficients have norm at most S = {spec.coefficient_bound:g}",
        f"every context has norm at most L = {spec.context_bound:g} (checked)",
        f"noise is mean-zero and sub-Gaussian with constants {spec.reward_noise:g} (reward) and {spec.cost_noise:g} "
        "(cost), given all earlier rounds, the context and the action",
        "the dose curves are exact, down to the smallest action used: "
        f"reward {rules.dose.reward.name}, cost {rules.dose.cost.name}",
        "a stated baseline cost is exact",
        "the applied action is at most the advised one and is fixed before the outcome acts",
        "every outcome of a non-zero action is reported, in decision order, whatever it was",
        f"ridge = {spec.ridge:g}, the radius and the policy were fixed before the first round",
    ]
    if sensor:
        lines.insert(
            4,
            f"sensor error is {kind} sub-Gaussian with constants {spec.reward_sensor_noise:g} (reward) and "
            f"{spec.cost_sensor_noise:g} (cost)",
        )
    return lines


def statement(rules: Rules) -> str:
    """The promise in one sentence."""
    spec = rules.spec
    if rules.policy.promise == "expected":
        return f"no promise on the realized cost: only its mean is kept at or below {spec.threshold:g}"
    total = spec.violation_risk + spec.estimation_risk
    if spec.promise == "joint":
        return f"P(cost > {spec.threshold:g} in any round, ever) <= {total:g}"
    return f"P(cost > {spec.threshold:g}) <= {total:g} in this round"


def certificate(decision: Decision) -> dict[str, Any]:
    rules, choice, prediction = decision.rules, decision.choice, decision.prediction
    spec, realized = rules.spec, rules.policy.promise == "realized"
    factor = tail_factor(spec, decision.round) if realized else 0.0
    measured = spec.threshold_on == "measured"
    return {
        "promise": "none" if decision.doubt else "certified" if realized else "expected cost only",
        "statement": statement(rules),
        "holds": realized and decision.certified,
        "assumptions": assumptions(rules),
        "round": decision.round,
        "risk": {
            "violation_risk": spec.violation_risk,
            "estimation_risk": spec.estimation_risk,
            "this_round": round_risk(spec, decision.round),
        },
        "policy": {"name": rules.policy.name, **rules.policy.options},
        "spec": spec.to_dict(),
        "dim": rules.dim,
        "dose": rules.dose.to_dict(),
        "dial": rules.dial.to_dict(),
        "model": {
            "informative_rounds": prediction.informative_rounds,
            "reward": prediction.reward,
            "cost": prediction.cost,
            "width": prediction.width,
            "context_norm": prediction.norm,
            "log_det": prediction.log_det,
        },
        "radius": choice.bounds.cost_radius,
        "cost_upper": choice.bounds.cost_upper,
        "noise_margin": factor * spec.cost_noise,
        "sensor_margin": factor * spec.cost_sensor_noise if measured else 0.0,
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


def explain(decision: Decision) -> str:
    facts = certificate(decision)
    dial, spec = decision.rules.dial, decision.rules.spec
    margin = f"{facts['noise_margin']:.4g}"
    if facts["sensor_margin"]:
        margin += f", and for the sensor {facts['sensor_margin']:.4g}"
    room = f"{spec.threshold:g}"
    if decision.baseline_cost:
        room += f" less the baseline cost {decision.baseline_cost:g}"
    largest = (
        "no setting is certified" if decision.doubt else f"the largest safe one is {dial.text(decision.safe_action)}"
    )
    lines = [
        f"Round {decision.round}: set the dial to {dial.text(decision.action)} "
        f"(intensity {decision.intensity:.4g}); {largest}.",
        f"  What set it: {LIMITS[decision.limit]}.",
        f"  Promise: {'none, because ' + LIMITS[decision.doubt] if decision.doubt else facts['statement']}.",
        f"  The bound: mean cost per unit of intensity is at most {facts['cost_upper']:.4g} "
        f"(estimate {facts['model']['cost']:.4g}, width {facts['model']['width']:.4g}, radius {facts['radius']:.4g}, "
        f"{facts['model']['informative_rounds']:.0f} informative rounds); noise is allowed {margin}; "
        f"the threshold is {room}.",
        f"  Risks spent: {facts['risk']['this_round']:.3g} on noise in this round, "
        f"{spec.estimation_risk:.3g} once, for all rounds, on the confidence set.",
        f"  Expected benefit: the reward index is {facts['reward_index']:.4g} ({facts['policy']['name']}).",
        "  This holds if:",
        *(f"    - {line}" for line in facts["assumptions"]),
    ]
    if decision.doubt:
        lines.insert(1, "  WARNING: nothing is certified here; the fallback is advised.")
    return "\n".join(lines)
