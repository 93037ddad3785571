"""What each policy would earn: simulations of the user's plan, all policies on the same rounds.

The world is the user's: dimension, rounds, risk, noise, S and L as stated or assumed; contexts drift where rounds are
not exchangeable, and means bend where they are not linear. With a bracket it is a world of doses and tolerances, as in
`safedial plan`. Shares are of the reward of a clairvoyant that knows the truth and the law of the noise, at the same
risk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.choosing.situation import ODDS, Situation
from safedial.core.dose import Dose, identity
from safedial.core.spec import SafetySpec
from safedial.planning.bracket_plan import bracket_scenarios, in_scales
from safedial.policies import Policy
from safedial.policies.clairvoyant import clairvoyant
from safedial.simulation.run import Simulation, simulate
from safedial.stats import seed_interval, violation_interval
from safedial.worlds.dose_response import DoseResponseWorld
from safedial.worlds.linear import LinearWorld
from safedial.worlds.nonlinear import NonlinearWorld
from safedial.worlds.world import World

Array = NDArray[np.float64]

POINTS = 40
STUDIES = (0.1, 0.9)
"""The quantiles over studies that are shown beside a mean."""


class Scene(NamedTuple):
    """A policy as it is simulated."""

    policy: Policy
    world: World
    spec: SafetySpec
    dose: Dose


class Forecast(NamedTuple):
    """The expected share of the clairvoyant's reward with its 95 % interval, where eight of ten studies lie, the rate
    of excesses with its interval, the share up to some rounds, and the share of the attainable reward, of one who knows
    the cost and has only the reward's sign to learn (None where there is none).
    """

    share: float
    share_low: float
    share_high: float
    study_low: float
    study_high: float
    rate: float
    rate_low: float
    rate_high: float
    curve: list[dict[str, float]]
    attainable_share: float | None = None

    def __repr__(self) -> str:
        return f"Forecast(share={self.share:.3f}, interval=({self.share_low:.3f}, {self.share_high:.3f}))"


def scene(policy: Policy, stated: SafetySpec, user: Situation) -> Scene | None:
    """How a policy under the user's spec is simulated; None if several costs cannot be."""
    if user.bracketed:
        policy, spec = in_scales(policy, stated, user.assumed)
        return Scene(policy, DoseResponseWorld(**bracket_scenarios(policy, spec, user.assumed)[0].world), spec, LINE)
    if user.several:
        return None
    given = {name: value for name, value in user.assumed.items() if name != ODDS}
    spec = replace(stated, **given)
    if user.zero_one:
        world = NonlinearWorld(kind="logistic", dim=user.dim, odds={**user.constants, **user.assumed}[ODDS])
        return Scene(policy, world, spec, user.dose)
    contexts = "iid" if "exchangeable" in user.vouched else "drift"
    mean = "linear" if "linear" in user.vouched else "sine"
    return Scene(policy, LinearWorld(dim=user.dim, contexts=contexts, mean=mean), spec, user.dose)


LINE = Dose.of(identity())


def best(played: Scene, user: Situation, *, seeds: Any) -> Simulation:
    """The clairvoyant's rounds, at the whole risk."""
    spec = played.spec
    if not user.bracketed:
        numbers = {name: getattr(spec, name) for name in ("reward_noise", "cost_noise", "coefficient_bound")}
        numbers |= {"context_bound": spec.context_bound, "estimation_risk": user.risk}
        spec = SafetySpec(threshold=spec.threshold, violation_risk=user.risk, **numbers)
    policy = clairvoyant(binary_cost=played.world.binary_cost)
    return simulate(policy, played.world, spec, rounds=user.rounds, seeds=seeds, dose=played.dose, points=POINTS)


def forecast(
    played: Scene, known: Simulation, user: Situation, *, seeds: Any, progress: Callable[[int], None] | None
) -> Forecast:
    """Simulate a scene; `known` is what was best in the same rounds."""
    run = simulate(
        played.policy,
        played.world,
        played.spec,
        rounds=user.rounds,
        seeds=seeds,
        dose=played.dose,
        points=POINTS,
        progress=progress,
    )
    earned, possible = run.reward_curve[:, 0], known.exact_clairvoyant_reward_curve[:, 0]
    shares = [_share(*each) for each in zip(earned, possible, strict=True)]
    named = ("share", "share_low", "share_high")
    curve = [
        {"round": int(at), **dict(zip(named, each, strict=True))}
        for at, each in zip(run.checkpoints, shares, strict=True)
    ]
    one = earned[-1] / np.maximum(possible[-1], 1e-300)
    least, most = (float(end) for end in np.quantile(one, STUDIES))
    rate = (float(run.violations.mean() / user.rounds), *violation_interval(run.violations, user.rounds))
    most_earned = known.attainable_reward
    attained = None if most_earned is None else float(run.reward.sum() / most_earned.sum())
    return Forecast(*shares[-1], least, most, *rate, curve, attained)


def _share(earned: Array, possible: Array) -> tuple[float, float, float]:
    """The ratio of two means over studies, and its 95 % interval (linearised, Student's t)."""
    total = max(float(possible.mean()), 1e-300)
    share = float(earned.mean()) / total
    low, high = seed_interval((earned - share * possible) / total)
    return share, share + low, share + high
