import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedial import Dose, InvalidInput, hill, identity, logistic, power, tabulated
from safedial.core.dose import as_dose, curve_from_dict

CURVES = [
    identity(),
    power(0.5),
    power(3.0),
    hill(0.5),
    hill(0.2, 4.0),
    hill(3.0, 0.7),
    hill(0.02, 10.0),
    power(200.0),
    logistic(0.5, 8.0),
    logistic(0.5, 80.0),
    logistic(-1.0, 60.0),
    logistic(0.1, 30.0),
    logistic(-1.0, 2.0),
    tabulated([0, 0.2, 0.6, 1], [0, 0.1, 0.7, 1]),
    tabulated([0, 0.5, 0.50001, 1], [0, 0.001, 0.999, 1]),
]
IDS = [f"{curve.name}-{number}" for number, curve in enumerate(CURVES)]


@pytest.mark.parametrize("curve", CURVES, ids=IDS)
def test_a_curve_runs_from_0_to_1_and_increases(curve):
    actions = np.linspace(0.0, 1.0, 2001)
    effects = curve.effect(actions)
    assert effects[0] == 0.0
    assert effects[-1] == 1.0
    assert np.all(np.diff(effects) >= -(2.0**-52)), "up to rounding on a flat part"
    assert np.all(np.diff(curve.effect(np.array([0.0, 0.1, 0.6, 1.0]))) >= 0.0)


@pytest.mark.parametrize("curve", CURVES, ids=IDS)
@given(intensity=st.floats(0.0, 1.0))
def test_the_inverse_is_rounded_down_and_good_to_1e_12(curve, intensity):
    action = float(curve.action(intensity))
    reached = float(curve.effect(action))
    assert reached <= intensity
    assert reached >= intensity - 1e-12 or float(curve.effect(min(1.0, action + 1e-12))) >= intensity


@pytest.mark.parametrize("curve", CURVES, ids=IDS)
def test_floats_numpy_and_jax_agree(curve):
    intensities = np.linspace(0.0, 1.0, 57)
    on_numpy = curve.action(intensities)
    np.testing.assert_allclose(np.asarray(curve.action(jnp.asarray(intensities))), on_numpy, atol=1e-12)
    np.testing.assert_allclose([float(curve.action(float(z))) for z in intensities], on_numpy, atol=1e-12)
    np.testing.assert_allclose(np.asarray(curve.effect(jnp.asarray(on_numpy))), curve.effect(on_numpy), atol=1e-14)


@pytest.mark.parametrize("curve", CURVES, ids=IDS)
def test_a_curve_survives_being_written(curve):
    again = curve_from_dict(curve.to_dict())
    assert again.action(0.3) == curve.action(0.3)
    dose = Dose.from_dict(Dose(identity(), curve).to_dict())
    assert dose.cost.name == curve.name
    assert dose.is_identity == (curve.name == "identity")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: power(0.0), "exponent"),
        (lambda: power(float("nan")), "exponent"),
        (lambda: power(True), "exponent"),
        (lambda: hill(-1.0), "ed50"),
        (lambda: hill(0.5, 0.0), "slope"),
        (lambda: hill(1e-200, 10.0), "ed50"),
        (lambda: hill(10.0, 400.0), "ed50"),
        (lambda: hill(10, 400), "ed50"),
        (lambda: logistic(0.5, -1.0), "steepness"),
        (lambda: logistic(0.5, 1e4), "steepness"),
        (lambda: logistic(float("inf"), 1.0), "midpoint"),
        (lambda: logistic(50.0, 100.0), "midpoint"),
        (lambda: tabulated([0, 1], [0, 0.5, 1]), "equal length"),
        (lambda: tabulated([0, 0.5, 1], [0, 0.5, 0.5]), "strictly increasing"),
        (lambda: tabulated([0, 0.5, 1], [0.1, 0.5, 1]), "start at 0"),
        (lambda: tabulated([0, float("nan"), 1], [0, 0.5, 1]), "finite"),
        (lambda: tabulated(["a"], [1]), "numbers"),
        (lambda: logistic("a", 3.0), "midpoint"),
        (lambda: as_dose("hill"), "dose"),
        (lambda: curve_from_dict({"curve": "cubic"}), "cubic"),
        (lambda: curve_from_dict({"curve": "power", "slope": 1}), "slope"),
    ],
)
def test_a_curve_that_is_not_one_is_refused(make, rule):
    with pytest.raises(InvalidInput, match=rule):
        make()
