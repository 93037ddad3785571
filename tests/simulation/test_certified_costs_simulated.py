"""Several certified costs in simulations: as agents that are told the same rounds, and within the risk.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, Cost, DoseResponseWorld, InvalidInput, LinearWorld, SafetySpec, growth, power, simulate
from safedial.policies import make_policy
from safedial.policies.classes import linear
from safedial.simulation.results import guarantee_holds, summary

CONSTANTS = {"reward_noise": 0.1, "coefficient_bound": 1, "context_bound": 1}
COSTS = {"heat": Cost(threshold=0.4, noise=0.2, share=0.3), "load": Cost(threshold=0.3, noise=0.3, share=0.7)}
RISKS = {"violation_risk": 0.05, "estimation_risk": 0.01}
STATED = {"costs": COSTS, **RISKS, **CONSTANTS}
SPEC = SafetySpec(**STATED)
WORLD = LinearWorld(dim=3)


def played(policy, spec, **more):
    chunks = []
    result = simulate(policy, WORLD, spec, record=chunks.append, **more)
    return (
        result,
        [
            np.concatenate([np.asarray(getattr(chunk, name)) for chunk in chunks])
            for name in ("context", "action", "reward")
        ],
        chunks,
    )


@pytest.mark.parametrize(
    ("policy", "curve", "guarantee"), [("hp_ucb", None, "joint"), ("hp_probe", power(2.0), "certified")]
)
def test_a_simulation_decides_as_an_agent_that_is_told_its_rounds(policy, guarantee, curve):
    costs = {"heat": COSTS["heat"], "load": Cost(threshold=0.3, noise=0.3, share=0.7, curve=curve)}
    spec = SafetySpec(costs=costs, guarantee=guarantee, **RISKS, **CONSTANTS)
    _, (context, action, reward), chunks = played(policy, spec, rounds=80, seeds=[4])
    agent = Agent(3, spec, policy=make_policy(policy))
    cost = {name: np.concatenate([chunk.cost[name] for chunk in chunks]) for name in costs}
    for row in range(80):
        decision = agent.ask(context[row, 0, 0])
        assert decision.action == pytest.approx(action[row, 0, 0], rel=1e-6, abs=1e-12)
        told = {name: float(values[row, 0, 0]) for name, values in cost.items()}
        agent.tell(decision, applied_action=float(action[row, 0, 0]), reward=float(reward[row, 0, 0]), cost=told)


def test_one_named_cost_is_simulated_as_one_cost_is():
    one = SafetySpec(threshold=0.4, cost_noise=0.2, **RISKS, **CONSTANTS)
    named = SafetySpec(costs={"heat": Cost(threshold=0.4, noise=0.2)}, **RISKS, **CONSTANTS)
    first, second = (played("hp_probe", spec, rounds=100, seeds=2) for spec in (one, named))
    for one_part, named_part in zip(first[1], second[1], strict=True):
        assert named_part == pytest.approx(one_part, rel=1e-9, abs=1e-12)
    assert np.array_equal(first[0].violations, second[0].violations)
    assert second[0].exact_clairvoyant_reward == pytest.approx(first[0].exact_clairvoyant_reward)


def test_any_cost_exceeds_no_more_often_than_the_risk_which_the_clairvoyant_uses_up():
    """Gaussian margins are exact."""
    spec = SafetySpec(costs=COSTS, violation_risk=[0.1, 0.3], estimation_risk=0.01, margin="gaussian", **CONSTANTS)
    result, best = (simulate(policy, WORLD, spec, rounds=150, seeds=20) for policy in ("hp_probe", "clairvoyant"))
    for row, risk in enumerate((0.1, 0.3)):
        for found in (result, best):
            assert binomtest(int(found.violations[row].sum()), 3000, risk + 0.01, alternative="greater").pvalue > 1e-6
    assert np.all(best.regret == 0.0)
    assert np.all(result.regret > 0.0)
    # In half of the rounds the reward is negative and nothing is given; in the others one cost mostly decides alone.
    low = SafetySpec(costs={name: Cost(threshold=0.1, noise=0.5) for name in "ab"}, **RISKS, **CONSTANTS)
    played = simulate("clairvoyant", WORLD, low, rounds=300, seeds=20)
    assert binomtest(int(played.violations[0].sum()), 6000, 0.009, alternative="greater").pvalue < 1e-6
    assert binomtest(int(played.violations[0].sum()), 6000, 0.05, alternative="greater").pvalue > 1e-6


def test_the_report_names_the_costs_and_says_whether_the_guarantee_is_proved():
    told = summary(simulate("hp_ucb", WORLD, SPEC, rounds=20, seeds=1))
    assert told["threshold"] == {"heat": 0.4, "load": 0.3}
    assert told["guaranteed_risk"] == pytest.approx(0.06)
    noisier = SafetySpec(costs=COSTS | {"heat": Cost(threshold=0.4, noise=0.3, share=0.3)}, **RISKS, **CONSTANTS)
    assert not guarantee_holds(make_policy("hp_ucb"), WORLD, SPEC, true=noisier)
    assert guarantee_holds(make_policy("hp_ucb"), WORLD, noisier, true=SPEC)


NO_PROOF = "costs = .*: are for an Agent"
BRACKET = {"a": Cost(threshold=1, growth=growth.additive(0, 1))}


@pytest.mark.parametrize(
    ("policy", "world", "fields", "words"),
    [
        ("on_expectation", {}, {}, "policy = 'on_expectation': takes one cost: only certified .*; use hp_probe or"),
        (make_policy("nonlinear_hp_ucb", reward_class=linear(), cost_class=linear()), {}, {}, "takes one cost"),
        (make_policy("hp_shield", base=0), {}, {"costs": BRACKET, "guarantee": "bracket"}, NO_PROOF),
        ("hp_probe", {"contexts": "adversarial"}, {}, "contexts = 'adversarial': does not go with several costs"),
        ("hp_probe", {"baseline_cost": 0.1}, {}, r"baseline_cost = 0\.1: does not go with several costs"),
        ("hp_probe", {"noise": "context-scale"}, {}, "noise = 'context-scale': does not go with several costs"),
        ("hp_probe", {}, {"cost_sensor_noise": 0.1}, r"cost_sensor_noise = 0\.1: does not go with several costs"),
    ],
)  # fmt: skip
def test_what_has_no_proof_or_no_world_is_refused(policy, world, fields, words):
    with pytest.raises(InvalidInput, match=words):
        simulate(policy, LinearWorld(dim=3, **world), SafetySpec(**(STATED | fields)), rounds=2, seeds=1)


def test_costs_with_curves_of_their_own_take_no_common_one_and_no_world_of_brackets():
    with pytest.raises(InvalidInput, match=NO_PROOF):
        simulate("hp_probe", DoseResponseWorld(), SPEC, rounds=2, seeds=1)
    curved = SafetySpec(**(STATED | {"costs": {"heat": Cost(threshold=1, noise=1, curve=power(2.0))}}))
    with pytest.raises(InvalidInput, match=r"dose = \['heat'\]: have curves of their own"):
        simulate("hp_probe", WORLD, curved, rounds=2, seeds=1, dose=power(2.0))
