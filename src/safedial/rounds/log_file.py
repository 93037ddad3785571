"""Logs as CSV, with one row per decision. Errors name the line of the file (its header is line 1), the column and the
cell.

| column | meaning |
|---|---|
| `action` | the applied action, in [0, 1], or the setting in the dial's units if the spec file has a [dial] |
| `reward`, `cost` | as measured |
| `round` | optional: the decision's number, increasing; otherwise rows are in order |
| `advised` | optional: the advised action, in the units of `action` |
| `baseline_cost` | optional: the known cost without any action |
| `time` | optional: ignored here, for readers |
| `proposal`, `cost_NAME` | for a bracket guarantee, if it has them; costs may then be empty where they are not known |
| all others | the context, in order; or the columns that you or the spec file's [features] name |

Rows must be complete and in decision order: a log without its worst rounds proves nothing. A study's export is a log.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, require
from safedial.io import read_text
from safedial.model.dial import Dial, Features
from safedial.model.guarantee import CERTIFIED, GUARANTEES
from safedial.model.namespace import Array

COMMA = re.compile(r"[+-]?\d+,\d+")
BEYOND = re.compile(r"([<>≤≥])=?\s*([+-]?\d+(?:[.,]\d+)?)")
OUTCOMES = ("reward", "cost")
MOST = 5
"""How many further lines an error names for each column."""


def read_numbers(
    columns: Mapping[str, Sequence[str]],
    lines: Sequence[int],
    *,
    known: Sequence[str] = (),
    empty: Sequence[str] = (),
) -> dict[str, NDArray[np.float64]]:
    """Columns of cells as finite numbers, of which `lines` are the lines of the file.

    `known` columns are those of a log, the others describe the case; in `empty` columns a cell may be empty, and reads
    as NaN. One error names every column with a cell that is no number.

    >>> read_numbers({"cost": ["1.5", ""]}, [2, 3], empty=["cost"])["cost"].tolist()
    [1.5, nan]
    >>> read_numbers({"age": ["50"], "cost": ["12,0"]}, [2], known=["cost"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: log line 2, column 'cost' = '12,0': must be a finite number; it has a ...
    """
    found = {name: _values(cells) for name, cells in columns.items()}
    bad = {name: _bad(values, columns[name], name in empty) for name, values in found.items()}
    bad = {name: rows for name, rows in bad.items() if rows}
    if bad:
        name = next(iter(bad))
        row, cell = bad[name][0], columns[name][bad[name][0]]
        hint = _hint(name, cell, known=name in known, empty=name in empty)
        rest = {each: rows[each == name :] for each, rows in bad.items()}
        also = "; ".join(
            f"column {each!r} = {columns[each][rows[0]]!r}, {_listed([lines[other] for other in rows])}"
            for each, rows in rest.items()
            if rows
        )
        words = f"log line {lines[row]}, column {name!r} = {cell!r}: must be a finite number; {hint}"
        raise InvalidInput(words + (f". Also: {also}" if also else ""))
    return found


def _values(cells: Sequence[str]) -> NDArray[np.float64]:
    try:
        return np.array([*map(float, cells)])  # fast; cell by cell only where one is no number
    except ValueError:
        return np.array([_number(cell) for cell in cells])


def _number(cell: str) -> float:
    """A cell's number, or NaN if it is not a number."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _bad(values: NDArray[np.float64], cells: Sequence[str], empty: bool) -> list[int]:
    return [row for row in np.flatnonzero(~np.isfinite(values)).tolist() if not (empty and not cells[row].strip())]


def _listed(lines: Sequence[int]) -> str:
    more = f" and {len(lines) - MOST} more" if len(lines) > MOST else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:MOST]))}{more}"


def _hint(name: str, cell: str, *, known: bool, empty: bool) -> str:
    """What is wrong with a cell that is no number, and what to write."""
    text = cell.strip()
    if COMMA.fullmatch(text):
        return _comma_hint(text)
    if (beyond := BEYOND.fullmatch(text)) and (name in OUTCOMES or empty or not known):
        limit = beyond[2].replace(",", ".")
        if beyond[1] in "<≤":
            return f"it lies below a detection limit: write the limit itself, {limit}"
        return f"it lies above a measuring limit: write the limit itself, {limit}, if that is beyond your threshold"
    if empty:
        return "it is text: write the number that was measured, or leave the cell empty where none is known"
    first = "fill it in" if not text else "it is text: write the number"
    if known:
        wait = "every outcome must be known: wait for it, and leave no round out"
        return first if name not in OUTCOMES else f"{first}; {wait}" if text else wait
    first = "fill it in" if not text else "if it does not describe the case, leave this column out"
    return f"{first}, or name the columns to use: --context-columns (context_columns in Python)"


