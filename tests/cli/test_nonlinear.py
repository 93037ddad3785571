"""`simulate` over worlds and function classes, by name."""

import json

import pytest

from tests.program import run

WORDS = ["simulate", "--dim", "2", "--threshold", "0.5", "--rounds", "40", "--seeds", "2", "--json"]


@pytest.mark.parametrize(
    ("extra", "promised"),
    [
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--class", "kernel"], 0.02),
        (["--world", "finite", "--policy", "nonlinear_hp_probe", "--functions", "50", "--radius", "paper"], 0.02),
        (["--world", "logistic", "--policy", "nonlinear_hp_ucb"], 0.02),
        (["--world", "dose-toxicity", "--policy", "nonlinear_hp_ucb", "--class", "features"], None),
        (["--policy", "nonlinear_hp_ucb", "--class", "features", "--features", "splines:4"], None),
        (["--world", "kernel", "--policy", "nonlinear_hp_probe", "--reward-class", "linear", "--probe", "0.1"], 0.02),
        (["--world", "kernel", "--policy", "hp_ucb"], None),
        (["--world", "logistic", "--policy", "clairvoyant"], 0.02),
        (["--policy", "nonlinear_hp_ucb"], 0.02),
    ],
)
def test_every_world_and_class_gives_the_same_report(extra, promised):
    done = run(*WORDS, *extra)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["promised_risk"] == promised
    assert report["rounds"] == 40


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--world", "cubic", "--policy", "hp_ucb"], "--world = 'cubic'"),
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--class", "cubic"], "--class = 'cubic'"),
        (["--world", "kernel", "--policy", "hp_ucb", "--class", "kernel"], "--class = 'kernel'"),
        (["--world", "kernel", "--policy", "hp_ucb", "--contexts", "adversarial"], "--contexts"),
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--kernel", "rfb:1"], "kernel = 'rfb:1'"),
        (["--policy", "nonlinear_hp_ucb", "--class", "features", "--features", "wavelets"], "--features"),
        (["--policy", "nonlinear_hp_ucb", "--class", "features", "--features", "splines:x"], "--features"),
        (["--policy", "nonlinear_hp_ucb", "--class", "features", "--features", "splines:1"], "knots"),
        (["--policy", "nonlinear_hp_ucb", "--class", "binary"], "0 or 1"),
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--max-points", "10"], "max_points"),
        (["--world", "kernel", "--policy", "nonlinear_hp_ucb", "--radius", "paper"], "--radius"),
        (["--world", "kernel", "--policy", "hp_ucb", "--reward-class", "kernel"], "--reward-class"),
    ],
)
def test_a_wrong_name_gets_one_line(extra, said):
    done = run(*WORDS, *extra)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_names_the_classes_and_the_defaults():
    text = " ".join(run("simulate", "--help").stdout.replace("│", " ").split())
    for words in (
        "features or binary [the world's]",
        "noise-adaptive [mixture]",
        "conformal [certified]",
    ):
        assert words in text
