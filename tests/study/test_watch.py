"""The guard of a study cannot be blinded: by silence, by a resume, by a hair above the advice, by a throttle.

Costs of 0.51 at the advice (τ = 0.5, contexts of norm 0.85, noise 0.3) lie within the stated norms, so that it is the
alarm that has to find them. The control is a study in which every outcome is reported and followed.
"""

import numpy as np
import pytest

from safedial import InvalidInput
from safedial.bounds import monitor
from safedial.study.state import HOUR
from safedial.study.study import Study

X = [0.6, 0.6]
SPEC = {
    "dim": 2,
    "threshold": 0.5,
    "violation_risk": 0.01,
    "estimation_risk": 0.01,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}


@pytest.fixture
def study_of(tmp_path):
    opened = []

    def make(**changes):
        name = f"s{len(opened)}"
        made = Study.create(name, {**SPEC, **changes}, storage=f"sqlite:///{tmp_path}/{name}.db")
        opened.append(made)
        return made

    yield make
    for study in opened:
        assert study.verify().ok
        study.store.close()


def rounds_to_stop(study, tell=None, most=60):
    """How many rounds over the threshold the study takes before it stops."""
    for number in range(1, most + 1):
        decision = study.ask(X)
        (tell or follow)(study, decision)
        if study.status()["stop_reason"]:
            return number
    return most + 1


def follow(study, decision):
    study.tell(decision.id, reward=0.1, cost=0.51)


@pytest.fixture
def control(study_of):
    taken = rounds_to_stop(study_of())
    assert taken <= 5
    return taken


@pytest.mark.parametrize("learning_order", ["prefix", "arrival"])
def test_one_outcome_that_is_never_reported_does_not_blind_the_alarm(study_of, control, learning_order):
    study = study_of(learning_order=learning_order)
    study.ask(X)
    assert rounds_to_stop(study) <= control + 10
    assert study.status()["stop_reason"] in ("alarm", "noise_broken")


def test_an_expired_outcome_does_not_blind_the_alarm(study_of, control):
    study = study_of()
    study.expire([study.ask(X).id], reason="no answer")
    assert rounds_to_stop(study) <= control + 10


def test_a_void_that_ends_the_learning_does_not_blind_the_alarm(study_of, control):
    study = study_of()
    study.void(study.ask(X).id, reason="bad reaction")
    assert rounds_to_stop(study) <= control + 10
    assert study.status()["frozen"]


@pytest.mark.parametrize("share", [1.0 + 1e-6, 1.2])
def test_a_setting_above_the_advice_is_watched_at_the_advice(study_of, control, share):
    def over(study, decision):
        study.tell(decision.id, reward=0.1, cost=0.51 * share, applied_action=share * decision.action)

    assert rounds_to_stop(study_of(), over) <= control + 10


def test_a_setting_above_the_advice_that_would_have_kept_the_guarantee_raises_nothing(study_of):
    def twice(study, decision):
        study.tell(decision.id, reward=0.1, cost=0.51, applied_action=2 * decision.action)

    study = study_of()
    assert rounds_to_stop(study, twice, most=12) == 13
    assert study.status()["violations"] == 12
    assert study.status()["evidence"] < 1.0


def test_throttled_outcomes_above_the_threshold_are_watched(study_of, control):
    def throttle(study, decision):
        study.tell(decision.id, reward=0.1, cost=0.51, throttled=True)

    study = study_of()
    assert rounds_to_stop(study, throttle) <= control + 10
    assert study.status()["violations"] >= 3


def test_a_resume_takes_back_only_the_rule_that_stopped_and_a_crossed_alarm_follows_at_once(study_of):
    """Stopped by too many open outcomes; then they come, all above the threshold, and somebody resumes."""
    study = study_of(guard={"max_open": 8})
    made = [study.ask(X) for _ in range(9)]
    assert study.status()["stop_reason"] == "too_many_open"
    for decision in made:
        study.tell(decision.id, reward=0.1, cost=0.51)
    evidence = study.status()["evidence"]
    assert evidence >= 100
    study.resume("outcomes are in now")
    kinds = [(event["kind"], event["body"].get("rule")) for event in study.events()["events"][-2:]]
    assert kinds == [("resumed", "too_many_open"), ("alarm", "alarm")]
    assert study.status()["evidence"] == evidence
    assert study.ask(X).guarantee == "none"


