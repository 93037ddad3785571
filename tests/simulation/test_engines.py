"""The three engines give one answer, on any contexts, masks, block sizes and tails."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedial import InvalidInput, LinearWorld, hill, hp_probe, make_policy, power, replay, simulate
from safedial.bounds.estimate import init, predict, sample_weight, update
from safedial.model.dose import Dose
from safedial.policies.policy import Asked
from tests.conftest import FULL, make_spec
from tests.simulation.data import KINDS, assert_clear_of_the_switch, make_rounds

TOLERANCE = 1e-9
QUIET = {"reward_noise": 0.05, "cost_noise": 0.05}
LINEAR = ("hp_ucb", "hp_probe", "on_expectation", "epsilon_greedy", "thompson", "fixed")
EXAMPLES = 200 if FULL else 25


def assert_same(left, right, tolerance=TOLERANCE):
    assert np.abs(left.intensity - right.intensity).max() <= tolerance
    assert np.abs(left.cost_upper - right.cost_upper).max() <= 10 * tolerance
    for mine, other in zip(left.estimates, right.estimates, strict=True):
        assert mine.informative_rounds == other.informative_rounds
        for name in ("inverse", "reward_coef", "cost_coef", "log_det"):
            np.testing.assert_allclose(getattr(mine, name), getattr(other, name), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ridge", [1.0, 1e-4])
@pytest.mark.parametrize("engine", ["rank_one", "blocked"])
def test_every_engine_plays_what_the_reference_plays(kind, engine, ridge):
    contexts, rewards, costs = make_rounds(kind, 600, 24)
    spec = make_spec(**QUIET, threshold=0.3, ridge=ridge)
    slow = replay("hp_ucb", contexts, rewards, costs, spec, engine="reference")
    fast = replay("hp_ucb", contexts, rewards, costs, spec, engine=engine, block=100)
    assert_clear_of_the_switch(slow)
    assert 0.01 < (slow.intensity == 0).mean() < 0.99
    assert len(np.unique(slow.intensity)) > 50
    assert_same(slow, fast)


def test_the_ill_conditioned_case_is_ill_conditioned():
    contexts, rewards, costs = make_rounds("ill_conditioned", 600, 24)
    assert np.linalg.cond(contexts) > 1e7
    outcome = replay("hp_ucb", contexts, rewards, costs, make_spec(**QUIET, ridge=1e-4), engine="reference")
    assert np.linalg.cond(outcome.estimate.inverse) > 1e6


@settings(max_examples=EXAMPLES)
@given(
    kind=st.sampled_from(KINDS),
    name=st.sampled_from(LINEAR),
    radius=st.sampled_from(["paper", "mixture"]),
    count=st.integers(1, 150),
    dim=st.integers(2, 20),
    block=st.integers(1, 160),
    seed=st.integers(0, 2**32 - 1),
    shown=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_block_sizes_masks_and_tails_do_not_matter(kind, name, radius, count, dim, block, seed, shown):
    contexts, rewards, costs = make_rounds(kind, count, dim, seed=seed)
    rng = np.random.default_rng(seed)
    informative, coins = rng.random(count) < shown, rng.random(count)
    policy = make_policy(name, **({} if name == "fixed" else {"radius": radius}))
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1)
    given_rounds = {"informative": informative, "coins": coins}
    slow = replay(policy, contexts, rewards, costs, spec, engine="reference", **given_rounds)
    if name != "fixed":
        assert_clear_of_the_switch(slow, 1e-11)
    for engine in ("rank_one", "blocked"):
        fast = replay(policy, contexts, rewards, costs, spec, engine=engine, block=block, **given_rounds)
        assert_same(slow, fast)
        assert fast.estimate.informative_rounds <= informative.sum()


@pytest.mark.parametrize("name", ["hp_ucb", "hp_probe"])
@pytest.mark.parametrize("engine", ["rank_one", "blocked"])
def test_sensor_noise_is_weighed_and_divided_by_the_dose(name, engine):
    contexts, rewards, costs = make_rounds("random", 300, 8)
    errors = 0.01 * np.random.default_rng(1).standard_normal((2, 300))
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1, reward_sensor_noise=0.01, cost_sensor_noise=0.02)
    dose = Dose(hill(0.5), power(1.5))
    sensed = {"reward_sensor": errors[0], "cost_sensor": errors[1], "dose": dose, "baseline_cost": 0.05}
    slow = replay(name, contexts, rewards, costs, spec, engine="reference", **sensed)
    fast = replay(name, contexts, rewards, costs, spec, engine=engine, block=70, **sensed)
    assert_clear_of_the_switch(slow)
    assert_same(slow, fast)
    expected = by_hand(name, contexts, rewards, costs, spec, errors, dose, 0.05)
    np.testing.assert_allclose(fast.intensity[0], expected, atol=TOLERANCE)


def by_hand(name, contexts, rewards, costs, spec, errors, dose, baseline):
    """The loop of bounds.estimate, one round at a time."""
    state, played, policy = init(contexts.shape[1], ridge=spec.ridge), [], make_policy(name)
    for number, context in enumerate(contexts, start=1):
        prediction = predict(state, context)
        _, chosen = policy.decide(prediction, spec, Asked(context, prediction.norm, number, baseline))
        action = dose.cost.action(chosen)
        intensity = dose.reward.effect(action), dose.cost.effect(action)
        weight = np.asarray(sample_weight(spec, *intensity))
        outcomes = (rewards[number - 1], costs[number - 1])
        known = [
            value + error[number - 1] / np.where(weight > 0, level, 1.0)
            for value, error, level in zip(outcomes, errors, intensity, strict=True)
        ]
        state = update(state, prediction, *known, weight)
        played.append(chosen)
    return np.array(played)


@pytest.mark.parametrize("engine", ["reference", "rank_one", "blocked"])
def test_a_grid_of_thresholds_is_many_replays(engine):
    contexts, rewards, costs = make_rounds("random", 200, 6)
    grid = make_spec(**QUIET, threshold=[0.1, 0.3, 0.6], violation_risk=[0.01, 0.02, 0.05], ridge=0.1)
    together = replay("hp_probe", contexts, rewards, costs, grid, engine=engine)
    assert len(together.estimates) == 1
    for row in range(3):
        alone = make_spec(**QUIET, threshold=grid.threshold[row], violation_risk=grid.violation_risk[row], ridge=0.1)
        single = replay("hp_probe", contexts, rewards, costs, alone, engine=engine)
        np.testing.assert_allclose(together.intensity[row], single.intensity[0], rtol=0.0, atol=TOLERANCE)
        np.testing.assert_allclose(together.cost_upper[row], single.cost_upper[0], rtol=0.0, atol=TOLERANCE)
        assert together.violations[row] == single.violations[0]


@pytest.mark.parametrize("engine", ["reference", "rank_one", "blocked"])
def test_rows_that_learn_differently_have_estimates_of_their_own(engine):
    contexts, rewards, costs = make_rounds("random", 200, 6)
    grid = make_spec(**QUIET, threshold=[0.1, 0.6], ridge=0.1, cost_sensor_noise=0.02)
    sensor = {"cost_sensor": 0.02 * np.random.default_rng(2).standard_normal(200)}
    together = replay("hp_ucb", contexts, rewards, costs, grid, engine=engine, **sensor)
    assert len(together.estimates) == 2
    assert np.abs(together.estimates[0].cost_coef - together.estimates[1].cost_coef).max() > 1e-4
    for row, threshold in enumerate((0.1, 0.6)):
        alone = make_spec(**QUIET, threshold=threshold, ridge=0.1, cost_sensor_noise=0.02)
        single = replay("hp_ucb", contexts, rewards, costs, alone, engine=engine, **sensor)
        np.testing.assert_allclose(together.intensity[row], single.intensity[0], rtol=0.0, atol=TOLERANCE)


@pytest.mark.parametrize("engine", ["reference", "rank_one", "blocked"])
def test_single_precision_gives_nearly_the_same_statistics(engine):
    contexts, rewards, costs = make_rounds("random", 1000, 12)
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1)
    double = replay("hp_probe", contexts, rewards, costs, spec, engine=engine)
    single = replay("hp_probe", contexts, rewards, costs, spec, engine=engine, dtype="float32")
    assert single.estimate.inverse.dtype == np.float32
    assert np.mean(np.abs(single.intensity - double.intensity) > 1e-3) < 0.01
    assert single.reward == pytest.approx(double.reward, rel=1e-2)


@pytest.mark.portable
def test_a_worn_inverse_stays_close_over_many_rounds(count):
    rounds = count(20_000, 200_000)
    contexts, rewards, costs = make_rounds("random", rounds, 16)
    spec = make_spec(**QUIET, threshold=0.3, ridge=1e-3)
    outcome = replay("hp_probe", contexts, rewards, costs, spec)
    gram = 1e-3 * np.eye(16) + contexts.T @ contexts
    error = np.abs(outcome.estimate.inverse @ gram - np.eye(16)).max()
    assert error < 1e-9
    assert outcome.estimate.log_det == pytest.approx(np.linalg.slogdet(gram)[1] - 16 * np.log(1e-3), abs=1e-7)
    np.testing.assert_array_equal(outcome.estimate.inverse, outcome.estimate.inverse.T)


@pytest.mark.parametrize("engine", ["reference", "rank_one", "blocked"])
def test_the_noise_adaptive_radius_replays_as_it_simulates(engine):
    """Energies are carried from block to block, and rows that share an estimate share them."""
    spec = make_spec(cost_noise=0.5, reward_noise=0.4, threshold=[0.2, 0.6], margin="gaussian")
    policy, seen = hp_probe(radius="noise-adaptive"), []
    simulate(policy, LinearWorld(dim=3), spec, rounds=90, seeds=[4], observe=seen.append)
    contexts = np.array([each.context[0, 0] for each in seen])
    noises = [np.random.default_rng([4, stream]).standard_normal(90) for stream in (2, 3)]
    rewards = contexts @ seen[0].truth.reward_coef[0] + 0.4 * noises[0]
    costs = contexts @ seen[0].truth.cost_coef[0] + 0.5 * noises[1]
    again = replay(policy, contexts, rewards, costs, spec, engine=engine, block=16)
    played = np.array([each.given.intensity[:, 0] for each in seen]).T
    np.testing.assert_allclose(again.intensity, played, rtol=1e-9)


def test_the_noise_adaptive_radius_is_refused_on_jax():
    with pytest.raises(InvalidInput, match="jax"):
        replay(
            make_policy("hp_ucb", radius="noise-adaptive"),
            np.ones((2, 2)) / 2,
            *np.zeros((2, 2)),
            make_spec(),
            engine="jax",
        )
