"""`python -m benchmarks.shield`: how near the count rule comes to the oracle's scale, and what a false bracket costs.

The world (`DoseResponseWorld`): a cost in proportion to the setting, C(a) = τ·(a/T)^e with e = 1 and log-normal
tolerances T (sd .5) around the protocol's setting, δ = .05, bracket `relative(0.7, 1.4, floor=τ/4)`, start at a quarter
of the protocol. The oracle knows the law of T and plays its 5 % quantile. A false bracket: the true e lies outside
0.7-1.4. The second of its tables starts at a tenth of the protocol with a floor of τ/1000, so that hardly any cost is
too small to be evidence. Then other dose-response worlds, and last the speed of simulations and of an
Agent (`python -m benchmarks.shield tables`, `speed` or `agent`: that alone). Two minutes.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np

from safedial import Agent, SafetySpec, growth, simulate
from safedial.bounds.count_rule import CountWindow, Range, scaled_setting
from safedial.policies.shield import hp_shield
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.run import Simulation

RISK, SPREAD = 0.05, 0.5
ORACLE = math.exp(-1.6448536269514722 * SPREAD)
SPEC = SafetySpec(threshold=1.0, violation_risk=RISK, guarantee="bracket")


def play(
    *, rounds: int, seeds: int, elasticity: float, climb: float | None, start: float = 0.25, floor: float = 0.25
) -> tuple[np.ndarray, np.ndarray]:
    """Scales, (rounds, seeds), and the share of runs that exceed in each round."""
    policy = hp_shield(base=0, growth=growth.relative(0.7, 1.4, floor=floor), climb=climb, start_scale=start)
    world = DoseResponseWorld(low=elasticity, high=elasticity, spread=SPREAD)
    scales: list[np.ndarray] = []
    run = simulate(
        policy,
        world,
        SPEC,
        rounds=rounds,
        seeds=seeds,
        points=rounds,
        observe=lambda each: scales.append((each.given.intensity / each.context[..., 0])[0]),
    )
    return np.stack(scales), rates(run)


def rates(run: Simulation) -> np.ndarray:
    """The share of runs that exceed in each round, from curves with a point for each."""
    return np.diff(run.violations_curve[:, 0].mean(axis=1), prepend=0.0)


def efficiency(seeds: int) -> None:
    print(f"\nShare of the oracle's scale, mean over {seeds} runs (in brackets: the median)")
    print("  climb limit        round 40        60       100       200       600    exceeded, rounds 20 on")
    for climb in (1.25, None):
        scales, exceeded = play(rounds=600, seeds=seeds, elasticity=1.0, climb=climb)
        shares = [
            f"{scales[at - 1].mean() / ORACLE:.3f} ({np.median(scales[at - 1]) / ORACLE:.3f})"
            for at in (40, 60, 100, 200, 600)
        ]
        print(f"  {climb or 'none':<12}  {'  '.join(shares)}   {exceeded[20:].mean():.4f}")


def false_brackets(seeds: int, *, start: float, floor: float) -> None:
    print(f"\nA false bracket, stated 0.7-1.4, start {start:g}, floor {floor:g}: share of runs that exceed")
    print("in the worst round / in rounds 20 to 200 / in round 200")
    climbs = (None, 1.25, 1.1)
    print("  true elasticity " + "".join(f"{f'climb {climb}' if climb else 'no limit':>26}" for climb in climbs))
    for elasticity in (0.4, 0.7, 1.0, 1.4, 1.7, 2.0, 3.0):
        cells = []
        for climb in climbs:
            rate = play(rounds=200, seeds=seeds, elasticity=elasticity, climb=climb, start=start, floor=floor)[1]
            cells.append(f"{rate.max():.3f} / {rate[20:].mean():.3f} / {rate[-1]:.3f}")
        print(f"  {elasticity:<16}" + "".join(f"{cell:>26}" for cell in cells))


def other_worlds(seeds: int, rounds: int = 600) -> None:
    """What each of the dose-response worlds leaves to be earned, with a bracket that holds, and where rounds drift."""
    relative, additive = growth.relative(0.7, 1.4, floor=0.25), growth.additive(2, 20)
    power, hinge = {"low": 0.7, "high": 1.4}, {"curve": "hinge", "low": 2.0, "high": 20.0}
    told = {"dim": 4, "effect": 0.5}
    table = {
        "power, exponents 0.7-1.4": (power, {"growth": relative}),
        "the same, features tell": (power | told, {"growth": relative}),
        "the same, learned base": (power | told, {"growth": relative, "learned": True}),
        "heavy tails (t2)": (power | {"tails": "t2", "least": 0.1}, {"growth": relative}),
        "20 % missing at random": (power | {"missing": 0.2}, {"growth": relative}),
        "a baseline, slopes 2-20": (hinge, {"growth": additive}),
        "flat, then steep": (hinge | {"knee": 0.9}, {"growth": additive}),
        "0 or 1": ({"curve": "binary"}, {"growth": growth.spread(1.25, SPREAD), "start_scale": 0.25}),
        "8 patients, again and again": (power | {"units": 8, "dim": 2}, {"growth": relative}),
        "tolerances fall to 0.6 at 300": (power | {"fall": 0.6, "after": 300}, {"growth": relative}),
        "the same, adapt = 0.01": (power | {"fall": 0.6, "after": 300}, {"growth": relative, "adapt": 0.01}),
    }
    print(f"\nDose-response worlds, {seeds} runs: share of the exact clairvoyant's dose in all / the last third of")
    print(f"{rounds} rounds; share of runs that exceed in rounds 20 on / in the 100 rounds after 300")
    for name, (fields, options) in table.items():
        world = DoseResponseWorld(**fields)
        spec = SafetySpec(threshold=0.5, violation_risk=0.2, guarantee="bracket") if world.curve == "binary" else SPEC
        policy = hp_shield(**{"base": 0, "start_scale": 0.1} | options)
        run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, points=rounds)
        best = run.exact_clairvoyant_reward.mean()
        late = 1.0 - (run.regret_curve[-1] - run.regret_curve[2 * rounds // 3]).mean() / (best / 3.0)
        rate = rates(run)
        print(
            f"  {name:<32} {run.reward.mean() / best:.3f} / {late:.3f}    "
            f"{rate[20:].mean():.4f} / {rate[300:400].mean():.4f}   (risk {spec.violation_risk:g})"
        )


def speed() -> None:
    rng, online, times = np.random.default_rng(2), CountWindow(RISK), []
    for number in range(12_000):
        drawn = float(rng.lognormal(0.0, SPREAD))
        began = time.perf_counter()
        scaled_setting(online.scale(), 1.0, Range(0.25, 100.0))
        online.append(drawn)
        if number >= 10_000:
            times.append(time.perf_counter() - began)
    print(f"\nOne decision and its update with 10,000 rounds behind: p50 {1e6 * float(np.median(times)):.1f} µs")
    constants = dict.fromkeys(("reward_noise", "cost_noise", "coefficient_bound", "context_bound"), 1.0)
    spec = SafetySpec(threshold=0.5, violation_risk=RISK, guarantee="bracket", **constants)
    whole = {"base": lambda rows: np.ones(rows.shape[:-1]), "start_scale": 0.14}
    for name, options in {
        "protocol": {"growth": growth.relative(0.7, 1.4, floor=0.1)},
        "learned": {"growth": growth.relative(0.7, 1.4, floor=0.1), "learned": True},
    }.items():
        best = 0.0
        for _ in range(5):
            began = time.process_time()
            simulate(hp_shield(**whole | options), LinearWorld(dim=5), spec, rounds=1000, seeds=100)
            best = max(best, 100_000 / (time.process_time() - began))
        print(f"Simulation, 100 seeds x 1000 rounds, d = 5, {name}: {best:,.0f} rounds/s of processor time")


def agent_speed(*, learned: bool, dim: int, rounds: int = 10_000) -> None:
    """The time of `Agent.ask` and `Agent.tell` with `rounds` rounds behind."""
    policy = hp_shield(base=0, growth=growth.relative(0.7, 1.4, floor=0.25), start_scale=0.1, learned=learned)
    spec, rng = SafetySpec(threshold=1.0, violation_risk=RISK, guarantee="bracket"), np.random.default_rng(0)
    agent, times = Agent(dim, spec, policy=policy), []
    for _ in range(rounds + 1000):
        context = np.append(0.5, rng.standard_normal(dim - 1))
        begin = time.perf_counter()
        decision = agent.ask(context)
        middle = time.perf_counter()
        agent.tell(decision, reward=0.0, cost=decision.action / (0.5 * rng.lognormal(0.0, SPREAD)))
        times.append((middle - begin, time.perf_counter() - middle))
    late = 1e6 * np.array(times[rounds:])
    words = ", ".join(
        f"{name} p50 {p50:.0f} µs, p99 {p99:.0f} µs"
        for name, (p50, p99) in zip(("decide", "update"), np.percentile(late, [50, 99], axis=0).T, strict=True)
    )
    print(f"An Agent with {rounds} rounds behind, d = {dim}, {'learned' if learned else 'protocol'} base: {words}")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["tables", "speed", "agent"]
    if "tables" in chosen:
        efficiency(1000)
        false_brackets(1000, start=0.25, floor=0.25)
        false_brackets(1000, start=0.1, floor=0.001)
        other_worlds(200)
    if "speed" in chosen:
        speed()
    if "agent" in chosen:
        agent_speed(learned=False, dim=3)
        agent_speed(learned=True, dim=26)
