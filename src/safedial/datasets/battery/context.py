"""The text that a language model reads before a step: "battery-context v1".

It describes the five active steps before the target, newest first, as compact JSON. It contains nothing of the target,
neither its current nor its outcome. A step is active if it charges or discharges with at least 0.05 A on average.
Targets are the active steps with five earlier ones in their group (a battery, or a block of one). The SHA-256 of its
UTF-8 bytes identifies a text, so that vectors computed elsewhere can be joined and checked.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_CURRENT = 0.05
HISTORY = 5


class Targets(NamedTuple):
    """`rows`: positions of the targets in the step table; `history`: positions of their five earlier steps, newest
    first.
    """

    rows: NDArray[np.int64]
    history: NDArray[np.int64]


def find_targets(steps: Any) -> Targets:
    """The targets of a step table that is ordered by group and step."""
    kind, current = steps["kind"].to_numpy(), np.abs(steps["current"].to_numpy(dtype=float))
    active = np.flatnonzero((kind != "rest") & (current >= LEAST_CURRENT))
    if active.size <= HISTORY:
        return Targets(np.zeros(0, dtype=np.int64), np.zeros((0, HISTORY), dtype=np.int64))
    windows = np.lib.stride_tricks.sliding_window_view(active, HISTORY + 1)
    group = steps["group"].to_numpy()
    together = windows[group[windows[:, 0]] == group[windows[:, -1]]]
    return Targets(together[:, -1], together[:, -2::-1])


def element(
    *, kind: str, note: str, current: float, v_start: float, v_end: float, dv: float, temp_mean: float, duration: float
) -> dict[str, Any]:
    """One step as it appears in the text."""
    return {
        "kind": kind,
        "note": note,
        "amps": round(abs(current), 3),
        "volts_start": round(v_start, 3),
        "volts_end": round(v_end, 3),
        "volts_change": round(dv, 3),
        "celsius": round(temp_mean, 2),
        "seconds": round(duration, 1),
    }


FIELDS = ("kind", "note", "current", "v_start", "v_end", "dv", "temp_mean", "duration")


def context_texts(steps: Any, targets: Targets) -> list[str]:
    """The text of every target, in order."""
    columns = {name: steps[name].tolist() for name in FIELDS}
    used = np.unique(targets.history)
    told = {int(row): element(**{name: column[row] for name, column in columns.items()}) for row in used}
    return [
        json.dumps([told[int(row)] for row in five], separators=(",", ":"), ensure_ascii=True)
        for five in targets.history
    ]


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
