"""Table 1 as a picture."""

from __future__ import annotations

from pathlib import Path

from safedial.io import read_rows
from safedial.plots.style import COLOURS, LABELS, MARKERS, new_figure, save


def draw_table1(folder: str | Path, promised: float = 0.02) -> Path:
    """`table1.png` from `table1.csv`: violation rate against τ, ours and the paper's, and the promise."""
    rows = read_rows(Path(folder) / "table1.csv")
    figure, (axes,) = new_figure()
    for policy in ("hp_ucb", "on_expectation"):
        cells = [row for row in rows if row["policy"] == policy]
        rate = [row["violation_rate"] for row in cells]
        spread = [
            [row["violation_rate"] - row["ci_low"] for row in cells],
            [row["ci_high"] - row["violation_rate"] for row in cells],
        ]
        axes.errorbar(
            [row["threshold"] for row in cells],
            rate,
            yerr=spread,
            color=COLOURS[policy],
            marker=MARKERS[policy],
            markersize=3.5,
            linewidth=1,
            capsize=2,
            label=LABELS[policy],
        )
        axes.plot(
            [row["threshold"] for row in cells],
            [row["paper_rate"] for row in cells],
            linestyle="none",
            marker="x",
            markersize=5,
            color="black",
            zorder=3,
            label="paper" if policy == "hp_ucb" else None,
        )
    axes.axhline(promised, color="grey", linestyle="--", linewidth=1)
    promise = f"HP-UCB promises at most {promised:.0%}"
    axes.text(1.0, promised * 1.12, promise, ha="right", va="bottom", fontsize=7, color="0.3")
    axes.set_yscale("log")
    axes.set_ylim(3e-5, 1.0)
    axes.set_yticks([1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axes.set_xlabel("threshold τ (units of cost)")
    axes.set_ylabel("rounds with cost > τ")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(0.0, 0.46))
    return save(figure, Path(folder) / "table1.png")
