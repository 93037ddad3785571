import numpy as np
import pytest

from safedial import InvalidInput, SafetySpec
from safedial.model.guarantee import GUARANTEES
from safedial.model.noise_scale import with_sensor
from tests.conftest import make_spec

NAN, INF = float("nan"), float("inf")
BOUNDED = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0}
TOTAL = {"total_risk": 0.1, "violation_risk": None, "estimation_risk": None}
SCALED = {"noise_scale": with_sensor(0.1)}

REFUSED = [
    *(({name: 0}, name) for name in ("threshold", "reward_noise", "cost_noise", "context_bound", "ridge")),
    *(({"coefficient_bound": value}, "coefficient_bound") for value in (-1.0, NAN, INF, "1", True, None, [0.5, -1.0])),
    *(({"violation_risk": value}, "violation_risk") for value in (0, 1, NAN, 1e-320)),
    ({"violation_risk": None}, "total_risk"),  # which would give it
    ({"estimation_risk": 1.5}, "estimation_risk"),
    ({"total_risk": 0.05}, "total_risk"),
    ({**TOTAL, "total_risk": 1.0}, "total_risk"),
    ({"threshold": 5e-324}, "threshold"),
    ({"cost_noise": 1e160}, "cost_noise"),
    ({"ridge": 1e-61}, "ridge"),
    ({"guarantee": "always"}, "guarantee"),
    ({"threshold_on": "guess"}, "threshold_on"),
    ({"sensor_dependent": "yes"}, "sensor_dependent"),
    ({"reward_sensor_noise": -1}, "reward_sensor_noise"),
    ({"cost_sensor_noise": INF}, "cost_sensor_noise"),
    ({"cost_sensor_noise": 1e-165}, "cost_sensor_noise"),
    ({"margin": "normal"}, "margin"),
    ({"margin": "gaussian", "margin_risk": 0.01}, "margin_risk"),
    ({"margin": "gaussian", "guarantee": "conformal"}, "guarantee"),
    ({"margin": "bounded"}, "noise_low"),
    ({**BOUNDED, "noise_low": 0.1}, "noise_low"),
    ({"noise_high": 1.0}, "noise_high"),
    ({**BOUNDED, "cost_sensor_noise": 0.1}, "sensor"),
    ({**BOUNDED, "margin_risk": 2.0}, "margin_risk"),
    ({**BOUNDED, **TOTAL, "margin_risk": 0.1}, "total_risk"),
    ({**SCALED, "cost_sensor_noise": 0.1}, "sensor noise"),
    ({**SCALED, **BOUNDED, "margin_risk": 0.1}, "margin_risk"),
    ({**SCALED, "guarantee": "conformal"}, "guarantee"),
    ({"noise_scale": 3.0}, "noise_scale"),
    ({"noise_scale": {"scale": "cubic"}}, "noise_scale"),
    ({"noise_scale": {"scale": "own_scale", "function": "mine"}}, "again"),
    ({"noise_scale": {"scale": "with_sensor", "share": 1}}, "ratio"),
    ({"noise_scale": {"scale": "with_sensor", "ratio": -1}}, "ratio"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED)
def test_what_a_spec_must_not_state_is_refused_by_name(changes, named):
    with pytest.raises(InvalidInput, match=named):
        make_spec(**changes)


@pytest.mark.parametrize(("changes", "named"), [({"treshold": 1}, "threshold"), ({"cost_noise": ...}, "cost_noise")])
def test_unknown_and_missing_fields_of_a_written_spec_are_named(changes, named):
    fields = make_spec().to_dict() | changes
    with pytest.raises(InvalidInput, match=named):
        SafetySpec.from_dict({name: value for name, value in fields.items() if value is not ...})


def test_total_risk_splits_itself_and_stands_alone():
    spec = make_spec(violation_risk=None, estimation_risk=None, total_risk=0.05)
    assert spec.violation_risk + spec.estimation_risk == pytest.approx(0.05, abs=1e-17)
    assert 0 < spec.estimation_risk < spec.violation_risk


def test_a_spec_survives_being_written_as_plain_values():
    spec = make_spec(threshold=[0.1, 0.2], guarantee="joint", cost_sensor_noise=0.1)
    fields = spec.to_dict()
    assert fields["threshold"] == [0.1, 0.2]
    again = SafetySpec.from_dict(fields)
    assert again.to_dict() == fields


def test_arrays_keep_their_type_and_whole_numbers_become_floats_and_a_ridge_may_be_left_open():
    assert make_spec(ridge=None).ridge == 1.0
    given = np.array([0.1, 0.2])
    assert make_spec(threshold=given).threshold is given
    assert make_spec(threshold=[1, 2]).threshold.dtype == float
    assert isinstance(make_spec(threshold=np.float32(0.5)).threshold, float)


def test_every_guarantee_is_told_in_one_sentence():
    for guarantee in GUARANTEES.values():
        assert ("Nothing is proved" in guarantee.in_brief) is not bool(guarantee.proved)
