"""What an attack on studies found: each test failed before its cure."""

import json

import numpy as np
import pytest
from scipy.stats import binom

from safedial import Agent, SafetySpec
from safedial.errors import InvalidInput
from safedial.rounds.learning import Learning
from safedial.rounds.outcome import Round, for_the_watch
from safedial.rounds.watch import Watch
from safedial.service.access import refuse_open_address
from safedial.study import replay_log, transaction
from safedial.study.event import now
from safedial.study.keys import create_key, hash_key, list_keys, live_keys, revoke_key
from safedial.study.manage import backup
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC

WHY = {"reason": "a test"}
HOUR = 3_600_000_000


def made(lite, name="attacked", **changes):
    return Study.create(name, {**SPEC, "fallback_action": 0.05, **changes}, storage=lite.store)


def test_a_decision_dated_ahead_does_not_hide_that_a_later_one_is_overdue(lite, monkeypatch):
    study, hours = made(lite, guard={"max_open_hours": 24}), {"ahead": 24 * 365}
    monkeypatch.setattr(transaction, "now", lambda: now() + hours["ahead"] * HOUR)
    study.ask([0.1, 0.2])
    hours["ahead"] = 0
    second = study.ask([0.1, 0.2])
    assert study.status()["oldest_open"] == second.certificate["at"]
    hours["ahead"] = 25
    assert study.ask([0.1, 0.2]).limit == "outcome_overdue"
    assert study.verify().ok


def test_a_void_decision_releases_its_key_and_an_amended_study_says_so_in_a_repeated_answer(lite):
    study, asked = made(lite), {"key": "k", "unit": "P-04", "visit": "1"}
    first = study.ask([0.1, 0.2], **asked)
    study.amend(changes={"threshold": 0.1}, **WHY)
    again = study.ask([0.1, 0.2], **asked)
    assert (again.id, again.replayed, again.amended) == (first.id, True, True)
    assert "AMENDED SINCE" in again.explain()
    study.void(first.id, unrelated=True, **WHY)
    second = study.ask([0.1, 0.2], **asked)
    assert (second.replayed, second.amended) == (False, False)
    assert second.id != first.id
    assert second.action < first.action
    study.tell(second.id, reward=0.1, cost=0.05)
    assert study.ask([0.1, 0.2], **asked).id == second.id
    study.void(second.id, unrelated=True, **WHY)
    other = study.ask([0.3, 0.2], key="k")  # a released key is for any request
    assert not other.replayed
    assert study.verify().ok


def test_one_unit_written_in_several_ways_stays_one_unit(lite):
    study = made(lite)
    first = study.ask([0.1, 0.2], unit="Zoë-04", visit="Day 1")
    for written in (" Zoë-04", "Zoë-04\t", "Zoe\u0308-04"):
        assert study.ask([0.1, 0.2], unit=written).certificate["unit"] == "Zoë-04"
        with pytest.raises(StudyError, match=first.id):
            study.ask([0.1, 0.2], unit=written, visit=" Day 1 ")
    assert [each["unit"] for each in study.units()] == ["Zoë-04"]
    assert study.unit(" Zoe\u0308-04")["decisions"] == 4
    assert len(list(study.rows(unit="Zoë-04", visit="Day 1 "))) == 1
    with pytest.raises(InvalidInput, match="unit = 'zoë-04': a unit of this study is 'Zoë-04', which differs only in"):
        study.ask([0.1, 0.2], unit="zoë-04")
    with pytest.raises(StudyError, match=first.id):
        study.ask([0.1, 0.2], unit="Zoë-04", visit="day 1")
    study.void(first.id, unrelated=True, **WHY)
    study.ask([0.1, 0.2], unit="Zoë-04", visit="day 1")
    assert study.verify().ok


@pytest.mark.parametrize("level", [1e-300, 9e-5, 0.0, 1.0])
def test_no_setting_switches_the_alarm_off(lite, level):
    with pytest.raises(InvalidInput, match=r"guard.alarm_level = .*: must lie in \[0.0001, 1\): a smaller one would"):
        made(lite, guard={"alarm_level": level})
    with pytest.raises(InvalidInput, match="alarm_level"):
        lite.amend(changes={"guard": {"alarm_level": level}}, **WHY)


