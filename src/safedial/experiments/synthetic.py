"""The paper's figure "synthetic": cumulative constrained regret, d in {5, 10}, τ = 0.5; then every policy we have.

The settings are those of Table 1 (docs/reproduction.md). The paper's ε-greedy can be read two ways (`learn_from`), so
both are drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from safedial.core.spec import SafetySpec
from safedial.experiments.table1 import table1_spec
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import make_policy
from safedial.simulation.simulate import simulate
from safedial.stats import seed_interval
from safedial.theory.regret import regret_bound
from safedial.worlds.linear import LinearWorld

DIMS = (5, 10)
THRESHOLD = 0.5

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {"radius": "paper"}),
    "ε-Greedy": ("epsilon_greedy", {"radius": "paper", "epsilon": 0.5}),
    "ε-Greedy, exploring rounds only": (
        "epsilon_greedy",
        {"radius": "paper", "epsilon": 0.5, "learn_from": "exploring"},
    ),
    "HP-UCB, mixture": ("hp_ucb", {}),
    "Thompson": ("thompson", {}),
    "HP-Probe": ("hp_probe", {}),
    "HP-Conformal": ("hp_conformal", {}),
    "First action for ever": ("fixed", {}),
    "On-Expectation": ("on_expectation", {"radius": "paper"}),
}
"""Name in the legend → policy and options. The first two are the paper's figure. HP-Conformal may beat the sub-Gaussian
clairvoyant, whom regret is measured against; On-Expectation may too, because it breaks the promise."""


def synthetic_spec() -> SafetySpec:
    return replace(table1_spec(), threshold=THRESHOLD)


def synthetic_rows(
    *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> Iterator[dict[str, Any]]:
    """One row for each dimension, series and checkpoint: mean regret with its 95 % interval over seeds, violations."""
    spec = synthetic_spec()
    for dim in DIMS:
        for series, (name, options) in SERIES.items():
            policy = make_policy(name, **options)
            run = simulate(
                policy, LinearWorld(dim=dim), spec, rounds=rounds, seeds=seeds, points=100, progress=progress
            )
            bound = regret_bound(dim, run.checkpoints, spec, radius="paper")
            for index, checkpoint in enumerate(run.checkpoints.tolist()):
                regret = run.regret_curve[index, 0]
                low, high = seed_interval(regret)
                yield {
                    "dim": dim,
                    "series": series,
                    "policy": name,
                    "round": checkpoint,
                    "regret": float(np.mean(regret)),
                    "regret_low": low,
                    "regret_high": high,
                    "violation_rate": float(run.violations_curve[index, 0].mean() / checkpoint),
                    "final_reward_share": float(run.reward.mean() / run.clairvoyant_reward.mean()),
                    "theorem_2": float(bound[index]) if series == "HP-UCB" else "",
                    "seeds": seeds,
                }


def write_synthetic(
    out: str | Path, *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> list[Path]:
    """`synthetic.csv` and `synthetic.provenance.json` under `out`."""
    folder = output_folder(out)
    started = time.perf_counter()
    rows = list(synthetic_rows(seeds=seeds, rounds=rounds, progress=progress))
    settings = {"dims": DIMS, "seeds": list(range(seeds)), "rounds": rounds, **synthetic_spec().to_dict()}
    return [
        write_rows(folder / "synthetic.csv", rows),
        write_json(folder / "synthetic.provenance.json", provenance(settings, time.perf_counter() - started)),
    ]
