"""The guards of HP-Conformal: the reach, costs without information, levels, history; rounds at the start counted."""

import json

import numpy as np
import pytest

from benchmarks.conformal_guards import leap, missing
from safedial import Agent, Dial, InvalidInput, make_policy
from safedial.policies.conformal import OFF, calibrates
from tests.rounds.conformal_rounds import DIM, conformal_spec, outcome, state_of, taught

STEP = Dial(low=0, high=10, unit="mg", levels=(0, 2, 4, 6, 8, 10))


def context_of(rng):
    return np.append(rng.standard_normal(DIM - 1) / 2, 1.0)


def flat_then_steep(action, rng, spread=1.0):
    """At most a tenth of the threshold up to 30 % of the dial, then a straight line to three times the threshold."""
    return 0.05 * spread * rng.random() + 1.5 * max(0.0, action - 0.3) / 0.7


def climbed(seed, count=120, spread=1.0, **options):
    """Actions and decisions of an agent whose cost is flat and then steep; every setting is one that helps."""
    rng = np.random.default_rng(seed)
    spec = conformal_spec(violation_risk=0.05)
    agent = Agent(DIM, spec, start_action=0.07, policy=make_policy("hp_conformal", **options))
    told, costs = [], []
    for _ in range(count):
        told.append(agent.ask(context_of(rng)))
        costs.append(flat_then_steep(told[-1].action, rng, spread))
        agent.tell(told[-1], reward=told[-1].action, cost=costs[-1])
    return agent, told, np.array(costs)


def test_no_setting_lies_further_than_the_reach_beyond_those_tried():
    for seed in range(20):
        _, told, _ = climbed(seed)
        actions = [decision.action for decision in told]
        for number, action in enumerate(actions):
            tenth = sorted(actions[:number])[-10] if number >= 10 else 0.0
            assert action <= max(0.07, 2.0 * tenth), (seed, number)
        assert max(actions) > 0.3, "the guard is not what keeps it at the start"


def test_without_the_guard_it_leaps_and_with_it_fewer_early_rounds_are_too_costly():
    """The figures of docs/conformal.md, from fewer seeds."""
    free, held = ([leap(seed, reach=reach, spread=0.1, rounds=60) for seed in range(8)] for reach in (None, 2.0))
    early = [np.mean([run["early"] for run in runs]) for runs in (free, held)]
    assert early[1] < 0.5 * early[0], early
    assert max(run["ahead"] for run in held) <= 2.0 * (1 + 1e-12)
    assert max(run["ahead"] for run in free) > 10.0
    assert max(run["worst"] for run in held) < 0.6 * max(run["worst"] for run in free)


@pytest.mark.slow
def test_missing_outcomes_that_are_vouched_for_cost_little_and_others_much(count):
    """Shares of the full-information reward: within 5 points with and without a tenth of the outcomes."""

    def share(lost, vouched):
        earned = [missing(seed, share=lost, vouched=vouched) for seed in range(count(6, 20))]
        return np.divide(*np.sum(earned, axis=0))

    whole, left_out, unbounded = share(0.0, True), share(0.1, True), share(0.1, False)
    assert abs(whole - left_out) < 0.05
    assert unbounded < 0.5 * whole


def test_the_certificate_names_the_reach_as_a_guard_and_not_a_proof():
    _, told, _ = climbed(1)
    first = next(decision for decision in told if decision.limit == "reach")
    facts = json.loads(json.dumps(first.certificate))
    assert facts["reach"] == {"factor": 2.0, "tenth_applied": 0.07, "proof": False}
    assert (first.guarantee, first.action) == ("conformal", pytest.approx(0.14))
    assert facts["bound_intensity"] > facts["safe_intensity"] == pytest.approx(0.14)
    words = first.explain()
    assert "The reach: 2 times 0.07, the 10th largest applied intensity with a known outcome" in words
    assert "not a proof" in words
    assert first.safe_action == first.action, "the largest safe one is not the end of the dial"


