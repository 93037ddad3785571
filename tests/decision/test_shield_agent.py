"""HP-Shield for an Agent: it decides as the simulated policy does, in the dial's own units, and says what it rests on.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import json
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import (
    Agent,
    Dial,
    Features,
    InvalidInput,
    LinearWorld,
    SafetySpec,
    growth,
    hill,
    make_policy,
    simulate,
)
from safedial.simulation.proved import promise_holds
from tests.conftest import make_spec

RISK = 0.1
BRACKET = growth.relative(0.7, 1.4, floor=0.5)
SPEC = SafetySpec(threshold=2.0, violation_risk=RISK, promise="bracket")
ZERO_ONE = SafetySpec(threshold=0.5, violation_risk=RISK, promise="bracket")
NAMES = Features(names=("dose", "weight", "steep"), center=(4.0, 70.0, 0.0), scale=(2.0, 30.0, 1.0))
DIAL = Dial(high=20.0, unit="U")


def shield(**options):
    return make_policy("hp_shield", **({"base": 0, "growth": BRACKET, "start_scale": 0.25} | options))


def make_agent(**given):
    """A named protocol's dose on a dial of 20 units."""
    options = given.pop("options", {})
    made = {"policy": shield(**({"base": "dose"} | options)), "dial": DIAL, "features": NAMES}
    return Agent(3, given.pop("spec", SPEC), **(made | given))


