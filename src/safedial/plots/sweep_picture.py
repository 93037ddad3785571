"""A sweep as a picture: violations and reward against one setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safedial.errors import is_number, require
from safedial.plots.style import COLOURS, DASHES, LABELS, MARKERS, SHADES, is_geometric, legend_below, new_figure, save
from safedial.sweep.table import NUMBERS, sweep_rows, varying


def draw_sweep(folder: str | Path, x: str | None = None) -> Path:
    """`sweep.png`: violation rate and share of the clairvoyant's reward against `x`, a line for each policy.

    Other settings that vary are averaged over, and the picture says so; without them, rates have their intervals. The
    axis of `x` is logarithmic where its values are geometric.
    """
    rows = sweep_rows(folder)
    require(rows, "folder", str(folder), "holds no finished cell yet", "run the sweep first")
    axes_names = varying(rows)
    numeric = [name for name in axes_names if all(is_number(row.get(name)) for row in rows)]
    choice = x or ("threshold" if "threshold" in numeric or not numeric else numeric[0])
    usable = {name: None for row in rows for name in row if name not in NUMBERS and is_number(row[name])}
    sound = choice in usable and all(is_number(row.get(choice)) for row in rows)
    require(sound, "x", choice, "is not a number that every cell has", "choose from " + ", ".join(numeric or usable))
    figure, (left, right) = new_figure(columns=2, height=3.2)
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for label, dash, members in _lines(rows):
        points = _averages(members, choice)
        name = members[0]["policy"]
        colour = COLOURS.get(name, SHADES[policies.index(name) % len(SHADES)])
        style = {"color": colour, "marker": MARKERS.get(name, "*"), "markersize": 3.5, "linewidth": 1}
        style["linestyle"] = dash
        left.plot([point[0] for point in points], [point[1] for point in points], label=label, **style)
        right.plot([point[0] for point in points], [point[2] for point in points], label=label, **style)
        for place, _, _, ends in points:
            left.plot([place] * len(ends), ends, color=colour, linewidth=0.7)
    left.set_ylabel("rounds with cost > τ")
    left.set_yscale("symlog", linthresh=1e-4)
    left.set_ylim(-3e-5, 1.0)
    values = sorted({row[choice] for row in rows})
    for axes in (left, right):
        if is_geometric(values):
            axes.set_xscale("log")
        if len(values) <= 12:
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.minorticks_off()
    right.set_ylabel("share of clairvoyant's reward")
    others = [name for name in axes_names if name not in (choice, "policy") and not name.startswith("policy_")]
    for axes in (left, right):
        axes.set_xlabel(choice.replace("_", " "))
    if others:
        figure.suptitle("averaged over " + ", ".join(name.replace("_", " ") for name in others), fontsize=7)
    legend_below(figure, *left.get_legend_handles_labels())
    return save(figure, Path(folder) / "sweep.png")


def _lines(rows: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(label, line style, rows) for each policy, and for each choice of its options that vary among its rows."""
    lines = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        kin = [row for row in rows if row["policy"] == policy]
        options = [name for name in varying(kin) if name.startswith("policy_") and name != "policy_clip"]
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in kin:
            words = [f"{name.removeprefix('policy_').replace('_', ' ')} {row[name]}" for name in options]
            groups.setdefault(", ".join([LABELS.get(policy) or str(policy), *words]), []).append(row)
        lines += [(label, DASHES[number % 4], each) for number, (label, each) in enumerate(groups.items())]
    return lines


def _averages(rows: list[dict[str, Any]], x: str) -> list[tuple[float, float, float, list[float]]]:
    """(x, violation rate, share, the ends of the rate's interval if it is the rate of one row)."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(json.dumps(row[x]), []).append(row)
    points = []
    for members in groups.values():
        shares = [row["reward_share"] for row in members if row["reward_share"] is not None]
        rate = sum(row["violation_rate"] for row in members) / len(members)
        ends = [members[0]["ci_low"], members[0]["ci_high"]] if len(members) == 1 else []
        points.append((members[0][x], rate, sum(shares) / len(shares) if shares else float("nan"), ends))
    return sorted(points)