def test_before_ten_known_outcomes_the_reach_is_the_start():
    """Most outcomes are on their way; calibration rounds are many, tried settings are not."""
    agent = Agent(DIM, conformal_spec(violation_risk=0.5), start_action=0.05, policy=make_policy("hp_conformal"))
    rng = np.random.default_rng(0)
    for number in range(20):
        decision = agent.ask(context_of(rng))
        if number in (1, 3, 5, 7, 9, 11, 13, 15, 17):
            agent.tell(decision, reward=0.05, cost=0.001 * rng.random())
    decision = agent.ask(context_of(rng))
    assert (decision.guarantee, decision.limit, decision.action) == ("conformal", "reach", 0.05)
    assert decision.certificate["reach"]["tenth_applied"] is None
    assert "the start dose, until ten rounds have known outcomes" in decision.explain()


def test_the_reach_lowers_doses_and_leaves_the_bounds_as_they_are():
    """What a round teaches does not depend on its dose: the bound is the same with lower doses, so the proof stays."""
    rng = np.random.default_rng(3)
    agents = [
        Agent(DIM, conformal_spec(), start_action=0.02, policy=make_policy("hp_conformal", reach=reach))
        for reach in (None, 1.5)
    ]
    lowered = 0
    for _ in range(300):
        context, noise = rng.standard_normal(DIM) / 2, rng.standard_normal(2)
        free, held = (agent.ask(context) for agent in agents)
        upper, expected = (each.numbers["cost_upper"] for each in (held, free))
        assert upper == (expected if expected is None else pytest.approx(expected, rel=1e-9))
        assert 0.0 < held.action <= free.action * (1.0 + 1e-9)
        lowered += held.action < 0.99 * free.action
        for agent, decision in zip(agents, (free, held), strict=True):
            harm, gain = (decision.intensity * (context[0] + 0.3 * value) for value in noise)
            agent.tell(decision, reward=gain, cost=harm)
    assert lowered > 20


def test_imported_settings_count_as_tried_ones():
    agent = Agent(DIM, conformal_spec(), start_action=0.05)
    rng = np.random.default_rng(0)
    for _ in range(10):
        agent.tell(context_of(rng), 0.3, 0.3 * rng.random(), 0.03 * rng.random())
    taught(60, agent)
    limited = [agent.ask([1.0, 0.0, 0.0]) for _ in range(1)]
    assert limited[0].certificate["reach"]["tenth_applied"] >= 0.3


def test_agents_state_a_reach_of_two_and_another_can_be_asked_for():
    assert Agent(DIM, conformal_spec(), start_action=0.05).policy.options["reach"] == 2.0
    assert all(make_policy("hp_conformal").options[name] == "auto" for name in OFF)
    asked = Agent(DIM, conformal_spec(), start_action=0.05, policy=make_policy("hp_conformal", reach=3))
    assert asked.policy.options["reach"] == 3
    for bad in (1.0, 0, "far", True, float("inf"), float("nan")):
        with pytest.raises(InvalidInput, match="reach"):
            make_policy("hp_conformal", reach=bad)


def test_costs_that_are_an_excess_over_a_limit_leave_the_start_dose():
    agent, told, _ = climbed(0, spread=0.0)
    assert {decision.action for decision in told} == {0.07}
    last = told[-1]
    assert (last.limit, last.guarantee) == ("no_information", "declared")
    facts = last.certificate["tied_costs"]
    assert facts["cost"] == 0.0
    assert facts["rounds"] == facts["of"] >= 19
    words = last.explain()
    assert "report the measured quantity, not its excess over a limit" in words
    assert "have the same measured cost, 0. That is more than a third" in words
    assert agent.ask(context_of(np.random.default_rng(0))).certificate["start_rounds"] == 120


