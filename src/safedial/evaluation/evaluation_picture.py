"""The picture of an evaluation: settings and excesses over time, rates beside what is promised, and reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.evaluation.evaluated import Evaluation, PolicyResult
from safedial.plots.style import SHADES, legend_below, new_figure, png, title

POINTS = 25
"""Points of a line over time: means of so many blocks."""
OVER = "rounds that exceed"


def draw(found: Evaluation) -> bytes:
    """Four panels, as PNG."""
    figure, (dose, counts, rates, earned) = new_figure(columns=2, rows=2, height=2.8)
    lines = [(found.logged, "#000000"), *zip(found.policies, [*SHADES] * len(found.policies), strict=False)]
    bounded = not all(each.outcomes.exact for each in found.policies)
    for each, colour in lines:
        look: dict[str, Any] = {"color": colour, "linewidth": 1.1, "label": each.name}
        look["linestyle"] = "--" if each is found.logged else "-"
        _over_time(dose, found, each, look)
        number = found.rounds.number
        over, may = (np.cumsum(part & each.known) for part in (each.scores.over, each.scores.may))
        counts.step(number, over, where="post", **look)
        if may[-1] > over[-1]:
            counts.fill_between(number, over, may, color=colour, alpha=0.2, linewidth=0)
    table, dial = found.table(), found.logged.rules.dial
    _rates(rates, table, lines)
    _earned(earned, table, lines)
    block = -(-len(found.rounds) // min(POINTS, len(found.rounds)))
    dose.set(xlabel="round", ylabel=f"dose, {dial.unit}" if dial.unit else "setting of the dial")
    dose.set_ylim(bottom=dial.low)
    title(dose, f"Dose: means of {block} rounds")
    counts.set(xlabel="round", ylabel=OVER)
    counts.set_ylim(bottom=0)
    counts.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    title(counts, "Excesses so far" + (" (shaded: those that are possible)" if bounded else ""))
    best = "best reward" if found.policies[0].outcomes.exact else "largest dose surely tolerated"
    earned.set(xlabel=f"{OVER}{', at most' * bounded}, %", ylabel=f"% of the {best}")
    title(earned, f"{'Reward' if found.policies[0].outcomes.exact else 'Dose'} beside the best in hindsight")
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
    """A dot for the share, two where it has a lower and an upper figure; a line for its interval."""
    for place, (row, (_, colour)) in enumerate(zip(table, lines, strict=True)):
        panel.plot([100 * row["low"], 100 * row["high"]], [-place, -place], color=colour, linewidth=1)
        panel.plot([100 * row["rate"], 100 * row["rate_upper"]], [-place, -place], "o", color=colour, markersize=4)
        if row["risk"] is not None:
            panel.plot(100 * row["risk"], -place, "|", color="black", markersize=14)
    panel.set_yticks([-place for place in range(len(table))], [row["policy"] for row in table])
    panel.set_ylim(0.6 - len(table), 0.6)
    panel.set_xlim(left=0.0)
    panel.set_xlabel(f"{OVER}, %")
    title(panel, "Share of excesses, 95 % interval; bar: the promise")


def _earned(panel: Any, table: list[dict[str, Any]], lines: list[Any]) -> None:
    ends = [0.0, 100.0]
    for row, (_, colour) in zip(table, lines, strict=True):
        if row["share"] is not None:
            panel.plot(100 * row["rate_upper"], 100 * row["share"], "o", color=colour, markersize=6, clip_on=False)
            ends.append(105 * row["share"])
    panel.set_xlim(0.0, max(1.0, *(110 * row["rate_upper"] for row in table)))
    panel.set_ylim(min(ends), max(ends))
