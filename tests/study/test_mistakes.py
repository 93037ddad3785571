"""Mistakes that people make in Python, at the command line and over HTTP: refused or shown, and nothing is changed."""

import json
import sys

import pytest

from safedial.cli import main
from safedial.service.client import read_refusal
from safedial.study.checkpoints import load_checkpoint
from safedial.study.study import Study
from tests.study.conftest import SPEC

GUARD = {**SPEC, "guard": {"max_open": 2}}


@pytest.fixture
def program(store, monkeypatch, capfd):
    """program(*words): (exit code, stdout, stderr) of `safedial study` on the store."""
    monkeypatch.setenv("SAFEDIAL_STORAGE", store.storage)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["safedial", "study", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, " ".join(out.split()), " ".join(err.split())

    return run


def test_a_study_that_stops_again_at_once_is_not_called_resumed(store, program):
    study = Study.create("ward", GUARD, storage=store)
    asked = [study.ask([0.1, 0.1]) for _ in range(4)]
    assert study.status()["stop_reason"] == "too_many_open"
    receipt = study.resume("looked at it")
    assert (receipt.stop_reason, receipt.to_dict()["stop_reason"]) == ("too_many_open", "too_many_open")
    code, out, _ = program("resume", "ward", "--reason", "again", "--rule", "too_many_open")
    assert code == 0
    assert "has stopped again at once: too many" in out
    for each in asked[:3]:
        study.tell(each.id, reward=0.0, cost=0.0)
    code, out, _ = program("resume", "ward", "--reason", "outcomes are in")
    assert (code, study.status()["stop_reason"]) == (0, "")
    assert "The study is resumed." in out
    assert f"{study.status()['seq']}:{study.status()['hash']}" in out


def test_two_values_for_one_field_are_refused(store, program):
    study = Study.create("ward", SPEC, storage=store)
    for words in (["--threshold", 0.6, "--set", "threshold=0.7"], ["--set", "ridge=2", "--set", "ridge=3"]):
        code, _, err = program("amend", "ward", "--reason", "a new guideline", *words)
        assert (code, "a second value" in err) == (2, True)
    assert study.status()["seq"] == 1


def test_a_misspelt_field_is_answered_with_the_nearest_one(store, program):
    Study.create("ward", SPEC, storage=store)
    _, _, err = program("amend", "ward", "--reason", "a new guideline", "--set", "thresold=0.6")
    assert "did you mean 'threshold'?" in err


def test_an_amended_label_leaves_the_others(store):
    study = Study.create("ward", {**SPEC, "labels": {"cost": "trough", "cost_unit": "mg/l"}}, storage=store)
    study.amend(changes={"labels": {"cost": "AUC"}}, reason="a new assay")
    assert study.spec.fields["labels"] == {"cost": "AUC", "cost_unit": "mg/l"}
    study.amend(changes={"labels": {"cost_unit": None}}, reason="without a unit")
    assert study.spec.fields["labels"] == {"cost": "AUC"}
    assert study.verify().ok


def test_a_checkpoint_does_not_replace_that_of_another_study(store, program, tmp_path):
    one, other = (Study.create(name, SPEC, storage=store) for name in ("one", "other"))
    file = tmp_path / "mark.json"
    assert program("checkpoint", "one", "--out", file)[0] == 0
    assert program("checkpoint", "one", "--out", file)[0] == 0
    kept = file.read_text()
    for words in (["other"], []):
        code, _, err = program("checkpoint", *words, "--out", file)
        assert (code, "holds something else than a checkpoint of this log" in err) == (2, True)
    (tmp_path / "notes.txt").write_text("notes")
    assert program("checkpoint", "one", "--out", tmp_path / "notes.txt")[0] == 2
    assert program("checkpoint", "one", "--out", tmp_path / "nowhere" / "mark.json")[0] == 2
    assert (file.read_text(), (tmp_path / "notes.txt").read_text()) == (kept, "notes")
    assert (one.status()["seq"], other.status()["seq"]) == (3, 1)
    assert program("checkpoint", "--out", tmp_path / "store.json")[0] == 0
    assert program("checkpoint", "--out", tmp_path / "store.json")[0] == 0
    assert [each["study"] for each in load_checkpoint(tmp_path / "store.json")["studies"]] == ["one", "other"]
    code, _, err = program("checkpoint", "--reason", "end of the month")
    assert (code, "is for the log of a study; name the study" in err) == (2, True)


def test_verify_says_which_checkpoint_it_compared(store):
    study = Study.create("ward", SPEC, storage=store)
    mark = study.checkpoint("kept elsewhere")
    assert study.verify().checkpoint is None
    assert study.verify(checkpoint=mark).checkpoint == mark["seq"]


def test_a_course_never_shows_a_setting_above_the_advice(store, program):
    study = Study.create("ward", {**SPEC, "dial": {"high": 90.8785, "unit": "mg"}, "policy": "hp_ucb"}, storage=store)
    decision = study.ask([0.1, 0.1], unit="P-04")
    shown = program("units", "ward", "P-04")[1]
    cells = [float(word) for word in shown.replace("│", " ").split() if word.replace(".", "", 1).isdigit()]
    assert any(0.999 * decision.action <= cell <= decision.action for cell in cells)
    assert not any(decision.action < cell < 1.001 * decision.action for cell in cells)


def test_a_refusal_names_its_field_once():
    text = json.dumps({"code": "visit_taken", "title": "taken", "detail": "visit: already has one", "field": "visit"})
    assert str(read_refusal(409, text.encode())).count("visit:") == 1
    text = json.dumps({"code": "invalid_input", "title": "breaks a rule", "field": "unit"})
    assert "unit: breaks a rule" in str(read_refusal(422, text.encode()))
