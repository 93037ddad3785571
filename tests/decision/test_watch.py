"""What an agent counts against its promise, and which outcomes end its learning.

Contexts have norm 0.85 and S = 1, so a mean cost of up to 0.85 a unit of intensity is within the stated norms.
"""

import numpy as np
import pytest

from safedial import Agent, InvalidInput, SafetySpec
from safedial.core.scale import power_scale
from tests.conftest import make_spec

X = [0.6, 0.6]


def agent_of(**changes):
    return Agent(2, make_spec(reward_noise=0.3, cost_noise=0.3), **changes)


def by_decision(agent, share, cost):
    decision = agent.decide(X)
    agent.update(decision, action=min(1.0, share * decision.action), reward=0.1, cost=cost)


def by_context(agent, share, cost):
    decision = agent.decide(X)
    agent.update(X, min(1.0, share * decision.action), 0.1, cost)


def by_many(agent, share, cost):
    decision = agent.decide(X)
    agent.update_many([X], [min(1.0, share * decision.action)], [0.1], [cost])


def by_number_after_loading(agent, share, cost):
    """The report of a round that was open when the agent was saved, by its number."""
    decision = agent.decide(X)
    agent.update(X, min(1.0, share * decision.action), 0.1, cost, round=decision.round)


REPORTS = [by_decision, by_context, by_many, by_number_after_loading]


@pytest.mark.parametrize("report", REPORTS)
def test_an_override_is_judged_at_the_setting_that_was_advised(report):
    """Twice the advice and 1.5 τ: at the advice 0.75 τ, which breaks no promise; 30 such rounds raise no alarm."""
    agent = agent_of()
    for _ in range(30):
        report(agent, 2.0, 0.75)
    assert (agent.violations, agent.alarmed) == (0, False)
    assert agent.evidence < 1.0


@pytest.mark.parametrize("report", REPORTS)
def test_a_hair_above_the_advice_is_watched(report):
    """A pump that rounds up blinds nothing: the alarm comes within ten rounds of the control's."""
    rounds = {}
    for share in (1.0, 1.0 + 1e-6, 1.2):
        agent, rounds[share] = agent_of(), 0
        while not agent.alarmed and rounds[share] < 100:
            report(agent, share, 0.51 * share)
            rounds[share] += 1
    assert rounds[1.0] <= 5
    assert rounds[1.0 + 1e-6] <= rounds[1.0] + 10
    assert rounds[1.2] <= rounds[1.0] + 10


def test_history_proves_nothing_about_the_promise():
    agent = agent_of()
    for _ in range(30):
        agent.update(X, 1.0, 0.1, 0.8)
    assert (agent.informative_rounds, agent.evidence, agent.alarmed) == (30, 1.0, False)


def test_an_open_round_saved_with_its_advice_is_judged_by_it_after_loading(tmp_path):
    agent = agent_of()
    made = [agent.decide(X) for _ in range(8)]
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    for decision in made[:4]:
        again.update(X, min(1.0, 2.0 * decision.action), 0.1, 0.75, round=decision.round)
    assert not again.alarmed
    for decision in made[4:]:
        again.update(X, decision.action, 0.1, 0.51, round=decision.round)
    assert again.alarmed


def test_late_outcomes_give_the_evidence_that_prompt_ones_give():
    """The product does not depend on the order of reports; an open round counts as kept."""
    rng = np.random.default_rng(1)
    costs = np.where(rng.random(40) < 0.1, 0.6, 0.2)
    prompt, late = agent_of(), agent_of()
    made = [late.decide(X) for _ in costs]
    for cost in costs:
        prompt.update(prompt.decide(X), action=0.3, reward=0.1, cost=cost)
    for index in rng.permutation(40):
        late.update(made[index], action=0.3, reward=0.1, cost=costs[index])
    assert late.evidence == pytest.approx(prompt.evidence, rel=1e-9)
    waiting = agent_of()
    waiting.update(waiting.decide_many([X] * 10)[0], reward=0.1, cost=0.6)
    assert 1.0 < waiting.evidence < prompt_evidence_of_one()


def prompt_evidence_of_one():
    agent = agent_of()
    agent.update(agent.decide(X), reward=0.1, cost=0.6)
    return agent.evidence


def test_where_the_model_cannot_rescale_a_raised_round_counts_as_kept():
    spec = SafetySpec(
        threshold=0.5, violation_risk=0.01, estimation_risk=0.01, reward_noise=0.1, cost_noise=0.1, coefficient_bound=1,
        context_bound=1, noise_scale=power_scale(2),
    )  # fmt: skip
    agent = Agent(2, spec)
    for _ in range(10):
        by_decision(agent, 1.2, 0.7)
    assert (agent.violations, agent.alarmed) == (0, False)
    assert agent.evidence < 1.0


