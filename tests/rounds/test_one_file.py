"""A policy and a learner of one's own, each defined here alone: simulated, in an agent, in a study, and explained."""

import json

import numpy as np
import pytest

from safedial import Agent, InvalidInput, Policy, SafetySpec, create_study, make_policy, open_study, simulate
from safedial.bounds.choice import Choice
from safedial.bounds.confidence import Bounds
from safedial.bounds.estimate import Prediction
from safedial.bounds.safe_set import SafeSet
from safedial.rounds.learner import Learner
from safedial.simulation.linear_world import LinearWorld
from safedial.study.study_errors import StudyError
from tests.policies.own_record import record

SPEC = SafetySpec(threshold=0.5, total_risk=0.1, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1)


class RecentLearner(Learner):
    """The mean of the last outcomes, whatever the context; how many is an option of the policy."""

    def __init__(self, rules):
        self.dim, self.noise, self.seen = rules.dim, rules.spec.cost_noise, np.zeros((0, 3))
        self.window = rules.policy.options["window"]

    def predict(self, context, norm):
        reward, cost, _ = self.seen.mean(axis=0) if len(self.seen) else np.zeros(3)
        return Prediction(reward, cost, self.noise, norm, 0.0, float(self.samples), self.dim)

    def learn(self, context, norm, sample, place):
        if sample.weight > 0.0:
            self.seen = np.vstack([self.seen, (sample.reward, sample.cost, sample.intensity)])[-self.window :]
            self.samples += 1

    @classmethod
    def assumptions(cls, rules):
        return ["the last outcomes are like the next"]

    def state(self):
        return {"seen": self.seen, "samples": np.array(self.samples)}

    def restore(self, arrays):
        self.seen, self.samples = arrays["seen"].copy(), int(arrays["samples"])


def cautious(window=5, learner=RecentLearner):
    """A dose at random between half of what the mean cost allows and all of it."""

    def init(dim, *, ridge, batch=()):
        return np.zeros((3, *batch))

    def predict(state, context):
        count = np.maximum(state[0], 1.0)
        norm = np.sqrt(np.vecdot(context, context))
        return Prediction(state[1] / count, state[2] / count, 0.3, norm, 0.0, state[0], context.shape[-1])

    def update(state, seen, reward, cost, weight):
        return state + (weight > 0.0) * np.stack(np.broadcast_arrays(1.0, reward, cost))

    def decide(prediction, spec, *, round, coin, baseline_cost=0.0):
        upper = np.maximum(prediction.cost, 0.0) + 3.0 * prediction.width
        safe = np.clip((spec.threshold - baseline_cost) / upper, 0.0, 1.0)
        bounds = Bounds(prediction.reward, upper, 0.0, 0.0, False)
        return Choice(safe * (0.5 + 0.5 * coin), SafeSet(safe, spec.threshold >= baseline_cost), bounds, 1.0)

    rule = {"init": init, "predict": predict, "update": update}
    return Policy(
        "cautious", "Cautious", "expected", decide, {"window": window}, randomised=True, learner=learner, **rule
    )


CONTEXTS = np.random.default_rng(3).uniform(-0.5, 0.5, (12, 2))


def test_it_is_simulated():
    run = simulate(cautious(), LinearWorld(dim=2), SPEC, rounds=40, seeds=3)
    assert run.policy.name == "cautious"
    assert run.informative_rounds.min() > 0.0


def test_it_decides_learns_explains_itself_and_is_saved_and_loaded(tmp_path):
    agent = Agent(2, SPEC, policy=cautious(), seed=4)
    for context in CONTEXTS:
        decision = agent.decide(context)
        agent.update(decision, reward=0.1, cost=0.4 * decision.intensity)
    assert agent.informative_rounds == len(CONTEXTS)
    assert decision.certificate["assumptions"][0] == "the last outcomes are like the next"
    assert decision.certificate["cost_upper"] == pytest.approx(0.4 + 0.9)
    assert (decision.guarantee, decision.limit) == ("none", "probe")
    assert "only its mean is kept at or below 0.5" in decision.explain()
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent", policy=cautious())
    assert twin.decide([0.3, 0.2]).action == agent.decide([0.3, 0.2]).action
    with pytest.raises(InvalidInput, match="has other options than the saved one: window"):
        Agent.load(tmp_path / "agent", policy=cautious(window=6))


