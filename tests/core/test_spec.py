import numpy as np
import pytest

from safedial import InvalidInput, SafetySpec
from safedial.core.promise import PROMISES
from tests.conftest import make_spec


@pytest.mark.parametrize(
    "name", ["threshold", "reward_noise", "cost_noise", "coefficient_bound", "context_bound", "ridge"]
)
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1", True, None, [0.5, -1.0]])
def test_a_number_that_must_be_positive_is_refused_by_name(name, value):
    if name == "ridge" and value is None:  # left open
        assert make_spec(ridge=None).ridge == 1.0
        return
    with pytest.raises(InvalidInput, match=name):
        make_spec(**{name: value})


@pytest.mark.parametrize("name", ["violation_risk", "estimation_risk"])
@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, None, float("nan")])
def test_a_risk_outside_the_open_unit_interval_is_refused(name, value):
    with pytest.raises(InvalidInput, match=name):
        make_spec(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 5e-324),
        ("cost_noise", 1e160),
        ("ridge", 1e-61),
        ("cost_sensor_noise", 1e-165),
        ("violation_risk", 1e-320),
        ("promise", "always"),
        ("threshold_on", "guess"),
        ("sensor_dependent", "yes"),
        ("reward_sensor_noise", -1),
        ("cost_sensor_noise", float("inf")),
    ],
)
def test_other_fields_are_checked_at_the_door(name, value):
    with pytest.raises(InvalidInput, match=name):
        make_spec(**{name: value})


def test_total_risk_splits_itself_and_stands_alone():
    spec = make_spec(violation_risk=None, estimation_risk=None, total_risk=0.05)
    assert spec.violation_risk + spec.estimation_risk == pytest.approx(0.05, abs=1e-17)
    assert 0 < spec.estimation_risk < spec.violation_risk
    with pytest.raises(InvalidInput, match="total_risk"):
        make_spec(total_risk=0.05)
    with pytest.raises(InvalidInput, match="total_risk"):
        make_spec(violation_risk=None, estimation_risk=None, total_risk=1.0)


def test_a_missing_risk_names_the_way_out():
    with pytest.raises(InvalidInput, match="total_risk"):
        make_spec(violation_risk=None)


def test_a_spec_survives_being_written_as_plain_values():
    spec = make_spec(threshold=[0.1, 0.2], promise="joint", cost_sensor_noise=0.1)
    fields = spec.to_dict()
    assert fields["threshold"] == [0.1, 0.2]
    again = SafetySpec.from_dict(fields)
    assert again.to_dict() == fields


def test_unknown_and_missing_fields_are_named():
    with pytest.raises(InvalidInput, match="tau"):
        SafetySpec.from_dict({**make_spec().to_dict(), "tau": 1})
    with pytest.raises(InvalidInput, match=r"treshold.*did you mean threshold\?"):
        SafetySpec.from_dict({**make_spec().to_dict(), "treshold": 1})
    fields = make_spec().to_dict()
    del fields["cost_noise"]
    with pytest.raises(InvalidInput, match="cost_noise"):
        SafetySpec.from_dict(fields)


def test_arrays_keep_their_type_and_whole_numbers_become_floats():
    given = np.array([0.1, 0.2])
    assert make_spec(threshold=given).threshold is given
    assert make_spec(threshold=[1, 2]).threshold.dtype == float
    assert isinstance(make_spec(threshold=np.float32(0.5)).threshold, float)


def test_every_promise_is_told_in_one_sentence():
    for promise in PROMISES.values():
        assert ("Nothing is proved" in promise.in_brief) is not bool(promise.proved)
