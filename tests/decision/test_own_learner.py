"""A policy with a learner of one's own, in one file: simulated, in an agent, saved, loaded and explained."""

import numpy as np
import pytest

from safedial import Agent, InvalidInput, Policy, SafetySpec, simulate
from safedial.core.action import Choice
from safedial.core.confidence import Bounds
from safedial.core.estimate import Prediction
from safedial.core.safe_set import SafeSet
from safedial.decision.learners.protocol import Learner
from safedial.worlds import LinearWorld

SPEC = SafetySpec(threshold=0.5, total_risk=0.1, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1)


class MeanLearner(Learner):
    """The mean cost and reward over all rounds, whatever the context."""

    def __init__(self, rules):
        self.dim, self.sums = rules.dim, np.zeros(3)

    def predict(self, context, norm):
        count, reward, cost = self.sums
        return Prediction(reward / max(count, 1.0), cost / max(count, 1.0), 0.0, norm, 0.0, count, self.dim)

    def learn(self, context, norm, sample, place):
        if sample.weight > 0.0:
            self.sums += 1.0, sample.reward, sample.cost
            self.samples += 1

    def state(self):
        return {"sums": self.sums}

    def restore(self, arrays):
        self.sums = arrays["sums"].copy()
        self.samples = int(self.sums[0])


def decide(prediction, spec, *, round, coin, baseline_cost=0.0):
    upper = prediction.cost + 1.0
    largest = np.minimum((spec.threshold - baseline_cost) / upper, 1.0)
    safe = SafeSet(largest, largest >= 0.0)
    return Choice(largest, safe, Bounds(prediction.reward + 1.0, upper, 1.0, 1.0, largest < 0.0), prediction.reward)


def by_mean(learner=MeanLearner):
    return Policy("by_mean", "By the mean", "heuristic", decide, {}, init=lambda dim, ridge: None, learner=learner)


def test_it_decides_learns_explains_and_is_saved_and_loaded(tmp_path):
    agent = Agent(2, SPEC, policy=by_mean())
    actions = []
    for _ in range(20):
        decision = agent.decide([0.3, 0.2])
        actions.append(decision.action)
        agent.update(decision, reward=0.1, cost=0.4 * decision.intensity)
    assert actions[0] == pytest.approx(0.5)
    assert actions[-1] == pytest.approx(0.5 / 1.4)
    assert agent.informative_rounds == 20
    assert decision.promise == "none"
    assert "nothing is proved" in decision.explain()
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent", policy=by_mean())
    assert twin.decide([0.3, 0.2]).action == agent.decide([0.3, 0.2]).action


def test_without_a_learner_class_an_agent_says_what_is_missing():
    with pytest.raises(InvalidInput, match="give the policy a `learner`"):
        Agent(2, SPEC, policy=by_mean(learner=None))


def test_a_policy_whose_learner_is_for_agents_alone_is_not_simulated_with_another():
    policy = Policy("mine", "Mine", "expected", decide, {}, learner=MeanLearner)
    with pytest.raises(InvalidInput, match="has a learner for agents and studies only; give the policy init, predict"):
        simulate(policy, LinearWorld(dim=2), SPEC, rounds=5, seeds=1)


def test_what_a_learner_has_not_is_refused_in_words():
    agent = Agent(2, SPEC, policy=by_mean())
    with pytest.raises(InvalidInput, match="this learner has no coefficients"):
        _ = agent.cost_coef
    with pytest.raises(InvalidInput, match="is only for hp_conformal, hp_shield and hp_student"):
        agent.resume(forget=True)


def test_a_learner_that_lacks_a_method_is_refused_with_its_name():
    class Silent(MeanLearner):
        learn = Learner.learn

    with pytest.raises(TypeError, match="learn"):
        Agent(2, SPEC, policy=by_mean(learner=Silent))
