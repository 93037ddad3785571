"""Noise margins: each is the least its assumption gives, and says what that is."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from safedial.bounds.margin import margin_assumptions, noise_margin, round_risk, subgaussian_spec, tail_factor
from safedial.bounds.rounding import rounded_spec
from tests.conftest import make_spec

BOUNDED = {"margin": "bounded", "noise_low": -1.0, "noise_high": 2.0}


@pytest.mark.parametrize("risk", [1e-9, 0.001, 0.01, 0.2, 0.6])
def test_the_gaussian_margin_is_the_normal_quantile_and_never_above_the_subgaussian_one(risk):
    gaussian = make_spec(violation_risk=risk, margin="gaussian", cost_noise=0.7)
    assert noise_margin(gaussian, 1.0) == pytest.approx(0.7 * max(norm.isf(risk), 0.0), rel=1e-13)
    assert noise_margin(gaussian, 1.0) <= noise_margin(make_spec(violation_risk=risk, cost_noise=0.7), 1.0)


def test_the_gaussian_margin_spends_the_joint_risk_and_broadcasts():
    joint = make_spec(margin="gaussian", guarantee="joint")
    rounds = np.array([1.0, 5.0])
    np.testing.assert_allclose(tail_factor(joint, rounds), norm.isf(round_risk(joint, rounds)), rtol=1e-13)
    grid = make_spec(margin="gaussian", violation_risk=[0.01, 0.1])
    np.testing.assert_allclose(grid.tail, norm.isf([0.01, 0.1]), rtol=1e-13)
    on_device = make_spec(margin="gaussian", violation_risk=jnp.array([0.01, 0.1]))
    np.testing.assert_allclose(np.asarray(on_device.tail), norm.isf([0.01, 0.1]), rtol=1e-12)


@pytest.mark.parametrize(("cost_noise", "high", "expected"), [
    (0.1, 2.0, 0.1 * math.sqrt(2 * math.log(100))),
    (9.0, 2.0, 2.0),
    (9.0, 50.0, 9.0 * math.sqrt(2 * math.log(100))),
])  # fmt: skip
def test_the_bounded_margin_is_the_least_of_the_range_hoeffding_and_the_constant(cost_noise, high, expected):
    spec = make_spec(cost_noise=cost_noise, **(BOUNDED | {"noise_high": high}))
    assert noise_margin(spec, 1.0) == pytest.approx(expected)


def test_hoeffding_counts_where_the_range_is_lopsided():
    spec = make_spec(cost_noise=9.0, violation_risk=0.5, **(BOUNDED | {"noise_low": -0.1, "noise_high": 2.0}))
    assert noise_margin(spec, 1.0) == pytest.approx(1.05 * math.sqrt(2 * math.log(2)))


@pytest.mark.parametrize("risk", [0.01, 0.2])
def test_cantelli_is_attained_by_two_points(risk):
    """A variable on two points with variance v reaches the margin with probability exactly δ: nothing less will do."""
    variance = 0.0025
    spec = make_spec(violation_risk=risk, margin_risk=0.01, cost_noise=9.0, **BOUNDED)
    margin = noise_margin(spec, 1.0, variance)
    low = -variance / margin
    share = -low / (margin - low)
    assert share * margin + (1 - share) * low == pytest.approx(0.0, abs=1e-15)
    assert share * margin**2 + (1 - share) * low**2 == pytest.approx(variance)
    assert share == pytest.approx(risk)


def test_what_is_learned_of_the_noise_adds_its_risk_to_the_guarantee():
    assert make_spec(**BOUNDED).guaranteed_risk == pytest.approx(0.02)
    learned = make_spec(**BOUNDED, margin_risk=0.005)
    assert learned.guaranteed_risk == pytest.approx(0.025)
    assert "variance" in margin_assumptions(learned)[1]


def test_the_spec_without_its_margin_is_the_plain_one():
    assert subgaussian_spec(make_spec(**BOUNDED, margin_risk=0.1)) == make_spec()
    plain = make_spec()
    assert subgaussian_spec(plain) is plain


def test_rounding_moves_the_range_outwards():
    moved = rounded_spec(make_spec(**BOUNDED))
    assert moved.noise_low < -1.0
    assert moved.noise_high > 2.0