def test_a_certificate_shows_the_guard_and_what_the_watch_has_seen(lite):
    study = made(lite, guard={"alarm_level": 1e-4, "max_unwatched": None, "stop": {"decisions": 30}})
    for _ in range(3):
        study.tell(study.ask([0.1, 0.1]).id, reward=0.1, cost=0.6)
    decision = study.ask([0.1, 0.1])
    facts = decision.certificate
    assert facts["guard"] == study.spec.fields["guard"]
    assert facts["violations"] == 3
    assert facts["evidence"] > 100
    assert facts == study.decision(decision.id).certificate == json.loads(json.dumps(facts))
    facts["guard"]["stop"]["decisions"] = 7
    assert study.spec.guard.stop_decisions == 30
    words = f"Watched so far: evidence {decision.certificate['evidence']:.3g} (an alarm at 10000), costs above the"
    words += " threshold: 3. Guard: alarm_level 0.0001, max_open 10000, stop {'decisions': 30}."
    assert words in decision.explain()


STARTS = {
    "conformal": {"guarantee": "conformal"},
    "student": {"guarantee": "student"},
    "anytime": {
        "guarantee": "student",
        "estimation_risk": 0.01,
        "policy": {"name": "hp_student", "guarantee": "anytime"},
    },
    "either": {"guarantee": "student", "policy": {"name": "hp_student", "either": True}},
    "shield": {
        "guarantee": "bracket",
        "policy": {"name": "hp_shield", "base": "proposal", "growth": {"growth": "additive", "low": 0.0, "high": 1.0}},
    },
}


def start_study(lite, kind, name="start", **more):
    """A study with a declared start."""
    spec = {"dim": 2, "threshold": 0.5, "violation_risk": 0.1, "start_action": 0.2, **STARTS[kind], **more}
    return Study.create(name, spec, storage=lite.store)


def question(study):
    return {"proposal": 1.0} if study.spec.rules.policy.takes_proposal else {}


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("late", [0, 50])
def test_a_declared_start_that_exceeds_is_refuted_whatever_is_missing_or_late(lite, kind, late):
    study, rng, waiting = start_study(lite, kind), np.random.default_rng(1), []
    for number in range(120):
        decision = study.ask(rng.uniform(-1, 1, 2).tolist(), **question(study))
        waiting.append(decision.id)
        if number >= late and (told := waiting[number - late]) and (number - late) % 8 != 3:  # one in eight is missing
            study.tell(told, reward=0.1, cost=1.2)
        if study.status()["stop_reason"]:
            break
    assert (study.status()["stop_reason"], number - late < 20) == ("start_refuted", True)
    assert study.status()["start_evidence"] >= 100
    stopped = study.ask([0.1, 0.1], **question(study))
    assert (stopped.action, stopped.limit, stopped.guarantee) == (0.0, "start_refuted", "none")
    assert stopped.certificate["start_evidence"] == study.status()["start_evidence"]
    assert "evidence against the declared start" in stopped.explain()
    study.resume("the start was lowered", rule="start_refuted")
    assert study.status()["stop_reason"] == ""
    assert study.verify().ok


@pytest.mark.parametrize("kind", ["conformal", "student"])
def test_a_start_that_is_the_fallback_is_watched_while_the_study_is_stopped(lite, kind):
    study = start_study(lite, kind, guard={"stop": {"decisions": 1}})
    for cost in (0.1, 1.2, 1.2, 1.2, 1.2):
        decision = study.ask([0.1, 0.2])
        assert decision.action == 0.2
        study.tell(decision.id, reward=0.1, cost=cost)
    assert study.status()["stop_reason"] == "stop_rule"
    refuted = study.ask([0.1, 0.2])
    assert (refuted.action, refuted.limit) == (0.0, "start_refuted")
    study.resume("planned size reached")
    assert study.status()["stop_reason"] == "start_refuted"
    assert study.verify().ok


