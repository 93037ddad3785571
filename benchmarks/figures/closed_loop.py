"""A simulated battery in a closed loop: certificates, violations and residuals where no model is right.

The world is `BatteryWorld`: 120-second steps at up to 4 A, a thermometer with 0.1 °C error, cells that differ. The
limit is 3 °C above ambient, τ = 0.3, at a total risk of 0.05 per round: δ + δ′ for certified agents, δ for conformal
ones. The constants come from 3000 steps of random load: the least-squares coefficients have norm at most 2.1, so
S = 2.5; errors of the cost per unit of intensity have standard deviation 0.06 above half intensity, so κ = 0.08; the
sensors' own errors are 0.01.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from benchmarks.figures.battery_loop import Round, alarm_round, by_band, noise_round, residuals_of_fits, run_loop
from benchmarks.worlds.battery import BatteryWorld
from safedial.errors import is_whole, require
from safedial.io import Bar, no_bar, read_rows
from safedial.model.dose import Dose, identity, power
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.paper.experiment import Experiment, Found, OwnSeeds, Rows, Table, cells
from safedial.policies import make_policy
from safedial.policies.conformal import OFF
from safedial.rounds.agent import Agent
from safedial.rounds.rules import write_parts
from safedial.stats import as_seeds
from safedial.tools.pages import COLOURS, columns, legend_below, new_figure, read_provenance, save

RISK = 0.05
START = 0.25
"""The share of the largest current that is declared safe for HP-Conformal: it warms no cell by 0.6 °C."""

POINTS = 60
"""Checkpoints of a run."""

NOISE: dict[str, Any] = {"reward_noise": 0.08, "cost_noise": 0.08}
UNSTATED = SafetySpec(threshold=0.3, total_risk=RISK, **NOISE, coefficient_bound=2.5, context_bound=1.0)
CERTIFIED = replace(UNSTATED, reward_sensor_noise=0.01, cost_sensor_noise=0.01)
CONFORMAL = SafetySpec(threshold=0.3, total_risk=RISK, guarantee="conformal")
LINE, SQUARE = Dose(identity(), identity()), Dose(identity(), power(2.0))


class Series(NamedTuple):
    """An agent, and whether it is told the heat left from the last step."""

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
"""Name → agent. "line" and "square" are the cost's dose curve; the reward's is the line. "told": the heat left from the
last step is stated as baseline cost. "micro-doses": the sensors' noise is not stated, so probes shrink without limit;
if it is stated, none is below σ_ε/κ and small doses weigh less. HP-Conformal without micro-doses gives no probes."""

LINES = ("-", "--", "-", "-.", ":")
"""Line styles of the agents of one policy, in order; their colours are `SHADES`, or else the policy's."""

SHADES = {"hp_probe": ("#009E73", "#E69F00", "#CC79A7", "#00543D", "#8C6D31"), "hp_conformal": ("#56B4E9", "#1B4F72")}
FIT_COLOURS = ("#D55E00", "#CC79A7", "#999999", "#000000")


def make_agent(series: Series, world: BatteryWorld) -> Agent:
    exchangeable = GUARANTEES[series.spec.guarantee].exchangeable
    start, unguarded = (START, OFF) if exchangeable else (None, {})
    policy = make_policy(series.policy, **unguarded, **series.options)
    cooled = (-series.spec.threshold, math.inf)
    return Agent(world.dim, series.spec, policy=policy, dose=series.dose, start_action=start, baseline_range=cooled)


def curve_rows(name: str, series: Series, played: Sequence[Round], seed: int) -> Rows:
    """One row for each checkpoint of a run; violations are counted in the rounds that had a guarantee."""
    guaranteed = np.cumsum([GUARANTEES[each.guarantee].proved for each in played])
    broken = np.cumsum([each.violated and GUARANTEES[each.guarantee].proved for each in played])
    violated = np.cumsum([each.violated for each in played])
    reward = np.cumsum([each.reward for each in played])
    peak = np.maximum.accumulate([each.true_cost for each in played])
    alarmed, noisy = alarm_round(played), noise_round(played)
    marks = np.unique(np.linspace(1, len(played), min(POINTS, len(played))).astype(int))
    return [
        {
            "series": name,
            "policy": series.policy,
            "seed": seed,
            "round": int(mark),
            "risk": RISK,
            "threshold": series.spec.threshold,
            "guaranteed_rounds": int(guaranteed[mark - 1]),
            "guaranteed_violations": int(broken[mark - 1]),
            "violations": int(violated[mark - 1]),
            "mean_reward": float(reward[mark - 1] / mark),
            "mean_action": float(np.mean([each.action for each in played[:mark]])),
            "largest_true_cost": float(peak[mark - 1]),
            "evidence": float(played[mark - 1].evidence),
            "alarm_round": "" if alarmed is None else alarmed,
            "noise_round": "" if noisy is None else noisy,
            "cells": played[mark - 1].cell,
        }
        for mark in marks
    ]


