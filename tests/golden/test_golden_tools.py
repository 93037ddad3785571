"""The tools answer as they did on fixed logs: plan, check, evaluate, calibrate, choose, and a study's export."""

import pytest

from tests.golden import study_make
from tests.golden.study_numbers import FITTED, differences, dumped, plain, worst

TOOLS = [
    "tools_calibrate",
    "tools_calibrate_bracket",
    "tools_calibrate_bracket_below",
    "tools_calibrate_bracket_units",
    "tools_calibrate_guided",
    "tools_calibrate_stated",
    "tools_check_bracket",
    "tools_check_bracket_changed",
    "tools_check_bracket_flagged",
    "tools_check_certified",
    "tools_check_certified_flagged",
    "tools_check_conformal",
    "tools_check_conformal_flagged",
    "tools_check_student",
    "tools_check_student_flagged",
    "tools_choose",
    "tools_choose_bracket",
    "tools_choose_pilot",
    "tools_choose_several",
    "tools_choose_unknown",
    "tools_evaluate_bracket",
    "tools_evaluate_certified",
    "tools_evaluate_learned",
    "tools_evaluate_replayed",
    "tools_evaluate_stopped",
    "tools_export_bracket",
    "tools_export_certified",
    "tools_export_conformal",
    "tools_export_student",
    "tools_plan_bracket",
    "tools_plan_bracket_learned",
    "tools_plan_certified",
    "tools_plan_conformal",
    "tools_plan_joint",
    "tools_plan_student",
]


def test_these_are_the_cases():
    assert sorted(name for name in study_make.CASES if name.startswith("tools_")) == TOOLS
    assert sorted(path.stem for path in study_make.ANSWERS.glob("tools_*.json")) == TOOLS


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_answers_as_recorded(name):
    apart, where = worst(study_make.answers_of(name), study_make.recorded(name))
    assert apart <= 1.0, where


def test_a_difference_is_found():
    """In a number, a word, a whole number, a missing name or entry; and what was fitted has its own tolerance."""
    answers = {"a": [1.0, "yes", 3], "b": {"c": None, "~d": 2.0}, "e": True}
    assert worst(answers, plain(answers))[0] == 0.0
    for changed in (
        {**answers, "a": [1.0 + 3e-9, "yes", 3]},
        {**answers, "a": [1.0, "no", 3]},
        {**answers, "a": [1.0, "yes", 4]},
        {**answers, "a": [1.0, "yes"]},
        {**answers, "e": False},
        {**answers, "b": {"c": 0.0, "~d": 2.0}},
        {**answers, "b": {"c": None, "~d": 2.0 + 3.0 * FITTED}},
        {"a": answers["a"], "b": answers["b"]},
    ):
        apart, where = worst(changed, plain(answers))
        assert apart > 1.0, where
    assert worst({**answers, "b": {"c": None, "~d": 2.0 + FITTED}}, plain(answers))[0] <= 1.0
    assert len(list(differences(answers, plain(answers)))) == 6
    assert "\n" in dumped({"rows": [[1], [2]]})
