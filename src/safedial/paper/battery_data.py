"""The step table: one row for each step of a battery's life, the same columns and signs from every source.

A step is what the experiment held constant: one charge, discharge or rest of a randomized-usage (RW) battery, or one
300 s window of a B-series cycle. Volts, amperes, degrees Celsius, seconds. **Discharge current is positive, charge
current negative**, in every source (NASA's B files have the opposite sign; their readers reverse it).

`start` is the step's own wall-clock time. `t_start` is in seconds on the source's own clock: since the start of the
experiment (RW), of the excerpt's block (RW9–12), of the cycle (B). Rows of one `group` may share a history; rows of two
groups may not. Sources may add columns of their own after these.

NASA's own `.mat` files:

    RW    data.step[]: comment, type (C, D, R), time, relativeTime, voltage, current, temperature, date
    B     <name>.cycle[]: type, ambient_temperature, time (a date vector), data.{Voltage, Current, Temperature}_measured
          and data.Time

An RW step is a row; `step` is NASA's own number, and a step with a missing voltage, current or time is left out. A B
cycle is cut into windows of 300 s from its start, and a window with fewer than two samples, or with a missing one, is
left out; impedance cycles are left out. Nothing is rounded. Labels: `rw_mat` and `b_mat`.

Step tables from parquet: the three tables cut from NASA's experiments, under the one schema.

    source    file                            rows are
    rw26      rw26_steps.parquet              every step of RW26
    rw9_12    rw9_12_excerpt_steps.parquet    steps inferred from an excerpt of RW9 to RW12
    rw        rw_steps.parquet                the two above, stacked
    b         nasa_b_windows300s.parquet      300 s windows of the B-series' charges and discharges

Numbers stored as float32 become float64 with exactly the same value, so that texts built from them do not change.
"""

from __future__ import annotations

import os
import re
import warnings
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from safedial.errors import InvalidInput, import_extra, require
from safedial.model.namespace import Array

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


# --- Step tables from NASA's own `.mat` files

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


# --- Step tables from parquet

SHARED = ("battery", "type", "t_start", "duration", "v_start", "dv", "i_mean", "temp_start", "temp_mean", "temp_max")
NEEDED = {
    "rw26": (*SHARED, "step", "comment", "date", "n", "v_end"),
    "rw9_12": (*SHARED, "step", "comment", "n", "v_end", "block", "setpoint"),
    "rw": (*SHARED, "step", "comment", "n", "v_end", "date", "block", "setpoint"),
    "b": (*SHARED, "uid", "k", "ambient_c", "start"),
}


def read_steps(folder: str | os.PathLike[str] | None, source: str) -> Any:
    """The step table of one parquet source.

    Args:
        folder: the folder of the files; None: SAFEDIAL_DATA.
        source: "rw26", "rw9_12", "rw" or "b".

    Returns:
        A checked step table in time order within each group. "rw" and "rw9_12" add `block` (0 for RW26) and `setpoint`;
        "b" adds `uid` (the cycle), `k` (the window in it), `ambient_c`, and `row`: the 0-based position in the whole
        table sorted by (battery, uid, k), which is the key of precomputed embeddings.
    """
    require(source in FILES, "source", source, f"must be one of {', '.join(FILES)}")
    frame = read_table(data_folder(folder) / FILES[source], NEEDED[source])
    return check_steps(_from_windows(frame) if source == "b" else _from_steps(frame))


def read_table(path: Path, columns: tuple[str, ...]) -> Any:
    """These columns of a parquet file, or an error that says what is wrong with it."""
    pandas, pyarrow = import_extra("pandas", "data"), import_extra("pyarrow", "data")
    parquet = import_extra("pyarrow.parquet", "data")
    require(path.is_file(), "data", str(path), "there is no such file", "`safedial battery info` lists what is there")
    try:
        missing = [name for name in columns if name not in parquet.read_schema(path).names]
        require(not missing, "data", path.name, f"columns are missing: {', '.join(missing)}", "take the whole table")
        return pandas.read_parquet(path, columns=list(columns))
    except (pyarrow.ArrowException, OSError) as error:
        rule = f"cannot be read as parquet ({str(error).splitlines()[0]})"
        raise InvalidInput(f"data = {str(path)!r}: {rule}; copy the file again") from error


