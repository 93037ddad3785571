"""What HP-Shield refuses in an Agent: options, questions and outcomes that cannot be; nothing changes then."""

import math

import pytest

from safedial import Agent, Dial, InvalidInput, LinearWorld, SafetySpec, growth, hill, simulate
from safedial.simulation.results import guarantee_holds
from tests.conftest import make_spec
from tests.rounds.shield_world import RISK, SPEC, ZERO_ONE, Patients, make_agent, shield, treat


def test_proposals_are_scaled_and_must_be_numbers_above_nothing():
    agent = make_agent(options={"base": "proposal"})
    context = Patients().context()
    assert agent.ask(context, proposal=8).action == 2.0
    assert [each.action for each in agent.ask_many([context] * 2, proposals=[4, 12])] == [1.0, 3.0]
    for proposal, words in [
        (None, r"proposal = None: is missing, and it is this policy's base; give it with the question: proposal=..."),
        ("8", "proposal = '8': must be a number"),
        (math.nan, "proposal = nan: must be a finite number"),
        (-1.0, "proposal = -1.0: must be > 0, since it is the setting that is scaled"),
        (100.0, r"proposal = 100: may be mistyped: it gives a start above the dial's end \(25, above 20\); if it is"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            agent.ask(context, proposal=proposal)
        with pytest.raises(InvalidInput, match="row 1: " + words):
            agent.ask_many([context] * 2, proposals=[4, proposal])
    with pytest.raises(InvalidInput, match="must have one value for each of 2 contexts"):
        agent.ask_many([context] * 2, proposals=[1])
    assert agent.decisions == 3
    with pytest.raises(InvalidInput, match=r"proposal = 1\.0: is not this policy's base"):
        make_agent().ask(context, proposal=1)
    with pytest.raises(InvalidInput, match="proposal = 1: is not for hp_probe"):
        Agent(2, make_spec()).ask([0.1, 0.1], proposal=1)


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({"base": "age"}, {}, "base = 'age': must be 'proposal' or the name of a feature; the features are dose"),
        ({}, {"features": None}, "must be 'proposal' or the name of a feature; there are no features"),
        ({"base": 7}, {}, "base = 7: must be a column of a context of dimension 3"),
        ({"base": 0}, {}, "base = 0: must be a name where there are features: columns are scaled; the features"),
        ({"growth": growth.spread(1.25, 0.5)}, {"dose": hill(0.5, 2.0), "spec": ZERO_ONE},
         "growth = 'spread': does not go with a dose"),
        ({"growth": growth.spread(1.25, 0.5)}, {}, "threshold = 2.0: must be below 1 where costs are 0 or 1; 0.5"),
        ({"growth": growth.additive(0, "slope")}, {}, r"growth = \['slope'\]: takes its slopes from features"),
        ({"growth": growth.relative(0.7, 1.4, floor=3)}, {}, "floor = 3.0: must be at most 2"),
        ({"start_scale": None}, {}, "start_action = None: and start_scale: give exactly one of them"),
        ({}, {"start_action": 1.0}, "start_action = 1.0: and start_scale: give exactly one"),
        ({"start_scale": None}, {"start_action": 21.0}, "start_action = 21.0: must lie above 0, and from 0 to 20"),
        ({"start_scale": None}, {"start_action": 0.0}, "start_action = 0.0: must lie above 0"),
        ({"start_scale": None}, {"start_action": 3.0, "dial": Dial(high=8, levels=[2, 8])}, "one of the dial's levels"),
        ({}, {"dial": Dial(low=-1, high=8)}, "dial = -1.0: must begin at 0 or above"),
        ({}, {"spec": SafetySpec(threshold=2, violation_risk=0.1, guarantee="bracket", cost_sensor_noise=1)},
         "sensor noise .* state the bracket's `error`"),
        ({}, {"spec": SafetySpec(threshold=2, violation_risk=0.1, guarantee="conformal")},
         "guarantee = 'conformal': does not match policy hp_shield, whose guarantee is 'bracket'"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_start_is_refused(options, given, words):
    with pytest.raises(InvalidInput, match=words):
        make_agent(options=options, **given)


def test_other_policies_refuse_the_bracket_and_the_policy_needs_its_options():
    with pytest.raises(InvalidInput, match="guarantee = 'bracket': does not match policy hp_probe"):
        Agent(2, SPEC, policy="hp_probe")
    with pytest.raises(InvalidInput, match=r"'hp_shield': needs options.*make_policy\('hp_shield', base=...\)"):
        Agent(2, SPEC, policy="hp_shield")
    with pytest.raises(InvalidInput, match=r"growth = None: is missing; state a bracket"):
        Agent(2, SPEC)
    with pytest.raises(InvalidInput, match=r"growth = None: is missing; state a bracket"):
        make_agent(options={"growth": None})
    with pytest.raises(InvalidInput, match=r"growth = None: is missing; state a bracket"):
        simulate(shield(growth=None), LinearWorld(dim=3), make_spec(), rounds=2, seeds=1)
    for bad in (lambda: growth.relative(1.4, 0.7, floor=1), lambda: growth.relative(1, 2, floor=-1)):
        with pytest.raises(InvalidInput, match=r"low = 1.4|floor = -1"):
            bad()


def test_a_question_that_cannot_be_answered_changes_nothing():
    slopes = {"growth": growth.additive(0, "steep")}
    agent, world = make_agent(options=slopes), Patients()
    treat(agent, 12, world)
    good, before = world.context(), agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0}).action
    for wrong, words in [
        ({"dose": -2.0}, r"context\['dose'\] = -2.0: must be > 0"),
        ({"steep": -1.0}, "feature steep = -1.0: must hold 0 or numbers"),
        ({"dose": math.inf}, r"context\['dose'\] = inf"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            agent.ask({**good, **wrong})
        with pytest.raises(InvalidInput, match="row 1: " + words):
            agent.ask_many([good, {**good, **wrong}])
    with pytest.raises(InvalidInput, match=r"baseline_cost = 0.5: is not for hp_shield; report the whole cost"):
        agent.ask(good, baseline_cost=0.5)
    assert (agent.decisions, agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0}).action) == (12, before)
    failing = make_agent(options={"base": lambda raw: raw["none"]})
    with pytest.raises(InvalidInput, match=r"base: your function failed on this context \(KeyError: 'none'\)"):
        failing.ask(good)


def test_outcomes_are_of_rounds_that_it_decided():
    agent = make_agent()
    context = Patients().context()
    with pytest.raises(InvalidInput, match=r"no round is open.*learns from rounds that it decided"):
        agent.tell(context, 1.0, 0.0, 0.5)
    agent.ask(context)
    with pytest.raises(InvalidInput, match="differs from that of round 1"):
        agent.tell({**context, "dose": 5.5}, 1.0, 0.0, 0.5)
    agent.tell(context, 1.0, 0.0, 0.5)
    assert agent.informative_rounds == 1


def test_costs_of_a_spread_bracket_are_0_or_1():
    agent = make_agent(options={"growth": growth.spread(1.25, 0.5)}, spec=ZERO_ONE)
    decision = agent.ask(Patients().context())
    with pytest.raises(InvalidInput, match=r"cost = 0.2: must be 0 or 1 for .* its bracket"):
        agent.tell(decision, reward=0.0, cost=0.2)
    agent.tell(decision, reward=0.0, cost=1.0)
    assert agent.violations == 1


def test_nothing_is_proved_in_a_linear_world():
    assert not guarantee_holds(shield(), LinearWorld(dim=3), make_spec())
    bracketed = make_spec(threshold=2.0, violation_risk=RISK, guarantee="bracket")
    assert (
        simulate(shield(base=lambda x: 0.5 + 0.0 * x[..., 0]), LinearWorld(dim=3), bracketed, rounds=5, seeds=2).rounds
        == 5
    )


def test_a_function_of_one_s_own_is_given_again_at_loading(tmp_path):
    policy = shield(base=lambda raw: raw["dose"])
    agent = make_agent(policy=policy)
    treat(agent, 30)
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="was saved with your own base"):
        Agent.load(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", policy=policy)
    assert treat(again, 20, Patients(3)) == treat(agent, 20, Patients(3))
