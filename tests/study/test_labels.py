"""What a study calls its cost, its reward and its units stands in its explanations."""

from safedial.cli.output import wrapped
from safedial.study import create_study
from tests.study.conftest import SPEC

LABELS = {"cost": "trough", "cost_unit": "mg/l", "reward": "relief", "unit": "patient"}


def test_an_explanation_has_the_names_and_units_of_the_spec(store):
    study = create_study("trial", {**SPEC, "labels": LABELS}, storage=store, actor="tester")
    decision = study.ask([0.1] * SPEC["dim"], unit="cost center", visit="day 3")
    study.tell(decision.id, reward=0.25, cost=0.125)
    study.correct(decision.id, cost=0.5, reason="the cost was misread")
    words = str(study.explain(decision.id))
    assert f"P(trough > {SPEC['threshold']:g} mg/l)" in words
    assert "Patient: cost center." in words
    assert "trough 0.125 mg/l, relief 0.25" in words
    assert "(the cost was misread): " in words, "what a person wrote stays as it is"
    assert words.count("cost") == 2
    narrow = wrapped(words, 60).splitlines()
    assert " ".join(" ".join(narrow).split()) == " ".join(words.split())
    assert max(map(len, narrow)) <= 60
