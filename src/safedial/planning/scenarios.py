"""Scenarios: what may be true, compared with what the spec states.

A scenario changes the world, not the policy: the policy uses the stated constants, the world the true ones. If the
truth lies within what is stated, the promise holds; if not, the table shows what is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from safedial.core.promise import PROMISES
from safedial.core.spec import CONSTANTS, SafetySpec
from safedial.errors import InvalidInput, require
from safedial.policies import Policy
from safedial.simulation.proved import margin_holds, promise_holds
from safedial.simulation.run import check_learner
from safedial.worlds.linear import LinearWorld
from safedial.worlds.world import NOISY, Exposure, World, generators


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A name, multiples of the spec's constants, and options of `LinearWorld`."""

    name: str
    words: str
    factors: dict[str, float] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)

    def true_spec(self, stated: SafetySpec) -> SafetySpec:
        """The constants of the world."""
        return true_spec(self.factors, stated)


def true_spec(factors: Mapping[str, float], stated: SafetySpec) -> SafetySpec:
    """The spec with multiples of its constants."""
    return replace(stated, **{name: factor * getattr(stated, name) for name, factor in factors.items()})


TRIED = 50
"""The rounds in which a world of the user's own is tried."""

NOISES = ("reward_noise", "cost_noise")

SCENARIOS = (
    Scenario(name="as stated", words="Gaussian noise of deviation κ, coefficients of norm S, contexts at random"),
    Scenario(
        name="milder truth",
        words="half the noise, coefficients of half the norm",
        factors={**dict.fromkeys(NOISES, 0.5), "coefficient_bound": 0.5},
    ),
    Scenario(
        name="worst contexts",
        words="an adversary sends the context whose cost is underestimated most",
        world={"contexts": "adversarial"},
    ),
    Scenario(name="drifting contexts", words="contexts turn towards one axis", world={"contexts": "drift"}),
    Scenario(name="two-point noise", words="noise ±κ", world={"noise": "rademacher"}),
    Scenario(name="noise 2 κ", words="the noise is twice as wide as stated", factors=dict.fromkeys(NOISES, 2.0)),
    Scenario(name="norm 2 S", words="coefficients twice as long as stated", factors={"coefficient_bound": 2.0}),
    Scenario(
        name="heavy tails", words="Student's t with 3 degrees of freedom, of deviation κ", world={"noise": "student-t3"}
    ),
    Scenario(name="bent mean", words="means are a sine of the linear ones", world={"mean": "sine"}),
)


WITHIN_A_RANGE = {"truncated": "cut Gaussian", "uniform": "uniform", "rademacher": "two-point"}
"""Noise families with ends, and their names in words."""


def scenarios_for(policy: Policy, spec: SafetySpec) -> tuple[Scenario, ...]:
    """The scenarios that can be simulated: an adversary needs a policy with a linear learner. If the spec bounds the
    noise, it is not Gaussian but of the first family in `WITHIN_A_RANGE` that lies in the range.
    """
    possible = [each for each in SCENARIOS if not each.world or _can_be_played(each, policy, spec)]
    return tuple(_bounded(each, spec) if spec.margin == "bounded" else each for each in possible)


def _can_be_played(scenario: Scenario, policy: Policy, spec: SafetySpec) -> bool:
    try:
        check_learner(policy, LinearWorld(dim=1, **scenario.world), spec)
    except InvalidInput:
        return False
    return True


def _bounded(scenario: Scenario, spec: SafetySpec) -> Scenario:
    if "noise" in scenario.world:
        return scenario
    inside = (name for name in WITHIN_A_RANGE if margin_holds(spec, LinearWorld(dim=1, noise=name)))
    chosen = next(inside, "rademacher")
    words = scenario.words.replace("Gaussian", WITHIN_A_RANGE[chosen])
    return replace(scenario, words=words, world={**scenario.world, "noise": chosen})


