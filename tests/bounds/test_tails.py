"""The evidence that noise is larger than stated."""

import math

import numpy as np
import pytest

from safedial.bounds import monitor


def with_one_more(total, residual, slack, noise):
    return monitor.observe(monitor.expect([total])[0], residual, slack, noise)


@pytest.mark.parametrize("draw", ["normal", "signs", "uniform"])
def test_noise_as_stated_seldom_gives_evidence(draw, count):
    """P(evidence ever ≥ 20) ≤ 0.05, so in 2000 runs 150 or more with probability below 1e-6 (binomial)."""
    rng = np.random.default_rng(5)
    shape = (2000, count(100, 400))
    draws = {
        "normal": lambda: rng.standard_normal(shape),
        "signs": lambda: rng.choice([-1.0, 1.0], shape),
        "uniform": lambda: rng.uniform(-math.sqrt(3), math.sqrt(3), shape),
    }
    noise = draws[draw]()
    gains = 0.5 * math.log1p(-monitor.SHARE) + 0.5 * monitor.SHARE * noise**2
    assert np.mean(np.max(np.cumsum(gains, axis=1), axis=1) >= math.log(20)) < 0.075
    total = 0.0
    for value in noise[0]:
        total = with_one_more(total, value, 0.0, 1.0)
    assert total == pytest.approx(gains[0].sum())


def test_noise_twice_as_large_as_stated_is_found_within_a_hundred_rounds():
    rng = np.random.default_rng(6)
    for _ in range(50):
        total = 0.0
        for value in 2.0 * rng.standard_normal(100):
            total = with_one_more(total, value, 0.3, 1.0)
        assert monitor.tails_alarm(total)


def test_what_estimation_may_explain_is_no_evidence():
    assert with_one_more(0.0, 1.0, 1.0, 1.0) == pytest.approx(0.5 * math.log(0.5), rel=1e-12)
    assert not monitor.tails_alarm(with_one_more(0.0, 1.0, 1.0, 1.0))
    assert with_one_more(699.9, 1e200, 0.0, 1.0) == monitor.LARGEST_LOG
