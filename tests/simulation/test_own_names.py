"""A policy and a world of one's own by name, "module:factory": simulated, compared, planned and swept."""

import importlib
import json
import sys
from contextlib import chdir
from dataclasses import replace

import numpy as np
import pytest

from safedial import InvalidInput, LinearWorld, compare, plan, simulate
from safedial.model.own_names import imported
from safedial.simulation.results import RESULTS, TAKEN
from safedial.simulation.sweeps import NUMBERS, build, parse_grid, run_sweep, status, sweep_rows, varying
from tests.conftest import make_spec
from tests.program import run as program
from tests.simulation.test_grid import GRID

MODULE = '''
from dataclasses import dataclass
import numpy as np
from safedial import DataWorld, LinearWorld, hp_ucb

@dataclass(frozen=True, kw_only=True)
class half(hp_ucb):
    """HP-UCB at a share of its dose."""
    name = "half"
    label = "Half"
    share: float = 0.5

    def choose(self, bound, asked):
        return self.share * super().choose(bound, asked)

def clinic(*, patients=20, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0.0, 0.5, (patients, 2))
    return DataWorld(rows, reward=rows.sum(axis=1), cost=lambda x: np.tanh(x[:, 0]), label="clinic")

def sized(*, threshold=1.0, rounds=3, regret=5, policy_share=0.1):
    return LinearWorld(dim=2, noise="uniform" if threshold > 1 else "gaussian")

def nothing():
    return 3
'''


@pytest.fixture
def folder(tmp_path, request):
    """A folder, the current one, with a module of its own name, so that no other test's is meant."""
    name = f"own_{abs(hash(request.node.name)) % 10**8}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    path = list(sys.path)
    with chdir(tmp_path):
        yield name
    sys.path[:] = path
    sys.modules.pop(name, None)


def test_fields_of_a_world_that_are_named_like_settings_or_results_have_columns_of_their_own(folder, tmp_path):
    text = GRID[: GRID.index("[[policy]]")].replace("rounds = 40", "rounds = 10").replace("seeds = 5", "seeds = 3")
    axes = f'name = "{folder}:sized"\nthreshold = [1, 2]\nrounds = [3, 4]\n'
    grid = parse_grid(text.replace("dim = 3", axes) + '[[policy]]\nname = "hp_ucb"\n')
    run_sweep(grid, tmp_path / "out", jobs=1)
    rows = sweep_rows(tmp_path / "out")
    named = ("threshold", "world_threshold", "rounds", "world_rounds", "seeds")
    assert sorted(tuple(row[name] for name in named) for row in rows) == [
        (limit, own, 10, count, 3) for limit in (0.2, 0.5) for own in (1, 2) for count in (3, 4)
    ]
    assert {row["world_regret"] for row in rows} == {5}
    assert varying(rows) == ["threshold", "world_threshold", "world_rounds"]
    assert "world_policy_share" in rows[0]
    assert {*NUMBERS, *RESULTS} <= TAKEN


def grid_text(name):
    text = GRID[: GRID.index("[[policy]]")].replace("seeds = 5", 'seeds = "3:6"').replace("[0.2, 0.5]", "0.5")
    text = text.replace("dim = 3", f'name = "{name}:clinic"\npatients = [10, 30]')
    return text + f'[[policy]]\nname = "{name}:half"\nshare = [0.2, 0.6]\n[[policy]]\nname = "hp_probe"\n'


def test_they_are_simulated_and_compared_by_name(folder):
    half = imported(f"{folder}:half", "policy")
    world = imported(f"{folder}:clinic", "world")()
    given = {"rounds": 60, "seeds": [4, 7]}
    by_name = simulate(f"{folder}:half", world, make_spec(), **given)
    np.testing.assert_array_equal(by_name.regret, simulate(half(), world, make_spec(), **given).regret)
    named = {"name": f"{folder}:half", "share": 0.1}
    found = compare([f"{folder}:half", named, "hp_probe"], f"{folder}:clinic", make_spec(), **given)
    np.testing.assert_array_equal(found.reference.regret, by_name.regret)
    assert list(found.runs) == ["Half, share 0.5", "Half, share 0.1", "HP-Probe"]
    by_file = simulate(f"{folder}.py:half", LinearWorld(dim=2), make_spec(), **given)
    assert by_file.policy.name == "half"


def test_the_command_line_takes_them(folder):
    words = ("--threshold", 0.5, "--rounds", 40, "--seeds", "2:4", "--json")
    named = ("--policy", f"{folder}:half,share=0.3", "--world", f"{folder}:clinic,patients=7")
    told = json.loads(program("simulate", *named, *words).stdout)
    assert (told["settings"]["policy"]["share"], told["settings"]["world"]["rows"]) == (0.3, 7)
    assert (told["dim"], told["settings"]["seeds"], told["guaranteed_risk"]) == (2, [2, 3], None)
    told = json.loads(program("compare", *named, "--policy", "hp_ucb", *words).stdout)
    assert (told["world"], [row["policy"] for row in told["policies"]]) == ("clinic", ["Half", "HP-UCB"])
    for wrong, rule in (
        (("--policy", f"{folder}:half,speed=1"), "'speed'); it takes radius, clip, share"),
        (("--policy", "hp_ucb", "--world", f"{folder}:clinic", "--noise", "uniform"), "after its name"),
        (("--policy", "hp_ucb", "--world", f"{folder}:clinic", "--dim", 5), "--dim = 5: is not the dimension of the"),
    ):
        done = program("simulate", "--dim", 2, *wrong, *words)
        assert (done.returncode, rule in done.stderr) == (2, True), done.stderr


