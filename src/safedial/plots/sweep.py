"""A sweep as a picture: violations and reward against one setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safedial.errors import require
from safedial.plots.style import COLOURS, LABELS, MARKERS, new_figure, save
from safedial.sweep.table import sweep_rows, varying

DASHES = ("-", "--", ":", "-.")


def draw_sweep(folder: str | Path, x: str | None = None) -> Path:
    """`sweep.png`: violation rate and share of the clairvoyant's reward against `x`, a line for each policy.

    Settings that vary besides `x` and the policy are averaged over, and the picture says so.
    """
    rows = sweep_rows(folder)
    require(rows, "folder", str(folder), "holds no finished cell yet", "run the sweep first")
    axes_names = varying(rows)
    numeric = [name for name in axes_names if all(isinstance(row.get(name), (int, float)) for row in rows)]
    choice = x or ("threshold" if "threshold" in numeric or not numeric else numeric[0])
    require(choice in rows[0], "x", choice, "is not a setting of this sweep", "choose from " + ", ".join(numeric))
    require(
        isinstance(rows[0][choice], (int, float)), "x", choice, "is not a number", "choose from " + ", ".join(numeric)
    )
    figure, (left, right) = new_figure(columns=2, height=3.2)
    for label, dash, members in _lines(rows):
        points = _averages(members, choice)
        name = members[0]["policy"]
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 3.5, "linewidth": 1, "linestyle": dash}
        left.plot([point[0] for point in points], [point[1] for point in points], label=label, **style)
        right.plot([point[0] for point in points], [point[2] for point in points], label=label, **style)
    left.set_ylabel("rounds with cost > τ")
    left.set_yscale("symlog", linthresh=1e-4)
    left.set_ylim(bottom=0)
    right.set_ylabel("share of clairvoyant's reward")
    others = [name for name in axes_names if name not in (choice, "policy") and not name.startswith("policy_")]
    for axes in (left, right):
        axes.set_xlabel(choice.replace("_", " "))
    if others:
        figure.suptitle("averaged over " + ", ".join(name.replace("_", " ") for name in others), fontsize=7)
    figure.legend(*left.get_legend_handles_labels(), fontsize=7, frameon=False, loc="outside lower center", ncols=3)
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
            groups.setdefault(", ".join([LABELS[policy], *words]), []).append(row)
        lines += [(label, DASHES[number % 4], each) for number, (label, each) in enumerate(groups.items())]
    return lines


def _averages(rows: list[dict[str, Any]], x: str) -> list[tuple[float, float, float]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(json.dumps(row[x]), []).append(row)
    points = []
    for members in groups.values():
        shares = [row["reward_share"] for row in members if row["reward_share"] is not None]
        rate = sum(row["violation_rate"] for row in members) / len(members)
        points.append((members[0][x], rate, sum(shares) / len(shares) if shares else float("nan")))
    return sorted(points)
