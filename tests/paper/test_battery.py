"""From a generated `.mat` of the true structure to the figure and the report, offline."""

import json

import pytest

from safedial import InvalidInput
from safedial.io import read_rows
from safedial.paper import battery_experiment
from safedial.paper.battery_experiment import fit_truth, load_rounds, logged_rows, logged_tables
from safedial.paper.experiments import write_report
from tests.paper.generate import rw_samples, write_rw
from tests.program import run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for number in (9, 10):
        write_rw(folder / f"RW{number}.mat", rw_samples(steps=300, seed=number))
    return folder


@pytest.mark.slow
def test_from_a_mat_file_to_the_figure_and_the_report(data, tmp_path):
    command = ["reproduce", "battery", "--source", "rw_mat", "--embedder", "numeric", "--seeds", "2"]
    command += ["--threshold", "0.1", "--threshold", "0.2", "--data", str(data), "--out", str(tmp_path), "--json"]
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert [file.rsplit("/", 1)[1] for file in json.loads(done.stdout)["files"]] == [
        "battery.csv",
        "battery.provenance.json",
        "battery.png",
    ]
    rows = read_rows(tmp_path / "battery.csv")
    assert {row["series"] for row in rows} == {"HP-UCB", "ε-Greedy", "HP-Probe", "On-Expectation", "Clairvoyant"}
    assert {row["threshold"] for row in rows} == {0.1, 0.2}
    assert all(row["source"] == "rw_mat" for row in rows)
    told = json.loads((tmp_path / "battery.provenance.json").read_text())["settings"]
    assert told["rows_by_source"] == {"rw_mat": told["rounds"] + told["fit_rounds"]}
    assert rows[0]["threshold_celsius"] == pytest.approx(0.1 * told["units"]["cost_celsius"])
    shown = str(battery_experiment.table(tmp_path))
    assert "NASA's batteries: rw_mat, numeric, d = 38" in shown
    assert f"τ is {rows[0]['threshold_celsius']:.2f} °C and" in shown
    (tmp_path / "battery.png").unlink()
    assert battery_experiment.draw(tmp_path) == [tmp_path / "battery.png"]
    assert (tmp_path / "battery.png").exists()
    assert "The battery experiment" in write_report(tmp_path).read_text()


def test_the_truth_is_in_units_that_a_full_dose_reaches(data):
    rounds = load_rounds(data, "rw_mat", "numeric")
    truth = fit_truth(rounds)
    reach = abs(rounds.context[rounds.fit] @ truth.cost_coef)
    assert (reach > 1.0).mean() == pytest.approx(0.01, abs=0.01)
    assert truth.fits["cost"][0] <= 1.0
    assert rounds.dose.max() <= 1.0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"source": "moon"}, "source"),
        ({"embedder": "precomputed"}, "no vectors for source rw_mat"),
        ({"threshold": []}, "threshold"),
        ({"split": "dice"}, "split"),
        ({"floor": 2.0}, "floor"),
        ({"data": "/no/such/folder"}, "no such folder"),
    ],
)
def test_what_makes_no_sense_is_named_and_nothing_is_written(data, tmp_path, changes, named):
    settings = {"data": data, "source": "rw_mat", "embedder": "numeric", "threshold": [0.1], "seeds": 1}
    with pytest.raises(InvalidInput, match=named):
        battery_experiment.run(tmp_path / "out", **(settings | changes))
    assert not list(tmp_path.glob("out/*.csv"))


def test_logged_outcomes_need_rw26(data):
    assert logged_tables(data) == {}


def test_logged_outcomes_are_those_of_steps_at_the_level_asked_for(tmp_path):
    """A generated RW26 whose rise is 2 °C × dose: every policy's accepted steps stay below 2 °C."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    count = 3000
    level = rng.choice(np.arange(0.5, 5.01, 0.5), count)
    volts, warm = 4.0 - 0.3 * rng.random(count), 40.0 + rng.random(count)
    pd.DataFrame(
        {
            "battery": "RW26",
            "step": np.arange(1, count + 1),
            "type": "D",
            "comment": "discharge (random walk)",
            "date": pd.Timestamp("2014-01-01"),
            "t_start": 60.0 * np.arange(count),
            "duration": 60.0,
            "n": 60,
            "v_start": volts,
            "v_end": volts - 0.02 * level,
            "dv": -0.02 * level,
            "i_mean": level,
            "temp_start": warm,
            "temp_mean": warm + 0.5,
            "temp_max": warm + 0.4 * level + 0.05 * level / 5 * rng.standard_normal(count),
        }
    ).to_parquet(tmp_path / "rw26_steps.parquet")
    rows = {row["series"]: row for row in logged_rows(tmp_path, celsius=1.5)}
    assert set(rows) == {"HP-UCB", "HP-Probe", "HP-Conformal", "On-Expectation"}
    for series in ("HP-UCB", "HP-Probe"):
        assert rows[series]["accepted"] > 50
        assert rows[series]["violation_rate"] <= 0.05
    assert len(logged_tables(tmp_path)["battery_logged"]) == 4
