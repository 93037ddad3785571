"""Every operation, on SQLite and on PostgreSQL: what is answered, what is refused, and that refusals change nothing."""

import csv
import math
import re
from datetime import UTC, datetime, timedelta

import pytest

from safedial import Agent, SafetySpec
from safedial.errors import InvalidInput
from safedial.study.manage import create_study, find_decision, list_studies, open_study
from safedial.study.store import Store
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC, id_at


def test_a_study_answers_as_an_agent_with_the_same_outcomes_does(study):
    agent = Agent(2, SafetySpec(**{name: value for name, value in SPEC.items() if name != "dim"}))
    for number in range(30):
        context = [0.6 * math.sin(number), 0.5 * math.cos(2 * number)]
        mine, theirs = study.ask(context), agent.ask(context)
        assert mine.action == theirs.action
        reward, cost = 0.4 * theirs.intensity, 0.2 * theirs.intensity
        study.tell(mine.id, reward=reward, cost=cost)
        agent.tell(theirs, reward=reward, cost=cost)
    assert study.status()["informative_rounds"] == agent.informative_rounds == 30
    assert study.status()["evidence"] == pytest.approx(agent.evidence)


def test_the_trail_gives_what_stands_out_or_the_whole_log(study):
    study.tell(study.ask([0.5, 0.1]).id, reward=0.1, cost=0.2)
    study.amend(changes={"labels": {"cost": "trough"}}, reason="a better name")
    assert [event["kind"] for event in study.trail()] == ["amended", "study_created"]
    assert [event["kind"] for event in study.trail(whole=True)] == ["amended", "outcome", "decided", "study_created"]


def test_the_log_holds_every_step_and_verifies(study):
    first, second = study.ask([0.5, 0.1]), study.ask([0.1, 0.5], key="visit-2")
    measured = datetime.now(UTC).isoformat()
    study.tell(second.id, reward=0.1, cost=0.2, applied_action=second.action / 2, observed_at=measured)
    study.tell(first.id, reward=0.1, cost=0.2)
    study.correct(first.id, cost=0.1, reason="typing error")
    third = study.ask([0.1, 0.1])
    study.void(third.id, reason="device was off", unrelated=True)
    mark = study.checkpoint("end of the month")
    kinds = [event["kind"] for event in study.events()["events"]]
    told = ["outcome", "outcome", "correction", "decided", "voided", "checkpoint"]
    assert kinds == ["study_created", "decided", "decided", *told]
    report = study.verify(checkpoint=mark)
    assert report.ok, report
    assert (report.decisions, report.inexact, report.seq) == (3, 0, mark["seq"])
    assert study.explain(first.id).count("typing error") == 1


def test_a_time_of_measurement_before_the_decision_or_in_the_future_is_refused(study, tmp_path):
    made, now = study.ask([0.5, 0.1]), datetime.now(UTC)
    for off, words in ((-25, "before its decision"), (25, "in the future")):
        observed_at = (now + timedelta(hours=off)).isoformat()
        with pytest.raises(
            InvalidInput, match=f"observed_at = '{re.escape(observed_at)}': must not lie {words}.*Z; give"
        ):
            study.tell(made.id, reward=0.1, cost=0.2, observed_at=observed_at)
    assert study.status()["open"] == 1
    for observed_at in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"):
        with pytest.raises(InvalidInput, match="must not lie"):
            study.tell(made.id, reward=0.1, cost=0.2, observed_at=observed_at)
    naive = (now - timedelta(hours=12)).replace(tzinfo=None).isoformat()
    assert study.tell(made.id, reward=0.1, cost=0.2, observed_at=naive).created
    assert not study.tell(made.id, reward=0.1, cost=0.2, observed_at=naive).created
    study.ask([0.5, 0.1])
    study.correct(made.id, cost=0.3, reason="typing error")
    assert [row.get("observed_at") for row in study.rows()] == [naive, None]
    with open(study.export(tmp_path / "log.csv"), newline="") as file:
        assert [row["observed_at"] for row in csv.DictReader(file)] == [naive, ""]


def test_the_model_waits_for_the_first_open_round(study):
    first, second = study.ask([0.5, 0.1]), study.ask([0.1, 0.5])
    study.tell(second.id, reward=0.1, cost=0.2)
    assert (study.status()["informative_rounds"], study.status()["waiting"]) == (0, 1)
    study.tell(first.id, reward=0.1, cost=0.2)
    assert (study.status()["informative_rounds"], study.status()["waiting"]) == (2, 0)