def test_a_plan_is_made_with_them(folder, tmp_path):
    given = {"rounds": 60, "world": {"name": f"{folder}:clinic"}, "seeds": [5, 8, 9]}
    found = plan(f"{folder}:half", make_spec(), **given)
    assert [row["scenario"] for row in found.table] == ["as stated", "milder truth", "noise 2 κ"]
    assert found.left_out == ("norm 2 S",), "this world does not use S"
    assert "coefficient_bound" not in found.forecasts[1].scenario.factors
    assert (found.seeds, found.which, found.dim) == (3, [5, 8, 9], 2)
    assert not any(row["guarantee_holds"] for row in found.table), "nothing is proved in a world of one's own"
    run = simulate(f"{folder}:half", f"{folder}:clinic", make_spec(), rounds=60, seeds=[5, 8, 9])
    assert found.table[0]["violations"] == pytest.approx(run.violations.mean())
    whole = replace(make_spec(), violation_risk=make_spec().guaranteed_risk)
    best = simulate("hp_ucb", f"{folder}:clinic", whole, rounds=60, seeds=[5, 8, 9]).exact_clairvoyant_reward
    assert found.table[0]["reward_share"] == pytest.approx(run.reward.sum() / best.sum())
    for wrong, rule in (
        ({"dim": 3}, "is not that of the world, 2"),
        ({"baseline_cost": 0.1}, "is the world's own"),
        ({"world": {"curve": "power"}}, "is for brackets"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            plan("hp_probe", make_spec(), **(given | wrong))


@pytest.mark.slow
def test_a_sweep_imports_them_in_its_workers(folder, tmp_path):
    grid = parse_grid(grid_text(folder))
    assert len(grid.cells) == 3 * 2 * 2
    assert [cell["seeds"] for cell in grid.cells[:2]] == [[3, 4], [5]]
    defaults = {"radius": "mixture", "clip": None}
    assert grid.cells[0]["policy"] == {"name": f"{folder}:half", **defaults, "share": 0.2}
    assert grid.cells[0]["world"] == {"name": f"{folder}:clinic", "patients": 10, "seed": 0}
    assert run_sweep(grid, tmp_path / "two", jobs=2).failed == {}
    rows = sweep_rows(tmp_path / "two")
    assert {(row["policy"], row["world"], row["patients"]) for row in rows} == {
        (policy, f"{folder}:clinic", patients) for policy in (f"{folder}:half", "hp_probe") for patients in (10, 30)
    }
    direct = simulate(**build(grid.cells[0]))
    assert direct.seeds == [3, 4]
    assert run_sweep(grid, tmp_path / "one", jobs=1).complete
    assert sweep_rows(tmp_path / "one") == rows
    drawn = program("sweep", "plot", tmp_path / "one", "--x", "patients")
    assert drawn.returncode == 0, drawn.stderr


def test_a_changed_file_is_computed_anew_and_another_one_is_refused(folder, tmp_path):
    grid = parse_grid(grid_text(folder))
    run_sweep(grid, tmp_path / "out", jobs=1)
    before = sweep_rows(tmp_path / "out")
    (tmp_path / f"{folder}.py").write_text(MODULE.replace("self.share * super", "0.5 * self.share * super"))
    assert status(tmp_path / "out").done == 0
    with pytest.raises(InvalidInput, match="comes from another file"):
        build(grid.cells[0])
    assert run_sweep(parse_grid(grid_text(folder)), tmp_path / "out", jobs=1).computed == 12
    assert sweep_rows(tmp_path / "out")[0]["reward"] != before[0]["reward"]


def test_a_module_that_is_not_there_or_breaks_is_named(folder, tmp_path):
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    (tmp_path / "leaving_module.py").write_text("raise SystemExit(0)\n")
    for name, rule in (
        ("nowhere:half", "ModuleNotFoundError"),
        ("broken_module:half", "ZeroDivisionError"),
        ("leaving_module:half", "SystemExit"),
        (f"{folder}:whole", "AttributeError"),
        ("nowhere.py:half", "FileNotFoundError"),
        (":half", "there is no module"),
    ):
        with pytest.raises(InvalidInput, match=rf"policy = '{name}': cannot be imported from .*{rule}"):
            simulate(name, LinearWorld(dim=2), make_spec(), rounds=5, seeds=1)
    with pytest.raises(InvalidInput, match="is no Policy, and makes none"):
        simulate(f"{folder}:nothing", LinearWorld(dim=2), make_spec(), rounds=5, seeds=1)
    with pytest.raises(InvalidInput, match="there is no such policy"):
        parse_grid(GRID.replace('"hp_probe"', '"half"'))
    importlib.invalidate_caches()


@pytest.mark.parametrize("trouble", ["1 / 0", "raise SystemExit(0)"])
def test_a_factory_that_fails_is_named(tmp_path, monkeypatch, trouble):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_factory.py").write_text(f"def make(half=1):\n    {trouble}\n")
    name = "failing_factory.py:make"
    with pytest.raises(InvalidInput, match=rf"policy = '{name}': fails when it is called with .*; call it yourself"):
        simulate({"name": name, "half": 2}, LinearWorld(dim=2), make_spec(), rounds=5, seeds=1)
    with pytest.raises(InvalidInput, match=rf"world.* = '{name}': fails when it is called with"):
        simulate("hp_ucb", name, make_spec(), rounds=5, seeds=1)
