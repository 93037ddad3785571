"""Any sequence of operations, on two stores that share a database, against a plain reference."""

import shutil
import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from safedial import Agent, SafetySpec
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC

part = st.floats(-0.7, 0.7)
value = st.floats(-0.4, 0.4)
GUARANTEE = {name: number for name, number in SPEC.items() if name != "dim"}


class Machine(RuleBasedStateMachine):
    """The reference is a list of rounds in decision order; what the model may know is read off it, and an `Agent` that
    is given just that says which action to expect.
    """

    waiting = Bundle("waiting")
    told = Bundle("told")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.url = f"sqlite:///{self.folder}/trial.db"
        spec = {**SPEC, "guard": {"alarm_level": 1e-300}}
        self.stores = [Store(self.url) for _ in range(2)]
        self.desks = [Study.create("trial", spec, storage=store, load_if_exists=True) for store in self.stores]
        self.rounds, self.turn = {}, 0
        self.threshold, self.start = SPEC["threshold"], 0

    def transaction(self):
        self.turn += 1
        return self.desks[self.turn % 2]

    def expected(self, context):
        agent = Agent(2, SafetySpec(**GUARANTEE | {"threshold": self.threshold}))
        known, rounds = True, list(self.rounds.values())[self.start :]
        for each in rounds:
            agent.ask(each["context"])
        for number, each in enumerate(rounds, 1):
            known = known and each["state"] in ("known", "skipped", "nothing")
            if known and each["state"] == "known":
                agent.tell(each["context"], each["applied"], each["reward"], each["cost"], round=number)
        while agent.alarmed:  # the study's guard is set so that it never stops
            agent.resume()
        return agent.preview(context), agent.informative_rounds

    @rule(target=waiting, first=part, second=part)
    def ask(self, first, second):
        context = [first, second]
        decision = self.transaction().ask(context)
        expected = self.expected(context)[0]
        if abs(expected.numbers["reward"]) > 1e-12:  # rounding may decide the sign of a smaller one
            assert decision.action == pytest.approx(expected.action, rel=1e-9)
        state = "open" if decision.intensity > 0 else "nothing"
        self.rounds[decision.id] = {"context": context, "action": decision.action, "state": state}
        return decision.id

    @rule(target=told, name=consumes(waiting), reward=value, cost=value, share=st.sampled_from([None, 0.5, 1.0, 0.0]))
    def tell(self, name, reward, cost, share):
        each = self.rounds[name]
        applied = None if share is None else share * each["action"]
        receipt = self.transaction().tell(name, reward=reward, cost=cost, applied_action=applied)
        again = self.transaction().tell(name, reward=reward, cost=cost, applied_action=applied)
        assert (receipt.created, again.created, again.seq) == (True, False, receipt.seq)
        if each["state"] == "open":
            each |= {"state": "known", "applied": each["action"] if applied is None else applied}
        each |= {"reward": reward, "cost": cost}
        return name

    @rule(name=told, reward=st.none() | value, cost=value)
    def correct(self, name, reward, cost):
        each = self.rounds[name]
        if each["state"] in ("skipped", "lost"):
            with pytest.raises(StudyError, match="void"):
                self.transaction().correct(name, cost=cost, reason="typing error")
            return
        self.transaction().correct(name, reward=reward, cost=cost, reason="typing error")
        each |= {"cost": cost, **({} if reward is None else {"reward": reward})}

    @rule(name=consumes(told) | consumes(waiting), unrelated=st.sampled_from([True, True, False]))
    def void(self, name, unrelated):
        each = self.rounds[name]
        self.transaction().void(name, reason="wrong patient", unrelated=unrelated)
        if each["state"] in ("open", "known"):
            each["state"] = "skipped" if unrelated else "lost"

    @rule(name=waiting)
    def expire(self, name):
        if self.rounds[name]["state"] == "open" and name not in self.gone():
            self.transaction().expire([name], reason="six weeks")

    def gone(self):
        return {row["decision_id"] for row in self.desks[0].rows() if row["status"] in ("expired", "void", "known")}

    @rule(threshold=st.floats(0.4, 0.9), keep=st.booleans())
    def amend(self, threshold, keep):
        if threshold == self.threshold:
            return
        words = {"keep_learning": keep, "from_round": len(self.rounds) + 1, "reason": "a new guideline"}
        self.transaction().amend(changes={"threshold": threshold}, **words)
        self.threshold, self.start = threshold, self.start if keep else len(self.rounds)

    @rule()
    def restart(self):
        self.stores[1].close()
        self.stores[1] = Store(self.url)
        self.desks[1] = Study.create("trial", storage=self.stores[1], load_if_exists=True)

    @invariant()
    def counts_agree(self):
        status = self.transaction().status()
        assert status["decisions"] == len(self.rounds)
        assert status["informative_rounds"] == self.expected([0.0, 0.0])[1]

    def teardown(self):
        assert self.desks[0].state_digest() == self.desks[1].state_digest()
        report = self.desks[0].verify()
        assert report.ok, report
        assert report.inexact == 0
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


def test_any_sequence_of_operations_agrees_with_the_reference(count, monkeypatch):
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setattr("safedial.study.study_spec.LEAST_LEVEL", 0.0)  # so that it never stops
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_EVENTS", 7)  # so that replays begin from many states
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_BYTES", 1e9)
    chosen = settings(max_examples=count(15, 150), stateful_step_count=count(25, 50), deadline=None, derandomize=True)
    run_state_machine_as_test(Machine, settings=chosen)
