"""Several costs: a round exceeds if any of them does, and each has its own threshold and bracket.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import json
import math
import pickle

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, Cost, Dial, Features, InvalidInput, LinearWorld, SafetySpec, growth, make_policy, simulate
from safedial.rounds.specfile import SpecFile, parse_spec, spec_text
from tests.conftest import FULL

RISK = 0.1
COSTS = {
    "trough": Cost(threshold=20, growth=growth.relative(0.7, 1.4, floor=1), unit="mg/l"),
    "auc": Cost(threshold=600, growth=growth.additive(20, "steep")),
    "glucose": Cost(threshold=-3, growth=growth.additive(0.1, 2, error=0.1), direction="below", on="true"),
}
SPEC = SafetySpec(costs=COSTS, violation_risk=RISK, guarantee="bracket")
NAMES = Features(names=("dose", "steep"))


def make_agent(spec=SPEC, **options):
    policy = make_policy("hp_shield", **({"base": "dose", "start_scale": 0.25} | options))
    return Agent(2, spec, policy=policy, dial=Dial(high=20.0, unit="U"), features=NAMES)


class Patients:
    """Three dependent costs of one setting, within their brackets: all follow the same patient's tolerance."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def context(self):
        return {"dose": float(self.rng.uniform(2, 6)), "steep": float(self.rng.uniform(80, 120))}

    def cost(self, context, setting):
        tolerance = context["dose"] * 1.2 * math.exp(0.3 * self.rng.standard_normal())
        more = self.rng.uniform(20, 80)
        return {
            "trough": 20 * (setting / tolerance) ** self.rng.uniform(0.7, 1.4),
            "auc": 600 - more * (1.1 * tolerance - setting),
            "glucose": -3 + self.rng.uniform(0.2, 1.9) * (1.3 * tolerance - setting),
        }


def treat(agent, rounds, world=None, *, report=lambda cost: cost):
    world, decisions = world or Patients(), []
    for _ in range(rounds):
        context = world.context()
        decision = agent.ask(context)
        agent.tell(decision, reward=0.0, cost=report(world.cost(context, decision.action)))
        decisions.append(decision)
    return decisions


def excess_at(context, cost, setting, at):
    """Whether the brackets allow an excess at `at`, counted from their bounds alone."""
    trough = COSTS["trough"].growth.bound(cost["trough"], setting, at, threshold=20.0)
    auc = COSTS["auc"].growth.at(context).bound(cost["auc"], setting, at, threshold=600.0)
    glucose = COSTS["glucose"].growth.bound(-cost["glucose"], setting, at, threshold=3.0, on="true")
    return trough > 20.0 or auc > 600.0 or glucose > 3.0


def test_the_scale_is_the_largest_at_which_the_brackets_of_fewer_than_m_rounds_allow_any_excess():
    agent, world, rounds = make_agent(climb=None), Patients(2), []
    for number in range(140):
        context = world.context()
        decision = agent.ask(context)
        if number >= 20 and number % 7 == 0:
            seen = decision.numbers
            latest = rounds[-seen["size"] :]
            for scale, fits in ((seen["allowed"], True), (seen["allowed"] * (1 + 1e-6), False)):
                settings = [(max(0.25, min(scale, 20 / x["dose"])) * x["dose"], x, c, s) for x, c, s in latest]
                count = sum(excess_at(x, c, s, at) for at, x, c, s in settings)
                assert (count <= seen["rank"] - 1) == fits
            over = excess_numbers(latest, decision, len(rounds))
            assert decision.certificate["count"]["exceeding"] == over
        cost = world.cost(context, decision.action)
        agent.tell(decision, reward=0.0, cost=cost)
        rounds.append((context, cost, decision.action))


def excess_numbers(latest, decision, count):
    scale = decision.numbers["counted"]
    first = count - len(latest) + 1
    return [first + i for i, (x, c, s) in enumerate(latest) if excess_at(x, c, s, min(scale * x["dose"], 20.0))]


@pytest.mark.slow
def test_the_guarantee_holds_for_dependent_costs_at_each_look():
    looks, over, runs = (12, 25), np.zeros(2, dtype=int), 1000 if FULL else 30
    for seed in range(runs):
        world = Patients(seed)
        agent = make_agent(start_scale=0.1, learned=seed % 2 == 0, climb=None)
        for number in range(1, max(looks) + 1):
            context = world.context()
            decision = agent.ask(context)
            cost = world.cost(context, decision.action)
            if number in looks:
                over[looks.index(number)] += cost["trough"] > 20 or cost["auc"] > 600 or cost["glucose"] < -3
            agent.tell(decision, reward=0.0, cost=cost)
    for count in over:
        assert binomtest(int(count), runs, RISK, alternative="greater").pvalue > 1e-6


