"""Outcomes of conformal rounds: late, missing, out of order, from before, saved and forgotten."""

import numpy as np
import pytest

from safedial import Agent, InvalidInput, make_policy
from tests.rounds.conformal_rounds import DIM, conformal_spec, outcome, state_of, taught


def test_the_first_rounds_play_what_was_declared_and_later_ones_more():
    agent, _ = taught(0)
    first = agent.ask([0.1, 0.2, 0.3])
    assert (first.action, first.guarantee, first.limit, first.certified) == (0.05, "declared", "start_dose", False)
    agent, _ = taught(300)
    later = agent.ask([1.0, 0.0, 0.0])
    assert later.guarantee == "conformal"
    assert later.limit in ("conformal_bound", "full_dose")
    assert later.action > 0.3
    assert "Decision(round=301" in repr(later)


def test_rounds_whose_outcome_never_comes_count_against_the_guarantee():
    """More missing than the risk allows: no score bounds the next, and the start dose stays."""
    agent, rng = taught(0)
    for number in range(200):
        context = rng.standard_normal(DIM)
        decision = agent.ask(context)
        if number % 4 != 1:
            agent.tell(decision, **outcome(rng, context, decision.intensity))
    assert agent.ask([1.0, 0.0, 0.0]).guarantee == "declared"
    assert agent.informative_rounds == 150


def test_a_late_outcome_is_used_at_the_next_refit():
    agent, rng = taught(30)
    late = [agent.ask(rng.standard_normal(DIM)) for _ in range(10)]
    for decision in reversed(late):
        agent.tell(decision, **outcome(rng, decision.context, decision.intensity))
    other, again = taught(30)
    for decision in [other.ask(again.standard_normal(DIM)) for _ in range(10)]:
        other.tell(decision, **outcome(again, decision.context, decision.intensity))
    assert np.isfinite(state_of(agent).rounds.cost[:40]).all()
    assert np.array_equal(state_of(agent).rounds.context[:40], state_of(other).rounds.context[:40])


def test_outcomes_by_context_must_be_those_of_the_oldest_open_rounds():
    agent, rng = taught(30)
    contexts = rng.standard_normal((3, DIM))
    agent.ask_many(contexts)
    state = state_of(agent).rounds.cost[:33].copy()
    with pytest.raises(InvalidInput, match="differs from that of round 31"):
        agent.tell(contexts[1], 0.05, 0.0, 0.0)
    with pytest.raises(InvalidInput, match="row 0: context: differs from that of round 31"):
        agent.tell_many(contexts[::-1], [0.05] * 3, [0.0] * 3, [0.0] * 3)
    assert np.array_equal(state_of(agent).rounds.cost[:33], state)
    agent.tell_many(contexts, [0.05] * 3, [0.0] * 3, [0.0] * 3)
    assert np.isfinite(state_of(agent).rounds.cost[:33]).all()
    with pytest.raises(InvalidInput, match="reported already"):
        agent.tell(contexts[0], 0.05, 0.0, 0.0)


def test_an_open_round_can_be_reported_by_its_number_after_loading(tmp_path):
    agent, rng = taught(30)
    decisions = agent.ask_many(rng.standard_normal((3, DIM)))
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    third = decisions[2]
    with pytest.raises(InvalidInput, match="round="):
        again.tell(third, reward=0.1, cost=0.1)
    again.tell(third.context, third.action, reward=0.1, cost=0.1, round=third.round)
    with pytest.raises(InvalidInput, match="not open"):
        again.tell(third.context, third.action, reward=0.1, cost=0.1, round=third.round)
    with pytest.raises(InvalidInput, match="known to the decision"):
        agent.tell(third, reward=0.1, cost=0.1, round=third.round)
    assert np.isfinite(state_of(again).rounds.cost[:33]).tolist() == [True] * 30 + [False, False, True]


def test_a_list_of_decisions_refits_at_most_once_and_before_it():
    agent, rng = taught(300)
    assert all(decision.guarantee == "conformal" for decision in agent.ask_many(rng.standard_normal((200, DIM)) / 2))


def test_a_lag_leaves_out_rounds_that_may_still_be_open():
    shares = []
    for lag in (0, 20):
        agent, rng = Agent(DIM, conformal_spec(), policy=make_policy("hp_conformal", lag=lag), start_action=0.05), None
        rng, waiting, guarantees = np.random.default_rng(0), [], []
        for _ in range(400):
            context = rng.standard_normal(DIM) / 2
            waiting.append(agent.ask(context))
            guarantees.append(waiting[-1].guarantee)
            if len(waiting) > 15:
                done = waiting.pop(0)
                agent.tell(done, **outcome(rng, done.context, done.intensity))
        shares.append(np.mean([guarantee == "conformal" for guarantee in guarantees]))
    assert shares[1] > 0.7 > shares[0] + 0.1


