"""Five users: the policy that `safedial choose` ranks first, its forecast, and the share measured afterwards.

    python -m benchmarks.choose [--seeds 50]

The measurement is a simulation of the same plan in the user's world with other seeds: other coefficients, contexts and
noise than any that the forecast saw. `tests/tools` checks the same with fewer rounds.
"""

from __future__ import annotations

import argparse
from typing import Any

from safedial import choose, growth
from safedial.tools.candidates import best, forecast, scene
from safedial.tools.choosing import Ranking

FAR = 100_000
"""The first seed of the measurement."""

KNOWN = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0}
PLAN = {"risk": 0.05, "dim": 5}

USERS: dict[str, tuple[dict[str, Any], str]] = {
    "a dosing team with a protocol and a bracket": (
        {
            **PLAN,
            "curve": "bracket",
            "exchangeable": True,
            "growth": growth.relative(0.7, 1.4, floor=2),
            "threshold": 20,
            "start": 0.25,
            "rounds": 300,
        },
        "hp_shield",
    ),
    "an engineer with known noise and a linear cost": (
        {
            **PLAN,
            "curve": "exact",
            "linear": True,
            "noise": "constants",
            "constants": KNOWN,
            "threshold": 0.5,
            "rounds": 1000,
        },
        "hp_probe",
    ),
    "a lab with Gaussian noise": (
        {
            **PLAN,
            "curve": "exact",
            "linear": True,
            "noise": "gaussian",
            "exchangeable": True,
            "constants": KNOWN,
            "threshold": 0.5,
            "start": 0.05,
            "rounds": 300,
        },
        "hp_student",
    ),
    "a platform with exchangeable contexts only": (
        {
            **PLAN,
            "curve": "exact",
            "exchangeable": True,
            "constants": KNOWN,
            "threshold": 0.5,
            "start": 0.05,
            "rounds": 5000,
        },
        "hp_conformal",
    ),
    "a ward that sees an event or none (0/1 costs)": (
        {
            **PLAN,
            "curve": "bracket",
            "cost": "zero-one",
            "exchangeable": True,
            "growth": growth.spread(1.25, 0.5),
            "threshold": 0.5,
            "start": 0.3,
            "rounds": 800,
        },
        "hp_shield",
    ),
}
"""What each user vouches for and plans, and the policy that an expert would take."""


def measured(found: Ranking, seeds: int) -> float:
    """The share of the first policy in studies that the forecast did not see."""
    played = scene(found.best.policy, found.best.spec, found.user)
    if played is None:
        return float("nan")
    other = range(FAR, FAR + seeds)
    known = best(played, found.user, seeds=other)
    return forecast(played, known, found.user, seeds=other, progress=None).share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    seeds = parser.parse_args().seeds
    print(f"| user | rounds | first | forecast (95 %) | measured | off by |\n|{'---|' * 6}")
    for name, (fields, expected) in USERS.items():
        found = choose(**fields, seeds=seeds)
        first, told = found.best, found.best.forecast
        share = measured(found, seeds)
        right = "" if first.policy.name == expected else f" (an expert: {expected})"
        interval = f"{told.share:.3f} ({told.share_low:.3f}–{told.share_high:.3f})" if told else "–"
        off = abs(share / told.share - 1.0) if told else float("nan")
        print(
            f"| {name} | {fields['rounds']} | {first.name}{right} | {interval} | {share:.3f} | {off:.1%} |", flush=True
        )


if __name__ == "__main__":
    main()
