"""A study's exported table as the columns of a log.

A study exports one row a decision: `action` is what was advised, `applied_action` what was applied, contexts stand in
columns `context.NAME`. A log ends before the first round whose outcome is not known (open, void or expired): that is
the prefix the study itself learns from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MARKS = ("decision_id", "applied_action", "status", "promise")
"""Columns that only an export has."""

UNKNOWN = ("open", "void", "expired")
CONTEXT = "context."


class Exported(NamedTuple):
    """Columns of a log; by row, whether the promise covers it and whether its outcome teaches (not if throttled)."""

    columns: dict[str, list[str]]
    covered: list[bool]
    teaches: list[bool]


def is_export(columns: Mapping[str, Sequence[str]]) -> bool:
    return all(mark in columns for mark in MARKS)


def resolved(columns: Mapping[str, Sequence[str]]) -> Exported:
    """The rounds up to the first one whose outcome is not known.

    >>> table = {"decision_id": ["a.2", "a.4"], "seq": ["2", "4"], "round": ["1", "2"], "action": ["0.5", "0.6"],
    ...          "applied_action": ["0.4", ""], "status": ["known", "open"], "promise": ["certified"] * 2,
    ...          "reward": ["1", ""], "cost": ["2", ""], "baseline_cost": ["0", "0"], "context.age": ["7", "8"]}
    >>> found = resolved(table).columns
    >>> found["age"], found["action"], found["advised"], found["cost"]
    (['7'], ['0.4'], ['0.5'], ['2'])
    """
    status = list(columns["status"])
    end = next((row for row, word in enumerate(status) if word in UNKNOWN), len(status))
    cut = {name: list(values[:end]) for name, values in columns.items()}
    idle = [word == "nothing given" for word in status[:end]]
    contexts = {name.removeprefix(CONTEXT): values for name, values in cut.items() if name.startswith(CONTEXT)}
    kept = {
        **contexts,
        "round": cut["round"] if all(cut["round"]) else cut["seq"],
        "action": [applied or advised for applied, advised in zip(cut["applied_action"], cut["action"], strict=True)],
        "advised": [advised or applied for applied, advised in zip(cut["applied_action"], cut["action"], strict=True)],
        "reward": [value or ("0" if none else "") for value, none in zip(cut["reward"], idle, strict=True)],
        "cost": [
            value or (base if none else "")
            for value, base, none in zip(cut["cost"], cut["baseline_cost"], idle, strict=True)
        ],
        "baseline_cost": cut["baseline_cost"],
    }
    throttled = [word == "throttled" for word in status[:end]]
    promised = [word not in ("none", "imported") for word in cut["promise"]]
    covered = [known and not late for known, late in zip(promised, throttled, strict=True)]
    return Exported(kept, covered, [not late for late in throttled])
