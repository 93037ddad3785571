"""The pictures of a calibration, a sweep and of simulations.

A calibration: each fitted dose curve with its uncertainty, over the data in bands of the dose. A sweep: violations and
reward against one setting. Simulations: regret over rounds, its difference from the first one, and excess rates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from safedial.errors import is_number, require
from safedial.model.spec import SWEPT
from safedial.policies import make_policy
from safedial.simulation.results import guaranteed
from safedial.simulation.run import Simulation
from safedial.simulation.sweeps import NUMBERS, sweep_rows, varying
from safedial.stats import seed_band, violation_interval
from safedial.tools.bracket_calibration import BracketCalibration
from safedial.tools.calibration import Calibration
from safedial.tools.dose_fit import Chosen, Data
from safedial.tools.pages import (
    BLUE,
    COLOURS,
    DASHES,
    FILL,
    MARKERS,
    SHADES,
    close,
    dial_axis,
    is_geometric,
    legend_below,
    look_of,
    new_figure,
    save,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BANDS = 12


def draw_calibration(found: Calibration, path: Path) -> Path:
    """One panel for each outcome, as PNG, with doses in the dial's units."""
    figure, panels = new_figure(columns=len(found.curves), height=2.6)
    for panel, (name, chosen) in zip(panels, found.curves.items(), strict=True):
        _curve(panel, chosen, found.data[name], found.noise)
        known = f"uncertain by {chosen.error:.0%}" if chosen.error else "uncertainty unknown"
        known = f"{known}, adjusted" if name in found.allowed else known
        title(panel, f"{name}: {chosen.fit.family}, {known}")
        panel.axvspan(found.seen[1], 1.0, color="0.93", linewidth=0, zorder=0)
        dial_axis(panel, found.dial, "x")
    panels[0].legend(fontsize=6, frameon=False)
    return save(figure, path)


def draw_bracket(found: BracketCalibration, path: Path) -> Path:
    """The slopes in bands of the setting, or of its share of the base, with 95 % intervals, over the bracket."""
    figure, (panel,) = new_figure(height=2.6)
    fit, growth = cast("Any", found.slopes), cast("Any", found.growth)
    relative, ends = growth.name == "relative", (growth.parameters["low"], growth.parameters["high"])
    panel.axhspan(*ends, color=FILL, alpha=0.4, linewidth=0, label="proposed bracket")
    for band in fit.bands:
        start, end = np.exp([band.start, band.end]) if relative else (band.start, band.end)
        middle, (least, most) = 0.5 * (start + end), band.interval()
        panel.plot([start, end], [band.estimate] * 2, color="0.3", linewidth=0.8)
        panel.plot([middle, middle], [least, most], color="0.3", linewidth=0.8)
    panel.axhline(fit.whole.estimate, color=BLUE, label="over all settings")
    unit = f"setting, {found.dial.unit}" if found.dial.unit else "setting"
    panel.set(
        xlabel=f"share of {found.base}" if relative and found.base else unit,
        ylabel="elasticity" if relative else "slope",
    )
    panel.set_ylim(bottom=min(0.0, panel.get_ylim()[0]))
    title(panel, "Slopes given the context, 95 % intervals")
    panel.legend(fontsize=6, frameon=False)
    return save(figure, path)


def _curve(panel: Any, chosen: Chosen, data: Data, noise: str) -> None:
    panel.fill_between(chosen.grid, chosen.low, chosen.high, color=FILL, alpha=0.4, linewidth=0)
    panel.plot(chosen.grid, chosen.fit.curve.effect(chosen.grid), color=BLUE, label="fitted g, 90 % band")
    doses, heights, errors = _heights(chosen, data, noise)
    panel.errorbar(doses, heights, yerr=2.0 * errors, fmt="o", color="0.3", markersize=3, linewidth=0.8, label="data")
    panel.set(ylabel="intensity g", xlim=(0.0, 1.02), ylim=(-0.1, 1.25))


def _heights(chosen: Chosen, data: Data, noise: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By band of the dose: the height of g that best fits its rows, with the coefficients as fitted, and its error."""
    predicted = data.context @ chosen.fit.coef
    found = []
    place = np.minimum((data.action * BANDS).astype(int), BANDS - 1)
    for band in np.unique(place):
        part = np.flatnonzero(place == band)
        weight = float(predicted[part] @ predicted[part])
        if part.size < 2 or weight <= 0.0:
            continue
        height = float(predicted[part] @ data.outcome[part]) / weight
        scale = abs(height) if noise == "proportional" else 1.0
        found.append((float(data.action[part].mean()), height, scale * chosen.fit.deviation / np.sqrt(weight)))
    doses, heights, errors = np.array(found).reshape(-1, 3).T
    return doses, heights, errors


# --- A sweep as a picture: violations and reward against one setting


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
    for label, dash, members in _sweep_lines(rows):
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


def _sweep_lines(rows: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(label, line style, rows) for each policy, and for each choice of its options that vary among its rows."""
    lines = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        kin = [row for row in rows if row["policy"] == policy]
        options = [name for name in varying(kin) if name.startswith("policy_") and name != "policy_clip"]
        shown = make_policy(policy).label if policy in COLOURS else str(policy)
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in kin:
            words = [f"{name.removeprefix('policy_').replace('_', ' ')} {row[name]}" for name in options]
            groups.setdefault(", ".join([shown, *words]), []).append(row)
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


# --- Simulations as a picture


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
        counts, guarantee = run.violations[row], guaranteed(run, row)
        ends, colour = violation_interval(counts, run.rounds, level), look["color"]
        panel.plot(ends, [-place, -place], color=colour, linewidth=1.2)
        panel.plot(counts.mean() / run.rounds, -place, "o", color=colour, markersize=4)
        if guarantee is not None:
            panel.plot(guarantee, -place, "|", color="black", markersize=12)
    panel.set_yticks([-place for place in range(len(lines))], [line.label for line in lines])
    panel.set_ylim(0.6 - len(lines), 0.6)
    panel.set_xscale("symlog", linthresh=1e-4)
    panel.set_xlim(0.0, 1.0)
    panel.set_xlabel("share of rounds with a cost above τ")
    title(panel, f"excesses, {level:.0%}; black bar: the guarantee")
