"""A corrected reward or cost changes what its round taught and counted, as if it had been reported at first."""

import numpy as np
import pytest

from safedial.study import study_spec
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC

CASES = {
    "in order": {},
    "as they arrive": {"learning_order": "arrival"},
    "mixture": {"radius": "mixture"},
    "by the order of outcomes": {"radius": "noise-adaptive"},
}


@pytest.fixture(autouse=True)
def no_alarm(monkeypatch):
    """What is counted is compared far beyond the evidence at which a study stops."""
    monkeypatch.setattr(study_spec, "LEAST_LEVEL", 0.0)


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as opened:
        yield opened


def twins(store, **options):
    """Two studies that shall end alike."""
    rules = {**SPEC, "guard": {"alarm_level": 1e-300}, **options}
    return [Study.create(name, rules, storage=store) for name in ("first", "later")]


def outcome_of(context, action, rng):
    noise = 0.2 * rng.normal(size=2)
    return {"reward": action * (context[0] + noise[0]), "cost": action * (0.5 * context[0] + noise[1])}


def run(studies, rounds, rng, *, lost=-1, wrong=lambda number: number % 4 == 0):
    """The same rounds in both; some are reported wrongly in the second, and corrected several rounds later."""
    first, later = studies
    waiting, advised = [], []
    for number in range(rounds):
        context = rng.uniform(-0.6, 0.6, 2).tolist()
        ones = [study.ask(context) for study in studies]
        advised.append([each.action for each in ones])
        given = min(each.action for each in ones)  # before a correction the two may advise differently
        right = outcome_of(context, given, rng)
        if number == lost:
            for study, each in zip(studies, ones, strict=True):
                study.void(each.id, reason="never came back")
            continue
        first.tell(ones[0].id, **right, applied_action=given)
        if wrong(number):
            wrongly = {"reward": right["reward"] + 0.3, "cost": right["cost"] + rng.choice([-0.5, 0.5])}
            later.tell(ones[1].id, **wrongly, applied_action=given)
            waiting.append((ones[1].id, right))
        else:
            later.tell(ones[1].id, **right, applied_action=given)
        if number % 10 == 9:
            for decision, right in waiting:
                later.correct(decision, cost=right["cost"] + 1.0, reason="misread")
                later.correct(decision, **right, reason="misread again")
            waiting.clear()
    return advised


def same(first, later):
    """What was counted, what was learned, and what follows from it, are the same, bit for bit. Returns what each says
    of itself.
    """
    one, other = first.status(), later.status()
    for name in ("decisions", "outcomes", "violations", "void", "informative_rounds", "frozen", "unwatched"):
        assert one[name] == other[name]
    assert one["evidence"] == other["evidence"]
    mine, theirs = (study._run(lambda transaction: transaction.state.learning.state()) for study in (first, later))
    assert [(name, np.asarray(each).tobytes()) for name, each in mine.items()] == [
        (name, np.asarray(each).tobytes()) for name, each in theirs.items()
    ]
    for context in np.random.default_rng(5).uniform(-0.6, 0.6, (5, 2)).tolist():
        mine, theirs = first.ask(context), later.ask(context)
        assert (mine.action, mine.certificate["cost_upper"]) == (theirs.action, theirs.certificate["cost_upper"])
    return one, other


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("lost", [-1, 13], ids=["none lost", "one lost"])
def test_corrected_rounds_count_as_if_reported_rightly_at_first(store, options, lost):
    first, later = twins(store, **options)
    run((first, later), 40, np.random.default_rng(1), lost=lost)
    one, other = same(first, later)
    assert one["noise_evidence"] == other["noise_evidence"] != 1.0
    assert other["corrected_violations"] > one["corrected_violations"] == 0
    assert later.verify().ok
    assert Study.open("later", storage=store).state_digest() == later.state_digest()


def test_a_round_that_still_waits_for_earlier_ones_is_corrected_too(store):
    first, later = twins(store)
    contexts = np.random.default_rng(3).uniform(-0.6, 0.6, (6, 2)).tolist()
    for study, typed in ((first, 0.1), (later, 0.7)):
        asked = [study.ask(context) for context in contexts]
        study.tell(asked[1].id, reward=0.2, cost=typed)
        assert study.status()["waiting"] == 1
        if study is later:
            study.correct(asked[1].id, cost=0.1, reason="misread")
        for each in (asked[0], *asked[2:]):
            study.tell(each.id, reward=0.1, cost=0.05)
    same(first, later)


