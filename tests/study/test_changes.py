"""A state from the log: whatever changed the past, whoever wrote, and wherever the replay began, it is the same."""

import numpy as np
import pytest

from safedial.study import replay_log
from safedial.study.database import reading
from safedial.study.replay_log import Source, replay
from safedial.study.snapshot import pack, unpacked
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC
from tests.study.test_amend import SEVERAL, SHIELD

pytestmark = pytest.mark.filterwarnings("ignore")

LOOSE = {**SPEC, "guard": {"alarm_level": 1e-4, "max_void": None, "max_unwatched": None}}
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
def starts(monkeypatch):
    """After which event each replay of a change began."""
    found, begin = [], replay_log.begin_replay

    def counted(*words, **options):
        state, changes = begin(*words, **options)
        found.extend([state.seq] if changes else [])
        return state, changes

    monkeypatch.setattr(replay_log, "begin_replay", counted)
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
    with reading(study.store.engine) as connection:
        return pack(replay(Source(connection, study._id, study.name), study.spec, stored=()))


@pytest.mark.parametrize("spec", STUDIES.values(), ids=STUDIES)
@pytest.mark.parametrize("changes", [{"labels": {"reward": "relief"}}, {"violation_risk": 0.04}], ids=["kept", "anew"])
def test_changes_before_and_after_an_amendment_give_the_state_of_the_log(store, spec, changes):
    study = Study.create("trial", spec, storage=store)
    early = live(study, 12, 1)
    study.amend(changes=changes, reason="a new guideline")
    told = live(study, 12, 2)
    study.void(told[0].id, reason="wrong patient", unrelated=True)
    study.void(early[0].id, reason="wrong patient", unrelated=True)
    live(study, 12, 4)
    content = pack(state_of(study))
    assert content == from_the_log_alone(study)
    assert pack(unpacked(study.spec, content)) == content


def test_a_change_of_a_recent_outcome_is_replayed_from_a_recent_snapshot(store, starts, monkeypatch):
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_EVENTS", 60)
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_BYTES", 1e9)
    monkeypatch.setattr("safedial.study.transaction.thinned", lambda seq, shots, unit: shots)
    study = Study.create("trial", LOOSE, storage=store)
    for part in range(12):
        told = live(study, 60, part)
        study.amend(changes={"threshold": 0.5 + 0.01 * (1 + part)}, reason="a new guideline")
        seq = study.status()["seq"]
        for each in told[-3:]:
            study.void(each.id, reason="wrong patient", unrelated=True)
            assert starts.pop() > seq - 150
    assert study.verify().ok


@pytest.mark.slow
def test_any_changes_by_two_processes_give_the_state_of_the_log(store, monkeypatch):
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_EVENTS", 40)
    monkeypatch.setattr("safedial.study.transaction.REPLAYED_EVENTS", 60)
    study, rng, told = Study.create("trial", LOOSE, storage=store), np.random.default_rng(5), []
    with Store(store.storage) as other:
        desks = [study, Study.open("trial", storage=other)]
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
                expected = from_the_log_alone(study)
                assert [pack(state_of(each)) == expected for each in desks] == [True, True]
    report = study.verify()
    assert (report.ok, report.inexact) == (True, 0)
