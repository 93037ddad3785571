"""Bid within a budget and without a noise model: HP-Conformal.

    python examples/bidding.py [HOURS]

Each hour the dial is the share of the auctions to take part in. The spend of an hour may exceed 100 euros with a chance
of at most 1 in 20. Declared is one thing: a twentieth of the auctions is affordable in any hour.
"""

import sys

import numpy as np

from safedial import Agent, Features, SafetySpec


def hour(rng: np.random.Generator) -> tuple[dict[str, float], float, float]:
    """What is known before the hour; then spend and profit at full participation."""
    clock, demand = rng.integers(24), rng.uniform(0.5, 1.5)
    traffic = demand * (1 + 0.5 * np.sin((clock - 9) * np.pi / 12))
    spend = 150 * traffic * rng.lognormal(0, 0.35)
    profit = spend * (0.6 - 0.9 * (clock < 6) + 0.1 * rng.standard_normal())
    return {"traffic": traffic, "night": float(clock < 6)}, spend, profit


def main(count: int) -> None:
    spec = SafetySpec(threshold=100, violation_risk=0.05, guarantee="conformal")
    features = Features(names=("traffic", "night"), intercept=True)
    agent = Agent(3, spec, features=features, start_action=0.05)
    rng, rows = np.random.default_rng(1), []
    for _ in range(count):
        known, spend, profit = hour(rng)
        decision = agent.ask(known)
        agent.tell(decision, reward=profit * decision.action / 100, cost=spend * decision.action)
        rows.append((spend * decision.action, profit * decision.action))
    spent, profit = np.array(rows).T
    print(f"{np.mean(spent > 100):.1%} of {count} hours exceed the budget; profit per hour {profit.mean():.1f} EUR")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
