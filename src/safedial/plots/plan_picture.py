"""The picture of a plan: dose and reward over time, violations beside what is allowed, and every scenario's rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safedial.decision.units import Dial
from safedial.io import read_rows
from safedial.plots.style import COLOURS, band, columns, dial_axis, legend_below, new_figure, save, title

RAREST = 1e-5
SHADES = ("#000000", "#0072B2", "#009E73", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#8C6D31", "#999999")


def draw_plan(folder: str | Path, *, dial: Dial | None = None) -> Path:
    """`plan.png` from `plan.csv` and `plan_curves.csv`, with doses in the dial's units; scales for a bracket."""
    table, curves = (read_rows(Path(folder) / name) for name in ("plan.csv", "plan_curves.csv"))
    figure, (dose, reward, violations, rates) = new_figure(columns=2, rows=2, height=2.5)
    first = table[0]["scenario"]
    scales = "worst_rate" in table[0]
    _dose(dose, [row for row in curves if row["scenario"] == first], first, None if scales else dial or Dial())
    for colour, summary in zip(SHADES, table, strict=False):
        rows = [row for row in curves if row["scenario"] == summary["scenario"] and row["reward_share"] != ""]
        dashes = "-" if summary["promise_holds"] else ":"
        look = {"color": colour, "linewidth": 1.1, "linestyle": dashes, "label": summary["scenario"]}
        reward.plot(*columns(rows, ("round", "reward_share")), **look)
    reward.axhline(0.5, color="grey", linestyle="--", linewidth=0.8)
    reward.set_ylim(0.0, 1.5)
    title(reward, f"share of an all-knowing policy's {'scale' if scales else 'reward'}")
    _violations(violations, [row for row in curves if row["scenario"] == first], table[0])
    _rates(rates, table)
    for panel in (dose, reward, violations):
        panel.set_xlabel("round")
    legend_below(figure, *reward.get_legend_handles_labels(), ncols=5, fontsize=6.5)
    return save(figure, Path(folder) / "plan.png")


def _dose(panel: Any, rows: list[dict[str, Any]], scenario: str, dial: Dial | None) -> None:
    rounds, doses, low, high = columns(rows, ("round", "dose", "dose_low", "dose_high"))
    panel.fill_between(rounds, low, high, color=COLOURS["hp_conformal"], alpha=0.4, linewidth=0)
    panel.plot(rounds, doses, color=COLOURS["hp_ucb"])
    title(panel, f"{'dose' if dial else 'scale'} {scenario}: mean, and the middle half")
    panel.set_ylim(0.0, 1.02 if dial else None)
    if dial:
        dial_axis(panel, dial, "y")
    else:
        panel.set_ylabel("times the base")


def _violations(panel: Any, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    rounds, *counts = columns(rows, ("round", "violations", "violations_low", "violations_high"))
    band(panel, rounds, counts, colour=COLOURS["on_expectation"], shade=0.25)
    allowed = summary["promised_risk"] * rounds[-1] if summary["promised_over"] == "a round" else 0.0
    if allowed:
        line = [allowed * number / rounds[-1] for number in rounds]
        panel.plot(rounds, line, color="grey", linestyle="--", linewidth=1)
        panel.text(rounds[-1], allowed, "allowed ", ha="right", va="bottom", fontsize=7)
    panel.set_yscale("symlog", linthresh=1.0)
    panel.set_ylim(0.0, 3.0 * max(allowed, *counts[2], 1.0))
    title(panel, f"costs above the threshold {summary['scenario']}, in all")


def _rates(panel: Any, table: list[dict[str, Any]]) -> None:
    for place, (colour, row) in enumerate(zip(SHADES, table, strict=False)):
        ends = [max(row[name], RAREST) for name in ("rate_low", "rate_high")]
        panel.plot(ends, [-place, -place], color=colour, linewidth=1)
        face = colour if row["promise_holds"] else "white"
        at = max(row["violation_rate"], RAREST), -place
        panel.plot(*at, "o", markersize=5, markeredgecolor=colour, markerfacecolor=face)
        if "worst_rate" in row:
            panel.plot(max(row["worst_rate"], RAREST), -place, "x", markersize=5, color=colour)
    if table[0]["promised_over"] == "a round":
        panel.axvline(table[0]["promised_risk"], color="grey", linestyle="--", linewidth=1)
    panel.set(xscale="log", xlim=(0.7 * RAREST, 1.0))
    panel.set_yticks([-place for place in range(len(table))], [row["scenario"] for row in table])
    panel.tick_params(axis="y", labelsize=6.5)
    panel.set_xticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["≤ 10⁻⁵", "10⁻⁴", "0.1 %", "1 %", "10 %", "100 %"])
    worst = "; ×: in the worst round" if "worst_rate" in table[0] else ""
    title(panel, f"violation rate (filled: the promise is proved there{worst})")
