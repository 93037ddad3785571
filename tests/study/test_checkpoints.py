"""Checkpoints as files, and of the right study."""

import json

import pytest

from safedial.errors import InvalidInput
from safedial.study.checkpoints import read_marks
from safedial.study.manage import checkpoint_store
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.verify import verify_store
from tests.study.conftest import SPEC
from tests.study.test_cli import CREATE, study

__all__ = ["study"]


def test_a_checkpoint_names_its_study_its_first_event_and_its_time(lite, tmp_path):
    lite.ask([0.1, 0.2])
    mark = lite.checkpoint("end of January")
    events = lite.events()["events"]
    assert mark == {
        "study": "trial",
        "seq": 3,
        "hash": events[2]["hash"],
        "first": events[0]["hash"],
        "at": events[2]["at"],
    }
    path = tmp_path / "mark.json"
    path.write_text(json.dumps(mark))
    for kept in (mark, path, json.dumps(mark), f"3:{mark['hash']}"):
        assert lite.verify(checkpoint=kept).ok
    store = checkpoint_store(lite.store)
    assert store == {"studies": [mark]}
    assert [(each.ok, each.checkpoint) for each in verify_store(lite.store, checkpoint=store)] == [(True, 3)]
    assert lite.verify(checkpoint=store).checkpoint == 3
    with pytest.raises(InvalidInput, match="is of another study, 'none of this name'; this is 'other'"):
        Study.create("other", SPEC, storage=lite.store).verify(checkpoint=store)
    for given in (mark, f"3:{mark['hash']}", {"studies": [{}]}):
        with pytest.raises(InvalidInput, match="is not of a whole store; name the study"):
            verify_store(lite.store, checkpoint=given)


def test_a_study_made_anew_under_the_same_name_does_not_match(lite, tmp_path):
    mark = lite.checkpoint()
    with Store(f"sqlite:///{tmp_path}/other.db") as store:
        again = Study.create("trial", SPEC, storage=store)
        again.ask([0.1, 0.2])
        report = again.verify(checkpoint=mark)
    assert (report.ok, report.first_bad) == (False, 1)
    assert "another study of this name, or all of the log was rewritten" in report.problem


@pytest.mark.parametrize(
    "given",
    ["x:y", "0:" + "0" * 64, "3:00", "[]", {"seq": 3}, {"seq": "x", "hash": "00"},
     {"seq": 3, "hash": "0" * 64, "first": "00"}, '{"seq": 1e999, "hash": "00"}', '{"a":' * 100_000, b"1:00"],
    ids=lambda given: repr(given)[:30],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(given):
    with pytest.raises(InvalidInput, match="checkpoint"):
        read_marks(given, "trial")


def test_checkpoints_at_a_shell(study, tmp_path):
    file = tmp_path / "mark.json"
    words = study("checkpoint", "trial", "--out", file)[1].strip()
    assert json.loads(file.read_text())["seq"] == int(words.partition(":")[0])
    assert "all agree" in study("verify", "trial", "--checkpoint", file)[1]
    assert study("create", "other", *CREATE)[0] == 0
    code, _, said = study("verify", "other", "--checkpoint", file)
    assert (code, "checkpoint: is of another study, 'trial'; this is 'other'" in said) == (2, True)
    code, _, said = study("verify", "trial", "--checkpoint", tmp_path / "none.json")
    assert (code, "cannot be read" in said) == (2, True)