def scenarios_in(place: World, spec: SafetySpec) -> tuple[Scenario, ...]:
    """The scenarios for a world of the user's own: those that change constants alone, of those that it uses; one that
    changes others too says so, and one that changes only others would be the first again.
    """
    possible = [each for each in SCENARIOS if not each.world]
    idle = {name for name in {name for each in possible for name in each.factors} if not _uses(place, name, spec)}
    return tuple(_without(each, idle) for each in possible if not each.factors or set(each.factors) - idle)


def left_out(played: Sequence[Scenario]) -> tuple[str, ...]:
    """The names of those that `scenarios_in` left out because they change nothing."""
    names = {each.name for each in played}
    return tuple(each.name for each in SCENARIOS if each.factors and each.name not in names)


def _without(scenario: Scenario, idle: set[str]) -> Scenario:
    unused = [name for name in scenario.factors if name in idle]
    if not unused:
        return scenario
    words = f"{scenario.words}; this world does not use {', '.join(unused)}"
    factors = {name: factor for name, factor in scenario.factors.items() if name not in idle}
    return replace(scenario, words=words, factors=factors)


def _uses(place: World, constant: str, spec: SafetySpec) -> bool:
    """Whether half of a constant gives other contexts, means or outcomes of a full dose, in a few rounds. A world that
    refuses these rounds is taken to use it, and refuses them again when it is simulated.
    """
    if constant not in place.constants or getattr(spec, constant) is None:
        return False
    try:
        stated, halved = (_few_rounds(place, each) for each in (spec, true_spec({constant: 0.5}, spec)))
    except Exception:  # whatever the user's world does
        return True
    return not all(map(np.array_equal, stated, halved))


def _few_rounds(place: World, spec: SafetySpec) -> list[Any]:
    rngs = generators([0, 1])
    truth, draws = place.draw_truth(spec, rngs), place.draw_chunk(spec, rngs, TRIED)
    context = draws.context[..., 0, :] if place.adversarial else draws.context
    means = place.means(spec, truth, context)
    noise = (getattr(draws, stream)[:, None] for stream in NOISY)
    full = np.ones((TRIED, 1, 2))
    gain, harm = (np.asarray(mean)[:, None] for mean in means)
    reward, cost, _ = place.outcome(spec, Exposure(context[:, None], gain, harm, full, full, *noise))
    return [context, *means, reward, *(cost.values() if isinstance(cost, Mapping) else (cost,))]


def complete(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> SafetySpec:
    """The spec with all constants that a simulated world needs: stated or assumed."""
    odd = [name for name in assumed if name not in CONSTANTS or getattr(spec, name) is not None]
    require(not odd, "assumed", odd, "are already stated, or not constants", "assume " + ", ".join(CONSTANTS))
    lacking = [name for name in CONSTANTS if getattr(spec, name) is None and name not in assumed]
    options = ", ".join(f"--{name.replace('_', '-')}" for name in lacking)
    way_out = (
        f"assume them: {options} (in Python, assumed=); safedial calibrate proposes them from a pilot. The forecast "
        "depends on them; the promise does not"
    )
    require(not lacking, "spec", lacking, "are not stated, and a forecast needs a simulated world", way_out)
    unknown = spec.cost_noise is None or spec.coefficient_bound is None
    uncertified = unknown and PROMISES[policy.promise].exchangeable
    started = not uncertified or policy.options["start_dose"] is not None
    way_out = "declare an intensity that is safe for every context, for example start_dose = 0.05 under [[policy]]"
    require(started, "start_dose", None, "is missing: assumed constants cannot certify the start", way_out)
    return replace(spec, **assumed)


def promise_kept(policy: Policy, scenario: Scenario, stated: SafetySpec) -> bool:
    """Whether the policy's promise on the realized cost is proved in that scenario."""
    world = LinearWorld(dim=1, **scenario.world)
    return promise_holds(policy, world, stated, true=scenario.true_spec(stated))
