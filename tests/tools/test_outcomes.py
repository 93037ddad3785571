"""What a round would have given at another setting: exact figures, bounds, and what is not known."""

import numpy as np
import pytest

from safedial import Agent, Cost, SafetySpec, evaluate, growth, make_policy
from safedial.model.dial import Dial
from safedial.rounds.log_file import Log
from safedial.rounds.validation import make_rules
from safedial.tools.outcomes import Outcomes
from safedial.tools.past_rounds import read_rounds
from tests.tools.test_reproduction import SPEC, live


def log_of(action, cost, reward=None, baseline=None, **extra):
    count = len(action)
    zeros = np.zeros(count)
    return Log(
        names=("x1",), context=np.full((count, 1), 0.5), action=np.array(action, float), cost=np.array(cost, float),
        reward=zeros if reward is None else np.array(reward, float), round=np.arange(1.0, count + 1),
        advised=zeros * np.nan, baseline_cost=zeros if baseline is None else np.array(baseline, float), extra=extra,
    )  # fmt: skip


def outcomes_of(log, spec, policy=None, **parts):
    rounds = read_rounds(log, spec, dial=parts.get("dial") or Dial(), features=None)
    return Outcomes(make_rules(dim=1, spec=spec, policy=policy, **parts), rounds)


def test_exact_outcomes_scale_with_the_dose_above_the_baseline():
    told = outcomes_of(log_of([0.5, 0.5, 0.0, 0.5], [0.4, 0.7, 0.2, np.nan], [1, -1, 0, 1], [0.2] * 4), SPEC)
    scores = told.at(np.array([1.0, 0.25, 0.3, 0.5]))
    # 0.2 + 2·0.2 = 0.6 > 0.5; 0.2 + 0.5·0.5 = 0.45; nothing was given; the cost is not known
    assert scores.over.tolist() == [True, False, False, False]
    assert scores.may.tolist() == [True, False, True, True]
    np.testing.assert_allclose(scores.reward, [2.0, -0.5, np.nan, 1.0])
    assert told.at(np.zeros(4)).may.tolist() == [False, False, False, False]
    best, earned = told.hindsight()
    np.testing.assert_allclose(best, [0.75, 0.3, np.nan, np.nan])
    np.testing.assert_allclose(earned, [1.5, 0.0, np.nan, np.nan])


BRACKETS = {
    "relative": growth.relative(0.7, 1.4, floor=0.05),
    "relative with an error": growth.relative(0.7, 1.4, floor=0.05, error=0.02),
    "additive": growth.additive(0.3, 2.0),
}


def curves(bracket, rng, count):
    """Random cost curves that keep to a bracket: a piece below the threshold less the error, and another above it."""
    limit = 0.5 - bracket.error
    for _ in range(count):
        low, high = (bracket.parameters[end] for end in ("low", "high"))
        below, above, turn = rng.uniform(0.0, high), rng.uniform(low, high), rng.uniform(0.1, 1.0)
        if bracket.name == "additive":
            yield lambda a, b=below, c=above, t=turn: limit + np.where(a > t, c, b) * (a - t)
        else:
            yield lambda a, b=below, c=above, t=turn: limit * (a / t) ** np.where(a > t, c, b)


@pytest.mark.parametrize("name", BRACKETS)
def test_bounds_hold_for_every_curve_within_the_bracket(name):
    """An oracle: curves that keep to the bracket never exceed where they may not, and exceed where they must."""
    bracket, rng = BRACKETS[name], np.random.default_rng(3)
    spec = SafetySpec(threshold=0.5, guarantee="bracket", violation_risk=0.1)
    policy = make_policy("hp_shield", base=0, growth=bracket, start_scale=0.1)
    musts = mays = 0
    for curve in curves(bracket, rng, 60):
        given, at = rng.uniform(0.05, 1.0, (2, 40))
        errors = bracket.error * rng.uniform(-1.0, 1.0, (2, 40))
        scores = outcomes_of(log_of(given, curve(given) + errors[0]), spec, policy).at(at)
        truth = curve(at) + errors[1] > 0.5
        assert not np.any(scores.over & ~truth)
        assert not np.any(truth & ~scores.may)
        musts, mays = musts + scores.over.sum(), mays + (~scores.may).sum()
    assert musts > 400
    assert mays > 400


