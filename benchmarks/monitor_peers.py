"""Our alarms beside MAPIE's, on the same rounds: rounds from a change to the alarm, each at the same level.

Costs are those of `monitor_power`: they exceed at the guaranteed rate, and after a change at a multiple of it.

| alarm | what it tests |
|---|---|
| `monitor` | excesses are at most as frequent as guaranteed |
| `exchangeability` | costs come in no particular order (the watch of HP-Conformal and HP-Shield) |
| MAPIE `RiskMonitoring` | the first, by a lower confidence bound for all time on the rate (Podkopaev and Ramdas 2022) |
| MAPIE `OnlineExchangeabilityTest` | the second, by its jumper martingale and its plug-in martingale |

RiskMonitoring spends half of its level on a reference set. Here the threshold is stated: it is given twice the level.
MAPIE fits a regression on its first rounds, which its martingales leave out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.monitor_power import THRESHOLD, check_monitor, costs_at, first_alarms
from safedial.bounds import ranks
from safedial.errors import require

Array = NDArray[np.float64]
REFERENCE = 100
"""Rounds that MAPIE's martingales are given first, from which it takes those for its regression; the length of its own
burn-in. Its regression takes a share of whatever comes first."""
MARTINGALES = ("jumper_martingale", "plugin_martingale")


def draw_costs(rates: Array, runs: int, seed: int) -> Array:
    """Costs (runs, rounds) that exceed with the rate of each round."""
    return costs_at(rates, np.random.default_rng([seed, 78]).standard_normal((runs, rates.size)))


def by_monitor(costs: Array, risk: float, level: float) -> list[int]:
    return first_alarms(costs.T, len(costs), risk=risk, level=level).tolist()


def by_exchangeability(costs: Array, risk: float, level: float) -> list[int]:
    """With p-values by the rank of a cost among those so far; costs have no ties but with themselves."""
    capital, first = ranks.init((len(costs),)), np.zeros(len(costs), dtype=int)
    coins = np.random.default_rng(79).random(costs.shape)
    for number, now in enumerate(costs.T, start=1):
        above = (costs[:, : number - 1] > now[:, None]).sum(axis=1)
        capital = ranks.update(capital, (above + coins[:, number - 1]) / number)
        first = np.where((first == 0) & ranks.alarm(capital, level), number, first)
    return first.tolist()


def by_risk_monitoring(costs: Array, risk: float, level: float) -> list[int]:
    mapie: Any = import_module("mapie.exchangeability_testing")
    first = []
    for each in costs:
        watch = mapie.RiskMonitoring(risk="accuracy", threshold=risk, test_level=2.0 * level, warn=False)
        watch.update((each > THRESHOLD).astype(int), np.zeros(each.size, dtype=int))
        first.append(_first(watch.online_risk_lower_bound_sequence_history > risk, 0))
    return first


def by_martingale(name: str) -> Callable[[Array, float, float], list[int]]:
    def alarms(costs: Array, risk: float, level: float) -> list[int]:
        mapie: Any = import_module("mapie.exchangeability_testing")
        first = []
        for each in costs:
            own = {name: {"task": "regression", "random_state": 0}}
            test = mapie.OnlineExchangeabilityTest(method_names=name, test_level=level, warn=False, method_params=own)
            for part in (each[:REFERENCE], each[REFERENCE:]):
                test.update(np.zeros((part.size, 1)), part)
            values = np.array(test.test_methods[0].martingale_value_history)
            first.append(_first(values >= 1.0 / level, each.size - values.size))
        return first

    return alarms


def _first(hit: Any, before: int) -> int:
    """The number of the first round that is hit, from 1; 0 if none is."""
    return before + int(np.argmax(hit)) + 1 if hit.any() else 0


OURS = {"monitor": by_monitor, "exchangeability": by_exchangeability}
MAPIE = {"MAPIE RiskMonitoring": by_risk_monitoring} | {f"MAPIE {name}": by_martingale(name) for name in MARTINGALES}


def compare_monitors(
    *,
    runs: int = 100,
    rounds: int = 1000,
    change: int = 300,
    risk: float = 0.05,
    level: float = 0.01,
    multiple: float = 3.0,
) -> dict[str, Any]:
    """For each alarm: false alarms without a change; how many changes are caught, and the median rounds until then."""
    check_monitor(runs=runs, rounds=rounds, risk=risk, level=level, multiple=multiple)
    require(0 <= change < rounds, "change", change, f"must lie between 0 and rounds = {rounds}")
    calm = draw_costs(np.full(rounds, risk), runs, 0)
    changed = draw_costs(np.where(np.arange(rounds) < change, risk, multiple * risk), runs, 1)
    try:
        alarms, left_out = {**OURS, **MAPIE}, {}
        found = f"MAPIE {version('mapie')}"
    except ImportError:
        alarms, found, left_out = dict(OURS), "", {"MAPIE": "not installed: pip install mapie"}
    rows = {}
    for name, alarm in alarms.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what scikit-learn says of a regression on a constant
            false, first = (np.array(alarm(costs, risk, level)) for costs in (calm, changed))
        after = np.where(first > change, first - change, np.inf)
        caught = {"caught": float(np.mean(first > change)), "median_rounds": float(np.median(after))}
        rows[name] = {"false_alarms": float(np.mean(false > 0)), **caught}
    return {"alarms": rows, "left_out": left_out, "versions": found, "change": change, "rate_after": multiple * risk}
