"""While the writer replays a log for a change of the past, it serves everybody else; questions never wait for it."""

import threading
import time

import numpy as np
import pytest

from safedial.study import replay_log
from safedial.study.database import writing
from safedial.study.log import lock_head
from safedial.study.replay_log import Replay
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC

RULES = {**SPEC, "guard": {"alarm_level": 1e-4}}


@pytest.fixture
def study(store):
    return Study.create("trial", RULES, storage=store, actor="tester")


def rounds(study, count, seed=1):
    """So many rounds with outcomes; their decisions."""
    rng = np.random.default_rng(seed)
    made = [study.ask(context, wait=False) for context in rng.uniform(-0.6, 0.6, (count, 2)).tolist()]
    asked = [each.result() for each in made]
    told = [study.tell(each.id, reward=0.1, cost=0.3 * each.action, wait=False) for each in asked]
    assert all(each.result().created for each in told)
    return asked


def halved(study, decision, **options):
    return study.correct(decision.id, applied_action=0.5 * decision.action, reason="half was given", **options)


def values(study, receipt):
    """The cost and the setting that a correction put in force."""
    body = study.events(receipt.seq)["events"][0]["body"]
    return body["cost"], body["applied_action"]


def predicted(study, decision):
    """The mean cost that a decision was based on."""
    return study.events(decision.seq)["events"][0]["body"]["numbers"]["cost"]


BEGIN, ADVANCE = replay_log.begin_replay, Replay.advance


class Gate:
    """Holds up the writer's replays that begin from now on, until it is opened; `count` of all replays, those at a
    start among them.
    """

    def __init__(self, monkeypatch):
        self.reached, self.open, self.count = threading.Event(), threading.Event(), 0

        def counted(*words, **options):
            state, changes = BEGIN(*words, **options)
            self.count += len(changes) > 0
            return state, changes

        def held(replay, seconds):
            gate = vars(replay).setdefault("gate", self)
            gate.reached.set()
            if gate.open.is_set():
                return ADVANCE(replay, seconds)
            time.sleep(1e-3)
            return False

        monkeypatch.setattr(replay_log, "begin_replay", counted)
        monkeypatch.setattr(Replay, "advance", held)


@pytest.fixture
def gate(monkeypatch):
    made = Gate(monkeypatch)
    yield made
    made.open.set()


def agrees(study, storage):
    """The log verifies, and a process that reads it anew has the same state."""
    assert study.verify().ok
    with Store(storage) as other:
        assert Study.open("trial", storage=other).state_digest() == study.state_digest()


def test_questions_are_answered_while_the_log_is_locked(study, storage):
    asked = rounds(study, 3)
    with Store(storage) as other, writing(other.engine) as connection:
        lock_head(connection, 1)
        waiting = study.ask([0.1, 0.1], wait=False)
        assert study.status()["decisions"] == 3
        assert study.waiting() == []
        assert study.events()["next_seq"] == 8
        assert study.decision(asked[0].id).seq == 2
        assert len(study.state_digest()) == 64
        assert not waiting.done()
    assert waiting.result().seq == 8
    assert [row["seq"] for row in study.waiting()] == [8]


def test_decisions_go_on_while_a_corrected_setting_is_replayed(study, storage, gate):
    asked = rounds(study, 20)
    before = predicted(study, study.ask([0.5, 0.1]))
    corrected = halved(study, asked[2], wait=False)
    assert gate.reached.wait(20)
    meanwhile = [study.ask([0.5, 0.1]) for _ in range(3)]
    assert [predicted(study, each) for each in meanwhile] == [before] * 3
    study.tell(meanwhile[0].id, reward=0.1, cost=0.2)
    assert not corrected.done()
    gate.open.set()
    seq = corrected.result().seq
    after = study.ask([0.5, 0.1])
    assert after.seq > seq > meanwhile[-1].seq
    assert predicted(study, after) != pytest.approx(before, rel=1e-6)
    agrees(study, storage)


def test_a_second_change_of_a_round_waits_for_the_replay_of_the_first(study, storage, gate):
    asked = rounds(study, 20)
    corrected = halved(study, asked[2], wait=False)
    assert gate.reached.wait(20)
    other = study.correct(asked[3].id, cost=0.01, reason="another round", wait=False)
    again = study.correct(asked[2].id, cost=0.02, reason="misread", wait=False)
    study.ask([0.1, 0.1])
    assert not any(each.done() for each in (corrected, other, again))
    gate.open.set()
    assert corrected.result().seq < min(other.result().seq, again.result().seq)
    assert values(study, again.result()) == (0.02, 0.5 * asked[2].action)
    agrees(study, storage)


def test_changes_of_the_same_round_by_another_process_begin_the_replay_again(study, storage, gate, monkeypatch):
    asked = rounds(study, 20)
    corrected = halved(study, asked[2], wait=False)
    assert gate.reached.wait(20)
    later = Gate(monkeypatch)
    later.open.set()
    with Store(storage) as other:
        twin = Study.open("trial", storage=other)
        twin.correct(asked[3].id, cost=0.01, reason="another round")
        first = twin.correct(asked[2].id, cost=0.02, reason="misread").seq
    replays = later.count
    gate.open.set()
    assert corrected.result().seq > first
    assert values(study, corrected.result()) == (0.02, 0.5 * asked[2].action)
    assert later.count > replays, "the replay without the other process's value was of no use"
    agrees(study, storage)


