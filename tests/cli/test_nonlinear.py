"""`simulate` over worlds and function classes, by name."""

import json

import pytest

from tests.program import run

WORDS = ["simulate", "--dim", "2", "--threshold", "0.5", "--rounds", "40", "--seeds", "2", "--json"]


@pytest.mark.parametrize(
    ("extra", "guaranteed"),
    [
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--class", "kernel"], 0.02),
        (["--world", "finite", "--policy", "nonlinear_hp_probe", "--functions", "50", "--radius", "paper"], 0.02),
        (["--world", "logistic", "--policy", "nonlinear_hp_ucb"], 0.02),
        (["--world", "dose-toxicity", "--policy", "nonlinear_hp_ucb", "--class", "features"], None),
        (["--policy", "nonlinear_hp_ucb", "--class", "features", "--features", "splines:4"], None),
        (["--world", "kernel", "--policy", "nonlinear_hp_probe", "--reward-class", "linear", "--probe", "0.1"], 0.02),
        (["--world", "kernel", "--policy", "hp_ucb"], None),
    ],
)
def test_every_world_and_class_gives_the_same_report(extra, guaranteed):
    done = run(*WORDS, *extra)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["guaranteed_risk"] == guaranteed
    assert report["rounds"] == 40


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--world", "cubic", "--policy", "hp_ucb"], "--world = 'cubic'"),
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--class", "cubic"], "--class = 'cubic'"),
        (["--world", "kernel", "--policy", "hp_ucb", "--contexts", "adversarial"], "--contexts"),
        (["--policy", "nonlinear_hp_ucb", "--class", "features", "--features", "wavelets"], "--features"),
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--radius", "paper"], "--radius"),
    ],
)
def test_a_wrong_name_gets_one_line(extra, said):
    done = run(*WORDS, *extra)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
