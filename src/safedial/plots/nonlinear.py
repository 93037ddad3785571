"""Regret of Algorithm 2 and of linear learners in worlds that are not linear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from safedial.experiments.nonlinear import finals
from safedial.io import read_rows
from safedial.plots.style import COLOURS, new_figure, save, title

STYLES = {
    "Non-linear HP-UCB": (COLOURS["hp_ucb"], "-"),
    "Non-linear HP-Probe": (COLOURS["hp_probe"], "-"),
    "HP-UCB, linear": (COLOURS["hp_ucb"], ":"),
    "HP-Probe, linear": (COLOURS["hp_probe"], ":"),
    "Theorem 3": ("0.3", "--"),
}

LEAST = 0.0
"""The lower edge of the last panel: what earns less is drawn there."""


def draw_nonlinear(folder: str | Path) -> Path:
    """`nonlinear.png` from `nonlinear.csv`: a panel a world, both axes logarithmic, a line of slope ½ behind."""
    rows = read_rows(Path(folder) / "nonlinear.csv")
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    figure, axes = new_figure(columns=2, rows=-(-(len(worlds) + 1) // 2), height=2.1)
    for panel, world in zip(axes, worlds, strict=False):
        here = [row for row in rows if row["world"] == world]
        lowest = _curves(panel, here)
        times = np.array(sorted({row["round"] for row in here if row["policy"] != "theorem3"}), dtype=float)
        panel.plot(times, lowest * np.sqrt(times / times[0]), color="0.8", linewidth=0.8, zorder=0, label="√T")
        title(panel, world)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.yaxis.set_minor_formatter("")
        panel.xaxis.set_minor_formatter("")
        panel.set_ylabel("regret")
        panel.set_xlabel("round")
    _rates(axes[len(worlds)], rows)
    for panel in axes[len(worlds) + 1 :]:
        panel.set_visible(False)
    found = {label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    shown = {name: found[name] for name in (*STYLES, "√T") if name in found}
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return save(figure, Path(folder) / "nonlinear.png")


def _curves(panel: Any, rows: list[dict[str, Any]]) -> float:
    """Every series of a world; returns the lowest positive regret at the first checkpoint."""
    first = []
    for series, (colour, line) in STYLES.items():
        points = [(row["round"], row["regret"]) for row in rows if row["series"] == series and row["regret"] > 0]
        if points:
            times, regrets = zip(*points, strict=True)
            panel.plot(times, regrets, color=colour, linestyle=line, linewidth=1.2, label=series)
            first.append(regrets[0])
    return float(min(first))


def _rates(panel: Any, rows: list[dict[str, Any]]) -> None:
    """Violations over the promised risk, beside the share of the clairvoyant's reward."""
    for row in finals(rows):
        colour, line = STYLES[row["series"]]
        filled = colour if row["promise_holds"] else "none"
        panel.plot(
            max(row["violation_rate"] / row["risk"], 1e-3),
            max(row["reward_share"], LEAST),
            marker="o" if line == "-" else "s",
            markersize=5,
            linestyle="none",
            markeredgecolor=colour,
            markerfacecolor=filled,
        )
    panel.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    panel.axhline(0.7, color="0.85", linewidth=0.8, zorder=0)
    panel.set_xscale("log")
    panel.set_ylim(LEAST - 0.05, None)
    panel.set_xlabel("violations / risk (filled: the promise holds)")
    panel.set_ylabel("reward (share)")
    title(panel, "all worlds")
