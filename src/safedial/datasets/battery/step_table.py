"""The step table: one row for each step of a battery's life, the same columns and signs from every source.

A step is what the experiment held constant: one charge, discharge or rest of a randomized-usage (RW) battery, or one
300 s window of a B-series cycle. Volts, amperes, degrees Celsius, seconds. **Discharge current is positive, charge
current negative**, in every source (NASA's B files have the opposite sign; their readers reverse it).

`start` is the step's own wall-clock time. `t_start` is in seconds on the source's own clock: since the start of the
experiment (RW), of the excerpt's block (RW9–12), of the cycle (B). Rows of one `group` may share a history; rows of two
groups may not. Sources may add columns of their own after these.
"""

from __future__ import annotations

from typing import Any

from safedial.errors import import_extra, require

COLUMNS = {
    "source": "text: which file and cut the row comes from; it travels with every row",
    "battery": "text: NASA's name, as RW9 or B0005",
    "group": "text: rows that share a history: the battery, or battery/block",
    "step": "whole number: order in time within the group, from 1",
    "kind": "text: charge, discharge or rest",
    "note": "text: NASA's name of the step, or the ambient temperature as 'ambient 24 C'",
    "start": "time: start of the step; may be missing",
    "t_start": "number: start of the step in s on the source's own clock",
    "duration": "number: last minus first sample time, s",
    "n": "whole number: samples in the step; may be missing",
    "v_start": "number: first voltage, V",
    "v_end": "number: last voltage, V",
    "dv": "number: v_end − v_start, V",
    "current": "number: mean current, A; discharge positive, charge negative",
    "temp_start": "number: first temperature, °C; may be missing",
    "temp_mean": "number: mean temperature, °C; may be missing",
    "temp_max": "number: largest temperature, °C; may be missing",
}
"""Every column of the step table and what it holds, in order. Means are over samples, not weighted by time."""

KINDS = ("charge", "discharge", "rest")
RW_KINDS = {"C": "charge", "D": "discharge", "R": "rest"}
"""NASA's letters in the RW files."""


def check_steps(frame: Any) -> Any:
    """Return `frame` with the table's columns first, or raise an error that names the column, value and rule.

    Args:
        frame: a pandas DataFrame that should be a step table. It is not changed; further columns are kept.

    Raises:
        InvalidInput: a column is missing or of another type, a kind is unknown, a (group, step) comes twice, a number
            is missing or infinite where it must not be, a duration is negative, or the current has the wrong sign.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    require(not missing, "steps", missing, "these columns are missing", "a step table has " + ", ".join(COLUMNS))
    for name, meaning in COLUMNS.items():
        _check_column(frame[name], name, meaning)
    unknown = frame["kind"][~frame["kind"].isin(KINDS)]
    require(unknown.empty, "kind", _first(unknown), f"must be one of {', '.join(KINDS)}")
    short = frame["duration"][frame["duration"] < 0]
    require(short.empty, "duration", _first(short), "must be ≥ 0 seconds")
    twice = frame[frame.duplicated(["group", "step"])]
    pair = None if twice.empty else (twice["group"].iloc[0], int(twice["step"].iloc[0]))
    require(pair is None, "(group, step)", pair, "occurs more than once", "number the steps of a group without repeats")
    _check_signs(frame)
    return frame[[*COLUMNS, *(name for name in frame.columns if name not in COLUMNS)]]


def _check_column(values: Any, name: str, meaning: str) -> None:
    numpy, types = import_extra("numpy", "data"), import_extra("pandas", "data").api.types
    wanted = meaning.partition(":")[0]
    holds = {
        "text": types.is_string_dtype,
        "time": types.is_datetime64_dtype,
        "whole number": types.is_integer_dtype,
        "number": types.is_float_dtype,
    }[wanted]
    require(holds(values), name, str(values.dtype), f"the column must hold a {wanted}", f"it is {meaning}")
    if not meaning.endswith("may be missing"):
        gaps = int(values.isna().sum())
        require(gaps == 0, name, gaps, "this many values are missing and none may be", "leave those steps out")
    if wanted == "number":
        infinite = values[numpy.isinf(values)]
        require(infinite.empty, name, _first(infinite), "must be finite")


def _check_signs(frame: Any) -> None:
    """Check medians: single steps may drift around zero, but a whole source with the wrong sign is a reader's bug."""
    for kind, sign in (("charge", -1.0), ("discharge", 1.0)):
        for source, current in frame[frame["kind"] == kind].groupby("source", observed=True)["current"]:
            middle = float(current.median())
            rule = f"the median {kind} of {source} has the wrong sign; discharge current is positive, charge negative"
            require(sign * middle >= 0.0, "current", middle, rule)


def _first(values: Any) -> Any:
    return None if values.empty else values.head(1).tolist()[0]