def test_one_named_cost_decides_as_one_cost_does():
    bracket = growth.relative(0.7, 1.4, floor=1)
    one = SafetySpec(threshold=20, violation_risk=RISK, guarantee="bracket")
    named = SafetySpec(costs={"trough": Cost(threshold=20, growth=bracket)}, violation_risk=RISK, guarantee="bracket")
    for options in ({}, {"learned": True, "adapt": 0.02}):
        plain, other = make_agent(one, growth=bracket, **options), make_agent(named, **options)
        first = treat(plain, 90, report=lambda cost: cost["trough"])
        second = treat(other, 90, report=lambda cost: {"trough": cost["trough"]})
        assert [each.action for each in first] == [each.action for each in second]
        assert (plain.violations, plain.evidence) == (other.violations, other.evidence)
        words = (first[-1].certificate["statement"], second[-1].certificate["statement"])
        assert (
            words[1]
            .replace("trough >", "cost >")
            .replace(" (trough)", "")
            .replace("the trough", "the cost")
            .replace("trough", "a cost")
            == words[0]
        )


def test_any_cost_that_exceeds_counts_and_refutes_the_start():
    world = Patients()
    world.cost = lambda context, setting: {"trough": 1.0, "auc": 700.0, "glucose": 5.0}
    agent = make_agent(adapt=0.05)
    treat(agent, 10, world)
    assert (agent.stop_reason, agent.violations) == ("start_refuted", 10)
    told = agent.ask(world.context()).certificate["adaptive"]
    assert (told["known"], told["exceeded"], told["exceeded_at_start"]) == (10, 10, 10)
    agent = make_agent(climb=None)
    treat(agent, 100)
    world.cost = lambda context, setting: {"trough": 1.0, "auc": 400.0, "glucose": -200.0}
    treat(agent, 30, world)
    assert agent.stop_reason in ("bracket_drift", "start_refuted")


def test_a_round_with_a_cost_that_is_not_known_tolerates_nothing():
    agent, world = make_agent(adapt=0.05, learned=True), Patients()
    treat(agent, 60, world)
    before = agent.ask(world.context())
    agent.tell(before, reward=0.0, cost={"trough": 1.0, "auc": None, "glucose": 5.0})
    told = agent.ask(world.context()).certificate
    assert (told["count"]["unknown"], told["model"]["known_outcomes"]) == (1, 60)
    assert (told["adaptive"]["known"], told["adaptive"]["open"]) == (60, 0)
    nan = agent.ask(world.context())
    agent.tell(nan, reward=0.0, cost={"trough": 99.0, "auc": math.nan, "glucose": 5.0})
    again = agent.preview(world.context()).certificate
    assert again["adaptive"]["exceeded"] == told["adaptive"]["exceeded"] + 1
    assert again["adaptive"]["known"] == 61


def test_saved_loaded_pickled_and_reported_together(tmp_path):
    agent, world = make_agent(learned=True, lag=2), Patients()
    treat(agent, 60, world)
    agent.save(tmp_path / "agent")
    pickled = pickle.loads(pickle.dumps(agent))  # noqa: S301 -- it was written just before
    agents = [agent, Agent.load(tmp_path / "agent"), pickled]
    assert [each.spec.costs for each in agents] == [COSTS] * 3
    given = [[each.action for each in treat(one, 30, Patients(5))] for one in agents]
    assert given[0] == given[1] == given[2]
    contexts = [world.context() for _ in range(3)]
    decisions = agent.ask_many(contexts)
    costs = [world.cost(context, each.action) for context, each in zip(contexts, decisions, strict=True)]
    actions = [each.action for each in decisions]
    known = agent.informative_rounds
    with pytest.raises(InvalidInput, match=r"row 1: cost = \['auc'\]: is missing"):
        agent.tell_many(contexts, actions, [0.0] * 3, [costs[0], {"trough": 1, "glucose": 1}, costs[2]])
    assert agent.informative_rounds == known
    agent.tell_many(contexts, actions, [0.0] * 3, costs)
    assert agent.informative_rounds == known + 3


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (3.0, r"cost = 3.0: must be a mapping with trough, auc, glucose"),
        ({"trough": 1, "auc": 2}, r"cost = \['glucose'\]: is missing; report every cost, None where it is not known"),
        (
            {"trough": 1, "auc": 2, "glucose": 3, "x": 4},
            r"cost = \['x'\]: is unknown; the spec's costs are trough, auc",
        ),
        ({"trough": "1", "auc": 2, "glucose": 3}, r"cost\['trough'\] = '1': must be a number"),
        ({"trough": True, "auc": 2, "glucose": 3}, r"cost\['trough'\] = True: must be a number"),
        ({"trough": math.inf, "auc": 2, "glucose": 3}, r"cost\['trough'\] = inf: must be a finite number, or None"),
    ],
)
def test_an_outcome_that_cannot_be_read_changes_nothing(cost, words):
    agent = make_agent()
    decision = agent.ask(Patients().context())
    with pytest.raises(InvalidInput, match=words):
        agent.tell(decision, reward=0.0, cost=cost)
    assert (agent.informative_rounds, agent.violations) == (0, 0)
    agent.tell(decision, reward=0.0, cost={"trough": 1, "auc": 2, "glucose": 3})
    assert agent.informative_rounds == 1


