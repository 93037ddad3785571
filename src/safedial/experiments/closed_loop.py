"""A battery that answers the chosen current: what certificates, violations and residuals say where no model is right.

The world is `BatteryWorld`: 120-second steps at up to 4 A, a thermometer with 0.1 °C error, cells that differ. The
limit is 3 °C above ambient, τ = 0.3, at a total risk of 0.05 a round: δ + δ′ for certified agents, δ for conformal
ones. The constants are what 3000 steps of random load suggest: the coefficients of least squares have norm 2.1 at most,
so S = 2.5; errors of the cost per unit of intensity have standard deviation 0.06 above half intensity, so κ = 0.08; the
sensors' own errors are 0.01.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.agent import Agent
from safedial.core.dose import Dose, DoseCurve, identity, power
from safedial.core.spec import SafetySpec
from safedial.decision.conformal_options import OFF
from safedial.errors import require
from safedial.experiments.battery_loop import Band, Round, alarm_round, band_means, by_band, run
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import make_policy
from safedial.worlds.battery import BatteryWorld

RISK = 0.05
START = 0.25
"""The share of the largest current that HP-Conformal is told to be safe: it warms no cell by 0.6 °C."""

PROMISES = ("certified", "conformal")
"""The decisions that count: not the declared start, nor the fallback after an alarm."""

POINTS = 60
"""Checkpoints of a run."""

CERTIFIED = SafetySpec(
    threshold=0.3,
    total_risk=RISK,
    reward_noise=0.08,
    cost_noise=0.08,
    coefficient_bound=2.5,
    context_bound=1.0,
    reward_sensor_noise=0.01,
    cost_sensor_noise=0.01,
)
UNSTATED = replace(CERTIFIED, reward_sensor_noise=0.0, cost_sensor_noise=0.0)
CONFORMAL = SafetySpec(threshold=0.3, total_risk=RISK, promise="conformal")
LINE, SQUARE = Dose(identity(), identity()), Dose(identity(), power(2.0))


class Series(NamedTuple):
    """An agent, and whether it is told the heat that the last step left."""

    policy: str
    spec: SafetySpec
    dose: Dose
    carry_over: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 -- never changed


SERIES: dict[str, Series] = {
    "HP-UCB, line": Series("hp_ucb", CERTIFIED, LINE),
    "HP-Probe, line": Series("hp_probe", CERTIFIED, LINE),
    "HP-Probe, line, micro-doses": Series("hp_probe", UNSTATED, LINE),
    "HP-Probe, square": Series("hp_probe", CERTIFIED, SQUARE),
    "HP-Probe, square, told": Series("hp_probe", CERTIFIED, SQUARE, carry_over=True),
    "HP-Probe, square, told, micro-doses": Series("hp_probe", UNSTATED, SQUARE, carry_over=True),
    "HP-Conformal, line, micro-doses": Series("hp_conformal", CONFORMAL, LINE),
    "HP-Conformal, square, told": Series("hp_conformal", CONFORMAL, SQUARE, carry_over=True, options={"probe": 1.0}),
}
"""Name → agent. "line" and "square" are the cost's dose curve; the reward's is the line. "told": the heat that the last
step left is given as baseline cost. "micro-doses": the sensors' noise is not stated, so probes shrink without end;
where it is, none is below σ_ε/κ and small doses weigh less. HP-Conformal without micro-doses gives no probes."""

FITS: dict[str, tuple[DoseCurve, bool]] = {
    "line": (identity(), False),
    "square": (power(2.0), False),
    "line, told": (identity(), True),
    "square, told": (power(2.0), True),
}


def make_agent(series: Series, world: BatteryWorld) -> Agent:
    start = START if series.policy == "hp_conformal" else None
    unguarded = OFF if series.policy == "hp_conformal" else {}
    policy = make_policy(series.policy, **unguarded, **series.options)
    cooled = (-series.spec.threshold, math.inf)
    return Agent(world.dim, series.spec, policy=policy, dose=series.dose, start_action=start, baseline_range=cooled)


def fits(world: BatteryWorld, *, steps: int, seed: int) -> dict[str, list[Band]]:
    """Least squares over random loads, which cover the dial evenly: where each form of the cost's model is wrong."""
    battery, rng = world.start(seed), np.random.default_rng([seed, 99])
    seen = []
    for _ in range(steps):
        context, left, action = battery.context, battery.carry_over, float(rng.random())
        seen.append((*context, action, left, battery.step(action).cost))
    table = np.array(seen)
    context, (action, left, cost) = table[:, :-3], table[:, -3:].T
    return {name: _fit(context, action, cost - told * left, curve) for name, (curve, told) in FITS.items()}


