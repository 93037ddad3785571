"""Ids that name one decision for good, and answers that say when they are given again."""

import shutil
import time

import pytest
from typer.testing import CliRunner

from safedial.cli import make_app
from safedial.study.manage import backup
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC

DAY = 86_400 * 10**9


@pytest.fixture
def lost(tmp_path):
    """A study in a store that was restored and has gone on; a decision that was lost, and the one in its place."""
    url = f"sqlite:///{tmp_path}/trial.db"
    with Store(url) as store:
        study = Study.create("trial", SPEC, storage=store)
        kept = study.ask([0.1, 0.1])
        backup(store, tmp_path / "copy.db")
        mine = study.ask([0.5, 0.1])
    shutil.copyfile(tmp_path / "copy.db", tmp_path / "trial.db")
    with Store(url) as store:
        study = Study.open("trial", storage=store)
        theirs = study.ask([0.1, 0.5])
        yield study, kept, mine, theirs


def test_a_late_outcome_of_a_decision_lost_in_a_restore_lands_on_no_other(lost):
    study, kept, mine, theirs = lost
    assert (mine.seq, theirs.seq) == (3, 3)
    assert mine.id != theirs.id
    calls = (
        lambda: study.tell(mine.id, reward=0.1, cost=0.1),
        lambda: study.correct(mine.id, cost=0.1, reason="typing error"),
        lambda: study.void(mine.id, reason="wrong patient"),
        lambda: study.expire([mine.id], reason="six weeks"),
        lambda: study.explain(mine.id),
        lambda: study.about(mine.id),
        lambda: study.decision(mine.id),
    )
    for call in calls:
        with pytest.raises(StudyError, match="it was made before the store was restored") as refused:
            call()
        assert refused.value.code == "unknown_decision"
    mistyped = {
        mine.id[:-1]: "is not a decision's id, of the form STUDY.NUMBER.TAG",
        f"{mine.id[:-1]}{'1' if mine.id[-1] == '0' else '0'}": "it is mistyped, or it was made before",
        mine.id.replace("trial", "trail"): "no such decision in study 'trial'",
    }
    for words, why in mistyped.items():
        with pytest.raises(StudyError, match=why):
            study.tell(words, reward=0.1, cost=0.1)
    assert study.status()["seq"] == 3
    study.tell(theirs.id, reward=0.1, cost=0.1)
    with pytest.raises(StudyError, match="before the store was restored"):
        study.tell(mine.id, reward=0.1, cost=0.1)
    study.tell(kept.id, reward=0.1, cost=0.1)
    assert study.verify().ok


def test_the_tag_of_an_id_is_the_beginning_of_its_events_hash(study):
    decision = study.ask([0.1, 0.1])
    receipt = study.tell(decision.id, reward=0.1, cost=0.1)
    events = study.events()["events"]
    assert decision.hash == events[1]["hash"]
    assert decision.id == f"trial.2.{decision.hash[:8]}" == decision.certificate["id"]
    assert receipt.hash == events[2]["hash"]
    assert [event["decision_id"] for event in events] == [None, None, decision.id]
    assert study.about(decision.id)[0]["decision_id"] == decision.id
    assert next(iter(study.rows()))["decision_id"] == decision.id
    assert study.verify(checkpoint=f"{receipt.seq}:{receipt.hash}").ok
    assert study.status()["hash"] == receipt.hash


def test_an_id_without_its_tag_or_with_another_is_refused(study):
    decision = study.ask([0.1, 0.1])
    for odd in (
        "trial.2",
        "trial.2.",
        f"{decision.id}0",
        f"{decision.id[:-1]}",
        decision.id.upper(),
        "trial.2.00000000",
    ):
        with pytest.raises(StudyError) as refused:
            study.tell(odd, reward=0.1, cost=0.1)
        assert refused.value.code == "unknown_decision", odd
    assert study.waiting()[0]["decision_id"] == decision.id
    study.expire(reason="six weeks", before=None, decision_ids=[decision.id])
    study.tell(decision.id, reward=0.1, cost=0.1)
    assert study.tell(decision.id, reward=0.1, cost=0.1).created is False


def test_ids_survive_a_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_EVENTS", 10)
    url = f"sqlite:///{tmp_path}/trial.db"
    with Store(url) as store:
        study = Study.create("trial", SPEC, storage=store)
        made = [study.ask([0.1, 0.01 * number]) for number in range(25)]
    with Store(url) as store:
        study = Study.open("trial", storage=store)
        with pytest.raises(StudyError, match="before the store was restored"):
            study.tell(f"{made[0].id[:-8]}00000000", reward=0.1, cost=0.1)
        for decision in made:
            study.tell(decision.id, reward=0.1, cost=0.01)
        assert study.verify().ok


def test_an_id_is_read_and_written_the_same():
    from safedial.study.answer import DecisionId, read_id

    for text in ("a.2", "a-b_c.17.0f6a33b1"):
        assert str(read_id(text)) == text
    assert read_id("a.2.0f6a33b1") == DecisionId("a", 2, "0f6a33b1")


@pytest.fixture
def stopped(store):
    """A study that has stopped, and the answer that it gave before."""
    study = Study.create("strict", {**SPEC, "guard": {"stop": {"violations": 1, "of_last": 10}}}, storage=store)
    before = study.ask([0.5, 0.1], key="visit-1")
    study.tell(before.id, reward=0.1, cost=0.55)
    return study, before


def test_an_answer_given_again_is_marked_and_says_that_the_study_has_stopped(stopped):
    study, before = stopped
    assert (before.replayed, before.stop_reason) == (False, "")
    again = study.ask([0.5, 0.1], key="visit-1")
    assert (again.id, again.action, again.replayed, again.stop_reason) == (before.id, before.action, True, "stop_rule")
    assert again.to_dict() == {**before.to_dict(), "replayed": True, "stop_reason": "stop_rule"}
    said = CliRunner().invoke(
        make_app(), ["study", "ask", "strict", "0.5,0.1", "--key", "visit-1", "--storage", study.store.storage]
    )
    assert "THE STUDY HAS STOPPED SINCE (stop_rule): it now advises the fallback, 0" in said.stdout
    fresh = study.ask([0.5, 0.1], key="visit-2")
    assert (fresh.action, fresh.replayed, fresh.stop_reason) == (0.0, False, "stop_rule")
    assert "HAS STOPPED SINCE" not in str(study.ask([0.5, 0.1], key="visit-2").explain())
    assert {"replayed", "stop_reason"}.isdisjoint(study.decision(before.id).to_dict())


def test_an_idempotency_key_is_forgotten_after_thirty_days(study, monkeypatch):
    real = time.time_ns
    for days, key in ((31, "old"), (29, "young")):
        monkeypatch.setattr(time, "time_ns", lambda days=days: real() - days * DAY)
        study.tell(study.ask([0.5, 0.1], key=key).id, reward=0.1, cost=0.1)
    monkeypatch.setattr(time, "time_ns", real)
    assert study.ask([0.5, 0.1], key="young").replayed
    fresh = study.ask([0.1, 0.1], key="old")
    assert (fresh.replayed, fresh.seq) == (False, 6)
    assert study.ask([0.1, 0.1], key="old").seq == 6
    with pytest.raises(StudyError, match="another request"):
        study.ask([0.5, 0.1], key="old")
    assert study.verify().ok