def test_outcomes_in_arrival_order_are_learned_at_once_and_the_certificate_says_what_that_rests_on(store):
    study = create_study("arrival", {**SPEC, "learning_order": "arrival"}, storage=store)
    _, second = study.ask([0.5, 0.1]), study.ask([0.1, 0.5])
    study.tell(second.id, reward=0.1, cost=0.2)
    assert study.status()["informative_rounds"] == 1
    rests = study.ask([0.1, 0.1]).certificate["assumptions"]
    assert any("delays do not depend on outcomes" in words for words in rests)


def test_a_void_freezes_the_model_unless_its_reason_is_unrelated(study):
    decisions = [study.ask([0.1 * number, 0.2]) for number in range(4)]
    study.void(decisions[0].id, reason="wrong patient", unrelated=True)
    study.tell(decisions[1].id, reward=0.1, cost=0.2)
    assert study.status()["informative_rounds"] == 1
    study.void(decisions[2].id, reason="looked bad")
    study.tell(decisions[3].id, reward=0.1, cost=0.2)
    assert (study.status()["informative_rounds"], study.status()["void"]) == (1, 2)
    assert study.status()["frozen"]
    assert study.verify().ok


def test_behind_a_lost_round_nothing_is_learned_and_the_watch_goes_on(study):
    study.void(study.ask([0.1, 0.1]).id, reason="looked bad")
    for _ in range(6):
        study.tell(study.ask([0.1, 0.1]).id, reward=0.1, cost=0.501)
    assert (study.status()["informative_rounds"], study.status()["waiting"]) == (0, 0)
    assert study.status()["stop_reason"] == "alarm"
    assert study.verify().ok


def test_in_arrival_order_too_a_lost_round_ends_the_learning(lite):
    study = create_study("arrival", {**SPEC, "learning_order": "arrival"}, storage=lite.store)
    first, second = study.ask([0.5, 0.1]), study.ask([0.1, 0.5])
    study.void(first.id, reason="looked bad")
    study.tell(second.id, reward=0.1, cost=0.2)
    assert (study.status()["informative_rounds"], study.status()["frozen"]) == (0, True)


def test_a_throttled_round_is_no_override_and_stops_the_model_before_it(study):
    first, second = study.ask([0.5, 0.1]), study.ask([0.1, 0.5])
    study.tell(first.id, reward=0.1, cost=0.2, applied_action=0.01, throttled=True)
    study.tell(second.id, reward=0.1, cost=0.2)
    assert study.status()["informative_rounds"] == 0
    assert next(iter(study.rows()))["status"] == "throttled"


def test_a_correction_gives_the_state_that_the_right_value_would_have_given(store):
    wrong, right = (create_study(name, SPEC, storage=store) for name in ("wrong", "right"))
    for study, cost in ((wrong, 0.4), (right, 0.1)):
        made = [study.ask([0.3, 0.1 * number]) for number in range(5)]
        for number, decision in enumerate(made):
            study.tell(decision.id, reward=0.2, cost=cost if number == 2 else 0.05)
    wrong.correct(id_at(wrong, 4), cost=0.1, reason="typing error")
    assert wrong.ask([0.5, 0.5]).action == right.ask([0.5, 0.5]).action
    wrong.void(id_at(wrong, 4), reason="not this patient", unrelated=True)
    right.void(id_at(right, 4), reason="not this patient", unrelated=True)
    assert wrong.ask([0.5, 0.5]).action == right.ask([0.5, 0.5]).action
    assert wrong.verify().ok
    assert right.verify().ok


def test_the_same_key_and_request_give_the_stored_answer_and_another_request_is_refused(study):
    first = study.ask([0.5, 0.1], key="k")
    again = study.ask([0.5, 0.1], key="k")
    assert (first.id, first.body, first.action) == (again.id, again.body, again.action)
    with pytest.raises(StudyError, match="another request") as refused:
        study.ask([0.5, 0.2], key="k")
    assert refused.value.code == "key_reused"
    assert study.status()["decisions"] == 1


