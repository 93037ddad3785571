"""Tables on a console of 80 columns: no number is cut, nothing is read as markup, and no line is too long."""

import json

import numpy as np
import pytest

from safedial import open_study
from safedial.bench import simulation_speed
from safedial.cli.output import print_table
from safedial.decision.units import rounded_down
from safedial.study import Store, create_study
from tests.program import run
from tests.study.conftest import SPEC


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_the_speeds_of_simulations_fit(monkeypatch):
    row = {"dim": 26, "seeds": 500, "floor": 1_234_567.8, "naive": 9_876.5, "numpy": 348_211.0, "mabwiser": 1_421.0}
    row |= {"jax": 12_345_678.9, "jax_compile_seconds": 1.234, "jax_counter": 2.5e9, "jax_counter_compile_seconds": 0.5}
    monkeypatch.setattr(simulation_speed, "bench_simulation", lambda *sizes, **options: [row])
    done = run("bench", "simulate")
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert lines[3:] == [
        ["26", "500", "memory's", "limit", "1.23", "M"],
        ["26", "500", "MABWiser's", "LinUCB", "1,420"],
        ["26", "500", "plain", "loop", "9,880"],
        ["26", "500", "numpy", "348,000"],
        ["26", "500", "jax", "12.3", "M", "1.23"],
        ["26", "500", "jax,", "counter", "draws", "2,500", "M", "0.50"],
    ]


def test_on_a_gpu_the_memory_s_limit_is_that_of_a_copy_there(monkeypatch):
    assert 1e7 < simulation_speed._device_copy_speed("cpu", 1 << 20) < 1e13
    monkeypatch.setattr(simulation_speed, "_device_copy_speed", lambda device: 3.2e12)
    monkeypatch.setattr(simulation_speed, "_timed", lambda name, *given, **sizes: {name: 1e9})
    rows = simulation_speed.bench_simulation((10,), (1000,), device="gpu", dtype="float32")
    assert rows == [{"dim": 10, "seeds": 1000, "floor": pytest.approx(4e9), "jax_counter": 1e9}]


def test_what_the_speeds_leave_out_is_named(monkeypatch):
    row = {"dim": 2, "seeds": 1, "floor": 1.0, "naive": 1.0, "numpy": 1.0}
    monkeypatch.setattr(simulation_speed, "bench_simulation", lambda *sizes, **options: [row])
    assert "not installed: MABWiser's LinUCB, jax" in " ".join(run("bench", "simulate").stdout.split())


@pytest.mark.parametrize("seconds", ["-1", "0", "nan"])
def test_a_time_that_is_none_is_refused(seconds):
    done = run("bench", "simulate", "--seconds", seconds)
    assert done.returncode == 2
    assert "must be a number > 0" in done.stderr


def test_the_course_of_a_unit_is_whole(tmp_path):
    storage = f"sqlite:///{tmp_path}/t.db"
    with Store(storage) as store:
        study = create_study("t", SPEC, storage=store)
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
    assert max(len(line) for line in done.stdout.splitlines() if "promise" not in line) <= 80


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
        study = create_study("t", SPEC, storage=store)
        first, second = study.ask([0.2, 0.1]), study.ask([0.2, 0.1])
        study.tell(second.id, reward=0.0, cost=0.0)
    words = ["study", "status", "t", "--storage", storage]
    assert f"learning waits for {first.id}" in " ".join(run(*words).stdout.split())
    assert json.loads(run(*words, "--json").stdout)["waits_for"] == first.seq
    with Store(storage) as store:
        open_study("t", storage=store).tell(first.id, reward=0.0, cost=0.0)
    assert "learning waits for none" in " ".join(run(*words).stdout.split())


def test_the_title_of_a_simulation_says_policy_and_world():
    size = ("--dim", "2", "--rounds", "5", "--seeds", "1", "--threshold", "0.5")
    done = run("simulate", "--policy", "fixed", *size)
    assert done.stdout.startswith("Fixed action, linear world"), done.stderr
