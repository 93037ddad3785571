"""The guards of HP-Conformal, measured: the leap where costs are flat and then steep, and outcomes that are missing.

python benchmarks/conformal_guards.py leap        share of rounds over the threshold, with and without `reach`
python benchmarks/conformal_guards.py missing     share of the full-information reward, by how many rounds are void
python benchmarks/conformal_guards.py history     drift alarms after a pilot whose costs differ, by what history is for
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from safedial import Agent, SafetySpec, make_policy

DIM, THRESHOLD, RISK, START = 3, 1.0, 0.05, 0.07
FLAT = 0.3
"""The share of the dial up to which the cost is flat."""


def flat_then_steep(action: float, rng: np.random.Generator, *, spread: float) -> float:
    """Nothing but measurement error up to 30 % of the dial, then a straight line to three times the threshold."""
    return 3.0 * THRESHOLD * max(0.0, action - FLAT) / (1.0 - FLAT) + 0.1 * THRESHOLD * spread * rng.random()


def leap(seed: int, *, reach: float | None, spread: float, rounds: int = 120) -> dict[str, Any]:
    """One agent in that world: the largest factor over the 10th largest setting tried, and how costs came out."""
    rng = np.random.default_rng(seed)
    spec = SafetySpec(threshold=THRESHOLD, violation_risk=RISK, promise="conformal")
    agent = Agent(DIM, spec, start_action=START, policy=make_policy("hp_conformal", reach=reach))
    actions, costs = [], []
    for _ in range(rounds):
        decision = agent.decide(np.append(rng.standard_normal(DIM - 1) / 2, 1.0))
        cost = flat_then_steep(decision.action, rng, spread=spread)
        agent.update(decision, reward=decision.action, cost=cost)
        actions.append(decision.action)
        costs.append(cost)
    over = np.array(costs) > THRESHOLD
    ahead = max(
        action / max(START, sorted(actions[:number])[-10] if number >= 10 else START)
        for number, action in enumerate(actions)
    )
    return {
        "ahead": ahead,
        "early": float(over[19:60].mean()),
        "all": float(over.mean()),
        "largest": max(actions),
        "worst": max(costs),
    }


def print_leap(seeds: int = 20) -> None:
    print(f"flat to {FLAT:.0%} of the dial, start at {START:.0%}, risk {RISK:g}, {seeds} seeds, 120 rounds")
    for spread in (0.0, 1.0):
        for reach in (None, 2.0):
            runs = [leap(seed, reach=reach, spread=spread) for seed in range(seeds)]
            mean = {name: float(np.mean([run[name] for run in runs])) for name in ("early", "all")}
            most = {name: max(run[name] for run in runs) for name in ("ahead", "largest", "worst")}
            print(
                f"  cost where flat {'0' if not spread else '0 to 0.1'}, reach {reach}: over the threshold in "
                f"{mean['early']:.1%} of rounds 20-60, {mean['all']:.1%} of all; largest setting "
                f"{most['largest']:.2f}, at most {most['ahead']:.2f} times the 10th largest tried; "
                f"worst cost {most['worst']:.2f}"
            )


if __name__ == "__main__":
    {"leap": print_leap}[sys.argv[1]]()
