"""What HP-Shield's decision rests on as plain values, for a study's log, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

NAMED = 100
"""How many of the rounds that would have exceeded a log names with each decision, the latest; it counts them all."""

APART = ("choice", "counted", "tally")
"""Parts that are written in their own form; a log has the choice elsewhere."""


class Named(NamedTuple):
    """What a log keeps of the rounds that a decision counted (`shield_history.Counted`)."""

    scale: float
    number: int
    unknown: int
    exceeding: list[Any]


def written_cap(cap: Any) -> dict[str, Any]:
    """A `Cap` as plain values; numbers that are not finite, which JSON lacks, as text."""
    counted = cap.counted
    found = counted.exceeding
    return {
        **{name: _written(value) for name, value in cap._asdict().items() if name not in APART},
        "counted": {"scale": _written(counted.scale), "number": len(found), "unknown": counted.unknown},
        "exceeding": found[-NAMED:],
        "tally": list(cap.tally),
    }


def read_cap(kinds: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Cap` from its written form, but for the tally; `kinds` are their types."""
    plain = {name: _read(kinds[name], value) for name, value in values.items() if name not in (*APART, "exceeding")}
    counted = {name: _read(Named.__annotations__[name], value) for name, value in values["counted"].items()}
    return {**plain, "choice": None, "counted": Named(**counted, exceeding=values["exceeding"])}


def _written(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def _read(kind: str, value: Any) -> Any:
    return float(value) if kind == "float" else value
