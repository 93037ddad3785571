"""What a simulation gives back: tidy tables, its rounds, a file, a picture, and what there is after an interrupt."""

import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

import safedial.simulation.loop as batch
from safedial import InvalidInput, LinearWorld, Simulation, hill, hp_ucb, make_policy, simulate
from safedial.model.noise_scale import own_scale
from safedial.simulation.results import simulated_log, summary
from safedial.simulation.rule import CURVES
from safedial.simulation.sweeps import parse_grid, run_cell
from tests.conftest import make_spec
from tests.policies.own_linear import MyProbe
from tests.program import run as program
from tests.simulation.test_certified_costs_simulated import SPEC as SEVERAL
from tests.simulation.test_grid import GRID
from tests.simulation.test_own_world import SPEC, Threshold


@pytest.fixture(scope="module")
def run():
    spec = make_spec(threshold=[0.1, 0.5], ridge=2.0)
    return simulate(
        hp_ucb(radius="paper"), LinearWorld(dim=2, noise="uniform"), spec, rounds=60, seeds=[3, 9], points=5
    )


def test_curves_have_a_row_for_each_checkpoint_and_every_setting(run):
    table = run.curves()
    assert len(table) == 2 * 2 * 5
    kept = table[(table["threshold"] == 0.5) & (table["seed"] == 9)]
    for name in CURVES:
        np.testing.assert_array_equal(kept[name], getattr(run, f"{name}_curve")[:, 1, 1])
    assert kept["round"].tolist() == run.checkpoints.tolist()
    told = {"policy": "hp_ucb", "policy_radius": "paper", "policy_clip": False, "ridge": 2.0, "cost_noise": 1.0}
    told |= {"world": "LinearWorld", "noise": "uniform", "dim": 2, "engine": "numpy", "interrupted": False}
    for each in (table, run.to_frame()):
        assert {name: each[name].unique().tolist() for name in told} == {name: [value] for name, value in told.items()}
    assert table.columns[:3].tolist() == ["policy", "world", "dim"]


def test_a_trajectory_is_what_was_played(run):
    table = run.trajectory(seed=9, row=1)
    assert table.columns.tolist() == ["round", "x1", "x2", "action", "reward", "cost"]
    assert (table["cost"] > 0.5).sum() == run.violations[1, 1]
    alone = simulated_log(run.policy, run.world, make_spec(threshold=0.5, ridge=2.0), rounds=60, seed=9)
    np.testing.assert_array_equal(table["cost"], alone.cost)
    assert len(run.trajectory()) == 60
    several = simulate("hp_probe", LinearWorld(dim=2), SEVERAL, rounds=20, seeds=1).trajectory()
    assert {f"cost_{name}" for name in SEVERAL.costs} <= set(several.columns)
    for wrong, rule in (({"seed": 4}, "was not simulated"), ({"row": 2}, "from 0 to 1")):
        with pytest.raises(InvalidInput, match=rule):
            run.trajectory(**wrong)
    with pytest.raises(InvalidInput, match="drew its worlds on a device"):
        replace(run, draws="counter").trajectory()


def test_a_file_gives_the_same_simulation_back(run, tmp_path):
    run.save(tmp_path / "run")
    again = Simulation.load(tmp_path / "run")
    assert repr(again) == repr(run)
    assert again.to_frame().equals(run.to_frame())
    np.testing.assert_array_equal(again.regret_curve, run.regret_curve)
    curved = simulate(make_policy("hp_probe"), LinearWorld(dim=2), make_spec(), rounds=20, seeds=2, dose=hill(0.4))
    curved.save(tmp_path / "curved")
    assert Simulation.load(tmp_path / "curved").dose.to_dict() == curved.dose.to_dict()
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes()[:-9])
    with pytest.raises(InvalidInput, match="truncated or altered"):
        Simulation.load(tmp_path / "run")


def test_a_policy_that_was_told_otherwise_is_played_again_shown_and_saved_so(tmp_path):
    true, told = make_spec(threshold=[0.5, 0.6]), make_spec(threshold=[0.5, 0.6], cost_noise=0.3)
    run = simulate("hp_ucb", LinearWorld(dim=3), true, rounds=200, seeds=2, stated=told)
    alike = simulate("hp_ucb", LinearWorld(dim=3), true, rounds=200, seeds=2, stated=true)
    for each in (run, alike):
        rows = [(seed, row) for seed in range(2) for row in range(2)]
        found = [(each.trajectory(seed, row)["cost"] > (0.5, 0.6)[row]).sum() for seed, row in rows]
        assert found == [each.violations[row, seed] for seed, row in rows]
    assert run.violations.sum() > alike.violations.sum()
    assert run.to_frame()[["cost_noise", "stated_cost_noise"]].drop_duplicates().to_numpy().tolist() == [[1.0, 0.3]]
    assert [name for name in run.curves() if name.startswith("stated_")] == ["stated_cost_noise"]
    assert not [name for name in alike.to_frame() if name.startswith("stated_")]
    assert (summary(run)["guaranteed_risk"], summary(alike)["guaranteed_risk"]) == (None, true.guaranteed_risk)
    assert summary(run)["settings"]["stated"]["cost_noise"] == 0.3
    run.save(tmp_path / "run")
    again = Simulation.load(tmp_path / "run")
    assert again.stated.cost_noise == 0.3
    assert again.trajectory(1, 1).equals(run.trajectory(1, 1))
    assert repr(Simulation.load(tmp_path / "run", stated=told)) == repr(run)
    with pytest.raises(InvalidInput, match=r"stated = .*is not the one that was saved"):
        Simulation.load(tmp_path / "run", stated=true)
    with pytest.raises(InvalidInput, match=r"stated = 0\.3: must be a SafetySpec"):
        simulate("hp_ucb", LinearWorld(dim=3), true, rounds=5, seeds=2, stated=0.3)


