"""How often each check of a log catches a world that breaks its assumption, and how often it flags a true spec.

A world is a function that makes a log from a seed and a number of rounds; every log is checked against `SPEC`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from safedial.errors import is_whole, require
from safedial.model.dose import DoseCurve, power
from safedial.model.spec import SafetySpec
from safedial.rounds.log_file import Log
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.results import simulated_log
from safedial.tools.checks import CHECKS, LEVEL, check_log, needed_evidence
from safedial.tools.linear_checks import read_residuals

KAPPA = 0.3
NOISE: dict[str, Any] = {"reward_noise": KAPPA, "cost_noise": KAPPA}
SPEC = SafetySpec(
    threshold=0.5, violation_risk=0.045, estimation_risk=0.005, **NOISE, coefficient_bound=1.0, context_bound=1.0
)


def played(seed: int, rounds: int, spec: SafetySpec = SPEC, dose: DoseCurve | None = None, **world: Any) -> Log:
    """HP-Probe's log in a world with the constants of `spec`."""
    return simulated_log("hp_probe", LinearWorld(dim=3, **world), spec, rounds=rounds, seed=seed, dose=dose)


def changed(seed: int, rounds: int) -> Log:
    """The coefficients change halfway."""
    parts = [played(seed, rounds // 2), played(10_000 + seed, rounds - rounds // 2)]
    names = ("context", "action", "reward", "cost", "advised", "baseline_cost")
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Log(names=parts[0].names, round=np.arange(1.0, rounds + 1.0), **joined)


def hidden_baseline(seed: int, rounds: int) -> Log:
    log = played(seed, rounds, baseline_cost=0.03)
    return replace(log, baseline_cost=np.zeros(rounds))


def doses_by_context(seed: int, rounds: int) -> Log:
    """A pilot without recorded advice, in which a feature guides the doses."""
    log = played(seed, rounds)
    action = np.clip(0.5 + 0.3 * log.context[:, 0] + 0.1 * np.random.default_rng(seed).normal(size=rounds), 0.05, 1.0)
    outcomes = {name: getattr(log, name) / log.action * action for name in ("reward", "cost")}
    return replace(log, action=action, advised=np.full(rounds, np.nan), **outcomes)


def slipped_digit(seed: int, rounds: int) -> Log:
    """One record is off by ten times the noise."""
    log, row = played(seed, rounds), rounds // 2 + seed % 40
    cost = log.cost.copy()
    cost[row] += 10.0 * KAPPA * log.action[row]
    return replace(log, cost=cost)


BREAKS: dict[str, tuple[str, Callable[[int, int], Log], int]] = {
    "coefficients longer than S": ("norms", partial(played, spec=replace(SPEC, coefficient_bound=1.4)), 300),
    "contexts longer than L": ("norms", partial(played, spec=replace(SPEC, context_bound=1.2)), 60),
    "Student's t with 3 degrees": ("tails", partial(played, noise="student-t3"), 1000),
    "noise 1.3 κ": ("tails", partial(played, spec=replace(SPEC, cost_noise=1.3 * KAPPA)), 400),
    "a sine mean": ("linearity", partial(played, mean="sine"), 300),
    "coefficients that change": ("drift", changed, 300),
    "another dose curve": ("dose_curve", partial(played, dose=power(2.0)), 400),
    "a hidden baseline cost": ("dose_curve", hidden_baseline, 300),
    "doses by context": ("confounding", doses_by_context, 100),
    "noise by context": ("noise", partial(played, noise="context-scale"), 500),
    "noise by action": ("noise", partial(played, spec=replace(SPEC, cost_sensor_noise=0.04)), 400),
    "a slipped digit": ("influence", slipped_digit, 300),
}
"""World → the check that must catch it, the function that makes its log, and the number of rounds."""


def bench_checks(runs: int, *, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
    """The share of `runs` logs of each world that its check catches, and the share of `runs` clean logs with a flag."""
    require(is_whole(runs), "runs", runs, "must be a whole number >= 1")
    needed, power_of = needed_evidence(LEVEL), {}
    for world, (name, maker, rounds) in BREAKS.items():
        logs = (maker(seed, rounds) for seed in range(runs))
        caught = sum(CHECKS[name](read_residuals(log, SPEC), needed=needed).flagged for log in logs)
        power_of[world] = {"check": name, "rounds": rounds, "caught": caught / runs}
        if progress:
            progress(1)
    quiet = [check_log(played(100_000 + seed, 300), SPEC)[1] for seed in range(runs)]
    return {
        "runs": runs,
        "level": LEVEL,
        "caught": power_of,
        "false_flags": sum(any(each.flagged for each in found) for found in quiet) / runs,
        "false_flags_by_check": {
            name: sum(found[index].flagged for found in quiet) / runs for index, name in enumerate(CHECKS)
        },
    }
