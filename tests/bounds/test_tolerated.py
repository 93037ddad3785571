"""The tolerated scale in closed form: against bisection on the bracket's own bound, on the safe side, on any array."""

import math

import jax
import numpy as np
import pytest

from safedial import growth
from safedial.bounds.count_rule import Range, scaled_setting, tolerated_scale
from safedial.errors import InvalidInput
from safedial.model.costs import Cost, tolerated_setting

CASES = 1000
LEVELS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
BRACKETS = {
    "relative": lambda low, high, error: Cost(threshold=1.0, growth=growth.relative(low, high, floor=0.2, error=error)),
    "exact": lambda low, high, error: Cost(threshold=1.0, growth=growth.relative(high, high, floor=0.0)),
    "additive": lambda low, high, error: Cost(threshold=1.0, growth=growth.additive(low, high, error=error)),
    "below": lambda low, high, error: Cost(threshold=-1.0, growth=growth.additive(low, high), direction="below"),
    "spread": lambda low, high, error: Cost(threshold=1.0, growth=growth.spread(1.2, 0.4, error=error)),
}


def bound(cost, outcome, setting, at):
    """What the round would have cost at `at`, minus the threshold, with the sign of an excess."""
    sign = 1.0 if cost.direction == "above" else -1.0
    limit = sign * cost.threshold
    return cost.growth.bound(sign * outcome, setting, at, threshold=limit, on=cost.on) - limit


def largest(passes, low, high, steps=90):
    """The largest number in (low, high) that passes, by bisection; ∞ or −∞ where all or none do."""
    with np.errstate(over="ignore"):
        lows, highs = np.full(CASES, low), np.full(CASES, high)
        everywhere, nowhere = passes(highs), ~passes(lows)
        for _ in range(steps):
            middle = 0.5 * (lows + highs)
            held = passes(middle)
            lows, highs = np.where(held, middle, lows), np.where(held, highs, middle)
    return np.where(nowhere, -np.inf, np.where(everywhere, np.inf, lows))


def draw(kind, levels):
    """Random rounds of one bracket: outcome, setting, base or prediction, range."""
    rng = np.random.default_rng([len(kind), bool(levels)])
    setting = rng.choice(LEVELS, CASES) if levels else rng.uniform(0.05, 2.0, CASES)
    outcome = np.where(rng.random(CASES) < 0.1, 1.0, rng.normal(0.8, 0.6, CASES))
    if kind == "below":
        outcome = -outcome
    if kind == "spread":
        outcome = np.where(rng.random(CASES) < 0.3, 2.0, 0.0)
    start = rng.choice(LEVELS[:3], CASES) if levels else rng.uniform(0.02, 0.2, CASES)
    end = rng.choice(LEVELS[4:], CASES) if levels else rng.uniform(0.5, 2.0, CASES)
    return outcome, setting, rng.uniform(0.1, 3.0, CASES), Range(start, end, LEVELS if levels else None)


@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("kind", BRACKETS)
def test_tolerated_scales_agree_with_bisection_on_random_rounds(kind, levels):
    """20 × 1,000 cases: the closed form is at most the supremum, below it by a rounding, and itself tolerated."""
    outcome, setting, base, range_ = draw(kind, levels)
    for low, high, error in ((0.7, 1.4, 0.0), (0.0, 2.0, 0.1), (0.0, 0.0, 0.0)):
        cost = BRACKETS[kind](low, high, error)
        limit = cost.tolerated(outcome, setting)
        found = tolerated_scale(limit, base, range_)

        def passes(scale, cost=cost):
            return bound(cost, outcome, setting, scaled_setting(scale, base, range_)) <= 0.0

        exact = largest(passes, 0.0, 1e4)
        assert np.array_equal(found == np.inf, exact == np.inf)
        assert np.array_equal(found == -np.inf, exact == -np.inf)
        inside = np.isfinite(exact)
        assert np.all(found[inside] <= exact[inside])
        assert np.all(found[inside] >= exact[inside] - 1e-10 * np.maximum(1.0, np.abs(exact[inside])))
        assert np.all(passes(found)[found > -np.inf]), "what is tolerated keeps the threshold in floating point"


def scales(cost, outcome, setting, base, range_):
    return tolerated_scale(cost.tolerated(outcome, setting), base, range_)


@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("kind", BRACKETS)
def test_one_round_and_many_give_the_same_answers(kind, levels):
    outcome, setting, base, range_ = draw(kind, levels)
    cost = BRACKETS[kind](0.7, 1.4, 0.0)
    many = scales(cost, outcome, setting, base, range_)
    for row in range(100):
        own = Range(float(range_.start[row]), float(range_.end[row]), range_.levels)
        alone = scales(cost, float(outcome[row]), float(setting[row]), float(base[row]), own)
        np.testing.assert_allclose(alone, many[row], rtol=1e-13)


def test_jax_gives_the_same_answers():
    outcome, setting, base, range_ = draw("relative", True)
    cost = BRACKETS["relative"](0.7, 1.4, 0.0)
    compiled = jax.jit(lambda a, b, c, start, end: scales(cost, a, b, c, Range(start, end, range_.levels)))
    found = compiled(outcome, setting, base, *range_[:2])
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, scales(cost, outcome, setting, base, range_), rtol=1e-12, atol=1e-12)


