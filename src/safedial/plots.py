"""Pictures, drawn from the written data alone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from safedial.errors import import_extra

COLUMN = (3.5, 2.6)
"""Width and height in inches of a picture that fits one column."""

COLOURS = {"hp_ucb": "#0072B2", "on_expectation": "#D55E00"}
LABELS = {"hp_ucb": "HP-UCB", "on_expectation": "On-Expectation"}
MARKERS = {"hp_ucb": "o", "on_expectation": "s"}
"""Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ as well."""


def draw_table1(folder: str | Path, promised: float = 0.02) -> Path:
    """`table1.png` from `table1.csv`: violation rate against τ, ours and the paper's, and the promise."""
    with open(Path(folder) / "table1.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    figure, axes = _figure()
    for policy, colour in COLOURS.items():
        cells = [row for row in rows if row["policy"] == policy]
        numbers = {
            name: [float(row[name]) for row in cells] for name in cells[0] if name not in ("policy", "overlaps_paper")
        }
        thresholds, rate = numbers["threshold"], numbers["violation_rate"]
        low = [max(value - bound, 0.0) for value, bound in zip(rate, numbers["ci_low"], strict=True)]
        high = [bound - value for value, bound in zip(rate, numbers["ci_high"], strict=True)]
        axes.errorbar(
            thresholds, rate, yerr=[low, high], color=colour, marker=MARKERS[policy], markersize=3.5, linewidth=1,
            capsize=2, label=LABELS[policy],
        )  # fmt: skip
        axes.plot(
            thresholds, numbers["paper_rate"], linestyle="none", marker="x", markersize=5, color="black", zorder=3,
            label="paper" if policy == "hp_ucb" else None,
        )  # fmt: skip
    axes.axhline(promised, color="grey", linestyle="--", linewidth=1)
    promise = f"HP-UCB promises at most {promised:.0%}"
    axes.text(1.0, promised * 1.12, promise, ha="right", va="bottom", fontsize=7, color="0.3")
    axes.set_yscale("log")
    axes.set_ylim(3e-5, 1.0)
    axes.set_yticks([1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axes.set_xlabel("threshold τ (units of cost)")
    axes.set_ylabel("rounds with cost > τ")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(0.0, 0.46))
    return _save(figure, Path(folder) / "table1.png")


def _figure() -> tuple[Any, Any]:
    matplotlib = import_extra("matplotlib", "plot")
    matplotlib.use("Agg")
    pyplot = import_extra("matplotlib.pyplot", "plot")
    figure, axes = pyplot.subplots(figsize=COLUMN, layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)
    axes.xaxis.label.set_size(8)
    axes.yaxis.label.set_size(8)
    return figure, axes


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=200)
    import_extra("matplotlib.pyplot", "plot").close(figure)
    return path
