"""The cells of a log as numbers. Errors name the line of the file (its header is line 1), the column and the cell."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput

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
