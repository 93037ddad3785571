"""States kept in memory: no later event changes them, and a replay begins near the outcome that changes."""

from collections import deque

import numpy as np
import pytest

from safedial.study import replay_log, replayer
from safedial.study import state as kept_states
from safedial.study.manage import create_study, open_study
from safedial.study.replay_log import Source, catch_up, replay_again
from safedial.study.snapshot import pack
from safedial.study.state import kept_state
from safedial.study.store import Store
from tests.study.conftest import SPEC
from tests.study.test_amend import SEVERAL, SHIELD

pytestmark = pytest.mark.filterwarnings("ignore")

LOOSE = {**SPEC, "guard": {"alarm_level": 1e-300, "max_void": None, "max_unwatched": None}}
STUDENT = {"dim": 2, "threshold": 1.0, "violation_risk": 0.2, "guarantee": "student", "start_action": 0.2}
STUDIES = {
    "certified": LOOSE,
    "as they arrive": {**LOOSE, "learning_order": "arrival"},
    "several costs": SEVERAL,
    "conformal": {**STUDENT, "guarantee": "conformal"},
    "student": STUDENT,
    "bracket": SHIELD,
}


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as opened:
        yield opened


@pytest.fixture
def replays(monkeypatch):
    """How many events each replay applied."""
    found, replay = [], replay_log.replay_again

    def counted(*words, **options):
        made = replay(*words, **options)
        found.extend([made.replayed] if made.replayed else [])
        return made

    for module in (replay_log, replayer):
        monkeypatch.setattr(module, "replay_again", counted)
    return found


def live(study, count, seed, *, late=0.2):
    """Rounds, some of them open; those with an outcome."""
    rng, told = np.random.default_rng(seed), []
    more = {"proposal": 0.3} if study.spec.rules.policy.options.get("base") == "proposal" else {}
    asked = [study.ask(rng.uniform(-0.6, 0.6, 2).tolist(), wait=False, **more) for _ in range(count)]
    for each in (one.result() for one in asked):
        if rng.random() >= late:
            cost = each.intensity * float(rng.normal(0.1, 0.05))
            costs = study.spec.rules.spec.costs
            study.tell(each.id, reward=0.1, cost=cost if costs is None else dict.fromkeys(costs, cost))
            told.append(each)
    return told


def state_of(study):
    return study._run(lambda transaction: transaction.state)


def from_the_log_alone(study):
    with study.store.engine.connect() as connection:
        source = Source(connection, study._id, study.name)
        return replay_again(source, study.spec, study.status()["seq"], (), trust=False)


@pytest.mark.parametrize("spec", STUDIES.values(), ids=STUDIES)
@pytest.mark.parametrize("changes", [{"labels": {"reward": "relief"}}, {"violation_risk": 0.04}], ids=["kept", "anew"])
def test_a_kept_state_stays_as_it_was_and_goes_on_as_it_would_have(store, spec, changes):
    study = create_study("trial", spec, storage=store)
    live(study, 12, 1)
    study.amend(changes=changes, reason="a new guideline")
    live(study, 12, 2)
    state = state_of(study)
    kept, content = kept_state(state), pack(state)
    told = live(study, 12, 3)
    study.void(told[0].id, reason="wrong patient", unrelated=True)
    live(study, 12, 4)
    first, second = kept.restored(), kept.restored()
    assert pack(first) == pack(second) == content
    with store.engine.connect() as connection:
        source, head = Source(connection, study._id, study.name), study.status()["seq"]
        assert (
            pack(catch_up(source, first)) == pack(replay_again(source, study.spec, head, [kept])) == study_bytes(study)
        )
    assert pack(second) == pack(kept.restored()) == content


def study_bytes(study):
    made = pack(state_of(study))
    assert made == pack(from_the_log_alone(study))
    return made


def containers(state):
    """Whatever of a state an event could change in place, with where it is."""
    for phase in state.phases:
        for owner in (phase, phase.watch, phase.learning):
            for name, value in vars(owner).items():
                if isinstance(value, (list, dict, deque, set, np.ndarray)) or type(value).__name__ == "array":
                    yield f"{type(owner).__name__}.{name}", value