@pytest.mark.parametrize(("every", "rises"), [(2, False), (4, True)])
def test_more_than_a_third_at_one_value_is_too_many(every, rises):
    """By the measured cost: settings differ from round to round, and so would the cost divided by their intensity."""
    agent = Agent(DIM, conformal_spec(violation_risk=0.2), start_action=0.05)
    rng = np.random.default_rng(0)
    for number in range(120):
        decision = agent.ask(context_of(rng))
        cost = 0.02 if (number // 2) % every == 0 else decision.intensity * rng.random()
        agent.tell(decision, decision.action * (0.5 + 0.5 * rng.random()), reward=decision.action, cost=cost)
    assert (agent.ask(context_of(rng)).action > 0.05) == rises


def test_a_group_without_information_does_not_hold_up_the_others():
    policy = make_policy("hp_conformal", group=DIM - 1)
    agent = Agent(DIM, conformal_spec(violation_risk=0.2), start_action=0.05, policy=policy)
    rng = np.random.default_rng(0)
    for number in range(300):
        context = np.array([rng.standard_normal() / 2, 1.0, float(number // 2 % 2)])
        decision = agent.ask(context)
        cost = decision.intensity * rng.random() if context[-1] else 0.0
        agent.tell(decision, reward=decision.intensity * (1.0 + context[-1]), cost=cost)
    flat, told = (agent.ask([0.1, 1.0, label]) for label in (0.0, 1.0))
    assert (flat.limit, flat.action) == ("no_information", 0.05)
    assert told.guarantee == "conformal"
    assert told.action > 0.1


def test_a_dial_with_levels_gives_its_lowest_level_and_never_nothing():
    agent = Agent(DIM, conformal_spec(), dial=STEP, start_action=4.0)
    rng, limits = np.random.default_rng(1), set()
    for _ in range(400):
        context = 4.0 * rng.standard_normal(DIM)
        decision = agent.ask(context)
        assert decision.action >= 2.0
        limits.add(decision.limit)
        if decision.limit == "lowest_level":
            assert (decision.guarantee, decision.action) == ("declared", 2.0)
            assert decision.certificate["bound_intensity"] < 0.2
            assert "at most the start dose" in decision.explain()
            assert not decision.certificate["holds"]
        elif decision.guarantee == "conformal":
            assert decision.intensity <= decision.certificate["bound_intensity"] * (1 + 1e-9)
        agent.tell(decision, **outcome(rng, context, decision.intensity))
    assert {"lowest_level", "level", "start_dose"} <= limits
    assert np.isfinite(state_of(agent).rounds.cost[:400]).all(), "every round taught"


def test_the_lowest_level_is_given_as_it_is_whatever_rounding_does():
    """Levels that are no binary fractions, behind a curve with an inverse that rounds down."""
    from safedial import hill

    for count in (3, 7, 11, 13):
        levels = tuple(0.1 * step for step in range(1, count))
        dial = Dial(low=0.0, high=levels[-1], levels=levels)
        agent = Agent(1, conformal_spec(), dial=dial, dose=hill(0.37), start_action=levels[0])
        least = agent.policy.options["least_dose"]
        from safedial.rounds.decision import setting_of

        for intensity in (least, np.nextafter(least, 1.0), least * (1 + 1e-15)):
            assert setting_of(agent._rules, float(intensity)) == levels[0]


def test_levels_need_a_declared_start():
    spec = conformal_spec(cost_noise=0.3, coefficient_bound=1.0)
    with pytest.raises(InvalidInput, match="a dial with levels needs a start dose that you declare safe"):
        Agent(DIM, spec, dial=STEP)
    Agent(DIM, spec, dial=STEP, start_action=2.0)
    with pytest.raises(InvalidInput, match="least_dose"):
        make_policy("hp_conformal", least_dose=0.2, start_dose=0.1)
    with pytest.raises(InvalidInput, match="least_dose"):
        make_policy("hp_conformal", least_dose=0.0)


def drifted_pilot(history, seed, rounds=300, pilot=150):
    """A pilot at larger doses under a curve that is wrong there: it saw a third of what the study's doses cost."""
    rng = np.random.default_rng(seed)
    agent = Agent(DIM, conformal_spec(), start_action=0.1, policy=make_policy("hp_conformal", history=history))
    for _ in range(pilot):
        context = context_of(rng)
        agent.tell(context, 0.5, 0.5 * rng.random(), 0.5 * (0.3 * rng.random()))
    for _ in range(rounds):
        decision = agent.ask(context_of(rng))
        agent.tell(decision, reward=decision.intensity * rng.random(), cost=decision.intensity * rng.random())
    return agent


@pytest.mark.slow
def test_a_pilot_that_differs_raises_no_alarm_where_history_only_trains():
    """Exchangeable rounds alarm with probability 0.01 at most: 2 of 20 would be unlikely at level 0.02."""
    assert sum(drifted_pilot("train", seed).alarmed for seed in range(20)) <= 1
    warned = [drifted_pilot("calibrate", seed, 120) for seed in range(5)]
    assert all(agent.alarmed for agent in warned)
    assert "before the first decision were compared too" in warned[0].ask([0.0, 0.0, 1.0]).explain()


def test_history_that_only_trains_leaves_calibration_to_the_agents_own_rounds():
    agent = drifted_pilot("train", 0)
    state = state_of(agent)
    assert state.history == 150
    own = np.arange(150, state.fitted)
    assert (state.rounds.rows("code") >= 0).sum() == calibrates(own).sum() < 150
    told = agent.ask(context_of(np.random.default_rng(0)))
    assert "only train the predictors" in told.explain()
    both = drifted_pilot("calibrate", 0, 1)
    assert "exchangeable with later rounds" in both.ask(told.context).explain()
    with pytest.raises(InvalidInput, match="history"):
        make_policy("hp_conformal", history="forget")


def test_a_long_history_does_not_put_off_refits():
    agent = drifted_pilot("train", 0, rounds=120, pilot=3000)
    assert agent.ask(context_of(np.random.default_rng(0))).guarantee == "conformal"


def test_decisions_at_the_start_are_counted_with_the_outcomes_that_are_missing():
    agent, rng = taught(0)
    for number in range(200):
        context = rng.standard_normal(DIM)
        decision = agent.ask(context)
        if number % 4 != 1:
            agent.tell(decision, **outcome(rng, context, decision.intensity))
    last = agent.ask([1.0, 0.0, 0.0])
    facts = last.certificate
    assert facts["start_rounds"] == 200
    assert facts["unknown_scores"] > 0
    words = last.explain()
    assert "At the start dose so far: 200 of the 200 earlier decisions" in words
    assert f"Of the latest {facts['group']['used']} scores, {facts['unknown_scores']} have no known outcome" in words


def test_guards_survive_saving_and_off_stays_off(tmp_path):
    agent, _, _ = climbed(2, 70)
    agent.save(tmp_path / "one")
    again = Agent.load(tmp_path / "one")
    again.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    context = context_of(np.random.default_rng(5))
    assert agent.ask(context).certificate == again.ask(context).certificate
    assert np.array_equal(state_of(again).tried, state_of(agent).tried)
    off, _, _ = climbed(2, 70, **OFF)
    off.save(tmp_path / "off")
    assert Agent.load(tmp_path / "off").policy.options["reach"] is None
    given = Agent.load(tmp_path / "one", policy=make_policy("hp_conformal"))
    assert given.policy.options["reach"] == 2.0
    with pytest.raises(InvalidInput, match="other options than the saved one: reach"):
        Agent.load(tmp_path / "one", policy=make_policy("hp_conformal", reach=5))


def test_a_start_without_the_earlier_rounds_forgets_what_was_tried():
    agent, _, _ = climbed(2, 110)
    assert state_of(agent).tried[0] > 0.14
    agent.resume(forget=True)
    assert state_of(agent).tried[0] == -np.inf


def test_an_agent_leaves_out_a_round_that_was_given_nothing_for_an_unrelated_reason():
    agent, _ = taught(30)
    for vouched in (True, False):
        agent.tell(agent.ask([0.1, 0.2, 1.0]), 0.0, reward=0.0, cost=0.0, unrelated=vouched)
    assert np.flatnonzero(state_of(agent).rounds.rows("left")).tolist() == [30]
    taught(60, agent, seed=5)
    assert state_of(agent).rounds.code[30] == -1
    agent.tell([0.1, 0.2, 1.0], 0.0, 0.0, 0.0, round=agent.ask([0.1, 0.2, 1.0]).round, unrelated=True)
    assert np.flatnonzero(state_of(agent).rounds.rows("left")).tolist() == [30, 92]
