"""What an attack on studies found: each test failed before its cure."""

import json

import pytest

from safedial.errors import InvalidInput
from safedial.study import transaction
from safedial.study.event import now
from safedial.study.manage import create_study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC

WHY = {"reason": "a test"}
HOUR = 3_600_000_000


def made(lite, name="attacked", **changes):
    return create_study(name, {**SPEC, "fallback_action": 0.05, **changes}, storage=lite.store)


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