def test_several_costs_exceed_where_any_does_and_one_that_is_not_known_may():
    several = SafetySpec(
        guarantee="bracket",
        violation_risk=0.1,
        costs={"trough": Cost(threshold=0.5, growth=BRACKETS["relative"]),
               "sugar": Cost(threshold=-70.0, growth=growth.additive(0, 10), direction="below")},
    )  # fmt: skip
    extra = {"cost_trough": np.array([0.6, 0.1, 0.1]), "cost_sugar": np.array([np.nan, -60.0, -80.0])}
    policy = make_policy("hp_shield", base=0, growth=None, start_scale=0.1)
    scores = outcomes_of(log_of([0.5] * 3, [0] * 3, **extra), several, policy).at(np.array([0.6, 0.5, 0.5]))
    assert scores.over.tolist() == [True, False, True]
    assert scores.may.tolist() == [True, False, True]


def test_costs_of_zero_or_one_are_bounded_by_monotonicity():
    from safedial.policies.classes import binary

    policy = make_policy("nonlinear_hp_probe", cost_class=binary(norm=1.0, odds=0.5))
    told = outcomes_of(log_of([0.5] * 4, [0, 1, 0, 1]), SPEC, policy)
    scores = told.at(np.array([0.4, 0.6, 0.6, 0.4]))
    assert scores.over.tolist() == [False, True, False, False]
    assert scores.may.tolist() == [False, True, True, True]


def test_under_a_bracket_figures_are_lower_and_upper_and_selection_is_a_doubt():
    spec = SafetySpec(threshold=0.3, guarantee="bracket", violation_risk=0.2)
    policy = make_policy("hp_shield", base=0, growth=BRACKETS["relative"], start_scale=0.2)
    log, _ = live(Agent(3, SPEC, policy="fixed"), 150)
    found = evaluate(log, policy, spec=spec)
    row = found.table()[1]
    assert row["violations"] <= row["violations_upper"]
    assert row["low"] <= row["rate"] <= row["rate_upper"] <= row["high"]
    assert row["reward"] is None
    assert row["share"] > 0
    assert "selection of the logged doses" in [each.name for each in found.doubts]


def test_costs_of_zero_or_one_do_not_scale_under_a_linear_policy_either():
    """Events that are the same at every dose above 0: scaled with the dose, none would exceed below 0.4."""
    rng = np.random.default_rng(0)
    event = (rng.random(60) < 0.3).astype(float)
    log = log_of(np.full(60, 0.8), event, rng.normal(0.1, 0.1, 60))
    found = evaluate(log, ["hp_ucb", "on_expectation"], spec=SPEC)
    for each, row in zip(found.policies, found.table()[1:], strict=True):
        truth = int(event[each.scores.applied > 0].sum())
        assert row["violations"] <= truth <= row["violations_upper"]
        assert "costs of 0 or 1" in [doubt.name for doubt in found.doubts if doubt.policy == each.name]
    told = outcomes_of(log, SPEC, "hp_ucb")
    assert told.told(0, 0.3) == (0.8, log.reward[0], event[0])


def test_costs_of_zero_or_one_by_chance_are_no_events_without_a_dose_or_below_the_threshold():
    assert outcomes_of(log_of([0, 0.5], [0, 1]), SPEC, "hp_ucb").exact
    high = SafetySpec(threshold=2.0, violation_risk=0.15, estimation_risk=0.05, reward_noise=0.3, cost_noise=0.3,
                      coefficient_bound=1, context_bound=1)  # fmt: skip
    assert outcomes_of(log_of([0.5, 0.5], [0, 1]), high, "hp_ucb").exact


def test_a_policy_does_not_learn_a_reward_that_is_missing_where_costs_are_events():
    told = outcomes_of(log_of([0.5, 0.5], [0, 1], [np.nan, 1]), SPEC, "hp_ucb")
    assert told.told(0, 0.3) is None