def test_what_is_ones_own_is_given_again(tmp_path):
    own, spec = MyProbe(), replace(SPEC, noise_scale=own_scale(max_scale))
    run = simulate(own, Threshold(dim=2), SPEC, rounds=20, seeds=2)
    run.save(tmp_path / "own")
    with pytest.raises(InvalidInput, match="your own policy"):
        Simulation.load(tmp_path / "own", world=Threshold(dim=2))
    with pytest.raises(InvalidInput, match=r"world = .*give it again"):
        Simulation.load(tmp_path / "own", policy=own)
    with pytest.raises(InvalidInput, match="is not the one that was saved"):
        Simulation.load(tmp_path / "own", policy=own, world=Threshold(dim=2, start=0.3))
    with pytest.raises(InvalidInput, match="no such policy"):
        Simulation.load(tmp_path / "own", policy="mine", world=Threshold(dim=2))
    again = Simulation.load(tmp_path / "own", policy=own, world=Threshold(dim=2))
    assert again.trajectory().equals(run.trajectory())
    scaled = simulate("hp_ucb", LinearWorld(dim=2), spec, rounds=20, seeds=2)
    scaled.save(tmp_path / "scaled")
    assert repr(Simulation.load(tmp_path / "scaled", spec=spec)) == repr(scaled)
    with pytest.raises(InvalidInput, match="noise_scale"):
        Simulation.load(tmp_path / "scaled")


def max_scale(intensity, context):
    return np.maximum(intensity, 0.5 * intensity)


def test_it_draws_itself(run, tmp_path):
    figure = run.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert len(figure.axes) == 2
    assert [line.get_label() for line in figure.axes[0].lines] == ["HP-UCB, threshold 0.1", "HP-UCB, threshold 0.5"]


def press(after):
    """A progress callback that presses Ctrl-C once so many rounds are done."""
    seen = []

    def progress(size):
        seen.append(size)
        if sum(seen) >= after:
            signal.raise_signal(signal.SIGINT)

    return progress


@pytest.mark.parametrize("points", [1, 6])
def test_an_interrupt_returns_what_there_is(points, monkeypatch):
    monkeypatch.setattr(batch.Batch, "step", 10)
    given = {"rounds": 60, "seeds": 2, "points": points}
    with pytest.warns(UserWarning, match="the first 30 of 60 rounds"):
        part = simulate("hp_probe", LinearWorld(dim=2), make_spec(), **given, progress=press(30))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    short = simulate("hp_probe", LinearWorld(dim=2), make_spec(), rounds=30, seeds=2, points=points)
    assert (part.interrupted, part.rounds, short.interrupted) == (True, 30, False)
    assert "interrupted" in repr(part)
    np.testing.assert_array_equal(part.regret, short.regret)
    np.testing.assert_array_equal(part.regret_curve[-1], part.regret)
    assert part.checkpoints[-1] == 30
    assert len(part.curves()) == 2 * len(part.checkpoints)


def test_pressed_twice_it_interrupts_at_once():
    def progress(size):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        simulate("hp_probe", LinearWorld(dim=2), make_spec(), rounds=600, seeds=1, progress=progress)


def test_an_interrupt_at_the_end_changes_nothing_and_other_threads_are_left_alone():
    whole = simulate("hp_probe", LinearWorld(dim=2), make_spec(), rounds=20, seeds=1, progress=press(20))
    assert not whole.interrupted
    found = []
    worker = threading.Thread(
        target=lambda: found.append(simulate("hp_ucb", LinearWorld(dim=2), make_spec(), rounds=9, seeds=1))
    )
    worker.start()
    worker.join()
    assert found[0].rounds == 9


def test_a_cell_of_a_sweep_is_never_kept_in_part(monkeypatch):
    """The package's own calls end as a whole: a partial cell would be taken for a complete one."""
    cell = dict(parse_grid(GRID.replace("rounds = 40", "rounds = 600")).cells[0])
    monkeypatch.setattr(batch.Batch, "marks", pressing(batch.Batch.marks))
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell)


def pressing(method):
    def pressed(self, done, step):
        signal.raise_signal(signal.SIGINT)
        return method(self, done, step)

    return pressed


def test_the_command_line_reports_an_interrupted_run(tmp_path, monkeypatch):
    monkeypatch.setattr(batch.Batch, "marks", pressing(batch.Batch.marks))
    words = ("--policy", "hp_probe", "--dim", 2, "--threshold", 0.5, "--rounds", 400, "--seeds", 1)
    done = program("simulate", *words)
    assert done.returncode == 130
    assert "first 256 of 400 rounds" in done.stderr
    assert "violation rate" in done.stdout
    done = program("simulate", *words, "--log", tmp_path / "log.csv")
    assert (done.returncode, "violation rate" in done.stdout) == (130, True)
    assert (tmp_path / "log.csv").read_text().count("\n") == 257


def test_a_trajectory_is_never_given_in_part(run, monkeypatch):
    monkeypatch.setattr(batch.Batch, "marks", pressing(batch.Batch.marks))
    with pytest.raises(KeyboardInterrupt):
        run.trajectory()
