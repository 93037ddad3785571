"""`python benchmarks/shield.py`: how near the count rule comes to the oracle's scale, and what a false bracket costs.

The world: a cost in proportion to the setting, C(a) = τ·(a/T)^e with e = 1 and log-normal tolerances T (sd .5) around
the protocol's setting, δ = .05, bracket `relative(0.7, 1.4, floor=τ/4)`, start at a quarter of the protocol. The oracle
knows the law of T and plays its 5 % quantile. A false bracket: the true e lies outside 0.7-1.4. The second of its
tables starts at a tenth of the protocol with a floor of τ/1000, so that hardly any cost is too small to be evidence.
Then the paper's own world, and last the speed of an Agent (`python benchmarks/shield.py agent`: that alone). A minute.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np

from safedial import Agent, SafetySpec, growth
from safedial.core.count_rule import climb_limit
from safedial.core.count_window import BatchWindow, CountWindow
from safedial.core.tolerated import Cost, Range, scaled_setting, tolerated_scale
from safedial.policies.hp_shield import hp_shield

RISK, SPREAD = 0.05, 0.5
ORACLE = math.exp(-1.6448536269514722 * SPREAD)


def play(
    *, rounds: int, seeds: int, elasticity: float, climb: float, start: float = 0.25, floor: float = 0.25
) -> tuple[np.ndarray, np.ndarray]:
    """Scales and excesses, (rounds, seeds) each."""
    rng, limit = np.random.default_rng(1), Cost(threshold=1.0, growth=growth.relative(0.7, 1.4, floor=floor))
    count, range_, base = BatchWindow(seeds, RISK), Range(start, 100.0), np.ones(seeds)
    used, scales = np.full((seeds, 5), start), np.empty((rounds, seeds))
    excess = np.empty((rounds, seeds), dtype=bool)
    for step in range(rounds):
        scale = np.minimum(np.maximum(count.scales(), start), climb_limit(used, start, climb=climb))
        used[:, step % 5] = scales[step] = scale
        setting = scaled_setting(scale, base, range_)
        cost = (setting / rng.lognormal(0.0, SPREAD, seeds)) ** elasticity
        excess[step] = limit.exceeded(cost)
        count.append(tolerated_scale(limit.tolerated(cost, setting), base, range_))
    return scales, excess


def efficiency(seeds: int) -> None:
    print(f"\nShare of the oracle's scale, mean over {seeds} runs (in brackets: the median)")
    print("  climb limit        round 40        60       100       200       600    exceeded, rounds 20 on")
    for climb in (1.25, 1e9):
        scales, excess = play(rounds=601, seeds=seeds, elasticity=1.0, climb=climb)
        shares = [
            f"{scales[at].mean() / ORACLE:.3f} ({np.median(scales[at]) / ORACLE:.3f})" for at in (40, 60, 100, 200, 600)
        ]
        print(f"  {'none' if climb > 2 else climb:<12}  {'  '.join(shares)}   {excess[20:].mean():.4f}")


def false_brackets(seeds: int, *, start: float, floor: float) -> None:
    print(f"\nA false bracket, stated 0.7-1.4, start {start:g}, floor {floor:g}: share of runs that exceed")
    print("in the worst round / in rounds 20 to 200 / in round 200")
    climbs = (1e9, 1.25, 1.1)
    print("  true elasticity " + "".join(f"{'no limit' if climb > 2 else f'climb {climb}':>26}" for climb in climbs))
    for elasticity in (0.4, 0.7, 1.0, 1.4, 1.7, 2.0, 3.0):
        cells = []
        for climb in climbs:
            run = play(rounds=201, seeds=seeds, elasticity=elasticity, climb=climb, start=start, floor=floor)
            rate = run[1].mean(axis=1)
            cells.append(f"{rate.max():.3f} / {rate[20:].mean():.3f} / {rate[-1]:.3f}")
        print(f"  {elasticity:<16}" + "".join(f"{cell:>26}" for cell in cells))


def paper_world(seeds: int, rounds: int = 1000, dim: int = 5) -> None:
    """The offset family, an exact curve, κ = 1, τ = .5, from the dose that is certified for the first round."""
    rng, spec = np.random.default_rng(3), SafetySpec(threshold=0.5, violation_risk=RISK, promise="conformal")
    truth, context = rng.standard_normal((2, seeds, dim)), rng.standard_normal((rounds, seeds, dim))
    truth, context = (part / np.linalg.norm(part, axis=-1, keepdims=True) for part in (truth, context))
    reward, cost = ((context * coef).sum(axis=-1) for coef in truth)
    noise = rng.standard_normal((2, rounds, seeds))
    load = np.maximum(cost + 1.6448536269514722, 1e-9)
    best = np.cumsum((np.where(reward >= 0.0, np.minimum(1.0, 0.5 / load), 0.0) * reward).sum(axis=1))
    print(
        f"\nThe paper's world, d = {dim}: share of the exact clairvoyant's reward at T = 200 / 500 / 1000, {seeds} runs"
    )
    for climb, probe in ((1.25, 0.01), (None, 0.01), (1.25, None)):
        policy = hp_shield(
            base=lambda rows: np.ones(rows.shape[:-1]),
            growth=growth.relative(1, 1, floor=0),
            family="offset",
            start_scale=0.5 / (1.0 + math.sqrt(2.0 * math.log(1.0 / RISK))),
            climb=climb,
            chooser="sign",
            probe=probe,
        )
        state, earned, excess = policy.init(dim, ridge=1.0, batch=(seeds,)), np.empty(rounds), 0.0
        for step in range(rounds):
            outlook = policy.predict(state, context[step])
            setting = policy.decide(outlook, spec, round=step + 1, coin=0.5).intensity
            measured = cost[step] + noise[1, step]
            earned[step] = (setting * reward[step]).sum()
            excess += float((setting * measured > 0.5).mean()) / rounds
            policy.update(state, outlook, reward[step] + noise[0, step], measured, 1.0, intensity=setting)
        shares = " / ".join(f"{np.cumsum(earned)[at - 1] / best[at - 1]:.3f}" for at in (200, 500, 1000))
        print(f"  climb {climb}, refused rounds get {probe or 'the start'}: {shares}, exceeded {excess:.4f}")


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
    for rounds in (600, 2000):
        began = time.process_time()
        play(rounds=rounds, seeds=100, elasticity=1.0, climb=1.25)
        took = time.process_time() - began
        print(f"Simulation, 100 seeds x {rounds} rounds: {100 * rounds / took:,.0f} rounds/s of processor time")


def agent_speed(*, learned: bool, dim: int, rounds: int = 10_000) -> None:
    """The time of `Agent.decide` and `Agent.update` with `rounds` rounds behind."""
    policy = hp_shield(base=0, growth=growth.relative(0.7, 1.4, floor=0.25), start_scale=0.1, learned=learned)
    spec, rng = SafetySpec(threshold=1.0, violation_risk=RISK, promise="bracket"), np.random.default_rng(0)
    agent, times = Agent(dim, spec, policy=policy), []
    for _ in range(rounds + 1000):
        context = np.append(0.5, rng.standard_normal(dim - 1))
        begin = time.perf_counter()
        decision = agent.decide(context)
        middle = time.perf_counter()
        agent.update(decision, reward=0.0, cost=decision.action / (0.5 * rng.lognormal(0.0, SPREAD)))
        times.append((middle - begin, time.perf_counter() - middle))
    late = 1e6 * np.array(times[rounds:])
    words = ", ".join(
        f"{name} p50 {p50:.0f} µs, p99 {p99:.0f} µs"
        for name, (p50, p99) in zip(("decide", "update"), np.percentile(late, [50, 99], axis=0).T, strict=True)
    )
    print(f"An Agent with {rounds} rounds behind, d = {dim}, {'learned' if learned else 'protocol'} base: {words}")


if __name__ == "__main__":
    if sys.argv[1:] != ["agent"]:
        efficiency(1000)
        false_brackets(1000, start=0.25, floor=0.25)
        false_brackets(1000, start=0.1, floor=0.001)
        paper_world(100)
        speed()
    agent_speed(learned=False, dim=3)
    agent_speed(learned=True, dim=26)
