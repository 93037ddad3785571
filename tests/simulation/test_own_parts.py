"""Policies, learners and worlds of one's own: used as they are in both engines, or refused by name with the rule."""

import numpy as np
import pytest

from safedial import Agent, InvalidInput, LinearWorld, check_policy, create_study, make_policy, replay, simulate
from safedial.policies import POLICIES
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
    assert np.any(both_engines(own(predict=predict)) != usual)


def narrow(state, context):
    seen = UCB.predict(state, context)
    return seen._replace(width=0.0 * seen.width, cost=seen.cost - 5.0)


def ignore(state, prediction, reward, cost, weight):
    return UCB.update(state, prediction, 0.0 * reward, cost, weight)


@pytest.mark.parametrize("name", ["mine", "hp_ucb"])
@pytest.mark.parametrize("part", [{"predict": narrow}, {"update": ignore}], ids=["predict", "update"])
def test_a_part_of_a_learner_is_used_in_both_engines_whatever_the_name(name, part):
    policy = UCB._replace(name=name, **part)
    assert policy.own_parts == tuple(part)
    assert not policy.is_linear
    usual = both_engines(UCB)
    assert np.all(both_engines(policy) != usual)
    np.testing.assert_array_equal(both_engines(UCB), usual, "the package's program is another")


def test_rows_of_a_policy_with_a_part_of_one_s_own_learn_apart():
    """Also under a name of the package: a part may learn what the doses teach."""

    def update(state, prediction, reward, cost, weight, intensity):
        return UCB.update(state, prediction, reward, cost, weight * (intensity < 0.2))

    policy = UCB._replace(update=update)
    both = simulate(policy, WORLD, make_spec(threshold=[0.1, 0.9]), rounds=100, seeds=2)
    alone = simulate(policy, WORLD, make_spec(threshold=0.9), rounds=100, seeds=2)
    np.testing.assert_allclose(both.regret[1], alone.regret[0], rtol=0.0, atol=1e-9)


def test_no_function_of_the_package_counts_as_one_s_own():
    assert all(not make_policy(name).own_parts for name in POLICIES)


def test_a_certified_policy_with_a_cheating_predict_fails_its_checks():
    report = check_policy(lambda: UCB._replace(name="cheat", predict=narrow), quiet=True)
    assert any("without data no dose exceeds" in claim for claim in report.failures)
    assert any("within the promised risk" in claim for claim in report.failures)


@pytest.mark.parametrize("name", ["hp_ucb", "hp_student", "hp_conformal"])
def test_agents_studies_and_replays_refuse_a_part_that_they_would_not_use(name, tmp_path):
    promise = {"hp_ucb": "certified", "hp_student": "student", "hp_conformal": "conformal"}[name]
    spec, policy = make_spec(promise=promise), make_policy(name)._replace(update=ignore)
    words = f"policy = '{name}': has its own learner, which runs only in simulations; .*give the policy a `learner`"
    with pytest.raises(InvalidInput, match=words):
        Agent(3, spec, policy=policy)
    stated = {**spec.to_dict(), "dim": 3, "fallback_action": 0}
    storage = f"sqlite:///{tmp_path}/own.db"
    with pytest.raises(InvalidInput, match=f"policy = '{name}': is a name of this package, and update is your own"):
        create_study("own", stated, storage=storage, policy=policy)
    with pytest.raises(InvalidInput, match="has its own learner, which runs only in simulations"):
        create_study("own", stated, storage=storage, policy=policy._replace(name="mine", options={}))
    with pytest.raises(InvalidInput, match="does not learn with the linear estimate; use `simulate`"):
        replay(policy, np.zeros((2, 3)), np.zeros(2), np.zeros(2), spec)


@pytest.mark.parametrize("parts", [{"radius": "self-normalised"}, {"margin": "quantile"}])
def test_what_needs_more_than_the_plain_estimate_refuses_parts_of_it(parts):
    policy = make_policy("hp_ucb", **({"radius": parts["radius"]} if "radius" in parts else {}))
    spec = make_spec() if "radius" in parts else make_spec(margin="quantile", margin_risk=0.01)
    with pytest.raises(InvalidInput, match=r"'hp_ucb': has parts of the plain .*; give the policy init, predict and"):
        simulate(policy._replace(predict=narrow), WORLD, spec, rounds=5, seeds=1)
