"""The guards of HP-Conformal, measured: the leap where costs are flat and then steep, missing outcomes, pilots.

python -m benchmarks.conformal_guards leap        share of rounds over the threshold, with and without `reach`
python -m benchmarks.conformal_guards missing     share of the full-information reward, by the share of void rounds
python -m benchmarks.conformal_guards history     drift alarms after a pilot, by what history is for
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from safedial import Agent, LinearWorld, SafetySpec, make_policy
from safedial.simulation.world import generators, quantile

RISK = 0.05
FLAT, START = 0.3, 0.07
"""The share of the dial up to which the cost is flat, and where the agent starts."""


def leap(seed: int, *, reach: float | None, spread: float, rounds: int = 120) -> dict[str, Any]:
    """One agent whose cost (threshold 1) is `spread` times noise up to 30 % of the dial, and then rises to 3.

    `ahead` is the largest factor of a setting over the 10th largest one tried before it, or over the start.
    """
    rng = np.random.default_rng(seed)
    spec = SafetySpec(threshold=1.0, violation_risk=RISK, guarantee="conformal")
    agent = Agent(3, spec, start_action=START, policy=make_policy("hp_conformal", reach=reach))
    actions, costs = [], []
    for _ in range(rounds):
        decision = agent.ask(np.append(rng.standard_normal(2) / 2, 1.0))
        costs.append(3.0 * max(0.0, decision.action - FLAT) / (1.0 - FLAT) + spread * rng.random())
        agent.tell(decision, reward=decision.action, cost=costs[-1])
        actions.append(decision.action)
    tried = [max(START, sorted(actions[:number])[-10]) if number >= 10 else START for number in range(rounds)]
    over = np.array(costs) > 1.0
    return {
        "ahead": max(action / tenth for action, tenth in zip(actions, tried, strict=True)),
        "early": float(over[19:60].mean()),
        "all": float(over.mean()),
        "largest": max(actions),
        "worst": max(costs),
    }


def missing(seed: int, *, share: float, vouched: bool = True, rounds: int = 600) -> tuple[float, float]:
    """(reward, what knowing all earns) of one agent, d = 5, unit noise, with a share of the rounds given nothing."""
    world = LinearWorld(dim=5)
    spec = SafetySpec(
        threshold=0.5, violation_risk=RISK, estimation_risk=0.01, reward_noise=1, cost_noise=1, coefficient_bound=1,
        context_bound=1,
    )  # fmt: skip
    rngs = generators([seed])
    truth, draws = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, rounds)
    gain, harm = (means[:, 0] for means in world.means(spec, truth, draws.context))
    gone = np.random.default_rng([seed, 9]).random(rounds) < share
    agent = Agent(5, SafetySpec(threshold=0.5, violation_risk=RISK, guarantee="conformal"), start_action=0.05)
    earned = 0.0
    for index in range(rounds):
        decision = agent.ask(draws.context[index, 0])
        dose = decision.intensity
        earned += dose * gain[index]
        if gone[index]:
            agent.tell(decision, 0.0, reward=0.0, cost=0.0, unrelated=vouched)
        else:
            noise = draws.reward_noise[index, 0], draws.cost_noise[index, 0]
            agent.tell(decision, reward=dose * (gain[index] + noise[0]), cost=dose * (harm[index] + noise[1]))
    load = np.maximum(harm + quantile("gaussian", 1.0 - RISK), 0.5)
    return earned, float(np.sum(np.where(gain > 0.0, 0.5 / load, 0.0) * gain))


def alarmed_after_a_pilot(seed: int, *, history: str, exponent: float) -> bool:
    """One agent whose pilot was at half the dial, where the true curve is a power and the stated one the identity."""
    rng = np.random.default_rng(seed)
    spec = SafetySpec(threshold=1.0, violation_risk=RISK, guarantee="conformal")
    agent = Agent(3, spec, start_action=0.2, policy=make_policy("hp_conformal", history=history, probe=1.0))

    def outcome(context: Any, action: float) -> dict[str, float]:
        return {"reward": action, "cost": action**exponent * (1.0 + context[0] + 0.3 * rng.standard_normal())}

    for number in range(450):
        context = np.append(rng.standard_normal(2) / 2, 1.0)
        if number < 150:
            agent.tell(context, 0.5, **outcome(context, 0.5))
        else:
            decision = agent.ask(context)
            agent.tell(decision, **outcome(context, decision.action))
    return agent.alarmed


def print_leap(seeds: int = 20) -> None:
    print(f"flat to {FLAT:.0%} of the dial, start at {START:.0%}, risk {RISK:g}, {seeds} seeds, 120 rounds")
    for spread in (0.0, 0.1):
        for reach in (None, 2.0):
            runs = [leap(seed, reach=reach, spread=spread) for seed in range(seeds)]
            early, late = (float(np.mean([run[name] for run in runs])) for name in ("early", "all"))
            ahead, largest, worst = (max(run[name] for run in runs) for name in ("ahead", "largest", "worst"))
            print(
                f"  cost where flat 0 to {spread:g}, reach {reach}: over the threshold in {early:.1%} of rounds 20-60 "
                f"and {late:.1%} of all; settings up to {largest:.2f}, {ahead:.2f} times the 10th tried at most; "
                f"costs up to {worst:.2f}"
            )


def print_missing(seeds: int = 20) -> None:
    print(f"d = 5, risk {RISK:g}, 600 rounds, {seeds} seeds: share of the full-information reward")
    for vouched in (True, False):
        for share in (0.0, 0.02, 0.06, 0.1):
            earned, best = np.sum([missing(seed, share=share, vouched=vouched) for seed in range(seeds)], axis=0)
            print(f"  {share:.0%} without an outcome, {'' if vouched else 'not '}vouched for: {earned / best:.3f}")


def print_history(seeds: int = 20) -> None:
    print(f"150 rounds of pilot at half the dial, 300 rounds since, {seeds} seeds: drift alarms")
    for exponent in (1.0, 0.7, 0.5):
        for history in ("calibrate", "train"):
            count = sum(alarmed_after_a_pilot(seed, history=history, exponent=exponent) for seed in range(seeds))
            print(f"  true curve z^{exponent:g}, history {history!r}: {count}")


if __name__ == "__main__":
    {"leap": print_leap, "missing": print_missing, "history": print_history}[sys.argv[1]]()
