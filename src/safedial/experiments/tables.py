"""Rows of plain values as CSV files, written whole and read back with their types."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput, require
from safedial.files import write_text


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A CSV file with the first row's keys as columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_text(path, text.getvalue())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What `write_rows` wrote: numbers as floats, True and False as booleans, the rest as text."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read ({error}); run safedial reproduce first") from error
    whole = rows and all(None not in row and None not in row.values() for row in rows)
    require(whole, "file", str(path), "is cut short or empty", "run safedial reproduce again")
    return rows


def _value(text: str | None) -> Any:
    if text is None:
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text
