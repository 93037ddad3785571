"""Parquet tables to the step table: signs, groups, exact numbers, and what is said of a table that is not whole."""

import numpy as np
import pandas as pd
import pytest

from safedial.errors import InvalidInput
from safedial.paper.battery_data import COLUMNS, check_steps, data_folder, read_steps
from tests.paper.generate import b_table, rw26_table, rw_table


@pytest.fixture
def folder(tmp_path):
    rw26_table().to_parquet(tmp_path / "rw26_steps.parquet")
    rw_table().to_parquet(tmp_path / "rw_steps.parquet")
    excerpt = rw_table().query("block > 0").drop(columns=["date", "source"])
    excerpt.to_parquet(tmp_path / "rw9_12_excerpt_steps.parquet")
    b_table().to_parquet(tmp_path / "nasa_b_windows300s.parquet")
    return tmp_path


@pytest.mark.parametrize("source", ["rw26", "rw9_12", "rw", "b"])
def test_every_source_has_the_same_columns_and_signs(folder, source):
    steps = read_steps(folder, source)
    assert list(steps.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert (steps.loc[steps["kind"] == "charge", "current"] < 0).all()
    assert (steps.loc[steps["kind"] == "discharge", "current"] > 0).all()


def test_each_row_says_where_it_comes_from_and_with_whom_it_shares_a_history(folder):
    steps = read_steps(folder, "rw")
    assert steps.groupby("source")["group"].unique().map(list).to_dict() == {
        "rw26": ["RW26"],
        "rw9_12_excerpt": ["RW9/1", "RW9/2", "RW10/1", "RW10/2"],
    }
    assert steps["block"].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [1] * 4 + [2] * 4
    assert steps["start"].notna().sum() == 4


def test_stored_numbers_keep_their_exact_value(folder):
    steps = read_steps(folder, "rw26")
    assert steps["dv"].iloc[0] == float(np.float32(-0.1))
    assert steps["v_end"].iloc[0] == float(np.float32(3.6))


def test_windows_are_sorted_by_battery_cycle_and_window_and_keep_their_row(folder):
    steps = read_steps(folder, "b")
    keys = list(zip(steps["battery"], steps["uid"], steps["k"], steps["row"], steps["step"], strict=True))
    assert keys == [("B0005", 1, 0, 0, 1), ("B0005", 3, 0, 1, 2), ("B0005", 3, 1, 2, 3), ("B0006", 9, 0, 3, 1)]
    assert steps["v_end"].iloc[0] == float(np.float32(3.7)) + float(np.float32(0.1))
    assert steps["start"].iloc[2] == pd.Timestamp("2008-04-02 13:13:17.1")
    assert set(steps["note"]) == {"ambient 24 C"}
    assert steps["n"].isna().all()


def test_the_folder_comes_from_the_argument_or_the_environment(folder, monkeypatch):
    monkeypatch.setenv("SAFEDIAL_DATA", str(folder))
    assert data_folder() == folder
    assert len(read_steps(None, "rw26")) == 8
    assert data_folder(folder.parent) == folder.parent
    monkeypatch.delenv("SAFEDIAL_DATA")
    with pytest.raises(InvalidInput, match="give --data DIR or set SAFEDIAL_DATA"):
        data_folder()
    with pytest.raises(InvalidInput, match=r"no such folder.*battery fetch"):
        data_folder(folder / "absent")


def test_a_table_that_is_not_whole_is_named(folder):
    with pytest.raises(InvalidInput, match="source = 'rw13': must be one of"):
        read_steps(folder, "rw13")
    path = folder / "rw26_steps.parquet"
    rw26_table().drop(columns=["temp_max", "n"]).to_parquet(path)
    with pytest.raises(InvalidInput, match=r"rw26_steps\.parquet.*columns are missing: temp_max, n"):
        read_steps(folder, "rw26")
    rw26_table().assign(battery="RW27").to_parquet(path)
    with pytest.raises(InvalidInput, match=r"battery = \['RW27'\]: only RW26"):
        read_steps(folder, "rw26")
    path.write_bytes((folder / "rw_steps.parquet").read_bytes()[:500])
    with pytest.raises(InvalidInput, match="cannot be read as parquet"):
        read_steps(folder, "rw26")
    path.unlink()
    with pytest.raises(InvalidInput, match="no such file"):
        read_steps(folder, "rw26")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda steps: steps.drop(columns=["dv", "n"]), r"steps = \['n', 'dv'\]: these columns are missing"),
        (lambda steps: steps.assign(step=1.5), "step = 'float64': the column must hold a whole number"),
        (lambda steps: steps.assign(start="2014"), "start = .*must hold a time"),
        (lambda steps: steps.assign(current="1 A"), "current = .*must hold a number"),
        (lambda steps: steps.assign(kind="sleep"), "kind = 'sleep': must be one of charge, discharge, rest"),
        (lambda steps: steps.assign(step=1), r"\(group, step\) = \('RW26', 1\): occurs more than once"),
        (lambda steps: steps.assign(v_end=np.nan), "v_end = 8: this many values are missing"),
        (lambda steps: steps.assign(temp_mean=np.inf), "temp_mean = inf: must be finite"),
        (lambda steps: steps.assign(duration=-1.0), "duration = -1.0: must be ≥ 0"),
        (lambda steps: steps.assign(current=-steps["current"]), "the median charge of rw26 has the wrong sign"),
    ],
)
def test_a_table_that_breaks_the_schema_is_refused_by_column_value_and_rule(folder, change, words):
    steps = read_steps(folder, "rw26")
    assert check_steps(steps).equals(steps)
    with pytest.raises(InvalidInput, match=words):
        check_steps(change(steps))


def test_temperatures_and_starts_may_be_missing(folder):
    steps = read_steps(folder, "rw26").assign(temp_mean=np.nan, start=pd.Series(pd.NaT, dtype="datetime64[us]"))
    assert len(check_steps(steps)) == 8
