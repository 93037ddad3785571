"""Simulations as a picture: regret over rounds, its difference from the first one, and excess rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.core.spec_grid import SWEPT
from safedial.plots.style import close, legend_below, look_of, new_figure, save, title
from safedial.simulation.run import Simulation
from safedial.simulation.summary import promised
from safedial.stats import seed_band, violation_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Line(NamedTuple):
    """One spec row of a run."""

    label: str
    run: Simulation
    row: int
    look: dict[str, Any]


def draw_runs(
    runs: Mapping[str, Simulation], path: str | Path | None = None, *, level: float = 0.95, paired: bool = False
) -> Figure:
    """A line for each run and spec row; with `paired`, also the difference of its regret from the first run's."""
    lines = list(_lines(runs))
    paired = paired and len(runs) > 1
    height = max(2.8, 0.9 + 0.22 * len(lines))
    figure, (regret, *middle, rates) = new_figure(columns=3 if paired else 2, height=height)
    first = next(iter(runs.values()))
    for line in lines:
        _band(regret, line, line.run.regret_curve[:, line.row], level)
        if paired and line.run is not first:
            _band(middle[0], line, (line.run.regret_curve - first.regret_curve)[:, line.row], level)
    title(regret, f"regret: mean of {len(first.seeds)} seeds, {level:.0%} band")
    for panel in middle:
        panel.axhline(0.0, color="black", linewidth=0.6)
        title(panel, "regret minus that of the first, paired by seed")
    for panel in (regret, *middle):
        panel.set_xlabel("round")
    _rates(rates, lines, level)
    legend_below(figure, *regret.get_legend_handles_labels(), ncols=4 if paired else 3)
    return close(figure) if path is None else save(figure, Path(path)) and figure


def _lines(runs: Mapping[str, Simulation]) -> Iterator[Line]:
    for number, (label, run) in enumerate(runs.items()):
        grids = {name: value for name in SWEPT if np.ndim(value := getattr(run.spec, name))}
        for row in range(len(run.violations)):
            words = [f"{name.replace('_', ' ')} {value[row]:g}" for name, value in grids.items()]
            yield Line(", ".join([label, *words]), run, row, look_of(number, row))


def _band(panel: Any, line: Line, values: Any, level: float) -> None:
    rounds = line.run.checkpoints
    mean, half = seed_band(values, level)
    panel.plot(rounds, mean, label=line.label, **line.look)
    panel.fill_between(rounds, mean - half, mean + half, color=line.look["color"], alpha=0.18, linewidth=0)


def _rates(panel: Any, lines: list[Line], level: float) -> None:
    """Excess rates on an axis that shows 0 too: logarithmic above one in ten thousand."""
    for place, (_, run, row, look) in enumerate(lines):
        counts, promise = run.violations[row], promised(run, row)
        ends, colour = violation_interval(counts, run.rounds, level), look["color"]
        panel.plot(ends, [-place, -place], color=colour, linewidth=1.2)
        panel.plot(counts.mean() / run.rounds, -place, "o", color=colour, markersize=4)
        if promise is not None:
            panel.plot(promise, -place, "|", color="black", markersize=12)
    panel.set_yticks([-place for place in range(len(lines))], [line.label for line in lines])
    panel.set_ylim(0.6 - len(lines), 0.6)
    panel.set_xscale("symlog", linthresh=1e-4)
    panel.set_xlim(0.0, 1.0)
    panel.set_xlabel("share of rounds with a cost above τ")
    title(panel, f"excesses, {level:.0%}; black bar: the promise")
