"""What the tighter radii and margins earn, what they cost where an assumption fails, and when a learned one pays.

| part | what is varied |
|---|---|
| `shares` | radius, ridge, margin; d = 10, unit noise, τ = 0.5, δ = δ′ = 0.01: reward in shares of the clairvoyant's |
| `overstated` | only the radius is given a κ five times too large: reward lost against the right κ |
| `quantile` | the learned quantile over the sub-Gaussian margin, against rounds and δ |
| `broken` | every margin in every noise family, d = 2: violations among full doses, assumption kept or broken |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from safedial.core.action import Choice, choose
from safedial.core.confidence import bound
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import Policy, make_policy
from safedial.simulation.proved import promise_holds
from safedial.simulation.simulate import Simulation, simulate
from safedial.stats import violation_interval
from safedial.worlds.linear import LinearWorld
from safedial.worlds.noise import NOISES

DIM, FACTOR = 10, 5.0
PLAIN: dict[str, Any] = {"threshold": 0.5, "violation_risk": 0.01, "estimation_risk": 0.01, "reward_noise": 1.0}
PLAIN |= {"cost_noise": 1.0, "coefficient_bound": 1.0, "context_bound": 1.0}
QUANTILE: dict[str, Any] = {"margin": "quantile", "margin_risk": 0.01}
UNIFORM: dict[str, Any] = {"margin": "bounded", "noise_low": -(3.0**0.5), "noise_high": 3.0**0.5}

SERIES: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
    ("Algorithm 1, paper", "hp_ucb", "paper", {}, {}),
    ("paper", "hp_probe", "paper", {}, {}),
    ("mixture, λ = 1", "hp_probe", "mixture", {}, {}),
    ("mixture", "hp_probe", "mixture", {"ridge": 10.0}, {}),
    ("noise-adaptive", "hp_probe", "noise-adaptive", {"ridge": 10.0}, {}),
    ("constrained", "hp_probe", "constrained", {"ridge": 10.0}, {}),
    ("constrained, adversarial", "hp_probe", "constrained", {"ridge": 10.0}, {"contexts": "adversarial"}),
    ("constrained, quantile", "hp_probe", "constrained", {"ridge": 10.0, **QUANTILE}, {}),
    ("constrained, gaussian", "hp_probe", "constrained", {"ridge": 10.0, "margin": "gaussian"}, {}),
    ("constrained, bounded", "hp_probe", "constrained", {"ridge": 10.0, **UNIFORM}, {"noise": "uniform"}),
]
"""(label, policy, radius, changes of the spec, changes of the world)."""

RISKS = (0.01, 0.05, 0.1)
MARGINS: dict[str, dict[str, Any]] = {
    "subgaussian": {},
    "gaussian": {"margin": "gaussian"},
    "quantile": QUANTILE,
    "bounded by ±√3": UNIFORM,
}

Progress = Callable[[int], None] | None


def share_rows(*, seeds: int, rounds: int, progress: Progress = None) -> Iterator[dict[str, Any]]:
    """Reward in shares of the sub-Gaussian clairvoyant's, for each radius and margin."""
    for label, name, radius, changes, place in SERIES:
        spec, world = SafetySpec(**(PLAIN | changes)), LinearWorld(dim=DIM, **place)
        policy = make_policy(name, radius=radius)
        run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
        yield {
            "series": label,
            "policy": name,
            "radius": radius,
            "margin": spec.margin,
            "ridge": spec.ridge,
            "contexts": world.contexts,
            "noise": world.noise,
            "reward_share": _share(run),
            "violation_rate": float(run.violations.mean() / rounds),
            "promised_risk": spec.promised_risk,
        }


def overstated(radius: str, factor: float) -> Policy:
    """HP-Probe whose radius is given `factor` times the noise constants, and whose margin the right ones."""
    wide: dict[int, SafetySpec] = {}

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        if id(spec) not in wide:
            wide[id(spec)] = replace(spec, cost_noise=factor * spec.cost_noise, reward_noise=factor * spec.reward_noise)
        bounds = bound(prediction, wide[id(spec)], radius=radius, clip=True)
        safe = safe_set(bounds.cost_upper, spec, round=round, baseline_cost=baseline_cost)
        return choose(prediction.reward, safe, bounds, probe=round**-0.5)

    return Policy("overstated", "HP-Probe, κ overstated", "certified", decide, {"radius": radius})


