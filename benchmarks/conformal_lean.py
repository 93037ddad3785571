"""`python -m benchmarks.conformal_lean [long|short]`: what HP-Conformal earns without sign groups.

The tables of docs/conformal.md: the share of the exact clairvoyant's reward, which knows both means and the noise's
quantile, and of the attainable one, of a policy that knows the cost and learns the sign of the reward; the share of
rounds over the threshold, and that among full doses, about which groups="none" guarantees nothing.
`long`: T = 10,000, d = 5 and 10, delta = .02, unit noise (a second number sets the seeds). `short`: T = 100 to 1,000,
d = 5, delta = .05, two sizes of noise. Several minutes each.
"""

from __future__ import annotations

import sys
from typing import Any

from safedial import LinearWorld, SafetySpec, hp_conformal, hp_student, simulate
from safedial.policies import Policy

LEAN = {"groups": "none", "probe": 0.001}
SHORT: dict[str, Policy] = {
    "sign groups, probe .01": hp_conformal(),
    "no groups": hp_conformal(**LEAN),
    "HP-Student, per round": hp_student(),
}


def stated(risk: float, noise: float) -> SafetySpec:
    constants: dict[str, Any] = {"reward_noise": noise, "cost_noise": noise, "coefficient_bound": 1, "context_bound": 1}
    return SafetySpec(threshold=0.5, violation_risk=risk, estimation_risk=0.01, **constants)


def line(label: str, policy: Policy, dim: int, spec: SafetySpec, rounds: int, seeds: int) -> None:
    run = simulate(policy, LinearWorld(dim=dim), spec, rounds=rounds, seeds=seeds)
    share = run.reward.sum() / run.exact_clairvoyant_reward.sum()
    over, full = run.violations.mean() / rounds, run.full_dose_violations.sum() / run.full_dose_rounds.sum()
    noise, risk = spec.cost_noise, spec.violation_risk
    head = f"{label:<34} d = {dim:<3} delta = {risk:<5} noise {noise:<4} T = {rounds:<6} {seeds} seeds:"
    shares = f"{share:.3f} ({run.attainable_share:.3f} of the attainable)"
    print(f"{head} share {shares}  over {over:.4f}  among full doses {full:.4f}", flush=True)


def main(part: str, seeds: int | None) -> None:
    if part in ("", "long"):
        for dim in (5, 10):
            line("no groups", hp_conformal(**LEAN), dim, stated(0.02, 1.0), 10_000, seeds or 8)
    if part in ("", "short"):
        for noise in (1.0, 0.3):
            for rounds in (100, 200, 500, 1000):
                for label, policy in SHORT.items():
                    line(label, policy, 5, stated(0.05, noise), rounds, seeds or 100)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else None)
