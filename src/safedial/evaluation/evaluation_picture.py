"""The picture of an evaluation: settings and excesses over time, rates beside what is promised, and reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.evaluation.evaluated import Evaluation, PolicyResult
from safedial.plots.style import SHADES, legend_below, new_figure, png, title

POINTS = 60
"""Points of a line over time: means of so many blocks."""


def draw(found: Evaluation) -> bytes:
    """Four panels, as PNG."""
    figure, (dose, counts, rates, earned) = new_figure(columns=2, rows=2, height=2.6)
    lines = [(found.logged, "#000000"), *zip(found.policies, [*SHADES] * len(found.policies), strict=False)]
    for each, colour in lines:
        look: dict[str, Any] = {"color": colour, "linewidth": 1.1, "label": each.name}
        look["linestyle"] = "--" if each is found.logged else "-"
        _over_time(dose, found, each, look)
        number = found.rounds.number
        over, may = (np.cumsum(part & each.known) for part in (each.scores.over, each.scores.may))
        counts.step(number, over, where="post", **look)
        if may[-1] > over[-1]:
            counts.fill_between(number, over, may, color=colour, alpha=0.2, linewidth=0)
    table = found.table()
    _rates(rates, table, lines)
    _earned(earned, table, lines, exact=found.policies[0].outcomes.exact)
    title(dose, "setting of the dial, mean of blocks")
    title(counts, "rounds that exceed, in all (shaded: that may)")
    for panel in (dose, counts):
        panel.set_xlabel("round")
    legend_below(figure, *dose.get_legend_handles_labels(), ncols=4)
    return png(figure)


def _over_time(panel: Any, found: Evaluation, each: PolicyResult, look: dict[str, Any]) -> None:
    parts = min(POINTS, len(found.rounds))
    places = np.array_split(np.arange(len(found.rounds)), parts)
    known = [part[np.isfinite(each.scores.applied[part])] for part in places]
    kept = [part for part in known if part.size]
    panel.plot(
        [found.rounds.number[part].mean() for part in kept], [each.scores.applied[part].mean() for part in kept], **look
    )


def _rates(panel: Any, table: list[dict[str, Any]], lines: list[Any]) -> None:
    for place, (row, (_, colour)) in enumerate(zip(table, lines, strict=True)):
        panel.plot([row["low"], row["high"]], [-place, -place], color=colour, linewidth=1)
        panel.plot([row["rate"], row["rate_upper"]], [-place, -place], "o", color=colour, markersize=4)
        if row["risk"] is not None:
            panel.plot(row["risk"], -place, "|", color="black", markersize=14)
    panel.set_yticks([-place for place in range(len(table))], [row["policy"] for row in table])
    panel.set_xlim(left=0.0)
    panel.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    title(panel, "share that exceeds, 95 %; black bar: the promise")


def _earned(panel: Any, table: list[dict[str, Any]], lines: list[Any], *, exact: bool) -> None:
    for row, (_, colour) in zip(table, lines, strict=True):
        if row["share"] is not None:
            panel.plot(row["rate_upper"], row["share"], "o", color=colour, markersize=6)
    panel.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    panel.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    panel.set_xlabel("rounds that exceed, or may")
    title(panel, f"share of the best {'reward' if exact else 'dose surely tolerated'} in hindsight")
