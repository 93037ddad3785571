"""HP-Shield for an Agent: it decides in the dial's own units, and says what it rests on.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, Dial, Features, InvalidInput, growth, hill
from safedial.policies.bets import PATIENCE
from tests.rounds.shield_world import DIAL, RISK, SPEC, Patients, group_of, make_agent, raw, shield, treat


def test_a_preview_is_what_the_decision_will_be_and_changes_nothing():
    agent, alone, world = make_agent(options={"learned": True}), make_agent(options={"learned": True}), Patients()
    for _ in range(90):
        context = world.context()
        seen, again = agent.preview(context), agent.preview(context)
        decision, plain = agent.ask(context), alone.ask(context)
        assert (seen.action, again.action, plain.action) == (decision.action,) * 3
        assert seen.certificate["count"] == decision.certificate["count"]
        cost = world.cost(context, decision.action)
        agent.tell(decision, reward=0.0, cost=cost)
        alone.tell(plain, reward=0.0, cost=cost)


@pytest.mark.parametrize("options", [{}, {"learned": True, "adapt": 0.02, "lag": 2}])
def test_saved_loaded_and_pickled_agents_go_on_alike(options, tmp_path):
    agent, world = make_agent(options=options), Patients()
    treat(agent, 70, world)
    waiting, left = agent.ask(world.context()), agent.ask(world.context())
    agent.tell(left, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
    agent.save(tmp_path / "agent")
    pickled = pickle.loads(pickle.dumps(agent))  # noqa: S301 -- it was written just before
    agents = [agent, Agent.load(tmp_path / "agent"), pickled]
    for each in agents:
        each.tell(context=raw(waiting), applied_action=waiting.action, reward=0.0, cost=1.0, round=waiting.round)
    given = [treat(each, 60, Patients(5)) for each in agents]
    assert given[0] == given[1] == given[2]
    certificates = [each.preview(Patients(6).context()).certificate for each in agents]
    assert certificates[0] == certificates[1] == certificates[2]
    assert [each.evidence for each in agents] == [agent.evidence] * 3


def test_several_decisions_at_once_are_those_in_turn():
    one, many = make_agent(options={"lag": 3}), make_agent(options={"lag": 3})
    world = Patients()
    for _ in range(20):
        contexts = [world.context() for _ in range(3)]
        in_turn, at_once = [one.ask(context) for context in contexts], many.ask_many(contexts)
        assert [each.action for each in in_turn] == [each.action for each in at_once]
        for context, first, second in zip(contexts, in_turn, at_once, strict=True):
            cost = world.cost(context, first.action)
            one.tell(first, reward=0.0, cost=cost)
            many.tell(second, reward=0.0, cost=cost)
    assert at_once[-1].guarantee == "bracket"


def test_the_guarantee_holds_at_each_look():
    """30 runs, 5 % of the outcomes lost, settings lowered by one who foresees; batched runs show the same with more."""
    looks, over = (12, 25), np.zeros(2, dtype=int)
    for seed in range(30):
        world, rng = Patients(seed), np.random.default_rng(seed)
        agent = make_agent(options={"start_scale": 0.1, "learned": seed % 2 == 0, "climb": None})
        for number in range(1, max(looks) + 1):
            context = world.context()
            decision = agent.ask(context)
            cost = world.cost(context, decision.action)
            exceeds = cost > 2.0
            if number in looks:
                over[looks.index(number)] += exceeds
            if rng.random() < 0.05:
                continue
            share = 0.5 if exceeds and rng.random() < 0.5 else 1.0
            agent.tell(decision, applied_action=share * decision.action, reward=0.0, cost=cost * share)
    for count in over:
        assert binomtest(int(count), 30, RISK, alternative="greater").pvalue > 1e-6


def test_it_climbs_from_the_start_within_the_climb_limit_to_what_rounds_tolerate():
    agent, world = make_agent(), Patients()
    first = agent.ask(world.context())
    assert (first.guarantee, first.limit) == ("declared", "shield_start")
    assert "0 rounds so far, too few for a risk of 0.1" in first.explain()
    assert first.action == pytest.approx(0.25 * raw(first)["dose"])
    agent.tell(first, reward=0.0, cost=0.1)
    treat(agent, 8, world)
    climbing = agent.preview(world.context())
    assert (climbing.guarantee, climbing.limit) == ("bracket", "climb_limit")
    assert climbing.action / raw(climbing)["dose"] == pytest.approx(0.25 * 1.25)
    treat(agent, 100, world)
    late = agent.preview(world.context())
    assert late.limit == "count_rule"
    assert 0.5 < late.action / raw(late)["dose"] < 1.2


def test_open_rounds_count_as_exceeding_unless_they_are_within_the_lag_or_vouched_for():
    def actions(lag, lose):
        agent, world = make_agent(options={"lag": lag}), Patients()
        treat(agent, 60, world)
        for _ in range(4):
            lose(agent, agent.ask(world.context()))
        return agent.ask({"dose": 4.0, "weight": 70.0, "steep": 30.0})

    unreported = actions(0, lambda agent, decision: None)
    assert (unreported.guarantee, unreported.action) == ("declared", 1.0)
    assert "tolerate no more than the start, or are not known" in unreported.explain()
    assert actions(4, lambda agent, decision: None).action > 2.0

    def vouch(agent, decision):
        agent.tell(decision, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)

    assert actions(0, vouch).action > 2.0
    single = make_agent()
    treat(single, 60)
    single.ask(Patients().context())
    assert "(1 of them with unknown outcomes, which count)" in single.ask(Patients().context()).explain()


def test_a_lost_outcome_is_left_out_or_tolerates_nothing():
    agents = {vouched: make_agent(options={"adapt": 0.02}) for vouched in (True, False)}
    for vouched, agent in agents.items():
        treat(agent, 60)
        agent.tell(agent.ask(Patients(1).context()), unrelated=vouched)
        told = agent.ask(Patients(2).context()).certificate
        assert told["count"]["unknown"] == (0 if vouched else 1)
        assert (told["model"]["known_outcomes"], told["adaptive"]["open"]) == (60, 0)
    with pytest.raises(InvalidInput, match="cost = None: must be a number"):
        agents[True].tell(agents[True].ask(Patients(3).context()))
    with pytest.raises(InvalidInput, match="cost = None: must be a number"):
        agents[True].tell(agents[True].ask(Patients(3).context()), reward=1.0, unrelated=True)


def test_a_round_left_out_does_not_count_under_a_learned_base_either():
    agent, world = make_agent(options={"learned": True}), Patients()
    open_early = agent.ask(world.context())
    treat(agent, 80, world)
    assert agent.preview(world.context()).certificate["base"]["fitted_at_round"] > 1
    agent.tell(open_early, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
    group = group_of(agent)
    assert group.bases.earlier == group.bases.since - 1
    late = agent.ask(world.context())
    treat(agent, 60, world)
    agent.tell(late, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
    treat(agent, 60, world)
    assert np.flatnonzero(np.isnan(group.rounds.rows("limit"))).tolist() == [0, 81]
    size = agent.preview(world.context()).certificate["count"]["rounds"]
    assert size <= agent.decisions - 2 - group.bases.since


def test_levels_are_floored_and_the_scale_climbs_on_between_them():
    dial = Dial(high=8.0, levels=[1.0, 2.0, 4.0, 8.0])
    agent, world = make_agent(dial=dial, options={"start_scale": 0.5}), Patients()
    given = treat(agent, 120, world)
    assert set(given) <= {1.0, 2.0, 4.0, 8.0}
    decision = agent.ask({"dose": 5.9, "weight": 70.0, "steep": 30.0})
    assert (decision.limit, decision.action) == ("level", 4.0)
    learned = make_agent(dial=dial, options={"learned": True, "start_scale": 0.5})
    assert 4.0 in treat(learned, 120, Patients())
    easy = make_agent(dial=dial, options={"growth": growth.additive(0.0, 0.01)})
    world.cost = lambda context, setting: 0.0
    treat(easy, 40, world)
    assert easy.ask(world.context()).limit == "full_dose"
    with pytest.raises(InvalidInput, match=r"start = 0.5: lies below the dial's lowest level.*or an additive"):
        make_agent(dial=dial).ask({"dose": 2.0, "weight": 70.0, "steep": 30.0})


def test_a_declared_start_action_is_given_and_a_nominal_curve_is_read_through():
    agent = make_agent(options={"start_scale": None}, start_action=0.5, dose=hill(0.5))
    world = Patients()
    world.cost = lambda context, setting: 8.0 * float(hill(0.5).effect(setting / 20.0)) / world.rng.uniform(0.5, 1.0)
    assert treat(agent, 1, world) == [0.5]
    given = treat(agent, 150, world)
    costs = 8.0 * np.array(hill(0.5).effect(np.array(given[100:]) / 20.0))
    assert 0.8 < costs.max() < 1.7
    assert "settings are read through the dose curve" in agent.ask(world.context()).explain()
    exact = {"growth": growth.relative(1, 1, floor=0), "climb": None, "start_scale": None}
    exact = make_agent(options=exact, dose=hill(0.5), start_action=0.5)
    treat(exact, 60, world)
    assert exact.ask(world.context()).guarantee == "bracket"
    cheap, world = make_agent(dose=hill(0.5), options={"growth": growth.additive(0.0, 0.1)}), Patients()
    world.cost = lambda context, setting: 0.0
    treat(cheap, 40, world)
    assert cheap.ask(world.context()).action == 20.0
    world.cost = lambda context, setting: 9.0
    treat(cheap, 30, world)
    assert (cheap.ask(world.context()).guarantee, cheap.alarmed) == ("none", True)


def test_drift_beyond_the_bracket_is_found_and_a_person_resumes():
    agent, world = make_agent(fallback_action=0.2, options={"climb": None}), Patients()
    treat(agent, 150, world)
    assert (agent.stop_reason, agent.evidence < 1) == ("", True)
    world.cost = lambda context, setting: 60.0 * setting / context["dose"]
    treat(agent, 40, world)
    assert agent.stop_reason in ("bracket_drift", "start_refuted")
    doubtful = agent.ask(world.context())
    assert (doubtful.guarantee, doubtful.action) == ("none", 0.2)
    agent.resume()
    assert (agent.stop_reason, agent.evidence) == ("", pytest.approx(1.0))
    agent.resume(forget=True)
    fresh = agent.ask(world.context())
    assert (fresh.guarantee, agent.informative_rounds) == ("declared", 0)
    assert fresh.certificate["model"]["rounds"] == 0


def test_a_start_that_exceeds_too_often_is_refuted():
    agent, world = make_agent(), Patients()
    world.cost = lambda context, setting: 3.0
    treat(agent, 10, world)
    assert agent.stop_reason == "start_refuted"
    assert "the start is not safe" in agent.ask(world.context()).explain()
    assert agent.violations > 0


def test_a_start_that_was_refuted_is_not_the_fallback():
    agent = Agent(2, SPEC, policy=shield(base="dose", start_scale=None), dial=DIAL, start_action=1.0,
                  features=Features(names=("dose", "weight")))  # fmt: skip
    for _ in range(8):
        decision = agent.ask({"dose": 4.0, "weight": 1.0})
        agent.tell(decision, reward=0.0, cost=5.0)
    assert agent.stop_reason == "start_refuted"
    assert agent.ask({"dose": 4.0, "weight": 1.0}).action == 0.0


def test_one_start_for_all_does_not_open_the_climb_for_large_bases():
    agent = Agent(2, SPEC, policy=shield(base="dose", start_scale=None), dial=DIAL, start_action=1.0,
                  features=Features(names=("dose", "weight")))  # fmt: skip
    advised = []
    for number in range(60):
        decision = agent.ask({"dose": 1.0 if number % 2 else 10.0, "weight": 1.0})
        agent.tell(decision, reward=0.0, cost=0.4 * decision.action / 10.0)
        advised += [decision.action] if not number % 2 else []
    assert advised[0] == 1.0
    assert max(later / earlier for earlier, later in pairwise(advised)) <= 1.25**2 + 1e-9
    assert advised[-1] > 2.0


def test_a_nurse_who_rounds_down_climbs_too_and_one_who_halves_does_not_fall_back():
    rounding, plain = make_agent(), make_agent()
    low = treat(rounding, 150, applied=lambda advised: math.floor(10.0 * advised) / 10.0)
    full = treat(plain, 150)
    assert np.mean(low[-30:]) > 0.9 * np.mean(full[-30:])
    treat(plain, 8, applied=lambda advised: 0.5 * advised)
    assert np.mean(treat(plain, 20)) > 0.8 * np.mean(full[-30:])


def test_an_outcome_that_comes_after_its_bet_was_settled_changes_no_evidence():
    """The bet on an open round is settled after `PATIENCE` further rounds, as if the round had kept its threshold."""
    agent, world = make_agent(), Patients()
    early = agent.ask(world.context())
    treat(agent, PATIENCE + 5, world)
    before = agent.evidence
    agent.tell(early, reward=0.0, cost=50.0)
    assert agent.evidence == before != 1.0


def test_a_new_base_has_nothing_to_restate_before_a_first_outcome():
    agent, world = make_agent(options={"learned": True}), Patients()
    for _ in range(30):
        agent.ask(world.context())
    group = group_of(agent)
    assert group.bases.since == 19, "the newest with enough rounds since, though none of them is known"
    assert np.all(group.used == -math.inf)
    assert agent.ask(world.context()).guarantee == "declared"
