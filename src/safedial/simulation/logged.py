"""The log of a simulated run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from safedial.core.dose import Dose, DoseCurve
from safedial.core.spec import SafetySpec
from safedial.core.spec_grid import one_row
from safedial.errors import require
from safedial.policies import Policy
from safedial.rounds_io import Log
from safedial.seeds import Seeds
from safedial.simulation.engines import USUAL
from safedial.simulation.loop import Played
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


def play_one(run: Simulation, seed: int, row: int) -> Played:
    """The rounds of one seed and spec row of a simulation, played again."""
    chunks: list[Played] = []
    stated = None if run.stated is None else one_row(run.stated, row)
    told: dict[str, Any] = {"rounds": run.rounds, "seeds": [seed], "dose": run.dose, "points": 1, "stated": stated}
    simulate(run.policy, run.world, one_row(run.spec, row), **told, record=chunks.append)
    return _joined(chunks)


def _joined(chunks: list[Played]) -> Played:
    """Chunks of rounds as one, of the first spec row and seed."""
    context, action, reward = (np.concatenate([chunk[part][:, 0, 0] for chunk in chunks]) for part in range(3))
    costs: list[Any] = [chunk.cost if isinstance(chunk.cost, dict) else {"": chunk.cost} for chunk in chunks]
    joined = {name: np.concatenate([each[name][:, 0, 0] for each in costs]) for name in costs[0]}
    return Played(context, action, reward, joined.get("", joined))  # pyright: ignore[reportArgumentType] -- by name


def logged_simulation(
    policy: str | Policy,
    world: World,
    spec: SafetySpec,
    *,
    rounds: int,
    seeds: Seeds,
    dose: DoseCurve | Dose | None = None,
    progress: Callable[[int], None] | None = None,
    how: Mapping[str, Any] = USUAL,
) -> tuple[Log, Simulation]:
    """`simulate` with these options, and the log of its first spec row and seed. `how`: engine, device, draws and dtype
    of `simulate`.
    """
    require(spec.costs is None, "costs", list(spec.costs or ()), "have no log", "simulate, and record what was played")
    chunks: list[Played] = []
    result = simulate(
        policy, world, spec, rounds=rounds, seeds=seeds, dose=dose, progress=progress, record=chunks.append, **how
    )
    context, action, reward, cost = _joined(chunks)
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
