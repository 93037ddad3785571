"""The worlds of the arena: what they show, what a setting does, and what is refused."""

import numpy as np
import pytest

from benchmarks.arena.clinic import GRID, HIGHEST, fallen, served
from benchmarks.arena.players import RULES, make_player, pilot_constants
from benchmarks.arena.registry import WORLDS, make_world
from benchmarks.arena.warfarin import published_dose, read_patients
from benchmarks.worlds import insulin
from safedial import InvalidInput
from tests.benchmarks.problems import warfarin_file


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(warfarin_file(tmp_path_factory.mktemp("warfarin")))


def rounds_of(world, seeds, rounds=4):
    stream, seen = world.begin(seeds, rounds), []
    for _ in range(rounds):
        before = stream.context, stream.protocol
        seen.append((*before, *stream.act(np.full(len(seeds), 0.3))[:3]))
    return [np.stack(part) for part in zip(*seen, strict=True)]


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_keeps_to_its_protocol_and_seeds_do_not_depend_on_their_neighbours(name, data):
    world = make_world(name, 0.05, data)
    both, alone = rounds_of(world, [0, 3]), rounds_of(world, [3])
    context, protocol, *outcomes = both
    assert context.shape == (4, 2, world.dim)
    assert np.all(np.linalg.norm(context, axis=-1) <= world.context_bound + 1e-9)
    assert np.all((protocol > 0.0) & (protocol <= 1.0))
    assert all(part.shape == (4, 2) and np.all(np.isfinite(part)) for part in outcomes)
    for part, own in zip(both, alone, strict=True):
        np.testing.assert_allclose(part[:, 1], own[:, 0], rtol=1e-9, atol=1e-12)


def test_seven_worlds_and_five_rules():
    assert len(WORLDS) == 7
    assert len(RULES) == 5


def test_a_meal_between_two_simulated_settings_is_interpolated_well():
    (glucose, *_, doses), responses = served(0, 4)
    meals = insulin.draw_meals(np.random.default_rng([0, 6]), 4)
    np.testing.assert_array_equal(meals.glucose, glucose)
    place = 10.5
    eaten = meals.eat(place / (GRID - 1) * HIGHEST * doses)
    np.testing.assert_allclose(responses[:, 10:12, 0].mean(axis=1), eaten.lowest, atol=1.0)
    assert fallen(np.array(70.0)) == 1.0


def test_the_published_algorithm_by_hand(data):
    rows = read_patients(data)
    assert len(rows) == 60
    root = 5.6044 - 0.2614 * 6 + 0.0087 * 178 + 0.0128 * 80
    np.testing.assert_allclose(published_dose(rows)[:3], [root**2, (root - 0.8677) ** 2, (root - 1.6974) ** 2])


def test_a_dose_of_warfarin_is_compared_with_the_need(data):
    stream = make_world("warfarin", 0.05, data).begin([0], 5)
    usual = stream.protocol
    outcome = stream.act(usual)
    share = float(outcome.cost[0])
    assert float(outcome.reward[0]) == min(share, 1.0)
    assert outcome.measures["within_20_percent_of_need"][0] == (abs(share - 1.0) <= 0.2)


def test_constants_come_from_a_pilot_where_a_world_states_none():
    found = pilot_constants(make_world("vancomycin", 0.05))
    assert set(found) == {"reward_noise", "cost_noise", "coefficient_bound", "context_bound"}
    assert pilot_constants(make_world("paper", 0.05))["cost_noise"] == 1.0


def test_one_dose_for_all_gives_everybody_the_same_amount():
    world = make_world("vancomycin", 0.05)
    stream = world.begin([0, 1, 2], 1)
    setting = make_player("one dose for all", world, [0, 1, 2], 0.05).decide(stream)
    np.testing.assert_allclose(HIGHEST * setting * stream.doses[0], 1450.0)


OWN = """
from tests.benchmarks.problems import one_feature
def made(risk): return one_feature(risk)
def wrong(risk): return risk
def deaf(): return one_feature(0.05)
"""


def test_a_world_of_your_own_by_a_file_or_a_module(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    assert make_world(f"{path}:made", 0.05).name == "one feature"
    assert make_world("tests.benchmarks.problems:one_feature", 0.05).dim == 2
    with pytest.raises(InvalidInput, match="did not make an ArenaWorld"):
        make_world(f"{path}:wrong", 0.05)
    for name in ("deaf", "__name__"):
        with pytest.raises(InvalidInput, match="the factory must take the risk"):
            make_world(f"{path}:{name}", 0.05)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("mars", None, "is no world of the arena"),
        ("no_such_module:made", None, "cannot be imported"),
        ("/nowhere/own.py:made", None, "cannot be imported"),
        ("warfarin", None, "is needed for warfarin"),
        ("warfarin", "/nowhere", "has no warfarin_iwpc.csv"),
    ],
)
def test_what_is_no_world_is_refused(name, data, words):
    with pytest.raises(InvalidInput, match=words):
        make_world(name, 0.05, data)


def test_a_warfarin_file_without_a_column_is_refused(tmp_path):
    warfarin_file(tmp_path)
    path = tmp_path / "warfarin_iwpc.csv"
    path.write_text(path.read_text().replace("cyp2c9", "cyp"))
    with pytest.raises(InvalidInput, match="lacks the columns cyp2c9"):
        make_world("warfarin", 0.05, str(tmp_path))
