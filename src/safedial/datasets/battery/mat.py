"""Step tables from NASA's own `.mat` files.

    RW    data.step[]: comment, type (C, D, R), time, relativeTime, voltage, current, temperature, date
    B     <name>.cycle[]: type, ambient_temperature, time (a date vector), data.{Voltage, Current, Temperature}_measured
          and data.Time

An RW step is a row; `step` is NASA's own number, and a step with a missing voltage, current or time is left out. A B
cycle is cut into windows of 300 s from its start, and a window with fewer than two samples, or with a missing one, is
left out; impedance cycles are left out. Nothing is rounded. Labels: `rw_mat` and `b_mat`.
"""

from __future__ import annotations

import os
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.datasets.battery.step_table import COLUMNS, RW_KINDS, check_steps
from safedial.errors import InvalidInput, import_extra, require

Array = NDArray[np.float64]
WINDOW = 300.0
RW_FIELDS = ("comment", "type", "relativeTime", "time", "voltage", "current", "temperature", "date")
B_FIELDS = ("type", "ambient_temperature", "time", "data")
B_DATA = ("Time", "Voltage_measured", "Current_measured", "Temperature_measured")


def read_mat(path: str | os.PathLike[str]) -> Any:
    """The step table of one `.mat` file of the RW or the B series.

    Returns:
        A checked step table. From a B file it has also `uid` (number of the cycle in the file, from 1), `k` (number of
        the window in the cycle, from 0) and `ambient_c`.

    Raises:
        InvalidInput: the file is absent, cut short, of another kind, or lacks a field.
    """
    pandas = import_extra("pandas", "data")
    path = Path(path)
    content = _load(path)
    if "data" in content and _names(content["data"]) >= {"step"}:
        rows = _rw_rows(path, _field(content["data"], "step"))
    else:
        name = next((name for name, value in content.items() if _names(value) >= {"cycle"}), None)
        rule = f"is neither an RW nor a B file of NASA's; it holds {', '.join(content) or 'nothing'}"
        require(name is not None, "mat", str(path), rule, "an RW file holds data.step, a B file <battery>.cycle")
        rows = _b_rows(path, str(name), _field(content[str(name)], "cycle"))
    require(rows, "mat", str(path), "holds no complete step")
    names = [*COLUMNS, *(name for name in rows[0] if name not in COLUMNS)]
    frame = pandas.DataFrame({name: [row[name] for row in rows] for name in names})
    return check_steps(frame.astype({"n": "Int64", "start": "datetime64[us]"}))


def _load(path: Path) -> dict[str, Any]:
    require(path.is_file(), "mat", str(path), "there is no such file", "`safedial battery fetch` downloads NASA's")
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", MatReadWarning)
            content = loadmat(path)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes scipy raise a dozen kinds
        rule = f"cannot be read: it is cut short or not a MATLAB 5 file ({error})"
        raise InvalidInput(f"mat = {str(path)!r}: {rule}; download it again") from error
    return {name: value for name, value in content.items() if not name.startswith("__")}


def _rw_rows(path: Path, steps: Any) -> list[dict[str, Any]]:
    """One row per step; the table uses NASA's signs."""
    _check_fields(path, "data.step", steps, RW_FIELDS)
    rows = []
    for number, step in enumerate(steps.ravel(), start=1):
        where = f"{path.name}, step {number}"
        samples = {name: _numbers(step[name], f"{where}, {name}") for name in RW_FIELDS[2:7]}
        sizes = {name: values.size for name, values in samples.items()}
        require(len(set(sizes.values())) == 1, where, sizes, "its series differ in length", "download the file again")
        letter = _text(step["type"])
        require(letter in RW_KINDS, f"{where}, type", letter, "must be one of C, D, R")
        times, temperatures = samples["time"], samples["temperature"]
        electric = (samples["relativeTime"], times, samples["voltage"], samples["current"])
        if times.size == 0 or not all(np.isfinite(values).all() for values in electric):
            continue
        rows.append(
            {
                **_identity("rw_mat", path.stem, number, RW_KINDS[letter], _text(step["comment"])),
                "start": _date(_text(step["date"])),
                "t_start": float(times[0]),
                **_summary(samples["relativeTime"], samples["voltage"], samples["current"], temperatures),
            }
        )
    return rows


