"""One cell: run it, keep its result in a file named by its key, and detect a damaged file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safedial.io import write_text
from safedial.simulation.run import simulate
from safedial.sweep.grid import build, cell_key

RESULTS = ("violations", "informative_rounds", "uncertified_rounds", "regret", "reward", "clairvoyant_reward")


def run_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a cell: plain lists with one number per seed, and curves by checkpoint and seed; where the cell
    names an engine, also the one that played. It holds no times, so the same cell gives the same bytes on every machine
    with the same build.
    """
    run = simulate(**build(cell))
    most = run.attainable_reward
    return {
        **{name: getattr(run, name)[0].tolist() for name in RESULTS},
        **({} if most is None else {"attainable_reward": most[0].tolist()}),
        **({"engine": [run.engine]} if "engine" in cell else {}),
        "checkpoints": run.checkpoints.tolist(),
        "regret_curve": run.regret_curve[:, 0].tolist(),
        "violations_curve": run.violations_curve[:, 0].tolist(),
    }


def cell_path(folder: Path, cell: Mapping[str, Any]) -> Path:
    return folder / "cells" / f"{cell_key(cell)}.json"


def write_cell(folder: Path, cell: Mapping[str, Any], result: Mapping[str, Any]) -> Path:
    """Write the whole file or nothing; its digest lets `read_cell` detect damage."""
    path = cell_path(folder, cell)
    content = {"cell": cell, "result": result}
    return write_text(path, json.dumps({**content, "digest": _digest(content)}) + "\n")


def read_cell(path: Path) -> dict[str, Any] | None:
    """{"cell", "result"} of an intact file; None for a missing or damaged one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        digest = content.pop("digest")
        intact = digest == _digest(content) and cell_key(content["cell"]) == path.stem
        return content if intact else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
