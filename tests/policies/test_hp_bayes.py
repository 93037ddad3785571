"""HP-Bayes: the posterior is calibrated, by simulation-based calibration; its guarantee holds on average over the
prior.

Level: every statistical assertion here fails with probability below 1e-6 if the claim holds. Seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest, invgamma, kstest
from scipy.stats import t as student

from safedial import Agent, InvalidInput, LinearWorld, hp_bayes, make_policy, simulate
from safedial.policies.baselines import spread
from safedial.simulation.results import summary
from tests.conftest import make_spec

LEVEL = 1e-6
SHAPE, RIDGE, NOISE, DIM = 3.0, 2.0, 0.7, 3


def worlds(count, rounds, seed=0):
    """Truths drawn from the prior, and the posterior after `rounds` rounds of data from each."""
    rng = np.random.default_rng(seed)
    variance = (SHAPE - 1) * NOISE**2 / rng.gamma(SHAPE, size=count)
    truth = rng.standard_normal((count, DIM)) * np.sqrt(variance / RIDGE)[:, None]
    policy = hp_bayes(shape=SHAPE)
    state = policy.init(DIM, ridge=RIDGE, batch=(count,))
    for _ in range(rounds):
        context = rng.standard_normal((count, DIM)) / 2
        cost = np.vecdot(context, truth) + np.sqrt(variance) * rng.standard_normal(count)
        state = policy.update(state, policy.predict(state, context), 0.0 * cost, cost, (rng.random(count) < 0.9) * 1.0)
    return rng, variance, truth, policy, state


@pytest.mark.parametrize("rounds", [0, 3, 25])
def test_the_posterior_is_calibrated_by_simulation(rounds, count):
    """If the truth is drawn from the prior, its place in the posterior is uniform: mean, variance and next outcome."""
    number = count(4000, 40_000)
    rng, variance, truth, policy, state = worlds(number, rounds)
    context = rng.standard_normal((number, DIM)) / 2
    known = policy.predict(state, context)
    degrees, scale = spread(known.seen, known.cost_loss, NOISE, SHAPE)
    mean = (np.vecdot(context, truth) - known.seen.cost) / (scale * known.seen.width)
    assert kstest(student.cdf(mean, degrees), "uniform").pvalue > LEVEL
    assert kstest(invgamma.cdf(variance, degrees / 2, scale=scale**2 * degrees / 2), "uniform").pvalue > LEVEL
    outcome = np.vecdot(context, truth) + np.sqrt(variance) * rng.standard_normal(number)
    place = (outcome - known.seen.cost) / (scale * np.sqrt(1 + known.seen.width**2))
    assert kstest(student.cdf(place, degrees), "uniform").pvalue > LEVEL


def test_a_posterior_that_is_too_narrow_is_caught():
    rng, _, truth, policy, state = worlds(4000, 10)
    context = rng.standard_normal((4000, DIM)) / 2
    known = policy.predict(state, context)
    degrees, scale = spread(known.seen, known.cost_loss, NOISE, SHAPE)
    mean = (np.vecdot(context, truth) - known.seen.cost) / (0.7 * scale * known.seen.width)
    assert kstest(student.cdf(mean, degrees), "uniform").pvalue < LEVEL


@pytest.mark.parametrize("rounds", [0, 10])
def test_on_average_over_the_prior_the_dose_breaks_the_threshold_no_more_than_guaranteed(rounds, count):
    number = count(20_000, 200_000)
    rng, variance, truth, policy, state = worlds(number, rounds, seed=1)
    spec = make_spec(violation_risk=0.1, cost_noise=NOISE, reward_noise=NOISE, ridge=RIDGE, threshold=0.05)
    context = rng.standard_normal((number, DIM)) / 2
    choice = policy.decide(policy.predict(state, context), spec, round=1.0, coin=rng.random(number))
    cost = choice.safe.intensity * (np.vecdot(context, truth) + np.sqrt(variance) * rng.standard_normal(number))
    bound = choice.safe.intensity < 1.0
    broken = int((cost > 0.05)[bound].sum())
    assert binomtest(broken, int(bound.sum()), 0.1, alternative="two-sided").pvalue > LEVEL, "exactly δ where it binds"


def test_the_sum_of_squares_is_the_textbooks():
    rng = np.random.default_rng(3)
    contexts, costs = rng.standard_normal((30, DIM)), rng.standard_normal(30)
    policy = hp_bayes()
    state = policy.init(DIM, ridge=RIDGE)
    for context, cost in zip(contexts, costs, strict=True):
        state = policy.update(state, policy.predict(state, context), np.float64(0.0), cost, np.float64(1.0))
    gram, rhs = RIDGE * np.eye(DIM) + contexts.T @ contexts, contexts.T @ costs
    assert state.cost_loss == pytest.approx(costs @ costs - rhs @ np.linalg.solve(gram, rhs), rel=1e-12)


def test_the_reward_is_drawn_from_its_posterior():
    rng, _, _, policy, state = worlds(1, 12)
    known = policy.predict(state, np.array([[0.3, 0.2, 0.4]]))
    many = type(known)(known.seen._replace(**{
        name: np.repeat(getattr(known.seen, name), 5000) for name in ("reward", "cost", "width", "informative_rounds")
    }), np.repeat(known.reward_loss, 5000), np.repeat(known.cost_loss, 5000))  # fmt: skip
    spec = make_spec(cost_noise=NOISE, reward_noise=NOISE)
    index = policy.decide(many, spec, round=1.0, coin=rng.random(5000)).reward_index
    degrees, scale = spread(known.seen, known.reward_loss, NOISE, SHAPE)
    scale = float(scale[0] * known.seen.width[0])
    assert kstest((index - known.seen.reward[0]) / scale, student(float(degrees[0])).cdf).pvalue > LEVEL


def test_it_is_never_called_certified_and_says_what_it_cannot_do():
    policy = make_policy("hp_bayes")
    assert policy.guarantee == "bayesian"
    run = simulate(policy, LinearWorld(dim=3), make_spec(), rounds=400, seeds=3)
    assert summary(run)["guaranteed_risk"] is None
    assert run.reward.sum() > 0.5 * run.clairvoyant_reward.sum()
    with pytest.raises(InvalidInput, match="shape"):
        hp_bayes(shape=1.0)
    with pytest.raises(InvalidInput, match="sensor"):
        simulate(policy, LinearWorld(dim=2), make_spec(cost_sensor_noise=0.1), rounds=5, seeds=1)
    with pytest.raises(InvalidInput, match="margin"):
        simulate(policy, LinearWorld(dim=2), make_spec(margin="gaussian"), rounds=5, seeds=1)
    with pytest.raises(InvalidInput, match="has its own learner"):
        Agent(2, make_spec(), policy=policy)
