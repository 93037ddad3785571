"""Several costs under `hp_student` in simulations: as agents that are told the same rounds, and within the risk.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, Cost, InvalidInput, LinearWorld, SafetySpec, hp_student, power, simulate
from safedial.simulation.results import guarantee_holds, summary
from tests.conftest import FULL

CONSTANTS = {"reward_noise": 0.1, "coefficient_bound": 1, "context_bound": 1}
COSTS = {"heat": Cost(threshold=0.4, noise=0.2, share=0.3), "load": Cost(threshold=0.3, noise=0.3, share=0.7)}
RISKS = {"violation_risk": 0.1, "estimation_risk": 0.02}
SPEC = SafetySpec(costs=COSTS, guarantee="student", **RISKS, **CONSTANTS)
WORLD = LinearWorld(dim=3)


@pytest.mark.parametrize(
    ("guarantee", "start_dose", "curve"),
    [("per_round", None, None), ("tolerance", 0.05, power(2.0)), ("anytime", None, None)],
)
def test_a_simulation_decides_as_an_agent_that_is_told_its_rounds(guarantee, start_dose, curve):
    costs = {"heat": COSTS["heat"], "load": Cost(threshold=0.3, noise=0.3, share=0.7, curve=curve)}
    spec = SafetySpec(costs=costs, guarantee="student", **RISKS, **CONSTANTS)
    policy, chunks = hp_student(guarantee=guarantee, start_dose=start_dose), []
    simulate(policy, WORLD, spec, rounds=60, seeds=[4], record=chunks.append)
    (chunk,) = chunks
    agent, changed = Agent(3, spec, policy=policy), set()
    for row in range(60):
        action = float(chunk.action[row, 0, 0])
        decision = agent.ask(chunk.context[row, 0, 0])
        if guarantee == "anytime":  # a batch looks at its contexts now and then only
            assert (1 - 1e-6) * action <= decision.action <= 1.1 * action
        else:
            assert decision.action == pytest.approx(action, rel=1e-6, abs=1e-12)
        changed.add(decision.limit)
        told = {name: float(values[row, 0, 0]) for name, values in chunk.cost.items()}
        agent.tell(decision, applied_action=action, reward=float(chunk.reward[row, 0, 0]), cost=told)
    assert {"start_dose", "student_bound"} <= changed


def test_any_cost_exceeds_no_more_often_than_the_risk():
    """Per round, with a threshold so low that the bound mostly decides; contexts that drift."""
    low = {name: Cost(threshold=0.1, noise=0.5) for name in "ab"}
    spec, seeds = SafetySpec(costs=low, guarantee="student", violation_risk=0.2, **CONSTANTS), 2000 if FULL else 100
    run = simulate(hp_student(start_dose=0.01), LinearWorld(dim=3, contexts="drift"), spec, rounds=60, seeds=seeds)
    assert binomtest(int(run.violations.sum()), 60 * seeds, 0.2, alternative="greater").pvalue > 1e-6
    one = SafetySpec(threshold=0.1, cost_noise=0.5, guarantee="student", violation_risk=0.1, **CONSTANTS)
    named = SafetySpec(costs={"a": low["a"]}, guarantee="student", violation_risk=0.1, **CONSTANTS)
    first, second = (simulate(hp_student(), WORLD, each, rounds=40, seeds=3) for each in (one, named))
    assert np.array_equal(first.violations, second.violations)
    assert second.reward == pytest.approx(first.reward)


def test_the_guarantee_is_proved_where_the_start_is_safe_for_each_cost():
    assert guarantee_holds(hp_student(), WORLD, SPEC)
    assert guarantee_holds(hp_student(start_dose=0.1), WORLD, SPEC)
    assert not guarantee_holds(hp_student(start_dose=0.3), WORLD, SPEC)
    told = summary(simulate(hp_student(), WORLD, SPEC, rounds=20, seeds=1))
    assert told["threshold"] == {"heat": 0.4, "load": 0.3}


def test_what_has_no_proof_or_no_noise_is_refused():
    with pytest.raises(InvalidInput, match=r"'hp_student': takes one cost with either=True, .*; use either=False"):
        simulate(hp_student(either=True), WORLD, SPEC, rounds=2, seeds=1)
    quiet = SafetySpec(costs={"heat": Cost(threshold=1)}, guarantee="student", violation_risk=0.1, **CONSTANTS)
    with pytest.raises(
        InvalidInput, match=r"noise of costs\['heat'\] = None: is needed to simulate: the world uses it"
    ):
        simulate(hp_student(), WORLD, quiet, rounds=2, seeds=1)