def _from_steps(frame: Any) -> Any:
    """RW tables: signs already agree with the schema; each block of the excerpt is a separate group."""
    pandas = import_extra("pandas", "data")
    battery = frame["battery"].astype(str)
    block = frame["block"].fillna(0).astype("int64") if "block" in frame else pandas.Series(0, index=frame.index)
    whole = block == 0
    others = sorted(set(battery[whole]) - {"RW26"})
    require(not others, "battery", others, "only RW26 has no block in these tables", "name the block of each row")
    unknown = frame["type"][~frame["type"].isin(list(RW_KINDS))]
    require(unknown.empty, "type", None if unknown.empty else unknown.iloc[0], "must be one of C, D, R")
    steps = {
        "source": whole.map({True: "rw26", False: "rw9_12_excerpt"}),
        "battery": battery,
        "group": battery.where(whole, battery + "/" + block.astype(str)),
        "step": frame["step"].astype("int64"),
        "kind": frame["type"].astype(str).map(RW_KINDS),
        "note": frame["comment"].astype(str),
        "start": pandas.to_datetime(frame["date"] if "date" in frame else pandas.Series(pandas.NaT, index=frame.index)),
        "n": frame["n"].astype("Int64"),
        "v_end": frame["v_end"].astype("float64"),
        **_parquet_numbers(frame),
        "current": frame["i_mean"].astype("float64"),
    }
    if "block" in frame:
        steps |= {"block": block, "setpoint": frame["setpoint"].astype("float64")}
    table = pandas.DataFrame(steps)
    place = pandas.Series(table["group"].factorize()[0], index=table.index)
    return table.assign(place=place).sort_values(["place", "step"], ignore_index=True).drop(columns="place")


def _from_windows(frame: Any) -> Any:
    """B windows: the sign of the current is reversed, and the last voltage is the sum of two Python floats."""
    pandas = import_extra("pandas", "data")
    frame = frame.assign(battery=frame["battery"].astype(str)).sort_values(["battery", "uid", "k"], ignore_index=True)
    numbers = _parquet_numbers(frame)
    seconds = pandas.to_timedelta((numbers["t_start"] * 10).round().astype("int64") * 100, unit="ms")
    return pandas.DataFrame(
        {
            "source": "b_windows300s",
            "battery": frame["battery"],
            "group": frame["battery"],
            "step": frame.groupby("battery").cumcount() + 1,
            "kind": frame["type"].astype(str),
            "note": frame["ambient_c"].astype("float64").map("ambient {:.0f} C".format),
            "start": pandas.to_datetime(frame["start"].astype(str)) + seconds,
            "n": pandas.Series(pandas.NA, index=frame.index, dtype="Int64"),
            **numbers,
            "v_end": numbers["v_start"] + numbers["dv"],
            "current": -frame["i_mean"].astype("float64"),
            "row": frame.index.astype("int64"),
            "uid": frame["uid"].astype("int64"),
            "k": frame["k"].astype("int64"),
            "ambient_c": frame["ambient_c"].astype("float64"),
        }
    )


def _parquet_numbers(frame: Any) -> dict[str, Any]:
    names = ("t_start", "duration", "v_start", "dv", "temp_start", "temp_mean", "temp_max")
    return {name: frame[name].astype("float64") for name in names}


# --- Finds the battery data folder and the sources in it

FILES = {
    "rw26": "rw26_steps.parquet",
    "rw9_12": "rw9_12_excerpt_steps.parquet",
    "rw": "rw_steps.parquet",
    "b": "nasa_b_windows300s.parquet",
}
"""The parquet file of each source."""

MATS = {"rw_mat": r"RW\d+\.mat", "b_mat": r"B\d+\.mat"}
"""The names of NASA's own files of each source."""

