"""Reward against violations in every world: what each promise costs, and where it does not hold.

τ = 0.5, d = 5, a total risk of 0.05 a round for every policy: δ + δ′ for the certified ones, δ for HP-Conformal. Reward
is counted in shares of one who knows θ*, μ* and the exact noise quantile at 0.05.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safedial.core.spec import SafetySpec
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import make_policy
from safedial.simulation.proved import promise_holds
from safedial.simulation.simulate import Simulation, simulate
from safedial.stats import violation_interval
from safedial.worlds.linear import LinearWorld

DIM = 5
RISK = 0.05

WORLDS: dict[str, dict[str, Any]] = {
    "Gaussian noise": {},
    "Student-t(3) noise": {"noise": "student-t3"},
    "exponential noise": {"noise": "exponential"},
    "noise depends on context": {"noise": "context-scale"},
    "mean is not linear": {"mean": "sine"},
    "contexts drift": {"noise": "context-scale", "contexts": "drift"},
}

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {}),
    "HP-Probe": ("hp_probe", {}),
    "HP-Conformal": ("hp_conformal", {}),
    "HP-Conformal, scaled": ("hp_conformal", {"scaled": True}),
    "HP-Conformal, full": ("hp_conformal", {"form": "full"}),
    "On-Expectation": ("on_expectation", {}),
}


def conformal_spec(promise: str) -> SafetySpec:
    """The same risk for every promise."""
    conformal = promise == "conformal"
    return SafetySpec(
        threshold=0.5,
        violation_risk=RISK if conformal else None,
        total_risk=None if conformal else RISK,
        promise="conformal" if conformal else "certified",
        reward_noise=1.0,
        cost_noise=1.0,
        coefficient_bound=1.0,
        context_bound=1.0,
    )


def conformal_rows(
    *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> Iterator[dict[str, Any]]:
    """One row for each world and policy."""
    for place, settings in WORLDS.items():
        world = LinearWorld(dim=DIM, **settings)
        for series, (name, options) in SERIES.items():
            policy = make_policy(name, **options)
            spec = conformal_spec(policy.promise)
            run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
            yield {
                "world": place,
                "series": series,
                "policy": name,
                "dim": DIM,
                "seeds": seeds,
                "rounds": rounds,
                "risk": RISK,
                "promise_holds": promise_holds(policy, world, spec),
                **_measured(run),
            }


def _measured(run: Simulation) -> dict[str, Any]:
    dosed = run.full_dose_rounds[0]
    low, high = violation_interval(run.violations[0], run.rounds)
    return {
        "reward_share": float(run.reward.sum() / run.exact_clairvoyant_reward.sum()),
        "full_dose_violation_rate": float(run.full_dose_violations.sum() / max(dosed.sum(), 1.0)),
        "full_dose_rounds": float(dosed.mean()),
        "violation_rate": float(run.violations.mean() / run.rounds),
        "ci_low": low,
        "ci_high": high,
        "alarmed_seeds": int(run.alarmed.sum()),
    }


def write_conformal(
    out: str | Path, *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> list[Path]:
    """Run, then write `conformal.csv` and `conformal.provenance.json` under `out`."""
    folder = output_folder(out)
    started = time.perf_counter()
    rows = list(conformal_rows(seeds=seeds, rounds=rounds, progress=progress))
    settings = {"dim": DIM, "seeds": list(range(seeds)), "rounds": rounds, **conformal_spec("conformal").to_dict()}
    return [
        write_rows(folder / "conformal.csv", rows),
        write_json(folder / "conformal.provenance.json", provenance(settings, time.perf_counter() - started)),
    ]
