"""Units and visits: who gets a decision and when, for every policy."""

import csv
import json

import pytest

from safedial import InvalidInput, SafetySpec, growth
from safedial.model.dial import Dial, Features
from safedial.policies import hp_shield
from safedial.study.operations import request_digest
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC

CONFORMAL = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.1, "start_action": 0.1}
SHIELD = {
    "spec": SafetySpec(threshold=2.0, violation_risk=0.1, guarantee="bracket"),
    "dial": Dial(high=20.0, unit="mg"),
    "features": Features(names=("dose",), center=(4,), scale=(4,), intercept=False),
}


def shield(store, name="shield", **options):
    policy = hp_shield(base="dose", growth=growth.relative(0.7, 1.4, floor=0.5), start_scale=0.25, **options)
    return Study.create(name, **SHIELD, policy=policy, storage=store)


def visits(study, rounds, units=3, context=(0.3, 0.3)):
    """Rounds of several units in turn; every fourth outcome of the first unit is over the threshold."""
    made = []
    for number in range(rounds):
        unit, visit = f"P-{number % units:02d}", str(number // units + 1)
        made.append(study.ask(list(context), unit=unit, visit=visit))
        high = number % units == 0 and (number // units) % 4 == 3
        study.tell(made[-1].id, reward=0.1, cost=0.51 if high else 0.1)
    return made


@pytest.mark.parametrize("spec", [SPEC, {**SPEC, "policy": "hp_ucb"}, CONFORMAL], ids=["probe", "ucb", "conformal"])
def test_unit_and_visit_stand_in_the_log_the_certificate_the_words_and_the_exports(store, tmp_path, spec):
    study = Study.create("ward", spec, storage=store)
    bare, noted = study.ask([0.3, 0.2]), study.ask([0.3, 0.2], unit="P-04", visit="day 2", meta={"ward": "3b"})
    assert noted.action == bare.action
    assert not {"unit", "visit"} & bare.body.keys()
    for told in (noted, study.decision(noted.id)):
        assert (told.certificate["unit"], told.certificate["visit"]) == ("P-04", "day 2")
    words = str(study.explain(noted.id))
    assert "Unit: P-04." in words
    assert "Visit: day 2." in words
    study.export(tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["unit"], row["visit"]) for row in rows] == [("", ""), ("P-04", "day 2")]
    assert [row["decision_id"] for row in study.rows(unit="P-04")] == [noted.id]
    assert study.to_frame(unit="P-04", visit="day 2")["meta.ward"].tolist() == ["3b"]
    assert study.verify().ok


def test_a_shield_takes_a_unit_and_its_advice_does_not_move(store):
    study = shield(store)
    first, second = study.ask({"dose": 4.0}), study.ask({"dose": 4.0}, unit="P-04")
    assert first.action == second.action
    assert second.certificate["unit"] == "P-04"
    study.tell(second.id, reward=0.0, cost=1.0)
    assert study.unit("P-04")["decisions"] == 1
    assert study.verify().ok


def test_a_units_visit_has_one_decision_until_that_one_is_void(study):
    first = study.ask([0.1, 0.2], unit="P-04", visit="1")
    before = study.status()["seq"]
    with pytest.raises(StudyError, match=rf"visit = '1': unit 'P-04' already has a decision, {first.id}") as refused:
        study.ask([0.2, 0.2], unit="P-04", visit="1")
    assert refused.value.code == "visit_taken"
    assert "P-04" not in refused.value.public
    assert study.status()["seq"] == before
    for other in ({"unit": "P-05", "visit": "1"}, {"unit": "P-04", "visit": "2"}, {"visit": "1"}, {"unit": "P-04"}):
        study.ask([0.2, 0.2], **other)
    study.void(first.id, reason="typing error", unrelated=True)
    again = study.ask([0.2, 0.2], unit="P-04", visit="1")
    with pytest.raises(StudyError, match=again.id):
        study.ask([0.2, 0.2], unit="P-04", visit="1")
    assert [row["status"] for row in study.rows(unit="P-04", visit="1")] == ["void", "open"]
    assert study.verify().ok


def test_a_visit_is_taken_for_every_process_and_its_outcome_is_told_once(study, storage):
    first = study.ask([0.1, 0.2], unit="P-04", visit="1", key="k")
    with Store(storage) as other:
        there = Study.open("trial", storage=other)
        assert there.ask([0.1, 0.2], unit="P-04", visit="1", key="k").id == first.id
        with pytest.raises(StudyError, match="already has a decision"):
            there.ask([0.1, 0.2], unit="P-04", visit="1")
        there.tell(first.id, reward=0.1, cost=0.1)
    with pytest.raises(StudyError, match="correct") as refused:
        study.tell(first.id, reward=0.1, cost=0.2)
    assert refused.value.code == "conflict"


def test_two_requests_for_one_visit_in_one_commit_make_one_decision(lite):
    asked = [lite.ask([0.1, 0.2], unit="P-04", visit="1", wait=False) for _ in range(20)]
    failed = [future.exception() for future in asked]
    assert sum(error is None for error in failed) == 1
    assert {error.code for error in failed if error is not None} == {"visit_taken"}
    assert lite.status()["decisions"] == 1


def test_a_key_belongs_to_one_unit_and_visit_and_old_requests_keep_their_digests(lite):
    first = lite.ask([0.1, 0.2], key="k", unit="P-04", visit="1")
    for other in ({}, {"unit": "P-05", "visit": "1"}, {"unit": "P-04", "visit": "2"}, {"unit": "P-04"}):
        with pytest.raises(StudyError, match="key") as refused:
            lite.ask([0.1, 0.2], key="k", **other)
        assert refused.value.code == "key_reused"
    assert lite.ask([0.1, 0.2], key="k", unit="P-04", visit="1").id == first.id
    lite.ask([0.1, 0.2], key="plain")
    with lite.store.engine.begin() as connection:
        stored = connection.exec_driver_sql("SELECT digest FROM idempotency WHERE key = 'plain'").scalar()
    assert bytes(stored) == request_digest(["ask", [0.1, 0.2], 0.0])


@pytest.mark.parametrize("name", ["unit", "visit"])
@pytest.mark.parametrize("label", ["", "  ", "a\nb", "x" * 201, 7, "\ud800"])
def test_a_bad_label_is_refused_and_nothing_is_written(lite, name, label):
    with pytest.raises(InvalidInput, match=name):
        lite.ask([0.1, 0.2], **{name: label})
    assert lite.status()["seq"] == 1


def test_a_unit_or_visit_that_is_not_there_is_a_clear_error(lite):
    lite.ask([0.1, 0.2], unit="P-04", visit="1")
    for query, code in (
        ({"unit": "P-05"}, "unknown_unit"),
        ({"unit": "P-04", "visit": "2"}, "unknown_visit"),
        ({"visit": "2"}, "unknown_visit"),
    ):
        with pytest.raises(StudyError, match="no decision of this") as refused:
            lite.rows(**query)
        assert refused.value.code == code
    with pytest.raises(StudyError, match="unit = 'P-05': no decision of this study has it; check the label"):
        lite.unit("P-05")


def test_the_counts_of_all_units_add_up_to_the_studys(lite):
    made = visits(lite, 24)
    lite.void(made[0].id, reason="wrong device", unrelated=True)
    lite.void(made[9].id, reason="wrong device", unrelated=True)
    lite.tell(lite.ask([0.3, 0.3], unit="P-01").id, reward=0.1, cost=0.6, throttled=True)
    lite.ask([0.3, 0.3], unit="P-01")
    found, total = lite.units(), lite.status()
    assert [each["unit"] for each in found] == ["P-00", "P-01", "P-02"]
    for name in ("decisions", "outcomes", "violations"):
        assert sum(each[name] for each in found) == total[name], name
    first = lite.unit("P-00")
    assert (first["decisions"], first["outcomes"], first["violations"]) == (8, 7, 2)
    assert 0.0 < first["interval"][0] < 2 / 7 < first["interval"][1] < 1.0
    assert [row["visit"] for row in first["course"]] == [str(number) for number in range(1, 9)]


def test_verify_finds_a_visit_whose_entry_was_moved(lite):
    lite.ask([0.1, 0.2], unit="P-04", visit="1")
    lite.ask([0.1, 0.2], unit="P-04", visit="2")
    assert lite.verify().ok
    with lite.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE idempotency SET seq = 3 WHERE seq = 2")
    report = lite.verify()
    assert (report.ok, report.first_bad, report.problem) == (False, 3, "has the visit of another decision")
    assert json.dumps(report.to_dict())


def test_a_label_that_no_text_can_have_is_a_clear_error(lite):
    with pytest.raises(InvalidInput, match="unit = "):
        lite.unit("\ud800")