def test_after_a_resumed_alarm_the_next_one_comes_as_soon_as_the_first(study_of, control):
    study = study_of()
    rounds_to_stop(study)
    study.resume("the pump was replaced")
    assert study.status()["stop_reason"] == ""
    assert rounds_to_stop(study) <= control + 10


def test_outcomes_that_were_open_at_a_resume_count_with_those_before_it_alone(study_of):
    study = study_of()
    waiting = [study.ask(X) for _ in range(5)]
    rounds_to_stop(study)
    study.resume("a person looked")
    for decision in waiting:
        assert study.status()["stop_reason"] == ""
        study.tell(decision.id, reward=0.1, cost=0.1 if decision is waiting[0] else 0.51)
        if study.status()["stop_reason"]:
            break
    assert study.status()["stop_reason"] == "alarm"
    assert study._run(lambda transaction: monitor.evidence(transaction.state.watch.monitor)) == pytest.approx(1.0)


def test_a_correction_that_shows_violations_raises_the_alarm(study_of):
    study = study_of()
    made = []
    for _ in range(5):
        made.append(study.ask(X))
        study.tell(made[-1].id, reward=0.1, cost=0.1)
    for decision in made:
        study.correct(decision.id, cost=0.51, reason="the sensor read a fifth")
    assert study.status()["stop_reason"] == "alarm"


def test_every_certificate_after_a_resume_says_so(study_of):
    study = study_of(guard={"stop": {"decisions": 2}})
    study.ask(X)
    study.ask(X)
    study.resume("the board agreed")
    decision = study.ask(X)
    assert [each["rule"] for each in decision.certificate["resumed"]] == ["stop_rule"]
    assert "Resumed after stop_rule on 20" in decision.explain()


def test_evidence_is_valid_when_bad_outcomes_come_late_or_never(study_of):
    """Null worlds with lateness and silence that depend on the outcome: the evidence stays small."""
    rng = np.random.default_rng(2)
    study = study_of()
    late = []
    for _ in range(300):
        decision = study.ask(X)
        cost = 0.6 if rng.random() < 0.01 else 0.1
        if cost > 0.5:
            late.append(decision)
        elif rng.random() < 0.9:
            study.tell(decision.id, reward=0.1, cost=cost)
        if len(late) == 2:
            study.tell(late.pop(0).id, reward=0.1, cost=0.6)
    assert study.status()["stop_reason"] == ""
    assert study.status()["evidence"] < 10


def test_dull_rounds_that_are_voided_do_not_make_the_noise_look_large(study_of):
    """Only outcomes with a large residual are kept: each lost round must still multiply the evidence by √(1−s)."""
    rng = np.random.default_rng(4)
    study = study_of(violation_risk=0.2)
    for _ in range(400):
        decision = study.ask(X)
        noise = 0.3 * rng.standard_normal()
        if abs(noise) < 0.3:
            study.void(decision.id, reason="dull", unrelated=True)
        else:
            study.tell(decision.id, reward=0.3 * decision.intensity, cost=decision.intensity * (0.3 + noise))
    assert study.status()["stop_reason"] in ("", "too_many_unwatched")
    assert study.status()["noise_evidence"] < 1.0


def test_too_many_rounds_without_a_verdict_stop_the_study(study_of):
    study = study_of()
    for _ in range(21):
        study.void(study.ask(X).id, reason="lost", unrelated=True)
    assert (study.status()["stop_reason"], study.status()["unwatched"]) == ("too_many_unwatched", 21)
    study.resume("the courier was changed")
    assert study.status()["stop_reason"] == ""
    assert "to judge the guarantee by: 21" in study.ask(X).explain()


