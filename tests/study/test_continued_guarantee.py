"""An amendment that changes nothing that is guaranteed, learned or advised begins no new phase."""

import pytest

from safedial import InvalidInput
from safedial.service.routes import draw
from safedial.service.timeline import Track
from safedial.study import transaction
from safedial.study.amendment import amended_spec, new_fields
from safedial.study.event import orjson
from safedial.study.snapshot import pack, unpack
from safedial.study.store import Store, same_spec
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import read_spec
from tests.study.conftest import SPEC
from tests.study.test_hidden_excesses import CERTIFIED, KINDS, SEVERAL, ask, tell

pytestmark = pytest.mark.filterwarnings("ignore")
WHY = {"reason": "better names"}
MILD = {**SPEC, "threshold": 3.0, "cost_noise": 1.2, "reward_noise": 0.5}
"""Costs just above the threshold are no evidence against its noise."""
ALL = {**KINDS, "certified": CERTIFIED, "certified several": SEVERAL}


def stops_after(study, changes, most=200):
    """The rounds to an alarm, those after the 40th above the threshold, with an amendment every five rounds."""
    for number in range(most):
        if changes is not None and number % 5 == 0:
            study.amend(changes=changes(number), **WHY)
        tell(study, 0.9 if number > 40 else 0.01 + 0.001 * (number % 7))
        if rule := study.status()["stop_reason"]:
            return number, rule
    return None


CHANGES = {
    "labels": lambda number: {"labels": {"reward": f"relief {number}"}},
    "max_open": lambda number: {"guard": {"max_open": 100 + number}},
    "alarm_level": lambda number: {"guard": {"alarm_level": 0.01 - (number + 1) * 1e-9}},
}
PAIRS = {(kind, [*CHANGES][number % 3]) for number, kind in enumerate(ALL)} | {("certified", name) for name in CHANGES}
"""Each kind of study with one of the changes, and one kind with all."""


@pytest.mark.parametrize(("kind", "change"), sorted(PAIRS))
def test_amended_labels_and_stop_rules_hide_no_evidence(lite, kind, change):
    control = Study.create("control", ALL[kind], storage=lite.store)
    study = Study.create("amended", ALL[kind], storage=lite.store)
    expected = stops_after(control, None)
    assert expected is not None
    assert stops_after(study, CHANGES[change]) == expected
    assert study.status()["since_round"] == 1
    assert study.status()["amendments"] == 1 + expected[0] // 5
    assert study.verify().ok


def test_a_stricter_alarm_judges_the_evidence_so_far(lite):
    study = Study.create("amended", MILD, storage=lite.store)
    while study.status()["evidence"] < 10.0:
        study.tell(study.ask([0.3, 0.2]).id, reward=0.1, cost=3.01)
    assert study.status()["stop_reason"] == ""
    study.amend(changes={"guard": {"alarm_level": 0.1}}, **WHY)
    assert study.status()["stop_reason"] == "alarm"
    study.resume("looked at it", rule="alarm")
    assert study.status()["evidence"] == 1.0
    assert study.verify().ok


def test_a_stricter_alarm_judges_the_noise_so_far(lite):
    study = Study.create("amended", {**MILD, "guard": {"alarm_level": 1e-4}}, storage=lite.store)
    while study.status()["noise_evidence"] < 1e4:
        decision = study.ask([0.3, 0.2])
        study.tell(decision.id, reward=1.5 * decision.action * (-1) ** decision.seq, cost=0.1)
    assert study.status()["stop_reason"] == ""
    study.amend(changes={"guard": {"alarm_level": 1e-3}}, **WHY)
    assert study.status()["stop_reason"] == "noise_broken"
    assert study.verify().ok


@pytest.mark.parametrize("kind", ["certified", "shield", "conformal", "certified several"])
def test_states_certificates_and_the_page_agree_through_continued_phases(tmp_path, kind, monkeypatch):
    """Late outcomes, corrections and voids of rounds before such amendments, snapshots, a restart."""
    monkeypatch.setattr(transaction, "SNAPSHOT_EVENTS", 15)
    url, made = f"sqlite:///{tmp_path}/trial.db", []
    with Store(url) as store:
        study = Study.create("trial", ALL[kind], storage=store)
        late = ask(study)
        for number in range(18):
            made.append(tell(study, 0.2))
            if number == 4:
                study.amend(changes={"labels": {"reward": "relief"}}, **WHY)
            elif number == 8:
                study.amend(changes={"guard": {"stop": {"violations": 9, "of_last": 12}}}, **WHY)
            elif number == 12:
                study.amend(changes={"violation_risk": 0.11}, reason="a new guideline")
            elif number == 15:
                study.amend(changes={"guard": {"max_open": 50}}, **WHY)
        several = study.spec.rules.spec.costs
        study.tell(late.id, reward=0.1, cost=dict.fromkeys(several, 0.2) if several else 0.2)
        study.correct(made[1], reward=0.2, reason="typing error")
        study.correct(made[2], applied_action=0.0, reason="not given")
        study.void(made[5], reason="wrong patient", unrelated=True)
        status, last = study.status(), ask(study)
        assert (status["amendments"], status["since_round"]) == (4, 15)
        phases = [each["begins_phase"] for each in last.certificate["amended"]]
        assert phases == [False, False, True, False]
        assert last.explain().count("the guarantee goes on") == 3
        assert {row["phase"] for row in study.rows()} == {1, 2}
        state = study._run(lambda transaction: transaction.state)
        assert pack(unpack(study.spec, pack(state))) == pack(state)
        assert len(state.phases) == len(study.spec.phases) == 2
        track = Track(study)
        track.refresh()
        shown = orjson.loads(draw(track, 50))
        assert shown["counts"]["evidence"] == pytest.approx(study.status()["evidence"])
        assert shown["guaranteed_since"] == last.certificate["amended"][2]["at"]
        assert study.verify().ok
    with Store(url) as store:
        again = Study.open("trial", storage=store)
        restored = again._run(lambda transaction: transaction.state)
        assert pack(restored) == pack(state)
        assert len(restored.phases) == 2
        assert again.verify().ok


