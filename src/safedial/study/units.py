"""A study seen from one unit (a patient, a cell, a vehicle): its course and its own count of excesses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from safedial.core.promise import PROMISES
from safedial.stats import violation_interval
from safedial.study.errors import StudyError

COUNTED = ("known", "corrected", "throttled")
"""The statuses of rounds whose outcomes count."""


def unit_counts(decisions: int, outcomes: int, violations: int) -> dict[str, Any]:
    """Counts of one unit, with a 95 % interval for its share of outcomes over the threshold."""
    interval = list(share_interval(violations, outcomes))
    return {"decisions": decisions, "outcomes": outcomes, "violations": violations, "interval": interval}


def share_interval(violations: Any, outcomes: Any) -> tuple[float, float]:
    """A 95 % interval for the share of outcomes over the threshold."""
    return violation_interval([int(violations)], int(outcomes)) if outcomes else (0.0, 1.0)


def counts_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`unit_counts` of rows of a study's table."""
    rows = list(rows)
    counted = [row for row in rows if row["status"] in COUNTED or _voided_excess(row)]
    return unit_counts(len(rows), len(counted), sum(bool(row["violated"]) for row in counted))


def _voided_excess(row: Mapping[str, Any]) -> bool:
    """A round that was declared void after an excess was reported still counts, as in `Study.status`."""
    return bool(
        row["status"] == "void" and row["violated"] and not row["fallback_reason"] and PROMISES[row["promise"]].claimed
    )


def by_unit(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each unit, in the order of the units' first decisions."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("unit") is not None:
            found.setdefault(row["unit"], []).append(row)
    return found


def unknown_unit(unit: str) -> StudyError:
    words = "no decision of this study has it; check the label"
    return StudyError("unknown_unit", f"unit = {unit[:80]!r}: {words}", public=f"unit: {words}")


def unknown_visit(visit: str, unit: str | None) -> StudyError:
    words = f"no decision of this {'study' if unit is None else 'unit'} has it"
    return StudyError("unknown_visit", f"visit = {visit[:80]!r}: {words}", public=f"visit: {words}")
