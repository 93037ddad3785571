"""Reward against violations in every world: what each guarantee costs, and where it does not hold.

τ = 0.5, d = 5, a total risk of 0.05 per round for every policy: δ + δ′ for the certified ones, δ for HP-Conformal.
Reward is a share of the reward of an all-knowing policy: it knows θ*, μ* and the exact noise quantile at 0.05.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safedial.io import Advance, Bar, no_bar, read_rows
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.paper.experiment import Experiment, Found, Rounds, Seeds, Table, cell_or_dash, cells
from safedial.paper.table1 import UNIT
from safedial.policies import make_policy
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.results import guarantee_holds
from safedial.simulation.run import Simulation, simulate
from safedial.stats import as_seeds, violation_interval
from safedial.tools.pages import COLOURS, MARKERS, legend_below, new_figure, point, save

DIM = 5
RISK = 0.05

WORLDS: dict[str, dict[str, Any]] = {
    "Gaussian noise": {},
    "Student-t(3) noise": {"noise": "student-t3"},
    "exponential noise": {"noise": "exponential"},
    "noise depends on context": {"noise": "context-scale"},
    "mean is not linear": {"mean": "sine"},
    "contexts drift": {"noise": "context-scale", "contexts": "drift"},
}

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {}),
    "HP-Probe": ("hp_probe", {}),
    "HP-Conformal": ("hp_conformal", {}),
    "On-Expectation": ("on_expectation", {}),
}

RAREST = 1e-3
"""The left edge: smaller rates, including 0, are drawn there."""


def conformal_spec(guarantee: str) -> SafetySpec:
    """The same risk for every guarantee."""
    if GUARANTEES[guarantee].exchangeable:
        return SafetySpec(threshold=0.5, violation_risk=RISK, guarantee="conformal", **UNIT)
    return SafetySpec(threshold=0.5, total_risk=RISK, **UNIT)


def conformal_rows(*, seeds: list[int], rounds: int, progress: Advance | None = None) -> Iterator[dict[str, Any]]:
    """One row for each world and policy."""
    for place, settings in WORLDS.items():
        world = LinearWorld(dim=DIM, **settings)
        for series, (name, options) in SERIES.items():
            policy = make_policy(name, **options)
            spec = conformal_spec(policy.guarantee)
            run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
            yield {
                "world": place,
                "series": series,
                "policy": name,
                "dim": DIM,
                "seeds": len(seeds),
                "rounds": rounds,
                "risk": RISK,
                "guarantee_holds": guarantee_holds(policy, world, spec),
                **_measured(run),
            }


def _measured(run: Simulation) -> dict[str, Any]:
    dosed = run.full_dose_rounds[0]
    low, high = violation_interval(run.violations[0], run.rounds)
    return {
        "reward_share": float(run.reward.sum() / run.exact_clairvoyant_reward.sum()),
        "attainable_share": run.attainable_share,
        "full_dose_violation_rate": float(run.full_dose_violations.sum() / max(dosed.sum(), 1.0)),
        "full_dose_rounds": float(dosed.mean()),
        "violation_rate": float(run.violations.mean() / run.rounds),
        "ci_low": low,
        "ci_high": high,
        "alarmed_seeds": int(run.alarmed.sum()),
    }


def run(folder: Path, *, seeds: Seeds = 5, rounds: Rounds = 10_000, bar: Bar = no_bar) -> Found:
    """Compare reward and violations in six worlds: what each guarantee costs, and where it does not hold."""
    which = as_seeds(seeds)
    with bar(f"Six worlds, {len(which)} seeds", len(WORLDS) * len(SERIES) * rounds) as advance:
        rows = list(conformal_rows(seeds=which, rounds=rounds, progress=advance))
    settings = {"dim": DIM, "seeds": which, "rounds": rounds, **conformal_spec("conformal").to_dict()}
    return Found({"conformal": rows}, settings)


def draw(folder: Path) -> list[Path]:
    """`conformal.png` from `conformal.csv`. Filled: the policy's guarantee holds in that world; hollow: it does not."""
    rows = read_rows(folder / "conformal.csv")
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    series = list(dict.fromkeys(row["series"] for row in rows))
    figure, axes = new_figure(columns=2, rows=-(-len(worlds) // 2), height=1.9, sharex=True, sharey=True)
    for place, (panel, world) in enumerate(zip(axes, worlds, strict=False)):
        for row in rows:
            if row["world"] == world:
                _point(panel, row)
        panel.axvline(rows[0]["risk"], color="grey", linestyle="--", linewidth=1)
        panel.set_title(world, fontsize=8)
        panel.set(xscale="log", xlim=(0.7 * RAREST, 1.0), ylim=(0.0, 3.2))
        panel.axhline(1.0, color="0.85", linewidth=0.8, zorder=0)
        panel.set_xticks([1e-3, 1e-2, 1e-1, 1.0], ["≤ 0.1 %", "1 %", "10 %", "100 %"])
        if place % 2 == 0:
            panel.set_ylabel("reward (share)")
        if place >= len(worlds) - 2:
            panel.set_xlabel("full doses with cost > τ")
    axes[0].text(
        rows[0]["risk"] * 0.85, 3.1, f"guarantee {rows[0]['risk']:.0%}", ha="right", va="top", fontsize=7, color="0.3"
    )
    handles, labels = axes[0].get_legend_handles_labels()
    ordered = [handles[labels.index(name)] for name in series]
    words = "filled: the policy's guarantee holds in this world; hollow: it does not"
    legend_below(figure, ordered, series).set_title(words, prop={"size": 7})
    return [save(figure, folder / "conformal.png")]


def _point(panel: Any, row: dict[str, Any]) -> None:
    look = {"marker": MARKERS[row["policy"]], "markersize": 6, "label": row["series"]}
    at = max(row["full_dose_violation_rate"], RAREST), row["reward_share"]
    point(panel, at, COLOURS[row["policy"]], look, filled=row["guarantee_holds"])


def watches(policy: str) -> bool:
    """Whether a policy watches that rounds are exchangeable."""
    return GUARANTEES[make_policy(policy).guarantee].exchangeable


def table(folder: Path) -> list[Table | str]:
    """Reward and violations of every policy in every world."""
    rows, lines = read_rows(folder / "conformal.csv"), []
    for row in rows:
        forms = ("{world}", "{series}", "{reward_share:.1%}", cell_or_dash(row, "attainable_share", ".1%"))
        forms = (*forms, "{full_dose_violation_rate:.3%}", "{violation_rate:.3%}")
        alarms = "{alarmed_seeds:.0f} of {seeds:.0f}" if watches(row["policy"]) else ""
        lines.append(cells(row, (*forms, "yes" if row["guarantee_holds"] else "no", alarms)))
    heads = ["world", "policy", "reward share", "of the attainable", "violations, full doses", "violations"]
    title = f"Six worlds, d = {rows[0]['dim']:.0f}, τ = 0.5, risk {rows[0]['risk']:.0%} per round"
    return [Table(title, [*heads, "guarantee holds", "alarms"], lines)]


EXPERIMENT = Experiment(name="conformal", run=run, draw=draw, table=table)
