"""Radii and margins from the command line and in grid files."""

import json

import pytest
from typer.testing import CliRunner

from safedial.cli import make_app
from safedial.simulation.sweeps import parse_grid, run_cell

PLAIN = ["simulate", "--policy", "hp_probe", "--dim", "3", "--threshold", "0.5", "--rounds", "80", "--seeds", "2"]
BOUNDED = ["--margin", "bounded", "--noise-low", "-2", "--noise-high", "2"]


@pytest.mark.parametrize(("words", "guaranteed"), [
    (["--radius", "self-normalised"], 0.02),
    (["--radius", "noise-adaptive", "--margin", "gaussian"], 0.02),
    ([*BOUNDED, "--noise", "uniform"], 0.02),
    ([*BOUNDED, "--noise", "uniform", "--margin-risk", "0.005"], 0.025),
    (["--margin", "gaussian", "--noise", "uniform"], None),
])  # fmt: skip
def test_simulate_takes_radius_and_margin_and_says_what_is_guaranteed(words, guaranteed):
    done = CliRunner().invoke(make_app(), [*PLAIN, *words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["guaranteed_risk"]
    assert found == (None if guaranteed is None else pytest.approx(guaranteed))


def test_radius_margin_and_scale_are_axes_of_a_grid():
    grid = parse_grid("""
[sweep]
rounds = 40
seeds = 2
[spec]
threshold = 0.5
violation_risk = 0.01
estimation_risk = 0.01
reward_noise = 1.0
cost_noise = 1.0
coefficient_bound = 1.0
context_bound = 1.0
margin = ["subgaussian", "gaussian"]
noise_scale = {scale = "with_sensor", ratio = 0.05}
[world]
dim = 2
[[policy]]
name = "hp_probe"
radius = ["mixture", "self-normalised", "noise-adaptive"]
""")
    assert len(grid.cells) == 6
    rewards = {(cell["policy"]["radius"], cell["spec"]["margin"]): sum(run_cell(cell)["reward"]) for cell in grid.cells}
    assert rewards["self-normalised", "gaussian"] != rewards["self-normalised", "subgaussian"]
