"""HP-Bayes: the posterior is calibrated, by simulation-based calibration; its guarantee holds on average over the
prior.

Level: every statistical assertion here fails with probability below 1e-6 if the claim holds. Seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest, invgamma, kstest
from scipy.stats import t as student

from safedial import Agent, InvalidInput, LinearWorld, hp_bayes, make_policy, simulate
from safedial.model.dose import as_dose
from safedial.policies.policy import KNOWN, Asked, Task, Told
from safedial.simulation.results import summary
from tests.conftest import make_spec

LEVEL = 1e-6
SHAPE, RIDGE, NOISE, DIM = 3.0, 2.0, 0.7, 3


def bound_to(policy, **changes):
    spec = make_spec(**({"cost_noise": NOISE, "reward_noise": NOISE, "ridge": RIDGE} | changes))
    return policy.on(Task(dim=DIM, spec=spec, dose=as_dose(None)))


def at(policy, state, context, coin=0.5):
    """The posterior at contexts: its numbers, and what may be given."""
    return policy.bound(state, Asked(context, None, 1.0, coin=coin))


def learn(policy, state, place, context, cost, weight):
    """One round at full intensity, where the reward is 0."""
    policy.open(state, Asked(context, None, 1.0), None, 1.0)
    policy.tell(state, place, Told(KNOWN, 0.0 * cost, cost, weight, cost, 0.0, 1.0, 1.0, context))


def worlds(count, rounds, seed=0):
    """Truths drawn from the prior, and the posterior after `rounds` rounds of data from each."""
    rng = np.random.default_rng(seed)
    variance = (SHAPE - 1) * NOISE**2 / rng.gamma(SHAPE, size=count)
    truth = rng.standard_normal((count, DIM)) * np.sqrt(variance / RIDGE)[:, None]
    policy = bound_to(hp_bayes(shape=SHAPE))
    state = policy.init((count,))
    for number in range(rounds):
        context = rng.standard_normal((count, DIM)) / 2
        cost = np.vecdot(context, truth) + np.sqrt(variance) * rng.standard_normal(count)
        learn(policy, state, number, context, cost, (rng.random(count) < 0.9) * 1.0)
    return rng, variance, truth, policy, state


@pytest.mark.parametrize("rounds", [0, 3, 25])
def test_the_posterior_is_calibrated_by_simulation(rounds, count):
    """If the truth is drawn from the prior, its place in the posterior is uniform: mean, variance and next outcome."""
    number = count(4000, 40_000)
    rng, variance, truth, policy, state = worlds(number, rounds)
    context = rng.standard_normal((number, DIM)) / 2
    known = at(policy, state, context).numbers
    degrees, scale = known["degrees"], known["cost_scale"]
    mean = (np.vecdot(context, truth) - known["cost"]) / (scale * known["width"])
    assert kstest(student.cdf(mean, degrees), "uniform").pvalue > LEVEL
    assert kstest(invgamma.cdf(variance, degrees / 2, scale=scale**2 * degrees / 2), "uniform").pvalue > LEVEL
    outcome = np.vecdot(context, truth) + np.sqrt(variance) * rng.standard_normal(number)
    place = (outcome - known["cost"]) / (scale * np.sqrt(1 + known["width"] ** 2))
    assert kstest(student.cdf(place, degrees), "uniform").pvalue > LEVEL


def test_a_posterior_that_is_too_narrow_is_caught():
    rng, _, truth, policy, state = worlds(4000, 10)
    context = rng.standard_normal((4000, DIM)) / 2
    known = at(policy, state, context).numbers
    mean = (np.vecdot(context, truth) - known["cost"]) / (0.7 * known["cost_scale"] * known["width"])
    assert kstest(student.cdf(mean, known["degrees"]), "uniform").pvalue < LEVEL


@pytest.mark.parametrize("rounds", [0, 10])
def test_on_average_over_the_prior_the_dose_breaks_the_threshold_no_more_than_guaranteed(rounds, count):
    number = count(20_000, 200_000)
    rng, variance, truth, policy, state = worlds(number, rounds, seed=1)
    policy = bound_to(policy, violation_risk=0.1, threshold=0.05)
    context = rng.standard_normal((number, DIM)) / 2
    largest = at(policy, state, context).largest
    cost = largest * (np.vecdot(context, truth) + np.sqrt(variance) * rng.standard_normal(number))
    bound = largest < 1.0
    broken = int((cost > 0.05)[bound].sum())
    assert binomtest(broken, int(bound.sum()), 0.1, alternative="two-sided").pvalue > LEVEL, "exactly δ where it binds"


def test_the_sum_of_squares_is_the_textbooks():
    rng = np.random.default_rng(3)
    contexts, costs = rng.standard_normal((30, DIM)), rng.standard_normal(30)
    policy = bound_to(hp_bayes())
    state = policy.init()
    for place, (context, cost) in enumerate(zip(contexts, costs, strict=True)):
        learn(policy, state, place, context, cost, 1.0)
    gram, rhs = RIDGE * np.eye(DIM) + contexts.T @ contexts, contexts.T @ costs
    assert state.cost_loss == pytest.approx(costs @ costs - rhs @ np.linalg.solve(gram, rhs), rel=1e-12)


def test_the_reward_is_drawn_from_its_posterior():
    rng, _, _, policy, state = worlds(1, 12)
    found = at(policy, state, np.array([[0.3, 0.2, 0.4]]), coin=rng.random(5000))
    known = found.numbers
    scale = float(known["reward_scale"][0] * known["width"][0])
    posterior = student(float(known["degrees"][0]))
    assert kstest((found.index - known["reward"][0]) / scale, posterior.cdf).pvalue > LEVEL


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
    with pytest.raises(InvalidInput, match="runs only in simulations"):
        Agent(2, make_spec(), policy=policy)
