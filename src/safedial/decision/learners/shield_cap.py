"""What a decision of HP-Shield rests on, its adaptive level included, and its written form for a study's log.

`core.adaptive` has the level's recursion and the proof of its long-run statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from safedial.core.action import Choice
from safedial.core.adaptive import adapted
from safedial.decision.learners.shield_history import Counted

NAMED = 100
"""How many of the rounds that would have exceeded a log names with each decision, the latest; it counts them all."""

APART = ("choice", "counted", "tally")
"""Parts that are written in their own form; a log has the choice elsewhere."""


class Tally(NamedTuple):
    """Counts for the long-run statement: known rounds that were given what was advised, or less; how many of them
    exceeded, and at their start; the most rounds ever open at once, the rounds that have ended, and all rounds.
    """

    followed: int = 0
    exceeded: int = 0
    at_start: int = 0
    open_at_once: int = 0
    ended: int = 0
    decided: int = 0


class Level:
    """δ_t, and the counts."""

    def __init__(self, risk: float, rate: float | None) -> None:
        self.risk, self.rate = risk, rate
        self.now, self.tally = risk, Tally()

    def open(self) -> None:
        """One more round."""
        followed, exceeded, at_start, most, ended, decided = self.tally
        most = max(most, decided + 1 - ended)
        self.tally = Tally(followed, exceeded, at_start, most, ended, decided + 1)

    def tell(self, exceeded: bool | None, *, at_start: bool = False) -> None:
        """A round has ended; None where it is not known, was raised above its advice or is left out."""
        tally = self.tally._replace(ended=self.tally.ended + 1)
        if exceeded is not None:
            at_start = exceeded and at_start
            more = (tally.followed + 1, tally.exceeded + exceeded, tally.at_start + at_start)
            tally = Tally(*more, *tally[3:])
            if self.rate is not None:
                self.now = float(adapted(self.now, exceeded, risk=self.risk, rate=self.rate))
        self.tally = tally

    def state(self) -> dict[str, Any]:
        return {"level": np.array(self.now), "tally": np.array(self.tally, dtype=np.int64)}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.now, self.tally = float(arrays["level"]), Tally(*arrays["tally"].tolist())


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