def test_one_cost_is_a_number():
    one = SafetySpec(threshold=20, violation_risk=RISK, guarantee="bracket")
    agent = make_agent(one, growth=growth.additive(0, 1))
    decision = agent.ask(Patients().context())
    with pytest.raises(InvalidInput, match="must be one number: the spec states one cost"):
        agent.tell(decision, reward=0.0, cost={"cost": 1.0})
    agent.tell(decision, reward=0.0, cost=1.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"costs": COSTS, "threshold": 1}, "threshold = 1: cannot be combined with costs; state it in each Cost"),
        ({"costs": COSTS, "threshold_on": "true"}, "threshold_on = 'true': cannot be combined with costs"),
        ({"costs": COSTS, "guarantee": "conformal"}, r"guarantee = 'conformal': has no proof for several costs; use"),
        ({"costs": {}}, "costs = {}: must be a mapping from names to costs"),
        ({"costs": {"a b": COSTS["auc"]}}, "costs = 'a b': must have names of letters, digits"),
        ({"costs": {"auc": 3}}, r"costs\['auc'\] = 3: must be a Cost"),
        ({"costs": {"auc": {"threshold": 3}}}, r"costs\['auc'\]: growth = None: must be stated; in a spec file"),
        ({"costs": {"auc": {**COSTS["auc"].to_dict(), "limit": 3}}}, r"costs\['auc'\]: cost = .*has unknown fields"),
        ({}, "threshold = None: must be a finite number"),
    ],
)  # fmt: skip
def test_a_spec_that_cannot_be_is_refused(fields, words):
    with pytest.raises(InvalidInput, match=words):
        SafetySpec(**({"violation_risk": RISK, "guarantee": "bracket"} | fields))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"growth": growth.additive(0, 1)},
            "growth = .*cannot be combined with the spec's costs; state it in each Cost",
        ),
        ({"direction": "below"}, "direction = 'below': cannot be combined with the spec's costs"),
    ],
)
def test_the_policy_leaves_to_the_costs_what_they_state(options, words):
    with pytest.raises(InvalidInput, match=words):
        make_agent(**options)


def test_costs_of_0_or_1_are_one_cost():
    costs = {"auc": COSTS["auc"], "fall": Cost(threshold=0.5, growth=growth.spread(1.25, 0.5))}
    with pytest.raises(InvalidInput, match=r"costs = \['fall'\]: has a spread bracket, for which there is no proof"):
        make_agent(SafetySpec(costs=costs, violation_risk=RISK, guarantee="bracket"))


def test_a_simulation_takes_one_cost():
    policy = make_policy("hp_shield", base=0)
    with pytest.raises(InvalidInput, match=r"costs = \['trough', 'auc', 'glucose'\]: are for an Agent"):
        simulate(policy, LinearWorld(dim=2), SPEC, rounds=2, seeds=1)


def test_a_spec_is_written_and_read_again():
    assert SafetySpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC
    assert SafetySpec.from_dict(SPEC.to_dict()).costs == COSTS
    file = parse_spec(spec_text(SpecFile(spec=SPEC)))
    assert file.spec == SPEC
    by_hand = parse_spec(
        """
        [spec]
        guarantee = "bracket"
        violation_risk = 0.1
        [spec.costs.trough]
        threshold = 20
        unit = "mg/l"
        growth = {growth = "relative", low = 0.7, high = 1.4, floor = 1}
        [spec.costs.auc]
        threshold = 600
        growth = {growth = "additive", low = 20, high = "steep"}
        """
    )
    assert by_hand.spec.costs == {name: COSTS[name] for name in ("trough", "auc")}
    one = SafetySpec(threshold=-3.0, violation_risk=RISK, guarantee="bracket")
    assert "costs" not in one.to_dict()
    assert SafetySpec.from_dict(one.to_dict()) == one


def test_thresholds_have_any_sign_where_the_bracket_allows_it():
    spec = SafetySpec(threshold=-3.0, violation_risk=RISK, guarantee="bracket")
    agent = make_agent(spec, growth=growth.additive(0.1, 2), direction="below", climb=None)
    given = treat(agent, 60, report=lambda cost: cost["glucose"])
    assert (given[-1].guarantee, agent.violations <= 12) == ("bracket", True)
    assert "P(cost < -3) <= 0.1" in given[-1].certificate["statement"]
    zero = SafetySpec(threshold=0, violation_risk=RISK, guarantee="bracket")
    with pytest.raises(
        InvalidInput, match=r"threshold = 0.0: must be > error = 0, for a relative bracket; use additive"
    ):
        make_agent(zero, growth=growth.relative(1, 1, floor=0))
    with pytest.raises(InvalidInput, match=r"threshold = 0.0: must be > 0"):
        SafetySpec(threshold=0, violation_risk=RISK, guarantee="conformal")
