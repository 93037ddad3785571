"""`safedial plan --out` and `safedial choose --out`: data, pictures, one page, and the first policy's spec file.

A plan's picture: dose and reward over time, violations beside what is allowed, and every scenario's rate.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safedial.io import html_table, output_folder, provenance, read_rows, write_json, write_rows, write_text
from safedial.model.dial import Dial, significant
from safedial.policies import guaranteed_risk
from safedial.rounds.rules import write_parts
from safedial.rounds.specfile import save_spec
from safedial.tools.candidates import MEANING
from safedial.tools.choosing import Ranking
from safedial.tools.pages import (
    BLUE,
    FILL,
    ORANGE,
    band,
    columns,
    dial_axis,
    document,
    image,
    legend_below,
    new_figure,
    save,
    title,
)
from safedial.tools.planning import Plan
from safedial.version import __version__

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
        dashes = "-" if summary["guarantee_holds"] else ":"
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
    panel.fill_between(rounds, low, high, color=FILL, alpha=0.4, linewidth=0)
    panel.plot(rounds, doses, color=BLUE)
    title(panel, f"{'dose' if dial else 'scale'} {scenario}: mean, and the middle half")
    panel.set_ylim(0.0, 1.02 if dial else None)
    if dial:
        dial_axis(panel, dial, "y")
    else:
        panel.set_ylabel("times the base")


def _violations(panel: Any, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    rounds, *counts = columns(rows, ("round", "violations", "violations_low", "violations_high"))
    band(panel, rounds, counts, colour=ORANGE, shade=0.25)
    allowed = (summary["guaranteed_risk"] or 0.0) * rounds[-1] if summary["guaranteed_over"] == "a round" else 0.0
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
        face = colour if row["guarantee_holds"] else "white"
        at = max(row["violation_rate"], RAREST), -place
        panel.plot(*at, "o", markersize=5, markeredgecolor=colour, markerfacecolor=face)
        if "worst_rate" in row:
            panel.plot(max(row["worst_rate"], RAREST), -place, "x", markersize=5, color=colour)
    if table[0]["guaranteed_over"] == "a round" and table[0]["guaranteed_risk"]:
        panel.axvline(table[0]["guaranteed_risk"], color="grey", linestyle="--", linewidth=1)
    panel.set(xscale="log", xlim=(0.7 * RAREST, 1.0))
    panel.set_yticks([-place for place in range(len(table))], [row["scenario"] for row in table])
    panel.tick_params(axis="y", labelsize=6.5)
    panel.set_xticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["≤ 10⁻⁵", "10⁻⁴", "0.1 %", "1 %", "10 %", "100 %"])
    worst = "; ×: in the worst round" if "worst_rate" in table[0] else ""
    title(panel, f"violation rate (filled: the guarantee is proved there{worst})")


# --- `safedial plan --out`: data, a picture and one page


def cell(name: str, value: Any) -> str:
    """A quantity formatted for reading.

    >>> cell("violation_rate", 0.0123), cell("half_reward_round", None), cell("violations", 1.234)
    ('1.2%', 'never', '1.23')
    """
    if name in ("half_reward_round", "first_above_start"):
        return "never" if value is None else f"{value}"
    if value is None:
        return "–"
    if name in ("violation_rate", "worst_rate"):
        return f"{100.0 * value:.2g}%"
    if name in ("any_violation", "reward_share", "attainable_share", "alarms", "small_doses"):
        return f"{value:.0%}"
    return value if isinstance(value, str) else significant(value, 3)


def lines(plan: Plan, names: Sequence[str]) -> list[list[str]]:
    """The operating characteristics as text, one list per scenario, with a star if the guarantee is not proved there.
    Doses are in the dial's units.
    """
    dial = plan.dial
    marked = [
        row
        | {
            "scenario": row["scenario"] + ("" if row["guarantee_holds"] else " *"),
            "last_dose": dial.low + row["last_dose"] * (dial.high - dial.low),
        }
        for row in plan.table
    ]
    return [[cell(name, row[name]) for name in names] for row in marked]


def write_plan(folder: Path, plan: Plan, *, seconds: float) -> list[Path]:
    """`plan.csv`, `plan_curves.csv`, `plan.provenance.json`, `plan.png` and `plan.html` in `folder`."""
    place = output_folder(folder)
    settings = {
        **write_parts({name: getattr(plan, name) for name in ("policy", "spec", "dial", "dose")}),
        "assumed": dict(plan.assumed),
        "baseline_cost": plan.baseline_cost,
        "dim": plan.dim,
        "rounds": plan.rounds,
        "seeds": list(plan.which),
        "engine": plan.engine,
        "scenarios": {each.scenario.name: each.scenario.words for each in plan.forecasts},
    }
    paths = [
        write_rows(place / "plan.csv", plan.table),
        write_rows(place / "plan_curves.csv", plan.curves),
        write_json(place / "plan.provenance.json", provenance(settings, seconds)),
        draw_plan(place, dial=plan.dial),
    ]
    return [*paths, write_text(place / "plan.html", document("What to expect of this study", _body(plan, place)))]


def _body(plan: Plan, place: Path) -> list[str]:
    worlds, risk = plan.worlds, float(guaranteed_risk(plan.policy, plan.spec))
    truths = "".join(
        f"<li><strong>{html.escape(each.scenario.name)}</strong>: {html.escape(each.scenario.words)}</li>"
        for each in plan.forecasts
    )
    words = "".join(f"<p>{html.escape(line)}</p>" for line in plan.words())
    return [
        "<h1>What to expect of this study</h1>",
        f"<p>{html.escape(plan.policy.label)}, {plan.rounds} rounds, {html.escape(worlds.stated(plan, risk))}. Every scenario was simulated {plan.seeds} times{worlds.varied}.</p>",
        f'<div class="claim">{words}</div>',
        image(place / "plan.png", worlds.pictured),
        "<h2>Operating characteristics</h2>",
        html_table(list(worlds.page_heads.values()), lines(plan, tuple(worlds.page_heads))),
        f"<p><small>* the guarantee is not proved there. {worlds.legend(plan)}</small></p>",
        f"<h2>The scenarios</h2><ul>{truths}</ul>",
        f"<p><small>A forecast of simulated {worlds.kind} worlds, not a guarantee about yours. safedial {__version__}.</small></p>",
    ]


# --- `safedial choose --out`: tables, a picture and the first policy's spec file

UNITS = """\
Your dial and your features are not stated yet: settings are shares of the dial, contexts plain numbers. Add, say:
  [dial]
  high = 20
  unit = "mg"
