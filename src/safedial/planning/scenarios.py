"""Scenarios: what may be true, compared with what the spec states.

A scenario changes the world, not the policy: the policy uses the stated constants, the world the true ones. If the
truth lies within what is stated, the promise holds; if not, the table shows what is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput
from safedial.policies import Policy
from safedial.simulation.proved import margin_holds, promise_holds
from safedial.simulation.run import check_learner
from safedial.worlds.linear import LinearWorld


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A name, multiples of the spec's constants, and options of `LinearWorld`."""

    name: str
    words: str
    factors: dict[str, float] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)

    def true_spec(self, stated: SafetySpec) -> SafetySpec:
        """The constants of the world."""
        return replace(stated, **{name: factor * getattr(stated, name) for name, factor in self.factors.items()})


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


def promise_kept(policy: Policy, scenario: Scenario, stated: SafetySpec) -> bool:
    """Whether the policy's promise on the realized cost is proved in that scenario."""
    world = LinearWorld(dim=1, **scenario.world)
    return promise_holds(policy, world, stated, true=scenario.true_spec(stated))
