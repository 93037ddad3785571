"""What an attack on studies found: each test failed before its cure."""

from safedial.study import transaction
from safedial.study.event import now
from safedial.study.manage import create_study
from tests.study.conftest import SPEC

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
