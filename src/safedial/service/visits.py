"""Decisions by unit and visit, for the operator page and the API, from a study's columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from safedial.service.charts import shown_row
from safedial.service.evidence_path import over_threshold
from safedial.service.timeline import NOT_NOTED, Track
from safedial.study.units import unit_counts, unknown_unit, unknown_visit

LONGEST_COURSE = 500
"""The most decisions in a unit's course, the latest ones."""


class Wanted(NamedTuple):
    """Which decisions a query asks for."""

    search: str = ""
    unit: str | None = None
    visit: str | None = None
    overdue: bool = False


def rows_page(track: Track, before: int | None, limit: int, wanted: Wanted) -> dict[str, Any]:
    """Decisions before `before`, newest first, that a query asks for."""
    with track.lock:
        last = track.rows if before is None else int(np.searchsorted(track.column("seq"), before))
        found = (row for row in _matching(track, wanted) if row < last)
        rows = list(itertools.islice(found, limit))
        more = len(rows) == limit and rows[-1] > 0
        return {
            "rows": [shown_row(track, row) for row in rows],
            "before": int(track.value("seq", rows[-1])) if more else None,
        }


def _matching(track: Track, wanted: Wanted) -> Iterable[int]:
    """The rows that a query asks for, the latest first."""
    rows: Iterable[int] = range(track.rows - 1, -1, -1)
    if wanted.unit is not None:
        rows = reversed(_of_unit(track, wanted.unit))
    if wanted.visit is not None:
        rows = [row for row in rows if track.visits.get(row, NOT_NOTED).visit == wanted.visit]
        if not rows:
            raise unknown_visit(wanted.visit, wanted.unit)
    if wanted.overdue:
        late = track.late()
        rows = [row for row in rows if late[row]]
    if not wanted.search:
        return rows
    return (row for row in rows if _matches(track, row, wanted.search.lower()))


def _matches(track: Track, row: int, words: str) -> bool:
    noted = track.visits.get(row, NOT_NOTED)
    texts = (*(noted.key or "", noted.unit or "", noted.visit or ""), *_pairs(noted.meta or {}))
    return words == str(int(track.value("seq", row))) or any(words in each.lower() for each in texts)


def _pairs(meta: dict[str, Any]) -> list[str]:
    return [f"{name} {value}" for name, value in meta.items()]


def _of_unit(track: Track, unit: str) -> list[int]:
    if unit not in track.units:
        raise unknown_unit(unit)
    return track.units[unit]


def units_page(track: Track, after: int, limit: int, search: str = "") -> dict[str, Any]:
    """Units with their counts, in the order of their first decisions; those whose labels contain `search`."""
    with track.lock:
        known, over = over_threshold(track)
        fits = (item for item in track.units.items() if search.lower() in item[0].lower())
        some = list(itertools.islice(fits, after, after + limit + 1))
        rows = [{"unit": unit, **_counts(rows, known, over)} for unit, rows in some[:limit]]
        return {"units": rows, "after": after + limit if len(some) > limit else None}


def unit_page(track: Track, unit: str) -> dict[str, Any]:
    """One unit: its counts and its course."""
    with track.lock:
        rows = _of_unit(track, unit)
        told = {"unit": unit, **_counts(rows, *over_threshold(track))}
        told["course"] = [shown_row(track, row) for row in rows[-LONGEST_COURSE:]]
    return told


def _counts(rows: list[int], known: Any, over: Any) -> dict[str, Any]:
    return unit_counts(len(rows), int(known[rows].sum()), int(over[rows].sum()))
