"""Several costs under a certified guarantee: the smallest of the settings, with the risks split.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import json
import math
import pickle

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import (
    Agent,
    Cost,
    Dial,
    InvalidInput,
    LinearWorld,
    SafetySpec,
    check_log,
    growth,
    hill,
    identity,
    logistic,
    make_policy,
    power,
    tabulated,
    watch_log,
)
from safedial.bounds import monitor
from safedial.model.costs import split_spec
from safedial.model.noise_scale import power_scale
from safedial.policies.classes import linear
from safedial.rounds.decision import setting_of
from safedial.rounds.outcome import Outcome, exceeds, normalise
from safedial.rounds.specfile import SpecFile, parse_spec, spec_text
from safedial.simulation.results import simulated_log
from tests.conftest import make_spec

COSTS = {"heat": Cost(threshold=2, noise=0.2, unit="C"), "load": Cost(threshold=1.5, noise=0.1, curve=power(2.0))}
CONSTANTS = {"reward_noise": 0.1, "coefficient_bound": 3, "context_bound": 1}
SPEC = SafetySpec(costs=COSTS, violation_risk=0.02, estimation_risk=0.01, **CONSTANTS)
DIAL = Dial(high=10, unit="mg")
HEAT, LOAD = np.array([1.0, 2.0]), np.array([2.0, 1.0])


def outcome(rng, context, action, noise=(0.2, 0.1)):
    share = action / 10.0
    first, second = rng.standard_normal(2)
    heat = share * (context @ HEAT + noise[0] * first)
    load = share**2 * (context @ LOAD + noise[1] * (0.8 * first + 0.6 * second))
    return {"reward": share * (context @ [0.5, 0.2]), "cost": {"heat": float(heat), "load": float(load)}}


def draw(rng):
    return np.array([rng.uniform(-0.7, 0.7), rng.uniform(0.0, 0.7)])


def run(agent, rounds, seed=0, **world):
    rng, given = np.random.default_rng(seed), []
    for _ in range(rounds):
        context = draw(rng)
        decision = agent.ask(context)
        agent.tell(decision, **outcome(rng, context, decision.action, **world))
        given.append(decision.action)
    return given


@pytest.mark.parametrize(
    ("name", "guarantee"),
    [("hp_probe", "certified"), ("hp_ucb", "joint"), ("thompson", "certified"), ("fixed", "joint")],
)
def test_the_setting_is_the_smallest_of_those_of_separate_agents(name, guarantee):
    """Two agents that know one cost each, with half of the risks, told what both together advised."""
    shares = {
        "heat": Cost(threshold=2, noise=0.2, share=0.3),
        "load": Cost(threshold=1.5, noise=0.1, share=0.7),
    }
    stated = {"guarantee": guarantee, "ridge": 1.0, **CONSTANTS}
    spec = SafetySpec(costs=shares, violation_risk=0.02, estimation_risk=0.01, **stated)
    both, rng = Agent(2, spec, policy=name, dial=DIAL), np.random.default_rng(1)
    heat = SafetySpec(threshold=2, cost_noise=0.2, violation_risk=0.006, estimation_risk=0.003, **stated)
    load = SafetySpec(threshold=1.5, cost_noise=0.1, violation_risk=0.014, estimation_risk=0.007, **stated)
    alone = {"heat": Agent(2, heat, policy=name, dial=DIAL), "load": Agent(2, load, policy=name, dial=DIAL)}
    least = set()
    for _ in range(60):
        context = draw(rng)
        decision, single = both.ask(context), {cost: agent.ask(context) for cost, agent in alone.items()}
        assert decision.safe_action == pytest.approx(min(each.safe_action for each in single.values()), rel=1e-9)
        assert decision.action == pytest.approx(min(each.action for each in single.values()), rel=1e-9)
        least.add(decision.certificate["least"])
        seen = outcome(rng, context, decision.action)
        both.tell(decision, **seen)
        for cost, agent in alone.items():
            agent.tell(single[cost], applied_action=decision.action, reward=seen["reward"], cost=seen["cost"][cost])
    assert least == {"heat", "load"}
    assert both.cost_coef[0] == pytest.approx(alone["heat"].cost_coef)
    assert both.reward_coef == pytest.approx(alone["load"].reward_coef)


def test_the_chance_that_any_cost_exceeds_is_at_most_the_risk_where_one_cost_alone_would_break_it():
    """Gaussian margins are exact, so the cost that decides uses up much of its share."""
    costs = {"heat": Cost(threshold=0.5, noise=0.3), "load": Cost(threshold=0.3, noise=0.3, curve=power(2.0))}
    stated = {"reward_noise": 0.1, "coefficient_bound": 2.3, "context_bound": 1, "ridge": 0.05, "margin": "gaussian"}
    spec = SafetySpec(costs=costs, violation_risk=0.3, estimation_risk=0.01, **stated)
    agent, rng = Agent(2, spec, dial=DIAL), np.random.default_rng(2)
    over = alone = 0
    for number in range(500):
        context = rng.uniform(0.2, 0.7, 2)
        decision = agent.ask(context)
        noise = 0.3 * rng.standard_normal(2)
        share = decision.action / 10
        cost = {"heat": share * (context @ HEAT + noise[0]), "load": share**2 * (context @ LOAD + noise[1])}
        agent.tell(decision, reward=0.1 * share, cost=cost)
        if number >= 200:
            over += cost["heat"] > 0.5 or cost["load"] > 0.3
            free = decision.numbers["load.largest"] ** 0.5
            alone += free * (context @ HEAT + noise[0]) > 0.5 or free**2 * (context @ LOAD + noise[1]) > 0.3
    assert binomtest(over, 300, 0.31, alternative="greater").pvalue > 1e-6
    assert binomtest(over, 300, 0.01, alternative="greater").pvalue < 1e-6
    assert binomtest(alone, 300, 0.31, alternative="greater").pvalue < 1e-6
    assert agent.stop_reason == ""


def test_each_cost_has_its_own_curve_and_the_certificate_says_what_each_allows():
    agent = Agent(2, SPEC, dial=DIAL)
    run(agent, 200)
    decision = agent.ask([0.5, 0.5])
    told = decision.certificate
    json.dumps(told)
    assert told["statement"] == "P(heat > 2 C or load > 1.5) <= 0.03 in this round"
    assert (told["guarantee"], told["risk"]["this_round"]) == ("certified", pytest.approx(0.02))
    heat, load = told["costs"]["heat"], told["costs"]["load"]
    assert (heat["risk"]["violation_risk"], load["risk"]["estimation_risk"]) == (0.01, 0.005)
    settings = {"heat": heat["safe_intensity"], "load": math.sqrt(load["safe_intensity"])}
    assert decision.action == pytest.approx(10 * min(settings.values()))
    assert told["least"] == min(settings, key=lambda name: settings[name])


CURVES = [power(0.4), power(3.0), hill(0.1, 3.0), logistic(0.5, 60.0), tabulated([0, 0.2, 0.6, 1], [0, 0.1, 0.7, 1])]


@pytest.mark.parametrize("own", CURVES, ids=lambda curve: curve.name)
@pytest.mark.parametrize("dose", [identity(), *CURVES], ids=lambda curve: curve.name)
def test_one_cost_s_intensity_in_another_s_curve_never_means_a_higher_setting(own, dose):
    cost = Cost(threshold=1, noise=1, curve=own)
    spec = SafetySpec(costs={"heat": cost}, violation_risk=0.02, estimation_risk=0.01, **CONSTANTS)
    agent = Agent(2, spec, dose=dose)
    whole = agent.policy
    for allowed in [*np.linspace(0.0, 1.0, 41), *np.logspace(-12, -1, 23), 1.0 - 1e-15, 1.0 - 1e-9]:
        setting = setting_of(agent._rules, whole._shared(whole.parts["heat"], float(allowed)))
        assert float(own.effect(setting)) <= allowed * (1.0 + 1e-15 * own.error_units)
        assert float(own.effect(setting)) >= allowed - 0.02


def test_an_excess_of_any_cost_counts_against_the_sum_of_the_risks():
    noisy = {"heat": Cost(threshold=2, noise=5), "load": Cost(threshold=1.5, noise=5)}
    spec = SafetySpec(costs=noisy, violation_risk=0.02, estimation_risk=0.01, **CONSTANTS)
    agent, expected, rng = Agent(2, spec, dial=DIAL), monitor.init(), np.random.default_rng(3)
    for number in range(30):
        decision = agent.ask(draw(rng))
        over = number in (9, 20)
        cost = {"heat": 0.1, "load": 1.6} if number == 9 else {"heat": 2.1 if over else 0.1, "load": 0.1}
        agent.tell(decision, reward=0.0, cost=cost)
        expected = monitor.update(expected, over, 0.02)
    assert agent.violations == 2
    assert agent.evidence == pytest.approx(float(monitor.evidence(expected)))


def test_noise_beyond_what_one_cost_states_stops_the_agent():
    agent = Agent(2, SPEC, dial=DIAL)
    run(agent, 60, noise=(0.2, 0.6))
    assert agent.stop_reason == "noise_broken"
    agent.resume()
    assert agent.noise_evidence == 1.0
    calm = Agent(2, SPEC, dial=DIAL)
    run(calm, 60)
    assert (calm.stop_reason, calm.noise_evidence < 1.0) == ("", True)


def test_saved_loaded_and_pickled_agents_go_on_alike(tmp_path):
    agent = Agent(2, SPEC, dial=DIAL, policy=make_policy("hp_probe", radius="noise-adaptive"))
    run(agent, 30)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    agents = [agent, loaded, pickle.loads(pickle.dumps(agent))]  # noqa: S301 -- it was written just before
    given = [run(each, 20, seed=5) for each in agents]
    assert given[0] == given[1] == given[2]
    assert [each.evidence for each in agents] == [agent.evidence] * 3
    assert loaded.spec.to_dict() == SPEC.to_dict() == SafetySpec.from_dict(SPEC.to_dict()).to_dict()
    assert parse_spec(spec_text(SpecFile(spec=SPEC))).spec.to_dict() == SPEC.to_dict()


def test_a_round_with_a_cost_that_is_not_known_is_lost():
    agent, rng = Agent(2, SPEC, dial=DIAL), np.random.default_rng(0)
    run(agent, 5)
    for cost, vouched in (({"heat": 0.1, "load": None}, True), (None, True), ({"heat": 2.5, "load": None}, True)):
        reward = None if cost is None else 0.0
        agent.tell(agent.ask(draw(rng)), reward=reward, cost=cost, unrelated=vouched)
    assert (agent.informative_rounds, agent.frozen, agent.violations) == (5, False, 1)
    agent.tell(agent.ask(draw(rng)), reward=0.0, cost={"heat": None, "load": None})
    run(agent, 2)
    assert (agent.informative_rounds, agent.frozen) == (5, True)


def test_an_earlier_round_with_a_cost_that_is_not_known_is_refused():
    agent, contexts = Agent(2, SPEC, dial=DIAL), [draw(np.random.default_rng(seed)) for seed in range(2)]
    known, unknown = {"heat": 0.1, "load": 0.1}, {"heat": None, "load": 0.1}
    with pytest.raises(
        InvalidInput, match=r"must be known for a round before the first decision.*; leave the round out"
    ):
        agent.tell(contexts[0], 1.0, 0.0, unknown)
    with pytest.raises(InvalidInput, match="row 1: cost = "):
        agent.tell_many(contexts, [1.0, 1.0], [0.0, 0.0], [known, unknown])
    assert agent.informative_rounds == 0
    agent.tell(contexts[0], 1.0, 0.0, known)
    assert agent.informative_rounds == 1


@pytest.mark.parametrize("lost", ["unknown", "withheld"])
def test_several_outcomes_at_once_vouch_for_nothing(lost):
    agent, context = Agent(2, SPEC, dial=DIAL), draw(np.random.default_rng(0))
    action = agent.ask(context).action
    given = (action, {"heat": None, "load": 0.1}) if lost == "unknown" else (0.0, {"heat": 0.0, "load": 0.0})
    agent.tell_many([context], given[:1], [0.0], given[1:])
    assert (agent.informative_rounds, agent.frozen) == (0, True)


def test_an_override_counts_what_the_advice_would_have_cost():
    agent = Agent(2, SPEC, dial=DIAL)
    decision = agent.ask([0.6, 0.6])
    agent.tell(decision, applied_action=10.0, reward=0.0, cost={"heat": 2.1, "load": 1.6})
    assert agent.violations == 0
    again = agent.ask([0.6, 0.6])
    agent.tell(again, applied_action=10.0, reward=0.0, cost={"heat": 2.1, "load": 90.0})
    assert agent.violations == 1
    assert not exceeds(agent._rules, agent_sample(agent, 0.1), 5.0)
    assert exceeds(agent._rules, agent_sample(agent, 2.5), 5.0)


def agent_sample(agent, heat):
    return normalise(agent._rules, Outcome(1.0, 0.0, {"heat": heat, "load": 0.1}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cost_noise": 0.1}, "cost_noise = 0.1: cannot be combined with costs; state it in each Cost"),
        ({"noise_scale": power_scale(2)}, "noise_scale = .*cannot be combined with costs; leave it out"),
        ({"margin": "bounded", "noise_low": -1, "noise_high": 1}, "noise_low = -1: cannot be combined with costs"),
        ({"costs": {"heat": Cost(threshold=1, growth=growth.additive(0, 1))}}, "noise = None: must be stated"),
        ({"guarantee": "bracket", "estimation_risk": None}, "growth = None: must be stated; in a spec file"),
        ({"costs": {"a": Cost(threshold=1, noise=1, share=0.5), "b": COSTS["load"]}}, r"share = \[0.5\]: must be"),
        ({"costs": {"a": Cost(threshold=1, noise=1, share=0.5)}}, r"share = \[0.5\]: .* with the sum 1"),
        ({"violation_risk": None}, "violation_risk = None: is missing"),
    ],
)  # fmt: skip
def test_a_spec_that_has_no_proof_is_refused(fields, words):
    with pytest.raises(InvalidInput, match=words):
        SafetySpec(**({"costs": COSTS, "violation_risk": 0.02, "estimation_risk": 0.01} | CONSTANTS | fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"noise": -1}, "noise = -1: must be a finite number > 0"),
        ({"noise": 1, "growth": growth.additive(0, 1)}, "growth = .* does not go with noise; state a bracket"),
        ({"noise": 1, "direction": "below"}, "direction = 'below': does not go with noise"),
        ({"noise": 1, "threshold": 0}, "threshold = 0: must be > 0 where noise is stated"),
        ({"noise": 1, "curve": 3}, "curve = 3: must be a dose curve of this package"),
        ({"noise": 1, "share": 2}, r"share = 2: must be a number in \(0, 1\]"),
        ({"growth": growth.additive(0, 1), "share": 0.5}, "share = 0.5: does not go with a bracket"),
        ({"growth": growth.additive(0, 1), "unit": 3}, "unit = 3: must be text"),
    ],
)  # fmt: skip
def test_a_cost_that_cannot_be_is_refused(fields, words):
    with pytest.raises(InvalidInput, match=words):
        Cost(**({"threshold": 1.0} | fields))


def test_policies_without_a_proof_for_several_costs_say_so():
    classes = make_policy("nonlinear_hp_ucb", reward_class=linear(), cost_class=linear())
    for policy in ("on_expectation", classes):
        with pytest.raises(InvalidInput, match="takes one cost: only certified policies with a linear estimate"):
            Agent(2, SPEC, policy=policy)
    with pytest.raises(InvalidInput, match="guarantee = 'certified': does not match policy hp_shield"):
        Agent(2, SPEC, policy=make_policy("hp_shield", base=0))


def test_bad_questions_and_outcomes_change_nothing():
    agent = Agent(2, SPEC, dial=DIAL)
    with pytest.raises(InvalidInput, match=r"baseline_cost = 0.1: cannot be combined with several costs"):
        agent.ask([0.1, 0.1], baseline_cost=0.1)
    decision = agent.ask([0.1, 0.1])
    with pytest.raises(InvalidInput, match=r"baseline_cost = 0.1: must be 0 for several costs"):
        agent.tell(decision, reward=0.0, cost={"heat": 0.1, "load": 0.1}, baseline_cost=0.1)
    with pytest.raises(InvalidInput, match=r"action = 11.0: must lie between 0 and 10"):
        agent.tell(decision, applied_action=11.0, reward=0.0, cost={"heat": 0.1, "load": None})
    assert (agent.decisions, agent.informative_rounds, agent.evidence < 1) == (1, 0, True)


def test_levels_out_of_reach_are_warned_about_and_a_dose_of_nothing_teaches_nothing():
    with pytest.warns(UserWarning, match="the lowest level"):
        agent = Agent(2, SPEC, dial=Dial(high=10, levels=(9, 10)))
    decision = agent.ask([0.7, 0.7])
    assert (decision.action, decision.limit) == (0.0, "below_lowest_level")
    agent.tell(decision, reward=0.0, cost={"heat": 0.0, "load": 0.0})
    assert agent.informative_rounds == 0
    split = split_spec(SPEC)
    assert sum(part.violation_risk for part in split.values()) == pytest.approx(0.02)


def test_other_tools_take_one_cost():
    log = simulated_log("hp_probe", LinearWorld(dim=2), make_spec(), rounds=30)
    for tool in (check_log, watch_log):
        with pytest.raises(InvalidInput, match=r"costs = \['heat', 'load'\]: are for an Agent"):
            tool(log, SPEC)
