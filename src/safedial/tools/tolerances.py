"""A plan in tolerances: what a growth bracket's policy will give, in simulated dose-response worlds.

The bracket is true in some of the worlds, and in others it is not. All is in multiples
of the base: a unit tolerates up to T times its protocol's setting, T log-normal. For a relative bracket costs are
(scale/T)^e, for an additive one they rise by a slope s from anything: then only e, or s as a share of `high`, and the
floor as a share of the threshold matter, and neither units nor the dial. Of several costs, one that is drawn anew for
each unit sets T, and the others tolerate more. For a learned base, features tell a share of the variance of ln T. The
reward of a round is its scale, so that the all-knowing policy plays the scale that a share δ of the units with the same
features does not tolerate. Given a scale, the chance of an excess is known, which gives the worst round without the
noise of counting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from safedial.errors import refusal, require
from safedial.model.brackets import Growth
from safedial.model.costs import ONE, Cost, limits, thresholds
from safedial.model.dial import Dial
from safedial.model.dose import Dose, identity
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, make_policy
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.results import guarantee_holds
from safedial.simulation.world import World, generators
from safedial.stats import Seeds
from safedial.tools.scenarios import Forecast, Scenario, moving, played, risks_of, told_of

if TYPE_CHECKING:
    from safedial.tools.planning import Plan

TOLERANCE = {"tolerance": 1.0, "tolerance_spread": 0.5}
"""What is assumed of units: the median of T, and the standard deviation of its logarithm."""

EXPLAINED = {"explained": 0.5}
"""What is assumed besides for a learned base: the share of the variance of ln T that the features tell."""

FALL, STRETCH = 0.7, 10
KEPT = ("climb", "confidence", "adapt", "learned")


def tolerances(policy: Policy, assumed: Mapping[str, float]) -> dict[str, float]:
    """The assumed law of T, checked."""
    usual = TOLERANCE | (EXPLAINED if policy.options["learned"] else {})
    odd = sorted(set(assumed) - set(usual))
    require(not odd, "assumed", odd, "have no part in a bracket's plan", "assume " + ", ".join(usual))
    found = usual | dict(assumed)
    for name, value in found.items():
        require(math.isfinite(value) and value > 0.0, name, value, "must be a number > 0")
    share = found.get("explained", 0.0)
    require(share < 1.0, "explained", share, "must be below 1: features do not tell everything")
    return found


class Tolerances:
    """Dose-response worlds: units that tolerate multiples of the base."""

    kind: ClassVar[str] = "dose-response"
    pictured: ClassVar[str] = "Scale and excesses over time, and the violation rate of every scenario"
    varied: ClassVar[str] = ""
    page_heads: ClassVar[dict[str, str]] = {
        "scenario": "scenario",
        "violations": "violations",
        "violations_high": "19 of 20: ≤",
        "violation_rate": "rate",
        "worst_rate": "worst round",
        "worst_round": "which",
        "first_above_start": "climbs from",
        "last_dose": "last scale",
        "reward_share": "share",
    }
    heads: ClassVar[dict[str, str]] = {
        "violations": "costs\nabove",
        "violation_rate": "rate",
        "worst_rate": "worst\nround",
        "reward_share": "share",
        "first_above_start": "climbs\nfrom",
        "last_dose": "scale",
    }
    note = (
        "; worst round: the largest chance of an excess in one round; climbs from: the first round in which most "
        "studies give more than the start; share: of an all-knowing policy's scale"
    )

    def rate(self, spec: SafetySpec) -> str:
        """The column that the guarantee limits."""
        return "worst_rate"

    def limit(self, plan: Plan) -> str:
        """Which costs are counted, in words."""
        threshold = thresholds(plan.spec).get(ONE)
        return "beyond its threshold" if threshold is None else f"{plan.policy.direction} {threshold:g}"

    def scenarios(
        self, policy: Policy, spec: SafetySpec, assumed: Mapping[str, float], place: World | None
    ) -> tuple[Scenario, ...]:
        """What may be true."""
        units = tolerances(policy, assumed)
        return bracket_scenarios(*in_scales(policy, spec, units), units)

    def check_place(self, place: World) -> None:
        """Refuse a world of the user's own."""
        rule = "has no part in a bracket's plan, which makes its own"
        raise refusal("world", place.name, rule, "leave it out")

    def forecasts(
        self,
        given: tuple[Scenario, ...],
        policy: Policy,
        spec: SafetySpec,
        *,
        dim: int | None,
        assumed: Mapping[str, float],
        engine: str,
        device: str | None,
        rounds: int,
        seeds: Seeds,
        progress: Any,
        **others: Any,
    ) -> dict[str, Any]:
        """What `plan` adds to its arguments: the columns of a context, what is assumed, and the forecasts."""
        require(engine != "jax", "engine", engine, "cannot play the rounds of a bracket", "use 'numpy' or 'auto'")
        require(device is None, "device", device, "is for engine jax, which plays no bracket", "leave it out")
        units, width = tolerances(policy, assumed), columns(policy, dim)
        simulated, scaled = in_scales(policy, spec, units)
        options: Any = {"dim": width, "rounds": rounds, "seeds": seeds, "assumed": units, "progress": progress}
        made = tuple(bracket_forecast(each, simulated, scaled, **options) for each in given)
        plain = {"dial": Dial(), "dose": Dose.of(identity())}  # all is in multiples of the base
        return {**plain, "dim": width, "spec": spec, "assumed": units, "forecasts": made}

    def story(self, plan: Plan) -> list[str]:
        """The scale over time, and the chance of an excess in the worst round, in words."""
        first = plan.table[0]
        leaves = first["first_above_start"]
        begun = f"is above that from about round {leaves} on" if leaves else "stays there in most studies"
        share = f"Over the whole study it is {first['reward_share']:.0%} of an all-knowing policy's."
        base = "protocol's setting" if plan.policy.options["learned"] else "base"
        several = (
            "One of the costs, drawn anew for each unit, sets what it tolerates; the others tolerate up to "
            f"{math.exp(DoseResponseWorld.gap):.2g} times as much."
        )
        return [
            f"The scale begins at {first['first_dose']:.3g} times the {base}, {begun}, and is {first['last_dose']:.3g} "
            f"on average in the last tenth. {share}",
            f"In the worst round, {first['worst_round']}, the chance of an excess is {first['worst_rate']:.1%}.",
            *([] if ONE in thresholds(plan.spec) else [several]),
        ]

    def stated(self, plan: Plan, risk: float) -> str:
        """What is planned, in words."""
        start, climb = (plan.policy.options[name] for name in ("start_scale", "climb"))
        begun = f"start {start:g} times the base, climb limit {climb}"
        return f"risk {risk:.3g} a round; bracket: {bracket_words(plan)}; {begun}"

    def legend(self, plan: Plan) -> str:
        """What the columns of the page mean."""
        return (
            "Worst round: the largest chance of an excess in one round, over studies, and which round (for a learned "
            "base the mean of ten rounds from there on); climbs from: the first round in which most studies give more "
            "than the start; share: of an all-knowing policy's scale."
        )


