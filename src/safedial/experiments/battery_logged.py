"""How policies perform on RW26's logged outcomes, without a fitted truth.

RW26's random-walk discharges used currents drawn at random (0.5 to 5 A, high ones more often). If the random current
happens to equal the one that a policy asks for, the step counts as that policy's, with its real outcome: rejection
replay (Li, Chu, Langford and Wang, 2011). Steps at other currents are skipped as if they had not happened, and the
policy learns only from the accepted ones. Accepted steps are weighted by one over their level's frequency, because a
request for a rare level is matched less often.

The result is the rate at which real temperature rises exceeded the threshold under each policy's choices, with its
error. It cannot show what would have followed, because the battery's state at the next step comes from the logged
current, not from the policy's; and with few accepted steps it shows little.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.datasets.battery import data_folder, load_steps
from safedial.datasets.battery.context import find_targets
from safedial.datasets.battery.sources import FILES
from safedial.decision.learners.conformal_options import OFF
from safedial.decision.units import Dial
from safedial.errors import require
from safedial.experiments.experiment import Rows, cells
from safedial.io import read_rows
from safedial.notebook import html_table
from safedial.policies import make_policy

Array = NDArray[np.float64]

NOTE = "discharge (random walk)"
LEVELS = tuple(float(level) for level in np.arange(0.5, 5.01, 0.5))
RISK = 0.05
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {}),
    "HP-Probe": ("hp_probe", {"probe": 0.25}),
    "HP-Conformal": ("hp_conformal", {"probe": 0.25, **OFF}),
    "On-Expectation": ("on_expectation", {}),
}


def logged_rounds(data: str | Path | None) -> tuple[Array, Array, Array, Array]:
    """(numbers of the last step, level in A, |voltage change|, temperature rise) of the random discharges, in order."""
    steps = load_steps(data_folder(data), "rw26")
    targets = find_targets(steps)
    told, last = steps.iloc[targets.rows], steps.iloc[targets.history[:, 0]]
    level = np.round(np.abs(told["current"].to_numpy(dtype=float)) * 2.0) / 2.0
    used = (told["note"].to_numpy() == NOTE) & (told["duration"].to_numpy() >= 10.0) & np.isin(level, LEVELS)
    require(used.any(), "source", "rw26", "has no random-walk discharges")
    told, last = told[used], last[used]
    numbers = np.column_stack([last[name].to_numpy(dtype=float) for name in ("v_end", "temp_mean", "current", "dv")])
    rise = (told["temp_max"] - told["temp_start"]).to_numpy(dtype=float)
    return numbers, level[used], np.abs(told["dv"].to_numpy(dtype=float)), rise


def logged_rows(data: str | Path | None, *, celsius: float = 2.0) -> Iterator[dict[str, Any]]:
    """One row for each policy: how many steps were accepted, and their weighted violation rate with its error."""
    from safedial.agent import Agent  # here, so that the help of `safedial reproduce` need not wait for SciPy

    numbers, level, change, rise = logged_rounds(data)
    half = len(level) // 2
    centre, spread = numbers[:half].mean(axis=0), numbers[:half].std(axis=0)
    rows = np.column_stack([(numbers - centre) / spread, np.ones(len(numbers))])
    rows /= max(1.0, float(np.linalg.norm(rows, axis=1).max())) * (1.0 + 1e-9)
    dose = level / LEVELS[-1]
    constants: dict[str, Any] = {"coefficient_bound": 0.0}
    for name, outcome in (("reward_noise", change), ("cost_noise", rise)):
        scaled = rows[:half] * dose[:half, None]
        coef, *_ = np.linalg.lstsq(scaled, outcome[:half], rcond=None)
        residual = (outcome[:half] - scaled @ coef) / dose[:half]
        constants[name] = float(np.sqrt(np.mean(residual**2)))
        constants["coefficient_bound"] = max(constants["coefficient_bound"], float(np.linalg.norm(coef)))
    share = {value: float(np.mean(level == value)) for value in LEVELS}
    for series, (name, options) in POLICIES.items():
        policy = make_policy(name, **options)
        spec = SafetySpec(
            threshold=celsius,
            total_risk=RISK,
            context_bound=1.0,
            promise="conformal" if PROMISES[policy.promise].exchangeable else "certified",
            **constants,
        )
        dial = Dial(low=0.0, high=LEVELS[-1], unit="A", levels=LEVELS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            agent = Agent(rows.shape[1], spec, policy=policy, dial=dial)
        weights, over, gained = [], [], []
        for place in range(half, len(level)):
            if agent.preview(rows[place]).action != level[place]:
                continue
            decision = agent.decide(rows[place])
            agent.update(decision, reward=change[place], cost=rise[place])
            weights.append(1.0 / share[level[place]])
            over.append(float(rise[place] > celsius))
            gained.append(change[place])
        accepted = {"weights": np.array(weights), "over": np.array(over), "gained": np.array(gained)}
        yield _row(series, name, celsius=celsius, offered=len(level) - half, **accepted)


def _row(
    series: str, name: str, *, celsius: float, offered: int, weights: Array, over: Array, gained: Array
) -> dict[str, Any]:
    """Self-normalised weighted means; the error is that of a ratio of sums, and `violation_high` a 95 % upper end: two
    errors, or, without any violation, three over the effective number of steps.
    """
    total = float(weights.sum())
    rate = float((weights * over).sum() / total) if total else math.nan
    error = float(np.sqrt(np.sum((weights * (over - rate)) ** 2)) / total) if total else math.nan
    effective = total**2 / float(np.sum(weights**2)) if total else math.nan
    high = min(1.0, rate + 2.0 * error if rate > 0.0 else 3.0 / effective) if total else math.nan
    return {
        "series": series,
        "policy": name,
        "celsius": celsius,
        "promised_risk": RISK if PROMISES[make_policy(name).promise].proved else None,
        "offered": offered,
        "accepted": int(weights.size),
        "violation_rate": rate,
        "violation_error": error,
        "violation_high": high,
        "reward_volts": float((weights * gained).sum() / total) if total else math.nan,
    }


def logged_tables(data: str | Path | None) -> dict[str, Rows]:
    """`battery_logged`, if the folder has RW26."""
    found = (data_folder(data) / FILES["rw26"]).is_file()
    return {"battery_logged": list(logged_rows(data))} if found else {}


def logged_section(folder: Path) -> list[str]:
    """The end of the battery section of the report; empty without RW26."""
    if not (folder / "battery_logged.csv").exists():
        return []
    logged = read_rows(folder / "battery_logged.csv")
    rate = "{violation_rate:.1%}, at most {violation_high:.1%}"
    forms = ("{series}", "{accepted:.0f} of {offered:.0f}", rate, "{reward_volts:.3f}")
    table = [cells(row, forms) for row in logged]
    return [
        f"<h3>On RW26's own outcomes</h3><p>Without a fitted truth: steps whose random current was the one a policy asked for, with their real "
        f"temperature rise, against {logged[0]['celsius']:g} °C (the certified policies and HP-Conformal promise at most 5 %). What it can and "
        "cannot show: docs/battery.md.</p>",
        html_table(["policy", "accepted steps", "rise above the threshold (95 %)", "|voltage change|, V"], table),
    ]
