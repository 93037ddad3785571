"""A policy of your own, checked against every claim and compared with HP-UCB.

    python examples/own_policy.py [ROUNDS]

It plays HP-UCB's safe dose, but only a tenth of it where the estimate is still unsure.
"""

import sys

from safedial import LinearWorld, Policy, SafetySpec, check_policy, simulate
from safedial.bounds.choice import choose
from safedial.bounds.confidence import bound
from safedial.bounds.safe_set import safe_set
from safedial.model.namespace import namespace


def patient(*, patience: float = 0.1) -> Policy:
    def decide(prediction, spec, *, round, coin, baseline_cost=0.0):
        bounds = bound(prediction, spec, radius="mixture", clip=True)
        safe = safe_set(bounds.cost_upper, spec, round=round, baseline_cost=baseline_cost)
        choice = choose(bounds.reward_upper, safe, bounds)
        xp = namespace(choice.intensity)  # floats, NumPy or JAX
        wary = xp.where(prediction.width > patience, 0.1 * choice.intensity, choice.intensity)
        return choice._replace(intensity=wary)

    return Policy("patient", "Patient HP-UCB", "certified", decide, {"patience": patience})


def main(rounds: int) -> None:
    check_policy(patient)
    spec = SafetySpec(
        threshold=0.5, total_risk=0.02, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
    )
    for policy in (patient(), "hp_ucb"):
        result = simulate(policy, LinearWorld(dim=3), spec, rounds=rounds, seeds=10)
        over = result.violations.mean() / rounds
        print(f"{result.policy.label}: {over:.2%} of the rounds over the threshold, regret {result.regret.mean():.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
