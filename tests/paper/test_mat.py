"""NASA's `.mat` structure to the step table: every number again, and what is said of damaged files."""

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from safedial.errors import InvalidInput
from safedial.paper.battery_data import COLUMNS, load_steps, read_mat
from tests.paper.generate import b_samples, rw_samples, write_b, write_rw


def test_every_random_walk_step_becomes_a_row(tmp_path):
    samples = rw_samples(steps=40)
    steps = read_mat(write_rw(tmp_path / "RW9.mat", samples))
    assert list(steps.columns) == list(COLUMNS)
    assert len(steps) == 40
    assert set(steps["source"]) == {"rw_mat"}
    assert set(steps["group"]) == {"RW9"}
    assert steps["step"].tolist() == list(range(1, 41))
    assert steps["start"].iloc[1] == pd.Timestamp("2013-12-30 15:00:01")
    for row, (letter, time, volts, amps, celsius) in zip(steps.itertuples(), samples, strict=True):
        assert row.kind == {"C": "charge", "D": "discharge", "R": "rest"}[letter]
        assert (row.t_start, row.duration, row.n) == (time[0], time[-1] - time[0], time.size)
        assert (row.v_start, row.v_end, row.dv) == (volts[0], volts[-1], volts[-1] - volts[0])
        assert row.current == pytest.approx(amps.mean())
        assert (row.temp_start, row.temp_max) == (celsius[0], celsius.max())
        assert row.temp_mean == pytest.approx(celsius.mean())


def test_a_cycle_is_cut_into_windows_and_its_sign_turned_round(tmp_path):
    samples = b_samples(cycles=5, seconds=1000.0)
    steps = read_mat(write_b(tmp_path / "B0005.mat", samples))
    assert set(steps["source"]) == {"b_mat"}
    assert set(steps["note"]) == {"ambient 24 C"}
    assert steps["uid"].tolist() == [1] * 4 + [2] * 4 + [4] * 4 + [5] * 4
    assert steps["k"].tolist() == [0, 1, 2, 3] * 4
    assert steps["step"].tolist() == list(range(1, 17))
    assert (steps.loc[steps["kind"] == "charge", "current"] == -1.5).all()
    assert (steps.loc[steps["kind"] == "discharge", "current"] == 2.0).all()
    _, time, volts, _, celsius = samples[1]
    row = steps[(steps["uid"] == 2) & (steps["k"] == 1)].iloc[0]
    assert (row.t_start, row.duration, row.n) == (300.0, 280.0, 15)
    assert (row.v_start, row.v_end) == (volts[time == 300.0][0], volts[time == 580.0][0])
    assert row.temp_max == celsius[time == 580.0][0]
    assert row.start == pd.Timestamp("2008-04-03 13:08:17.5") + pd.Timedelta(seconds=300)


def test_windows_with_one_sample_or_a_missing_one_are_left_out(tmp_path):
    def damage(cycles):
        cycles[0]["data"]["Voltage_measured"][0, 20] = np.nan  # window 1
        cycles[1]["data"]["Time"] = cycles[1]["data"]["Time"][:, :31]  # 600 s is alone in window 2
        for name in ("Voltage_measured", "Current_measured", "Temperature_measured"):
            cycles[1]["data"][name] = cycles[1]["data"][name][:, :31]
        cycles[3]["data"]["Temperature_measured"] = cycles[3]["data"]["Temperature_measured"][
            :, :40
        ]  # ends in window 2

    steps = read_mat(write_b(tmp_path / "B0005.mat", change=damage))
    assert list(zip(steps["uid"], steps["k"], strict=True)) == [(1, 0), (1, 2), (1, 3), (2, 0), (2, 1), (4, 0), (4, 1)]


def test_a_step_without_samples_is_left_out_and_a_missing_temperature_stays_missing(tmp_path):
    def damage(steps):
        for name in ("relativeTime", "time", "voltage", "current", "temperature"):
            steps[3][name] = np.empty((0, 0))
        steps[5]["voltage"][0, 0] = np.nan
        steps[6]["temperature"][0, 0] = np.nan
        steps[7]["date"] = ""

    steps = read_mat(write_rw(tmp_path / "RW9.mat", change=damage)).set_index("step")
    assert 4 not in steps.index
    assert 6 not in steps.index
    assert np.isnan(steps.loc[7, "temp_mean"])
    assert pd.isna(steps.loc[8, "start"])


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused(tmp_path, share):
    path = write_rw(tmp_path / "RW9.mat", rw_samples(steps=100))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InvalidInput, match=r"RW9\.mat.*"):
        read_mat(path)


def test_a_file_that_is_not_there_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no such file"):
        read_mat(tmp_path / "RW9.mat")
    savemat(tmp_path / "other.mat", {"weather": np.arange(3.0)})
    with pytest.raises(InvalidInput, match=r"neither an RW nor a B file.*weather"):
        read_mat(tmp_path / "other.mat")
    (tmp_path / "page.mat").write_text("<html>Not found</html>" * 40)
    with pytest.raises(InvalidInput, match="cut short or not a MATLAB 5 file"):
        read_mat(tmp_path / "page.mat")


@pytest.mark.parametrize("field", ["voltage", "date"])
def test_a_missing_field_is_named(tmp_path, field):
    path = write_rw(tmp_path / "RW9.mat", change=lambda steps: [step.pop(field) for step in steps])
    with pytest.raises(InvalidInput, match=rf"data\.step lacks {field}"):
        read_mat(path)


def test_a_missing_series_of_a_cycle_is_named(tmp_path):
    path = write_b(tmp_path / "B0005.mat", change=lambda cycles: cycles[1]["data"].pop("Current_measured"))
    with pytest.raises(InvalidInput, match=r"B0005\.cycle\(2\)\.data lacks Current_measured"):
        read_mat(path)


def test_series_of_unequal_length_and_unknown_types_are_named(tmp_path):
    def cut(steps):
        steps[1]["voltage"] = steps[1]["voltage"][:, :-1]

    with pytest.raises(InvalidInput, match=r"RW9\.mat, step 2 .*differ in length"):
        read_mat(write_rw(tmp_path / "RW9.mat", change=cut))
    with pytest.raises(InvalidInput, match=r"step 1, type = 'X'"):
        read_mat(write_rw(tmp_path / "RW9.mat", change=lambda steps: steps[0].update(type="X")))
    with pytest.raises(InvalidInput, match=r"cycle 1, type = 'sleep'"):
        read_mat(write_b(tmp_path / "B0005.mat", change=lambda cycles: cycles[0].update(type="sleep")))


def test_words_in_place_of_numbers_are_named_and_a_date_that_is_none_gives_no_start(tmp_path):
    with pytest.raises(InvalidInput, match=r"RW9\.mat, step 1, voltage: must hold numbers"):
        read_mat(write_rw(tmp_path / "RW9.mat", change=lambda steps: steps[0].update(voltage="high")))
    path = write_b(tmp_path / "B0005.mat", change=lambda cycles: cycles[0].update(time=np.zeros((1, 6))))
    starts = read_mat(path).groupby("uid")["start"].count()
    assert starts.to_dict() == {1: 0, 2: 4, 4: 4}


def test_a_folder_without_nasas_files_says_how_to_get_them(tmp_path):
    with pytest.raises(InvalidInput, match=r"holds no file named like .*battery fetch"):
        load_steps(tmp_path, "rw_mat")
    with pytest.raises(InvalidInput, match=r"source = 'rw13': must be one of rw26, .*b_mat"):
        load_steps(tmp_path, "rw13")
