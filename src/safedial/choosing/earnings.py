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
from safedial.core.spec import CONSTANTS, SafetySpec
from safedial.planning.bracket_plan import bracket_scenarios, in_scales
from safedial.policies import Policy
from safedial.policies.clairvoyant import clairvoyant
from safedial.policies.several_costs import takes_costs
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
    """The expected share of the clairvoyant's reward with its 95 % interval, where eight of ten studies lie, the share
    of what is attainable by one who has the sign of the reward to learn (`simulation.attainable`; None: not known), the
    rate of excesses with its interval, and the share up to some rounds.
    """

    share: float
    share_low: float
    share_high: float
    study_low: float
    study_high: float
    attainable_share: float | None
    rate: float
    rate_low: float
    rate_high: float
    curve: list[dict[str, float]]

    def __repr__(self) -> str:
        return f"Forecast(share={self.share:.3f}, interval=({self.share_low:.3f}, {self.share_high:.3f}))"


def scene(policy: Policy, stated: SafetySpec, user: Situation) -> Scene | None:
    """How a policy under the user's spec is simulated; None where its several costs cannot be."""
    if user.bracketed:
        policy, spec = in_scales(policy, stated, user.assumed)
        return Scene(policy, DoseResponseWorld(**bracket_scenarios(policy, spec, user.assumed)[0].world), spec, LINE)
    known = all(cost.noise is not None for cost in (stated.costs or {}).values())
    if user.several and not (known and takes_costs(policy, stated, with_constants=True)):
        return None
    known = {**user.constants, **user.assumed}
    given = {name: known[name] for name in user.needed if name != ODDS and getattr(stated, name) is None}
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
        risks: dict[str, Any] = {"violation_risk": user.risk, "estimation_risk": user.risk}
        spec = SafetySpec(**{name: getattr(spec, name) for name in ("threshold", "costs", *CONSTANTS)}, **risks)
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
    low, high = (float(end) for end in np.quantile(one, STUDIES))
    most = known.attainable_reward
    attained = None if most is None else float(earned[-1].mean() / most[0].mean())
    rate = (float(run.violations.mean() / user.rounds), *violation_interval(run.violations, user.rounds))
    return Forecast(*shares[-1], low, high, attained, *rate, curve)


def _share(earned: Array, possible: Array) -> tuple[float, float, float]:
    """The ratio of two means over studies, and its 95 % interval (linearised, Student's t)."""
    total = max(float(possible.mean()), 1e-300)
    share = float(earned.mean()) / total
    low, high = seed_interval((earned - share * possible) / total)
    return share, share + low, share + high