"""
FEATURES = """\
  [features]                 (instead of [world]; contexts are then given by name)
  names = ["age", "weight"]
  center = [50, 70]
  scale = [30, 40]
"""


def _head(found: Ranking) -> str:
    """The comment above a spec file: the guarantee, its assumptions, which of them only a pilot supports, and what to add."""
    first = found.best
    rests = "; ".join(MEANING[name] for name in first.rests)
    lines = [f"Proposed by safedial choose. {found.words()[0]}", f"It guarantees {first.guarantees}, if: {rests}."]
    return "\n".join([*lines, *found.taken(), UNITS + ("" if found.spec_file().features else FEATURES)])


def write_ranking(folder: str | Path, found: Ranking) -> list[Path]:
    """Write choose.json, and if a policy is offered choose.csv, choose_curves.csv, choose.png and spec.toml."""
    into = output_folder(folder)
    paths = [write_json(into / "choose.json", found.to_dict())]
    if found.offers:
        rows = [row | {"rests_on": "; ".join(row["rests_on"])} for row in found.table]
        paths.append(write_rows(into / "choose.csv", rows))
        paths.append(save_spec(found.spec_file(), into / "spec.toml", notes={"": _head(found)}))
    if found.curves:
        paths.append(write_rows(into / "choose_curves.csv", found.curves))
        paths.append(draw_ranking(into))
    return paths


def draw_ranking(folder: str | Path) -> Path:
    """`choose.png` from `choose_curves.csv`: expected shares with their 95 % intervals."""
    curves = read_rows(Path(folder) / "choose_curves.csv")
    figure, (panel,) = new_figure(height=2.6)
    names = list(dict.fromkeys(row["policy"] for row in curves))
    for number, name in enumerate(names):
        colour, dashes = SHADES[(number + 1) % len(SHADES)], ("-", "--", ":")[number // len(SHADES)]
        rows = [row for row in curves if row["policy"] == name]
        rounds, *shares = columns(rows, ("round", "share", "share_low", "share_high"))
        band(panel, rounds, shares, colour=colour, look={"linewidth": 1.1, "linestyle": dashes, "label": name})
    panel.set_ylim(0.0, 1.02)
    panel.set_xlabel("round")
    title(panel, "share of an all-knowing policy's reward, so far")
    legend_below(figure, *panel.get_legend_handles_labels(), ncols=2, fontsize=6.5)
    return save(figure, Path(folder) / "choose.png")
