"""Policies, agents, decisions and simulations survive pickle and deepcopy, as joblib, Ray and notebooks need."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from safedial import Agent, Dial, Dose, hill, hp_probe, identity, logistic, make_policy, power, simulate, tabulated
from safedial.model.dose import DoseCurve
from safedial.model.noise_scale import own_scale, power_scale, with_sensor
from safedial.policies.classes import binary, features, finite, kernel, linear
from safedial.policies.classes.features import fourier
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from tests.conftest import make_spec
from tests.policies.own_linear import Changed, Mine
from tests.policies.test_conformance import CONFIGURATIONS

WAYS = {"pickle": lambda value: pickle.loads(pickle.dumps(value)), "deepcopy": copy.deepcopy}  # noqa: S301 -- our own


def two_lines(context):
    return np.stack([0.5 * context[..., 0], -0.5 * context[..., 1]], axis=-1)


def squared(action):
    return action**2


def root(intensity):
    return intensity**0.5 * (1.0 - 1e-15)


@pytest.mark.parametrize("again", WAYS.values(), ids=WAYS)
def test_every_policy_comes_back_with_its_rule_and_its_options(again):
    for name, options in CONFIGURATIONS:
        policy = make_policy(name, **options)
        twin = again(policy)
        assert twin == policy, name
        told = (policy.name, policy.label, policy.guarantee, list(policy.options))
        assert (twin.name, twin.label, twin.guarantee, list(twin.options)) == told


@pytest.mark.parametrize("again", WAYS.values(), ids=WAYS)
def test_a_policy_of_ones_own_comes_back_with_its_class(again):
    twin = again(Mine(radius="paper"))
    assert type(twin) is Mine
    assert twin == Mine(radius="paper")
    assert twin != Mine()


def test_a_policy_that_holds_a_function_without_a_name_is_refused_by_pickle():
    policy = Changed(give=lambda dose, bound, asked: dose)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(policy)
    assert copy.deepcopy(policy) is copy.copy(policy) is policy


CLASSES = {
    "linear": linear(radius="paper"),
    "finite": finite(two_lines, prior=[0.25, 0.75]),
    "kernel": kernel("matern52:0.5", norm=1.5),
    "features": features(None, misspecification=0.1),
    "binary": binary(norm=2.0),
}


@pytest.mark.parametrize("class_", CLASSES.values(), ids=CLASSES)
def test_a_function_class_comes_back(class_):
    assert WAYS["pickle"](class_) == class_
    assert copy.deepcopy(class_) is copy.copy(class_) is class_


def test_a_class_over_a_function_without_a_name_is_refused_by_pickle():
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(features(fourier(2, count=5)))


def test_a_pair_that_shares_one_class_still_shares_it():
    policy = WAYS["pickle"](make_policy("nonlinear_hp_ucb", cost_class=kernel()))
    assert policy.options["cost_class"] is policy.options["reward_class"]


CURVES = [identity(), power(1.7), hill(0.4, 2.0), logistic(0.5, 8.0), tabulated([0, 0.3, 1], [0, 0.6, 1])]


@pytest.mark.parametrize("curve", [*CURVES, DoseCurve("own", {}, squared, root)], ids=lambda curve: curve.name)
def test_a_dose_curve_comes_back_and_gives_the_same_bits(curve):
    twin = WAYS["pickle"](curve)
    assert twin.to_dict() == curve.to_dict()
    assert twin.heights() == curve.heights()
    assert [twin.action(z) for z in (0.0, 0.3, 1.0)] == [curve.action(z) for z in (0.0, 0.3, 1.0)]
    assert copy.deepcopy(curve) is copy.copy(curve) is curve


def test_a_noise_scale_comes_back():
    assert WAYS["pickle"](with_sensor(0.3)) is with_sensor(0.3)
    own = own_scale(max)
    assert WAYS["pickle"](own) == own


AGENTS = {
    "plain": ("hp_probe", {}, {}),
    "coin": ("epsilon_greedy", {"epsilon": 0.5}, {"dose": Dose(hill(0.5, 2.0), power(1.5))}),
    "adaptive": ("hp_ucb", {"radius": "noise-adaptive"}, {"dial": Dial(high=20, unit="mg")}),
    "self-normalised": ("hp_probe", {"radius": "self-normalised"}, {}),
    "conformal": ("hp_conformal", {"start_dose": 0.1, "group": 0}, {}),
    "groups": ("hp_conformal", {"start_dose": 0.1, "groups": "none"}, {}),
    "student": ("hp_student", {"start_dose": 0.1}, {}),
    "either": ("hp_student", {"start_dose": 0.1, "either": True}, {}),
    "kernel": ("nonlinear_hp_probe", {"cost_class": kernel("rbf:0.5", norm=1.0), "reward_class": linear()}, {}),
}


def played(agent, rng, rounds):
    """The advice of some rounds, each reported after the next is asked for."""
    actions, last = [], None
    for _ in range(rounds):
        decision = agent.ask(np.round(rng.uniform(-0.6, 0.6, 2), 1))
        actions.append(decision.action)
        if last is not None:
            agent.tell(last, reward=float(rng.normal(0.1, 0.1)), cost=float(rng.normal(0.1, 0.1)))
        last = decision
    return actions


def made(name, options, more):
    guarantee = {"guarantee": name.removeprefix("hp_")} if name in ("hp_conformal", "hp_student") else {}
    agent = Agent(2, make_spec(**guarantee), policy=make_policy(name, **options), seed=5, **more)
    played(agent, np.random.default_rng(0), 60)
    return agent


@pytest.mark.parametrize("again", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("name", "options", "more"), AGENTS.values(), ids=AGENTS)
def test_an_agent_and_its_decision_come_back_and_it_decides_the_same_next_actions(name, options, more, again):
    agent = made(name, options, more)
    decision = agent.ask([0.3, -0.2])
    twin, same = again(agent), again(decision)
    assert (same.action, same.certificate, str(same.explain())) == (
        decision.action,
        decision.certificate,
        str(decision.explain()),
    )
    assert (twin.decisions, twin.informative_rounds, twin.evidence) == (
        agent.decisions,
        agent.informative_rounds,
        agent.evidence,
    )
    open_rounds = [played(each, np.random.default_rng(1), 30) for each in (agent, twin)]
    assert open_rounds[0] == open_rounds[1]


def test_a_copy_of_an_agent_learns_on_its_own():
    agent = Agent(2, make_spec())
    twin = copy.deepcopy(agent)
    played(twin, np.random.default_rng(0), 5)
    assert agent.decisions == 0
    assert agent.ask([0.3, 0.2]).action == Agent(2, make_spec()).ask([0.3, 0.2]).action


def test_an_agent_and_its_decision_that_travel_together_still_belong_together():
    agent, decision = WAYS["pickle"]((agent := Agent(2, make_spec(), policy=hp_probe()), agent.ask([0.3, 0.2])))
    agent.tell(decision, reward=0.1, cost=0.1)
    assert agent.informative_rounds == 1


def test_a_subclass_of_an_agent_comes_back_as_one():
    assert type(WAYS["pickle"](Named(2, make_spec()))) is Named


class Named(Agent):
    """A subclass, at the top of a module so that pickle finds it."""


WORLDS = {
    "linear": ("hp_probe", LinearWorld(dim=2), {}),
    "scaled": ("hp_ucb", LinearWorld(dim=2), {"noise_scale": power_scale(0.5)}),
    "kernel": (make_policy("nonlinear_hp_ucb", cost_class=kernel()), NonlinearWorld(kind="kernel", dim=2), {}),
}


@pytest.mark.parametrize(("policy", "world", "changes"), WORLDS.values(), ids=WORLDS)
def test_a_simulation_comes_back_with_its_numbers(policy, world, changes):
    spec = replace(make_spec(), **changes)
    result = simulate(policy, world, spec, rounds=20, seeds=2, dose=power(2.0))
    twin = WAYS["pickle"](result)
    assert repr(twin) == repr(result)
    np.testing.assert_array_equal(twin.regret_curve, result.regret_curve)
    repeated = simulate(twin.policy, twin.world, twin.spec, rounds=20, seeds=2, dose=twin.dose)
    np.testing.assert_array_equal(repeated.regret, result.regret)