def test_agents_refute_a_declared_start_too(tmp_path):
    spec = SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="conformal")
    agent = Agent(2, spec, start_action=0.2)
    for number in range(6):
        agent.tell(agent.ask([0.1, 0.2]), reward=0.1, cost=1.2)
        if number == 1:
            agent.save(tmp_path / "agent")
            agent = Agent.load(tmp_path / "agent")
    assert agent.stop_reason == "start_refuted"
    assert agent.ask([0.1, 0.2]).action == 0.0
    agent.resume()
    assert (agent.stop_reason, agent.ask([0.1, 0.2]).action) == ("", 0.2)


def test_a_start_that_keeps_its_risk_is_seldom_refuted(count):
    """The evidence is a martingale at most, so in a run it reaches 100 with probability at most 0.01."""
    runs, refuted = count(60, 1000), 0
    spec = SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="conformal")
    rules = Agent(1, spec, start_action=0.2)._rules
    for seed in range(runs):
        rng, watch = np.random.default_rng(seed), Watch(rules, Learning(rules))
        for number, over in enumerate(rng.random(400) < 0.1, start=1):
            round_ = watch.guaranteed(Round(number, 0, 0.2, 0.0, True))
            watch.reported(round_, for_the_watch(rules, 0.2, 1.2 if over else 0.1, 0.0), None, 0.0)
        refuted += watch.refuted
    assert refuted <= binom.isf(1e-6, runs, 0.01)


def test_late_excesses_of_rounds_from_before_a_resume_stop_the_study_again(lite):
    study = made(lite)
    asked = [study.ask([0.1, 0.1]).id for _ in range(60)]
    while not study.status()["stop_reason"]:
        study.tell(asked.pop(0), reward=0.1, cost=0.501)
    assert study.status()["stop_reason"] == "alarm"
    study.resume("sensor replaced")
    assert study.status()["evidence"] == 1.0
    for each in asked[:10]:
        study.tell(each, reward=0.1, cost=0.501)
    assert study.status()["stop_reason"] == "alarm"
    assert study.ask([0.1, 0.1]).certificate["evidence"] >= 100
    study.resume("another sensor replaced")
    assert study.status()["evidence"] == 1.0
    assert study.verify().ok


def test_late_excesses_of_the_anytime_guarantee_from_before_a_resume_are_unwatched():
    spec = SafetySpec(threshold=0.5, violation_risk=0.1, estimation_risk=0.01, guarantee="student")
    rules = Agent(1, spec, policy={"name": "hp_student", "guarantee": "anytime"}, start_action=0.2)._rules
    watch = Watch(rules, Learning(rules))
    early, kept, late = (watch.guaranteed(Round(number, 0, 0.5, 0.0, True)) for number in (1, 2, 3))
    watch.resumed("alarm", 2)
    for round_, cost in ((early, 1.2), (kept, 0.1), (late, 1.2)):
        watch.reported(round_, for_the_watch(rules, 0.5, cost, 0.0), None, 0.0)
    assert watch.unwatched == 1


@pytest.mark.parametrize("kind", ["conformal", "student", "shield"])
def test_forgetting_often_hides_no_excess_at_the_start(lite, kind):
    study = start_study(lite, kind)
    for number in range(1, 20):
        study.tell(study.ask([0.1, 0.2], **question(study)).id, reward=0.1, cost=1.2)
        if study.status()["stop_reason"]:
            break
        if number % 3 == 0:
            study.resume("another lab", forget=True)
    assert (study.status()["stop_reason"], number < 10) == ("start_refuted", True)
    facts = study.ask([0.1, 0.2], **question(study)).certificate
    assert [each["forget"] for each in facts["resumed"]] == [True] * study.status()["forgets"]
    assert "Started again without the earlier rounds on" in study.ask([0.1, 0.2], **question(study)).explain()
    study.resume("the start was lowered", rule="start_refuted", forget=True)
    assert study.status()["stop_reason"] == ""
    assert study.verify().ok


