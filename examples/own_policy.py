"""A policy of your own, checked against every claim and compared with HP-UCB.

    python examples/own_policy.py [ROUNDS]

It plays HP-UCB's safe dose, but only a tenth of it where the estimate is still unsure.
"""

import sys
from dataclasses import dataclass

from safedial import LinearWorld, SafetySpec, check_policy, simulate
from safedial.model.namespace import where  # for floats, NumPy and JAX
from safedial.policies.linear import HPUCB


@dataclass(frozen=True, kw_only=True)
class Patient(HPUCB):
    name = "patient"
    label = "Patient HP-UCB"
    patience: float = 0.1

    def choose(self, bound, asked):
        given = super().choose(bound, asked)
        return where(bound.memo.width > self.patience, 0.1 * given, given)


def main(rounds: int) -> None:
    check_policy(Patient)
    spec = SafetySpec(
        threshold=0.5, total_risk=0.02, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
    )
    for policy in (Patient(), "hp_ucb"):
        result = simulate(policy, LinearWorld(dim=3), spec, rounds=rounds, seeds=10)
        over = result.violations.mean() / rounds
        print(f"{result.policy.label}: {over:.2%} of the rounds over the threshold, regret {result.regret.mean():.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
