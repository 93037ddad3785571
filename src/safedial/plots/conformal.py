"""Reward against violations, a panel for each world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safedial.io import read_rows
from safedial.plots.style import COLOURS, MARKERS, new_figure, save

FORMS = {"full": ("*", 8), "scaled": ("d", 6)}
"""Marker and size of the forms of one policy."""

RAREST = 1e-3
"""The left edge: rates below it, and no violation at all, are drawn there."""


def draw_conformal(folder: str | Path) -> Path:
    """`conformal.png` from `conformal.csv`. Filled: the policy's promise holds in that world; hollow: it does not."""
    rows = read_rows(Path(folder) / "conformal.csv")
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    series = list(dict.fromkeys(row["series"] for row in rows))
    figure, axes = new_figure(columns=2, rows=-(-len(worlds) // 2), height=1.9, sharex=True, sharey=True)
    for place, (panel, world) in enumerate(zip(axes, worlds, strict=False)):
        for row in rows:
            if row["world"] == world:
                _point(panel, row)
        panel.axvline(rows[0]["risk"], color="grey", linestyle="--", linewidth=1)
        panel.set_title(world, fontsize=8)
        panel.set_xscale("log")
        panel.set_xlim(0.7 * RAREST, 1.0)
        panel.set_ylim(0.0, 3.2)
        panel.axhline(1.0, color="0.85", linewidth=0.8, zorder=0)
        panel.set_xticks([1e-3, 1e-2, 1e-1, 1.0], ["≤ 0.1 %", "1 %", "10 %", "100 %"])
        if place % 2 == 0:
            panel.set_ylabel("reward (share)")
        if place >= len(worlds) - 2:
            panel.set_xlabel("full doses with cost > τ")
    axes[0].text(
        rows[0]["risk"] * 0.85, 3.1, f"promise {rows[0]['risk']:.0%}", ha="right", va="top", fontsize=7, color="0.3"
    )
    handles, labels = axes[0].get_legend_handles_labels()
    order = [labels.index(name) for name in series]
    figure.legend(
        [handles[index] for index in order],
        series,
        loc="outside lower center",
        ncols=3,
        fontsize=7,
        frameon=False,
        title="filled: the policy's promise holds in this world; hollow: it does not",
        title_fontsize=7,
    )
    return save(figure, Path(folder) / "conformal.png")


def _point(panel: Any, row: dict[str, Any]) -> None:
    colour = COLOURS[row["policy"]]
    marker, size = FORMS.get(row["series"].partition(", ")[2], (MARKERS[row["policy"]], 6))
    panel.plot(
        max(row["full_dose_violation_rate"], RAREST),
        row["reward_share"],
        linestyle="none",
        marker=marker,
        markersize=size,
        markeredgecolor=colour,
        markerfacecolor=colour if row["promise_holds"] else "none",
        label=row["series"],
    )
