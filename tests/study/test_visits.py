"""A decision can be joined to its visit: the key and free metadata stand wherever the decision stands."""

import csv
import json
import math
import sqlite3

import pytest

from safedial import InvalidInput
from safedial.study.event import Event, canonical, digest
from safedial.study.operations import request_digest
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC

FEATURES = {
    "names": ["age", "weight"],
    "center": [50, 70],
    "scale": [200, 200],
    "ranges": {"age": [0, 120]},
    "units": {"age": "years", "weight": "kg"},
}
META = {"patient": "P-04", "ward": "3b", "first": True, "weeks": 2, "dose_before": 1.5}
VISIT = {"age": 65, "weight": 90}


@pytest.fixture
def ward(store):
    return Study.create("ward", {**SPEC, "features": FEATURES, "dial": {"high": 20, "unit": "mg"}}, storage=store)


def test_key_and_metadata_stand_in_the_log_the_certificate_the_words_and_the_exports(ward, tmp_path):
    decision = ward.ask(VISIT, key="visit-17", meta=META)
    plain = ward.ask(VISIT)
    body = ward.events(from_seq=decision.seq)["events"][0]["body"]
    assert (body["key"], body["meta"]) == ("visit-17", META)
    assert "key" not in ward.events(from_seq=plain.seq)["events"][0]["body"]
    for told in (decision, ward.decision(decision.id)):
        assert (told.certificate["key"], told.certificate["meta"]) == ("visit-17", META)
        assert told.certificate["raw_context"] == VISIT
    words = str(ward.explain(decision.id))
    assert "Visit: visit-17." in words
    assert "patient P-04, ward 3b" in words
    assert "For: age 65 years, weight 90 kg." in words
    row = ward.to_frame().iloc[0]
    assert (row["key"], row["meta.patient"], row["meta.ward"]) == ("visit-17", "P-04", "3b")
    ward.export(tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(row["key"], row["meta.weeks"]) for row in rows] == [("visit-17", "2"), ("", "")]
    ward.export(tmp_path / "out.parquet")
    assert ward.verify().ok


def test_the_same_visit_with_other_metadata_is_another_request(ward):
    first = ward.ask(VISIT, key="visit-17", meta=META)
    again = ward.ask(VISIT, key="visit-17", meta=dict(reversed(META.items())))
    assert (again.id, again.certificate) == (first.id, first.certificate)
    for other in (None, {**META, "ward": "4"}):
        with pytest.raises(InvalidInput, match="key") as refused:
            ward.ask(VISIT, key="visit-17", meta=other)
        assert refused.value.code == "key_reused"
    ward.ask(VISIT, key="visit-18")
    with pytest.raises(InvalidInput, match="key"):
        ward.ask(VISIT, key="visit-18", meta=META)
    assert ward.status()["decisions"] == 2


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ([("patient", "P-04")], "mapping"),
        ({f"n{number}": 1 for number in range(21)}, "at most 20"),
        ({"x" * 41: 1}, "letters, digits"),
        ({"note": "x" * 201}, "200 characters"),
        ({"note": "P-04\n  Visit: forged"}, "printable"),
        ({"note": math.nan}, "finite"),
        ({"note": 2**60}, "text"),
        ({"note": 10**400}, "too large"),
        ({"note": None}, "text, a number"),
        ({"note": ["a"]}, "text, a number"),
    ],
)
def test_metadata_that_is_no_flat_mapping_of_short_values_is_refused_and_nothing_is_written(lite, meta, words):
    with pytest.raises(InvalidInput, match=words) as refused:
        lite.ask([0.1, 0.2], meta=meta)
    assert "meta" in str(refused.value)
    assert lite.status()["seq"] == 1


def test_a_key_that_would_forge_a_line_is_refused(lite):
    with pytest.raises(InvalidInput, match="printable"):
        lite.ask([0.1, 0.2], key="visit-17.\n  Guarantee: everything")
    assert lite.status()["seq"] == 1


def test_no_metadata_is_as_good_as_an_empty_one(lite):
    first = lite.ask([0.1, 0.2], key="a", meta={})
    assert lite.ask([0.1, 0.2], key="a").id == first.id
    assert "meta" not in lite.events(from_seq=first.seq)["events"][0]["body"]


def test_a_question_without_metadata_keeps_the_digest_it_always_had(lite):
    lite.ask([0.1, 0.2], key="visit-17")
    with lite.store.engine.begin() as connection:
        stored = connection.exec_driver_sql("SELECT digest FROM idempotency").scalar()
    assert bytes(stored) == request_digest(["ask", [0.1, 0.2], 0.0])


def rewrite(path, change):
    """Change the body of event 2, and make every hash anew, as the owner of the database can."""
    with sqlite3.connect(path) as connection:
        columns = (
            "SELECT seq, kind, decision, at, actor, reason, body, hash FROM events WHERE study_id = 1 ORDER BY seq"
        )
        last = bytes(32)
        for event in [Event(*row) for row in connection.execute(columns)]:
            body = canonical(event.fields() | (change if event.seq == 2 else {}))
            last = digest(last, "trial", event._replace(body=body))
            values = (body, last, event.seq)
            connection.execute("UPDATE events SET body = ?, hash = ? WHERE study_id = 1 AND seq = ?", values)
        connection.execute("UPDATE studies SET head_hash = ? WHERE id = 1", (last,))
    connection.close()
    with Store(f"sqlite:///{path}") as store:
        return Study.open("trial", storage=store).verify()


