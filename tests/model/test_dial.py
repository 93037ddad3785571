import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedial import Dial, Features, InvalidInput
from safedial.model.dial import real


@given(st.floats(0, 1), st.floats(-100, 100), st.floats(0.001, 1000))
def test_a_setting_never_stands_for_more_than_its_action(action, low, span):
    dial = Dial(low=low, high=low + span)
    assert dial.action(dial.setting(action)) <= action
    assert dial.action(dial.setting(action)) >= action - 1e-9


def test_a_setting_near_0_on_a_dial_that_begins_below_it_is_found_in_few_steps():
    dial = Dial(low=-50.0, high=50.0)
    assert -1e-12 < dial.setting(0.5) <= 0.0


@given(st.floats(0, 1))
def test_a_level_is_never_above_the_setting_it_replaces(action):
    dial = Dial(low=0, high=20, levels=(2, 5, 10, 20))
    setting = dial.setting(action)
    assert setting in (0.0, 2.0, 5.0, 10.0, 20.0)
    assert setting <= action * 20


@given(st.floats(-1e6, 1e6), st.integers(-8, 0))
def test_words_are_rounded_down_to_four_digits(setting, low):
    shown = float(Dial(low=-1e7, high=1e7).text(setting))
    assert shown <= setting
    assert shown == pytest.approx(setting, rel=2e-3, abs=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 1, "high": 1},
        {"low": math.nan},
        {"high": "20"},
        {"levels": []},
        {"levels": [0.5, 2]},
        {"levels": [math.inf]},
        {"low": -1e308, "high": 1e308},
        {"levels": 20},
        {"unit": None},
    ],
)
def test_a_dial_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidInput):
        Dial(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"names": ()},
        {"names": "ab"},
        {"names": ("a", "a")},
        {"names": ("a",), "center": (1, 2)},
        {"names": ("a",), "scale": (0,)},
        {"names": ("a",), "scale": (math.nan,)},
        {"names": None},
        {"names": (1, 2)},
        {"names": ("a",), "center": 5},
        {"names": ("a",), "intercept": "no"},
    ],
)
def test_features_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Features(**wrong)


@pytest.mark.parametrize(
    ("value", "words"),
    [("9,8", "must be a number, not text; write a decimal point, not a comma"), ("9.8", "must be a number, not text$")],
)
def test_text_in_place_of_a_number_is_refused_as_text(value, words):
    with pytest.raises(InvalidInput, match=f"dose = '{value}': {words}"):
        real("dose", value)
