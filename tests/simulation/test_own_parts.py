"""Policies, learners and worlds of one's own: used as they are in both engines, or refused by name with the rule."""

import numpy as np
import pytest

from safedial import InvalidInput, LinearWorld, make_policy, simulate
from safedial.simulation import engines
from tests.conftest import make_spec

UCB = make_policy("hp_ucb")
WORLD = LinearWorld(dim=3)


def own(**parts):
    """hp_ucb under another name, with parts of one's own."""
    return UCB._replace(name="mine", label="Mine", promise="heuristic", options={}, **parts)


def both_engines(policy, world=WORLD, spec=None, rounds=120, seeds=3):
    """The regret in both engines, which must agree."""
    spec = spec or make_spec()
    runs = [simulate(policy, world, spec, rounds=rounds, seeds=seeds, engine=each) for each in ("numpy", "jax")]
    np.testing.assert_allclose(runs[0].regret, runs[1].regret, rtol=0.0, atol=1e-9)
    return runs[0].regret


def test_a_learner_that_draws_in_each_round_is_not_compiled(monkeypatch):
    def update(state, prediction, reward, cost, weight, rngs):
        return UCB.update(
            state, prediction, reward, cost, weight * np.array([float(rng.random() < 0.5) for rng in rngs])
        )

    policy = own(init=lambda *sizes, **more: UCB.init(*sizes, **more), update=update)
    words = r"policy = 'mine': draws from rngs in update, .*once.*; use engine='numpy', or draw from the round's `coin`"
    with pytest.raises(InvalidInput, match=words):
        simulate(policy, WORLD, make_spec(), rounds=20, seeds=2, engine="jax")
    monkeypatch.setattr(engines, "WORTHWHILE", 0.0)
    auto = simulate(policy, WORLD, make_spec(), rounds=20, seeds=2, engine="auto")
    assert auto.engine == "numpy"
    np.testing.assert_array_equal(auto.regret, simulate(policy, WORLD, make_spec(), rounds=20, seeds=2).regret)


def test_a_compiled_learner_may_draw_before_the_first_round_and_from_the_coin():
    def init(dim, *, ridge, batch, rngs):
        start = UCB.init(dim, ridge=ridge, batch=batch)
        return start._replace(reward_coef=start.reward_coef + np.array([[rng.normal()] for rng in rngs]))

    def predict(state, context, coin):
        seen = UCB.predict(state, context)
        return seen._replace(reward=seen.reward + coin - 0.5)

    usual = both_engines(own())
    assert np.any(both_engines(own(init=init)) != usual)
    assert np.any(both_engines(own(init=lambda *sizes, **more: UCB.init(*sizes, **more), predict=predict)) != usual)
