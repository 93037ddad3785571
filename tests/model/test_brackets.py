"""Growth brackets: what they bound, what they refuse, and their written form."""

import math
import pickle

import numpy as np
import pytest

from safedial import growth
from safedial.errors import InvalidInput
from safedial.model.brackets import GROWTHS, growth_from_dict


def test_a_relative_bound_holds_for_every_power_curve_within_the_bracket():
    rng = np.random.default_rng(1)
    power, tolerance = rng.uniform(0.7, 1.4, 2000), rng.lognormal(0.0, 0.5, 2000)
    setting, at = rng.uniform(0.05, 2.0, (2, 2000))
    cost, there = (3.0 * (place / tolerance) ** power for place in (setting, at))
    bound = growth.relative(0.7, 1.4, floor=0.1).bound(cost, setting, at, threshold=3.0)
    assert np.all(there <= bound * (1 + 1e-12))


@pytest.mark.parametrize("threshold", [-2.0, 1.0])
def test_an_additive_bound_holds_for_curves_that_are_flat_and_then_rise(threshold):
    rng = np.random.default_rng(2)
    level, knee, slope = rng.normal(-1.0, 3.0, 2000), rng.uniform(0.0, 2.0, 2000), rng.uniform(0.5, 3.0, 2000)
    setting, at = rng.uniform(0.0, 3.0, (2, 2000))
    knee = np.where(level > threshold, 0.0, knee)  # above the threshold a cost must rise by at least `low`
    cost, there = (level + slope * np.maximum(place - knee, 0.0) for place in (setting, at))
    bound = growth.additive(0.5, 3.0).bound(cost, setting, at, threshold=threshold)
    assert np.all(there <= bound + 1e-9)


@pytest.mark.parametrize(
    "bracket", [growth.relative(0.5, 2.0, floor=0.2), growth.additive(0, 3), growth.spread(1.2, 0.5)]
)
def test_a_bound_never_falls_with_the_setting_and_is_the_cost_itself_at_the_setting_applied(bracket):
    places = np.linspace(0.0, 3.0, 301)
    for cost in (-1.0, 0.1, 0.9, 1.0, 1.5):
        bound = bracket.bound(cost, 1.0, places, threshold=1.0)
        assert np.all(bound[1:] >= bound[:-1])
        here = bracket.bound(cost, 1.0, 1.0, threshold=1.0)
        assert here == (max(cost, 0.0) if bracket.name == "relative" else cost)


def test_without_a_threshold_no_fall_is_assumed():
    assert growth.relative(1, 1, floor=0).bound(2.0, 1.0, 0.5) == 2.0
    assert growth.relative(1, 1, floor=0).bound(2.0, 1.0, 0.25, threshold=1.0) == 1.0
    assert growth.additive(1, 1).bound(2.0, 1.0, 0.5) == 2.0


def test_a_relative_bracket_says_nothing_of_a_round_given_nothing_and_never_overflows():
    steep = growth.relative(0, 1000.0, floor=0.5)
    assert steep.bound(1.0, 0.0, 1.0) == math.inf
    assert steep.bound(1.0, 1e-9, 1.0) > 1e300
    assert steep.bound(2.0, 1.0, 0.0, threshold=1.0) == 2.0, "an elasticity of 0 does not fall"
    assert growth.relative(0.5, 1.0, floor=0.5).bound(2.0, 1.0, 0.0, threshold=1.0) == 1.0


def test_a_measurement_error_is_added_to_what_was_measured_and_to_what_would_be():
    plain, erring = growth.additive(1, 2), growth.additive(1, 2, error=0.25)
    assert erring.bound(1.0, 1.0, 2.0, on="true") == plain.bound(1.25, 1.0, 2.0)
    assert erring.bound(1.0, 1.0, 2.0) == plain.bound(1.25, 1.0, 2.0) + 0.25
    assert erring.bound(3.0, 1.0, 0.0, threshold=1.0) == 0.25 + plain.bound(3.25, 1.0, 0.0, threshold=0.75)


