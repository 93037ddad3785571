"""`python -m benchmarks COMMAND`: each command runs in small and prints what it is for."""

import json

import pytest

from benchmarks import simulation_speed
from benchmarks.__main__ import bench
from benchmarks.checks_power import bench_checks
from benchmarks.monitor_peers import compare_monitors
from benchmarks.nonlinear_speed import bench_nonlinear
from safedial import InvalidInput
from tests.program import run


def printed(*words):
    """What a command prints as JSON."""
    return json.loads(run(*words, "--json", program=bench).stdout)


def test_online_times_a_decision_and_an_update():
    found = printed("online", "--dim", "4")
    for name in ("ask_p50_us", "ask_p99_us", "tell_p50_us", "bare_ask_us", "bare_tell_us"):
        assert found[name] > 0
    small = ("online", "--policy", "hp_conformal", "--dim", "3", "--rounds", "300")
    assert printed(*small)["ask_p50_us"] > 0
    assert run("online", "--policy", "fixed", program=bench).returncode == 2


def test_the_speeds_of_simulations_fit_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    row = {"dim": 26, "seeds": 500, "floor": 1_234_567.8, "naive": 9_876.5, "numpy": 348_211.0, "mabwiser": 1_421.0}
    row |= {"jax": 12_345_678.9, "jax_compile_seconds": 1.234, "jax_counter": 2.5e9, "jax_counter_compile_seconds": 0.5}
    monkeypatch.setattr(simulation_speed, "bench_simulation", lambda *sizes, **options: [row])
    done = run("simulate", program=bench)
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


def test_simulate_times_the_engines_and_names_what_is_left_out(monkeypatch):
    monkeypatch.setattr(simulation_speed, "_has_jax", lambda: False)
    monkeypatch.setattr(simulation_speed, "LEAST", 100)
    shown = run("simulate", "--dim", "2", "--seeds", "1", "--seconds", "0.01", program=bench).stdout
    assert "plain loop" in shown
    assert "jax, counter draws (make peers; the extra jax)" in " ".join(shown.split())


def test_on_a_gpu_the_memory_s_limit_is_that_of_a_copy_there(monkeypatch):
    assert 1e7 < simulation_speed._device_copy_speed("cpu", 1 << 20) < 1e13
    monkeypatch.setattr(simulation_speed, "_device_copy_speed", lambda device: 3.2e12)
    monkeypatch.setattr(simulation_speed, "_timed", lambda name, *given, **sizes: {name: 1e9})
    rows = simulation_speed.bench_simulation((10,), (1000,), device="gpu", dtype="float32")
    assert rows == [{"dim": 10, "seeds": 1000, "floor": pytest.approx(4e9), "jax_counter": 1e9}]


def test_checks_says_how_often_each_catches_its_fault():
    found = bench_checks(1)
    assert found["caught"]["a sine mean"]["caught"] == 1.0
    assert found["false_flags"] == 0.0
    assert "guaranteed: at most 0.05" in run("checks", "--runs", "1", program=bench).stdout


def test_monitor_prints_both_figures():
    small = ("monitor", "--runs", "20", "--rounds", "200")
    assert {"false_alarms", "median_rounds_to_alarm"} <= set(printed(*small))
    assert "median rounds to alarm" in run(*small, program=bench).stdout


def test_our_alarms_stand_beside_those_of_mapie():
    found = compare_monitors(runs=1, rounds=300, change=100, multiple=15.0)
    assert len(found["alarms"]) == 5
    ours, theirs = found["alarms"]["monitor"], found["alarms"]["MAPIE RiskMonitoring"]
    assert ours["caught"] == theirs["caught"] == 1.0  # at three quarters of the rounds both are sure within 200
    assert ours["median_rounds"] <= 40.0
    assert all(row["false_alarms"] == 0.0 for row in found["alarms"].values())
    with pytest.raises(InvalidInput, match="change"):
        compare_monitors(runs=1, rounds=10, change=10)


def test_study_times_decisions_and_a_log():
    found = printed("study", "--dim", "2", "--events", "200", "--decisions", "20", "--threads", "2")
    assert found["asks_per_second"] > 0
    assert found["chain_events_per_second"] > 0


def test_nonlinear_stands_beside_scikit_learn():
    found = bench_nonlinear(functions=50, rounds=20, points=30, refits=2)
    assert found["finite_rounds_per_second"] > 0
    assert found["ratio"] == found["sklearn_refit_ms"] / found["kernel_decide_and_update_ms"]
