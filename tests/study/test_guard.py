"""The guard: each rule has its event, its fallback and its way back; habits lower an action and say so."""

import math

import pytest

from safedial.errors import InvalidInput
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC, id_at


def kinds(study):
    return [event["kind"] for event in study.events()["events"]]


def made(lite, name="guarded", **changes):
    return Study.create(name, {**SPEC, **changes}, storage=lite.store)


def violate(study, times):
    """Report costs above the threshold until an alarm, or `times` of them."""
    for _ in range(times):
        decision = study.ask([0.1, 0.1])
        study.tell(decision.id, reward=0.1, cost=0.501)
        if study.status()["stop_reason"]:
            return


def test_the_monitor_stops_the_study_until_a_person_resumes_it_with_a_reason(store):
    study = Study.create("guarded", {**SPEC, "fallback_action": 0.05}, storage=store)
    violate(study, 20)
    assert study.status()["stop_reason"] == "alarm"
    alarm = next(event for event in study.events()["events"] if event["kind"] == "alarm")
    assert alarm["body"]["rule"] == "alarm"
    assert alarm["body"]["evidence"] >= 100
    assert alarm["actor"] == "guard"
    decision = study.ask([0.1, 0.1])
    assert (decision.action, decision.guarantee, decision.limit, decision.safe_action) == (0.05, "none", "alarm", None)
    assert "until a person resumes" in decision.explain()
    study.resume("sensor replaced")
    assert study.status()["evidence"] == 1.0
    assert study.ask([0.1, 0.1]).guarantee == "certified"
    with pytest.raises(InvalidInput, match="nothing to resume"):
        study.resume("again")
    assert study.verify().ok


def test_residuals_larger_than_the_stated_noise_stop_the_study(lite):
    study = made(lite, threshold=50.0)
    for number in range(60):
        decision = study.ask([0.4, 0.1])
        study.tell(decision.id, reward=0.1, cost=(2.0 if number % 2 else -2.0) * decision.intensity)
        if study.status()["stop_reason"]:
            break
    assert study.status()["stop_reason"] == "noise_broken"
    assert study.status()["noise_evidence"] >= 200
    assert study.verify().ok


def test_a_bound_that_contradicts_the_norms_stops_the_study(lite):
    study = made(lite, reward_noise=1.0, cost_noise=1.0)
    for _ in range(40):
        decision = study.ask([0.5, 0.0])
        study.tell(decision.id, reward=-3.0 * decision.intensity, cost=-3.0 * decision.intensity)
        if study.status()["stop_reason"]:
            break
    assert study.status()["stop_reason"] == "assumption_broken"
    assert kinds(study)[-1] == "alarm" or kinds(study)[-2] == "alarm"
    assert study.ask([0.5, 0.0]).limit == "assumption_broken"
    assert study.verify().ok


def test_too_many_open_outcomes_stop_the_study_and_resuming_needs_them_reported(lite):
    study = made(lite, guard={"max_open": 3})
    decisions = [study.ask([0.1, 0.1]) for _ in range(4)]
    assert study.status()["stop_reason"] == "too_many_open"
    assert study.ask([0.1, 0.1]).action == 0.0
    study.resume("will report soon")
    assert study.status()["stop_reason"] == "too_many_open"
    study.tell(decisions[0].id, reward=0.1, cost=0.1)
    study.resume("reported")
    assert study.status()["stop_reason"] == ""
    assert study.verify().ok


def test_too_many_void_rounds_stop_the_study(lite):
    study = made(lite, guard={"max_void": 1})
    for _ in range(2):
        study.void(study.ask([0.1, 0.1]).id, reason="no data", unrelated=True)
    assert study.status()["stop_reason"] == "too_many_void"
    study.resume("data line repaired")
    assert study.ask([0.1, 0.1]).guarantee == "certified"


def test_the_stop_rule_counts_violations_among_the_last_outcomes(lite):
    study = made(lite, guard={"stop": {"violations": 2, "of_last": 3}, "alarm_level": 1e-4})
    for cost in (0.51, 0.1, 0.1, 0.51, 0.1):
        decision = study.ask([0.1, 0.1])
        study.tell(decision.id, reward=0.1, cost=cost)
    assert study.status()["stop_reason"] == ""
    decision = study.ask([0.1, 0.1])
    study.tell(decision.id, reward=0.1, cost=0.51)
    assert study.status()["stop_reason"] == "stop_rule"


def test_the_stop_rule_ends_a_study_of_planned_size(lite):
    study = made(lite, guard={"stop": {"decisions": 2}})
    assert [study.ask([0.1, 0.1]).guarantee for _ in range(3)] == ["certified", "certified", "none"]
    study.resume("extended by the board")
    assert study.ask([0.1, 0.1]).guarantee == "certified"


def test_caps_masks_and_steps_lower_the_action_and_show_on_the_certificate(lite):
    guard = {
        "max_step": 4.0,
        "caps": [
            {"name": "elderly", "when": {"age": {"min": 75}}, "limit": 5},
            {"name": "pregnant", "when": {"pregnant": {"min": 1}}, "limit": 0},
        ],
    }
    features = {"names": ["age", "pregnant"], "center": [50, 0], "scale": [100, 2]}
    dial = {"high": 20, "unit": "mg"}
    study = made(lite, threshold=50, guard=guard, features=features, dial=dial)
    ages = [(60, 0), (60, 0), (80, 0), (60, 1), (60, 0)]
    asked = []
    for age, pregnant in ages:
        asked.append(study.ask({"pregnant": pregnant, "age": age}))
        if asked[-1].intensity:
            study.tell(asked[-1].id, reward=0.2, cost=0.1)
    assert [(each.action, each.limit) for each in asked] == [
        (4.0, "step_up"),
        (8.0, "step_up"),
        (5.0, "cap"),
        (0.0, "mask"),
        (9.0, "step_up"),
    ]
    assert all(each.guarantee == "certified" for each in asked)
    assert asked[2].certificate["limiter"] == "cap"
    assert "cap the setting" in asked[2].explain()
    assert study.verify().ok