def _comma_hint(text: str) -> str:
    """What to write in place of a number with a comma.

    >>> _comma_hint("78,2")
    'it has a decimal comma: write 78.2'
    """
    whole, _, part = text.partition(",")
    thousands = f", or {whole}{part} if the comma separates thousands" if len(part) == 3 and len(whole) < 5 else ""
    return f"it has a decimal comma: write {whole}.{part}{thousands}"


# --- Logs as CSV, with one row per decision

KNOWN = ("round", "time", "advised", "action", "reward", "cost", "baseline_cost")
NEEDED = ("action", "reward", "cost")
MEANS = {"action": "the setting that was given", "reward": "the quantity to raise", "cost": "the quantity to limit"}


@dataclass(frozen=True, kw_only=True)
class Log:
    """Rounds in decision order: contexts (n, d) after centring and scaling, actions in [0, 1].

    `advised` is NaN if the advice is unknown, and −∞ if the guarantee does not cover the round.
    """

    names: tuple[str, ...]
    context: Array
    action: Array
    reward: Array
    cost: Array
    round: Array
    advised: Array
    baseline_cost: Array
    learned: int | None = None
    """In a study's export, how many rows the study learned from; the rest are for the monitor. None: all."""
    unseen: Array = field(default_factory=lambda: np.empty(0))
    """Rounds with a guarantee but without an outcome in this log."""
    extra: Mapping[str, Array] = field(default_factory=dict)
    """Further columns that the reader asked for, by name; NaN where a cell is empty."""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def prefix(self) -> Log:
        """The rows to learn from: those before the first outcome that is missing for an unknown reason."""
        return self if self.learned is None else self.rows(slice(self.learned))

    @property
    def dim(self) -> int:
        return self.context.shape[1]

    def rows(self, chosen: Any) -> Log:
        """The chosen rows (a slice, a mask or numbers), in order."""
        names = ("context", "action", "reward", "cost", "round", "advised", "baseline_cost")
        arrays: dict[str, Any] = {name: getattr(self, name)[chosen] for name in names}
        extra = {name: values[chosen] for name, values in self.extra.items()}
        return Log(names=self.names, **arrays, extra=extra)


def read_log(
    path: str | Path,
    *,
    context_columns: Sequence[str] | None = None,
    features: Features | None = None,
    dial: Dial | None = None,
    needs: Sequence[str] = NEEDED,
    least_rows: int = 1,
    also: Sequence[str] = (),
    label: str | None = None,
) -> Log:
    """Read the log at `path`. An error names the line of the file and the column.

    Args:
        context_columns: the columns of the context; by default the features' names, or all but the known columns.
        features: how raw columns become the context.
        dial: the action's own units; by default [0, 1].
        needs: the required outcome columns; the others read as 0 if missing.
        least_rows: the smallest number of rows allowed.
        also: columns of numbers for `Log.extra`, in which cells may be empty; the cost may be one of them.
        label: a column that says whose row it is, for `Log.extra`, as numbers.
    """
    return parse_log(
        read_text(path, "log"),
        context_columns=context_columns,
        features=features,
        dial=dial,
        needs=needs,
        least_rows=least_rows,
        also=also,
        label=label,
    )