def test_two_processes_that_change_the_past_at_once_agree(study, storage, gate):
    asked = rounds(study, 20)
    with Store(storage) as other:
        twin = Study.open("trial", storage=other)
        twin.ask([0.2, 0.2])
        ones = [halved(study, asked[2], wait=False), halved(twin, asked[3], wait=False)]
        ones.append(twin.void(asked[5].id, reason="wrong patient", unrelated=True, wait=False))
        gate.open.set()
        assert len({each.result().seq for each in ones}) == 3
        for each in (study, twin):
            each.ask([0.3, 0.3])
        assert study.state_digest() == twin.state_digest()
    agrees(study, storage)


def test_the_log_is_not_locked_while_it_is_replayed(study, storage, monkeypatch):
    asked, replays = rounds(study, 12), []
    begin = replay_log.begin_replay

    def unlocked(*words, **options):
        with Store(storage) as third, writing(third.engine) as connection:
            head = lock_head(connection, 1).seq
        state, changes = begin(*words, **options)
        replays.extend([head] if changes else [])
        return state, changes

    monkeypatch.setattr(replay_log, "begin_replay", unlocked)
    with Store(storage) as other:
        twin = Study.open("trial", storage=other)
        twin.ask([0.2, 0.2])
        halved(study, asked[2])
        study.void(asked[3].id, reason="wrong patient", unrelated=True)
        assert replays == [26, 27]
        assert twin.ask([0.2, 0.2]).seq == 29
        assert replays == [26, 27, 28], "two changes are one replay to the other process"


def test_a_long_replay_is_followed_by_a_snapshot_and_not_repeated_at_a_restart(study, storage, gate):
    gate.open.set()
    asked = rounds(study, 300)
    halved(study, asked[1])
    assert study.events(602)["events"][-1]["kind"] == "snapshot"
    expected = study.state_digest()
    assert gate.count == 1
    with Store(storage) as other:
        again = Study.open("trial", storage=other)
        assert again.state_digest() == expected
        again.ask([0.1, 0.1])
    assert gate.count == 1
    agrees(study, storage)


def test_short_replays_are_repeated_once_at_a_restart(study, storage, gate):
    gate.open.set()
    asked = rounds(study, 10)
    for each in asked[2:7]:
        halved(study, each)
    assert gate.count == 5
    expected, before = study.state_digest(), gate.count
    with Store(storage) as other:
        assert Study.open("trial", storage=other).state_digest() == expected
    assert gate.count == before + 1
    assert study.verify().ok


def test_a_store_is_closed_after_the_replays_that_wait(study, storage, gate):
    asked = rounds(study, 6)
    waiting = [halved(study, asked[1], wait=False), study.ask([0.1, 0.1], wait=False)]
    assert gate.reached.wait(20)
    threading.Timer(0.05, gate.open.set).start()
    study.store.close()
    assert sorted(each.result().seq for each in waiting) == [14, 15]
    with Store(storage) as other:
        assert Study.open("trial", storage=other).verify().ok


def test_a_replay_that_fails_is_the_answer_to_its_correction_alone(study, monkeypatch):
    asked = rounds(study, 6)

    def fail(*_, **__):
        raise ValueError("out of memory")

    monkeypatch.setattr(Replay, "advance", fail)
    corrected = halved(study, asked[1], wait=False)
    with pytest.raises(ValueError, match="out of memory"):
        corrected.result()
    monkeypatch.undo()
    assert study.ask([0.1, 0.1]).seq == 14
    assert halved(study, asked[1]).seq == 15
    assert study.verify().ok


def test_changes_of_several_rounds_that_wait_together_are_one_replay(study, storage, gate):
    asked = rounds(study, 20)
    first = halved(study, asked[2], wait=False)
    assert gate.reached.wait(20)
    others = [halved(study, each, wait=False) for each in asked[3:8]]
    others.append(study.void(asked[9].id, reason="wrong patient", unrelated=True, wait=False))
    again = halved(study, asked[5], key="again", wait=False)
    study.ask([0.1, 0.1])
    gate.open.set()
    seqs = [each.result().seq for each in (first, *others, again)]
    assert seqs == [43, 44, 45, 46, 47, 48, 49, 50]
    assert gate.count == 3, "the first, those that waited for it, and the second of one round"
    agrees(study, storage)


def test_several_changes_begin_again_if_one_of_their_rounds_changes_meanwhile(study, storage, gate, monkeypatch):
    asked = rounds(study, 20)
    first = halved(study, asked[2], wait=False)
    assert gate.reached.wait(20)
    others = [halved(study, each, wait=False) for each in asked[3:6]]
    study.ask([0.1, 0.1])
    together = Gate(monkeypatch)
    gate.open.set()
    first.result()
    assert together.reached.wait(20)
    Gate(monkeypatch).open.set()
    with Store(storage) as other:
        changed = Study.open("trial", storage=other).correct(asked[4].id, cost=0.02, reason="misread").seq
    together.open.set()
    made = [each.result() for each in others]
    assert min(each.seq for each in made) > changed
    assert values(study, made[1]) == (0.02, 0.5 * asked[4].action)
    agrees(study, storage)


def test_the_guard_looks_after_the_last_of_several_changes(storage, gate):
    """The first change alone would raise the alarm; with the second it is not due."""
    with Store(storage) as store:
        study = Study.create("trial", {**SPEC, "guard": {"max_void": 1}}, storage=store, actor="tester")
        asked = rounds(study, 10)
        study.void(study.ask([0.1, 0.1]).id, reason="device was off", unrelated=True)
        first = halved(study, asked[2], wait=False)
        assert gate.reached.wait(20)
        others = [study.void(each.id, reason="wrong", unrelated=True, wait=False) for each in asked[3:5]]
        gate.open.set()
        seqs = [each.result().seq for each in (first, *others)]
        kinds = [event["kind"] for event in study.events(seqs[1])["events"]]
        assert kinds == ["voided", "voided", "alarm"]
        agrees(study, storage)
