"""Studies answer as they did: advice, certificates, statuses, evidence, stops; also after a restart and a replay."""

import pytest

from tests.golden import study_make
from tests.golden.study_numbers import worst

STUDIES = [
    "study_arrival",
    "study_certified",
    "study_certified_mistakes",
    "study_conformal",
    "study_conformal_levels",
    "study_conformal_mistakes",
    "study_several",
    "study_shield_learned",
    "study_shield_mistakes",
    "study_shield_proposal",
    "study_shield_start",
    "study_student",
    "study_student_anytime",
    "study_student_mistakes",
]


def test_these_are_the_cases():
    assert sorted(name for name in study_make.CASES if name.startswith("study_")) == STUDIES
    assert sorted(path.stem for path in study_make.ANSWERS.glob("study_*.json")) == STUDIES


def test_the_studies_meet_every_rule_of_the_guard_and_every_status():
    told = [study_make.recorded(name) for name in STUDIES]
    stops = {stop[3] for each in told for stop in each["stops"]}
    assert stops == {
        "",
        "alarm",
        "assumption_broken",
        "bracket_drift",
        "drift",
        "noise_broken",
        "outcome_overdue",
        "start_refuted",
        "stop_rule",
        "student_drift",
        "too_many_open",
        "too_many_unwatched",
        "too_many_void",
    }
    statuses = {row[0] for each in told for row in each["rounds"]}
    words = "corrected expired imported known open throttled void"
    assert statuses == {*words.split(), "nothing given"}
    assert sum(len(each["certificates"]) for each in told) >= 20
    assert sum(len(each["decisions"]) for each in told) >= 1000


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_answers_as_recorded(name):
    apart, where = worst(study_make.answers_of(name), study_make.recorded(name))
    assert apart <= 1.0, where
