"""A policy with a state and words of its own, defined here alone: simulated, in an agent, in a study, explained."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from safedial import Agent, InvalidInput, Policy, SafetySpec, Study, make_policy, simulate
from safedial.policies.policy import KNOWN, Bound, Terms, option
from safedial.simulation.linear_world import LinearWorld
from safedial.study.study_errors import StudyError
from tests.policies.own_linear import MyProbe

SPEC = SafetySpec(threshold=0.5, total_risk=0.1, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1)


@dataclass(frozen=True, kw_only=True)
class Cautious(Policy):
    """A dose at random between half of what the mean of the last costs allows and all of it."""

    name = "cautious"
    label = "Cautious"
    guarantee = "expected"
    randomised = True
    window: int = option(5, lambda value: value >= 1, "must be at least 1")

    def init(self, lanes=(), *, watch=True):
        return {"cost": np.full((*lanes, self.window), np.nan)}

    def bound(self, state, asked):
        known = np.isfinite(state["cost"])
        mean = np.where(known, state["cost"], 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
        upper = np.maximum(mean, 0.0) + 3.0 * self.spec.cost_noise
        largest = np.clip((self.spec.threshold - asked.baseline) / upper, 0.0, 1.0)
        possible = self.spec.threshold >= asked.baseline
        return Bound(np.ones(upper.shape), largest, {"cost_upper": upper}, certified=possible)

    def choose(self, bound, asked):
        return (0.5 + 0.5 * asked.coin) * bound.largest

    def tell(self, state, place, told):
        informative = (told.fate == np.asarray(KNOWN)) & (np.asarray(told.weight) > 0.0)
        cost = np.broadcast_to(told.cost, state["cost"].shape[:-1])[..., None]
        later = np.concatenate([state["cost"][..., 1:], cost], axis=-1)
        state["cost"] = np.where(informative[..., None], later, state["cost"])

    def terms(self, decided):
        statement = f"none: only the mean cost is kept at or below {self.spec.threshold:g}"
        facts = {} if decided is None else {"cost_upper": decided.numbers["cost_upper"]}
        return Terms(statement, ["the last outcomes are like the next"], [], facts)


@dataclass(frozen=True, kw_only=True)
class Reckless(Cautious):
    name = "reckless"


CONTEXTS = np.random.default_rng(3).uniform(-0.5, 0.5, (12, 2))


def test_it_is_simulated():
    run = simulate(Cautious(), LinearWorld(dim=2), SPEC, rounds=40, seeds=3)
    assert run.policy.name == "cautious"
    assert run.informative_rounds.min() > 0.0


def test_it_decides_learns_explains_itself_and_is_saved_and_loaded(tmp_path):
    agent = Agent(2, SPEC, policy=Cautious(), seed=4)
    for context in CONTEXTS:
        decision = agent.ask(context)
        agent.tell(decision, reward=0.1, cost=0.4 * decision.intensity)
    assert agent.informative_rounds == len(CONTEXTS)
    assert decision.certificate["assumptions"][0] == "the last outcomes are like the next"
    assert decision.certificate["cost_upper"] == pytest.approx(0.4 + 0.9)
    assert (decision.guarantee, decision.limit) == ("none", "probe")
    assert "only the mean cost is kept at or below 0.5" in decision.explain()
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent", policy=Cautious())
    assert twin.ask([0.3, 0.2]).action == agent.ask([0.3, 0.2]).action
    with pytest.raises(InvalidInput, match="has other options than the saved one: window"):
        Agent.load(tmp_path / "agent", policy=Cautious(window=6))


def test_a_certificate_says_whose_proof_it_is():
    ours = make_policy("hp_probe")
    policies = ours, MyProbe(), Cautious()
    certificates = [Agent(2, SPEC, policy=each).ask([0.3, 0.2]).certificate for each in policies]
    words = "policy my_probe is your own: that its rule keeps the guarantee is your proof, not one of this package"
    assert [words in each["assumptions"] for each in certificates] == [False, True, False]
    assert certificates[1]["assumptions"] == [*certificates[0]["assumptions"], words]


def test_it_runs_a_study_that_goes_on_when_it_is_given_again(tmp_path):
    storage = f"sqlite:///{tmp_path}/own.db"
    study = Study.create("own", SPEC, storage=storage, dim=2, policy=Cautious(), fallback_action=0.1)
    decisions = [study.ask(context) for context in CONTEXTS]
    for decision in decisions:
        study.tell(decision.id, reward=0.1, cost=0.4 * decision.intensity)
    study.correct(decisions[2].id, reason="misread", cost=0.2)
    assert len({decision.action for decision in decisions}) == len(decisions), "each by a coin of its own"
    assert study.verify().ok
    before, digest = study.ask([0.3, 0.2]), study.state_digest()
    assert study.events(limit=1)["events"][0]["body"]["spec"]["policy"] == {"name": "cautious", "window": 5}
    study.store.close()

    again = Study.open("own", storage=storage, policy=Cautious())
    assert again.state_digest() == digest
    assert again.decision(before.id).certificate == before.certificate
    assert "only the mean cost" in again.explain(before.id)
    assert json.loads(json.dumps(before.certificate))["policy"] == {"name": "cautious", "window": 5}
    assert again.ask([0.1, 0.2]).action > 0.0
    assert again.verify().ok
    assert (
        Study.create(
            "own", SPEC, storage=again.store, dim=2, policy=Cautious(), fallback_action=0.1, load_if_exists=True
        ).spec.fields
        == again.spec.fields
    )
    again.store.close()


def test_a_study_is_not_opened_without_its_policy_nor_with_another(tmp_path):
    storage = f"sqlite:///{tmp_path}/own.db"
    Study.create("own", SPEC, storage=storage, dim=2, policy=Cautious(), fallback_action=0.1).store.close()
    with pytest.raises(StudyError, match=r"is your own, which a log cannot hold; .* policy=\.\.\.") as refused:
        Study.open("own", storage=storage)
    assert refused.value.code == "own_policy"
    with pytest.raises(InvalidInput, match="differs from the study's policy in these options: window"):
        Study.open("own", storage=storage, policy=Cautious(window=6))
    with pytest.raises(InvalidInput, match="must be the study's, 'cautious'"):
        Study.open("own", storage=storage, policy=Reckless())
    with pytest.raises(InvalidInput, match="there is no such policy"):
        Study.create("other", SPEC, storage=storage, dim=2, policy="cautious")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda agent: agent.cost_coef, "has no coefficients"),
        (lambda agent: agent.resume(forget=True), "is not for a certified policy"),
    ],
)
def test_what_it_does_not_have_is_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call(Agent(2, SPEC, policy=Cautious()))