def test_features_give_the_slopes_of_each_context():
    bracket = growth.additive("low", "high")
    assert bracket.features == ("low", "high")
    assert bracket.at({"low": 1, "high": 2.0}) == growth.additive(1, 2)
    assert growth.additive(1, 2).at({}) == growth.additive(1, 2)
    many = growth.additive(1, "high").at({"high": np.array([1.0, 3.0])})
    assert many.bound(0.0, 0.0, np.ones(2)).tolist() == [1.0, 3.0]
    assert growth.relative(0, "p", floor=1).at({"p": [1.0, 2.0]}).bound(1.0, 1.0, 2.0).tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({}, r"high = 'correction': is no feature of this context; it has none"),
        ({"age": 3}, r"high = 'correction': is no feature of this context; it has age"),
        ({"correction": -1.0}, r"feature correction = -1.0: must hold 0 or numbers from 1e-100 to 1e\+100"),
        ({"correction": math.nan}, "feature correction = nan: must hold"),
        ({"correction": "high"}, "feature correction = 'high': must hold"),
        ({"correction": None}, "feature correction = None: must hold"),
        ({"correction": 3.0}, r"low = 4.0: must be at most high = 3.0; in every context"),
    ],
)
def test_a_feature_that_cannot_be_a_slope_is_refused(features, words):
    with pytest.raises(InvalidInput, match=words):
        growth.additive(4, "correction").at(features)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: growth.relative(2, 1, floor=1), "low = 2: must be at most high = 1"),
        (lambda: growth.relative(1, 2, floor=-1), "floor = -1: must be a finite number >= 0; state the cost"),
        (lambda: growth.relative(1, 2, floor=0), "floor = 0: must be > 0 unless low = high; give the smallest"),
        (lambda: growth.relative(1, 2, floor="x"), "floor = 'x': must be a finite number"),
        (lambda: growth.relative(-1, 2, floor=1), "low = -1: must be 0, a number from 1e-06 to 1e"),
        (lambda: growth.relative(1, 1e7, floor=1), "high = 10000000.0: must be 0, a number from"),
        (lambda: growth.relative(True, 2, floor=1), "low = True: must be 0, a number from"),
        (lambda: growth.relative(1, math.nan, floor=1), "high = nan: must be 0"),
        (lambda: growth.additive(1, [2]), r"high = \[2\]: must be 0, a number from"),
        (lambda: growth.additive("", 2), "low = '': must be a number or the name of a feature"),
        (lambda: growth.additive(0, 1, error=-1), "error = -1: must be a finite number >= 0; 0 where"),
        (lambda: growth.spread(1, 0.5), "step = 1: must be a finite number > 1"),
        (lambda: growth.spread(1.2, 0), "sigma = 0: must be a finite number > 0"),
        (lambda: growth.additive(0, "x").bound(1, 1, 1), r"takes numbers from features; use growth.at\(features\)"),
        (lambda: growth_from_dict("relative"), "growth = 'relative': must be a bracket, or a table with its name"),
        (lambda: growth_from_dict({"growth": "cubic"}), "growth = 'cubic': must be one of relative, additive, spread"),
        (
            lambda: growth_from_dict({"growth": "additive", "up": 1}),
            "growth additive: missing a required key: 'low'; in a",
        ),
        (lambda: growth_from_dict({"name": "additive"}), "growth = None: .* under the key growth.*: growth = {gr"),
        (lambda: growth_from_dict({"growth": "additive", "low": 3, "high": 1}), "growth additive: low = 3: must be"),
    ],
)
def test_what_is_no_bracket_is_refused_with_the_rule_and_a_way_out(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


@pytest.mark.parametrize(
    "bracket",
    [growth.relative(0.7, "p", floor=0.5, error=0.1), growth.additive("a", 3), growth.spread(1.25, 0.4, error=0.1)],
)
def test_a_bracket_is_the_same_after_writing_and_pickling(bracket):
    assert growth_from_dict(bracket.to_dict()) == bracket == pickle.loads(pickle.dumps(bracket))  # noqa: S301 -- our own
    assert set(GROWTHS) == {"relative", "additive", "spread"}