def parse_log(
    text: str,
    *,
    context_columns: Sequence[str] | None = None,
    features: Features | None = None,
    dial: Dial | None = None,
    needs: Sequence[str] = NEEDED,
    least_rows: int = 1,
    widen_dial: str = "state a [dial] in the spec file",
    also: Sequence[str] = (),
    label: str | None = None,
) -> Log:
    """Parse the text of a log; `widen_dial` is advice for the error about a setting beyond the dial's range.

    >>> log = parse_log("age,action,reward,cost\\n0.3,0.5,0.1,0.2\\n0.4,0.6,0.0,0.1\\n")
    >>> log.names, len(log), log.cost.tolist()
    (('age',), 2, [0.2, 0.1])
    """
    columns, lines = _columns(text, needs, least_rows)
    export = None
    if is_export(columns):
        export = resolved(columns, also)
        columns, lines = export.columns, [lines[row] for row in export.rows]
        require(columns["round"], "log", "export", "has no round with a known outcome yet", "report outcomes first")
    known = {*KNOWN, *also, label}
    names = tuple(context_columns or (features.names if features else [each for each in columns if each not in known]))
    for what, asked in (("context columns", names), ("columns", [*also, *([label] if label else [])])):
        absent = [name for name in asked if name not in columns]
        require(not absent, "log", absent, f"lacks these {what}", "it has " + ", ".join(columns))
    taken = [name for name in names if name in KNOWN]
    require(not taken, "context columns", taken, "are outcome columns of a log")
    count = len(columns["action"])
    stated = [name for name in KNOWN if name in columns and name != "time"]
    cells = {name: columns[name] for name in (*names, *also, *stated)}
    numbers = read_numbers(cells, lines, known=KNOWN, empty=also)
    raw = np.array([numbers[name] for name in names]).reshape(len(names), count).T
    extra = {name: numbers[name] for name in also}
    if label:
        extra[label] = np.unique(columns[label], return_inverse=True)[1].astype(float)
    range_ = dial or Dial()
    for name in ("action", "advised"):
        if name in numbers:
            numbers[name] = _shares(name, numbers[name], lines, range_, widen_dial)
    if export:
        numbers["advised"] = np.where(export.covered, numbers["advised"], -math.inf)
        numbers["action"] = np.where(export.teaches, numbers["action"], 0.0)
    order = numbers.get("round", np.arange(1.0, count + 1.0))
    require(np.all(np.diff(order) > 0), "log", "round", "must increase from row to row", "sort it in decision order")
    return Log(
        names=names if features is None or not features.intercept else (*names, "intercept"),
        context=np.array([features.transform(row) for row in raw]) if features else raw,
        action=numbers["action"],
        reward=numbers.get("reward", np.zeros(count)),
        cost=numbers.get("cost", np.zeros(count)),
        round=order,
        advised=numbers.get("advised", np.full(count, math.nan)),
        baseline_cost=numbers.get("baseline_cost", np.zeros(count)),
        learned=export.learned if export else None,
        unseen=np.array([float(number) for number in export.unseen]) if export else np.empty(0),
        extra=extra,
    )


def log_text(log: Log, *, features: Features | None = None, dial: Dial | None = None) -> str:
    """The log as CSV that `parse_log` reads back, digit for digit; with features or a dial in their units, from which
    it comes back up to rounding.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    advised = not np.all(np.isnan(log.advised))
    based = bool(np.any(log.baseline_cost))
    outcomes = ["action", *(["advised"] if advised else []), "reward", "cost", *(["baseline_cost"] if based else [])]
    names, context = (
        (log.names, log.context) if features is None else (features.names, raw_contexts(log.context, features))
    )
    columns = {name: getattr(log, name) for name in outcomes}
    if dial is not None:
        for name in {"action", "advised"} & set(columns):
            columns[name] = np.clip(dial.low + columns[name] * (dial.high - dial.low), dial.low, dial.high)
    writer.writerow(["round", *names, *outcomes])
    for index in range(len(log)):
        told = [repr(float(column[index])) for column in columns.values()]
        writer.writerow([f"{log.round[index]:.17g}", *(repr(float(value)) for value in context[index]), *told])
    return text.getvalue()


def raw_contexts(context: Array, features: Features) -> Array:
    """The raw values of the features of each context."""
    constant = not features.intercept or bool(np.all(context[:, -1] == 1.0))
    rule = "has an intercept, but the last part of these contexts is not 1 (a simulated world draws all parts)"
    require(constant, "features", features.names, rule, "leave the intercept out of this spec file")
    return context[:, : len(features.names)] * np.array(features.scale) + np.array(features.center)


def _columns(text: str, needs: Sequence[str], least_rows: int) -> tuple[dict[str, list[str]], list[int]]:
    """Name → cells, after checking that the table is complete and large enough; and each row's line of the file."""
    reader = csv.reader(io.StringIO(text))
    lines, numbers = [], []
    for row in reader:
        if row:
            lines.append(row)
            numbers.append(reader.line_num)
    require(lines, "log", "", "is empty", "give a CSV file with a header and one row per decision")
    heads = [cell.strip() for cell in lines[0]]
    missing = [name for name in ("action", *(each for each in needs if each != "action")) if name not in heads]
    one = len(heads) == 1 and (";" in heads[0] or "\t" in heads[0])
    means = " and ".join(f"the one with {MEANS.get(name, MEANS['cost'])} to {name!r}" for name in missing)
    told = f"its header has {', '.join(heads)}; rename {means}"
    way_out = "save it with commas between cells and points in numbers" if one else told
    require(not missing, "log", missing, "lacks these columns", way_out)
    twice = sorted({name for name in heads if heads.count(name) > 1 or not name})
    require(not twice, "log", twice, "has columns with the same name, or without one", "give each column its own name")
    for number, row in zip(numbers[1:], lines[1:], strict=True):
        rule = f"must have {len(heads)}, like the header"
        require(len(row) == len(heads), f"log line {number}", f"{len(row)} cells", rule, "write points in numbers")
    rows = len(lines) - 1
    rule = f"has too few rows: at least {least_rows} are needed"
    require(rows >= least_rows, "log", f"{rows} rows", rule, "give one row per decision")
    return {name: [row[index] for row in lines[1:]] for index, name in enumerate(heads)}, numbers[1:]