@pytest.mark.parametrize("kind", ["conformal", "shield"])
def test_an_alarm_that_is_due_is_raised_before_its_rounds_are_forgotten(lite, kind):
    study = start_study(lite, kind, guard={"stop": {"decisions": 6}})
    asked = [study.ask([0.1, 0.2], **question(study)).id for _ in range(6)]
    assert study.status()["stop_reason"] == "stop_rule"
    for each in asked:
        study.tell(each, reward=0.1, cost=1.2)
    before = study.status()["seq"]
    with pytest.raises(StudyError, match="forget = True: the alarm start_refuted is due too") as refused:
        study.resume("another lab", forget=True)
    assert (refused.value.code, study.status()["seq"]) == ("other_rule", before)
    study.resume("planned size reached")
    assert study.status()["stop_reason"] == "start_refuted"
    assert [event["body"].get("rule") for event in study.events()["events"]][-2:] == ["stop_rule", "start_refuted"]
    study.resume("another lab", forget=True)
    assert study.verify().ok


def test_a_study_may_forget_ten_times(lite):
    study = start_study(lite, "conformal")
    for _ in range(10):
        study.ask([0.1, 0.2])
        study.resume("another lab", forget=True)
    with pytest.raises(InvalidInput, match="started again without its earlier rounds 10 times, the most that a study"):
        study.resume("another lab", forget=True)
    assert study.status()["forgets"] == 10


@pytest.mark.parametrize("kind", ["certified", "conformal"])
def test_outcomes_that_stay_open_hide_no_more_than_voids(lite, kind):
    study = made(lite, guard={"max_unwatched": 0.25}) if kind == "certified" else start_study(lite, kind)
    for number in range(450):
        decision = study.ask([0.1, 0.1])
        if number % 2:
            study.tell(decision.id, reward=0.1, cost=0.05)
        if study.status()["stop_reason"]:
            break
    assert (study.status()["stop_reason"], 350 < number < 440) == ("too_many_unwatched", True)
    unwatched = study.status()["unwatched"]
    first = study.waiting()[0]["decision_id"]
    study.tell(first, reward=0.1, cost=0.05)
    assert study.status()["unwatched"] == unwatched - 1
    second = study.waiting()[0]["decision_id"]
    study.expire([second], reason="lost")
    assert study.status()["unwatched"] == unwatched - 1
    state = study.state_digest()
    with Store(study.store.storage) as other:
        assert Study.open(study.name, storage=other).state_digest() == state
    assert study.verify().ok


def test_a_copy_brings_back_no_revoked_key_and_is_never_without_keys(lite, tmp_path):
    backup(lite.store, tmp_path / "first.db")
    text, made = create_key(lite.store, "admin", reason="a test", actor="tester")
    backup(lite.store, tmp_path / "second.db")
    assert live_keys(lite.store).keys() == {hash_key(text)}
    revoke_key(lite.store, made.id, reason="lost", actor="tester")
    for name in ("first", "second"):
        with Store(f"sqlite:///{tmp_path}/{name}.db") as copy:
            assert live_keys(copy) == {}
            assert [key.revoked_by for key in list_keys(copy)] == ["backup"]
            with pytest.raises(InvalidInput, match="it needs keys"):
                refuse_open_address(copy, "clinic.example")
            again, _ = create_key(copy, "decide", reason="restored", actor="tester")
            assert live_keys(copy).keys() == {hash_key(again)}


def test_a_correction_after_others_is_answered_however_long_the_log(lite, monkeypatch):
    """It was replayed again and again where an earlier correction lay behind the last whole page of the log."""
    monkeypatch.setattr(replay_log, "PAGE", 10)
    study = made(lite)
    ids = [study.ask([0.1, 0.2]).id for _ in range(30)]
    for each in ids:
        study.tell(each, reward=0.1, cost=0.05)
    for each in ids[:3]:
        study.correct(each, applied_action=0.01, wait=False, **WHY).result(timeout=30)
    assert study.verify().ok