def summary(rows: Sequence[dict[str, Any]]) -> Rows:
    """One row for each series, from the last checkpoint of every seed."""
    last = {(row["series"], row["seed"]): row for row in rows}
    found = []
    for name in dict.fromkeys(row["series"] for row in rows):
        ends = [row for (series, _), row in last.items() if series == name]
        guaranteed = sum(row["guaranteed_rounds"] for row in ends)
        found.append(
            {
                "series": name,
                "violation_rate": sum(row["guaranteed_violations"] for row in ends) / guaranteed
                if guaranteed
                else None,
                "violation_rate_all_rounds": sum(row["violations"] for row in ends) / sum(row["round"] for row in ends),
                "guaranteed_rounds": guaranteed,
                "guaranteed_risk": RISK,
                "mean_reward": float(np.mean([row["mean_reward"] for row in ends])),
                "largest_true_cost": max(row["largest_true_cost"] for row in ends),
                "alarm_rounds": [row["alarm_round"] or None for row in ends],
                "noise_rounds": [row["noise_round"] or None for row in ends],
            }
        )
    return found


def run(
    folder: Path,
    *,
    rounds: Annotated[int, "Rounds for each seed: discharge steps of 120 s."] = 1500,
    seeds: OwnSeeds = 3,
    bar: Bar = no_bar,
) -> Found:
    """Run agents on a simulated battery in a closed loop: certificates, violations, residuals."""
    require(is_whole(rounds), "rounds", rounds, "must be a whole number >= 1")
    which = as_seeds(seeds)
    world, rows, bands = BatteryWorld(), [], []
    with bar(f"A battery in the loop, {len(which)} seeds", len(SERIES) * len(which) * rounds) as advance:
        for name, series in SERIES.items():
            pooled: list[Round] = []
            for seed in which:
                agent = make_agent(series, world)
                told = {"carry_over": series.carry_over, "resume_noise": True}
                played = run_loop(agent, world, rounds, seed, **told, progress=advance)
                rows += curve_rows(name, series, played, seed)
                pooled += [each for each in played if GUARANTEES[each.guarantee].proved]
            bands += [{"source": "in the loop", "model": name, **band._asdict()} for band in by_band(pooled)]
    for name, means in residuals_of_fits(world, steps=max(rounds, 100), seed=max(which) + 1).items():
        bands += [{"source": "random loads", "model": name, **band._asdict()} for band in means]
    settings = {
        "world": {"simulator": f"progpy {version('progpy')}", **asdict(world)},
        "rounds": rounds,
        "seeds": which,
        "start_action": START,
        "series": {name: _plain(series) for name, series in SERIES.items()},
    }
    return Found({"closed_loop": rows, "closed_loop_residuals": bands}, settings, {"rows": summary(rows)})


def _plain(series: Series) -> dict[str, Any]:
    return {**series._asdict(), **write_parts({"spec": series.spec, "dose": series.dose})}


def draw(folder: Path) -> list[Path]:
    """`closed_loop.png` from `closed_loop.csv` and `closed_loop_residuals.csv`."""
    rows = read_rows(folder / "closed_loop.csv")
    bands = read_rows(folder / "closed_loop_residuals.csv")
    looks = _looks(rows)
    figure, (over, gain, loop, loads) = new_figure(columns=2, rows=2, height=2.5)
    _violations(over, rows, looks)
    _rewards(gain, rows, looks)
    seen = [row for row in bands if row["source"] == "in the loop"]
    _residuals(loop, seen, {name: look["color"] for name, look in looks.items()}, "in the loop, one step ahead")
    fitted = [row for row in bands if row["source"] == "random loads"]
    names = list(dict.fromkeys(row["model"] for row in fitted))
    _residuals(loads, fitted, dict(zip(names, FIT_COLOURS, strict=True)), "least squares on random loads")
    loop.set_yscale("symlog", linthresh=0.03)
    loop.set_yticks([-0.3, -0.03, 0.0, 0.03, 0.3, 1.0], ["−0.3", "−0.03", "0", "0.03", "0.3", "1"])
    loads.legend(fontsize=6, frameon=False, loc="upper center", ncols=2)
    loads.set_ylim(-0.06, 0.1)
    legend_below(figure, *over.get_legend_handles_labels(), ncols=2, fontsize=6.5)
    return [save(figure, folder / "closed_loop.png")]