CONSTANTS = {"reward_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}


def test_a_round_that_lacks_one_of_several_costs_is_not_known_because_another_exceeds():
    costs = {name: Cost(threshold=0.5, noise=0.3) for name in "ab"}
    extra = {"cost_a": np.array([0.1, 0.9, np.nan, np.nan]), "cost_b": np.array([0.1, 0.1, 0.1, 0.9])}
    log = log_of([0.9] * 4, [0] * 4, **extra)
    found = evaluate(log, "fixed", spec=SafetySpec(costs=costs, total_risk=0.05, **CONSTANTS))
    logged = found.table()[0]
    assert (logged["rounds"], logged["violations"], logged["unknown"]) == (2, 1, 2)
    told = outcomes_of(log, found.policies[0].rules.spec)
    assert told.at(np.full(4, 0.9)).known.tolist() == [True, True, False, False]
    assert told.at(np.full(4, 0.8)).known.tolist() == [True, True, False, False]
    assert told.at(np.zeros(4)).known.all()  # nothing given: none may exceed


def test_a_round_left_out_though_a_known_cost_exceeds_is_named():
    costs = {name: Cost(threshold=0.1, noise=0.3) for name in "ab"}
    extra = {"cost_a": np.array([0.0] * 5 + [np.nan]), "cost_b": np.array([0.0] * 5 + [900.0])}
    log = log_of([0.9] * 6, [0] * 6, np.ones(6), **extra)
    spec = SafetySpec(costs=costs, total_risk=0.05, **CONSTANTS)
    found = evaluate(log, "fixed", spec=spec)
    (words,) = [each.words for each in found.doubts if each.name == "unknown outcomes"]
    assert "also the 1 in which a known cost exceeds" in words
    assert [row["round"] for row in found.rows()] == [6]


def test_an_excess_of_the_true_cost_is_one_beyond_the_error():
    costs = {"q": Cost(threshold=6.0, growth=growth.additive(0.5, 2.0, error=0.5), on="true")}
    spec = SafetySpec(costs=costs, guarantee="bracket", violation_risk=0.1)
    log = log_of([0.5] * 4, [0] * 4, cost_q=np.array([6.6, 6.3, 5.7, 5.4]))
    policy = make_policy("hp_shield", base=0, growth=None, start_scale=0.1)
    scores = outcomes_of(log, spec, policy).at(np.full(4, 0.5))
    assert scores.over.tolist() == [True, False, False, False]
    assert scores.may.tolist() == [True, True, True, False]
    assert scores.known.all()


@pytest.mark.parametrize(("on", "named"), [("true", True), ("measured", False)])
def test_measured_costs_are_a_doubt_where_the_guarantee_is_on_the_true_one(on, named):
    parts = {"threshold": 0.5, "total_risk": 0.05, "cost_noise": 0.3, "cost_sensor_noise": 1.0, "threshold_on": on}
    found = evaluate(log_of([0.5] * 4, [0.1, 0.7, 0.2, 0.3]), "hp_ucb", spec=SafetySpec(**parts, **CONSTANTS))
    assert ("measured costs" in [each.name for each in found.doubts]) is named


def test_a_row_has_the_cost_that_exceeded():
    found = evaluate(log_of([0.5] * 3, [0.1, 5.0, 0.2], np.ones(3)), "fixed", spec=SPEC)
    (row,) = found.rows()
    assert row["cost"] == pytest.approx(10.0 * row["dose"])
    assert row["cost"] > 0.5
    costs = {name: Cost(threshold=0.5, noise=0.3) for name in "ab"}
    log = log_of([0.5] * 2, [0, 0], np.ones(2), cost_a=np.array([0.1, 0.1]), cost_b=np.array([0.1, 50.0]))
    (row,) = evaluate(log, "fixed", spec=SafetySpec(costs=costs, total_risk=0.05, **CONSTANTS)).rows()
    assert row["exceeding"] == "b"
    assert row["cost_b"] > 0.5 > row["cost_a"]