@pytest.mark.parametrize("keep", [True, False])
def test_a_restored_state_shares_no_container_with_the_one_that_it_was(store, keep):
    study = create_study("trial", LOOSE, storage=store)
    live(study, 12, 1)
    study.amend(changes={"threshold": 0.6}, keep_learning=keep, reason="a new guideline")
    live(study, 12, 2)
    state = state_of(study)
    kept = kept_state(state)
    fixed = ("Watch.specs", "Watch.tails")  # never changed in place
    mine = {id(value): name for name, value in containers(state) if name not in fixed}
    again = [each for _ in range(2) for each in containers(kept.restored())]
    assert len(mine) > 15
    assert [name for name, value in again if id(value) in mine] == []


def test_a_change_of_a_recent_outcome_replays_few_events_whatever_came_before(store, replays):
    study = create_study("trial", LOOSE, storage=store)
    voids = 0
    for part in range(12):
        told = live(study, 60, part)
        study.amend(changes={"threshold": 0.5 + 0.01 * (1 + part)}, reason="a new guideline")
        for each in told[-3:]:
            study.void(each.id, reason="wrong patient", unrelated=True)
            voids += 1
    assert len(replays) == voids
    assert max(replays) < 150 < study.status()["seq"] / 5
    del replays[:]
    assert study.verify().ok
    assert len(replays) < voids, "changes that follow each other are one replay"
    assert max(replays) < 150


def test_a_replay_leaves_states_from_which_the_next_begins(store, replays):
    """Those from before the replay know the old outcome."""
    study = create_study("trial", LOOSE, storage=store)
    told = live(study, 400, 1, late=0.0)
    study.void(told[0].id, reason="wrong patient", unrelated=True)
    for each in told[-1:-5:-1]:
        study.void(each.id, reason="wrong patient", unrelated=True)
    first, *later = replays
    assert first > 300
    assert max(later) < 150
    assert pack(state_of(study)) == pack(from_the_log_alone(study))


def test_states_that_know_a_change_which_was_never_made_are_not_used(store, monkeypatch):
    """The replay for a change is thrown away if another change of the round came first."""
    study = create_study("trial", LOOSE, storage=store)
    told = live(study, 200, 1)
    extend = replay_log.extend
    monkeypatch.setattr("safedial.study.transaction.extend", lambda *_: None)
    waiting = study.void(told[3].id, reason="wrong patient", unrelated=True, wait=False)
    with pytest.raises(TimeoutError):
        waiting.result(0.3)
    assert all(each.knows <= each.seq for each in store._shots[study._id])
    monkeypatch.setattr("safedial.study.transaction.extend", extend)
    waiting.result()
    assert max(each.knows for each in store._shots[study._id]) == waiting.result().seq
    assert pack(state_of(study)) == pack(from_the_log_alone(study))


@pytest.mark.slow
def test_any_changes_from_any_kept_states_give_the_state_of_the_log(store, monkeypatch):
    monkeypatch.setattr(kept_states, "KEPT_EVENTS", 3)
    monkeypatch.setattr("safedial.study.transaction.REPLAYED_EVENTS", 60)
    study, rng, told = create_study("trial", LOOSE, storage=store), np.random.default_rng(5), []
    with Store(store.storage) as other:
        desks = [study, open_study("trial", storage=other)]
        for turn in range(60):
            told += live(desks[rng.integers(2)], 4, turn)
            each, desk = told.pop(int(len(told) * rng.random() ** 0.3)), desks[rng.integers(2)]
            kind = rng.integers(4)
            if kind == 0:
                desk.void(each.id, reason="wrong patient", unrelated=rng.random() < 0.9)
            elif kind < 3:
                share = None if kind == 1 else 0.5 * each.action
                desk.correct(each.id, cost=0.01, applied_action=share, reason="typing error")
                told.append(each)
            else:
                desk.amend(changes={"threshold": rng.uniform(0.4, 0.6)}, reason="a new guideline")
            if turn % 6 == 5:
                for each in desks:  # which may write a snapshot
                    state_of(each)
                expected = pack(from_the_log_alone(study))
                assert [pack(state_of(each)) == expected for each in desks] == [True, True]
    report = study.verify()
    assert (report.ok, report.inexact) == (True, 0)
