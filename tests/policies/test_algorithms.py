"""What sets one policy apart from another."""

import numpy as np
import pytest
from scipy.stats import kstest

from safedial import LinearWorld, make_policy, simulate
from safedial.bounds.estimate import Prediction
from safedial.policies.policy import Asked
from tests.conftest import make_spec
from tests.oracles import algorithm1


@pytest.mark.parametrize("dim", [2, 5])
@pytest.mark.parametrize("threshold", [0.1, 2.0])
def test_hp_ucb_with_the_papers_radius_is_algorithm_1_round_by_round(dim, threshold):
    spec = make_spec(threshold=threshold, cost_noise=0.5, reward_noise=0.3, ridge=0.7)
    seen = {"contexts": [], "intensity": []}

    def watch(round):
        seen["contexts"].append(round.context[0, 0])
        seen["intensity"].append(float(round.given.intensity[0, 0]))
        seen["truth"] = (round.truth.reward_coef[0], round.truth.cost_coef[0])

    simulate(make_policy("hp_ucb", radius="paper"), LinearWorld(dim=dim), spec, rounds=250, seeds=[3], observe=watch)
    noise = [np.random.default_rng([3, stream]).standard_normal(250) for stream in (2, 3)]
    played = algorithm1(np.array(seen["contexts"]), noise[0] * 0.3, noise[1] * 0.5, seen["truth"], spec=spec)
    np.testing.assert_allclose(seen["intensity"], played, atol=1e-10)
    assert np.any(played == 0.0)


def decided(policy, seen, spec, *, number=2.0, coin=0.5):
    """(what may be given, what is given) by a linear policy that sees this."""
    return policy.decide(seen, spec, Asked(None, seen.norm, number, 0.0, coin))


def one(**changes):
    fields = {
        "reward": 0.1,
        "cost": 0.0,
        "width": 0.2,
        "norm": 1.0,
        "log_det": 3.0,
        "informative_rounds": 50.0,
        "dim": 3,
    }
    return Prediction(**(fields | changes))


def test_optimism_plays_where_the_estimate_is_slightly_negative_and_the_probe_does_not():
    spec = make_spec()
    largest, full = decided(make_policy("hp_ucb"), one(reward=-0.05), spec, number=100.0)
    assert full == largest.largest
    largest, probe = decided(make_policy("hp_probe"), one(reward=-0.05), spec, number=100.0)
    assert probe == pytest.approx(0.1 * largest.largest)


def test_the_probe_keeps_above_the_sensor_noise_and_probe_0_gives_nothing():
    spec = make_spec(cost_sensor_noise=0.02)
    low, none = (decided(make_policy("hp_probe", probe=share), one(reward=-1.0), spec)[1] for share in (1e-6, 0))
    assert low == pytest.approx(0.02)
    assert none == 0.0


def test_epsilon_greedy_explores_with_the_first_round_action():
    spec, policy = make_spec(), make_policy("epsilon_greedy", radius="paper", epsilon=0.5, learn_from="exploring")
    first = spec.threshold / (spec.tail + 1.0)
    exploring, explored = decided(policy, one(reward=-9.0), spec, number=9.0, coin=0.4)
    exploiting, exploited = decided(policy, one(reward=-9.0), spec, number=9.0, coin=0.6)
    assert (explored, exploited) == (pytest.approx(first), 0.0)
    assert (exploring.teaches, exploiting.teaches) == (True, False)


@pytest.mark.parametrize("learn_from", ["all", "exploring"])
@pytest.mark.parametrize("clip", [True, False])
def test_epsilon_greedy_always_stores_the_first_round(learn_from, clip):
    """Algorithm 1, line 2: select α₁ and store (X₁, R₁, C₁), before any coin."""
    policy = make_policy("epsilon_greedy", epsilon=0.3, learn_from=learn_from, clip=clip)
    first = make_policy("fixed", clip=clip)
    seen, samples = [], []

    def watch(each):
        seen.append(each)
        samples.append(each.state.sums.informative_rounds)

    simulate(policy, LinearWorld(dim=3), make_spec(), rounds=2, seeds=50, observe=watch)
    _, alone = decided(first, one(norm=seen[0].asked.norm), make_spec(), number=1.0)
    np.testing.assert_allclose(seen[0].given.intensity, alone, rtol=1e-12)
    assert np.all(samples[1] == 1.0)
    exploring = seen[0].bound.numbers["exploring"]
    assert not np.all(exploring), "no coin, of fifty, says to exploit: the test shows nothing"


def test_learning_from_exploring_rounds_alone_collects_about_epsilon_t_samples():
    world, spec = LinearWorld(dim=3), make_spec()
    some = simulate(
        make_policy("epsilon_greedy", epsilon=0.3, learn_from="exploring"), world, spec, rounds=2000, seeds=5
    )
    every = simulate(make_policy("epsilon_greedy", epsilon=0.3), world, spec, rounds=2000, seeds=5)
    assert some.informative_rounds.mean() == pytest.approx(600, abs=60)
    assert np.all(every.informative_rounds > some.informative_rounds)


def test_thompson_samples_the_reward_with_the_posterior_spread():
    spec = make_spec(reward_noise=0.5)
    coins = np.random.default_rng(0).random(4000)
    seen = Prediction(*(np.full(4000, value) for value in one()[:6]), 3)
    index = decided(make_policy("thompson", scale=2.0), seen, spec, coin=coins)[0].index
    # Level 1e-6; the seed is fixed.
    assert kstest(np.asarray(index), "norm", (0.1, 2.0 * 0.5 * 0.2)).pvalue > 1e-6


def test_fixed_never_changes_and_learns_nothing():
    run = simulate(make_policy("fixed"), LinearWorld(dim=3), make_spec(), rounds=50, seeds=2)
    assert np.all(run.informative_rounds == 0)


def test_the_clairvoyant_has_no_regret():
    run = simulate(make_policy("clairvoyant"), LinearWorld(dim=3), make_spec(), rounds=500, seeds=4)
    np.testing.assert_allclose(run.regret, 0.0, atol=1e-12)


def test_on_expectation_is_hp_ucb_without_the_margin():
    spec = make_spec()
    expected, _ = decided(make_policy("on_expectation"), one(cost=0.3, width=0.05), spec)
    realized, _ = decided(make_policy("hp_ucb"), one(cost=0.3, width=0.05), spec)
    assert expected.largest == pytest.approx(min(1.0, 0.5 / expected.numbers["cost_upper"]))
    assert realized.largest == pytest.approx(0.5 / (realized.numbers["cost_upper"] + spec.tail))
