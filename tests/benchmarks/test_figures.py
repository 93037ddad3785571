"""`python -m benchmarks.figures`: what conformal and closed-loop write, draw and say."""

import json

import pytest

from benchmarks.figures import closed_loop
from benchmarks.figures.__main__ import app
from safedial.io import read_rows
from tests.program import run


def test_every_world_has_every_policy_and_says_where_its_guarantee_holds(tmp_path):
    done = run("conformal", "--seeds", "2", "--rounds", "120", "--out", tmp_path, program=app)
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "conformal.csv")
    assert len(rows) == 6 * 4
    holds = {(row["world"], row["policy"]): row["guarantee_holds"] for row in rows}
    assert holds["Gaussian noise", "hp_ucb"]
    assert not holds["Student-t(3) noise", "hp_ucb"]
    assert holds["Student-t(3) noise", "hp_conformal"]
    assert not holds["contexts drift", "hp_conformal"]
    assert not any(holds[world, "on_expectation"] for world, _ in holds)
    assert all(0.0 <= row["full_dose_violation_rate"] <= 1.0 for row in rows)
    assert (tmp_path / "conformal.png").exists()


@pytest.mark.slow
def test_the_closed_loop_is_written_drawn_and_summarised(tmp_path):
    done = run("closed-loop", "--seeds", "1", "--rounds", "60", "--out", tmp_path, "--json", program=app)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {file.rsplit("/", 1)[1] for file in told["files"]} == {path.name for path in tmp_path.iterdir()}
    assert len(told["rows"]) == len({row["series"] for row in told["rows"]}) == 8
    certified = [row for row in told["rows"] if "Conformal" not in row["series"]]
    assert all(row["guaranteed_rounds"] == 60 and row["violation_rate"] == 0.0 for row in certified)
    bands = read_rows(tmp_path / "closed_loop_residuals.csv")
    spread = {row["model"]: 0.0 for row in bands if row["source"] == "random loads"}
    for row in bands:
        if row["source"] == "random loads":
            spread[row["model"]] = max(spread[row["model"]], abs(row["mean"]))
    assert min(spread, key=lambda name: spread[name]) == "square, told"
    told, _ = closed_loop.table(tmp_path)
    assert told.columns[-2:] == ["noise_broken at", "alarm at"]
    assert all(len(line) == len(told.columns) for line in told.rows)
