"""The log of a simulated run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safedial.core.dose import Dose, DoseCurve
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.policies import Policy
from safedial.rounds_io import Log
from safedial.seeds import Seeds
from safedial.simulation.run import Simulation, simulate
from safedial.worlds.world import World


def simulated_log(
    policy: str | Policy,
    world: World,
    spec: SafetySpec,
    *,
    rounds: int,
    seed: int = 0,
    dose: DoseCurve | Dose | None = None,
) -> Log:
    """The log of one simulated run, an example for every command that reads logs.

    >>> from safedial.worlds import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=50)
    >>> len(log), log.names
    (50, ('x1', 'x2', 'x3'))
    """
    log, _ = logged_simulation(policy, world, spec, rounds=rounds, seeds=[seed], dose=dose)
    return log


def logged_simulation(
    policy: str | Policy,
    world: World,
    spec: SafetySpec,
    *,
    rounds: int,
    seeds: Seeds,
    dose: DoseCurve | Dose | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Log, Simulation]:
    """`simulate` with these options, and the log of its first spec row and seed."""
    require(spec.costs is None, "costs", list(spec.costs or ()), "have no log", "simulate, and record what was played")
    chunks: list[Any] = []
    result = simulate(
        policy, world, spec, rounds=rounds, seeds=seeds, dose=dose, progress=progress, record=chunks.append
    )
    parts = [np.concatenate([getattr(chunk, name)[:, 0, 0] for chunk in chunks]) for name in chunks[0]._fields]
    context, action, reward, cost = parts
    log = Log(
        names=tuple(f"x{number}" for number in range(1, world.dim + 1)),
        context=context,
        action=action,
        reward=reward,
        cost=cost,
        round=np.arange(1.0, len(action) + 1.0),
        advised=action,
        baseline_cost=np.full(len(action), world.baseline_cost),
    )
    return log, result
