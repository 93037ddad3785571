"""Simulations as tidy tables: one row for each observation, with every setting under a plain name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from safedial.core.spec import NAMES
from safedial.core.spec_grid import SWEPT, one_row
from safedial.decision.rules import shortest_dose, write_parts
from safedial.errors import require
from safedial.notebook import data_frame
from safedial.policies import shown_spec
from safedial.simulation.logged import play_one
from safedial.simulation.rule import CURVES

if TYPE_CHECKING:
    from pandas import DataFrame

    from safedial.simulation.run import Simulation

FIRST = ("policy", "world", "dim", "rounds", *SWEPT)
"""The columns that come first."""

RESULTS = ("violation_rate", "regret", "reward", "clairvoyant_reward", "informative_rounds", "uncertified_rounds")
POOLED = ("seeds", "ci_low", "ci_high", "regret_low", "regret_high", "reward_share", "attainable_share")
"""What a row of a sweep has beside."""

COMPARED = ("excess_rate", "regret", "share", "excess_difference", "regret_difference")
"""The numbers of a comparison, each with the ends of its interval."""

TAKEN = {"policy", "world", "dose", "rounds", "engine", "device", "draws", "dtype", "interrupted", "seed", "round"}
TAKEN |= {*NAMES, *RESULTS, *POOLED, *CURVES, "attainable_reward", "promised_risk", "level"}
TAKEN |= {f"{name}{end}" for name in COMPARED for end in ("", "_low", "_high")}
"""The names of columns that no field of a world may have."""


def flatten(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cell of a sweep, or of a simulation, under plain names: a policy's options under policy_…, the
    world's name under `world`, its fields under their names, or under world_… where a setting or a result has that.
    """
    options = {f"policy_{name}": value for name, value in cell["policy"].items() if name != "name"}
    dose = json.dumps(cell["dose"]) if len(cell["dose"]) > 1 else cell["dose"]["curve"]
    return {
        "policy": cell["policy"]["name"],
        **cell["spec"],
        **{_field(name): value for name, value in cell["world"].items()},
        **options,
        "dose": dose,
        "rounds": cell["rounds"],
    }


def _field(name: str) -> str:
    """The column of a world's field."""
    taken = name in TAKEN or name.startswith(("policy_", "stated_", "world_"))
    return "world" if name == "name" else f"world_{name}" if taken else name


def settings(run: Simulation, row: int = 0) -> dict[str, Any]:
    """Everything that a simulation was made from, for one spec row: options, ridge, noise, the world's name and fields,
    the engine; under stated_… what the policy decided by where that differs.
    """
    form = write_parts({"policy": run.policy, "spec": one_row(run.spec, row), "dose": run.dose})
    spec = shown_spec(run.policy, form["spec"])
    world = {"name": run.world.name} | run.world.to_dict()
    flat = flatten({**form, "spec": spec, "world": world, "dose": shortest_dose(form["dose"]), "rounds": run.rounds})
    flat |= {"engine": run.engine, "draws": run.draws, "interrupted": run.interrupted}
    flat |= _stated(run, row)
    ordered = {name: flat[name] for name in FIRST if name in flat} | flat
    return {name: json.dumps(value) if isinstance(value, dict) else value for name, value in ordered.items()}


def _stated(run: Simulation, row: int) -> dict[str, Any]:
    """What the policy decided by, for one spec row: the fields that differ from the world's in any row."""
    if run.stated is None:
        return {}
    whole = write_parts({"spec": run.spec, "stated": run.stated, "row": one_row(run.stated, row)})
    true, stated, shown = whole.values()
    return {f"stated_{name}": shown.get(name) for name in true | stated if true.get(name) != stated.get(name)}


def frame(run: Simulation) -> DataFrame:
    """One row for each (spec row, seed)."""
    table = _columns(run, 1)
    table["violation_rate"] = (run.violations / run.rounds).ravel()
    for name in RESULTS[1:]:
        table[name] = getattr(run, name).ravel()
    most = run.attainable_reward
    table["attainable_reward"] = np.full(run.violations.size, np.nan) if most is None else most.ravel()
    return data_frame(table)


def curves(run: Simulation) -> DataFrame:
    """One row for each (spec row, seed, checkpoint); sums up to that round."""
    table = _columns(run, len(run.checkpoints))
    table["round"] = np.tile(run.checkpoints, run.violations.size)
    for name in CURVES:
        table[name] = np.moveaxis(getattr(run, f"{name}_curve"), 0, -1).ravel()
    return data_frame(table)


def _columns(run: Simulation, points: int) -> dict[str, Any]:
    """The settings and the seed of each row of a table."""
    rows, seeds = run.violations.shape
    each = [settings(run, row) for row in range(rows)]
    table: dict[str, Any] = {name: np.repeat([one[name] for one in each], seeds * points) for name in each[0]}
    return table | {"seed": np.repeat(np.tile(run.seeds, rows), points)}


def trajectory(run: Simulation, seed: int | None, row: int) -> DataFrame:
    """Every round of one seed and one spec row, played again."""
    chosen = run.seeds[0] if seed is None else seed
    require(chosen in run.seeds, "seed", seed, "was not simulated", f"choose from {run.seeds}")
    rows = len(run.violations)
    require(type(row) is int and 0 <= row < rows, "row", row, f"must be a whole number from 0 to {rows - 1}")
    words = "drew its worlds on a device and keeps no rounds"
    require(run.draws == "numpy", "draws", run.draws, words, "simulate with draws='numpy'")
    played = play_one(run, int(chosen), row)
    table: dict[str, Any] = {"round": np.arange(1, len(played.action) + 1)}
    table |= {f"x{number}": column for number, column in enumerate(played.context.T, start=1)}
    table |= {"action": played.action, "reward": played.reward}
    costs = played.cost if isinstance(played.cost, dict) else {"": played.cost}
    table |= {f"cost_{name}" if name else "cost": values for name, values in costs.items()}
    return data_frame(table)
