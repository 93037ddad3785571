"""A world of rows of a table."""

import json
from dataclasses import replace

import numpy as np
import pytest

from safedial import DataWorld, InvalidInput, LinearWorld, simulate
from safedial.simulation.results import summary
from safedial.simulation.world import quantile
from tests.conftest import make_spec

RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-0.5, 0.5, (40, 3))
REWARD, COST = ROWS @ [0.5, 0.2, 0.1], ROWS[:, 0] ** 2 + 0.3
GIVEN = {"rounds": 100, "seeds": [2, 5]}


def test_columns_and_functions_are_the_same_world():
    columns = simulate("hp_probe", DataWorld(ROWS, reward=REWARD, cost=COST), make_spec(), **GIVEN)
    functions = DataWorld(ROWS, reward=lambda x: x @ [0.5, 0.2, 0.1], cost=lambda x: x[:, 0] ** 2 + 0.3)
    np.testing.assert_array_equal(simulate("hp_probe", functions, make_spec(), **GIVEN).regret, columns.regret)
    alone = simulate("hp_probe", functions, make_spec(), rounds=100, seeds=[5])
    np.testing.assert_allclose(columns.regret[:, 1], alone.regret[:, 0], rtol=0.0, atol=1e-9)


def test_contexts_are_rows_and_outcomes_have_their_means():
    world, seen = DataWorld(ROWS, reward=REWARD, cost=COST), []
    spec = make_spec(cost_noise=1e-9, reward_noise=1e-9)
    simulate("hp_probe", world, spec, rounds=2000, seeds=1, record=seen.append)
    context, action, reward, cost = (np.concatenate([part[index][:, 0, 0] for part in seen]) for index in range(4))
    place = np.argmin(np.abs(context[:, None] - ROWS).sum(axis=-1), axis=1)
    np.testing.assert_array_equal(context, ROWS[place])
    np.testing.assert_allclose(cost, action * COST[place], atol=1e-7)
    np.testing.assert_allclose(reward, action * REWARD[place], atol=1e-7)
    counts = np.bincount(place, minlength=40)
    assert ((counts - 50.0) ** 2 / 50.0).sum() < 86.0, "a chi-square of 39 degrees exceeds this 2 times in 10⁵"


def test_equal_contexts_have_the_mean_of_their_values_and_minus_zero_is_zero():
    rows = np.array([[0.5, 0.0], [0.5, -0.0], [0.1, 0.2]])
    world = DataWorld(rows, reward=[1.0, 3.0, 5.0], cost=[0.2, 0.4, 0.9])
    reward, cost = world.means(make_spec(), None, world.rows[:, None])
    np.testing.assert_allclose(reward[:, 0], [2.0, 2.0, 5.0])
    np.testing.assert_allclose(cost[:, 0], [0.3, 0.3, 0.9])


def test_noise_may_depend_on_the_context_and_the_clairvoyant_knows_it():
    scale = 0.5 + np.abs(ROWS[:, 0])
    world = DataWorld(ROWS, reward=REWARD, cost=COST, noise=lambda x: 0.5 + np.abs(x[:, 0]))
    np.testing.assert_allclose(world.noise_scale(make_spec(), world.rows[:, None])[:, 0], scale)
    spec, seen = make_spec(threshold=0.6, violation_risk=0.05), []
    run = simulate("clairvoyant", world, spec, rounds=1000, seeds=12, record=seen.append)
    assert run.violations.sum() <= 0.05 * 12000 + 4 * (0.05 * 12000) ** 0.5
    margin = quantile("gaussian", 0.95) * spec.cost_noise * scale
    best = np.minimum(1.0, 0.6 / np.maximum(COST + margin, 1e-9))
    mean = np.mean(np.where(REWARD >= 0.0, best, 0.0) * REWARD)
    spread = np.std(np.where(REWARD >= 0.0, best, 0.0) * REWARD) / 12000**0.5
    assert abs(run.exact_clairvoyant_reward.sum() / 12000 - mean) < 5 * spread


def test_it_is_told_apart_in_results_and_guarantees_nothing():
    run = simulate("hp_probe", DataWorld(ROWS, reward=REWARD, cost=COST, label="ward"), make_spec(), **GIVEN)
    assert set(run.to_frame()["world"]) == {"ward"}
    told = summary(run)
    assert told["guaranteed_risk"] is None
    json.dumps(told)
    other = DataWorld(ROWS, reward=REWARD, cost=COST + 0.1, label="ward")
    assert other.to_dict()["digest"] != told["settings"]["world"]["digest"]
    assert other.to_dict()["rows"] == 40


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"contexts": ROWS[:, 0]}, "contexts = .*of dimension 2"),
        ({"contexts": [["a"]]}, "contexts"),
        ({"contexts": np.zeros((0, 2))}, "at least one row"),
        ({"reward": REWARD[:-1]}, "reward = .*each of the 40 rows"),
        ({"cost": lambda x: x}, "cost = .*of dimension 1"),
        ({"cost": np.full(40, np.nan)}, "finite"),
        ({"noise": ["gaussian"]}, "noise = .*must be one of"),
        ({"noise": "context-scale"}, "noise = .*must be one of"),
        ({"noise": lambda x: x[:, 0]}, "numbers > 0"),
    ],
)
def test_bad_data_are_named(changes, rule):
    given = {"contexts": ROWS, "reward": REWARD, "cost": COST} | changes
    with pytest.raises(InvalidInput, match=rule):
        DataWorld(given.pop("contexts"), **given)


def test_contexts_longer_than_stated_are_refused():
    world = DataWorld(4.0 * ROWS, reward=REWARD, cost=COST)
    with pytest.raises(InvalidInput, match=r"context_bound = 1\.0: is less than the norm of a row; state"):
        simulate("hp_probe", world, make_spec(), **GIVEN)
    free = replace(make_spec(guarantee="conformal"), context_bound=None)
    with pytest.raises(InvalidInput, match="context_bound"):
        simulate("hp_conformal", LinearWorld(dim=3), free, **GIVEN)