def test_a_certificate_says_whose_proof_it_is():
    ours = make_policy("hp_probe")
    policies = ours, record(ours, name="mine"), cautious()
    certificates = [Agent(2, SPEC, policy=each).decide([0.3, 0.2]).certificate for each in policies]
    words = "policy mine is your own: that its rule keeps the guarantee is your proof, not one of this package"
    assert [words in each["assumptions"] for each in certificates] == [False, True, False]
    assert certificates[1]["assumptions"] == [*certificates[0]["assumptions"], words]


def test_it_runs_a_study_that_goes_on_when_it_is_given_again(tmp_path):
    storage = f"sqlite:///{tmp_path}/own.db"
    study = create_study("own", SPEC, storage=storage, dim=2, policy=cautious(), fallback_action=0.1)
    decisions = [study.ask(context) for context in CONTEXTS]
    for decision in decisions:
        study.tell(decision.id, reward=0.1, cost=0.4 * decision.intensity)
    study.correct(decisions[2].id, reason="misread", cost=0.2)
    assert len({decision.action for decision in decisions}) == len(decisions), "each by a coin of its own"
    assert study.verify().ok
    before, digest = study.ask([0.3, 0.2]), study.state_digest()
    assert study.events(limit=1)["events"][0]["body"]["spec"]["policy"] == {"name": "cautious", "window": 5}
    study.store.close()

    again = open_study("own", storage=storage, policy=cautious())
    assert again.state_digest() == digest
    assert again.decision(before.id).certificate == before.certificate
    assert "only its mean" in again.explain(before.id)
    assert json.loads(json.dumps(before.certificate))["policy"] == {"name": "cautious", "window": 5}
    assert again.ask([0.1, 0.2]).action > 0.0
    assert again.verify().ok
    assert (
        create_study(
            "own", SPEC, storage=again.store, dim=2, policy=cautious(), fallback_action=0.1, load_if_exists=True
        ).spec.fields
        == again.spec.fields
    )
    again.store.close()


def test_a_study_is_not_opened_without_its_policy_nor_with_another(tmp_path):
    storage = f"sqlite:///{tmp_path}/own.db"
    create_study("own", SPEC, storage=storage, dim=2, policy=cautious(), fallback_action=0.1).store.close()
    with pytest.raises(StudyError, match=r"is your own, which a log cannot hold; .* policy=\.\.\.") as refused:
        open_study("own", storage=storage)
    assert refused.value.code == "own_policy"
    with pytest.raises(InvalidInput, match="differs from the study's policy in these options: window"):
        open_study("own", storage=storage, policy=cautious(window=6))
    with pytest.raises(InvalidInput, match="must be the study's, 'cautious'"):
        open_study("own", storage=storage, policy=cautious()._replace(name="reckless"))
    with pytest.raises(InvalidInput, match="there is no such policy"):
        create_study("other", SPEC, storage=storage, dim=2, policy="cautious")


def agents_only():
    decide = cautious().decide
    return Policy("mine", "Mine", "expected", decide, {"window": 5}, learner=RecentLearner)


def silent():
    class Silent(RecentLearner):
        learn = Learner.learn

    return cautious(learner=Silent)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Agent(2, SPEC, policy=cautious(learner=None)), "give the policy a `learner`"),
        (
            lambda: simulate(agents_only(), LinearWorld(dim=2), SPEC, rounds=5, seeds=1),
            "has a learner for agents and studies only; give the policy init, predict",
        ),
        (lambda: Agent(2, SPEC, policy=cautious()).cost_coef, "this learner has no coefficients"),
        (lambda: Agent(2, SPEC, policy=cautious()).resume(forget=True), "is only for hp_conformal, hp_shield and"),
        (lambda: Agent(2, SPEC, policy=silent()), "learn"),
    ],
)
def test_what_a_policy_or_its_learner_lacks_is_named(call, words):
    with pytest.raises((InvalidInput, TypeError), match=words):
        call()


def test_what_a_learner_does_not_say_has_a_default():
    rules = Agent(2, SPEC, policy=cautious())._rules
    learner = RecentLearner(rules)
    assert learner.rounding(CONTEXTS[0], 1.0) is None, "verify elsewhere compares the decisions themselves"
    assert RecentLearner.history_counts(rules)
    assert RecentLearner.least_setting(rules) is None
