"""What becomes of evidence, marks and costs when a study that was amended goes on."""

import pytest

from safedial import InvalidInput
from safedial.service.charts import Wanted, rows_page, series, unit_page
from safedial.service.routes import draw
from safedial.service.timeline import Track
from safedial.study import amendment
from safedial.study.event import orjson
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC
from tests.study.test_amend import SEVERAL

pytestmark = pytest.mark.filterwarnings("ignore")
WHY = {"reason": "a new guideline"}


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as opened:
        yield opened


def track_of(study):
    track = Track(study)
    track.refresh()
    return track


def page(study):
    """The data of the operator page."""
    return orjson.loads(draw(track_of(study), 50))


def test_a_correction_before_an_amendment_leaves_the_evidence_after_it(store):
    study = Study.create("trial", {**SPEC, "threshold": 3.0, "cost_noise": 1.2, "reward_noise": 0.5}, storage=store)
    first = [study.ask([0.3, 0.2]) for _ in range(8)]
    study.amend(changes={"threshold": 2.9}, **WHY)
    study.tell(study.ask([0.3, 0.2]).id, reward=0.1, cost=3.01)
    evidence, told = study.status()["evidence"], []
    while not study.status()["stop_reason"]:
        told.append(first.pop())
        study.tell(told[-1].id, reward=0.1, cost=3.01)
    study.resume("looked at it")
    assert study.status()["evidence"] == evidence > 1.5
    assert page(study)["counts"]["evidence"] == evidence
    for each in told:
        study.correct(each.id, cost=0.0, applied_action=0.5 * each.action, reason="typing error")
    assert study.status()["evidence"] == evidence
    assert study.verify().ok


def test_a_study_is_amended_a_hundred_times_at_most(store, monkeypatch):
    monkeypatch.setattr(amendment, "MOST_AMENDMENTS", 2)
    study = Study.create("trial", SPEC, storage=store)
    for threshold in (0.6, 0.7):
        made = study.amend(changes={"threshold": threshold}, key=f"{threshold}", **WHY)
    with pytest.raises(InvalidInput, match=r"'trial': has 2 amendments, the most .*create a new study"):
        study.amend(changes={"threshold": 0.8}, **WHY)
    assert study.amend(changes={"threshold": 0.7}, key="0.7", **WHY).seq == made.seq
    assert study.ask([0.1, 0.1]).guarantee == "certified"


@pytest.mark.parametrize("after", [SPEC, {**SEVERAL, "costs": {"warmth": SEVERAL["costs"]["heat"]}}])
def test_the_page_shows_costs_that_an_amendment_dropped_or_renamed(store, after):
    study = Study.create("trial", SEVERAL, storage=store)
    watching, told = Track(study), [{"heat": 0.3, "wear": 0.2}]
    for _ in range(2):
        study.tell(study.ask([0.3, 0.2], unit="a").id, reward=0.1, cost=told[-1])
        told.append(0.3 if after == SPEC else {"warmth": 0.3})
        watching.refresh(fresh=True)
        study.amend(after, **WHY) if len(told) == 2 else None
    for track in (watching, Track(Study.open("trial", storage=store))):
        track.refresh(fresh=True)
        assert series(track, 50)["counts"]["outcomes"] == 2
        assert [row["cost"] for row in rows_page(track, None, 9, Wanted())["rows"]] == told[1::-1]
        assert len(unit_page(track, "a")["course"]) == 2


def test_the_page_says_that_a_missing_cost_ended_learning(store):
    study = Study.create("trial", SEVERAL, storage=store)
    study.tell(study.ask([0.3, 0.2]).id, reward=0.1, cost={"heat": 0.1, "wear": None})
    shown, said = page(study)["counts"], study.status()
    assert (shown["frozen"], shown["void"]) == (said["frozen"], said["void"]) == (True, 1)


