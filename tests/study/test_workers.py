"""Several processes on one store: one log, one state, bit for bit, and the guarantee."""

import numpy as np
import pytest
from scipy.stats import binom

from safedial.study.database import reading
from safedial.study.log import read_events
from safedial.study.replay_log import Source, apply_event, replay
from safedial.study.snapshot import pack, state_digest, unpack
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC
from tests.study.worker import FORK, work

LOOSE = {**SPEC, "guard": {"alarm_level": 1e-4}}


@pytest.mark.portable
@pytest.mark.parametrize("learning_order", ["prefix", "arrival"])
def test_four_workers_end_with_the_state_of_a_serial_fold(storage, tmp_path, learning_order, count):
    with Store(storage) as store:
        study = Study.create("trial", {**LOOSE, "learning_order": learning_order}, storage=store)
        rounds = count(5, 200 if learning_order == "prefix" else 100)
        arguments = [(storage, str(tmp_path / "acks"), seed, "", rounds, 2) for seed in range(4)]
        running = [FORK.Process(target=work, args=words) for words in arguments]
        for worker in running:
            worker.start()
        for _ in range(20):
            study.tell(study.ask([0.2, 0.3]).id, reward=0.05, cost=0.05)
        for worker in running:
            worker.join(300)
        assert [worker.exitcode for worker in running] == [0, 0, 0, 0]
        mine = study.state_digest()
        report = study.verify()
        assert (report.ok, report.inexact, report.decisions) == (True, 0, 8 * rounds + 20)
        with reading(store.engine) as connection:
            serial = replay(Source(connection, study._id, "trial"), study.spec, stored=())
    assert state_digest(serial) == mine
    with Store(storage) as store:
        assert Study.create("trial", storage=store, load_if_exists=True).state_digest() == mine


@pytest.mark.portable
def test_snapshots_at_any_place_give_the_same_state(lite, count):
    """Pack, unpack and go on after every k events: the same bytes as without."""
    rng = np.random.default_rng(3)
    made = []
    for number in range(count(60, 400)):
        made.append(lite.ask(rng.uniform(-0.7, 0.7, 2).tolist()))
        if number % 3:
            decision = made.pop(int(rng.integers(len(made))))
            reward, cost = (decision.intensity * rng.normal(0.1, 0.1, 2)).tolist()
            lite.tell(decision.id, reward=reward, cost=cost)
    lite.expire([made[0].id], reason="six weeks")
    lite.void(made[1].id, reason="device off", unrelated=True)
    with reading(lite.store.engine) as connection:
        source = Source(connection, lite._id, lite.name)
        events = list(read_events(source.connection, source.study, 0))
        state = State(lite.spec)
        for event in events:
            state = apply_event(state, event, event.fields())
            if event.seq % 7 == 0:
                state = unpack(lite.spec, pack(state))
        whole = pack(replay(source, lite.spec, stored=()))
    assert pack(state) == whole


def test_snapshots_are_written_thinned_out_and_used(tmp_path, monkeypatch):
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_EVENTS", 10)
    url = f"sqlite:///{tmp_path}/trial.db"
    with Store(url) as store:
        study = Study.create("trial", LOOSE, storage=store)
        for _ in range(100):
            study.tell(study.ask([0.2, 0.3]).id, reward=0.05, cost=0.05)
        mine = study.state_digest()
        from safedial.study.log import snapshot_seqs

        with reading(store.engine) as connection:
            kept = [seq for seq, _ in snapshot_seqs(connection, study._id)]
        assert 4 <= len(kept) <= 7
        assert kept[0] == 220, "each ten events are followed by one that vouches for the snapshot"
        assert study.verify().ok
        ids = [row["decision_id"] for row in study.rows()]
        study.correct(ids[0], cost=0.04, reason="typing error")
        study.correct(ids[94], cost=0.04, reason="typing error")
        changed = study.state_digest()
        assert study.verify().ok
    assert mine != changed
    with Store(url) as store:
        again = Study.create("trial", storage=store, load_if_exists=True)
        assert again.state_digest() == changed
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE snapshots SET content = x'00'")
        assert again.verify().problem == "has a snapshot that was altered"
    with Store(url) as store:
        assert Study.create("trial", storage=store, load_if_exists=True).state_digest() == changed


@pytest.mark.slow
def test_the_guarantee_holds_with_late_outcomes_overrides_and_two_workers(tmp_path, count):
    """In each of N studies the cost's bound misses in any round with probability ≤ δ′ = 0.05, though bad outcomes come
    late; each certified round violates with probability ≤ δ + δ′ = 0.1. Both counts, if only just kept, exceed the
    binomial quantiles below with probability ≤ 1e-6. (With the guarantee kept by a margin, as here, never.)
    """
    studies, rounds = count(12, 60), count(60, 200)
    url = f"sqlite:///{tmp_path}/trial.db"
    missed = violated = certified = 0
    with Store(url) as one, Store(url) as two:
        for seed in range(studies):
            spec = {**LOOSE, "guard": {"alarm_level": 1e-4, "max_open": 10**6}}
            desks = [Study.create(f"trial{seed}", spec, storage=store, load_if_exists=True) for store in (one, two)]
            run = play(desks, seed, rounds)
            missed += run["missed"] > 0
            violated, certified = violated + run["violated"], certified + run["certified"]
            assert desks[0].state_digest() == desks[1].state_digest()
    assert certified > 0.9 * studies * rounds
    assert missed <= binom.isf(1e-6, studies, 0.05)
    assert violated <= binom.isf(1e-6, certified, 0.1)


def play(desks, seed, rounds):
    """A world whose bad outcomes are late and whose clinicians give less than advised now and then."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(-0.6, 0.6, (2, 2))
    late, found = [], {"missed": 0, "violated": 0, "certified": 0}
    for number in range(rounds):
        context = rng.uniform(-0.7, 0.7, 2)
        decision = desks[number % 2].ask(context.tolist())
        found["missed"] += decision.certificate["cost_upper"] < context @ truth[1] - 1e-12
        applied = decision.action * (rng.uniform(0.2, 1.0) if rng.random() < 0.3 else 1.0)
        reward, cost = (applied * (context @ part + 0.3 * rng.standard_normal()) for part in truth)
        found["certified"] += decision.guarantee == "certified"
        found["violated"] += decision.guarantee == "certified" and cost > 0.5
        due = number + (int(rng.integers(5, 25)) if cost > 0.15 else int(rng.integers(0, 3)))
        late.append((due, decision.id, float(reward), float(cost), float(applied)))
        for item in [item for item in late if item[0] <= number or number == rounds - 1]:
            late.remove(item)
            _, name, reward, cost, applied = item
            desks[int(rng.integers(2))].tell(name, reward=reward, cost=cost, applied_action=applied)
    return found
