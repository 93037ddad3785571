"""What the page and the command say: what is judged, which cost exceeded, and what the figures claim."""

import numpy as np
import pytest

from safedial import Cost, Dial, SafetySpec, evaluate, growth, make_policy
from safedial.evaluation.page import terms, words
from tests.evaluation.test_outcomes import CONSTANTS, log_of
from tests.evaluation.test_reproduction import SPEC

GROWTH = growth.relative(0.7, 1.4, floor=0.05)
SHIELD = make_policy("hp_shield", base=0, growth=GROWTH, start_scale=0.2)
BRACKET = SafetySpec(threshold=0.5, promise="bracket", violation_risk=0.1)


def test_the_terms_name_threshold_risk_and_dial_unit():
    costs = {"trough": Cost(threshold=20, noise=3.0, unit="mg/l"), "other": Cost(threshold=0.5, noise=0.3)}
    log = log_of([0.5] * 2, [0, 0], cost_trough=np.array([1.0, 2.0]), cost_other=np.array([0.1, 0.2]))
    spec = SafetySpec(costs=costs, total_risk=0.05, **CONSTANTS)
    (line,) = terms(evaluate(log, ["hp_ucb", "fixed"], spec=spec, dial=Dial(high=80, unit="mg")))
    assert line == (
        "Threshold: trough must not exceed 20 mg/l, other must not exceed 0.5; stated risk: at most 5% in a round; "
        "dial: 0 to 80 mg."
    )


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


def test_the_closing_words_of_a_bracket_are_bounds():
    log = log_of([0.5] * 3, [0.1, 0.7, 0.2], np.ones(3))
    assert words(evaluate(log, "hp_ucb", spec=SPEC))[-1].startswith("This is what would have happened")
    assert words(evaluate(log, SHIELD, spec=BRACKET))[-1].startswith("These are the settings of a policy that watched")
