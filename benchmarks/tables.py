"""`make bench`: every table, each beside the plain version and what a user would write instead.

Ratios are taken in one run, interleaved where they are short; absolute figures depend on the machine and its load.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from benchmarks.online_speed import bench_online
from safedial import LinearWorld, SafetySpec, make_policy, simulate


def spec(**changes) -> SafetySpec:
    settings = {
        "threshold": 0.5,
        "violation_risk": 0.01,
        "estimation_risk": 0.01,
        "reward_noise": 1,
        "cost_noise": 1,
        "coefficient_bound": 1,
        "context_bound": 1,
    }
    return SafetySpec(**(settings | changes))


def simulation() -> None:
    print("\nSimulation, d = 10, hp_ucb: rounds per second")
    print("  one seed at a time is the plain loop over seeds; 500 seeds share each NumPy call.")
    world, policy = LinearWorld(dim=10), make_policy("hp_ucb")
    batched = simulate(policy, world, spec(), rounds=2000, seeds=500).rounds_per_second
    plain = simulate(policy, world, spec(), rounds=2000, seeds=1).rounds_per_second
    fresh = fresh_solve_rounds_per_second(10, 500)
    grid = simulate(policy, world, spec(threshold=np.linspace(0.1, 1, 10)), rounds=2000, seeds=500).rounds_per_second
    print(f"  {'500 seeds in one batch':36} {batched:>12,.0f}   {batched / plain:6.1f} x plain")
    print(f"  {'500 seeds x 10 thresholds':36} {grid:>12,.0f}   {grid / plain:6.1f} x plain")
    print(f"  {'one seed at a time':36} {plain:>12,.0f}      1.0 x plain")
    print(f"  {'a fresh solve each round (NumPy)':36} {fresh:>12,.0f}   {fresh / plain:6.1f} x plain")


def table1_grid() -> None:
    from safedial.paper.table1 import POLICIES, table1, table1_spec

    print("\nTable 1 grid, d = 5, 30 seeds, 10 thresholds x 2 policies x 10,000 rounds: aggregate rounds per second")
    started = time.perf_counter()
    table1(dim=5, seeds=30, rounds=10_000)
    fast = 20 * 30 * 10_000 / (time.perf_counter() - started)
    plain = simulate(make_policy(POLICIES[0], radius="paper"), LinearWorld(dim=5), spec(), rounds=3000, seeds=1)
    print(f"  {'the grid in two batches':36} {fast:>12,.0f}   {fast / plain.rounds_per_second:6.1f} x plain")
    print(f"  {'one cell, one seed at a time':36} {plain.rounds_per_second:>12,.0f}      1.0 x plain")
    print(f"  (thresholds of the grid: {table1_spec().threshold.tolist()})")


def sweeps() -> None:
    import tempfile

    from safedial.simulation.sweeps import read_grid, run_sweep

    print("\nSweep of 1,000 cells (bundled grid thousand), seconds")
    grid = read_grid("thousand")
    with tempfile.TemporaryDirectory() as folder:
        for label in ("first run, all cores", "again, nothing to do"):
            started = time.perf_counter()
            state = run_sweep(grid, folder)
            print(f"  {label:24} {time.perf_counter() - started:6.2f}   ({state.computed} computed)")


def fresh_solve_rounds_per_second(dim: int, rounds: int) -> float:
    """Algorithm 1 as one would first write it: np.linalg.solve in every round."""
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((rounds, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    gram, rhs = np.eye(dim), np.zeros((dim, 2))
    started = time.perf_counter()
    for number, context in enumerate(contexts):
        solved = np.linalg.solve(gram, np.column_stack([context, rhs]))
        width = np.sqrt(context @ solved[:, 0])
        radius = np.sqrt(dim * np.log((1 + number) / 0.01)) + 1
        reward, cost = context @ solved[:, 1:] + radius * width
        if reward >= 0:
            intensity = min(1.0, 0.5 / (cost + 3.03))
            outcome = intensity * rng.standard_normal(2)
            gram += np.outer(context, context)
            rhs += np.outer(context, outcome / intensity)
    return rounds / (time.perf_counter() - started)


def online() -> None:
    print("\nAgent, microseconds a call (hp_probe, unit noise)")
    print("  bare: the shortest BLAS code for the same arithmetic; solve: np.linalg.solve for one decision.")
    print(f"  {'d':>6} {'ask p50':>11} {'p99':>9} {'bare':>9} {'ratio':>6} {'tell p50':>11} {'bare':>9} {'solve':>9}")
    for dim in (2, 10, 26, 128, 512, 2048):
        row = bench_online(dim)
        gram, rhs = np.eye(dim) + 0.1, np.ones((dim, 3))
        repeats = max(3, 200_000 // dim**2)
        np.linalg.solve(gram, rhs)
        started = time.perf_counter()
        for _ in range(repeats):
            np.linalg.solve(gram, rhs)
        solve = (time.perf_counter() - started) / repeats * 1e6
        print(
            f"  {dim:>6} {row['ask_p50_us']:>11.1f} {row['ask_p99_us']:>9.1f} {row['bare_ask_us']:>9.1f} "
            f"{row['ask_p50_us'] / row['bare_ask_us']:>6.2f} {row['tell_p50_us']:>11.1f} "
            f"{row['bare_tell_us']:>9.1f} {solve:>9.0f}"
        )


def replays() -> None:
    from benchmarks.replay_speed import bench_replay

    print("\nReplay, microseconds a round (hp_ucb, unit noise); docs/replay.md has more")
    print(f"  {'d':>6} {'reference':>11} {'rank one':>9} {'blocked':>9} {'GEMM GFLOP/s':>13} {'blocked GFLOP/s':>16}")
    for dim, rounds in ((64, 8192), (512, 8192), (2048, 4096)):
        row = bench_replay(dim, rounds=rounds)
        print(
            f"  {dim:>6} {row['reference_us_per_round']:>11.1f} {row['rank_one_us_per_round']:>9.1f} "
            f"{row['blocked_us_per_round']:>9.1f} {row['gemm_gflops']:>13.0f} {row['blocked_gflops']:>16.0f}"
        )


def studies() -> None:
    from benchmarks.study_speed import bench_load, bench_log

    print("\nA study on SQLite, every answer after its commit (d = 16, 16 callers); docs/study.md has more")
    load = bench_load(None, dim=16, decisions=5_000, threads=16)
    log = bench_log(None, dim=16, events=100_000)
    for name in ("asks_per_second", "rounds_per_second", "asks_p99_ms"):
        print(f"  {name.replace('_', ' '):48} {load[name]:>12,.1f}")
    for name in ("chain_events_per_second", "recomputed_decisions_per_second", "cold_fold_seconds"):
        print(f"  {name.replace('_', ' ') + ' (100,000 events)':48} {log[name]:>12,.1f}")


def start_up() -> None:
    print("\nStart-up, seconds (best of 5)")
    for label, words in (
        ("import safedial", ["-c", "import safedial"]),
        ("safedial --help", ["-m", "safedial", "--help"]),
    ):
        times = []
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- fixed words
            times.append(time.perf_counter() - started)
        print(f"  {label:20} {min(times):.2f}")


def print_tables() -> None:
    start_up()
    simulation()
    table1_grid()
    sweeps()
    online()
    replays()
    studies()
