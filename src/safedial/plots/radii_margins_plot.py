"""Four panels: what radii and margins earn, an overstated κ, when the quantile pays, what broken margins do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safedial.io import read_rows
from safedial.plots.style import COLOURS, new_figure, save

PALETTE = [COLOURS[name] for name in ("hp_ucb", "on_expectation", "hp_probe", "thompson")]


def draw_toolkit(folder: str | Path) -> Path:
    """`toolkit.png` from the four `toolkit_*.csv`."""
    rows = {
        part: read_rows(Path(folder) / f"toolkit_{part}.csv") for part in ("shares", "overstated", "quantile", "broken")
    }
    figure, axes = new_figure(columns=2, rows=2, height=2.9)
    _shares(axes[0], rows["shares"])
    _overstated(axes[1], rows["overstated"])
    _quantile(axes[2], rows["quantile"])
    _broken(axes[3], rows["broken"])
    return save(figure, Path(folder) / "toolkit.png")


def _shares(panel: Any, rows: list[dict[str, Any]]) -> None:
    places = range(len(rows))
    colours = [COLOURS["hp_probe"] if row["margin"] == "subgaussian" else COLOURS["thompson"] for row in rows]
    panel.barh(places, [row["reward_share"] for row in rows], color=colours)
    for place, row in zip(places, rows, strict=True):
        panel.text(0.02, place, f"{row['reward_share']:.3f}", va="center", fontsize=6, color="white")
    panel.set_yticks(places, [row["series"] for row in rows], fontsize=6)
    panel.invert_yaxis()
    panel.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    panel.set_xlabel("reward, share of the clairvoyant's")
    panel.set_title("radius and margin (violet: another margin)", fontsize=8)


def _overstated(panel: Any, rows: list[dict[str, Any]]) -> None:
    for place, row in enumerate(rows):
        panel.bar(place - 0.2, row["right_share"], width=0.38, color="0.75", label="" if place else "right κ")
        panel.bar(place + 0.2, row["wrong_share"], width=0.38, color=PALETTE[0], label="" if place else "5 κ")
        panel.text(place + 0.2, row["wrong_share"] + 0.01, f"−{row['loss']:.1%}", ha="center", fontsize=7)
    panel.set_xticks(range(len(rows)), [row["radius"] for row in rows], fontsize=7)
    panel.set_ylabel("reward, share of the clairvoyant's")
    panel.set_ylim(0.0, 1.0)
    panel.legend(fontsize=7, frameon=False, ncols=2, loc="upper left")
    panel.set_title("the radius alone is told a κ five times too large", fontsize=8)


def _quantile(panel: Any, rows: list[dict[str, Any]]) -> None:
    for colour, marker, risk in zip(PALETTE, "osD", sorted({row["risk"] for row in rows}), strict=False):
        mine = [row for row in rows if row["risk"] == risk]
        panel.plot(
            [row["rounds"] for row in mine],
            [row["over_subgaussian"] for row in mine],
            color=colour,
            marker=marker,
            markersize=3,
            label=f"δ = {risk:g}",
        )
    panel.axhline(1.0, color="grey", linestyle="--", linewidth=1)
    panel.set_xscale("log")
    panel.set_xlabel("rounds")
    panel.set_ylabel("learned / sub-Gaussian margin")
    panel.legend(fontsize=7, frameon=False)
    panel.set_title("the quantile margin, Gaussian noise, d = 5", fontsize=8)


def _broken(panel: Any, rows: list[dict[str, Any]]) -> None:
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    margins = list(dict.fromkeys(row["margin"] for row in rows))
    for colour, marker, margin in zip(PALETTE, "osDv", margins, strict=False):
        for row in rows:
            if row["margin"] == margin:
                panel.plot(
                    max(row["full_dose_violation_rate"], 1e-5),
                    noises.index(row["noise"]) + 0.15 * (margins.index(margin) - 1.5),
                    linestyle="none",
                    marker=marker,
                    markersize=4,
                    markeredgecolor=colour,
                    markerfacecolor=colour if row["holds"] else "none",
                    label=margin if row["noise"] == noises[0] else "",
                )
    panel.axvline(rows[0]["violation_risk"], color="grey", linestyle="--", linewidth=1)
    panel.set_xscale("log")
    panel.set_xlim(0.7e-5, 1.0)
    panel.set_yticks(range(len(noises)), noises, fontsize=6)
    panel.invert_yaxis()
    panel.set_xlabel("full doses over τ (left edge: none); dashed: δ")
    panel.legend(fontsize=6, frameon=False, loc="lower left")
    panel.set_title("filled: the assumption holds; hollow: it does not", fontsize=8)
