"""The paper's figure "synthetic", the same with every policy, and ε-greedy's trade-off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safedial.io import read_rows
from safedial.plots.style import COLOURS, new_figure, save

DASHES = {"ε-Greedy, exploring rounds only": "--", "HP-UCB, mixture": "--"}


def draw_synthetic(folder: str | Path) -> list[Path]:
    """`synthetic.png` (the paper's two policies) and `synthetic_all.png` (all, with Theorem 2) from `synthetic.csv`.

    Regret is against the sub-Gaussian clairvoyant, so it can be negative: the vertical axis is linear between −1 and 1.
    """
    rows = read_rows(Path(folder) / "synthetic.csv")
    dims = sorted({row["dim"] for row in rows})
    figure, panels = new_figure(columns=len(dims))
    for axes, dim in zip(panels, dims, strict=True):
        for series in ("HP-UCB", "ε-Greedy"):
            _curve(axes, rows, dim, series)
        axes.set_ylim(bottom=0)
        _label(axes, dim)
    panels[0].legend(fontsize=7, frameon=False, loc="upper left")
    paths = [save(figure, Path(folder) / "synthetic.png")]
    figure, panels = new_figure(columns=len(dims), height=3.8, sharey=True)
    for axes, dim in zip(panels, dims, strict=True):
        for series in dict.fromkeys(row["series"] for row in rows):
            _curve(axes, rows, dim, series)
        bound = [row for row in rows if row["dim"] == dim and row["series"] == "HP-UCB"]
        axes.plot(
            [row["round"] for row in bound],
            [row["theorem_2"] for row in bound],
            color="black",
            linestyle=":",
            linewidth=1,
            label="Theorem 2, for HP-UCB",
        )
        axes.axhline(0.0, color="black", linewidth=0.5)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1.0)
        _label(axes, dim)
    figure.legend(
        *panels[0].get_legend_handles_labels(), fontsize=7, frameon=False, loc="outside lower center", ncols=3
    )
    return [*paths, save(figure, Path(folder) / "synthetic_all.png")]


def draw_epsilon(folder: str | Path) -> Path:
    """`epsilon.png`: regret against ε, and time a round against ε, for both readings of the paper."""
    regret = read_rows(Path(folder) / "epsilon.csv")
    times = read_rows(Path(folder) / "epsilon_time.csv")
    figure, (left, right) = new_figure(columns=2, height=3.2)
    colours = dict(zip(sorted({row["dim"] for row in times}), ("#0072B2", "#D55E00", "#009E73"), strict=True))
    styles = {"all": "-", "exploring": "--"}
    words = {"all": "learns from all rounds", "exploring": "from exploring rounds"}
    for axes, rows, name in ((left, regret, "regret"), (right, times, "us_per_round")):
        for dim in sorted({row["dim"] for row in rows}):
            for reading, style in styles.items():
                line = [row for row in rows if row["dim"] == dim and row["learn_from"] == reading]
                axes.plot(
                    [row["epsilon"] for row in line],
                    [row[name] for row in line],
                    style,
                    color=colours[dim],
                    marker="o",
                    markersize=3,
                    linewidth=1,
                    label=f"d = {dim:g}, {words[reading]}",
                )
        axes.set_xlabel("ε, the share of exploring rounds")
    left.set_ylabel("final regret (units of reward)")
    left.set_ylim(bottom=0)
    right.set_ylabel("µs a round (a Cholesky a decision)")
    right.set_yscale("log")
    figure.legend(*right.get_legend_handles_labels(), fontsize=7, frameon=False, loc="outside lower center", ncols=3)
    return save(figure, Path(folder) / "epsilon.png")


def _curve(axes: Any, rows: list[dict[str, Any]], dim: float, series: str) -> None:
    line = [row for row in rows if row["dim"] == dim and row["series"] == series]
    rounds = [row["round"] for row in line]
    colour, dash = COLOURS[line[0]["policy"]], DASHES.get(series, "-")
    axes.plot(rounds, [row["regret"] for row in line], dash, color=colour, linewidth=1.2, label=series)
    low, high = [row["regret_low"] for row in line], [row["regret_high"] for row in line]
    axes.fill_between(rounds, low, high, color=colour, alpha=0.18, linewidth=0)


def _label(axes: Any, dim: float) -> None:
    axes.set_title(f"d = {dim:g}, τ = 0.5", fontsize=8)
    axes.set_xlabel("round")
    axes.set_ylabel("cumulative regret (units of reward)")