def test_a_cap_on_a_dial_with_levels_gives_a_level(lite):
    guard = {"caps": [{"when": {"0": {"min": 0.0}}, "limit": 7}]}
    study = made(lite, threshold=50, guard=guard, dial={"high": 20, "levels": [2, 5, 10, 20]})
    assert study.ask([0.1, 0.1]).action == 5.0
    assert study.ask([-0.1, 0.1]).action == 20.0


def test_a_largest_step_starts_from_what_was_applied(lite):
    study = made(lite, threshold=50, guard={"max_step": 0.3})
    first = study.ask([0.1, 0.1])
    study.tell(first.id, reward=0.1, cost=0.1, applied_action=0.1)
    assert study.ask([0.1, 0.1]).action == pytest.approx(0.4)


def test_a_conformal_study_starts_with_the_declared_dose_and_earns_its_bound(store):
    spec = {"dim": 1, "threshold": 0.5, "violation_risk": 0.2, "guarantee": "conformal", "start_action": 0.1}
    study = Study.create("conformal", spec, storage=store)
    guarantees = []
    for number in range(60):
        decision = study.ask([math.sin(number)])
        guarantees.append(decision.guarantee)
        assert decision.certificate["guarantee"] == decision.guarantee
        if number % 7 != 3:
            rate = 0.6 + 0.01 * math.cos(3.0 * number)
            study.tell(decision.id, reward=0.3 * decision.intensity, cost=rate * decision.intensity)
    assert guarantees[0] == "declared"
    assert guarantees[-1] == "conformal"
    study.void(id_at(study, 4), reason="wrong patient", unrelated=True)
    study.ask([0.5])
    assert study.verify().ok
    with Store(store.storage) as other:
        again = Study.create("conformal", spec, storage=other, load_if_exists=True)
        assert again.state_digest() == study.state_digest()
        assert again.ask([0.25]).action == pytest.approx(study.ask([0.25]).action, abs=0.2)


def test_a_drift_stops_a_conformal_study_and_resuming_may_forget(lite):
    spec = {"dim": 1, "threshold": 0.5, "violation_risk": 0.1, "guarantee": "conformal", "start_action": 0.1}
    study = Study.create("conformal", spec, storage=lite.store)
    waiting = None
    for number in range(400):
        decision = study.ask([math.sin(number)])
        if number == 150:
            waiting = decision
            continue
        rate = 0.3 + 0.1 * math.sin(37.0 * number) if number < 150 else 3.0 + 0.1 * number
        study.tell(decision.id, reward=0.3 * decision.intensity, cost=rate * decision.intensity)
        if study.status()["stop_reason"]:
            break
    assert study.status()["stop_reason"] == "drift"
    assert study.ask([0.1]).limit == "drift"
    study.resume("new reagent", forget=True)
    assert study.status()["informative_rounds"] == 0
    study.tell(waiting.id, reward=0.1, cost=0.1)
    assert study.ask([0.1]).guarantee == "declared"
    assert study.verify().ok
    stopped = made(lite, "linear", guard={"stop": {"decisions": 1}})
    stopped.ask([0.1, 0.1])
    with pytest.raises(InvalidInput, match=r"forget = True: .* whose earlier rounds stay valid"):
        stopped.resume("go on", forget=True)


@pytest.mark.parametrize(
    ("dial", "fallback"), [({}, 1.0), ({}, 0.51), ({"low": 10, "high": 20}, 20), ({"high": 20}, 11)]
)
def test_a_fallback_at_the_high_end_of_the_dial_is_refused_unless_it_is_meant(lite, dial, fallback):
    spec = {**SPEC, "fallback_action": fallback, "dial": dial}
    with pytest.raises(InvalidInput, match=r"fallback_action = .*upper half of the dial.*high_fallback: true"):
        Study.create("high", spec, storage=lite.store)
    meant = Study.create("high", {**spec, "high_fallback": True}, storage=lite.store)
    assert (meant.spec.rules.fallback_action, meant.spec.fields["high_fallback"]) == (fallback, True)
    assert Study.create("high", {**spec, "high_fallback": True}, storage=lite.store, load_if_exists=True).verify().ok
    with pytest.raises(InvalidInput, match="must be true or false"):
        Study.create("other", {**spec, "high_fallback": "yes"}, storage=lite.store)


def test_a_fallback_in_the_lower_half_or_at_the_declared_start_needs_no_word(lite):
    for number, more in enumerate(({"fallback_action": 0.5}, {"fallback_action": 0.0}, {})):
        Study.create(f"low{number}", {**SPEC, **more}, storage=lite.store)
    start = {"dim": 2, "threshold": 0.5, "violation_risk": 0.2, "guarantee": "conformal", "start_action": 0.8}
    made = Study.create("start", start, storage=lite.store)
    assert made.spec.rules.fallback_action == 0.8
    assert Study.create("again", made.spec.fields, storage=lite.store).spec.fields == made.spec.fields
