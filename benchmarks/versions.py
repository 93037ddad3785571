"""This version beside another one, in one run: an agent's decision with its outcome, and simulated lanes.

Each version runs in a process of its own, and the two take turns, so that both see the same machine. Only what both
versions offer is used: `Agent`, `simulate`, and policies by name. A ratio is the median of the ratios of the turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import IO, Any, cast

ROUNDS, WARM = 1200, 300
"""Rounds of an agent in a turn, and the first of them, which are not timed."""

TURNS = 5
SIMULATED = {"rounds": 1000, "seeds": (200, 500)}
HERE = Path(__file__).resolve().parent.parent


def bench_versions(before: Path, *, names: list[str] | None = None, turns: int = TURNS) -> list[dict[str, Any]]:
    """A row for each case: microseconds (or milliseconds of a simulation) before and now, and their ratio."""
    workers = {"before": _worker(before), "now": _worker(HERE)}
    rows = []
    for name in names or CASES:
        taken = {version: [] for version in workers}
        for _ in range(turns):
            for version, worker in workers.items():
                taken[version].append(_ask(worker, name))
        ratio = median(now / was for was, now in zip(taken["before"], taken["now"], strict=True))
        rows.append({"case": name, **{version: median(values) for version, values in taken.items()}, "ratio": ratio})
        print(json.dumps(rows[-1]), flush=True)
    for worker in workers.values():
        worker.communicate("")
    return rows


def _worker(tree: Path) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-P", __file__]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=os.environ | paths, **pipes)  # noqa: S603 -- our own file


def _ask(worker: subprocess.Popen[str], name: str) -> float:
    asked, told = cast("IO[str]", worker.stdin), cast("IO[str]", worker.stdout)
    asked.write(name + "\n")
    asked.flush()
    return float(told.readline())


# --- In a worker


def _agents() -> dict[str, Any]:
    """Spec, policy and dimension of each agent that is timed."""
    from safedial import Cost, SafetySpec, growth, make_policy
    from safedial.policies.classes import features
    from safedial.policies.classes.features import fourier

    constants: Any = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0}
    certified = SafetySpec(threshold=0.5, total_risk=0.1, **constants)
    noises = {name: Cost(threshold=each, noise=0.3) for name, each in (("heat", 0.5), ("load", 0.6))}
    several = SafetySpec(costs=noises, total_risk=0.1, **{**constants, "cost_noise": None})
    marginal = {
        name: SafetySpec(threshold=0.5, violation_risk=0.1, guarantee=name)
        for name in ("conformal", "student", "bracket")
    }
    anytime = SafetySpec(threshold=0.5, violation_risk=0.08, estimation_risk=0.02, guarantee="student")
    bracket = growth.relative(0.7, 1.4, floor=0.05)
    shield = {"growth": bracket, "start_scale": 0.2}
    return {
        "hp_probe, d = 5": (certified, make_policy("hp_probe"), 5),
        "hp_probe, d = 26": (certified, make_policy("hp_probe"), 26),
        "hp_ucb, d = 5": (certified, make_policy("hp_ucb"), 5),
        "hp_probe, two costs": (several, make_policy("hp_probe"), 5),
        "epsilon_greedy": (certified, make_policy("epsilon_greedy"), 5),
        "hp_conformal": (marginal["conformal"], make_policy("hp_conformal", start_dose=0.1), 5),
        "hp_shield": (marginal["bracket"], make_policy("hp_shield", base=0, **shield), 5),
        "hp_shield, learned": (
            marginal["bracket"],
            make_policy("hp_shield", base=0, learned=True, **shield),
            5,
        ),
        "hp_student": (marginal["student"], make_policy("hp_student", start_dose=0.1), 5),
        "hp_student, anytime": (anytime, make_policy("hp_student", start_dose=0.1, guarantee="anytime"), 5),
        "nonlinear_hp_probe": (certified, make_policy("nonlinear_hp_probe", cost_class=features(fourier(2))), 2),
    }


def _agent_us(spec: Any, policy: Any, dim: int) -> float:
    """Median microseconds of a decision with its outcome."""
    import numpy as np

    from safedial import Agent

    rng = np.random.default_rng(0)
    contexts = rng.uniform(0.1, 1.0, (ROUNDS, dim))
    contexts /= 2.0 * np.linalg.norm(contexts, axis=1, keepdims=True)
    contexts[:, 0] = 0.5  # what the bracket's policies scale
    noise, taken = rng.standard_normal((ROUNDS, 2)) * 0.1, []
    agent: Any = Agent(dim, spec, policy=policy)
    # Versions before 1.0.0rc2 call these decide and update.
    ask, tell = (agent.ask, agent.tell) if hasattr(agent, "ask") else (agent.decide, agent.update)
    for row, (gain, harm) in zip(contexts, noise.tolist(), strict=True):
        begun = time.perf_counter()
        decision = ask(row)
        size = decision.action
        cost: Any = size * (0.4 + harm)
        if spec.costs:
            cost = dict.fromkeys(spec.costs, cost)
        tell(decision, reward=size * (0.5 + gain), cost=cost)
        taken.append(time.perf_counter() - begun)
    return median(taken[WARM:]) * 1e6


SIMULATIONS = ("hp_probe", "jax hp_probe", "hp_ucb", "epsilon_greedy", "hp_conformal", "hp_student", "hp_shield")
AGENTS = (
    "hp_probe, d = 5",
    "hp_probe, d = 26",
    "hp_ucb, d = 5",
    "hp_probe, two costs",
    "epsilon_greedy",
    "hp_conformal",
    "hp_shield",
    "hp_shield, learned",
    "hp_student",
    "hp_student, anytime",
    "nonlinear_hp_probe",
)
CASES = [*AGENTS, *(f"simulate {name}, {seeds} lanes" for name in SIMULATIONS for seeds in SIMULATED["seeds"])]


def _simulated_ms(name: str, seeds: int) -> float:
    """Milliseconds of a simulation, without those of compiling: in the linear world, or in that of brackets."""
    from safedial import LinearWorld, SafetySpec, growth, make_policy, simulate
    from safedial.simulation.dose_response import DoseResponseWorld

    engine = "jax" if name.startswith("jax ") else "numpy"
    name = name.removeprefix("jax ")
    constants: Any = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0}
    guarantee = {"hp_conformal": "conformal", "hp_student": "student", "hp_shield": "bracket"}.get(name)
    risk = {"guarantee": guarantee, "violation_risk": 0.1} if guarantee else {"total_risk": 0.1}
    options: Any = {"start_dose": 0.1} if guarantee else {}
    world: Any = LinearWorld(dim=5)
    if guarantee == "bracket":
        options = {"base": 0, "start_scale": 0.1, "growth": growth.relative(0.7, 1.4, floor=0.05)}
        world = DoseResponseWorld(curve="power", low=0.7, high=1.4, least=0.1, spread=0.5, dim=1)
    spec = SafetySpec(threshold=0.5, **constants, **risk)
    rounds = SIMULATED["rounds"] * (20 if engine == "jax" else 1)
    run = simulate(make_policy(name, **options), world, spec, rounds=rounds, seeds=seeds, engine=engine)
    return (run.seconds - run.compile_seconds) * 1e3


def _work() -> None:
    """Time the cases that are asked for, one a line."""
    agents = _agents()
    for line in sys.stdin:
        name = line.strip()
        if not name:
            return
        if name in agents:
            print(_agent_us(*agents[name]), flush=True)
        else:
            policy, seeds = name.removeprefix("simulate ").removesuffix(" lanes").split(", ")
            print(_simulated_ms(policy, int(seeds)), flush=True)


if __name__ == "__main__":
    _work()