def _shares(name: str, settings: Array, lines: Sequence[int], dial: Dial, widen_dial: str) -> Array:
    """Settings of the dial as actions in [0, 1]."""
    outside = np.flatnonzero((settings < dial.low) | (settings > dial.high))
    if outside.size:
        row = int(outside[0])
        raise InvalidInput(
            f"log line {lines[row]}, column {name!r} = {settings[row]:g}: must lie between {dial.low:g} and "
            f"{dial.high:g}; scale it, or {widen_dial}"
        )
    return (settings - dial.low) / (dial.high - dial.low)


MARKS = ("decision_id", "applied_action", "status", "guarantee")
"""Columns that only an export has."""

CONTEXT = "context."


class Exported(NamedTuple):
    """Columns of a log; by row, whether the guarantee covers it and whether its outcome is informative (not if
    throttled).
    """

    columns: dict[str, list[str]]
    covered: list[bool]
    teaches: list[bool]
    learned: int
    """How many rows come before the first outcome that is still open, or missing for an unknown reason."""
    unseen: list[str]
    """Rounds with a guarantee but without an outcome in the log."""
    rows: list[int]
    """Which rows of the export were kept."""


def is_export(columns: Mapping[str, Sequence[str]]) -> bool:
    return all(mark in columns for mark in MARKS)


def resolved(columns: Mapping[str, Sequence[str]], also: Sequence[str] = ()) -> Exported:
    """The rounds of an export whose outcomes are known; `also`: further columns to keep.

    Rounds that are void or expired for unrelated reasons are skipped, as in the study. The study learns up to the first
    other round without an outcome; later rounds are kept for the monitor. Imported rounds, which come before the first
    decision, have numbers up to 0.

    >>> table = {"decision_id": ["a.2", "a.4"], "seq": ["2", "4"], "round": ["1", "2"], "action": ["0.5", "0.6"],
    ...          "applied_action": ["0.4", ""], "status": ["known", "open"], "guarantee": ["certified"] * 2,
    ...          "reward": ["1", ""], "cost": ["2", ""], "baseline_cost": ["0", "0"], "context.age": ["7", "8"]}
    >>> found = resolved(table)
    >>> [found.columns[name] for name in ("age", "action", "advised", "cost")]
    [['7'], ['0.4'], ['0.5'], ['2']]
    >>> found.learned, found.unseen
    (1, ['2'])
    """
    names = [name.removeprefix(CONTEXT) for name in columns if name.startswith(CONTEXT)]
    further = [name for name in also if name in columns and name not in KNOWN]
    kept: dict[str, list[str]] = {name: [] for name in (*names, *KNOWN, *further) if name != "time"}
    covered, teaches, unseen, rows, learned = [], [], [], [], None
    for number, cells in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(columns, cells, strict=True))
        guaranteed = GUARANTEES.get(row["guarantee"], CERTIFIED).claimed
        exceeded = row.get("cost", "") != "" and float(row["cost"]) > float(row.get("threshold") or math.inf)
        gone = row["status"] in ("open", "void", "expired")
        if gone and learned is None and row.get("unrelated") != "True":
            learned = len(teaches)
        if gone and not (exceeded and guaranteed):
            unseen += [row["round"]] if guaranteed else []
            continue
        rows.append(number)
        _keep(kept, row, names)
        for name in further:
            kept[name].append(row[name])
        covered.append(guaranteed and (row["status"] != "throttled" or exceeded))
        teaches.append(row["status"] not in ("throttled", "void"))
    imported = kept["round"].count("")
    kept["round"] = [number or str(row - imported + 1) for row, number in enumerate(kept["round"])]
    return Exported(kept, covered, teaches, len(teaches) if learned is None else learned, unseen, rows)


def _keep(kept: dict[str, list[str]], row: Mapping[str, str], names: list[str]) -> None:
    """Append a row of an export to the columns of a log."""
    idle = row["status"] == "nothing given"
    values = {
        **{name: row[CONTEXT + name] for name in names},
        "round": row["round"],
        "action": row["applied_action"] or row["action"],
        "advised": row["action"] or row["applied_action"],
        "reward": row["reward"] or ("0" if idle else ""),
        "cost": row.get("cost", "0") or (row["baseline_cost"] if idle else ""),
        "baseline_cost": row["baseline_cost"],
    }
    for name, value in values.items():
        kept[name].append(value)