def test_the_same_outcome_twice_is_one_and_another_is_a_conflict(study):
    decision = study.ask([0.5, 0.1])
    first = study.tell(decision.id, reward=0.1, cost=0.2)
    again = study.tell(decision.id, reward=0.1, cost=0.2)
    assert (first.seq, first.created, again.seq, again.created) == (3, True, 3, False)
    with pytest.raises(StudyError, match="correct") as refused:
        study.tell(decision.id, reward=0.1, cost=0.3)
    assert refused.value.code == "conflict"


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ([math.nan, 0.0], "not_finite"),
        ([math.inf, 0.0], "not_finite"),
        (["0.1", 0.0], "not_finite"),
        ([True, 0.0], "not_finite"),
        ([0.1], "wrong_dimension"),
        ([0.1, 0.2, 0.3], "wrong_dimension"),
        ({"a": 0.1, "b": 0.1}, "wrong_dimension"),
        ([0.9, 0.9], "context_out_of_bounds"),
    ],
)
def test_a_bad_context_is_refused_with_its_code(lite, context, code):
    with pytest.raises(InvalidInput) as refused:
        lite.ask(context)
    assert refused.value.code == code
    assert lite.status()["seq"] == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "0.1", True, None, 10**400])
def test_a_bad_outcome_is_refused_and_changes_nothing(lite, value):
    decision = lite.ask([0.5, 0.1])
    for values in ({"reward": value, "cost": 0.1}, {"reward": 0.1, "cost": value}):
        with pytest.raises(InvalidInput) as refused:
            lite.tell(decision.id, **values)
        assert refused.value.code == "not_finite"
    assert lite.status()["open"] == 1
    lite.tell(decision.id, reward=0.1, cost=0.1)


def test_a_quotient_too_large_for_a_float_is_refused(lite):
    decision = lite.ask([0.5, 0.1])
    with pytest.raises(InvalidInput) as refused:
        lite.tell(decision.id, reward=0.1, cost=1e300, applied_action=1e-300)
    assert refused.value.code == "not_finite"


def test_an_outcome_with_nothing_applied_is_stored_and_not_learned_from(study):
    decision = study.ask([0.5, 0.1])
    study.tell(decision.id, reward=0.0, cost=0.0, applied_action=0.0)
    assert (study.status()["outcomes"], study.status()["informative_rounds"]) == (1, 0)
    assert study.status()["waiting"] == 0


def test_unknown_decisions_and_those_of_other_studies_are_refused(store, study):
    other = create_study("other", SPEC, storage=store)
    theirs = other.ask([0.1, 0.1])
    for decision_id in ("trial.99", "trial.1", "nonsense", "trial.x", "nobody.3", theirs.id, "trial.-2", 7):
        with pytest.raises(StudyError) as refused:
            study.tell(decision_id, reward=0.1, cost=0.1)
        assert refused.value.code == "unknown_decision"
    found, seq = find_decision(store, theirs.id)
    assert (found.name, seq) == ("other", 2)


def test_reasons_are_required(study):
    decision = study.ask([0.1, 0.1])
    study.tell(decision.id, reward=0.1, cost=0.1)
    calls = (
        lambda: study.correct(decision.id, cost=0.2, reason=" "),
        lambda: study.void(decision.id, reason=""),
        lambda: study.resume(""),
        lambda: study.expire([decision.id], reason=""),
    )
    for call in calls:
        with pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.code == "reason_required"


def test_one_decision_expires_by_its_id_as_well_as_in_a_list(lite):
    ids = [lite.ask([0.1, 0.1]).id for _ in range(3)]
    assert [receipt.decision_id for receipt in lite.expire(ids[0], reason="six weeks")] == [ids[0]]
    assert [receipt.decision_id for receipt in lite.expire(ids[1:], reason="six weeks")] == ids[1:]
    with pytest.raises(InvalidInput, match="unrelated"):
        lite.expire(ids[0], reason="six weeks", unrelated="yes")


def test_an_expired_outcome_may_still_come_unless_it_was_given_up(study):
    first, second = study.ask([0.5, 0.1]), study.ask([0.1, 0.5])
    study.expire(before=datetime.now(UTC) + timedelta(seconds=5), reason="six weeks")
    assert (study.status()["open"], study.status()["expired"]) == (0, 2)
    study.tell(first.id, reward=0.1, cost=0.1)
    study.tell(second.id, reward=0.1, cost=0.1)
    assert (study.status()["informative_rounds"], study.status()["void"]) == (2, 0)
    third = study.ask([0.1, 0.1])
    study.expire([third.id], reason="moved away", unrelated=True)
    with pytest.raises(StudyError) as refused:
        study.tell(third.id, reward=0.1, cost=0.1)
    assert refused.value.code == "conflict"
    assert study.verify().ok


