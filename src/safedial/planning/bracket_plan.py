"""Plans HP-Shield: dose-response worlds in which the bracket is true, and in which it is not.

All is in multiples of the base: a unit tolerates up to T times its protocol's setting, T log-normal. For a relative
bracket costs are (scale/T)^e, for an additive one they rise by a slope s from anything: then only e, or s as a share of
`high`, and the floor as a share of the threshold matter, and neither units nor the dial. The reward of a round is its
scale, so that the all-knowing policy plays the scale that a share δ of the units does not tolerate. Given a scale, the
chance of an excess is known, which gives the worst round without the noise of counting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from safedial.core.brackets import Growth
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.planning.forecast import Forecast, curves_of, reward_of, violations_of
from safedial.planning.scenarios import Scenario
from safedial.policies import Policy, make_policy
from safedial.simulation.loop import Played
from safedial.simulation.proved import promise_holds
from safedial.simulation.run import simulate
from safedial.worlds.dose_response import DoseResponseWorld

TOLERANCE = {"tolerance": 1.0, "tolerance_spread": 0.5}
"""What is assumed of units: the median of T, and the standard deviation of its logarithm."""

FALL = 0.7
KEPT = ("climb", "confidence", "adapt")


def tolerances(assumed: Mapping[str, float]) -> dict[str, float]:
    """The assumed law of T, checked."""
    odd = sorted(set(assumed) - set(TOLERANCE))
    require(not odd, "assumed", odd, "have no part in a bracket's plan", "assume " + ", ".join(TOLERANCE))
    found = TOLERANCE | dict(assumed)
    for name, value in found.items():
        require(math.isfinite(value) and value > 0.0, name, value, "must be a number > 0")
    return found


def in_scales(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> tuple[Policy, SafetySpec]:
    """The policy and the spec in multiples of the base, with a threshold of 1."""
    growth, start = policy.options["growth"], policy.options["start_scale"]
    way_out = "plan each cost by itself: they share one risk"
    require(growth is not None, "costs", "several", "cannot be planned together", way_out)
    require(start is not None, "start_scale", start, "is missing: a plan begins at a share of the base")
    options = {name: policy.options[name] for name in KEPT}
    share = start / assumed["tolerance"]
    require(share <= 1.0, "start_scale", start, "must be at most the tolerance that is assumed")
    simulated = make_policy("hp_shield", base=0, growth=_plain(growth, spec.threshold), start_scale=share, **options)
    threshold = 0.5 if growth.name == "spread" else 1.0
    return simulated, SafetySpec(threshold=threshold, violation_risk=spec.violation_risk, promise="bracket")


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
        "are features, which a plan does not have",
        "state numbers",
    )
    size = float(threshold)
    return growth._replace(parameters=given | {"floor": given["floor"] / size, "error": given["error"] / size})


def bracket_scenarios(policy: Policy, assumed: Mapping[str, float]) -> tuple[Scenario, ...]:
    """What may be true, for a policy `in_scales`."""
    growth, spread = policy.options["growth"], assumed["tolerance_spread"]
    safe = {"least": policy.options["start_scale"], "spread": spread}
    if growth.name == "spread":
        sigma = growth.parameters["sigma"]
        given = {"as stated": sigma, "twice the spread": 2.0 * sigma, "half the spread": 0.5 * sigma}
        words = "costs of 0 or 1; log-tolerances with standard deviation"
        made = [(name, f"{words} {value:g}", {"curve": "binary", "spread": value}) for name, value in given.items()]
        return tuple(Scenario(name=name, words=told, world=world) for name, told, world in made)
    word, curve = ("elasticities", "power") if growth.name == "relative" else ("slopes", "hinge")
    low, high = growth.parameters["low"], growth.parameters["high"]
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
    rounds: int,
    seeds: int,
    median: float,
    progress: Any = None,
) -> Forecast:
    """Simulate the scenario; `median` turns scales back into multiples of the base."""
    fallen = scenario.world.get("fall", 1.0) != 1.0
    world = DoseResponseWorld(**scenario.world, after=rounds // 2 if fallen else 0)
    chunks: list[Played] = []
    simulate(policy, world, spec, rounds=rounds, seeds=seeds, points=1, progress=progress, record=chunks.append)
    context, action, _, cost = (np.concatenate([chunk[part][:, 0] for chunk in chunks]) for part in range(4))
    scale, start = action / context[..., 0], policy.options["start_scale"]
    fall = np.where(np.arange(rounds) >= world.after, world.fall, 1.0)[:, None]
    best = np.broadcast_to(fall * max(_oracle(world, spec.violation_risk), world.least), scale.shape)
    risk = np.where(scale > world.least * fall, _intolerant(world, scale / fall), 0.0).mean(axis=1)
    above = (scale > 1.001 * start).mean(axis=1) >= 0.5
    over, dose = cost > spec.threshold, median * scale
    quantities = {
        "scenario": scenario.name,
        "promise_holds": promise_holds(policy, world, spec),
        **violations_of(over, spec, policy),
        **reward_of(scale, best),
        "first_dose": float(dose[0].mean()),
        "last_dose": float(dose[-max(rounds // 10, 1) :].mean()),
        "small_doses": 0.0,
        "alarms": None,
        "worst_rate": float(risk.max()),
        "worst_round": int(np.argmax(risk)) + 1,
        "first_above_start": int(np.argmax(above)) + 1 if above.any() else None,
    }
    return Forecast(scenario=scenario, quantities=quantities, curves=curves_of(scenario.name, dose, scale, best, over))


def _oracle(world: DoseResponseWorld, risk: Any) -> float:
    """The scale that a share `risk` of the units does not tolerate."""
    from scipy.special import ndtri, stdtrit

    return math.exp(world.spread * float(stdtrit(2.0, risk) if world.tails == "t2" else ndtri(risk)))


def _intolerant(world: DoseResponseWorld, scale: Any) -> Any:
    """The share of units that do not tolerate a scale."""
    from scipy.special import ndtr, stdtr

    size = np.log(scale) / world.spread
    return stdtr(2.0, size) if world.tails == "t2" else ndtr(size)
