"""How often the monitor raises a false alarm, and how soon it catches a broken guarantee.

The world: a fixed dose z, costs C = z(c + ξ) with Gaussian ξ, and z such that P(C > τ) is exactly the requested rate.
At the guaranteed rate every alarm is false, and no world that keeps the guarantee gives more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import ndtri

from safedial.bounds import monitor
from safedial.errors import is_whole, require
from safedial.stats import violation_interval

MEAN_COST, NOISE, THRESHOLD = 0.2, 1.0, 0.5


def costs_at(rates: Any, normal: Any) -> Any:
    """Costs that exceed with these rates, from standard normal numbers."""
    return THRESHOLD / (MEAN_COST + NOISE * ndtri(1.0 - rates)) * (MEAN_COST + NOISE * normal)


def first_alarms(costs: Iterable[Any], runs: int, *, risk: float, level: float) -> Any:
    """The round of the first alarm of each run, from the costs of every round; 0 if there is none."""
    state, alarms = monitor.init((runs,)), np.zeros(runs, dtype=int)
    for number, cost in enumerate(costs, start=1):
        state = monitor.update(state, cost > THRESHOLD, risk)
        alarms = np.where((alarms == 0) & monitor.alarm(state, level), number, alarms)
    return alarms


def check_monitor(*, runs: int, rounds: int, risk: float, level: float, multiple: float) -> None:
    """Refuse counts and chances that cannot be simulated."""
    for name, value in (("runs", runs), ("rounds", rounds)):
        require(is_whole(value), name, value, "must be a whole number >= 1")
    for name, value in (("risk", risk), ("level", level), ("multiple", multiple * risk)):
        require(0.0 < value < 1.0, name, value, "must give a chance between 0 and 1")


def bench_monitor(
    *, runs: int = 2000, rounds: int = 2000, risk: float = 0.05, level: float = 0.01, multiple: float = 3.0
) -> dict[str, Any]:
    """False alarms at the guaranteed rate, and the median round of the alarm at `multiple` times that rate."""
    check_monitor(runs=runs, rounds=rounds, risk=risk, level=level, multiple=multiple)
    alarms = []
    for seed, rate in enumerate((risk, multiple * risk)):
        rng = np.random.default_rng([seed, 77])
        costs = (costs_at(rate, rng.standard_normal(runs)) for _ in range(rounds))
        alarms.append(first_alarms(costs, runs, risk=risk, level=level))
    kept, broken = alarms
    false = (kept > 0).astype(float)
    return {
        "risk": risk,
        "level": level,
        "runs": runs,
        "rounds": rounds,
        "false_alarms": float(false.mean()),
        "false_alarms_ci": list(violation_interval(false, 1)),
        "broken_rate": multiple * risk,
        "caught": float((broken > 0).mean()),
        "median_rounds_to_alarm": float(np.median(np.where(broken > 0, broken, np.inf))),
        "rounds_to_alarm_90": float(np.quantile(np.where(broken > 0, broken, rounds), 0.9)),
    }
