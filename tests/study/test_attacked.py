"""What an attack on studies found: each test failed before its cure."""

from safedial.study import transaction
from safedial.study.event import now
from safedial.study.manage import create_study
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
