"""No report, void or correction takes an excess out of a study's evidence without a count of it."""

import pytest

from safedial.service.timeline import Track
from safedial.study.study import Study

START = {"dim": 1, "violation_risk": 0.1, "start_action": 0.1, "fallback_action": 0.1}
GROWTH = {"growth": "additive", "low": 0.0, "high": 1.0}
SHIELD = {**START, "guarantee": "bracket", "policy": {"name": "hp_shield", "base": "proposal"}}
KINDS = {
    "shield": {**SHIELD, "threshold": 0.5, "policy": {**SHIELD["policy"], "growth": GROWTH}},
    "shield several": {
        **SHIELD,
        "costs": {name: {"threshold": 0.5, "growth": GROWTH} for name in ("first", "second")},
    },
    "conformal": {**START, "guarantee": "conformal", "policy": "hp_conformal", "threshold": 0.5},
    "student": {**START, "guarantee": "student", "policy": "hp_student", "threshold": 0.5},
    "student several": {
        **START,
        "guarantee": "student",
        "policy": "hp_student",
        "costs": {"first": {"threshold": 0.5}, "second": {"threshold": 0.5}},
    },
}
CERTIFIED = {
    **{"dim": 1, "violation_risk": 0.1, "estimation_risk": 0.05, "threshold": 0.5, "fallback_action": 0.1},
    **{"reward_noise": 0.6, "cost_noise": 0.6, "coefficient_bound": 1.0, "context_bound": 1.0},
}
SEVERAL = {name: value for name, value in CERTIFIED.items() if name not in ("threshold", "cost_noise")}
SEVERAL |= {"costs": {name: {"threshold": 0.5, "noise": 0.6} for name in ("first", "second")}}
WAYS = {
    "void": {},
    "void, unrelated": {},
    "nothing applied": {"applied_action": 0.0, "unrelated": True},
    "a cost is not known": {"unrelated": True},
}
CASES = [(kind, way) for kind in KINDS for way in WAYS if "costs" in KINDS[kind] or way != "a cost is not known"]


def ask(study):
    return study.ask([0.5], **({"proposal": 1.0} if study.spec.rules.policy.name == "hp_shield" else {}))


def tell(study, cost, second=0.1, **more):
    decision = ask(study)
    several = study.spec.rules.spec.costs
    study.tell(decision.id, reward=0.1, cost={"first": cost, "second": second} if several else cost, **more)
    return decision.id


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_excesses_that_a_learner_leaves_out_or_loses_are_unwatched_and_stop_the_study(lite, kind, way):
    study = Study.create("hidden", KINDS[kind], storage=lite.store)
    for _ in range(21):
        asked = tell(study, 0.9, second=None if way == "a cost is not known" else 0.1, **WAYS[way])
        if way.startswith("void"):
            study.void(asked, reason="not wanted", unrelated="unrelated" in way)
        if study.status()["stop_reason"] == "start_refuted":
            study.resume("the start is as it was declared")
    status = study.status()
    assert (status["violations"], status["unwatched"], status["stop_reason"]) == (21, 21, "too_many_unwatched")
    assert study.verify().ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_withheld_dose_without_an_excess_is_watched(lite, kind):
    study = Study.create("withheld", KINDS[kind], storage=lite.store)
    tell(study, 0.1, applied_action=0.0, unrelated=True)
    assert (study.status()["void"], study.status()["unwatched"]) == (1, 0)


def test_more_than_the_advice_of_several_costs_is_judged_at_the_advice(lite):
    study = Study.create("above", KINDS["student several"], storage=lite.store)
    tell(study, 0.1, applied_action=0.5)
    assert (study.status()["outcomes"], study.status()["unwatched"]) == (1, 0)
    assert study.verify().ok


@pytest.mark.parametrize("kind", ["certified several", *KINDS])
@pytest.mark.parametrize("way", [{"applied_action": 1.0}, {"throttled": True}], ids=["above", "throttled"])
def test_the_page_counts_as_the_study_where_a_setting_was_changed(lite, kind, way):
    study = Study.create("changed", {**KINDS, "certified several": SEVERAL}[kind], storage=lite.store)
    tell(study, 0.9, **way)
    study.void(tell(study, 0.9, **way), reason="not wanted", unrelated=True)
    track, status = Track(study), study.status()
    track.refresh()
    assert [int(each.sum()) for each in track.judged] == [status["outcomes"], status["violations"]]


@pytest.mark.parametrize("kind", ["certified", *KINDS])
def test_a_corrected_excess_stays_counted_if_its_round_is_then_void(lite, kind):
    study = Study.create("corrected", KINDS.get(kind, CERTIFIED), storage=lite.store)
    asked = tell(study, 0.9)
    low = {"first": 0.1, "second": 0.1} if "several" in kind else 0.1
    study.correct(asked, cost=low, reason="a second look")
    study.void(asked, reason="not wanted", unrelated=True)
    assert study.status()["corrected_violations"] == ask(study).certificate["corrected_violations"] == 1
    void = tell(study, 0.9)
    study.void(void, reason="not wanted", unrelated=True)
    assert study.status()["corrected_violations"] == 1
    assert study.verify().ok
    assert Study.open("corrected", storage=lite.store).state_digest() == study.state_digest()


@pytest.mark.parametrize("kind", ["certified", "certified several", *KINDS])
def test_a_corrected_setting_that_takes_an_excess_out_of_the_evidence_is_counted(lite, kind):
    study = Study.create("corrected", {**KINDS, "certified several": SEVERAL}.get(kind, CERTIFIED), storage=lite.store)
    asked = tell(study, 0.52)
    before = study.status()["evidence"]
    study.correct(asked, applied_action=1.0, reason="more was given")
    after = study.status()
    assert (after["violations"], after["corrected_violations"]) == (1, 1)
    assert not kind.startswith("certified") or after["evidence"] < before
    study.correct(tell(study, 0.1), applied_action=1.0, reason="more was given")
    assert study.status()["corrected_violations"] == 1
    assert study.verify().ok


def test_a_correction_to_what_a_sensor_error_explains_is_counted(lite):
    study = Study.create("sensors", {**CERTIFIED, "cost_sensor_noise": 0.1, "threshold_on": "true"}, storage=lite.store)
    asked = tell(study, 1.5)
    before = study.status()["evidence"]
    study.correct(asked, cost=0.55, reason="a second look")
    after = study.status()
    assert after["evidence"] < before
    assert (after["violations"], after["corrected_violations"]) == (1, 1)
    assert study.verify().ok


@pytest.mark.parametrize("amended", [False, True])
def test_late_outcomes_from_before_a_resume_do_not_make_up_for_later_voids(lite, amended):
    study = Study.create("late", {**CERTIFIED, "guard": {"max_void": 2}}, storage=lite.store)
    asked = [ask(study).id for _ in range(7)]
    study.expire(asked[:3], reason="late")
    if amended:
        study.amend(changes={"threshold": 0.6}, reason="as agreed")
    assert study.status()["stop_reason"] == "too_many_void"
    study.resume("looked into")
    later = ask(study).id
    study.expire(later, reason="late")
    study.tell(later, reward=0.1, cost=0.1)  # of a decision after the resume
    for void, late in zip(asked[3:6], asked[:3], strict=True):
        assert study.status()["stop_reason"] == ""
        study.void(void, reason="not wanted", unrelated=True)
        study.tell(late, reward=0.1, cost=0.1)
    assert study.status()["stop_reason"] == "too_many_void"
    assert study.verify().ok
    assert Study.open("late", storage=lite.store).state_digest() == study.state_digest()
