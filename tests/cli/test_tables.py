"""Tables on a console of 80 columns: no number is cut, nothing is read as markup, and no line is too long."""

import json

import numpy as np
import pytest

from safedial.cli.output import print_table
from safedial.model.dial import rounded_down
from safedial.study.store import Store
from safedial.study.study import Study
from tests.program import run
from tests.study.conftest import SPEC


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_the_course_of_a_unit_is_whole(tmp_path):
    storage = f"sqlite:///{tmp_path}/t.db"
    with Store(storage) as store:
        study = Study.create("t", SPEC, storage=store)
        advice = study.ask([0.2, 0.1], unit="ward 3 P-04", visit="day 1")
        study.tell(advice.id, reward=-3.6931234e-05, cost=-1.2341234e-05, applied_action=advice.action / 3.000001)
    done = run("study", "units", "t", "ward 3 P-04", "--storage", storage)
    assert done.returncode == 0, done.stderr
    for whole in (
        "-3.693e-05",
        "-1.234e-05",
        rounded_down(advice.action),
        f"{advice.action / 3.000001:.4g}",
        "day",
        "1",
    ):
        assert whole in done.stdout.split()
    assert max(len(line) for line in done.stdout.splitlines() if "guarantee" not in line) <= 80


def test_words_are_parted_before_numbers_and_numbers_never(capsys):
    numbers = [f"{value:.6e}" for value in np.geomspace(1e-8, 1e-3, 4)]
    print_table("mine.py:factory:", ("a", *"wxyz"), [("a label of many words " * 2 + "[red]", *numbers)])
    out = capsys.readouterr().out
    assert "mine.py:factory:" in out
    assert set(numbers) | {"[red]"} <= set(out.split())
    assert max(map(len, out.splitlines())) <= 80
    print_table("", ("a", *"stuvwxyz"), [("label", *numbers, *numbers)])
    assert set(numbers) <= set(capsys.readouterr().out.split())


def test_the_status_names_the_decision_that_learning_waits_for(tmp_path):
    storage = f"sqlite:///{tmp_path}/t.db"
    with Store(storage) as store:
        study = Study.create("t", SPEC, storage=store)
        first, second = study.ask([0.2, 0.1]), study.ask([0.2, 0.1])
        study.tell(second.id, reward=0.0, cost=0.0)
    words = ["study", "status", "t", "--storage", storage]
    assert f"learning waits for {first.id}" in " ".join(run(*words).stdout.split())
    assert json.loads(run(*words, "--json").stdout)["waits_for"] == first.seq
    with Store(storage) as store:
        Study.open("t", storage=store).tell(first.id, reward=0.0, cost=0.0)
    assert "learning waits for none" in " ".join(run(*words).stdout.split())


def test_the_title_of_a_simulation_says_policy_and_world():
    size = ("--dim", "2", "--rounds", "5", "--seeds", "1", "--threshold", "0.5")
    done = run("simulate", "--policy", "fixed", *size)
    assert done.stdout.startswith("Fixed action, linear world"), done.stderr
