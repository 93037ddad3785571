"""The e-processes against outside code: SciPy's densities, cvxpy's least squares, moments round by round."""

import cvxpy
import numpy as np
import pytest
from scipy.stats import binomtest, multivariate_normal

from safedial.simulation.world import NOISES, SUB_GAUSSIAN
from safedial.tools.evidence import (
    SPREADS,
    average,
    bounded_least_squares,
    least_squares,
    marks,
    mixture,
    running,
    spread,
)


def sample(seed, rows=40, size=4):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, size))
    return features, features @ rng.standard_normal(size) + 0.5 * rng.standard_normal(rows)


def test_the_mixture_is_a_ratio_of_gaussian_densities():
    features, outcomes = sample(1)
    prior, noise = np.array([0.5, 1.0, 2.0, 0.1]), 0.7
    moments = running(features, outcomes, np.array([len(outcomes)]))
    covariance = noise**2 * np.eye(40) + (features * prior**2) @ features.T
    top = multivariate_normal(np.zeros(40), covariance).logpdf(outcomes)
    coef = np.linalg.lstsq(features[:, :2], outcomes, rcond=None)[0]
    bottom = multivariate_normal(features[:, :2] @ coef, noise**2 * np.eye(40)).logpdf(outcomes)
    null = least_squares(running(features[:, :2], outcomes, np.array([40])))
    assert mixture(moments, prior, noise, null)[0] == pytest.approx(top - bottom, rel=1e-9)


def test_bounded_least_squares_is_a_lower_bound_and_close():
    features, outcomes = sample(2)
    coef = cvxpy.Variable(4)
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(outcomes - features @ coef)), [cvxpy.norm(coef) <= 0.8])
    exact = problem.solve(solver="CLARABEL")
    found = bounded_least_squares(running(features, outcomes, np.array([40])), 0.8)[0]
    assert found <= exact * (1 + 1e-7)
    assert found >= 0.99 * exact
    free = bounded_least_squares(running(features, outcomes, np.array([40])), 100.0)[0]
    assert free == pytest.approx(least_squares(running(features, outcomes, np.array([40])))[0])


def test_least_squares_does_not_depend_on_the_features_units():
    features, outcomes = sample(6)
    expected = np.linalg.lstsq(features, outcomes, rcond=None)[1][0]
    for units in ([1, 1, 1, 1], [1e6, 1, 1e-4, 1]):
        found = least_squares(running(features * units, outcomes, np.array([40])))[0]
        assert found == pytest.approx(expected, rel=1e-9)
    doubled = np.hstack([features, features[:, :1]])
    assert least_squares(running(doubled, outcomes, np.array([40])))[0] == pytest.approx(expected, rel=1e-9)


def test_moments_add_up_round_by_round():
    features, outcomes = sample(3)
    used = np.arange(40) % 3 > 0
    rounds = list(zip(features[used], outcomes[used], strict=True))
    sums = (np.outer(row, row) for row, _ in rounds), (row * y for row, y in rounds), (y * y for _, y in rounds)
    at_once = running(features, outcomes, marks(40, 7), used)
    for one, many in zip((*map(sum, sums), len(rounds)), at_once, strict=True):
        np.testing.assert_allclose(one, many[-1], rtol=1e-12)
    assert marks(40, 7).tolist()[-1] == 40
    assert marks(3).tolist() == [1, 2, 3]


@pytest.mark.parametrize("noise", SUB_GAUSSIAN)
def test_evidence_for_wider_noise_reaches_a_level_no_more_often_than_that(noise, count):
    rng, runs = np.random.default_rng(4), count(400, 5000)
    reached = 0
    for _ in range(runs):
        rows = rng.standard_normal((100, 2))
        outcomes = rows @ [1.0, -2.0] + NOISES[noise](rng, 100)
        reached += bool(spread(running(rows, outcomes, marks(100)), 1.0).max() >= np.log(10.0))
    assert binomtest(reached, runs, 0.1, alternative="greater").pvalue > 1e-6


def test_the_bet_on_width_has_mean_one_for_gaussian_noise():
    squares = np.random.default_rng(5).standard_normal(2_000_000) ** 2
    for share in SPREADS[:3]:
        bets = np.exp(share * squares / 2.0) * np.sqrt(1.0 - share)
        assert bets.mean() == pytest.approx(1.0, abs=6 * bets.std() / np.sqrt(bets.size))


def test_an_average_of_evidence_does_not_overflow():
    assert average([1e4, 0.0]) == pytest.approx(1e4 - np.log(2.0))
