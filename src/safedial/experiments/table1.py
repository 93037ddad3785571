"""The paper's Table 1: how often each policy lets the realized cost exceed τ.

The paper prints the world, λ = 1, 10⁴ rounds and 5 seeds; it does not print the noise, the risks or the bounds. Unit
noise, δ = δ′ = 0.01 and S = L = 1 reproduce it (docs/reproduction.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safedial.core.spec import SafetySpec
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import make_policy
from safedial.simulation.simulate import simulate
from safedial.stats import violation_interval
from safedial.worlds.linear import LinearWorld

THRESHOLDS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
POLICIES = ("hp_ucb", "on_expectation")

PAPER = {
    "hp_ucb": [(0.0002, 0.0001, 0.0002)] * 10,
    "on_expectation": [
        (0.2392, 0.2354, 0.2430),
        (0.2313, 0.2272, 0.2355),
        (0.2224, 0.2179, 0.2269),
        (0.2126, 0.2077, 0.2176),
        (0.2016, 0.1964, 0.2067),
        (0.1890, 0.1834, 0.1946),
        (0.1763, 0.1705, 0.1821),
        (0.1621, 0.1563, 0.1678),
        (0.1472, 0.1419, 0.1525),
        (0.1324, 0.1274, 0.1374),
    ],
}
"""Rate and 95 % interval by threshold, from Dragazis and Pacchiano, "Safety by Design", Table 1."""

PAPER_ROUNDING = 1e-4

COLUMNS: tuple[str, ...] = (
    "threshold",
    "policy",
    "dim",
    "seeds",
    "violation_rate",
    "ci_low",
    "ci_high",
    "paper_rate",
    "paper_ci_low",
    "paper_ci_high",
    "overlaps_paper",
)


def table1_spec() -> SafetySpec:
    """The inferred settings of the paper's synthetic experiments, all thresholds at once."""
    return SafetySpec(
        threshold=THRESHOLDS,
        violation_risk=0.01,
        estimation_risk=0.01,
        reward_noise=1.0,
        cost_noise=1.0,
        coefficient_bound=1.0,
        context_bound=1.0,
        ridge=1.0,
    )


def table1(
    *, dim: int = 5, seeds: int = 5, rounds: int = 10_000, progress: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """The rows of the table, ours beside the paper's."""
    rows: list[dict[str, Any]] = []
    spec = table1_spec()
    for name in POLICIES:
        run = simulate(
            make_policy(name, radius="paper"), LinearWorld(dim=dim), spec, rounds=rounds, seeds=seeds, progress=progress
        )
        for index, threshold in enumerate(THRESHOLDS):
            low, high = violation_interval(run.violations[index], rounds)
            paper_rate, paper_low, paper_high = PAPER[name][index]
            values = (
                threshold,
                name,
                dim,
                seeds,
                float(run.violations[index].mean() / rounds),
                low,
                high,
                paper_rate,
                paper_low,
                paper_high,
                low <= paper_high + PAPER_ROUNDING and paper_low - PAPER_ROUNDING <= high,
            )
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def write_table1(
    out: str | Path, *, dim: int, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> tuple[list[dict[str, Any]], list[Path]]:
    """Run, then write `table1.csv` and `table1.provenance.json` under `out`."""
    folder = output_folder(out)
    started = time.perf_counter()
    rows = table1(dim=dim, seeds=seeds, rounds=rounds, progress=progress)
    settings = {"dim": dim, "seeds": list(range(seeds)), "rounds": rounds, "radius": "paper", **table1_spec().to_dict()}
    return rows, [
        write_rows(folder / "table1.csv", rows),
        write_json(folder / "table1.provenance.json", provenance(settings, time.perf_counter() - started)),
    ]