@pytest.mark.parametrize("change", [{"key": "visit-18"}, {"meta": {"patient": "P-05"}}])
def test_verify_finds_a_visit_that_was_rewritten_with_all_its_hashes(tmp_path, change):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        study = Study.create("trial", SPEC, storage=store)
        study.ask([0.1, 0.2], key="visit-17", meta={"patient": "P-04"})
        study.ask([0.2, 0.2], key="visit-19")
        assert study.verify().ok
    report = rewrite(tmp_path / "trial.db", change)
    assert (report.ok, report.first_bad) == (False, 2)
    assert "idempotency key" in report.problem


def test_verify_finds_evidence_of_exchangeability_that_was_rewritten(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        fields = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.1, "start_action": 0.1}
        decision = Study.create("trial", fields, storage=store).ask([0.1, 0.2])
        assert decision.body["evidence"] == 1.0
    report = rewrite(tmp_path / "trial.db", {"evidence": 1.25})
    assert not report.ok
    assert not rewrite(tmp_path / "trial.db", {"action": 0.2}).ok


def test_a_context_outside_a_stated_range_is_refused_unless_allowed_and_then_marked(ward):
    for context in ({"age": 600, "weight": 70}, [600, 70]):
        with pytest.raises(InvalidInput, match=r"context\['age'\] = 600: .*between 0 and 120.*allow") as refused:
            ward.ask(context)
        assert refused.value.code == "out_of_range"
        assert "600" not in refused.value.public
    assert ward.status()["seq"] == 1
    inside = ward.ask(VISIT, allow_extrapolation=True)
    assert inside.certificate["extrapolated"] == []
    assert "extrapolated" not in ward.events(from_seq=inside.seq)["events"][0]["body"]
    old = ward.ask({"age": 130, "weight": 70}, key="visit-1", allow_extrapolation=True)
    assert old.certificate["extrapolated"] == ["age"]
    assert old.decision.extrapolated == ("age",)
    assert ward.decision(old.id).certificate == old.certificate
    assert ward.events(from_seq=old.seq)["events"][0]["body"]["extrapolated"] == ["age"]
    assert "age lies outside the stated range" in str(ward.explain(old.id))
    assert ward.to_frame()["extrapolated"].tolist() == ["", "age"]
    ward.tell(old.id, reward=0.1, cost=0.1)
    assert ward.verify().ok
    with pytest.raises(InvalidInput, match="allow_extrapolation"):
        ward.ask(VISIT, allow_extrapolation="yes")


def test_a_conformal_study_without_a_context_bound_is_protected_by_its_ranges(store):
    fields = {"guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.1, "start_action": 0.1}
    study = Study.create("ward", {**fields, "features": FEATURES}, storage=store)
    with pytest.raises(InvalidInput) as refused:
        study.ask({"age": 600, "weight": 70})
    assert refused.value.code == "out_of_range"
    for number in range(30):
        decision = study.ask({"age": 40 + number, "weight": 70})
        study.tell(decision.id, reward=0.1, cost=0.1 * decision.intensity)
    assert study.verify().ok


def test_history_outside_a_stated_range_is_refused_whole(ward):
    row = {"age": 60, "weight": 70, "action": 3, "reward": 0.1, "cost": 0.1}
    with pytest.raises(InvalidInput, match=r"row 2: context\['age'\] = 600") as refused:
        ward.import_history([row, {**row, "age": 600}])
    assert refused.value.code == "out_of_range"
    assert ward.status()["seq"] == 1


def test_a_new_study_writes_its_ranges_down(ward, store):
    assert ward.spec.fields["features"]["ranges"] == {"age": [0.0, 120.0]}
    bare = {name: FEATURES[name] for name in ("names", "center", "scale")}
    made = Study.create("bare", {**SPEC, "features": bare}, storage=store)
    assert made.spec.fields["features"]["ranges"] == {}
    assert Study.create("bare", {**SPEC, "features": bare}, storage=store, load_if_exists=True).name == "bare"


def test_a_fallback_of_nothing_that_nobody_stated_is_named_at_creation(store):
    fields = {**SPEC, "dial": {"high": 20, "unit": "mg"}}
    with pytest.warns(UserWarning, match="if the study stops, it advises 0 mg to everybody: state fallback_action"):
        Study.create("unstated", fields, storage=store)


@pytest.mark.filterwarnings("error")
def test_a_stated_fallback_and_a_study_that_is_opened_give_no_warning(store, tmp_path):
    for name, stated in (("nothing", 0.0), ("half", 0.5)):
        Study.create(name, {**SPEC, "fallback_action": stated}, storage=store)
    start = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.1, "start_action": 0.1}
    Study.create("conformal", start, storage=store)
    with pytest.warns(UserWarning, match="if the study stops, it advises 0 to"):
        Study.create("unstated", SPEC, storage=store)
    Study.create("unstated", SPEC, storage=store, load_if_exists=True)
    Study.open("unstated", storage=store)


def test_the_status_says_since_when_an_outcome_is_open(lite):
    assert lite.status()["oldest_open"] is None
    first, second = lite.ask([0.1, 0.2]), lite.ask([0.1, 0.2])
    assert lite.status()["oldest_open"] == first.certificate["at"]
    lite.tell(first.id, reward=0.1, cost=0.1)
    assert lite.status()["oldest_open"] == second.certificate["at"]
    assert json.dumps(lite.status())


def test_certificates_say_what_an_override_may_use_and_what_a_dose_of_nothing_counts_as(lite, store):
    fields = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.1, "cost_noise": 0.3}
    conformal = Study.create("conformal", {**fields, "coefficient_bound": 1}, storage=store)
    for study in (lite, conformal):
        rests = " | ".join(study.ask([0.1, 0.2]).certificate["assumptions"])
        assert "uses nothing about this round's outcome beyond the context" in rests
        assert "a dose of 0 counts as void unless somebody vouches that its reason is unrelated" in rests
        assert "fixed before the outcome" not in rests
