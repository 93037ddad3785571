"""How results look in a notebook, and how they become pandas tables.

A result says what to show: a title, rows, notes. The HTML has no scripts, and everything in it is escaped, because
names, units and reasons are a user's own text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from safedial.errors import import_extra

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_ROWS = 12
"""A notebook shows no more rows of a table."""


def data_frame(rows: Any) -> DataFrame:
    """Rows (mappings), or columns by name, as a pandas table. Without pandas the error says how to install it."""
    return import_extra("pandas", "data").DataFrame(rows if isinstance(rows, Mapping) else list(rows))


def html_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def card(title: str, rows: Iterable[Mapping[str, Any]] = (), notes: Iterable[str] = ()) -> str:
    """A title, a short table and notes, as HTML for a notebook. Notes that begin with "- " belong to the one above.

    >>> print(card("One <round>", [{"round": 1, "cost": 0.123456}], ["a note", "It holds if:", "- no drift"]))
    <div><strong>One &lt;round&gt;</strong><table><thead><tr><th>round</th><th>cost</th></tr></thead><tbody><tr><td>\
1</td><td>0.1235</td></tr></tbody></table><ul><li>a note</li><li>It holds if:<ul><li>no drift</li></ul></li></ul></div>
    """
    shown, told = list(islice(rows, MOST_ROWS + 1)), list(notes)
    if len(shown) > MOST_ROWS:
        told = [f"The first {MOST_ROWS} rows; to_frame() has all of them.", *told]
    heads = list(dict.fromkeys(name for row in shown for name in row))
    lines = [[plain_text(row.get(name)) for name in heads] for row in shown[:MOST_ROWS]]
    table = html_table([name.replace("_", " ") for name in heads], lines) if lines else ""
    return f"<div><strong>{html.escape(title)}</strong>{table}{_list(told)}</div>"


def _list(notes: Sequence[str]) -> str:
    """Notes as a list, in which those that begin with "- " are lists below."""
    starts = [place for place, text in enumerate(notes) if place == 0 or not text.startswith("- ")]
    items = (
        f"<li>{html.escape(notes[start])}{_list([text[2:] for text in notes[start + 1 : end]])}</li>"
        for start, end in zip(starts, [*starts[1:], len(notes)], strict=True)
    )
    return f"<ul>{''.join(items)}</ul>" if notes else ""


def named_values(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each value, under its name."""
    return [{"": name.replace("_", " "), " ": value} for name, value in values.items()]


def plain_text(value: Any) -> str:
    """A value as a cell shows it.

    >>> plain_text(0.123456), plain_text(True), plain_text(None), plain_text(["a", 2]), plain_text({"auc": 600.0})
    ('0.1235', 'yes', '', 'a, 2', 'auc 600')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
