"""The picture of the arena: reward against excesses, a panel for each world, with the guarantee marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safedial.tools.pages import legend_below, new_figure, save, title

SHADES = ("#0072B2", "#009E73", "#56B4E9", "#004D40", "#1B4F72", "#5E3C99", "#3F7F00", "#2E7D8C")
WARM = ("#D55E00", "#E69F00", "#CC79A7", "#8C6D31", "#A52A2A", "#999999", "#666666", "#000000", "#B8860B")
MARKERS = "osDv^PX*"
COLUMNS = 2
"""Panels side by side, so that a picture of many worlds is legible at the width of a page."""
MOST_SHOWN = 3.0
"""Rates of excesses beyond this multiple of the risk, and rewards above all of the others, are drawn at the edge."""


def draw_arena(rows: list[dict[str, Any]], out: str | Path) -> Path:
    """`arena.png`. Filled: ours. Hollow: peers, one mark for each setting, larger where it is the best in hindsight."""
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    columns = min(COLUMNS, len(worlds))
    figure, panels = new_figure(columns=columns, rows=-(-len(worlds) // columns), height=2.7)
    looks = _looks(rows)
    for panel, world in zip(panels, worlds, strict=False):
        shown = [row for row in rows if row["world"] == world]
        risk = shown[0]["risk"]
        edge = MOST_SHOWN * risk, _top(shown, MOST_SHOWN * risk)
        for row in shown:
            _mark(panel, row, looks[_key(row)], edge)
        panel.axvline(100 * risk, color="0.5", linestyle="--", linewidth=0.8, zorder=0)
        panel.set_xlim(-3 * edge[0], 103 * edge[0])
        panel.set(xlabel="rounds over the threshold, %", ylabel=shown[0]["unit"])
        title(panel, f"{world} (dashed: the risk)")
    for panel in panels[len(worlds) :]:
        panel.axis("off")
    handles = {}
    for panel in panels:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    legend_below(figure, handles.values(), handles.keys(), ncols=columns + 1, fontsize=6.5)
    return save(figure, Path(out) / "arena.png")


def _key(row: dict[str, Any]) -> str:
    return row["policy"] if row["family"] == "ours" else row["family"]


def _looks(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    looks: dict[str, dict[str, Any]] = {}
    for ours, colours in ((True, SHADES), (False, WARM)):
        names = list(dict.fromkeys(_key(row) for row in rows if (row["family"] == "ours") == ours))
        for number, name in enumerate(names):
            colour = colours[number % len(colours)]
            face = colour if ours else "none"
            looks[name] = {"color": colour, "markerfacecolor": face, "marker": MARKERS[number % len(MARKERS)]}
    return looks


def _top(rows: list[dict[str, Any]], most: float) -> float:
    """The largest reward of those that exceed at most that often."""
    rewards = [row["reward"] for row in rows if row["violation_rate"] <= most]
    return max(rewards or [row["reward"] for row in rows])


def _mark(panel: Any, row: dict[str, Any], look: dict[str, Any], edge: tuple[float, float]) -> None:
    most, top = edge
    at, low, high = (100 * min(row[name], most) for name in ("violation_rate", "violation_low", "violation_high"))
    size = 6.5 if row["best_in_hindsight"] else 4.0
    style = {"linestyle": "none", "markersize": size, "elinewidth": 0.6, "label": _key(row), "clip_on": False, **look}
    panel.errorbar([at], [min(row["reward"], top)], xerr=[[max(at - low, 0.0)], [max(high - at, 0.0)]], **style)
