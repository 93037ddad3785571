"""The battery experiment: cumulative regret and violations, a column for each threshold."""

from __future__ import annotations

from pathlib import Path

from safedial.io import read_rows
from safedial.plots.style import COLOURS, MARKERS, new_figure, save


def draw_battery(folder: str | Path) -> Path:
    """`battery.png` from `battery.csv`."""
    rows = read_rows(Path(folder) / "battery.csv")
    thresholds = sorted({row["threshold"] for row in rows})
    figure, axes = new_figure(columns=len(thresholds), rows=2, height=2.3, sharex=True)
    for column, threshold in enumerate(thresholds):
        above, below = axes[column], axes[len(thresholds) + column]
        cells = [row for row in rows if row["threshold"] == threshold]
        for series in dict.fromkeys(row["series"] for row in cells):
            line = [row for row in cells if row["series"] == series]
            policy, rounds = line[0]["policy"], [row["round"] for row in line]
            look = {"color": COLOURS[policy], "linewidth": 1.2, "label": series}
            look |= {"marker": MARKERS[policy], "markevery": max(1, len(line) // 5), "markersize": 4}
            if policy != "clairvoyant":
                above.plot(rounds, [row["regret"] for row in line], **look)
                low, high = ([row[name] for row in line] for name in ("regret_low", "regret_high"))
                above.fill_between(rounds, low, high, color=COLOURS[policy], alpha=0.2, linewidth=0)
            below.plot(rounds, [max(row["violation_rate"], 1e-5) for row in line], **look)
        below.axhline(cells[0]["promised_risk"], color="grey", linestyle="--", linewidth=1)
        above.set_title(f"τ = {threshold:g} ({cells[0]['threshold_celsius']:.2g} °C a step)", fontsize=8)
        below.set_yscale("log")
        below.set_ylim(0.7e-5, 1.0)
        below.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["0", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
        below.set_xlabel("round")
        if column == 0:
            above.set_ylabel("cumulative regret")
            below.set_ylabel("rounds with cost > τ")
            below.text(
                cells[-1]["round"], cells[0]["promised_risk"] * 1.2, "promise", ha="right", fontsize=7, color="0.3"
            )
    handles, labels = axes[len(thresholds)].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7, frameon=False)
    return save(figure, Path(folder) / "battery.png")