CITATIONS = {
    "rw": "B. Bole, C. S. Kulkarni, M. Daigle, “Adaptation of an Electrochemistry-based Li-Ion Battery Model to "
    "Account for Deterioration Observed Under Randomized Use”, Annual Conference of the Prognostics and Health "
    "Management Society, 2014.",
    "b": "B. Saha, K. Goebel (2007), “Battery Data Set”, NASA Prognostics Data Repository, NASA Ames Research Center, "
    "Moffett Field, CA.",
}
"""What NASA asks users of the RW and of the B series to cite."""


def data_folder(folder: str | os.PathLike[str] | None = None, *, make: bool = False) -> Path:
    """The folder of the battery data: `folder`, else the environment variable SAFEDIAL_DATA."""
    given = folder or os.environ.get("SAFEDIAL_DATA")
    require(given, "data", None, "no data folder was given", "give --data DIR or set SAFEDIAL_DATA")
    path = Path(str(given))
    try:
        if make:
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"data = {str(path)!r}: cannot be made ({error.strerror}); choose another") from error
    way_out = "give --data DIR or set SAFEDIAL_DATA; `safedial battery fetch --data DIR` makes and fills one"
    require(path.is_dir(), "data", str(path), "there is no such folder", way_out)
    return path


def find_sources(folder: str | os.PathLike[str] | None = None) -> dict[str, list[Path]]:
    """The sources in a folder, each with its files, ordered by battery number."""
    path = data_folder(folder)
    found = {source: [path / name] for source, name in FILES.items() if (path / name).is_file()}
    for source, pattern in MATS.items():
        mats = [file for file in path.glob("*.mat") if re.fullmatch(pattern, file.name)]
        if mats:
            found[source] = sorted(mats, key=lambda file: int(re.sub(r"\D", "", file.stem)))
    return found


def load_steps(folder: str | os.PathLike[str] | None, source: str) -> Any:
    """The step table of any source, from parquet or from NASA's own files.

    Args:
        folder: the folder of the files; None: SAFEDIAL_DATA.
        source: "rw26", "rw9_12", "rw", "b" (parquet), "rw_mat" or "b_mat" (every RW…mat or B…mat file of the folder).
    """
    if source in FILES:
        return read_steps(folder, source)
    require(source in MATS, "source", source, f"must be one of {', '.join([*FILES, *MATS])}")
    paths = find_sources(folder).get(source, [])
    way_out = "`safedial battery fetch` downloads NASA's"
    require(paths, "data", str(data_folder(folder)), f"holds no file named like {MATS[source]}", way_out)
    return import_extra("pandas", "data").concat([read_mat(path) for path in paths], ignore_index=True)


# --- A summary of a data folder


def summarize(folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Rows of each source, battery and kind, hours covered, first and last start, and what to cite.

    A source that cannot be read is listed under `unreadable` with the reason.
    """
    sources, unreadable = {}, {}
    for name, paths in find_sources(folder).items():
        try:
            steps = load_steps(folder, name)
        except InvalidInput as error:
            unreadable[name] = str(error)
            continue
        rows = [_facts(key, part) for key, part in steps.groupby(["source", "battery"], sort=False)]
        sources[name] = {"rows": len(steps), "files": [path.name for path in paths], "batteries": rows}
    cited = {"b" if name in ("b", "b_mat") else "rw" for name in (*sources, *unreadable)}
    return {
        "folder": str(data_folder(folder)),
        "sources": sources,
        "unreadable": unreadable,
        "citations": [words for name, words in CITATIONS.items() if name in cited],
    }


def _facts(key: Any, steps: Any) -> dict[str, Any]:
    starts = steps["start"].dropna()
    first, last = (None, None) if starts.empty else (str(starts.min().date()), str(starts.max().date()))
    counts = {kind: int((steps["kind"] == kind).sum()) for kind in KINDS}
    hours = round(float(steps["duration"].sum()) / 3600.0, 1)
    return {"source": key[0], "battery": key[1], **counts, "hours": hours, "first": first, "last": last}
