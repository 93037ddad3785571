"""`python -m benchmarks.student`: what HP-Student earns beside the others, what breaks it, and how fast it is.

The tables of docs/student.md. Share: reward over all rounds and seeds, over the reward of the exact clairvoyant, which
knows both means and the noise's quantile; the share of the attainable is over that of a policy that knows all of the
cost and learns only the sign of the reward. Parts: `shares`, `broken`, `speed`; all by default. Several minutes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from safedial import Agent, LinearWorld, SafetySpec, hp_conformal, hp_probe, hp_student, simulate
from safedial.bounds import least_squares
from safedial.bounds.t_laws import cost_upper
from safedial.policies import Policy
from safedial.simulation.world import NOISES

Array = np.ndarray
CONSTANTS = {"coefficient_bound": 1.0, "context_bound": 1.0}


def stated(noise: float, risk: float, **changes: Any) -> SafetySpec:
    sizes = {"reward_noise": noise, "cost_noise": noise, **CONSTANTS}
    return SafetySpec(**({"threshold": 0.5, "violation_risk": risk, "estimation_risk": 0.01, **sizes} | changes))


def policies() -> dict[str, tuple[Policy, dict[str, Any]]]:
    return {
        "Student, per round": (hp_student(), {}),
        "Student, tolerance": (hp_student(guarantee="tolerance"), {}),
        "Student, anytime": (hp_student(guarantee="anytime"), {}),
        "Student or conformal": (hp_student(either=True), {}),
        "HP-Probe, Gaussian margin": (hp_probe(radius="self-normalised"), {"margin": "gaussian"}),
        "HP-Probe, sub-Gaussian": (hp_probe(radius="self-normalised"), {}),
        "HP-Conformal": (hp_conformal(), {}),
    }


def shares(seeds: int) -> None:
    tables = [(5, 0.05, noise, (100, 200, 500, 1000), seeds) for noise in (1.0, 0.3)]
    for dim, risk, noise, times, runs in [*tables, (10, 0.02, 1.0, (10_000,), seeds // 5)]:
        print(
            f"\nShare of the exact clairvoyant (of the attainable; exceeded), d = {dim}, delta = {risk}, noise {noise}"
        )
        world = LinearWorld(dim=dim)
        print("  " + " " * 34 + "".join(f"T = {rounds:<18}" for rounds in times))
        for label, (policy, changes) in policies().items():
            cells = []
            for rounds in times:
                run = simulate(policy, world, stated(noise, risk, **changes), rounds=rounds, seeds=runs)
                share = run.reward.sum() / run.exact_clairvoyant_reward.sum()
                cells.append(f"{share:.3f} ({run.attainable_share:.3f}; {run.violations.mean() / rounds:.4f})")
            print(f"  {label:<34}" + "".join(f"{cell:<22}" for cell in cells), flush=True)


def broken(lanes: int) -> None:
    """How often C/g exceeds the per-round bound, d = 3: noise that is not Gaussian, and contexts that follow it."""
    print("\nP(C/g > U), the per-round bound, d = 3, rounds 10 to 60")
    print(f"  {'':<44}" + "".join(f"delta = {risk:<8}" for risk in (0.01, 0.02, 0.05, 0.2)))
    laplace = lambda rng, size: rng.laplace(size=size) / 2**0.5  # noqa: E731 -- one line of a table
    noises = {"gaussian": NOISES["gaussian"], "uniform": NOISES["uniform"], "exponential": NOISES["exponential"]}
    noises |= {"laplace": laplace, "t(3)": NOISES["student-t3"]}
    for label, draw in noises.items():
        _line(label, *_play(lanes, draw, "iid"))
    for reaction, label in (("own", "the last cost, AR(.95)"), ("adversarial", "react to residuals")):
        _line(f"gaussian, contexts {label}", *_play(lanes, noises["gaussian"], reaction))


def _play(lanes: int, draw: Callable[..., Array], reaction: str) -> tuple[Array, int]:
    rng, risks = np.random.default_rng(1), np.array([0.01, 0.02, 0.05, 0.2])[:, None]
    fit, cost = least_squares.init(3, (lanes,)), np.zeros(lanes)
    coef, over, rounds = rng.standard_normal((lanes, 3)), np.zeros(4), 0
    if reaction == "own":
        coef = np.broadcast_to([0.95, 0.0, 0.0], (lanes, 3))
    for number in range(1, 61):
        context = rng.standard_normal((lanes, 3))
        if reaction == "own":
            context[:, 0], context[:, 1] = cost, 1.0
        elif reaction == "adversarial":
            offered = rng.standard_normal((8, lanes, 3))
            seen = least_squares.predict(fit, offered)
            gap = (np.vecdot(offered, coef) - seen.cost) / np.maximum(seen.width, 1e-9)
            context = np.take_along_axis(offered, np.argmax(gap, axis=0)[None, :, None], axis=0)[0]
        cost = np.vecdot(context, coef) + draw(rng, lanes)
        seen = least_squares.predict(fit, context)
        if number >= 10:
            over, rounds = over + (cost > cost_upper(seen, "per_round", risks)).mean(axis=-1), rounds + 1
        fit = least_squares.update(fit, seen, cost, cost)
    return over, rounds


def _line(label: str, over: Array, rounds: int) -> None:
    print(f"  {label:<44}" + "".join(f"{value / rounds:<16.4f}" for value in over), flush=True)


def speed() -> None:
    print("\nBatched simulation, 500 seeds, d = 10, rounds per second")
    for label in ("HP-Probe", "Student, per round", "Student, tolerance", "Student, anytime"):
        policy = hp_probe() if label == "HP-Probe" else policies()[label][0]
        started = time.process_time()
        run = simulate(policy, LinearWorld(dim=10), stated(1.0, 0.05), rounds=1000, seeds=500)
        spent = time.process_time() - started
        print(f"  {label:<22}{run.rounds_per_second:>10,.0f}   by processor time {500_000 / spent:>10,.0f}", flush=True)
    print("\nOne decision and one update of an Agent, d = 26, median of 1,000, microseconds")
    agents = {"HP-Probe": Agent(26, stated(0.3, 0.05))}
    for kind in ("per_round", "tolerance", "anytime"):
        changes = {"guarantee": "student"} | ({"estimation_risk": None} if kind == "per_round" else {})
        agents[f"Student, {kind}"] = Agent(
            26, stated(0.3, 0.05, **changes), policy=hp_student(guarantee=kind), start_action=0.05
        )
    rng = np.random.default_rng(0)
    coef, spent = rng.standard_normal(26) / 10, {label: ([], []) for label in agents}
    for _ in range(1200):
        context = rng.standard_normal(26)
        context /= np.linalg.norm(context)
        noise = 0.3 * rng.standard_normal(2) + context @ coef
        for label, agent in agents.items():
            first = time.perf_counter()
            decision = agent.ask(context)
            second = time.perf_counter()
            agent.tell(decision, reward=float(noise[0]) * decision.intensity, cost=float(noise[1]) * decision.intensity)
            spent[label][0].append(second - first)
            spent[label][1].append(time.perf_counter() - second)
    for label, parts in spent.items():
        print(f"  {label:<22}" + "   ".join(f"{1e6 * statistics.median(part[200:]):8.1f}" for part in parts))


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["shares", "broken", "speed"]
    if "shares" in chosen:
        shares(100)
    if "broken" in chosen:
        broken(4000)
    if "speed" in chosen:
        speed()
