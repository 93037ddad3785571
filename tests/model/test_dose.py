import copy

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedial import Agent, Dose, InvalidInput, hill, identity, logistic, power, tabulated
from safedial.model import dose
from safedial.model import dose as curve
from safedial.model.dose import DoseCurve, as_dose, curve_from_dict
from tests.conftest import make_spec

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


def test_built_in_curves_are_written_read_copied_and_keep_the_rules_that_others_must_keep():
    for made in CURVES:
        again = curve_from_dict(made.to_dict())
        assert again.action(0.3) == made.action(0.3) == copy.deepcopy(made).action(0.3)
        pair = Dose.from_dict(Dose(identity(), made).to_dict())
        assert pair.cost.name == made.name
        assert pair.is_identity == (made.name == "identity")
        assert own(**(made._asdict() | {"name": "as if mine"})).heights() == made.heights()
    assert set(curve.BUILT_IN) == set(dose.CURVES)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: power(0.0), "exponent"),
        (lambda: power(float("nan")), "exponent"),
        (lambda: power(True), "exponent"),
        (lambda: hill(-1.0), "ed50"),
        (lambda: hill(0.5, 0.0), "slope"),
        (lambda: hill(1e-200, 10.0), "ed50"),
        (lambda: hill(10, 400), "ed50"),
        (lambda: logistic(0.5, 1e4), "steepness"),
        (lambda: logistic("a", 3.0), "midpoint"),
        (lambda: logistic(50.0, 100.0), "midpoint"),
        (lambda: tabulated([0, 1], [0, 0.5, 1]), "equal length"),
        (lambda: tabulated([0, 0.5, 1], [0, 0.5, 0.5]), "strictly increasing"),
        (lambda: tabulated([0, 0.5, 1], [0.1, 0.5, 1]), "start at 0"),
        (lambda: tabulated([0, float("nan"), 1], [0, 0.5, 1]), "finite"),
        (lambda: tabulated(["a"], [1]), "numbers"),
        (lambda: as_dose("hill"), "dose"),
        (lambda: as_dose(Dose(identity(), identity)), "dose"),
        (lambda: curve_from_dict({"curve": "cubic"}), "cubic"),
        (lambda: curve_from_dict({"curve": "power", "slope": 1}), "slope"),
    ],
)
def test_a_curve_that_is_not_one_is_refused(make, rule):
    with pytest.raises(InvalidInput, match=rule):
        make()


def own(effect=lambda action: action * action, action=lambda intensity: intensity**0.5 * (1 - 1e-15), **more):
    return DoseCurve(**({"name": "mine", "parameters": {}, "effect": effect, "action": action} | more))


def spike(action):
    return 0.9 if 0.3 < action < 0.31 else action


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        ({"effect": lambda a: a, "action": lambda z: 1.001 * z}, "round the inverse down"),
        ({"effect": lambda a: a, "action": lambda z: -z}, "must lie between 0 and 1"),
        ({"effect": lambda a: a, "action": lambda z: float("nan")}, "must lie between 0 and 1"),
        ({"effect": lambda a: a + 0.1}, r"effect\(0\) = 0.1"),
        ({"effect": lambda a: 0.9 * a}, r"effect\(1\) = 0.9"),
        ({"effect": spike, "action": lambda z: z / 9}, "must not fall"),
        ({"effect": lambda a: float("nan") if 0 < a < 1 else a}, "must not fall"),
        ({"effect": lambda a: "much"}, "is not a number"),
        ({"action": lambda z: 1 / (z - z)}, "is not a number"),
        ({"action": None}, "is not a number"),
        ({"name": "identity"}, "name"),
        ({"name": ""}, "name"),
        ({"parameters": {"at": spike}}, "parameters"),
        ({"parameters": {"curve": "power"}}, "parameters"),
        ({"parameters": None}, "parameters"),
        ({"error_units": -1.0}, "error_units"),
        ({"error_units": 1e30}, "error_units"),
    ],
)
def test_a_curve_of_ones_own_that_breaks_a_rule_is_refused(broken, rule):
    """With the first one an agent said "certified", and 7.6 % of the costs exceeded the threshold."""
    with pytest.raises(InvalidInput, match=rule):
        own(**broken)
    with pytest.raises(InvalidInput, match=rule):
        own()._replace(**broken)


def test_a_curve_of_ones_own_that_keeps_the_rules_is_one():
    curve = own(parameters={"exponent": 2})
    assert curve.is_own
    assert not power(2.0).is_own
    assert as_dose(curve).cost.to_dict() == {"curve": "mine", "exponent": 2}
    decision = Agent(2, make_spec(), dose=curve).ask([0.6, 0.3])
    assert decision.intensity <= decision.safe_intensity
    rounded = own(lambda a: a + 0.0, lambda z: min(1.0, z * (1 + 2.0**-52)), error_units=4.0)
    assert rounded.action(0.3) > 0.3 >= rounded.effect(0.3)