def test_learning_cannot_start_again_without_a_new_guarantee(lite):
    study = Study.create("amended", CERTIFIED, storage=lite.store)
    tell(study, 0.1)
    before = study.status()
    with pytest.raises(InvalidInput, match=r"keep_learning = False: starts learning again, though nothing changes"):
        study.amend(changes={"labels": {"cost": "trough"}}, keep_learning=False, **WHY)
    assert study.status() == before


def test_a_resume_clears_only_the_rule_that_it_names(lite):
    """Two people look into one stop; the first resume shows another rule that has fired, which the second keeps."""
    study = Study.create("two", {**MILD, "guard": {"max_open": 8}}, storage=lite.store)
    waiting = [study.ask([0.3, 0.2]) for _ in range(9)]
    assert study.status()["stop_reason"] == "too_many_open"
    for each in waiting:
        study.tell(each.id, reward=0.1, cost=3.01)
    study.resume("outcomes are in now", rule="too_many_open")
    assert study.status()["stop_reason"] == "alarm"
    before = study.status()
    with pytest.raises(
        StudyError, match=r"rule = 'too_many_open': the study is stopped by alarm; look at its"
    ) as found:
        study.resume("outcomes are in now", rule="too_many_open")
    assert found.value.code == "other_rule"
    assert study.status() == before
    study.resume("looked at it", rule="alarm")
    assert study.status()["stop_reason"] != "alarm"
    with pytest.raises(InvalidInput, match="is not stopped"):
        Study.create("calm", MILD, storage=lite.store).resume("looked at it", rule="alarm")


@pytest.mark.parametrize("kind", ["certified", "shield", "conformal"])
def test_a_guard_that_is_written_otherwise_begins_no_phase(lite, kind):
    cap = {"when": {"0": {"min": 0.4}}, "limit": 0.4}
    study = Study.create("written", {**ALL[kind], "guard": {"caps": [cap]}}, storage=lite.store)
    tell(study, 0.1)
    with pytest.raises(InvalidInput, match="changes nothing"):
        study.amend(changes={"guard": {"caps": (cap,)}}, **WHY)
    study.amend(changes={"guard": {"caps": [{**cap, "name": "elderly"}]}}, **WHY)
    study.amend(changes={"guard": {"caps": []}}, reason="no cap any more")
    tell(study, 0.1)
    assert study.status()["since_round"] == 2
    study.amend(changes={"guard": {"caps": None}}, **WHY)
    with pytest.raises(InvalidInput, match="changes nothing"):
        study.amend(changes={"guard": {"caps": None}}, **WHY)
    assert study.status()["since_round"] == len(study.spec.phases) == 2
    assert Study.open("written", storage=lite.store).state_digest() == study.state_digest()
    assert study.verify().ok


def test_each_outcome_is_due_as_it_was_stated_when_it_was_decided(lite):
    study = Study.create("due", CERTIFIED, storage=lite.store)
    ask(study)
    study.amend(changes={"guard": {"due_after": 1e-9}}, **WHY)
    assert study.status()["overdue"] == 0
    ask(study)
    due = study.status()["overdue_since"]
    study.amend(changes={"guard": {"due_after": 5}}, **WHY)
    ask(study)
    status, track = study.status(), Track(study)
    track.refresh()
    shown = orjson.loads(draw(track, 50))["counts"]
    assert (status["overdue"], status["overdue_since"]) == (shown["overdue"], shown["overdue_since"]) == (1, due)


def test_a_key_is_for_one_rule(lite):
    study = Study.create("keys", {**CERTIFIED, "guard": {"max_open": 1}}, storage=lite.store)
    [ask(study), ask(study)]
    first = study.resume("looked at it", rule="too_many_open", key="a")
    assert study.resume("looked at it", rule="too_many_open", key="a").seq == study.resume("looked at it", key="a").seq
    with pytest.raises(StudyError, match=r"key = 'a': was used for another rule; give a new key") as found:
        study.resume("looked at it", rule="alarm", key="a")
    assert (found.value.code, first.created) == ("key_reused", True)


def test_specifications_of_logs_that_were_amended_in_another_order_differ():
    """After a restore others may make the same amendments in another order, at the same events."""
    first, found = read_spec(CERTIFIED), []
    for order in (({"labels": {"unit": "bed"}}, {"threshold": 0.6}), ({"threshold": 0.6}, {"labels": {"unit": "bed"}})):
        spec = first
        for since, changes in zip((5, 9), order, strict=True):
            spec = amended_spec(spec, new_fields(spec, changes, whole=False), since=since)
        found.append(spec)
    assert found[0].fields == found[1].fields
    assert not same_spec(*found)
