"""What a decision of HP-Shield rests on, and its written form for a study's log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from safedial.core.action import Choice
from safedial.decision.learners.shield_history import Counted
from safedial.decision.learners.shield_levels import Tally

NAMED = 100
"""How many of the rounds that would have exceeded a log names with each decision, the latest; it counts them all."""

APART = ("choice", "counted", "tally")
"""Parts that are written in their own form; a log has the choice elsewhere."""


class Cap(NamedTuple):
    """What a decision rests on, in plain values.

    `setting` is what is given, `safe` the largest that the rounds allow. `base` is the setting that is scaled,
    `protocol` the protocol's; `fitted` is the number of the last decision before the base's fit, None where the base is
    the protocol itself. `allowed` is λ̂ (−∞: the start), `most` what the climb limit allows, `scale` what a climb may
    start from, `climbing` whether that limit set the setting; `size` and `rank` are n and m; `counted` are the n
    rounds, of `rounds` in all of the context's `group`. `level` and `tally` are the adaptive level's.
    """

    setting: float
    safe: float
    choice: Choice | None
    base: float
    protocol: float
    start: float
    fitted: int | None
    allowed: float
    most: float
    scale: float
    size: int
    rank: int
    counted: Counted | Named
    rounds: int
    known: int
    level: float
    tally: Tally
    climbing: bool
    group: str


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


def read_cap(values: Mapping[str, Any]) -> Cap:
    """A `Cap` from its written form, but for the choice."""
    kinds, own = Cap.__annotations__, Named.__annotations__
    plain = {name: _read(kinds[name], value) for name, value in values.items() if name not in (*APART, "exceeding")}
    counted: Any = {name: _read(own[name], value) for name, value in values["counted"].items()}
    rounds: Any = Named(**counted, exceeding=values["exceeding"])
    return Cap(**plain, choice=None, counted=rounds, tally=Tally(*values["tally"]))


def _written(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def _read(kind: Any, value: Any) -> Any:
    """A value of a field whose annotation is `kind`: text may be a label, or a number that is not finite."""
    return float(value) if kind.__forward_arg__ == "float" else value
