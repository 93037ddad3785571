"""The picture of a log's checks: evidence over time, residuals, and where they differ from the spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from safedial.diagnostics import BracketRounds, ConformalRounds, Finding, Rounds, StudentRounds
from safedial.plots.style import COLOURS, legend_below, new_figure, title

SHOWN_REGIONS = 8
LEAST = 1e-3
"""Smaller evidence is drawn at this value."""


def checks_figure(rounds: Rounds | ConformalRounds | BracketRounds | StudentRounds, findings: Sequence[Finding]) -> Any:
    """Six panels of one log; three if the spec states no constants."""
    if isinstance(rounds, BracketRounds):
        return _bracket_figure(rounds, findings)
    if isinstance(rounds, ConformalRounds):
        words = ("ranks of calibration rounds (dashed: even)", "share of earlier scores at least as high")
        return _chances_figure(rounds, findings, *words)
    if isinstance(rounds, StudentRounds):
        words = ("p-values of costs (dashed: even)", "chance of a cost at least as high")
        return _chances_figure(rounds, findings, *words)
    by_name = {each.name: each for each in findings}
    figure, axes = new_figure(columns=3, rows=2, height=2.5)
    _evidence(axes[0], findings)
    _residuals(axes[1], rounds, by_name["influence"])
    _tails(axes[2], rounds)
    _bands(axes[3], by_name["linearity"], rounds, f"predicted {rounds.target} per unit", rounds.fitted)
    _bands(axes[4], by_name["dose_curve"], rounds, "action", rounds.action)
    _regions(axes[5], by_name["noise"], rounds)
    legend_below(figure, *axes[0].get_legend_handles_labels(), ncols=len(findings))
    return figure


def _chances_figure(
    walked: ConformalRounds | StudentRounds, findings: Sequence[Finding], heading: str, axis: str
) -> Any:
    figure, axes = new_figure(columns=3, height=2.5)
    bets = [each for each in findings if each.evidence is not None]
    _evidence(axes[0], bets)
    axes[0].legend(fontsize=6, frameon=False)
    axes[1].hist(walked.chance, bins=np.linspace(0.0, 1.0, 21), color=COLOURS["hp_conformal"])
    axes[1].axhline(walked.chance.size / 20.0, color="grey", linestyle="--", linewidth=1)
    title(axes[1], heading)
    axes[1].set_xlabel(axis)
    found = next(each for each in findings if each.name == "dose_curve")
    known = np.isfinite(walked.outcome) & (walked.fitted != 0.0)
    axes[2].plot(walked.intensity[known], (walked.outcome - walked.fitted)[known], ".", color="0.75", markersize=2)
    axes[2].plot(found.details["bands"], found.details["mean_residuals"], "o-", color=COLOURS["on_expectation"])
    axes[2].axhline(0.0, color="grey", linewidth=0.8)
    title(axes[2], "cost per unit beyond its prediction")
    axes[2].set_xlabel("intensity")
    return figure


def _bracket_figure(walked: BracketRounds, findings: Sequence[Finding]) -> Any:
    figure, axes = new_figure(columns=3, height=2.5)
    _evidence(axes[0], [each for each in findings if each.evidence is not None])
    axes[0].legend(fontsize=6, frameon=False)
    for each, colour in zip(
        [each for each in findings if "bands" in each.details and "high" in each.details],
        COLOURS.values(),
        strict=False,
    ):
        for start, end, slope, low, high in each.details["bands"]:
            axes[1].fill_between([start, end], low, high, color=colour, alpha=0.25, linewidth=0)
            axes[1].plot([start, end], [slope, slope], color=colour, linewidth=1.5)
        for edge in (each.details["low"], each.details["high"]):
            axes[1].axhline(edge, color=colour, linestyle="--", linewidth=1)
    title(axes[1], "slope by setting, with 95 % intervals (dashed: stated)")
    axes[1].set_xlabel("setting, or its logarithm for a relative bracket")
    scale, over = walked.setting / walked.protocol, walked.exceeded
    axes[2].plot(walked.number, scale, ".", color=COLOURS["hp_ucb"], markersize=2)
    axes[2].plot(walked.number[over], scale[over], "o", color=COLOURS["on_expectation"], markersize=4, fillstyle="none")
    title(axes[2], "setting as a multiple of the base (circles: exceeded)")
    axes[2].set_xlabel("round")
    return figure


def _evidence(panel: Any, findings: Sequence[Finding]) -> None:
    for each, colour in zip(findings, list(COLOURS.values()), strict=False):
        values = np.clip(np.concatenate([[1.0], each.curve]), LEAST, 1e9)
        panel.plot(np.concatenate([[0.0], each.rounds]), values, color=colour, linewidth=1.2, label=each.title)
    needed = findings[0].needed
    panel.axhline(needed, color="grey", linestyle="--", linewidth=1)
    panel.set(yscale="log", ylim=(LEAST * 0.6, 2e9), xlabel="round")
    panel.set_yticks([1e-3, 1.0, 1e3, 1e6, 1e9], ["≤ 10⁻³", "1", "10³", "10⁶", "≥ 10⁹"])
    title(panel, "evidence against each assumption (dashed: flag)")


def _residuals(panel: Any, rounds: Rounds, found: Finding) -> None:
    scaled = rounds.residual / rounds.noise
    panel.plot(rounds.number, scaled, ".", color=COLOURS["hp_ucb"], markersize=2, alpha=0.6)
    odd = np.isin(rounds.number, found.details["odd_rounds"])
    panel.plot(rounds.number[odd], scaled[odd], "o", color=COLOURS["on_expectation"], markersize=5, fillstyle="none")
    height = np.sqrt(2.0 * np.log(2.0 * len(rounds)))
    for edge in (-height, height):
        panel.axhline(edge, color="grey", linestyle="--", linewidth=1)
    title(panel, "residuals before each update, in units of κ")
    panel.set_xlabel("round")


def _tails(panel: Any, rounds: Rounds) -> None:
    sizes = np.sort(np.abs(rounds.residual) / rounds.noise)
    share = 1.0 - np.arange(len(sizes)) / len(sizes)
    grid = np.linspace(0.0, max(4.0, float(sizes[-1])), 100)
    panel.step(sizes, share, where="post", color=COLOURS["hp_ucb"], linewidth=1.2, label="residuals")
    bound = np.minimum(2.0 * np.exp(-0.5 * grid**2), 1.0)
    panel.plot(grid, bound, color="grey", linestyle="--", linewidth=1, label="at most, by κ")
    panel.set(yscale="log", ylim=(0.3 / len(sizes), 1.5), xlabel="q")
    title(panel, "share of residuals beyond q·κ")
    panel.legend(fontsize=6, frameon=False)


def _bands(panel: Any, found: Finding, rounds: Rounds, words: str, across: Any) -> None:
    panel.plot(across, rounds.residual, ".", color="0.75", markersize=2, zorder=0)
    panel.plot(
        found.details["bands"], found.details["mean_residuals"], "o-", color=COLOURS["on_expectation"], markersize=4
    )
    panel.axhline(0.0, color="grey", linewidth=0.8)
    edge = 3.0 * rounds.noise
    panel.set(ylim=(-edge, edge), xlabel=words)
    title(panel, f"{found.title.lower()}: residuals, and their means in bands")


def _regions(panel: Any, found: Finding, rounds: Rounds) -> None:
    sizes = sorted(found.details["deviations"].items(), key=lambda pair: pair[1])[-SHOWN_REGIONS:]
    panel.barh([name for name, _ in sizes], [size for _, size in sizes], color=COLOURS["hp_conformal"], height=0.6)
    panel.axvline(rounds.noise, color="grey", linestyle="--", linewidth=1)
    panel.tick_params(axis="y", labelsize=6)
    title(panel, "noise by region (dashed: κ)")
    panel.set_xlabel("deviation")