def test_an_expired_outcome_that_comes_after_all_is_watched(study_of):
    study = study_of()
    decision = study.ask(X)
    study.expire([decision.id], reason="no answer")
    assert study.status()["unwatched"] == 1
    study.tell(decision.id, reward=0.1, cost=0.51)
    assert study.status()["unwatched"] == 0
    assert study.status()["evidence"] > 1.0


def test_an_outcome_that_is_overdue_stops_the_study_before_the_next_decision(study_of, monkeypatch):
    study = study_of(guard={"max_open_hours": 24})
    first = study.ask(X)
    from safedial.study import event, transaction

    start = event.now()
    monkeypatch.setattr(transaction, "now", lambda: start + 23 * HOUR)
    assert study.ask(X).guarantee == "certified"
    monkeypatch.setattr(transaction, "now", lambda: start + 25 * HOUR)
    late = study.ask(X)
    assert (late.guarantee, late.limit) == ("none", "outcome_overdue")
    study.tell(first.id, reward=0.1, cost=0.1)
    study.resume("it is in now")
    assert study.ask(X).guarantee == "certified"


def test_the_largest_step_climbs_only_on_settings_that_were_given_and_answered(study_of):
    study = study_of(threshold=50, guard={"max_step": 1.0}, dial={"high": 20})
    for _ in range(10):
        decision = study.ask(X)
        assert decision.action == 1.0
        study.void(decision.id, reason="never given", unrelated=True)
    overridden = study.ask(X)
    study.tell(overridden.id, reward=0.1, cost=0.1, applied_action=19)
    assert study.ask(X).action == 2.0


def test_a_dose_that_was_withheld_for_an_unknown_reason_ends_the_learning(study_of):
    study = study_of()
    follow_at = {"reward": 0.0, "cost": 0.0, "applied_action": 0.0}
    study.tell(study.ask(X).id, **follow_at, unrelated=True)
    study.tell(study.ask(X).id, reward=0.1, cost=0.1)
    assert (study.status()["frozen"], study.status()["informative_rounds"]) == (False, 1)
    withheld = study.ask(X)
    study.tell(withheld.id, **follow_at)
    study.tell(study.ask(X).id, reward=0.1, cost=0.1)
    assert (study.status()["frozen"], study.status()["informative_rounds"]) == (True, 1)
    assert "Learning has ended" in study.ask(X).explain()


def test_a_vouched_dose_of_nothing_stays_vouched_for_after_a_correction(study_of):
    study = study_of()
    decision = study.ask(X)
    study.tell(decision.id, reward=0.1, cost=0.0, applied_action=0.0, unrelated=True)
    study.correct(decision.id, reward=0.0, reason="typing error")
    assert not study.status()["frozen"]


def test_costs_above_what_the_norms_allow_stop_the_study(study_of):
    """1,000 imported rounds with a mean cost of 2.4 where the norms allow 0.85: found at the first decision."""
    rng = np.random.default_rng(0)
    study = study_of()
    costs = 0.5 * (2.4 + 0.3 * rng.standard_normal(200))
    study.import_history([{"context": X, "action": 0.5, "reward": 0.0, "cost": float(cost)} for cost in costs])
    decision = study.ask(X)
    assert (decision.guarantee, decision.limit) == ("none", "assumption_broken")
    assert study.status()["stop_reason"] == "assumption_broken"


def test_a_baseline_outside_the_stated_range_is_refused(study_of):
    with pytest.raises(InvalidInput, match=r"baseline_cost = -10\.0"):
        study_of().ask(X, baseline_cost=-10.0)
    stated = study_of(baseline_range=[-1, None])
    assert stated.ask(X, baseline_cost=-0.5).guarantee == "certified"
    assert stated.spec.fields["baseline_range"] == [-1, None]


def test_a_new_study_writes_down_its_rules_and_every_option(study_of):
    study = study_of(guard={"max_open": 7})
    first = study.events()["events"][0]["body"]
    assert first["format"] == 1
    assert first["spec"]["guard"]["max_open"] == 7
    assert first["spec"]["guard"]["max_unwatched"] == 0.25
    assert first["spec"]["policy"]["probe"] == study.spec.rules.policy.options["probe"]