def test_studies_are_found_again_and_a_changed_guarantee_is_refused(storage):
    with Store(storage) as store:
        create_study("trial", SPEC, storage=store).ask([0.1, 0.1])
        with pytest.raises(StudyError) as refused:
            create_study("trial", SPEC, storage=store)
        assert refused.value.code == "study_exists"
        with pytest.raises(InvalidInput, match="a changed guarantee needs a new study"):
            create_study("trial", {**SPEC, "threshold": 0.7}, storage=store, load_if_exists=True)
    with Store(storage) as store:
        assert create_study("trial", SPEC, storage=store, load_if_exists=True).status()["decisions"] == 1
        assert list_studies(store) == [{"name": "trial", "events": 2}]
        assert open_study("trial", storage=store).verify().ok
        with pytest.raises(StudyError) as refused:
            open_study("none", storage=store)
        assert refused.value.code == "unknown_study"


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 0},
        {"threshold": "0.5"},
        {"reward_noise": True},
        {"cost_noise": None},
        {"ridge": 0},
        {"dim": 2.5},
        {"policy": ["hp_ucb"]},
        {"policy": {"growth": 1}},
        {"radius": "large"},
        {"dose": []},
        {"dial": {"low": 3, "high": 1}},
        {"dial": 7},
        {"features": {"names": "ab"}},
        {"guard": {"max_open": 0}},
        {"guard": {"stop": 3}},
        {"guard": {"caps": {"a": 1}}},
        {"violation_risk": 1.0},
        {"coefficient_bound": -1},
        {"context_bound": math.nan},
        {"dose": {"curve": "power", "exponent": -1}},
        {"dose": {"curve": "tabulated", "actions": [0, 1], "intensities": [0.1, 1]}},
        {"dose": {"curve": "tabulated", "actions": [0, 0.5, 1], "intensities": [0, 1, 1]}},
        {"dose": 3},
        {"dim": 0},
        {"dim": True},
        {"policy": "thompson"},
        {"policy": "nonsense"},
        {"learning_order": "sometimes"},
        {"colour": "red"},
        {"dial": {"wide": 3}},
        {"guard": {"max_opened": 3}},
        {"guard": {"caps": [{"when": {"9": {"min": 0}}, "limit": 0.1}]}},
        {"guard": {"stop": {"violations": 5, "of_last": 3}}},
        {"guard": {"stop": {"violations": 5, "of_last": 10**19}}},
        {"features": {"names": ["a"]}},
    ],
)
def test_a_bad_specification_is_refused_and_no_study_is_made(lite, changes):
    with pytest.raises(InvalidInput):
        create_study("bad", {**SPEC, **changes}, storage=lite.store)
    assert [each["name"] for each in list_studies(lite.store)] == ["trial"]


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "hp_ucb", "radius": "paper"},
        {"radius": "mixture", "probe": 0},
        {"radius": "self-normalised"},
        {"radius": "noise-adaptive", "margin": "gaussian"},
        {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.01},
        {"guarantee": "joint"},
        {"noise_scale": {"scale": "power_scale", "exponent": 0.8}},
        {"reward_sensor_noise": 0.05, "cost_sensor_noise": 0.05},
        {"dose": {"reward": {"curve": "power", "exponent": 0.5}, "cost": {"curve": "hill", "ed50": 0.5}}},
    ],
)
def test_every_radius_margin_and_curve_is_recorded_explained_and_computed_again(lite, changes):
    study = create_study("other", {**SPEC, **changes, "guard": {"alarm_level": 1e-9}}, storage=lite.store)
    for number in range(25):
        decision = study.ask([0.6 * math.sin(number), 0.5 * math.cos(2 * number)])
        study.tell(decision.id, reward=0.2 * decision.intensity, cost=0.1 * decision.intensity)
    again = study.decision(decision.id)
    assert again.certificate == decision.certificate
    assert "Guarantee" in study.explain(decision.id)
    report = study.verify()
    assert (report.ok, report.inexact) == (True, 0)
    with Store(lite.store.storage) as other:
        assert open_study("other", storage=other).state_digest() == study.state_digest()
