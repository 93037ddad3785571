"""`python -m benchmarks.figures toolkit` end to end on small counts, and what its one special policy does."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.figures.__main__ import app
from benchmarks.figures.radii_margins import SERIES, Overstated, overstated_rows, table
from safedial import LinearWorld, hp_probe, simulate
from safedial.io import read_rows
from tests.conftest import make_spec


def test_everything_is_written_and_printed(tmp_path):
    command = ["toolkit", "--seeds", "1", "--rounds", "60", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert [row["series"] for row in said["shares"]] == [series[0] for series in SERIES]
    assert len(read_rows(tmp_path / "toolkit_broken.csv")) == len(said["broken"]) == 3 * 7
    assert (tmp_path / "toolkit.png").exists()
    assert "noise-adaptive: told κ × 5 in the radius alone, it loses" in str(table(tmp_path))


def test_the_right_constant_overstated_by_one_is_hp_probe():
    spec, world = make_spec(), LinearWorld(dim=3)
    same = simulate(Overstated(factor=1.0), world, spec, rounds=200, seeds=2)
    assert same.reward == pytest.approx(simulate(hp_probe(), world, spec, rounds=200, seeds=2).reward, rel=1e-12)


@pytest.mark.slow
def test_a_constant_five_times_too_large_costs_the_adaptive_radius_less_than_a_quarter(count):
    loss = {row["radius"]: row["loss"] for row in overstated_rows(seeds=2, rounds=count(5_000, 10_000))}
    assert loss["noise-adaptive"] < 0.25
    assert loss["noise-adaptive"] < loss["mixture"]