def test_on_a_floored_dial_the_supremum_is_not_tolerated_and_the_lowered_scale_is():
    range_ = Range(1.0, 4.0, (1.0, 2.0, 4.0))
    found = tolerated_scale(1.5, 1.0, range_)
    assert scaled_setting(2.0, 1.0, range_) == 2.0 > 1.5, "the supremum itself plays the next level"
    assert 2.0 - 1e-11 < found < 2.0
    assert scaled_setting(found, 1.0, range_) == 1.0


def test_what_is_not_known_tolerates_nothing():
    for kind, make in BRACKETS.items():
        cost = make(0.7, 1.4, 0.0)
        assert cost.tolerated(math.nan, 1.0) == -math.inf, kind
        unknown = np.array([math.nan, math.inf, -math.inf])
        worst = unknown if kind != "spread" else unknown[:2]
        assert np.all(cost.tolerated(worst if kind != "below" else -worst, np.ones(len(worst))) == -np.inf), kind
    assert BRACKETS["relative"](0.7, 1.4, 0.0).tolerated(0.1, 0.0) == -math.inf, "a round given nothing"
    assert BRACKETS["exact"](1, 1, 0).tolerated(-0.1, 0.5) == math.inf, "no cost on an exact curve: none at any dose"
    assert tolerated_scale(math.nan, 1.0, Range(0.1, 1.0)) == -math.inf
    assert tolerated_scale(math.nan, 1.0, Range(0.1, 1.0, (0.1, 1.0))) == -math.inf


def test_a_base_of_nothing_plays_the_start_at_any_scale():
    range_ = Range(0.5, 2.0)
    assert scaled_setting(math.inf, 0.0, range_) == 0.5
    assert tolerated_scale(0.7, 0.0, range_) == math.inf
    assert tolerated_scale(0.4, 0.0, range_) == -math.inf
    assert scaled_setting(-math.inf, 1.0, range_) == 0.5
    assert scaled_setting(math.inf, math.nan, range_) == 0.5, "nor is a base that is no number scaled"


def test_of_several_costs_the_least_tolerant_counts_and_the_risk_is_not_split():
    costs = {
        "trough": Cost(threshold=20, growth=growth.relative(1, 1, floor=0)),
        "glucose": Cost(threshold=70, growth=growth.additive(0, "factor"), direction="below"),
    }
    both = tolerated_setting(costs, {"trough": 10.0, "glucose": 100.0}, 1.0, {"factor": 60.0})
    assert both == pytest.approx(1.5, abs=1e-12)
    with pytest.raises(InvalidInput, match=r"cost = \['glucose'\]: is not in the outcome; report every cost"):
        tolerated_setting(costs, {"trough": 10.0}, 1.0)
    assert costs["glucose"].exceeded(69.0)
    assert not costs["glucose"].exceeded(70.0)
    assert costs["trough"].exceeded(20.5)


def test_a_measurement_error_lowers_the_threshold_unless_it_limits_the_true_cost():
    bracket = growth.additive(0, 1, error=0.2)
    assert Cost(threshold=1, growth=bracket).tolerated(0.3, 1.0) == pytest.approx(1.3)
    assert Cost(threshold=1, growth=bracket, on="true").tolerated(0.3, 1.0) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threshold": math.inf}, "threshold = inf: must be a finite number"),
        ({"threshold": "high"}, "threshold = 'high': must be a finite number"),
        ({"threshold": 0}, "threshold = 0: must be > error = 0, for a relative bracket; use additive"),
        ({"threshold": 0.1}, "floor = 0.5: must be at most 0.1, the threshold less the error"),
        ({"growth": growth.relative(1, 2, floor=1, error=1)}, "threshold = 1.0: must be > error = 1"),
        ({"growth": 3}, "growth = 3: must be a bracket"),
        ({"growth": None, "threshold": 0}, "threshold = 0: must be > 0 where noise is stated, or no bracket"),
        ({"direction": "up"}, "direction = 'up': must be 'above' or 'below'"),
        ({"direction": "below"}, "direction = 'below': cannot go with a relative bracket; use additive"),
        ({"on": "sensor"}, "on = 'sensor': must be 'measured' or 'true'"),
    ],
)
def test_a_cost_that_its_bracket_cannot_serve_is_refused(fields, words):
    with pytest.raises(InvalidInput, match=words):
        Cost(**({"threshold": 1.0, "growth": growth.relative(0.7, 1.4, floor=0.5)} | fields))


def test_a_cost_is_the_same_after_writing():
    cost = Cost(threshold=70, growth=growth.additive(4, "factor", error=2), direction="below", on="true")
    assert Cost.from_dict(cost.to_dict()) == cost
    with pytest.raises(InvalidInput, match=r"cost = .*limit.*has unknown fields"):
        Cost.from_dict({"growth": growth.additive(0, 1).to_dict(), "limit": 3})
