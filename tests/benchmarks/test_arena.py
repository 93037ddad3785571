"""The arena as a whole: our policies, the peers that this environment has, the table, and what is left out."""

import json
import sys

import numpy as np
import pytest

from benchmarks.arena import peer
from benchmarks.arena.__main__ import app
from benchmarks.arena.arena_cell import play
from benchmarks.arena.arena_run import arena_rows, plan_arena, run_arena, verdicts
from benchmarks.arena.players import OURS
from benchmarks.arena.registry import PRINTED, make_world
from benchmarks.arena.simulated import UNIT
from safedial import InvalidInput, SafetySpec, make_policy
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.run import simulate
from tests.benchmarks.problems import solved
from tests.program import run


@pytest.fixture(autouse=True)
def own_python(monkeypatch):
    """Peers as this environment has them, whatever else is on this machine."""
    monkeypatch.setenv("SAFEDIAL_PEERS", sys.executable)


@pytest.mark.parametrize(("policy", "options"), [("HP-UCB", {"name": "hp_ucb"}), ("HP-Probe", {"name": "hp_probe"})])
def test_the_preset_gives_the_regret_of_a_simulation(policy, options):
    found = play(make_world(PRINTED, 0.02), policy, [0, 1], rounds=60, risk=0.02)
    spec = SafetySpec(threshold=0.5, violation_risk=0.01, estimation_risk=0.01, **UNIT)
    same = simulate(make_policy(**options), LinearWorld(dim=10), spec, rounds=60, seeds=2)
    np.testing.assert_allclose(np.subtract(found["clairvoyant"], found["value"]), same.regret[0], rtol=1e-6)
    np.testing.assert_array_equal(found["violations"], same.violations[0])


@pytest.mark.parametrize("policy", [*OURS])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_our_policies_play_every_kind_of_world(policy):
    share, over = solved(policy, 100)
    assert over <= 0.105  # of 200 independent rounds at 5 %, more with probability 0.001
    assert share > 0.15


@pytest.mark.parametrize(
    ("policy", "least", "most"),
    [
        ("linear quantiles, level 0.95", 0.6, 0.2),
        ("boosted quantiles, level 0.95", 0.4, 0.2),
        ("SafeOpt's rule (ours), β 2", 0.4, 0.2),
    ],
)
def test_a_peer_solves_the_world_of_one_feature(policy, least, most):
    share, over = solved(policy, 90, seeds=1)
    assert share >= least
    assert over <= most


def test_the_arena_resumes_and_shows_what_is_left_out(tmp_path):
    """The small form: our policies, a rule, and the peers of scikit-learn, which every environment of tests has."""
    wanted = {"rounds": 45, "seeds": 2}
    policies = ["HP-Shield", "the usual rule", "linear quantiles, level 0.95", "boosted quantiles, level 0.95"]
    plan = plan_arena(["flat-then-steep"], [*policies, "VW CATS"], **wanted)
    assert plan.left_out["VW CATS"].startswith("vowpalwabbit not installed: make peers")
    assert "pip" not in plan.left_out["VW CATS"]
    state = run_arena(plan, tmp_path, jobs=1)
    assert (state.computed, state.failed) == (7, {})
    assert run_arena(plan, tmp_path, jobs=1).computed == 0
    rows = arena_rows(plan, tmp_path)
    assert [row["policy"] for row in rows][::5] == ["HP-Shield", "linear quantiles, level 0.95"]
    assert sum(row["best_in_hindsight"] for row in rows) <= 1
    (verdict,) = verdicts(rows)
    assert verdict["ours"] == "HP-Shield"


def test_the_command_prints_one_json_object_and_names_what_is_not_installed(tmp_path):
    chosen = ["--world", "paper", "--policy", "HP-Probe", "--policy", "MABWiser LinUCB"]
    done = run(*chosen, "--rounds", "20", "--seeds", "2", "--jobs", "1", "--out", str(tmp_path), "--json", program=app)
    content = json.loads(done.stdout)
    assert [row["policy"] for row in content["rows"]] == ["HP-Probe"]
    assert "mabwiser" in content["left_out"]["MABWiser LinUCB"]
    assert (tmp_path / "arena.csv").exists()
    assert (tmp_path / "arena.png").exists()


def test_where_every_peer_is_left_out_the_command_fails_and_says_how_to_install_them(tmp_path):
    done = run("--world", "paper", "--policy", "coba LinTS", "--out", str(tmp_path), "--no-picture", program=app)
    assert done.returncode == 1
    assert "left out: coba LinTS: coba not installed: make peers" in done.stdout
    assert "*" not in done.stdout


def test_a_world_of_your_own_stands_under_its_own_name(tmp_path):
    (tmp_path / "own.py").write_text("from tests.benchmarks.problems import one_feature as factory")
    chosen = ["--world", f"{tmp_path}/own.py:factory", "--policy", "the usual rule × 0.5", "--rounds", "5"]
    done = run(*chosen, "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--no-picture", program=app)
    assert done.stdout.startswith("one feature: 1 seeds × 5 rounds")
    assert (tmp_path / "arena.csv").read_text().splitlines()[1].startswith("one feature,")


def test_a_peer_that_fails_says_why():
    setting = peer.Setting("linear quantiles", "quantile_linear", {"no_such_option": 1})
    with pytest.raises(InvalidInput, match="no_such_option"):
        play_with(setting)


def play_with(setting):
    world = make_world("flat-then-steep", 0.05)
    player = peer.PeerPlayer(setting, world, [0], 0.05)
    player.decide(world.begin([0], 1))
