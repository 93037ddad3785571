"""The figure `power` on small counts: what it writes, that it goes on after an interruption, its numbers."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.figures.__main__ import app
from benchmarks.figures.power import (
    ATTAINABLE,
    EXPERIMENT,
    Part,
    measured,
    parts,
    series,
    table,
)
from safedial import LinearWorld, hp_student, simulate
from safedial.io import read_rows, write_rows
from safedial.paper.experiment import run_and_draw

COMMAND = ["power", "--seeds", "2", "--rounds", "50", "--json", "--out"]


def test_everything_is_written_and_an_interrupted_run_goes_on(tmp_path):
    done = CliRunner().invoke(app, [*COMMAND, str(tmp_path)])
    assert done.exit_code == 0, done.output
    said, rows = json.loads(done.stdout), read_rows(tmp_path / "power.csv")
    assert len(said["rows"]) == len(rows) == 4 * (len(series(parts(2, 50)[0])) + 1)
    assert (tmp_path / "power.png").exists()
    assert [each.columns for each in table(tmp_path)] == [["policy", "guarantee", "T = 50"]] * 4
    (tmp_path / "power.provenance.json").unlink()
    write_rows(tmp_path / "power.csv", [rows[1] | {"reward_share": 0.125}, *rows[2:-1]])
    run_and_draw([EXPERIMENT], tmp_path, {"seeds": 2, "rounds": 50})
    found = read_rows(tmp_path / "power.csv")
    assert found[0]["reward_share"] == 0.125
    assert found[1:] == rows[2:]


def test_a_row_has_the_shares_of_a_run_that_ends_there():
    part = Part(3, 0.05, 0.3, (50, 150), 4)
    rows = {(row["series"], row["rounds"]): row for row in measured(part, "HP-Student")}
    for mark in part.marks:
        made = simulate(hp_student(), LinearWorld(dim=3), part.spec({}), rounds=mark, seeds=4)
        row = rows["HP-Student", mark]
        assert row["reward_share"] == pytest.approx(made.reward.sum() / made.exact_clairvoyant_reward.sum())
        assert row["attainable_share"] == pytest.approx(made.attainable_share)
        assert row["violation_rate"] == pytest.approx(made.violations.mean() / mark)
        most = made.attainable_reward.sum() / made.exact_clairvoyant_reward.sum()
        assert rows[ATTAINABLE, mark]["reward_share"] == pytest.approx(most)
