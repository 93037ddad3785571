"""What a sweep's folder holds, as one tidy table: a row for each policy × spec × world, seeds pooled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safedial.errors import require
from safedial.io import write_rows
from safedial.simulation.tidy import flatten
from safedial.stats import seed_interval, violation_interval
from safedial.sweep.cell import cell_path, read_cell
from safedial.sweep.engine import read_stored_grid
from safedial.sweep.grid import Grid

NUMBERS = (
    "seeds",
    "uncertified_rounds",
    "violation_rate",
    "ci_low",
    "ci_high",
    "regret",
    "regret_low",
    "regret_high",
    "reward",
    "clairvoyant_reward",
    "reward_share",
    "attainable_share",
)


def sweep_rows(folder: str | Path, grid: Grid | None = None) -> list[dict[str, Any]]:
    """One row for each combination of `grid` (by default the folder's own), from the intact cells."""
    grid = grid or read_stored_grid(Path(folder))
    groups: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {}
    for cell in grid.cells:
        found = read_cell(cell_path(Path(folder), cell))
        if found is None:
            continue
        settings = {name: value for name, value in cell.items() if name != "seeds"}
        _, pooled = groups.setdefault(json.dumps(settings, sort_keys=True), (flatten(cell), {}))
        for name, values in found["result"].items():
            if not name.endswith(("curve", "checkpoints")):
                pooled.setdefault(name, []).extend(values)
    return [{**flat, **_pooled(flat, pooled)} for flat, pooled in groups.values()]


def varying(rows: list[dict[str, Any]]) -> list[str]:
    """The settings that take more than one value, policy options included."""
    names = {name: None for row in rows for name in row if name not in NUMBERS}
    return [name for name in names if len({json.dumps(row.get(name)) for row in rows}) > 1]


def write_table(folder: str | Path, grid: Grid | None = None) -> Path:
    """`sweep.csv` in the sweep's folder."""
    rows = sweep_rows(folder, grid)
    require(rows, "folder", str(folder), "holds no finished cell yet", "run the sweep first")
    return write_rows(Path(folder) / "sweep.csv", rows)


def _pooled(flat: dict[str, Any], pooled: dict[str, list[Any]]) -> dict[str, Any]:
    seeds, rounds = len(pooled["violations"]), flat["rounds"]
    means = {name: sum(pooled[name]) / seeds for name in ("regret", "reward", "clairvoyant_reward")}
    low, high = violation_interval(pooled["violations"], rounds)
    best, most = means["clairvoyant_reward"], pooled.get("attainable_reward", [])
    known = len(most) == seeds and sum(most) > 0.0  # cells kept from before have none
    return {
        **({"engine": " and ".join(sorted(set(pooled["engine"])))} if "engine" in pooled else {}),
        "seeds": seeds,
        "uncertified_rounds": sum(pooled["uncertified_rounds"]) / seeds,
        "violation_rate": sum(pooled["violations"]) / seeds / rounds,
        "ci_low": low,
        "ci_high": high,
        "regret": means["regret"],
        **dict(zip(("regret_low", "regret_high"), seed_interval(pooled["regret"]), strict=True)),
        **means,
        "reward_share": means["reward"] / best if best > 0 else None,
        "attainable_share": sum(pooled["reward"]) / sum(most) if known else None,
    }
