"""Conformal studies: voids that are left out, masks, levels, imports, and the count of starts."""

import numpy as np
import pytest

from safedial import InvalidInput
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_spec import read_spec
from tests.study.conftest import id_at

SPEC = {"dim": 3, "threshold": 0.5, "violation_risk": 0.1, "guarantee": "conformal", "start_action": 0.05}
LEVELS = {"low": 0, "high": 10, "levels": [0, 2, 4, 6, 8, 10]}


@pytest.fixture
def shelf(tmp_path):
    with Store(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


def contexts(seed=0):
    rng = np.random.default_rng(seed)
    while True:
        yield np.append(rng.standard_normal(2) / 2, 1.0).tolist(), rng


def play(study, count, seed=0, tell=lambda number: True):
    """Decisions with outcomes; `tell(number)` may do something else with an id, and says whether to tell."""
    last = None
    for number, (context, rng) in zip(range(count), contexts(seed), strict=False):
        last = study.ask(context)
        gain, harm = last.intensity * (0.5 + 0.3 * rng.standard_normal(2))
        if tell(number):
            study.tell(last.id, reward=gain, cost=harm)
        else:
            yield last
    return last


def lost(study, count, lose, every=4):
    for decision in play(study, count, tell=lambda number: number % every != 1):
        lose(decision.id)


def test_voids_that_are_vouched_for_are_left_out_and_others_count_as_unbounded(shelf):
    """A quarter of the calibration rounds at a risk of a tenth: counted as unbounded they leave the start dose."""
    spec = {**SPEC, "guard": {"max_unwatched": 0.5}}
    vouched, unvouched, gone = (Study.create(name, spec, storage=shelf) for name in ("vouched", "unvouched", "gone"))
    lost(vouched, 140, lambda name: vouched.void(name, reason="the wrong ward", unrelated=True))
    lost(unvouched, 140, lambda name: unvouched.void(name, reason="felt ill"))
    lost(gone, 140, lambda name: gone.expire([name], reason="moved away", unrelated=True))
    context = next(contexts(5))[0]
    told = {study.name: study.ask(context) for study in (vouched, unvouched, gone)}
    assert {name: each.guarantee for name, each in told.items()} == {
        "vouched": "conformal", "unvouched": "declared", "gone": "conformal"
    }  # fmt: skip
    assert told["vouched"].action == told["gone"].action > 0.05
    facts = told["unvouched"].certificate
    assert facts["start_rounds"] == 140
    assert facts["unknown_scores"] > facts["group"]["rank_from_top"] - 1
    assert unvouched.status()["start_rounds"] == 141
    assert vouched.status()["start_rounds"] < 60
    assert "unrelated to their contexts, settings and outcomes" in told["vouched"].explain()
    for study in (vouched, unvouched, gone):
        assert study.verify().ok
        assert study.status()["void"] == 35


def test_a_snapshot_knows_what_was_left_out(shelf, tmp_path):
    study = Study.create("trial", SPEC, storage=shelf)
    lost(study, 150, lambda name: study.void(name, reason="the wrong ward", unrelated=True))
    digest = study.state_digest()

    with Store(f"sqlite:///{tmp_path}/study.db") as other:
        again = Study.open("trial", storage=other)
        assert again.state_digest() == digest
    from safedial.study.snapshot import pack, unpack

    state = study._write(lambda transaction: transaction.state, True)
    assert state.learning._state.rounds.rows("left").any()
    assert pack(unpack(study.spec, pack(state))) == pack(state)


def test_a_void_after_the_outcome_is_left_out_too(shelf):
    study = Study.create("trial", SPEC, storage=shelf)
    list(play(study, 60))
    study.void(id_at(study, 2), reason="the wrong patient", unrelated=True)
    state = study._write(lambda transaction: transaction.state, True)
    assert state.learning._state.rounds.left[0]
    assert study.verify().ok


def test_nothing_applied_is_left_out_where_vouched_for(shelf):
    study = Study.create("trial", SPEC, storage=shelf)
    list(play(study, 30))
    for vouched in (True, False):
        decision = study.ask([0.1, 0.2, 1.0])
        study.tell(decision.id, reward=0.0, cost=0.0, applied_action=0.0, unrelated=vouched)
    left = study._write(lambda transaction: transaction.state.learning._state.rounds.rows("left"), True)
    assert np.flatnonzero(left).tolist() == [30]
    assert study.verify().ok


def test_contexts_that_a_mask_gives_nothing_do_not_poison_the_others(shelf):
    """Which rounds they are depends on their contexts alone: the others are exchangeable among themselves."""
    mask = {"caps": [{"name": "too young", "when": {"0": {"max": 0.0}}, "limit": 0}]}
    study = Study.create("trial", SPEC | {"guard": mask}, storage=shelf)
    list(play(study, 160))
    decision = study.ask([0.5, 0.0, 1.0])
    assert decision.guarantee == "conformal"
    assert study.ask([-0.5, 0.0, 1.0]).action == 0.0
    assert study.verify().ok


def test_a_dial_with_levels_never_gives_nothing(shelf):
    study = Study.create("trial", SPEC | {"dial": LEVELS, "start_action": 4}, storage=shelf)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        context = 4.0 * rng.standard_normal(3)
        decision = study.ask(context.tolist())
        seen.add(decision.limit)
        assert decision.action >= 2.0
        gain, harm = decision.intensity * (context[:2] * [1.0, 0.4] + rng.standard_normal(2))
        study.tell(decision.id, reward=gain, cost=harm)
    assert "lowest_level" in seen
    assert study.status()["informative_rounds"] == 200
    assert study.verify().ok


def test_a_study_states_its_guards_and_reads_them_again():
    made = read_spec(SPEC)
    written = made.fields["policy"]
    assert (written["reach"], written["history"], written["least_dose"]) == (2.0, "train", None)
    assert read_spec(made.fields).fields == made.fields
    assert read_spec(SPEC | {"reach": 4, "history": "calibrate"}).fields["policy"]["reach"] == 4
    levels = {"dial": LEVELS, "start_action": 4}
    level = read_spec(SPEC | levels)
    assert level.fields["policy"]["least_dose"] == 0.2
    assert read_spec(level.fields).fields == level.fields
    for policy in ({"least_dose": None}, {"least_dose": 0.3}):
        with pytest.raises(InvalidInput, match="least_dose"):
            read_spec(SPEC | levels | {"policy": {"name": "hp_conformal", **policy}}, quiet=True)
    with pytest.raises(InvalidInput, match=r"guard.max_step.*lowest level"):
        read_spec(SPEC | levels | {"guard": {"max_step": 1.0}})
    assert read_spec(SPEC | levels | {"guard": {"max_step": 2.0}}).guard.max_step == 2.0


def pilot(rng, count=100):
    """Costs per unit of intensity a third of those that the study will meet: its curve is wrong at these doses."""
    return [
        {"context": [*rng.standard_normal(2) / 2, 1.0], "action": 0.4, "reward": 0.2, "cost": 0.4 * 0.2 * rng.random()}
        for _ in range(count)
    ]


@pytest.mark.parametrize(("history", "stopped"), [("train", ""), ("calibrate", "drift")])
def test_a_pilot_that_differs_alarms_only_where_it_calibrates(shelf, history, stopped):
    study = Study.create("trial", SPEC | {"history": history}, storage=shelf)
    study.import_history(pilot(np.random.default_rng(1)))
    for _ in play(study, 100):
        raise AssertionError
    status = study.status()
    assert (status["stop_reason"], status["imported"]) == (stopped, 100)
    told = study.ask(next(contexts(2))[0])
    if stopped:
        assert "before the first decision were compared too" in told.explain()
    else:
        assert told.guarantee == "conformal"
        assert "nothing is assumed about them" in told.explain()
        assert "complete and unselected" not in told.explain()
        assert told.certificate["reach"]["tenth_applied"] >= 0.4, "imported settings were applied, and are tried ones"
    assert study.verify().ok


def test_a_correction_replays_the_guards_too(shelf):
    study = Study.create("trial", SPEC, storage=shelf)
    list(play(study, 60))
    before = study._write(lambda transaction: list(transaction.state.learning._state.tried), True)
    study.correct(id_at(study, 2), reason="typing error", applied_action=0.9)
    after = study._write(lambda transaction: list(transaction.state.learning._state.tried), True)
    assert (0.9 in after, 0.9 in before) == (True, False)
    assert study.verify().ok


def test_a_study_without_sign_groups_verifies(shelf, tmp_path):
    lean = {"groups": "none"}
    study = Study.create("trial", SPEC | lean, storage=shelf)
    stated = read_spec(SPEC | lean).fields
    assert [stated["policy"][name] for name in ("groups", "probe")] == ["none", 0.001]
    assert read_spec(stated).fields == stated
    late = list(play(study, 16, tell=lambda number: number != 9))
    study.void(late[0].id, reason="device failed", unrelated=True)
    decision = study.ask(next(contexts(5))[0])
    study.void(decision.id, reason="device failed", unrelated=True)
    assert study.verify().ok
    for decision in play(study, 20, seed=7):
        raise AssertionError(decision)
    told = study.ask(next(contexts(6))[0])
    assert told.guarantee == "conformal"
    assert "not among those expected to benefit" in told.explain()
    assert study.verify().ok