def test_a_dose_that_was_withheld_for_an_unknown_reason_ends_the_learning():
    """Leaving out the rounds that somebody feared would bias what is learned."""
    agent = agent_of()
    by_decision(agent, 1.0, 0.2)
    agent.update(agent.decide(X), action=0.0, reward=0.0, cost=0.0, unrelated=True)
    by_decision(agent, 1.0, 0.2)
    assert (agent.frozen, agent.informative_rounds) == (False, 2)
    agent.update(agent.decide(X), action=0.0, reward=0.0, cost=0.0)
    by_decision(agent, 1.0, 0.2)
    assert (agent.frozen, agent.informative_rounds) == (True, 2)


def test_a_nurse_who_foresees_bad_reactions_cannot_bias_what_is_learned():
    """She withholds where the noise is above 0. Dropping those rounds made the confidence set miss in every run."""
    rng = np.random.default_rng(3)
    truth = np.array([0.3, 0.3])
    missed = 0
    for _ in range(20):
        agent = Agent(2, make_spec(reward_noise=0.3, cost_noise=0.3))
        for _ in range(400):
            x, noise = rng.uniform(-0.7, 0.7, 2), 0.3 * rng.standard_normal()
            decision = agent.decide(x)
            applied = 0.0 if noise > 0.0 else decision.action
            agent.update(decision, action=applied, reward=0.0, cost=applied * (x @ truth + noise))
        decision = agent.decide(X)
        missed += decision.choice.bounds.cost_upper < np.array(X) @ truth
    assert missed == 0


def test_frozen_learning_is_saved(tmp_path):
    agent = agent_of()
    agent.update(agent.decide(X), action=0.0, reward=0.0, cost=0.0)
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").frozen


def test_a_negative_baseline_is_refused_unless_it_was_stated():
    with pytest.raises(InvalidInput, match=r"baseline_cost = -10\.0: must lie between 0 and inf; state another"):
        agent_of().decide(X, baseline_cost=-10)
    with pytest.raises(InvalidInput, match="row 1: baseline_cost"):
        agent_of().decide_many([X, X], baseline_costs=[0, -1])
    stated = agent_of(baseline_range=(-0.2, None))
    assert stated.decide(X, baseline_cost=-0.1).action > agent_of().decide(X).action
    with pytest.raises(InvalidInput, match="baseline_cost"):
        stated.decide(X, baseline_cost=-0.3)
    for bad in ((1, 0), (0,), "0-1", (float("nan"), 1)):
        with pytest.raises(InvalidInput, match="baseline_range"):
            agent_of(baseline_range=bad)


def test_a_stated_baseline_range_is_saved(tmp_path):
    agent = agent_of(baseline_range=(-0.2, 0.3))
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match=r"between -0\.2 and 0\.3"):
        Agent.load(tmp_path / "agent").decide(X, baseline_cost=0.4)


@pytest.mark.parametrize("norm", [1.7, 3.0])
def test_costs_above_what_the_stated_norms_allow_refute_them(norm):
    """The clip cut the bound at S‖x‖ and hid them: μ* with a norm above S was never found."""
    rng = np.random.default_rng(0)
    truth = np.array([norm, norm]) / np.sqrt(2)
    agent = Agent(2, make_spec(threshold=0.5, reward_noise=0.3, cost_noise=0.3))
    rounds = 0
    while agent.preview(X).limit != "assumption_broken" and rounds < 400:
        agent.update(X, 0.5, 0.0, 0.5 * (np.array(X) @ truth + 0.3 * rng.standard_normal()))
        rounds += 1
    assert rounds <= {1.7: 40, 3.0: 10}[norm]
    assert (agent.decide(X).action, agent.decide(X).promise) == (0.0, "none")


def test_costs_within_the_stated_norms_never_refute_them():
    """At the very edge, ‖μ*‖ = S and x parallel to it: false with probability at most δ′ = 0.01 over all rounds."""
    rng = np.random.default_rng(5)
    truth = np.array([1.0, 1.0]) / np.sqrt(2)
    refuted = 0
    for _ in range(60):
        agent = Agent(2, make_spec(reward_noise=0.3, cost_noise=0.3))
        for _ in range(100):
            decision = agent.decide(X)
            refuted += decision.limit == "assumption_broken"
            share = max(decision.intensity, 0.1)
            cost = share * (np.array(X) @ truth + 0.3 * rng.standard_normal())
            agent.update(X, share, 0.0, cost)
    assert refuted == 0
