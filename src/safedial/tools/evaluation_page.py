"""An evaluation in words, as a table, and as one HTML page with a picture: settings and excesses over time, rates beside
what is guaranteed, and reward.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np

from safedial.io import html_table, write_text
from safedial.model.dial import significant
from safedial.model.guarantee import GUARANTEES
from safedial.tools.evaluation import Evaluation, PolicyResult, excess_words
from safedial.tools.pages import SHADES, document, inline, legend_below, new_figure, png, title
from safedial.version import __version__

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
    title(panel, "Share of excesses, 95 % interval; bar: the guarantee")


def _earned(panel: Any, table: list[dict[str, Any]], lines: list[Any]) -> None:
    ends = [0.0, 100.0]
    for row, (_, colour) in zip(table, lines, strict=True):
        if row["share"] is not None:
            panel.plot(100 * row["rate_upper"], 100 * row["share"], "o", color=colour, markersize=6, clip_on=False)
            ends.append(105 * row["share"])
    panel.set_xlim(0.0, max(1.0, *(110 * row["rate_upper"] for row in table)))
    panel.set_ylim(min(ends), max(ends))


# --- An evaluation in words, as a table, and as one HTML page

HEADS = ("policy", "exceed", "95 %", "guarantee", "dose", "reward", "best")
"""The columns of the table; `best`: the share of the best in hindsight."""

MOST_ROWS = 200

NOTES = (
    "95 %: an interval by blocks of consecutive rounds for the share that exceeds. Guarantee: the policy's own, in every "
    "round. Dose, reward: means of a round. Best: "
)
EXACT = "the reward, as a share of that of a policy that knows each round's outcome."
BOUNDED = (
    "the dose, as a share of the largest that was surely tolerated. The curve is known by a bracket only, or costs are "
    "0 or 1: the first count is of rounds that must have exceeded, the second of those that may have."
)
GUARANTEE = (
    "This is what would have happened in these rounds if the model holds: the stated dose curve is right, a dose acts "
    "in its own round alone, and the log is complete. It guarantees nothing about rounds to come."
)
GUARANTEE_BOUNDED = (
    "These are the settings of a policy that watched these rounds, and bounds on what they would have done, if costs "
    "grow with the setting as stated, a dose acts in its own round alone, and the log is complete. In use, the policy "
    "would have seen the outcomes of its own settings, and might have advised others. It guarantees nothing about rounds "
    "to come."
)


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100.0 * value:.3g}%"


def cells(found: Evaluation) -> list[list[str]]:
    """The table as text, one list for each policy."""
    return [
        [
            row["policy"],
            excess_words(row),
            f"{100 * row['low']:.2g}–{100 * row['high']:.2g}%",
            percent(row["risk"]),
            significant(row["mean_dose"], 3),
            "–" if row["reward"] is None else significant(row["reward"], 3),
            percent(row["share"]),
        ]
        for row in found.table()
    ]


def words(found: Evaluation) -> list[str]:
    """What the figures mean, and when they must not be believed."""
    exact = all(each.outcomes.exact for each in found.policies)
    lines = [NOTES + (EXACT if exact else BOUNDED), *terms(found)]
    for row in found.table():
        if row["stop_reason"]:
            lines.append(
                f"{row['policy']} would have stopped itself in round {row['stopped_at']:g} ({row['stop_reason']})."
            )
    return [*lines, *(f"Doubt, {each}" for each in doubt_words(found)), *_closing(found)]


def terms(found: Evaluation) -> list[str]:
    """What is judged: the thresholds, the risk and the dial; a line for each policy if they differ."""
    told = {each.name: _terms(each) for each in found.policies}
    if len(set(told.values())) == 1:
        return [next(iter(told.values()))]
    return [f"{name}: {line}" for name, line in told.items()]


def _terms(each: PolicyResult) -> str:
    spec, dial = each.rules.spec, each.rules.dial
    costs = each.outcomes.costs
    limits = [
        f"{'the cost' if name == 'cost' else name} must not {'exceed' if cost.direction == 'above' else 'fall below'} "
        f"{cost.threshold:g} {cost.unit}".rstrip()
        for name, cost in costs.items()
    ]
    span = GUARANTEES[spec.guarantee].span
    risk = f"stated risk: at most {percent(float(spec.guaranteed_risk))} in {span}"
    unit = f" {dial.unit}" if dial.unit else ""
    return f"Threshold: {', '.join(limits)}; {risk}; dial: {dial.low:g} to {dial.high:g}{unit}."


def _closing(found: Evaluation) -> list[str]:
    """What the figures claim; where it is not the same for all policies, with their names."""
    exact = [each.name for each in found.policies if each.outcomes.exact]
    bounded = [each.name for each in found.policies if not each.outcomes.exact]
    if not (exact and bounded):
        return [GUARANTEE if exact else GUARANTEE_BOUNDED]
    return [f"{', '.join(exact)}: {GUARANTEE}", f"{', '.join(bounded)}: {GUARANTEE_BOUNDED}"]


def heading(found: Evaluation) -> str:
    return f"What policies would have done on {found.source}, {len(found.rounds):,} rounds"


def doubt_words(found: Evaluation) -> list[str]:
    """Each doubt once, with the number of rounds that it concerns for each policy."""
    named: dict[tuple[str, str], list[str]] = {}
    for each in found.doubts:
        named.setdefault((each.name, each.words), []).append(f"{each.rounds:,} ({each.policy})")
    return [f"{name}: {', '.join(counts)} rounds {words}" for (name, words), counts in named.items()]


def write_page(found: Evaluation, path: Path) -> Path:
    """Write the page."""
    title = heading(found)
    doubts = "".join(f'<div class="flag"><p>{html.escape(each)}</p></div>' for each in doubt_words(found))
    told = [line for line in words(found) if not line.startswith("Doubt, ")]
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        "".join(f"<p>{html.escape(line)}</p>" for line in told[1:]),
        html_table(list(HEADS), cells(found)),
        f"<p><small>{html.escape(told[0])}</small></p>",
        inline(
            draw(found), "Settings and excesses over time, shares that exceed with intervals, and reward against them"
        ),
        "<h2>When not to believe it</h2>",
        doubts or '<div class="quiet"><p>Nothing in the log casts doubt on these figures.</p></div>',
        "<h2>Where and for whom</h2>",
        "<p><small>Groups with excesses, those with the largest share first. Many are looked at, so some stand "
        "out by chance; intervals are those of independent rounds.</small></p>",
        *_groups(found),
        "<h2>Rounds that would have exceeded</h2>",
        *_rows(found.rows()),
        f"<p><small>safedial {__version__}.</small></p>",
    ]
    return write_text(path, document(title, parts))


def _groups(found: Evaluation) -> list[str]:
    heads = ["policy", "column", "group", "rounds", "exceed", "95 %", "dose"]
    lines = [
        [
            row["policy"],
            row["column"],
            row["group"],
            f"{row['rounds']:,}",
            excess_words(row),
            f"{100 * row['low']:.2g}–{100 * row['high']:.2g}%",
            significant(row["mean_dose"], 3),
        ]
        for row in found.groups()
        if row["violations_upper"]
    ]
    return [html_table(heads, lines)] if lines else ["<p>No group has any.</p>"]


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["<p>None.</p>"]
    heads = list(rows[0])
    shown = [[_text(row[head]) for head in heads] for row in rows[:MOST_ROWS]]
    more = (
        f"<p><small>The first {MOST_ROWS} of {len(rows):,}; --json has all.</small></p>"
        if len(rows) > MOST_ROWS
        else ""
    )
    return [html_table([head.replace("_", " ") for head in heads], shown), more]


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return significant(value, 3) if isinstance(value, float) else str(value)
