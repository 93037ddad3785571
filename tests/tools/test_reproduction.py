"""On a log that a policy made itself, its evaluation is its live run: the same settings, the same excesses."""

import numpy as np
import pytest

from safedial import Agent, Dial, SafetySpec, evaluate, growth, hill, make_policy
from safedial.policies import FACTORIES
from safedial.rounds.log_file import Log

CONSTANTS = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0}
SPEC = SafetySpec(threshold=0.5, violation_risk=0.15, estimation_risk=0.05, **CONSTANTS)
MARGINAL = {"violation_risk": 0.2, **CONSTANTS}
SHIELD = {"base": "feature", "growth": growth.relative(0.7, 1.4, floor=0.05), "start_scale": 0.2}
CASES = {
    **{name: (name, SPEC) for name in ("hp_ucb", "hp_probe", "on_expectation", "epsilon_greedy", "thompson", "fixed")},
    "hp_conformal": ("hp_conformal", SafetySpec(threshold=0.5, guarantee="conformal", **MARGINAL)),
    "hp_student": ("hp_student", SafetySpec(threshold=0.5, guarantee="student", **MARGINAL)),
    "hp_shield": (
        make_policy("hp_shield", **SHIELD | {"base": 0}),
        SafetySpec(threshold=0.5, guarantee="bracket", violation_risk=0.2),
    ),
    "nonlinear_hp_ucb": ("nonlinear_hp_ucb", SPEC),
    "nonlinear_hp_probe": ("nonlinear_hp_probe", SPEC),
}
SIMULATED_ONLY = {"clairvoyant", "hp_bayes"}


def rounds_of(count, seed=0, dim=3):
    """Contexts, R/g and C/g of a linear world with positive features."""
    rng = np.random.default_rng(seed)
    contexts = np.abs(rng.standard_normal((count, dim)))
    contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=1, keepdims=True))
    return (
        contexts,
        contexts @ [0.5, 0.4, 0.3] + 0.3 * rng.standard_normal(count),
        contexts @ [0.6, 0.5, 0.4] + 0.3 * rng.standard_normal(count),
    )


def live(agent, count, *, curve=lambda share: share):
    """The log of an agent that runs on these rounds, and its settings."""
    contexts, rewards, costs = rounds_of(count)
    rows = []
    for context, reward, cost in zip(contexts, rewards, costs, strict=True):
        decision = agent.ask(context)
        share = agent.dial.action(decision.action)
        rows.append((decision.action, curve(share) * reward, curve(share) * cost))
        agent.tell(decision, reward=rows[-1][1], cost=rows[-1][2])
    settings, gained, paid = np.array(rows).T
    nothing = np.full(count, np.nan)
    log = Log(
        names=("x1", "x2", "x3"), context=contexts, action=agent.dial.action(settings), reward=gained, cost=paid,
        round=np.arange(1.0, count + 1), advised=nothing, baseline_cost=np.zeros(count),
    )  # fmt: skip
    return log, settings


def test_every_policy_is_among_the_cases_or_cannot_run_online():
    assert {*CASES, *SIMULATED_ONLY} == set(FACTORIES)


@pytest.mark.parametrize("name", CASES)
def test_on_an_agents_own_log_every_policy_repeats_it(name):
    policy, spec = CASES[name]
    log, settings = live(Agent(3, spec, policy=policy), 100)
    (found,) = evaluate(log, policy, spec=spec).policies
    np.testing.assert_allclose(found.played.advised, settings, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.scores.over, log.cost > spec.threshold)
    np.testing.assert_allclose(found.scores.reward, log.reward, atol=1e-12)


@pytest.mark.parametrize("name", ["hp_probe", "thompson", "hp_conformal", "hp_student", "nonlinear_hp_ucb"])
def test_on_another_policys_log_every_policy_does_what_it_would_have_done_live(name):
    policy, spec = CASES[name]
    other, _ = live(Agent(3, SPEC, policy="fixed"), 100)
    own, settings = live(Agent(3, spec, policy=policy), 100)
    (found,) = evaluate(other, policy, spec=spec).policies
    np.testing.assert_allclose(found.played.advised, settings, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found.scores.over, own.cost > spec.threshold)
    np.testing.assert_allclose(found.scores.reward, own.reward, atol=1e-9)


def test_a_dial_with_levels_and_a_curve_is_followed():
    dial, curve = Dial(low=2.0, high=20.0, levels=[2.0, 3.0, 5.0, 8.0, 13.0, 20.0]), hill(0.5, 1.0)
    parts = {"dial": dial, "dose": curve}
    other, _ = live(Agent(3, SPEC, policy="fixed", **parts), 120, curve=curve.effect)
    own, settings = live(Agent(3, SPEC, policy="hp_ucb", **parts), 120, curve=curve.effect)
    (found,) = evaluate(other, "hp_ucb", spec=SPEC, **parts).policies
    assert len(set(settings)) > 2
    np.testing.assert_allclose(found.played.advised, settings, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.scores.reward, own.reward, atol=1e-9)
    assert found.share < 1


def test_a_replay_of_a_long_log_agrees_with_the_agent():
    other, _ = live(Agent(3, SPEC, policy="fixed"), 300)
    for policy in ("hp_ucb", "thompson"):
        slow, fast = (evaluate(other, policy, spec=SPEC, engine=engine) for engine in ("agent", "replay"))
        np.testing.assert_allclose(slow.policies[0].played.advised, fast.policies[0].played.advised, rtol=0, atol=1e-9)
        assert [each.name for each in fast.doubts if each.name == "alarms"] == ["alarms"]


@pytest.mark.parametrize("policy", [None, "hp_probe", {"name": "hp_probe", "radius": "mixture"}])
@pytest.mark.parametrize("ridge", [None, 2.0])
def test_options_that_are_left_open_are_those_of_a_new_agent(policy, ridge):
    spec = SafetySpec(threshold=0.5, violation_risk=0.15, estimation_risk=0.05, ridge=ridge, **CONSTANTS)
    log, _ = live(Agent(3, SPEC, policy="fixed"), 2)
    (found,) = evaluate(log, policy, spec=spec).policies
    agent = Agent(3, spec, policy=policy)
    assert found.rules.policy.options == agent.policy.options
    assert found.rules.spec == agent.spec