def bracket_words(plan: Plan) -> str:
    """The bracket, or that of each cost."""
    policy = plan.policy
    costs = limits(plan.spec, growth=policy.options["growth"], direction=policy.direction)
    brackets = {"" if name == ONE else f"{name}: ": cost.growth.to_dict() for name, cost in costs.items()}
    return "; ".join(
        name + ", ".join(f"{part} = {value}" for part, value in each.items()) for name, each in brackets.items()
    )


def columns(policy: Policy, dim: int | None) -> int:
    """The columns of a simulated context: the protocol's setting and, for a learned base, the features."""
    if not policy.options["learned"]:
        return 1
    require(dim is not None, "dim", dim, "is missing", "a learned base depends on the dimension of the contexts")
    base = policy.options["base"]
    found = int(dim or 0) + (callable(base) or base == "proposal")
    require(found > 1, "dim", dim, "leaves a learned base no feature beside the protocol's setting")
    return found


def in_scales(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> tuple[Policy, SafetySpec]:
    """The policy and the spec in multiples of the base, with a threshold of 1."""
    growth, start, single = policy.options["growth"], policy.options["start_scale"], ONE in thresholds(spec)
    require((growth is not None) == single, "growth", growth, "or costs with brackets: state one of them")
    require(start is not None, "start_scale", start, "is missing: a plan begins at a share of the base")
    options = {name: policy.options[name] for name in KEPT}
    share = start / assumed["tolerance"]
    require(share <= 1.0, "start_scale", start, "must be at most the tolerance that is assumed")
    options |= {"base": 0, "start_scale": share}
    common: dict[str, Any] = {"violation_risk": spec.violation_risk, "guarantee": "bracket"}
    stated = limits(spec, growth=growth, direction=policy.direction)
    plain = {name: _plain(cost.growth, cost.threshold) for name, cost in stated.items()}
    if not single:
        costs = {name: Cost(threshold=1.0, growth=each) for name, each in plain.items()}
        return make_policy("hp_shield", **options), SafetySpec(costs=costs, **common)
    threshold = 0.5 if growth.name == "spread" else 1.0
    return make_policy("hp_shield", growth=plain[ONE], **options), SafetySpec(threshold=threshold, **common)


def _plain(growth: Growth, threshold: Any) -> Growth:
    """The bracket with numbers: slopes as shares of `high`, 0 for a `low` whose share is not known."""
    given = dict(growth.parameters)
    if growth.name == "spread":
        return growth._replace(parameters=given | {"error": 0.0})
    if growth.name == "additive":
        known = not growth.features and given["high"] > 0.0
        return growth._replace(
            parameters={"low": given["low"] / given["high"] if known else 0.0, "high": 1.0, "error": 0.0}
        )
    require(
        not growth.features,
        "growth",
        list(growth.features),
        "must be numbers: a simulated plan has no such features",
        "state numbers",
    )
    size = float(threshold)
    return growth._replace(parameters=given | {"floor": given["floor"] / size, "error": given["error"] / size})


def bracket_scenarios(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> tuple[Scenario, ...]:
    """What may be true, for a policy and a spec `in_scales`."""
    growth: Any = policy.options["growth"]
    spread = assumed["tolerance_spread"] * math.sqrt(1.0 - assumed.get("explained", 0.0))
    safe = {"least": policy.options["start_scale"], "spread": spread}
    if growth is not None and growth.name == "spread":
        sigma = growth.parameters["sigma"]
        given = {"as stated": sigma, "twice the spread": 2.0 * sigma, "half the spread": 0.5 * sigma}
        words = "costs of 0 or 1; log-tolerances with standard deviation"
        made = [(name, f"{words} {value:g}", {"curve": "binary", "spread": value}) for name, value in given.items()]
        return tuple(Scenario(name=name, words=told, world=world) for name, told, world in made)
    if growth is not None:
        word, curve = ("elasticities", "power") if growth.name == "relative" else ("slopes", "hinge")
        low, high = growth.parameters["low"], growth.parameters["high"]
    else:  # places between the ends of each cost's bracket
        word, curve, low, high = "slopes of each cost", "stated", 0.0, 1.0
    stated = {"curve": curve, "low": low, "high": high, **safe}
    made = {
        "as stated": (f"{word} of units between both ends of the bracket", {}),
        "steep units": (f"all {word} at the upper end", {"low": high}),
        "flat units": (f"all {word} at the lower end", {"low": max(low, 0.05 * high), "high": max(low, 0.05 * high)}),
        "heavy tails": ("tolerances with Student's t of 2 degrees of freedom", {"tails": "t2", "spread": 0.5 * spread}),
        "lost outcomes": ("a fifth of the outcomes lost, and vouched for", {"missing": 0.2}),
        "1.25 × high": (f"all {word} a quarter beyond the bracket", {"low": 1.25 * high, "high": 1.25 * high}),
        "2 × high": (f"all {word} twice the upper end", {"low": 2.0 * high, "high": 2.0 * high}),
        "falling": (f"tolerances fall by {1.0 - FALL:.0%} half way", {"fall": FALL}),
    }
    return tuple(Scenario(name=name, words=words, world=stated | changed) for name, (words, changed) in made.items())


def bracket_forecast(
    scenario: Scenario,
    policy: Policy,
    spec: SafetySpec,
    *,
    dim: int,
    rounds: int,
    seeds: Seeds,
    assumed: Mapping[str, float],
    progress: Any = None,
) -> Forecast:
    """Simulate the scenario with contexts of so many columns; `assumed` are the tolerances."""
    world = _world(scenario, dim, rounds, assumed.get("explained", 0.0))
    run, context, action, over = played(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
    protocol, start = context[..., 0], policy.options["start_scale"]
    scale = action / protocol
    fall = np.where(np.arange(rounds) >= world.after, world.fall, 1.0)[:, None]
    # What the features tell of ln T; 0 where there are none.
    middle = world.means(spec, world.draw_truth(spec, generators(run.seeds)), context)[1]
    tolerable = np.exp(middle + world.spread * _quantile(world.tails, spec.violation_risk))
    best = np.minimum(fall * np.maximum(tolerable, world.least), 1.0 / protocol)
    intolerant = _share(world.tails, (np.log(scale / fall) - middle) / world.spread)
    risk = np.where(scale > world.least * fall, intolerant, 0.0).mean(axis=1)
    if dim > 1:  # the chance also depends on the context: the mean of ten rounds, from the one that is named
        size = min(STRETCH, rounds)
        risk = moving(risk, size) / size
    above = (scale > 1.001 * start).mean(axis=1) >= 0.5
    further = {
        "small_doses": 0.0,
        "alarms": None,
        "worst_rate": float(risk.max()),
        "worst_round": int(np.argmax(risk)) + 1,
        "first_above_start": int(np.argmax(above)) + 1 if above.any() else None,
    }
    risks, dose = {"guarantee_holds": guarantee_holds(policy, world, spec)}, assumed["tolerance"] * scale
    risks |= risks_of(over, spec, policy)
    return told_of(scenario, risks, {}, further, run=run, over=over, dose=dose, gain=scale, best=best)


def _world(scenario: Scenario, dim: int, rounds: int, explained: float) -> DoseResponseWorld:
    """The scenario's world: what the features tell is in proportion to what they leave open."""
    fallen = scenario.world.get("fall", 1.0) != 1.0
    effect = scenario.world["spread"] * math.sqrt(explained / (1.0 - explained))
    return DoseResponseWorld(**scenario.world, dim=dim, effect=effect, after=rounds // 2 if fallen else 0)


def _quantile(tails: str, share: Any) -> float:
    """F⁻¹ of (ln T − its middle)/σ."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(2.0, share) if tails == "t2" else ndtri(share))


def _share(tails: str, size: Any) -> Any:
    """F of it."""
    from scipy.special import ndtr, stdtr

    return stdtr(2.0, size) if tails == "t2" else ndtr(size)