class Patients:
    """Doses that patients tolerate, about 1.2 times their protocol's; costs rise with an exponent of their own."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def context(self):
        dose, weight = self.rng.uniform(2.0, 6.0), self.rng.uniform(40.0, 100.0)
        return {"dose": float(dose), "weight": float(weight), "steep": 30.0}

    def cost(self, context, setting):
        effect = 0.2 * (context["weight"] - 70.0) / 30.0
        tolerance = context["dose"] * 1.2 * math.exp(effect + 0.3 * self.rng.standard_normal())
        return 2.0 * (setting / tolerance) ** self.rng.uniform(0.7, 1.4)


def treat(agent, rounds, world=None, *, applied=lambda advised: advised, ask=None):
    """Rounds with their outcomes; the settings given."""
    world, given = world or Patients(), []
    for _ in range(rounds):
        context = world.context()
        decision = agent.decide(context, **(ask(context) if ask else {}))
        setting = applied(decision.action)
        agent.update(decision, action=setting, reward=0.0, cost=world.cost(context, setting))
        given.append(decision.action)
    return given


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"learned": True},
        {"learned": True, "adapt": 0.02, "climb": None},
        {"growth": growth.additive(0.5, 20.0)},
        {"growth": growth.spread(1.25, 0.5), "confidence": None},
        {"confidence": 0.9, "growth": growth.additive(0.0, 20.0, error=0.1)},
        {"base": lambda context: 0.2 + 0.0 * context[..., 0]},
        {"chooser": "sign"},
    ],
    ids=["protocol", "learned", "adaptive", "additive", "spread", "confident", "function", "sign"],
)
def test_an_agent_decides_as_the_simulated_policy(options):
    policy, rng = shield(**options), np.random.default_rng(3)
    limit = 0.5 if policy.options["growth"].name == "spread" else 2.0
    agent = Agent(3, SafetySpec(threshold=limit, violation_risk=RISK, promise="bracket"), policy=policy)
    state, simulated = policy.init(3, ridge=1.0, batch=(1, 1)), make_spec(threshold=limit, violation_risk=RISK)
    for number in range(1, 151):
        context = np.array([0.3, *rng.standard_normal(2)])
        tolerance = 0.3 * math.exp(0.6 * context[1] + 0.2 * rng.standard_normal())
        seen = policy.predict(state, context[None, None])
        choice = policy.decide(seen, simulated, round=float(number), coin=0.5)
        decision = agent.decide(context)
        assert decision.action == pytest.approx(float(choice.intensity[0, 0]), rel=1e-9)
        cost = 2.0 * (decision.action / tolerance) ** rng.uniform(0.7, 1.4)
        if policy.options["growth"].name == "spread":
            cost = float(cost > 2.0)
        reward = decision.action * (context[2] + math.sin(float(number)))
        agent.update(decision, reward=reward, cost=cost)
        weight, applied = np.ones((1, 1)), np.full((1, 1), decision.action)
        state = policy.update(state, seen, reward / applied, cost / applied, weight, intensity=applied)
    assert decision.promise == "bracket"


def test_a_preview_is_what_the_decision_will_be_and_changes_nothing():
    agent, alone, world = make_agent(options={"learned": True}), make_agent(options={"learned": True}), Patients()
    for _ in range(90):
        context = world.context()
        seen, again = agent.preview(context), agent.preview(context)
        decision, plain = agent.decide(context), alone.decide(context)
        assert (seen.action, again.action, plain.action) == (decision.action,) * 3
        assert seen.certificate["count"] == decision.certificate["count"]
        cost = world.cost(context, decision.action)
        agent.update(decision, reward=0.0, cost=cost)
        alone.update(plain, reward=0.0, cost=cost)


@pytest.mark.parametrize("options", [{}, {"learned": True, "adapt": 0.02, "lag": 2}])
def test_saved_loaded_and_pickled_agents_go_on_alike(options, tmp_path):
    agent, world = make_agent(options=options), Patients()
    treat(agent, 70, world)
    waiting, left = agent.decide(world.context()), agent.decide(world.context())
    agent.update(left, action=0.0, reward=0.0, cost=0.0, unrelated=True)
    agent.save(tmp_path / "agent")
    pickled = pickle.loads(pickle.dumps(agent))  # noqa: S301 -- it was written just before
    agents = [agent, Agent.load(tmp_path / "agent"), pickled]
    for each in agents:
        each.update(context=raw(waiting), action=waiting.action, reward=0.0, cost=1.0, round=waiting.round)
    given = [treat(each, 60, Patients(5)) for each in agents]
    assert given[0] == given[1] == given[2]
    certificates = [each.preview(Patients(6).context()).certificate for each in agents]
    assert certificates[0] == certificates[1] == certificates[2]
    assert [each.evidence for each in agents] == [agent.evidence] * 3


def raw(decision):
    return dict(zip(NAMES.names, decision.context * NAMES.scale + NAMES.center, strict=True))


def test_several_decisions_at_once_are_those_in_turn():
    one, many = make_agent(options={"lag": 3}), make_agent(options={"lag": 3})
    world = Patients()
    for _ in range(20):
        contexts = [world.context() for _ in range(3)]
        in_turn, at_once = [one.decide(context) for context in contexts], many.decide_many(contexts)
        assert [each.action for each in in_turn] == [each.action for each in at_once]
        for context, first, second in zip(contexts, in_turn, at_once, strict=True):
            cost = world.cost(context, first.action)
            one.update(first, reward=0.0, cost=cost)
            many.update(second, reward=0.0, cost=cost)
    assert at_once[-1].promise == "bracket"


def test_the_promise_holds_at_each_look():
    """30 runs, 5 % of the outcomes lost, settings lowered by one who foresees; batched runs show the same with more."""
    looks, over = (12, 25), np.zeros(2, dtype=int)
    for seed in range(30):
        world, rng = Patients(seed), np.random.default_rng(seed)
        agent = make_agent(options={"start_scale": 0.1, "learned": seed % 2 == 0, "climb": None})
        for number in range(1, max(looks) + 1):
            context = world.context()
            decision = agent.decide(context)
            cost = world.cost(context, decision.action)
            exceeds = cost > 2.0
            if number in looks:
                over[looks.index(number)] += exceeds
            if rng.random() < 0.05:
                continue
            share = 0.5 if exceeds and rng.random() < 0.5 else 1.0
            agent.update(decision, action=share * decision.action, reward=0.0, cost=cost * share)
    for count in over:
        assert binomtest(int(count), 30, RISK, alternative="greater").pvalue > 1e-6


def test_it_climbs_from_the_start_within_the_climb_limit_to_what_rounds_tolerate():
    agent, world = make_agent(), Patients()
    first = agent.decide(world.context())
    assert (first.promise, first.limit) == ("declared", "shield_start")
    assert "0 rounds so far, too few for a risk of 0.1" in first.explain()
    assert first.action == pytest.approx(0.25 * raw(first)["dose"])
    agent.update(first, reward=0.0, cost=0.1)
    treat(agent, 8, world)
    climbing = agent.preview(world.context())
    assert (climbing.promise, climbing.limit) == ("bracket", "climb_limit")
    assert climbing.action / raw(climbing)["dose"] == pytest.approx(0.25 * 1.25)
    treat(agent, 100, world)
    late = agent.preview(world.context())
    assert late.limit == "count_rule"
    assert 0.5 < late.action / raw(late)["dose"] < 1.2


def test_the_certificate_says_which_rounds_would_have_exceeded_and_why():
    agent = make_agent()
    treat(agent, 120)
    decision = agent.decide({"dose": 4.0, "weight": 70.0, "steep": 30.0})
    told, words = decision.certificate, decision.explain()
    json.dumps(told)
    count = told["count"]
    assert (told["promise"], told["holds"], count["rounds"], count["may_exceed"]) == ("bracket", True, 59, 5)
    assert len(count["exceeding"]) == 5
    assert all(61 < number <= 120 for number in count["exceeding"])
    assert (
        "P(cost > 2) <= 0.1 in this round: of the latest 59 rounds with known outcomes, at most 5 would have exceeded "
        f"2 at {told['scale']['played']:.4f}"[:-1]
        in told["statement"]
    )
    assert "raising the setting by a tenth never raises the cost by more than 14.2 %" in told["statement"]
    for part in (
        "rounds " + ", ".join(map(str, count["exceeding"])),
        "0.1 + q + p0",
        "(feature dose)",
        "The start: 1 U",
    ):
        assert part in words
    later = agent.decide({"dose": 4.0, "weight": 70.0, "steep": 30.0})
    before = [json.dumps(each.certificate) for each in (decision, later)]
    agent.update(decision, reward=0.0, cost=0.1)
    treat(agent, 30, Patients(9))
    assert [json.dumps(each.certificate) for each in (decision, later)] == before
    assert later.certificate["count"]["unknown"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"growth": growth.additive(0.5, 3.0)}, "one U more never raises the cost by more than 3, and one U less "
         "lowers a cost above 2 by 0.5 or more"),
        ({"growth": growth.additive(0.0, "steep", error=0.1)}, "by more than steep."),
        ({"growth": growth.additive(0.0, "steep", error=0.1)}, "measurement errors are at most 0.1"),
        ({"growth": growth.relative("weight", "weight", floor=0.0)}, "raising the setting by 1 % never raises"),
        ({"growth": growth.spread(1.25, 0.5)}, "normal spread of 0.5 or more"),
        ({"growth": growth.spread(1.25, 0.5)}, "p0 > 0 where tolerances are log-normal, and adds to the risk"),
        ({"adapt": 0.05}, "those that a correction turned into excesses not (rate 0.05"),
        ({"confidence": 0.9}, "with probability 0.9 over the rounds before this one"),
        ({"base": "proposal"}, "proposals are exchangeable too"),
        ({"learned": True}, "a learned base calibrates only on rounds after its fit"),
        ({"learned": True}, "(learned from the first"),
        ({"direction": "below", "growth": growth.additive(1.0, 30.0)}, "would have fallen below 2 at"),
        ({"base": lambda raw: raw["dose"]}, "The base: the protocol's setting, 4 U."),
        ({"climb": None, "growth": growth.additive(0.0, 0.0)}, "at any multiple of the protocol's setting"),
    ],
)  # fmt: skip
def test_each_option_is_put_in_words(options, words):
    spread = "growth" in options and options["growth"].name == "spread"
    spec = SafetySpec(threshold=0.5 if spread else 2.0, violation_risk=RISK, promise="bracket")
    agent, world = make_agent(options=options, spec=spec), Patients()
    ask = (lambda context: {"proposal": context["dose"]}) if options.get("base") == "proposal" else None
    world.cost = lambda context, setting: 0.0 if spread else 3.0 if options.get("direction") else 0.5
    treat(agent, 150, world, ask=ask)
    context = {"dose": 4.0, "weight": 70.0, "steep": 30.0}
    decision = agent.decide(context, **(ask(context) if ask else {}))
    assert decision.promise == "bracket"
    assert words in decision.explain()
    json.dumps(decision.certificate)


def test_proposals_are_scaled_and_must_be_numbers_above_nothing():
    agent = make_agent(options={"base": "proposal"})
    context = Patients().context()
    assert agent.decide(context, proposal=8).action == 2.0
    assert [each.action for each in agent.decide_many([context] * 2, proposals=[4, 12])] == [1.0, 3.0]
    for proposal, words in [
        (None, r"proposal = None: is missing, and it is this policy's base; decide\(..., proposal=...\)"),
        ("8", "proposal = '8': must be a number"),
        (math.nan, "proposal = nan: must be a finite number"),
        (-1.0, "proposal = -1.0: must be > 0, since it is the setting that is scaled"),
        (100.0, "start = 25.0: lies above the dial's end, 20; bases are in the dial's units: state dial=Dial"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            agent.decide(context, proposal=proposal)
        with pytest.raises(InvalidInput, match="row 1: " + words):
            agent.decide_many([context] * 2, proposals=[4, proposal])
    with pytest.raises(InvalidInput, match="must have one value for each of 2 contexts"):
        agent.decide_many([context] * 2, proposals=[1])
    assert agent.decisions == 3
    with pytest.raises(InvalidInput, match="proposal = 1: is not this policy's base"):
        make_agent().decide(context, proposal=1)
    with pytest.raises(InvalidInput, match="proposal = 1: is not for hp_probe"):
        Agent(2, make_spec()).decide([0.1, 0.1], proposal=1)


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        ({"base": "age"}, {}, "base = 'age': must be 'proposal' or the name of a feature; the features are dose"),
        ({}, {"features": None}, "must be 'proposal' or the name of a feature; there are no features"),
        ({"base": 7}, {}, "base = 7: must be a column of a context of dimension 3"),
        ({"base": 0}, {}, "base = 0: must be a name where there are features: columns are scaled; the features"),
        ({"growth": growth.spread(1.25, 0.5)}, {"dose": hill(0.5, 2.0), "spec": ZERO_ONE},
         "growth = 'spread': does not go with a dose"),
        ({"growth": growth.spread(1.25, 0.5)}, {}, "threshold = 2.0: must tell 0 from 1 where costs are 0 or 1"),
        ({"growth": growth.additive(0, "slope")}, {}, r"growth = \['slope'\]: takes its slopes from features"),
        ({"growth": growth.relative(0.7, 1.4, floor=3)}, {}, "floor = 3.0: must be at most 2"),
        ({"family": "offset"}, {"dose": hill(0.5, 2.0)}, "family = 'offset': predicts the cost per unit of the dial"),
        ({"family": "offset", "direction": "below", "growth": growth.additive(0, 3)}, {}, "must not exceed"),
        ({"family": "offset", "growth": growth.additive(0, 3, error=2.5)}, {}, "threshold = 2.0: must be > 0"),
        ({"probe": 0.5}, {}, "probe = 0.5: is for simulations"),
        ({"start_scale": None}, {}, "start_action = None: and start_scale: exactly one must say where to start"),
        ({}, {"start_action": 1.0}, "start_action = 1.0: and start_scale: exactly one"),
        ({"start_scale": None}, {"start_action": 21.0}, "start_action = 21.0: must lie above 0, and from 0 to 20"),
        ({"start_scale": None}, {"start_action": 0.0}, "start_action = 0.0: must lie above 0"),
        ({"start_scale": None}, {"start_action": 3.0, "dial": Dial(high=8, levels=[2, 8])}, "one of the dial's levels"),
        ({}, {"dial": Dial(low=-1, high=8)}, "dial = -1.0: must begin at 0 or above"),
        ({}, {"spec": SafetySpec(threshold=2, violation_risk=0.1, promise="bracket", cost_sensor_noise=1)},
         "sensor noise .* state the bracket's `error`"),
        ({}, {"spec": SafetySpec(threshold=2, violation_risk=0.1, promise="conformal")},
         "promise = 'conformal': does not match policy hp_shield, whose promise is 'bracket'"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_start_is_refused(options, given, words):
    with pytest.raises(InvalidInput, match=words):
        make_agent(options=options, **given)


def test_other_policies_refuse_the_bracket_and_the_policy_needs_its_options():
    with pytest.raises(InvalidInput, match="promise = 'bracket': does not match policy hp_probe"):
        Agent(2, SPEC, policy="hp_probe")
    with pytest.raises(InvalidInput, match=r"'hp_shield': needs options.*make_policy\('hp_shield', base=...\)"):
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
            agent.decide({**good, **wrong})
        with pytest.raises(InvalidInput, match="row 1: " + words):
            agent.decide_many([good, {**good, **wrong}])
    with pytest.raises(InvalidInput, match=r"baseline_cost = 0.5: is not for hp_shield; report the whole cost"):
        agent.decide(good, baseline_cost=0.5)
    assert (agent.decisions, agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0}).action) == (12, before)
    failing = make_agent(options={"base": lambda raw: raw["none"]})
    with pytest.raises(InvalidInput, match=r"base: your function failed on this context \(KeyError: 'none'\)"):
        failing.decide(good)


def test_outcomes_are_of_rounds_that_it_decided():
    agent = make_agent()
    context = Patients().context()
    with pytest.raises(InvalidInput, match=r"no round is open.*learns from rounds that it decided"):
        agent.update(context, 1.0, 0.0, 0.5)
    agent.decide(context)
    with pytest.raises(InvalidInput, match="is not that of round 1"):
        agent.update({**context, "dose": 5.5}, 1.0, 0.0, 0.5)
    agent.update(context, 1.0, 0.0, 0.5)
    assert agent.informative_rounds == 1


def test_open_rounds_count_as_exceeding_unless_they_are_within_the_lag_or_vouched_for():
    def actions(lag, lose):
        agent, world = make_agent(options={"lag": lag}), Patients()
        treat(agent, 60, world)
        for _ in range(4):
            lose(agent, agent.decide(world.context()))
        return agent.decide({"dose": 4.0, "weight": 70.0, "steep": 30.0})

    unreported = actions(0, lambda agent, decision: None)
    assert (unreported.promise, unreported.action) == ("declared", 1.0)
    assert "tolerate nothing beyond the start, or are not known" in unreported.explain()
    assert actions(4, lambda agent, decision: None).action > 2.0

    def vouch(agent, decision):
        agent.update(decision, action=0.0, reward=0.0, cost=0.0, unrelated=True)

    assert actions(0, vouch).action > 2.0
    single = make_agent()
    treat(single, 60)
    single.decide(Patients().context())
    assert "(1 of them with unknown outcomes, which count)" in single.decide(Patients().context()).explain()


def test_a_lost_outcome_is_left_out_or_tolerates_nothing():
    agents = {vouched: make_agent(options={"adapt": 0.02}) for vouched in (True, False)}
    for vouched, agent in agents.items():
        treat(agent, 60)
        agent.update(agent.decide(Patients(1).context()), unrelated=vouched)
        told = agent.decide(Patients(2).context()).certificate
        assert told["count"]["unknown"] == (0 if vouched else 1)
        assert (told["model"]["known_outcomes"], told["adaptive"]["open"]) == (60, 0)
    with pytest.raises(InvalidInput, match="reward = None: must be a number"):
        agents[True].update(agents[True].decide(Patients(3).context()))
    with pytest.raises(InvalidInput, match="cost = None: must be a number"):
        agents[True].update(agents[True].decide(Patients(3).context()), reward=1.0, unrelated=True)


def test_costs_of_a_spread_bracket_are_0_or_1():
    agent = make_agent(options={"growth": growth.spread(1.25, 0.5)}, spec=ZERO_ONE)
    decision = agent.decide(Patients().context())
    with pytest.raises(InvalidInput, match=r"cost = 0.2: must be 0 or 1 for .* its bracket"):
        agent.update(decision, reward=0.0, cost=0.2)
    agent.update(decision, reward=0.0, cost=1.0)
    assert agent.violations == 1


def test_a_certificate_of_0_or_1_counts_at_most_as_many_rounds_as_may_exceed():
    agent = make_agent(options={"growth": growth.spread(1.1, 0.5), "base": lambda raw: 4.0}, spec=ZERO_ONE)
    for _ in range(150):
        decision = agent.decide({"dose": 4.0, "weight": 70.0, "steep": 30.0})
        count = decision.certificate["count"]
        assert count["would_exceed"] <= count["may_exceed"]
        agent.update(decision, reward=0.0, cost=0.0)
    assert decision.promise == "bracket"


def test_the_words_say_when_the_promise_is_of_the_true_cost_and_where_the_bracket_is_needed():
    """Of a cost whose measurement errs by 0.25, the bracket's lower end is needed above 2 − 0.25 if τ is of measured
    costs; if it is of true ones, measured costs may exceed more often than the risk.
    """
    for on, event, beyond in (("true", "P(true cost > 2)", "above 2 by"), ("measured", "P(cost > 2)", "above 1.75 by")):
        spec = SafetySpec(threshold=2.0, violation_risk=RISK, promise="bracket", threshold_on=on)
        agent, world = make_agent(options={"growth": growth.additive(0.1, 0.5, error=0.25)}, spec=spec), Patients()
        world.cost = lambda context, setting: 0.5
        treat(agent, 40, world)
        said = agent.decide(world.context()).certificate["statement"]
        assert event in said
        assert beyond in said


def test_the_words_say_where_the_dial_begins_above_the_declared_share():
    agent = make_agent(dial=Dial(low=2.0, high=20.0, unit="U"))
    for dose, part in ((4.0, "or, where that is less, the dial's lowest (here 2 U)"), (10.0, "setting (here 2.5 U)")):
        told = agent.decide({"dose": dose, "weight": 70.0, "steep": 30.0}).certificate
        assert part in told["assumptions"][0]


def test_a_round_left_out_does_not_count_under_a_learned_base_either():
    agent, world = make_agent(options={"learned": True}), Patients()
    open_early = agent.decide(world.context())
    treat(agent, 80, world)
    assert agent.preview(world.context()).certificate["base"]["fitted_at_round"] > 1
    agent.update(open_early, action=0.0, reward=0.0, cost=0.0, unrelated=True)
    history = agent._learner.history
    assert history.window.earlier == history.base.since - 1
    late = agent.decide(world.context())
    treat(agent, 60, world)
    agent.update(late, action=0.0, reward=0.0, cost=0.0, unrelated=True)
    treat(agent, 60, world)
    assert history.left == [0, 81]
    assert history.window.window.size <= agent.decisions - 2 - history.base.since


def test_levels_are_floored_and_the_scale_climbs_on_between_them():
    dial = Dial(high=8.0, levels=[1.0, 2.0, 4.0, 8.0])
    agent, world = make_agent(dial=dial, options={"start_scale": 0.5}), Patients()
    given = treat(agent, 120, world)
    assert set(given) <= {1.0, 2.0, 4.0, 8.0}
    decision = agent.decide({"dose": 5.9, "weight": 70.0, "steep": 30.0})
    assert (decision.limit, decision.action) == ("level", 4.0)
    learned = make_agent(dial=dial, options={"learned": True, "start_scale": 0.5})
    assert 4.0 in treat(learned, 120, Patients())
    easy = make_agent(dial=dial, options={"growth": growth.additive(0.0, 0.01)})
    world.cost = lambda context, setting: 0.0
    treat(easy, 40, world)
    assert easy.decide(world.context()).limit == "full_dose"
    with pytest.raises(InvalidInput, match=r"start = 0.5: lies below the dial's lowest level.*or an additive"):
        make_agent(dial=dial).decide({"dose": 2.0, "weight": 70.0, "steep": 30.0})


def test_a_declared_start_action_is_given_and_a_nominal_curve_is_read_through():
    agent = make_agent(options={"start_scale": None}, start_action=0.5, dose=hill(0.5))
    world = Patients()
    world.cost = lambda context, setting: 8.0 * float(hill(0.5).effect(setting / 20.0)) / world.rng.uniform(0.5, 1.0)
    assert treat(agent, 1, world) == [0.5]
    given = treat(agent, 150, world)
    costs = 8.0 * np.array(hill(0.5).effect(np.array(given[100:]) / 20.0))
    assert 0.8 < costs.max() < 1.7
    assert "settings are read through the dose curve" in agent.decide(world.context()).explain()
    exact = {"growth": growth.relative(1, 1, floor=0), "climb": None, "start_scale": None}
    exact = make_agent(options=exact, dose=hill(0.5), start_action=0.5)
    treat(exact, 60, world)
    assert exact.decide(world.context()).promise == "bracket"
    cheap, world = make_agent(dose=hill(0.5), options={"growth": growth.additive(0.0, 0.1)}), Patients()
    world.cost = lambda context, setting: 0.0
    treat(cheap, 40, world)
    assert cheap.decide(world.context()).action == 20.0
    world.cost = lambda context, setting: 9.0
    treat(cheap, 30, world)
    assert (cheap.decide(world.context()).promise, cheap.alarmed) == ("none", True)


def test_the_level_follows_the_outcomes_and_the_certificate_prints_the_long_run_bound():
    agent, world = make_agent(options={"adapt": 0.05}), Patients()
    treat(agent, 40, world)
    sane = world.cost
    world.cost = lambda context, setting: 5.0
    treat(agent, 3, world, applied=lambda advised: 0.9 * advised)
    raised = agent.decide(world.context())
    agent.update(raised, action=raised.action + 1.0, reward=0.0, cost=9.0)
    decision = agent.decide(world.context())
    told = decision.certificate["adaptive"]
    assert (told["known"], told["open"]) == (43, 0)
    assert told["exceeded"] <= told["bound"]
    assert told["bound"] == pytest.approx(0.1 * 43 + 0.1 / 0.05 + 0.9 * (1 + told["exceeded_at_start"]))
    assert decision.promise == "declared"
    assert "The level has fallen" in decision.explain()
    assert "Whatever the sequence of rounds" in decision.explain()
    world.cost = sane


def test_drift_beyond_the_bracket_is_found_and_a_person_resumes():
    agent, world = make_agent(fallback_action=0.2, options={"climb": None}), Patients()
    treat(agent, 150, world)
    assert (agent.stop_reason, agent.evidence < 1) == ("", True)
    world.cost = lambda context, setting: 60.0 * setting / context["dose"]
    treat(agent, 40, world)
    assert agent.stop_reason in ("bracket_drift", "start_refuted")
    doubtful = agent.decide(world.context())
    assert (doubtful.promise, doubtful.action) == ("none", 0.2)
    agent.resume()
    assert (agent.stop_reason, agent.evidence) == ("", pytest.approx(1.0))
    agent.resume(forget=True)
    fresh = agent.decide(world.context())
    assert (fresh.promise, agent.informative_rounds) == ("declared", 0)
    assert fresh.certificate["model"]["rounds"] == 0


def test_a_start_that_exceeds_too_often_is_refuted():
    agent, world = make_agent(), Patients()
    world.cost = lambda context, setting: 3.0
    treat(agent, 10, world)
    assert agent.stop_reason == "start_refuted"
    assert "the start is not safe" in agent.decide(world.context()).explain()
    assert agent.violations > 0


def test_nothing_is_proved_in_a_linear_world():
    assert not promise_holds(shield(), LinearWorld(dim=3), make_spec())
    bracketed = make_spec(threshold=2.0, violation_risk=RISK, promise="bracket")
    assert (
        simulate(shield(base=lambda x: 0.5 + 0.0 * x[..., 0]), LinearWorld(dim=3), bracketed, rounds=5, seeds=2).rounds
        == 5
    )


def test_many_rounds_that_would_have_exceeded_are_counted_and_the_last_ones_named():
    agent, world = make_agent(spec=SafetySpec(threshold=2.0, violation_risk=0.5, promise="bracket")), Patients()
    treat(agent, 120, world)
    decision = agent.decide(world.context())
    count = len(decision.certificate["count"]["exceeding"])
    assert f" and {count - 20} earlier ones." in decision.explain()
    easy, world.cost = make_agent(), lambda context, setting: 0.0
    treat(easy, 30, world)
    assert "Would have exceeded 2: none of them." in easy.decide(world.context()).explain()


def test_a_learner_predicts_for_a_context_alone():
    agent = make_agent()
    assert agent._learner.predict(agent.decide(Patients().context()).context, 1.0).setting > 0


def test_a_function_of_one_s_own_is_given_again_at_loading(tmp_path):
    policy = shield(base=lambda raw: raw["dose"])
    agent = make_agent(policy=policy)
    treat(agent, 30)
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="was saved with your own base"):
        Agent.load(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", policy=policy)
    assert treat(again, 20, Patients(3)) == treat(agent, 20, Patients(3))


def test_a_start_that_was_refuted_is_not_the_fallback():
    agent = Agent(2, SPEC, policy=shield(base="dose", start_scale=None), dial=DIAL, start_action=1.0,
                  features=Features(names=("dose", "weight")))  # fmt: skip
    for _ in range(8):
        decision = agent.decide({"dose": 4.0, "weight": 1.0})
        agent.update(decision, reward=0.0, cost=5.0)
    assert agent.stop_reason == "start_refuted"
    assert agent.decide({"dose": 4.0, "weight": 1.0}).action == 0.0


def test_the_sentence_is_about_the_scale_that_was_counted_where_the_start_is_above_it():
    agent = Agent(2, SPEC, policy=shield(base="dose", start_scale=None), dial=DIAL, start_action=2.0,
                  features=Features(names=("dose", "weight")))  # fmt: skip
    rng = np.random.default_rng(1)
    for _ in range(120):
        dose = float(rng.uniform(2.0, 10.0))
        decision = agent.decide({"dose": dose, "weight": 1.0})
        agent.update(decision, reward=0.0, cost=2.0 * decision.action / (dose * math.exp(0.3 * rng.normal())))
    small = agent.decide({"dose": 1.0, "weight": 1.0})
    assert small.action == 2.0
    seen = small.prediction
    assert seen.counted.scale < 1.0
    assert f"at {seen.counted.scale:.3g}"[:7] in small.certificate["statement"]
    assert "given is the start, which you declared safe" in small.certificate["statement"]
    assert sum(seen.counted.scales[seen.counted.first : seen.counted.last] < seen.counted.scale) < seen.rank


def test_one_start_for_all_does_not_open_the_climb_for_large_bases():
    agent = Agent(2, SPEC, policy=shield(base="dose", start_scale=None), dial=DIAL, start_action=1.0,
                  features=Features(names=("dose", "weight")))  # fmt: skip
    advised = []
    for number in range(60):
        decision = agent.decide({"dose": 1.0 if number % 2 else 10.0, "weight": 1.0})
        agent.update(decision, reward=0.0, cost=0.4 * decision.action / 10.0)
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


def test_a_certificate_stays_as_it_was_when_the_last_round_is_reported():
    agent, world = make_agent(), Patients()
    treat(agent, 60, world)
    last = agent.decide(world.context())
    preview = agent.preview(world.context())
    before = json.dumps(preview.certificate["count"])
    agent.update(last, reward=0.0, cost=1.0)
    assert json.dumps(preview.certificate["count"]) == before
