"""What a study calls its cost, its reward and its units stands in its explanations."""

import json

from safedial.cli.output import wrapped
from safedial.rounds.specfile import EXAMPLE
from safedial.study.study import Study
from tests.program import run
from tests.study.conftest import SPEC

LABELS = {"cost": "trough", "cost_unit": "mg/l", "reward": "relief", "unit": "patient"}


def test_an_explanation_has_the_names_and_units_of_the_spec(store):
    study = Study.create("trial", {**SPEC, "labels": LABELS}, storage=store, actor="tester")
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


def test_labels_of_a_spec_file_are_those_of_the_study_and_may_be_amended(tmp_path):
    text = EXAMPLE + '[labels]\ncost = "trough"\ncost_unit = "mg/l"\n'
    (tmp_path / "spec.toml").write_text(text)
    (tmp_path / "amended.toml").write_text(text.replace("trough", "level"))
    at = ("--storage", f"sqlite:///{tmp_path}/study.db")

    def study(*words):
        done = run("study", *words, *at, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    made = study("create", "ward", "--spec", tmp_path / "spec.toml")
    assert made["spec"]["labels"] == {"cost": "trough", "cost_unit": "mg/l"}
    study("amend", "ward", "--spec", tmp_path / "amended.toml", "--reason", "a better name")
    with Study.open("ward", storage=at[1]).store as store:
        assert Study.open("ward", storage=store).spec.fields["labels"] == {"cost": "level", "cost_unit": "mg/l"}
    other = run("study", "create", "bed", "--spec", tmp_path / "spec.toml", *at, "--set", 'labels={"cost": "peak"}')
    assert other.returncode == 0, "--set overrides the file"