def _fit(context: NDArray[Any], action: NDArray[Any], cost: NDArray[Any], curve: DoseCurve) -> list[Band]:
    scaled = context * np.asarray(curve.effect(action))[:, None]
    coef = np.linalg.lstsq(scaled, cost, rcond=None)[0]
    return band_means(action, cost - scaled @ coef)


def curve_rows(name: str, series: Series, played: Sequence[Round], seed: int) -> list[dict[str, Any]]:
    """One row for each checkpoint of a run; violations are counted in the rounds that had a promise."""
    promised = np.cumsum([each.promise in PROMISES for each in played])
    broken = np.cumsum([each.violated and each.promise in PROMISES for each in played])
    violated = np.cumsum([each.violated for each in played])
    reward = np.cumsum([each.reward for each in played])
    peak = np.maximum.accumulate([each.true_cost for each in played])
    alarmed = alarm_round(played)
    marks = np.unique(np.linspace(1, len(played), min(POINTS, len(played))).astype(int))
    return [
        {
            "series": name,
            "policy": series.policy,
            "seed": seed,
            "round": int(mark),
            "risk": RISK,
            "threshold": series.spec.threshold,
            "promised_rounds": int(promised[mark - 1]),
            "promised_violations": int(broken[mark - 1]),
            "violations": int(violated[mark - 1]),
            "mean_reward": float(reward[mark - 1] / mark),
            "mean_action": float(np.mean([each.action for each in played[:mark]])),
            "largest_true_cost": float(peak[mark - 1]),
            "evidence": float(played[mark - 1].evidence),
            "alarm_round": "" if alarmed is None else alarmed,
            "cells": played[mark - 1].cell,
        }
        for mark in marks
    ]


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each series, from the last checkpoint of every seed."""
    last = {(row["series"], row["seed"]): row for row in rows}
    found = []
    for name in dict.fromkeys(row["series"] for row in rows):
        ends = [row for (series, _), row in last.items() if series == name]
        promised = sum(row["promised_rounds"] for row in ends)
        found.append(
            {
                "series": name,
                "violation_rate": sum(row["promised_violations"] for row in ends) / promised if promised else None,
                "violation_rate_all_rounds": sum(row["violations"] for row in ends) / sum(row["round"] for row in ends),
                "promised_rounds": promised,
                "promised_risk": RISK,
                "mean_reward": float(np.mean([row["mean_reward"] for row in ends])),
                "largest_true_cost": max(row["largest_true_cost"] for row in ends),
                "alarm_rounds": [row["alarm_round"] or None for row in ends],
            }
        )
    return found


def write_closed_loop(
    out: str | Path, *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> tuple[list[dict[str, Any]], list[Path]]:
    """`closed_loop.csv`, `closed_loop_residuals.csv` and `closed_loop.provenance.json` under `out`; and the summary."""
    for name, value in (("seeds", seeds), ("rounds", rounds)):
        require(type(value) is int and value >= 1, name, value, "must be a whole number >= 1")
    folder, world = output_folder(out), BatteryWorld()
    started = time.perf_counter()
    rows, bands = [], []
    for name, series in SERIES.items():
        pooled: list[Round] = []
        for seed in range(seeds):
            agent = make_agent(series, world)
            played = run(agent, world, rounds, seed, carry_over=series.carry_over, progress=progress)
            rows += curve_rows(name, series, played, seed)
            pooled += [each for each in played if each.promise in PROMISES]
        bands += [{"source": "in the loop", "model": name, **band._asdict()} for band in by_band(pooled)]
    for name, means in fits(world, steps=max(rounds, 100), seed=seeds).items():
        bands += [{"source": "random loads", "model": name, **band._asdict()} for band in means]
    settings = {
        "world": {"simulator": f"progpy {version('progpy')}", **asdict(world)},
        "rounds": rounds,
        "seeds": list(range(seeds)),
        "start_action": START,
        "series": {name: _plain(series) for name, series in SERIES.items()},
    }
    record = provenance(settings, time.perf_counter() - started)
    return summary(rows), [
        write_rows(folder / "closed_loop.csv", rows),
        write_rows(folder / "closed_loop_residuals.csv", bands),
        write_json(folder / "closed_loop.provenance.json", record),
    ]


def _plain(series: Series) -> dict[str, Any]:
    return {**series._asdict(), "spec": series.spec.to_dict(), "dose": series.dose.to_dict()}
