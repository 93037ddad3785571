import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from safedial.bounds.margin import round_risk, tail_factor
from safedial.bounds.safe_set import largest_safe_intensity, safe_set
from tests.conftest import make_spec
from tests.oracles import feasible_end

numbers = st.floats(-20, 20)
margins = st.floats(0.001, 20)


@given(numbers, margins, st.floats(0.001, 10))
def test_without_sensor_noise_it_is_both_cases_of_the_papers_feasible_set(upper, margin, threshold):
    assert largest_safe_intensity(upper, margin, threshold=threshold).intensity == pytest.approx(
        feasible_end(upper, margin, threshold), rel=1e-15
    )


def load(intensity, upper, margin, sensor):
    return intensity * mpf(upper) + mp.sqrt((intensity * mpf(margin)) ** 2 + mpf(sensor) ** 2)


@given(numbers, margins, st.floats(0.001, 10), st.floats(0.0001, 10))
@example(-1.0, 2.0, 1.0, 1.0)
@example(-1.0, 2.0, 1.0, 1.0 - 1e-15)
@example(-2.0, 2.0, 1.0, 0.5)
@example(0.0, 3.0, 0.5, 0.5)
def test_with_independent_sensor_noise_it_is_the_largest_z_that_keeps_the_inequality(upper, margin, threshold, sensor):
    safe = largest_safe_intensity(upper, margin, threshold=threshold, sensor_margin=sensor)
    assert safe.certified == (sensor <= threshold)
    if not safe.certified:
        assert safe.intensity == 0.0
        return
    with mp.workdps(50):
        slack = mpf(threshold) * mpf("1e-13")
        assert load(mpf(safe.intensity) * (1 - mpf("1e-13")), upper, margin, sensor) <= threshold + slack
        if safe.intensity < 1.0 and sensor < threshold * (1 - 1e-6):
            assert load(mpf(safe.intensity) * (1 + mpf("1e-6")), upper, margin, sensor) > threshold


def test_when_sensor_noise_fills_the_threshold_a_negative_cost_does_not_open_every_dose():
    safe = largest_safe_intensity(-1.0, 2.0, threshold=1.0, sensor_margin=1.0)
    assert safe.intensity == pytest.approx(2 / 3)
    assert largest_safe_intensity(1.0, 2.0, threshold=1.0, sensor_margin=1.0).intensity == 0.0
    assert largest_safe_intensity(0.0, 3.0, threshold=0.5, sensor_margin=0.5).intensity == 0.0
    assert largest_safe_intensity(0.0, 3.0, threshold=-0.5) == (0.0, False)


@given(numbers, margins, st.floats(0.001, 10), st.floats(0.0001, 10))
def test_with_dependent_sensor_noise_both_margins_add(upper, margin, threshold, sensor):
    safe = largest_safe_intensity(upper, margin, threshold=threshold, sensor_margin=sensor, sensor_dependent=True)
    assert safe.certified == (sensor <= threshold)
    if safe.certified:
        assert safe.intensity * (upper + margin) <= (threshold - sensor) * (1 + 1e-15) + 1e-300


@given(numbers, margins, st.floats(0.01, 10))
def test_tiny_sensor_noise_changes_little(upper, margin, threshold):
    assume(abs(upper + margin) > 0.01)
    plain = largest_safe_intensity(upper, margin, threshold=threshold).intensity
    tiny = largest_safe_intensity(upper, margin, threshold=threshold, sensor_margin=threshold * 1e-9).intensity
    assert tiny == pytest.approx(plain, rel=1e-6)


def test_a_negative_threshold_certifies_nothing_and_a_zero_one_only_zero_or_all():
    assert largest_safe_intensity(-5.0, 1.0, threshold=-0.1) == (0.0, False)
    assert largest_safe_intensity(0.5, 1.0, threshold=0.0) == (0.0, True)
    assert largest_safe_intensity(-5.0, 1.0, threshold=0.0) == (1.0, True)
    assert largest_safe_intensity(0.5, 1.0, threshold=-1.0, sensor_margin=0.2) == (0.0, False)


def test_the_baseline_cost_is_taken_off_the_threshold():
    spec = make_spec()
    assert safe_set(0.2, spec, round=1, baseline_cost=0.3).intensity == pytest.approx(
        safe_set(0.2, make_spec(threshold=0.2), round=1).intensity
    )
    assert not safe_set(0.2, spec, round=1, baseline_cost=0.6).certified


def test_what_the_threshold_limits_decides_whether_the_sensor_has_a_margin():
    sensed = make_spec(cost_sensor_noise=0.05)
    true = make_spec(cost_sensor_noise=0.05, threshold_on="true")
    plain = make_spec()
    assert safe_set(0.2, true, round=1) == safe_set(0.2, plain, round=1)
    assert safe_set(0.2, sensed, round=1).intensity < safe_set(0.2, plain, round=1).intensity
    dependent = make_spec(cost_sensor_noise=0.05, sensor_dependent=True)
    assert safe_set(0.2, dependent, round=1).intensity < safe_set(0.2, sensed, round=1).intensity


def test_the_joint_guarantee_spends_its_risk_over_all_rounds():
    joint = make_spec(guarantee="joint")
    rounds = np.arange(1.0, 100_001.0)
    assert round_risk(joint, rounds).sum() <= joint.violation_risk
    assert round_risk(joint, rounds).sum() == pytest.approx(joint.violation_risk, rel=1e-4)
    assert tail_factor(joint, 10.0) > tail_factor(joint, 1.0) > tail_factor(make_spec(), 1.0)
    assert tail_factor(make_spec(), 7.0) == pytest.approx(math.sqrt(2 * math.log(100)))
    assert tail_factor(joint, 3.0) == pytest.approx(math.sqrt(2 * math.log(math.pi**2 * 9 / (6 * 0.01))))


def test_on_expectation_drops_the_margins():
    spec = make_spec(cost_sensor_noise=0.1)
    assert safe_set(2.0, spec, round=1, on_expectation=True).intensity == 0.25


@pytest.mark.parametrize("sensor", [0.0, 0.2])
def test_floats_numpy_and_jax_agree_and_broadcast(sensor):
    uppers = np.array([-9.0, -0.5, 0.0, 0.4, 3.0])
    thresholds = np.array([[0.1], [0.5], [-1.0]])
    margin = sensor * np.ones(()) if sensor else 0.0
    on_numpy = largest_safe_intensity(uppers, 1.0, threshold=thresholds, sensor_margin=margin)
    assert on_numpy.intensity.shape == (3, 5)
    on_jax = largest_safe_intensity(
        jnp.asarray(uppers),
        1.0,
        threshold=jnp.asarray(thresholds),
        sensor_margin=jnp.asarray(sensor) if sensor else 0.0,
    )
    np.testing.assert_allclose(np.asarray(on_jax.intensity), on_numpy.intensity, atol=1e-15)
    for row, threshold in enumerate(thresholds[:, 0]):
        for column, upper in enumerate(uppers):
            alone = largest_safe_intensity(float(upper), 1.0, threshold=float(threshold), sensor_margin=sensor)
            assert alone.intensity == pytest.approx(on_numpy.intensity[row, column], abs=1e-15)