def _b_rows(path: Path, battery: str, cycles: Any) -> list[dict[str, Any]]:
    """One row per window; NASA's charge current is positive here, the table's negative."""
    _check_fields(path, f"{battery}.cycle", cycles, B_FIELDS)
    rows: list[dict[str, Any]] = []
    for uid, cycle in enumerate(cycles.ravel(), start=1):
        kind, where = _text(cycle["type"]), f"{path.name}, cycle {uid}"
        require(kind in ("charge", "discharge", "impedance"), f"{where}, type", kind, "is unknown")
        if kind == "impedance":
            continue
        _check_fields(path, f"{battery}.cycle({uid}).data", cycle["data"], B_DATA)
        time, volts, amps, celsius = _padded([_numbers(_field(cycle["data"], name), where) for name in B_DATA])
        ambient = _numbers(cycle["ambient_temperature"], where)
        require(ambient.size == 1, f"{where}, ambient_temperature", ambient.tolist(), "must be one number")
        start, window = _date_vector(cycle["time"], where), np.floor(time / WINDOW)
        for k in np.unique(window[np.isfinite(window)]):
            inside = window == k
            parts = [values[inside] for values in (time, volts, -amps, celsius)]
            if inside.sum() < 2 or not all(np.isfinite(part).all() for part in parts):
                continue
            since = float(parts[0][0])
            note = f"ambient {ambient[0]:.0f} C"
            rows.append(
                {
                    **_identity("b_mat", battery, len(rows) + 1, kind, note),
                    "start": None if start is None else start + timedelta(seconds=since),
                    "t_start": since,
                    **_summary(*parts),
                    "uid": uid,
                    "k": int(k),
                    "ambient_c": float(ambient[0]),
                }
            )
    return rows


def _identity(source: str, battery: str, step: int, kind: str, note: str) -> dict[str, Any]:
    return {"source": source, "battery": battery, "group": battery, "step": step, "kind": kind, "note": note}


def _summary(time: Array, volts: Array, amps: Array, celsius: Array) -> dict[str, Any]:
    return {
        "duration": float(time[-1] - time[0]),
        "n": time.size,
        "v_start": float(volts[0]),
        "v_end": float(volts[-1]),
        "dv": float(volts[-1] - volts[0]),
        "current": float(amps.mean()),
        "temp_start": float(celsius[0]),
        "temp_mean": float(celsius.mean()),
        "temp_max": float(celsius.max()),
    }


def _names(struct: Any) -> set[str]:
    return set(getattr(struct, "dtype", np.dtype(float)).names or ())


def _field(struct: Any, name: str) -> Any:
    return struct.ravel()[0][name] if struct.size else np.empty(0)


def _check_fields(path: Path, place: str, struct: Any, fields: tuple[str, ...]) -> None:
    missing = [name for name in fields if name not in _names(struct)]
    require(not missing, "mat", str(path), f"{place} lacks {', '.join(missing)}", "it is not a complete file from NASA")


def _numbers(values: Any, where: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: must hold numbers ({error}); download the file again") from error


def _padded(series: list[Array]) -> list[Array]:
    """Pad series that end early with missing samples."""
    longest = max(values.size for values in series)
    return [np.pad(values, (0, longest - values.size), constant_values=np.nan) for values in series]


def _text(value: Any) -> str:
    return str(np.asarray(value).ravel()[0]) if np.asarray(value).size else ""


def _date(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%d-%b-%Y %H:%M:%S")
    except ValueError:
        return None


def _date_vector(values: Any, where: str) -> datetime | None:
    """The time from (year, month, day, hour, minute, second); None if the vector is not a date."""
    vector = _numbers(values, where)
    try:
        year, month, day, hour, minute = (int(part) for part in vector[:5])
        return datetime(year, month, day, hour, minute) + timedelta(seconds=float(vector[5]))
    except (IndexError, TypeError, ValueError, OverflowError):
        return None
