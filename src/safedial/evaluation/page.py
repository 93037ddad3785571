"""An evaluation in words, as a table, and as one HTML page."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from safedial.core.promise import PROMISES
from safedial.decision.units import significant
from safedial.evaluation.evaluated import Evaluation, PolicyResult, excess_words
from safedial.io import write_text
from safedial.notebook import html_table
from safedial.report.html import document, inline
from safedial.version import __version__

HEADS = ("policy", "exceed", "95 %", "promise", "dose", "reward", "best")
"""The columns of the table; `best`: the share of the best in hindsight."""

MOST_ROWS = 200

NOTES = (
    "95 %: an interval by blocks of consecutive rounds for the share that exceeds. Promise: the policy's own, in every "
    "round. Dose, reward: means of a round. Best: "
)
EXACT = "the reward, as a share of that of a policy that knows each round's outcome."
BOUNDED = (
    "the dose, as a share of the largest that was surely tolerated. The curve is known by a bracket only, or costs are "
    "0 or 1: the first count is of rounds that must have exceeded, the second of those that may have."
)
PROMISE = (
    "This is what would have happened in these rounds if the model holds: the stated dose curve is right, a dose acts "
    "in its own round alone, and the log is complete. It promises nothing about rounds to come."
)
PROMISE_BOUNDED = (
    "These are the settings of a policy that watched these rounds, and bounds on what they would have done, if costs "
    "grow with the setting as stated, a dose acts in its own round alone, and the log is complete. In use, the policy "
    "would have seen the outcomes of its own settings, and might have advised others. It promises nothing about rounds "
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
    where = "in a round" if PROMISES[spec.promise].each_round else "in all rounds together"
    risk = f"stated risk: at most {percent(float(spec.promised_risk))} {where}"
    unit = f" {dial.unit}" if dial.unit else ""
    return f"Threshold: {', '.join(limits)}; {risk}; dial: {dial.low:g} to {dial.high:g}{unit}."


def _closing(found: Evaluation) -> list[str]:
    """What the figures claim; where it is not the same for all policies, with their names."""
    exact = [each.name for each in found.policies if each.outcomes.exact]
    bounded = [each.name for each in found.policies if not each.outcomes.exact]
    if not (exact and bounded):
        return [PROMISE if exact else PROMISE_BOUNDED]
    return [f"{', '.join(exact)}: {PROMISE}", f"{', '.join(bounded)}: {PROMISE_BOUNDED}"]


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
    from safedial.evaluation.evaluation_picture import draw

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
        if row["excesses_upper"]
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
