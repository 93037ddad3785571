import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, truncnorm

from safedial.simulation.world import CUT, NOISES, SUB_GAUSSIAN, quantile

TILTS = np.concatenate([np.linspace(0.01, 6, 200), [10.0, 20.0]])


def log_mgf(name, tilt):
    if name == "gaussian":
        return tilt**2 / 2
    if name == "uniform":
        return np.log(np.sinh(np.sqrt(3) * tilt) / (np.sqrt(3) * tilt))
    if name == "rademacher":
        return np.log(np.cosh(tilt))
    scale = 1 / truncnorm.std(-CUT, CUT)
    value, _ = quad(lambda x: np.exp(tilt * x) * truncnorm.pdf(x / scale, -CUT, CUT) / scale, -CUT * scale, CUT * scale)
    return np.log(value)


@pytest.mark.parametrize("name", SUB_GAUSSIAN)
def test_the_sub_gaussian_constant_is_one(name):
    for tilt in TILTS:
        assert log_mgf(name, tilt) <= tilt**2 / 2 * (1 + 1e-9)
    assert log_mgf(name, 0.01) == pytest.approx(0.01**2 / 2, rel=1e-3), "and no smaller constant would do"


@pytest.mark.parametrize("name", sorted(NOISES))
@pytest.mark.parametrize("probability", [0.3, 0.8, 0.95, 0.99])
def test_the_quantile_is_that_of_the_draws(name, probability):
    draws = NOISES[name](np.random.default_rng(1), 200_000)
    level = float(quantile(name, probability))
    # Six standard errors: level about 1e-8.
    assert (draws <= level).mean() >= probability - 6 * np.sqrt(0.25 / draws.size)
    assert (draws < level - 1e-12).mean() <= probability + 6 * np.sqrt(0.25 / draws.size)


@pytest.mark.parametrize("name", SUB_GAUSSIAN)
def test_draws_have_mean_zero_variance_one_and_the_right_tail(name):
    draws = NOISES[name](np.random.default_rng(0), 200_000)
    # Six standard errors: level about 1e-8.
    assert abs(draws.mean()) < 6 / np.sqrt(draws.size)
    assert abs((draws**2).mean() - 1) < 6 * np.sqrt(2 / draws.size)
    tail = {"gaussian": norm.sf(1.5), "uniform": 0.5 - 1.5 / np.sqrt(12), "rademacher": 0.0}.get(name)
    if tail is not None:
        assert abs((draws > 1.5).mean() - tail) < 6 * np.sqrt(0.25 / draws.size)
    else:
        assert np.abs(draws).max() <= CUT / truncnorm.std(-CUT, CUT) * (1 + 1e-12)
