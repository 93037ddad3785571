"""Samples that wait are as good as samples that were applied: same bounds, same guarantee, same bits after a save."""

import numpy as np
import pytest

from safedial import Agent
from safedial.policies import estimates
from safedial.policies.estimates import Sums
from safedial.policies.table import pack, unpack
from tests.conftest import make_spec
from tests.oracles import exact_safe_intensity


@pytest.fixture
def waiting(monkeypatch):
    """Let samples wait at any dimension."""
    monkeypatch.setattr(estimates, "FROM_DIM", 1)


def samples(dim, count, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, dim)) * np.logspace(0, -3, dim)
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True) * (1 + 1e-9)
    return contexts, rng.standard_normal((count, 2)), rng.uniform(0.1, 1.0, count)


def teach(learner, contexts, outcomes, weights):
    for context, (reward, cost), weight in zip(contexts, outcomes, weights, strict=True):
        norm = float(np.linalg.norm(context))
        learner.read(context, norm)
        learner.add(context, norm, float(reward), float(cost), float(weight))
    return learner


@pytest.mark.parametrize("count", [1, 16, 100])
def test_waiting_changes_nothing_but_rounding(monkeypatch, count):
    given = samples(12, count)
    at_once = teach(Sums(12, 1e-2), *given)
    monkeypatch.setattr(estimates, "FROM_DIM", 1)
    later = teach(Sums(12, 1e-2), *given)
    assert at_once.pending.count == 0
    assert later.pending.count == count % estimates.ROOM
    for context in samples(12, 5, seed=1)[0]:
        np.testing.assert_allclose(later.read(context, 1.0)[:3], at_once.read(context, 1.0)[:3], rtol=1e-9)
    for target in ("reward_rhs", "cost_rhs"):
        coef = [each.direction(getattr(each, target)) for each in (later, at_once)]
        np.testing.assert_allclose(*coef, atol=1e-9)
    assert later.log_det == pytest.approx(at_once.log_det, rel=1e-12)
    np.testing.assert_allclose(later._scale, at_once._scale, rtol=1e-12)


@pytest.mark.usefixtures("waiting")
def test_what_is_certified_stays_safe_while_samples_wait():
    spec = make_spec(cost_noise=0.1, reward_noise=0.1, ridge=1e-4, threshold=0.2)
    agent, told = Agent(3, spec), []
    contexts, outcomes, _ = samples(3, 40)
    for context, (reward, cost) in zip(contexts, 0.1 * outcomes, strict=True):
        decision = agent.ask(context)
        assert decision.intensity <= exact_safe_intensity(told, context, spec)
        applied = decision.intensity
        if applied > 0:
            agent.tell(decision, reward=reward * applied, cost=cost * applied)
            told.append((context, (cost * applied) / applied, 1.0))
    assert agent._rounds.learning._state.sums.pending.count > 0


@pytest.mark.usefixtures("waiting")
def test_a_saved_agent_goes_on_bit_for_bit(tmp_path):
    contexts, outcomes, _ = samples(6, 60)
    agent = Agent(6, make_spec())

    def play(agent, part):
        played = []
        for context, (reward, cost) in zip(contexts[part], outcomes[part], strict=True):
            decision = agent.ask(context)
            played.append(decision.action)
            agent.tell(decision, reward=reward * decision.intensity, cost=cost * decision.intensity)
        return played

    play(agent, slice(0, 23))
    assert agent._rounds.learning._state.sums.pending.count == 7
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    assert play(agent, slice(23, 60)) == play(loaded, slice(23, 60))
    for name, value in agent._rounds.learning.state().items():
        np.testing.assert_array_equal(value, loaded._rounds.learning.state()[name])


@pytest.mark.usefixtures("waiting")
def test_a_rebuild_takes_the_waiting_samples_in():
    learner = teach(Sums(5, 0.5), *samples(5, 20))
    contexts, _, weights = samples(5, 20)
    learner.rebuild()
    assert learner.pending.count == 0
    gram = 0.5 * np.eye(5) + contexts.T @ (weights[:, None] * contexts)
    inverse = np.tril(learner.inverse) + np.tril(learner.inverse, -1).T
    np.testing.assert_allclose(inverse @ gram, np.eye(5), atol=1e-12)
    learner.rebuild()


def test_samples_wait_at_high_dimension_alone():
    assert Sums(3, 1.0).pending.rows.size == 0
    assert Sums(estimates.FROM_DIM, 1.0).pending.rows.shape == (estimates.FROM_DIM, estimates.ROOM)


@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("damage", [1e-9, 0.3])
def test_damaged_state_costs_reward_but_never_safety(damage):
    rng = np.random.default_rng(4)
    learner = teach(Sums(4, 0.5), *samples(4, 50))
    assert learner.pending.count == 2
    rows = learner.pending.rows[:, :2]
    full = np.tril(learner.gram) + np.tril(learner.gram, -1).T + rows @ rows.T
    for context in rng.standard_normal((50, 4)):
        norm = float(np.linalg.norm(context))
        worn = unpack(Sums(4, 0.5), pack(learner))
        worn.inverse = np.asfortranarray(learner.inverse * (1 + damage * rng.standard_normal((4, 4))))
        worn.pending.moves *= 1 + damage * rng.standard_normal((4, 1))
        _, cost, width = worn.read(context, norm)[:3]
        solved = np.linalg.solve(full, context)
        assert width >= np.sqrt(context @ solved) * (1 - 1e-12)
        assert cost >= solved @ learner.cost_rhs - 1e-12
        worn.rebuild()
        assert worn.read(context, norm)[2] == pytest.approx(np.sqrt(context @ solved), rel=1e-9)
