"""May this policy play under this spec, here? One table of policies and facts, in place of a test for each refusal."""

import numpy as np
import pytest

from safedial import Agent, Cost, InvalidInput, LinearWorld, make_policy, replay, simulate
from safedial.model.dose import as_dose
from safedial.model.noise_scale import power_scale
from safedial.model.spec import SafetySpec
from safedial.policies import FACTORIES
from safedial.policies.classes import binary
from safedial.policies.policy import Task
from safedial.policies.supports import SENTENCES, check_supported, facts, supports
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from tests.conftest import make_spec

CERTIFIED = {"guarantee conformal", "guarantee bracket", "guarantee student"}
"""The specs that a policy from constants does not give."""
OTHER = {"noise scale", "several costs", "adversarial contexts", "replay"}
"""What needs the linear estimate."""
ZERO_ONE = {"sensor noise", "threshold from 1"}
CLASSES = CERTIFIED | OTHER | {"learned noise"}
RANKS = {"guarantee joint", "guarantee student"}
GAUSSIAN = {"guarantee joint", "guarantee conformal", "guarantee bracket", "costs of 0 or 1", "sensor noise"}

TABLE = {
    "hp_ucb": ({}, CERTIFIED),
    "hp_probe": ({}, CERTIFIED),
    "thompson": ({}, CERTIFIED),
    "fixed": ({}, CERTIFIED),
    "on_expectation": ({}, CERTIFIED | {"several costs"}),
    "epsilon_greedy": ({}, CERTIFIED),
    "epsilon_greedy, exploring": ({"learn_from": "exploring"}, CERTIFIED | {"unmarked rounds"}),
    "clairvoyant": ({}, CERTIFIED | {"unknown means", "costs of 0 or 1"}),
    "clairvoyant, 0 or 1": ({"binary_cost": True}, CERTIFIED | ZERO_ONE | {"unknown means", "costs of any size"}),
    "hp_bayes": ({}, CERTIFIED | OTHER | {"advice", "sensor noise", "other margin"}),
    "nonlinear_hp_ucb": ({}, CLASSES),
    "nonlinear_hp_probe": ({}, CLASSES),
    "nonlinear_hp_probe, 0 or 1": ({"cost_class": binary()}, CLASSES | ZERO_ONE | {"costs of any size"}),
    "hp_conformal": ({"start_dose": 0.1}, OTHER | RANKS | {"sensor noise"}),
    "hp_shield": ({"base": 0}, (OTHER - {"several costs"}) | RANKS),
    "hp_student": ({}, (OTHER - {"several costs"}) | GAUSSIAN),
}
"""What each policy does not support in a simulation, and in an agent where that is a matter of advice."""

COSTS = {"heat": Cost(threshold=1, noise=0.1), "load": Cost(threshold=2, noise=0.1)}
MARGIN = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0}
SPECS = {
    "sensor noise": make_spec(cost_sensor_noise=0.1),
    "noise scale": make_spec(noise_scale=power_scale(1.0)),
    "learned noise": make_spec(**MARGIN, margin_risk=0.01),
    "other margin": make_spec(**MARGIN),
    "threshold from 1": make_spec(threshold=[0.5, 1.5]),
    "several costs": make_spec(threshold=None, cost_noise=None, costs=COSTS),
    "guarantee joint": make_spec(guarantee="joint"),
    "guarantee conformal": SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="conformal"),
    "guarantee bracket": SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="bracket"),
    "guarantee student": SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="student"),
}
WORLDS = {
    "adversarial contexts": LinearWorld(dim=2, contexts="adversarial"),
    "costs of 0 or 1": NonlinearWorld(dim=2, kind="logistic"),
    "costs of any size": LinearWorld(dim=2),
}
HERE = {"unknown means", "unmarked rounds", "advice"}


def task_of(fact):
    """A task that states a fact."""
    spec = SPECS.get(fact, make_spec())
    world = WORLDS[fact].facts if fact in WORLDS else frozenset({fact} & {"replay"})
    return Task(dim=2, spec=spec, dose=as_dose(None), live=fact in HERE, world=world)


@pytest.mark.parametrize("case", TABLE)
def test_each_policy_is_refused_with_the_facts_that_it_excludes_and_no_others(case):
    options, excluded = TABLE[case]
    policy = make_policy(case.partition(",")[0], **options)
    for fact in SENTENCES:
        task = task_of(fact)
        assert fact in facts(task), fact
        refused = fact in supports(policy, task)
        assert refused == (fact in excluded), fact
        if refused:
            with pytest.raises(InvalidInput, match=r"^[\w ]+ = .*: .*; .*"):
                check_supported(policy, task)


def test_the_table_names_every_policy_and_every_sentence_is_used():
    assert {case.partition(",")[0] for case in TABLE} == set(FACTORIES)
    used = set().union(*(excluded for _, excluded in TABLE.values()))
    assert set(SENTENCES) == used | {"guarantee certified"}  # which only agents of other policies refuse


def test_an_agent_takes_only_the_guarantee_that_its_policy_gives():
    for case, (options, _) in TABLE.items():
        policy = make_policy(case.partition(",")[0], **options)
        fits = {
            name
            for name in ("certified", "joint", "conformal", "bracket", "student")
            if f"guarantee {name}" not in supports(policy, agent_task(name))
        }
        assert fits == AGENTS.get(policy.name, {"certified", "joint"}), case


AGENTS = {"hp_conformal": {"conformal"}, "hp_shield": {"bracket"}, "hp_student": {"student"}}


def agent_task(name):
    spec = SPECS.get(f"guarantee {name}", make_spec())
    return Task(dim=2, spec=spec, dose=as_dose(None), live=True)


def test_who_knows_the_truth_plays_under_any_guarantee_where_no_constants_are_stated():
    world, known = DoseResponseWorld(), make_policy("clairvoyant")
    task = Task(dim=world.dim, spec=SPECS["guarantee bracket"], dose=as_dose(None), world=world.facts)
    assert supports(known, task) == []
    assert supports(make_policy("hp_probe"), task) == ["guarantee bracket"]


def test_agents_simulations_and_replays_refuse_with_the_same_sentence():
    sentence = "guarantee = 'student': does not match policy hp_probe, whose guarantee is 'certified'; set the spec's"
    policy, ones = make_policy("hp_probe"), np.ones(3)
    spec = SafetySpec(
        threshold=0.5, violation_risk=0.1, guarantee="student", reward_noise=1, cost_noise=1, coefficient_bound=1,
        context_bound=1, estimation_risk=None,
    )  # fmt: skip
    for use in (
        lambda: Agent(2, spec, policy=policy),
        lambda: simulate(policy, LinearWorld(dim=2), spec, rounds=2, seeds=1),
        lambda: replay(policy, np.ones((3, 2)), ones, ones, spec),
    ):
        with pytest.raises(InvalidInput) as refused:
            use()
        assert str(refused.value).startswith(sentence)