def test_bad_outcomes_that_come_late_do_not_look_like_a_drift():
    agent, rng = taught(0)
    late = []
    for number in range(800):
        context = rng.standard_normal(DIM) / 2
        decision = agent.ask(context)
        told = outcome(rng, context, decision.intensity)
        if told["cost"] > 0.4 * decision.intensity:
            late.append((number + 100, decision, told))
        else:
            agent.tell(decision, **told)
        while late and late[0][0] <= number:
            _, old, its = late.pop(0)
            agent.tell(old, **its)
    assert not agent.alarmed


def test_violations_are_counted():
    agent, _ = taught(0)
    decision = agent.ask([0.1, 0.1, 0.1])
    agent.tell(decision, reward=0.0, cost=0.9)
    assert agent.violations == 1


@pytest.mark.parametrize(("history", "guarantee"), [("train", "declared"), ("calibrate", "conformal")])
def test_history_can_be_given_before_the_first_decision(history, guarantee):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((400, DIM)) / 2
    results = [outcome(rng, context, 0.1) for context in contexts]
    policy = make_policy("hp_conformal", history=history)
    agent = Agent(DIM, conformal_spec(), start_action=0.05, policy=policy)
    agent.tell_many(contexts, [0.1] * 400, [r["reward"] for r in results], [r["cost"] for r in results])
    decision = agent.ask([1.0, 0.0, 0.0])
    assert decision.guarantee == guarantee
    np.testing.assert_allclose(agent.cost_coef, [0.3, 0.5, 0.1], atol=0.15)


def test_a_saved_agent_decides_the_same_bit_for_bit(tmp_path):
    policies = [
        make_policy("hp_conformal", start_dose=0.05),
        make_policy("hp_conformal", start_dose=0.05, groups="none", group=2),
    ]
    for policy in policies:
        agent, rng = taught(10, Agent(DIM, conformal_spec(), policy=policy))
        for _ in range(120):
            context = np.append(rng.standard_normal(DIM - 1), float(rng.integers(2)))
            decision = agent.ask(context)
            if rng.random() < 0.95:
                agent.tell(decision, **outcome(rng, context, decision.intensity))
        agent.save(tmp_path / "one")
        again = Agent.load(tmp_path / "one")
        again.save(tmp_path / "two")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
        for _ in range(40):
            context = np.append(rng.standard_normal(DIM - 1), float(rng.integers(2)))
            pair = [each.ask(context) for each in (agent, again)]
            assert pair[0].action == pair[1].action
            told = outcome(rng, context, pair[0].intensity)
            for each, decision in zip((agent, again), pair, strict=True):
                each.tell(decision, **told)
        assert agent.evidence == again.evidence


def test_a_fresh_agent_can_be_saved(tmp_path):
    Agent(DIM, conformal_spec(), start_action=0.05).save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent")
    assert taught(50, agent)[0].decisions == 50


def test_your_own_parts_are_given_again_on_load(tmp_path):
    policy = make_policy("hp_conformal", group=lambda x: bool(x[0] > 0))
    agent, _ = taught(150, policy=policy)
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="your own group"):
        Agent.load(tmp_path / "agent")
    other = make_policy("hp_conformal", group=policy.options["group"], lag=2, window=200)
    with pytest.raises(InvalidInput, match="other options than the saved one: lag, window"):
        Agent.load(tmp_path / "agent", policy=other)
    again = Agent.load(tmp_path / "agent", policy=policy)
    assert again.preview([0.5, 0.1, 0.1]).action == agent.preview([0.5, 0.1, 0.1]).action
    told = agent.preview([0.5, 0.1, 0.1]).certificate
    assert told["group"]["label"] is True
    assert "expected, True)" in agent.preview([0.5, 0.1, 0.1]).explain()


def test_memory_stays_within_the_window():
    policy = make_policy("hp_conformal", window=100)
    agent, _ = taught(700, policy=policy)
    assert state_of(agent).rounds.cost.size <= 400
    assert agent.ask([1.0, 0.0, 0.0]).guarantee == "conformal"
    old = agent.ask([0.5, 0.5, 0.5])
    taught(300, agent, seed=4)
    before = state_of(agent).rounds.cost.copy()
    agent.tell(old, reward=0.0, cost=0.0)
    assert np.array_equal(state_of(agent).rounds.cost, before), "a round that left the window stays forgotten"
