"""The arena as a whole: our policies, the peers that this environment has, the table, and what is left out."""

import json
import sys

import numpy as np
import pytest

from benchmarks.arena import peer, picture
from benchmarks.arena.__main__ import app
from benchmarks.arena.arena_cell import SAFEOPT, play
from benchmarks.arena.arena_run import arena_rows, plan_arena, run_arena, verdicts
from benchmarks.arena.peer import PEERS
from benchmarks.arena.players import OURS
from benchmarks.arena.registry import PRINTED, make_world
from benchmarks.arena.simulated import UNIT
from safedial import InvalidInput, SafetySpec, make_policy
from safedial.simulation import simulate
from safedial.worlds import LinearWorld
from tests.benchmarks.problems import one_feature, solved
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
    np.testing.assert_array_equal(found["excesses"], same.violations[0])


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


def test_two_worlds_of_one_name_are_refused():
    worlds = ["tests.benchmarks.problems:one_feature", f"{__name__}:{one_feature.__name__}"]
    with pytest.raises(InvalidInput, match=r"has the name of tests\.benchmarks\.problems:one_feature"):
        plan_arena(worlds, ["HP-Shield"], rounds=5, seeds=1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"policies": ["hp_ubc"]}, "is not in the arena"),
        ({"rounds": 0}, "must be a whole number >= 1"),
        ({"risk": 1.5}, "must be a number in"),
    ],
)
def test_bad_input_is_refused(given, words):
    asked = {"worlds": ["paper"], "policies": ["HP-Probe"], "rounds": 10, "seeds": 1} | given
    with pytest.raises(InvalidInput, match=words):
        plan_arena(asked.pop("worlds"), asked.pop("policies"), **asked)


def test_a_peer_that_fails_says_why():
    setting = peer.Setting("linear quantiles", "quantile_linear", {"no_such_option": 1})
    with pytest.raises(InvalidInput, match="no_such_option"):
        play_with(setting)


def test_a_process_plays_one_problem_after_another_as_a_new_one_would():
    first, again = (solved("linear quantiles, level 0.95", 60, seeds=1) for _ in range(2))
    assert first == again
    assert len(peer.IDLE[sys.executable, "quantile_linear"]) == 1


def test_a_python_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("SAFEDIAL_PEERS", "/nowhere/python")
    with pytest.raises(InvalidInput, match="/nowhere/python"):
        plan_arena(["paper"], ["VW CATS"], rounds=10, seeds=1)


def play_with(setting):
    world = make_world("flat-then-steep", 0.05)
    player = peer.PeerPlayer(setting, world, [0], 0.05)
    player.decide(world.begin([0], 1))


def test_every_peer_has_its_settings():
    assert len({setting.family for setting in PEERS.values()}) == 6
    assert len(PEERS) == 22
    assert len(SAFEOPT) == 2


@pytest.mark.parametrize(("worlds", "shape"), [(1, (1, 1)), (2, (1, 2)), (4, (2, 2)), (7, (4, 2))])
def test_the_picture_has_at_most_two_panels_side_by_side(tmp_path, monkeypatch, worlds, shape):
    made = []
    monkeypatch.setattr(picture, "save", lambda figure, path: made.append(figure) or path)
    row = {"policy": "HP-Shield", "family": "ours", "risk": 0.05, "excess_rate": 0.02, "excess_low": 0.01}
    row |= {"excess_high": 0.03, "reward": 0.5, "unit": "share", "best_in_hindsight": False}
    picture.draw_arena([row | {"world": f"world {number}"} for number in range(worlds)], tmp_path)
    assert made[0].axes[0].get_gridspec().get_geometry() == shape