def overstated_rows(*, seeds: int, rounds: int, progress: Progress = None) -> Iterator[dict[str, Any]]:
    """The reward that a κ five times too large in the radius alone costs."""
    spec, world = SafetySpec(**PLAIN, ridge=10.0), LinearWorld(dim=DIM)
    for radius in ("mixture", "noise-adaptive"):
        runs = [
            simulate(overstated(radius, factor), world, spec, rounds=rounds, seeds=seeds, progress=progress)
            for factor in (1.0, FACTOR)
        ]
        right, wrong = (_share(run) for run in runs)
        yield {
            "radius": radius,
            "factor": FACTOR,
            "right_share": right,
            "wrong_share": wrong,
            "loss": 1 - wrong / right,
        }


def quantile_rows(*, seeds: int, rounds: int, progress: Progress = None) -> Iterator[dict[str, Any]]:
    """The learned margin in units of the sub-Gaussian one, at a few times and risks."""
    spec = SafetySpec(**(PLAIN | {"violation_risk": list(RISKS), "ridge": 5.0} | QUANTILE))
    marks = sorted({int(mark) for mark in np.geomspace(min(100, rounds), rounds, 13)})
    found: dict[int, Any] = {}

    def watch(round: Any) -> None:
        if round.number in marks:
            found[round.number] = np.broadcast_to(round.choice.bounds.noise, (len(RISKS), seeds)).copy()

    policy = make_policy("hp_probe", radius="mixture")
    simulate(policy, LinearWorld(dim=5), spec, rounds=rounds, seeds=seeds, observe=watch, progress=progress)
    for row, risk in enumerate(RISKS):
        tail = float(np.asarray(spec.tail)[row])
        for mark in marks:
            capped = np.minimum(found[mark][row], tail)
            yield {
                "risk": risk,
                "rounds": mark,
                "margin": float(capped.mean()),
                "over_subgaussian": float(capped.mean() / tail),
            }


def broken_rows(*, seeds: int, rounds: int, progress: Progress = None) -> Iterator[dict[str, Any]]:
    """Violations among full doses for every margin in every noise family."""
    policy = make_policy("hp_probe", radius="mixture")
    for margin, changes in MARGINS.items():
        settings: dict[str, Any] = {**PLAIN, "threshold": 0.2, "ridge": 2.0, **changes}
        spec = SafetySpec(**settings)
        for noise in NOISES:
            world = LinearWorld(dim=2, noise=noise)
            run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
            low, high = violation_interval(run.full_dose_violations[0], int(run.full_dose_rounds.mean()))
            yield {
                "margin": margin,
                "noise": noise,
                "holds": promise_holds(policy, world, spec),
                "full_dose_violation_rate": float(run.full_dose_violations.sum() / run.full_dose_rounds.sum()),
                "ci_low": low,
                "ci_high": high,
                "promised_risk": spec.promised_risk,
                "violation_risk": spec.violation_risk,
            }


def _share(run: Simulation) -> float:
    return float(run.reward.sum() / run.clairvoyant_reward.sum())


PARTS = {"shares": share_rows, "overstated": overstated_rows, "quantile": quantile_rows, "broken": broken_rows}


def total_rounds(rounds: int) -> int:
    """How many rounds all parts walk, for a progress bar."""
    return rounds * (len(SERIES) + 4 + 10 + len(MARGINS) * len(NOISES))


def write_toolkit(
    out: str | Path, *, seeds: int, rounds: int, progress: Progress = None
) -> tuple[dict[str, list[dict[str, Any]]], list[Path]]:
    """Run every part, then write `toolkit_<part>.csv` and `toolkit.provenance.json` under `out`."""
    folder, started = output_folder(out), time.perf_counter()
    rows, paths = {}, []
    for part, run in PARTS.items():
        length = 10 * rounds if part == "quantile" else rounds
        rows[part] = list(run(seeds=seeds, rounds=length, progress=progress))
        paths.append(write_rows(folder / f"toolkit_{part}.csv", rows[part]))
    settings = {"dim": DIM, "seeds": list(range(seeds)), "rounds": rounds, **PLAIN}
    paths.append(write_json(folder / "toolkit.provenance.json", provenance(settings, time.perf_counter() - started)))
    return rows, paths