def test_a_void_does_not_hide_a_violation_that_was_reported(study_of, control):
    def void(study, decision):
        follow(study, decision)
        if not study.status()["stop_reason"]:
            study.void(decision.id, reason="looked wrong", unrelated=True)

    study = study_of()
    assert rounds_to_stop(study, void) <= control + 10
    assert study.status()["violations"] >= 3


def test_violations_that_were_corrected_away_are_counted(study_of):
    study = study_of()
    decision = study.ask(X)
    follow(study, decision)
    study.correct(decision.id, cost=0.1, reason="typing error")
    assert (study.status()["violations"], study.status()["corrected_violations"]) == (0, 1)
    assert "that corrections took back: 1" in study.ask(X).explain()
    study.void(decision.id, reason="wrong patient", unrelated=True)
    assert study.status()["violations"] == 0


def test_a_throttled_setting_above_the_advice_says_nothing_of_the_advice(study_of):
    study = study_of()
    with pytest.raises(InvalidInput, match=r"applied_action = -7.0: must lie between 0 and 1"):
        study.tell(study.ask(X).id, reward=0.1, cost=0.6, applied_action=-7.0, throttled=True)
    for _ in range(8):
        study.tell(study.ask(X).id, reward=0.1, cost=0.6, applied_action=1.0, throttled=True)
    assert (study.status()["stop_reason"], study.status()["unwatched"]) == ("", 8)
    assert study.status()["evidence"] < 1.0


def test_rounds_that_guarantee_nothing_do_not_dilute_those_that_were_not_watched(study_of):
    study = study_of()
    for _ in range(21):
        study.ask(X, baseline_cost=9.0)
        study.void(study.ask(X).id, reason="lost", unrelated=True)
    assert study.status()["stop_reason"] == "too_many_unwatched"


def test_late_outcomes_from_before_a_resume_do_not_pay_for_new_voids(study_of):
    study = study_of(guard={"max_unwatched": 0.2})
    old = [study.ask(X) for _ in range(21)]
    study.expire([decision.id for decision in old], reason="no answer")
    assert study.status()["stop_reason"] == "too_many_unwatched"
    study.resume("a new courier")
    for decision in old:
        study.void(study.ask(X).id, reason="lost", unrelated=True)
        study.tell(decision.id, reward=0.1, cost=0.1)
    assert study.status()["stop_reason"] == "too_many_unwatched"


@pytest.mark.parametrize(("ridge", "bound", "noise"), [(1.0, 1000.0, 1.0), (1e-6, 1.0, 0.01)])
def test_what_rounding_allows_for_is_not_taken_for_noise(study_of, ridge, bound, noise):
    """Gaussian noise of exactly the stated size; the estimate is raised by its allowance for rounding."""
    rng = np.random.default_rng(3)
    constants = {"context_bound": bound, "reward_noise": noise, "cost_noise": noise, "coefficient_bound": 1.0}
    study = study_of(ridge=ridge, threshold=2000.0, guard={"alarm_level": 0.001}, **constants)
    for _ in range(25):
        x = rng.standard_normal(2)
        x *= 0.99 * bound / np.linalg.norm(x)
        decision = study.ask(x.tolist())
        reward, cost = (decision.intensity * (x[0] + noise * each) for each in rng.standard_normal(2))
        study.tell(decision.id, reward=reward, cost=cost)
    assert study.status()["noise_evidence"] < 1.0


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ({"max_unwatched": 0}, "max_unwatched"),
        ({"max_unwatched": 1.5}, "max_unwatched"),
        ({"max_open_hours": 0}, "max_open_hours"),
        ({"max_open_hours": "a day"}, "max_open_hours"),
    ],
)
def test_a_guard_that_makes_no_sense_is_refused(study_of, guard, words):
    with pytest.raises(InvalidInput, match=words):
        study_of(guard=guard)
