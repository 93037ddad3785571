"""Step tables from parquet: the three tables cut from NASA's experiments, under the one schema.

    source    file                            rows are
    rw26      rw26_steps.parquet              every step of RW26
    rw9_12    rw9_12_excerpt_steps.parquet    steps inferred from an excerpt of RW9 to RW12
    rw        rw_steps.parquet                the two above, stacked
    b         nasa_b_windows300s.parquet      300 s windows of the B-series' charges and discharges

Numbers stored as float32 become float64 with exactly the same value, so that texts built from them do not change.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from safedial.datasets.battery.sources import FILES, data_folder
from safedial.datasets.battery.step_table import RW_KINDS, check_steps
from safedial.errors import InvalidInput, import_extra, require

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
        **_numbers(frame),
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
    numbers = _numbers(frame)
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


def _numbers(frame: Any) -> dict[str, Any]:
    names = ("t_start", "duration", "v_start", "dv", "temp_start", "temp_mean", "temp_max")
    return {name: frame[name].astype("float64") for name in names}