@pytest.mark.parametrize("changes", [{"labels": {"reward": "relief"}}, {"guard": {"due_after": 5}}])
def test_what_is_only_shown_changes_without_learning_anew(store, changes):
    conformal = {"dim": 2, "threshold": 1.0, "violation_risk": 0.2, "guarantee": "conformal", "start_action": 0.2}
    for name, spec in (("certified", SPEC), ("conformal", conformal)):
        study = Study.create(name, spec, storage=store)
        for _ in range(3):
            study.tell(study.ask([0.3, 0.2]).id, reward=0.1, cost=0.1)
        known = study.status()["informative_rounds"]
        study.amend(changes=changes, keep_learning=True, **WHY)
        assert study.status()["informative_rounds"] == known == 3
        assert study.verify().ok


def test_a_key_is_for_one_choice_of_keep_learning(store):
    study = Study.create("trial", SPEC, storage=store)
    made = study.amend(changes={"threshold": 0.6}, keep_learning=False, key="a", **WHY)
    for other in (True, None):
        with pytest.raises(
            StudyError, match=r"key = 'a': was used with another keep_learning; give a new key"
        ) as found:
            study.amend(changes={"threshold": 0.6}, keep_learning=other, key="a", **WHY)
        assert found.value.code == "key_reused"
    assert study.amend(changes={"threshold": 0.6}, keep_learning=False, key="a", **WHY).seq == made.seq


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"guard": {"stop": -1}}, r"guard\.stop = -1: must be an object; name violations"),
        ({"guard": {"stop": [1]}}, r"guard\.stop = \[1\]: must be an object; name violations"),
        ({"policy": []}, r"policy = \[\]: must be a name, or an object"),
        ({"policy": 3}, r"policy = 3: must be a name, or an object"),
    ],
)
def test_changes_of_the_wrong_kind_are_refused_in_one_sentence(store, changes, words):
    study = Study.create("trial", SPEC, storage=store)
    with pytest.raises(InvalidInput, match=words):
        study.amend(changes=changes, **WHY)


def test_the_trail_takes_any_number(store):
    study = Study.create("trial", SPEC, storage=store)
    assert len(study.trail(2**70, whole=True)) == 1
    assert len(study.trail(limit=-1, whole=True)) == 1
    study.ask([0.3, 0.2])
    assert len(study.trail(limit=-1, whole=True)) == 1


def test_the_trail_says_what_an_amendment_changed(store):
    study = Study.create("trial", SPEC, storage=store)
    study.amend(changes={"threshold": 0.6, "guard": {"max_open": 20, "stop": {"decisions": 9}}}, **WHY)
    study.amend(changes={"labels": {"cost": "trough"}, "guard": {"due_after": 5}}, **WHY)
    last, first = study.trail(limit=2)
    assert first["changed"] == {"threshold": [0.5, 0.6], "guard.max_open": [10_000, 20], "guard.stop": None}
    assert last["changed"] == {"labels": None, "guard.due_after": [None, 5]}
    assert "changed" not in study.trail(whole=True)[-1]


@pytest.mark.parametrize("rule", ["too_many_unwatched", "too_many_void"])
def test_amendments_do_not_hide_rounds_without_an_outcome(store, rule):
    study = Study.create("trial", SPEC, storage=store, guard={"max_void": 24 if rule == "too_many_void" else None})
    for number in range(24):
        if number == 12:
            study.amend(changes={"labels": {"cost": "trough"}}, **WHY)
        study.void(study.ask([0.3, 0.2]).id, reason="lost", unrelated=True)
        if study.status()["stop_reason"] == "too_many_unwatched" and rule == "too_many_void":
            study.resume("looked at it")
    if rule == "too_many_void":
        assert study.status()["stop_reason"] == ""
        study.void(study.ask([0.3, 0.2]).id, reason="lost", unrelated=True)
    assert study.status()["stop_reason"] == rule
    study.resume("the courier was changed")
    assert study.status()["stop_reason"] == ""
    assert study.verify().ok