def _looks(rows: Rows) -> dict[str, dict[str, Any]]:
    """Colour and line of each series, different within a policy."""
    looks: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["series"] not in looks:
            number = sum(look["policy"] == row["policy"] for look in looks.values())
            shades = SHADES.get(row["policy"], (COLOURS[row["policy"]],))
            look = {"color": shades[number % len(shades)], "linestyle": LINES[number % len(LINES)]}
            looks[row["series"]] = {"policy": row["policy"], **look}
    return looks


def _violations(panel: Any, rows: Rows, looks: dict[str, Any]) -> None:
    """Violations under a guarantee so far, one line per seed, compared with what the risk allows; ✕ is an alarm."""
    for name, look in looks.items():
        for number, seed in enumerate(sorted({row["seed"] for row in rows})):
            mine = [row for row in rows if row["series"] == name and row["seed"] == seed]
            label = name if number == 0 else None
            style = {"color": look["color"], "linestyle": look["linestyle"], "linewidth": 1.1}
            panel.plot(*columns(mine, ("round", "guaranteed_violations")), label=label, **style)
            if mine[-1]["alarm_round"] != "":
                panel.plot(mine[-1]["alarm_round"], mine[-1]["guaranteed_violations"], "x", color=look["color"])
    last = max(row["round"] for row in rows)
    panel.plot([0, last], [0, rows[0]["risk"] * last], color="grey", linestyle="--", linewidth=1)
    panel.text(last, rows[0]["risk"] * last, "what the risk allows", ha="right", va="bottom", fontsize=6.5, color="0.3")
    panel.set(xlabel="round", ylabel="costs over τ so far")
    panel.set_title("violations under a guarantee; ✕: alarm", fontsize=8)


def _rewards(panel: Any, rows: Rows, looks: dict[str, Any]) -> None:
    """Mean reward of each seed, by series."""
    last = {(row["series"], row["seed"]): row for row in rows}
    for place, (name, look) in enumerate(looks.items()):
        rewards = [row["mean_reward"] for (series, _), row in last.items() if series == name]
        mean = sum(rewards) / len(rewards)
        panel.barh(place, mean, color=look["color"], height=0.8, alpha=0.45)
        panel.text(0.001, place, name, va="center", fontsize=6)
        panel.plot(rewards, [place + 0.3] * len(rewards), "k.", markersize=2.5)
    panel.invert_yaxis()
    panel.set_yticks([])
    panel.set_xlabel("mean reward per round (dots: seeds)")
    panel.set_title("reward", fontsize=8)


def _residuals(panel: Any, rows: Rows, colours: dict[str, str], title: str) -> None:
    """Mean error of the cost's model by band of the dial, with two standard errors."""
    panel.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    for number, (name, colour) in enumerate(colours.items()):
        mine = [row for row in rows if row["model"] == name]
        middle = [(row["low"] + row["high"]) / 2 + 0.012 * (number - len(colours) / 2) for row in mine]
        errors = [2 * row["error"] for row in mine]
        style = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 0.9, "capsize": 1.5}
        panel.errorbar(middle, [row["mean"] for row in mine], yerr=errors, label=name, **style)
    panel.set(xlim=(0, 1), xlabel="dial (share of the largest current)", ylabel="mean of cost − model")
    panel.set_title(title, fontsize=8)


def table(folder: Path) -> list[Table | str]:
    """Violations, reward, heat and alarms of each agent."""
    rows = summary(read_rows(folder / "closed_loop.csv"))
    settings = read_provenance(folder, "closed_loop")["settings"]
    lines = []
    for row in rows:
        over = "–" if row["violation_rate"] is None else "{violation_rate:.4f}"
        forms = ("{series}", "{guaranteed_rounds:.0f}", over, "{mean_reward:.3f}", "{largest_true_cost:.2f}")
        lines.append([*cells(row, forms), *_stops(row)])
    title = f"A battery in the loop ({len(settings['seeds'])} seeds × {settings['rounds']} rounds)"
    return [
        Table(
            title, ["agent", "guaranteed rounds", "over τ", "reward", "hottest", "noise_broken at", "alarm at"], lines
        ),
        f"Guaranteed: over τ in at most {RISK:g} of the rounds; counted where a guarantee was given.\n"
        "Costs are in units of 10 °C above ambient, τ = 0.3. docs/battery.md says which assumptions fail here.\n"
        "An agent whose noise is larger than stated (noise_broken) is resumed at once, to see what follows.",
    ]


def _stops(row: dict[str, Any]) -> list[str]:
    """The rounds, by seed, in which the watch of the noise and another alarm first stopped the agent."""
    stops = row["noise_rounds"], row["alarm_rounds"]
    return ["/".join("–" if number is None else f"{number:.0f}" for number in numbers) for numbers in stops]


EXPERIMENT = Experiment(name="closed_loop", run=run, draw=draw, table=table)