def test_a_replay_for_a_void_keeps_what_was_corrected(store):
    first, later = twins(store)
    advised = run((first, later), 20, np.random.default_rng(2))
    ids = [[row["decision_id"] for row in study.rows()] for study in (first, later)]
    for study, (voided, changed, *_) in zip((first, later), ids, strict=True):
        study.correct(voided, cost=0.45, reason="a second look")
        study.correct(changed, cost=0.15, reason="a second look")
        study.correct(changed, applied_action=0.5 * min(advised[1]), reason="half was given")
        study.correct(changed, cost=0.05, reason="a third look")
        study.void(voided, reason="wrong patient", unrelated=True)
    same(first, later)
    assert later.verify().ok
    assert Study.open("later", storage=store).state_digest() == later.state_digest()


def test_a_misread_cost_no_longer_counts_against_the_noise_once_it_is_corrected(store):
    first, later = twins(store, guard={})
    run((first, later), 30, np.random.default_rng(4), wrong=lambda number: False)
    context = [0.5, 0.1]
    mine, theirs = first.ask(context), later.ask(context)
    first.tell(mine.id, reward=0.1, cost=0.1)
    later.tell(theirs.id, reward=0.1, cost=1000.0)
    assert later.status()["stop_reason"] == "noise_broken"
    later.correct(theirs.id, cost=0.1, reason="a decimal point was missing")
    assert later.status()["noise_evidence"] == first.status()["noise_evidence"] < 200.0
    assert later.status()["stop_reason"] == "noise_broken", "a person decides when to go on"
    later.resume("the value was a typing error")
    assert later.ask(context).guarantee == first.ask(context).guarantee
    assert later.verify().ok


def test_a_correction_of_a_round_from_before_a_resume_does_not_count_in_the_new_evidence(store):
    study = Study.create("stopped", {**SPEC, "guard": {"alarm_level": 0.5}}, storage=store)
    asked = []
    while not study.status()["stop_reason"]:
        asked.append(study.ask([0.5, 0.1]))
        study.tell(asked[-1].id, reward=0.1, cost=0.6)
    study.resume("the pump was mended")
    study.correct(asked[0].id, cost=0.1, reason="misread")
    assert (study.status()["evidence"], study.status()["corrected_violations"]) == (1.0, 1)
    assert study.verify().ok


def test_a_corrected_outcome_that_shows_nothing_is_counted_once(store):
    spec = {**SPEC, "noise_scale": {"scale": "power_scale", "exponent": 0.8}}
    study = Study.create("unclear", spec, storage=store)
    asked = study.ask([0.5, 0.1])
    study.tell(asked.id, reward=0.1, cost=0.2, applied_action=2 * asked.action)
    before = study.status()
    study.correct(asked.id, cost=0.3, reason="misread")
    after = study.status()
    assert (before["unwatched"], after["unwatched"]) == (1, 1)
    assert study.verify().ok


def test_a_value_that_dwarfs_all_others_leaves_no_trace(store):
    first, later = twins(store)
    for study, typed in ((first, 0.1), (later, 1e150)):
        asked = study.ask([0.5, 0.1])
        study.tell(asked.id, reward=0.1, cost=typed)
        if study is later:
            study.correct(asked.id, cost=0.1, reason="misread")
            study.resume("it was a typing error")
    same(first, later)


@pytest.mark.filterwarnings("ignore")
def test_a_correction_after_a_resume_changes_its_own_rounds_mark_and_no_other(store):
    guard = {"alarm_level": 1e-4, "stop": {"violations": 2, "of_last": 5}}
    study = Study.create("trial", {**SPEC, "threshold": 1.0, "cost_noise": 0.6, "guard": guard}, storage=store)
    asked = [study.ask([0.3, 0.2]) for _ in range(5)]
    for each in asked[:2]:
        study.tell(each.id, reward=0.1, cost=1.05)
    assert study.status()["stop_reason"] == "stop_rule"
    study.resume("looked at it")
    study.tell(asked[2].id, reward=0.1, cost=0.1)
    study.correct(asked[2].id, cost=0.2, reason="typing error")
    study.tell(asked[3].id, reward=0.1, cost=1.05)
    study.correct(asked[1].id, cost=0.1, reason="typing error")  # from before the resume
    assert study.status()["stop_reason"] == ""
    study.tell(asked[4].id, reward=0.1, cost=1.05)
    assert study.status()["stop_reason"] == "stop_rule"
    assert study.verify().ok
