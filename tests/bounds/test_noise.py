"""What past rounds say about the noise: values against independent arithmetic, coverage for all rounds at once.

Level: every statistical assertion here fails with probability below 1e-6 if the theorem holds. Seeds are fixed.
"""

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import binomtest

from safedial.bounds import margin
from safedial.bounds.margin import variance_bound
from safedial.policies import estimates
from safedial.policies.estimates import PastRounds
from tests.conftest import make_spec

LEVEL = 1e-6


def test_the_variance_bound_is_its_formula():
    with mp.workdps(40):
        for total, number, largest, failure in [(10.0, 1000, 1.0, 0.01), (0.0, 50, 4.0, 0.1), (900.0, 1000, 1.0, 0.05)]:
            bounds = []
            for eta in margin.ETAS.tolist():
                share = (mpf(failure) / len(margin.ETAS)) ** (mpf(1) / number) * mp.exp(-eta * total / largest / number)
                bounds.append(largest * (1 - share) / (1 - mp.exp(-mpf(eta))))
            exact = min(*bounds, mpf(largest))
            ours = mpf(float(variance_bound(total, number, largest, failure)))
            assert exact <= ours <= exact * (1 + mpf(10) ** -13)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.02])
def test_the_variance_bound_covers_for_all_rounds_at_once(share, count):
    """Noise on two points of mean 0 within [−1, 1]: the hard case, whose square has the largest spread."""
    failure, runs, rounds = 0.1, count(1000, 4000), 2000
    high = 1.0
    low = -share / (1 - share)
    rng = np.random.default_rng(1)
    squares = np.where(rng.random((runs, rounds)) < share, high**2, low**2).cumsum(axis=1)
    variance = share * high**2 + (1 - share) * low**2
    bound = variance_bound(squares, np.arange(1.0, rounds + 1), 1.0, failure)
    missed = int(np.any(bound < variance, axis=1).sum())
    assert binomtest(missed, runs, failure, alternative="greater").pvalue > LEVEL
    assert np.median(bound[:, -1]) < 1.3 * variance + 0.01


def test_looks_keep_the_least_bound_and_are_taken_at_a_tenth_more_rounds(monkeypatch):
    monkeypatch.setattr(estimates, "MEMORY", 150)
    rng = np.random.default_rng(3)
    rounds = PastRounds(1)
    spec = make_spec(margin="bounded", noise_low=-3.0, noise_high=3.0, margin_risk=0.05)
    seen, looks = [], []
    for number in range(400):
        rounds.append(np.ones(1), float(rng.uniform(-1, 1)))
        if rounds.due:
            rounds.look(spec, -0.1, 0.1)
            seen.append(rounds.best)
            looks.append(number + 1)
    assert seen == sorted(seen, reverse=True)
    assert looks[:3] == [64, 71, 79]
    assert rounds.rows.count == 150
    assert isinstance(rounds.best, float)
    assert 1 / 3 < rounds.best < 9.0


def test_rounds_that_teach_nothing_count_for_nothing():
    told = {}
    for name, gaps in (("gaps", True), ("none", False)):
        spec = make_spec(violation_risk=0.3, margin="bounded", noise_low=-1.0, noise_high=1.0, margin_risk=0.1)
        rounds = PastRounds(1, (1,))
        for cost in np.linspace(-0.5, 0.5, 100):
            rounds.append(np.ones((1, 1)), np.array([cost]))
            if gaps:
                rounds.append(np.ones((1, 1)), np.array([np.nan]), np.array([False]))
        rounds.look(spec, np.zeros((1, rounds.rows.count)), np.zeros((1, rounds.rows.count)))
        told[name] = float(rounds.best[0])
    assert told["gaps"] == pytest.approx(told["none"], rel=1e-12)


def test_an_interval_on_either_side_of_zero_counts_with_its_far_end():
    spec = make_spec(margin="bounded", noise_low=-2.0, noise_high=1.0, margin_risk=0.05)
    for lower, upper, far in [(-0.5, -0.3, 0.5), (0.3, 0.5, 0.5), (-9.0, 0.2, 2.0), (-0.1, 9.0, 1.0)]:
        rounds = PastRounds(1)
        for _ in range(100):
            rounds.append(np.ones(1), 0.0)
        rounds.look(spec, -upper, -lower)
        expected = variance_bound(100 * far**2, 100, 4.0, 0.05)
        assert rounds.best == pytest.approx(float(expected), rel=1e-12)
