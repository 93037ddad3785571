"""The picture of a calibration: each fitted dose curve with its uncertainty, over the data in bands of the dose."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from safedial.calibration import Calibration
from safedial.calibration.bracket import BracketCalibration
from safedial.calibration.choose import Chosen
from safedial.calibration.fit import Data
from safedial.plots.style import COLOURS, dial_axis, new_figure, save, title

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
    panel.axhspan(*ends, color=COLOURS["hp_conformal"], alpha=0.4, linewidth=0, label="proposed bracket")
    for band in fit.bands:
        start, end = np.exp([band.start, band.end]) if relative else (band.start, band.end)
        middle, (least, most) = 0.5 * (start + end), band.interval()
        panel.plot([start, end], [band.estimate] * 2, color="0.3", linewidth=0.8)
        panel.plot([middle, middle], [least, most], color="0.3", linewidth=0.8)
    panel.axhline(fit.whole.estimate, color=COLOURS["hp_ucb"], label="over all settings")
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
    panel.fill_between(chosen.grid, chosen.low, chosen.high, color=COLOURS["hp_conformal"], alpha=0.4, linewidth=0)
    panel.plot(chosen.grid, chosen.fit.curve.effect(chosen.grid), color=COLOURS["hp_ucb"], label="fitted g, 90 % band")
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
