"""HP-Shield's labels: a level for each unit, and rounds that are counted within groups."""

import json
import math
import pickle

import numpy as np
import pytest

from safedial import Agent, Features, InvalidInput, growth
from safedial.decision.learners.shield_levels import Levels
from tests.conftest import make_spec
from tests.decision.shield_oracle import Past, is_largest, shortest_window
from tests.decision.shield_world import BRACKET, DIAL, SPEC, Patients, make_agent, shield

NAMES = Features(names=("dose", "ward"))


class Wards:
    """Two kinds of contexts: common ones, and rare ones that tolerate a third of it."""

    def __init__(self, seed=0, rare=0.1):
        self.rng, self.rare = np.random.default_rng(seed), rare

    def context(self):
        return {"dose": float(self.rng.uniform(2.0, 6.0)), "ward": float(self.rng.random() < self.rare)}

    def cost(self, context, setting):
        tolerance = context["dose"] * math.exp(0.2 * self.rng.standard_normal()) * (0.33 if context["ward"] else 1.2)
        return 2.0 * setting / tolerance


def grouped(**options):
    given = {"base": "dose", "group": "ward", "start_scale": 0.1} | options
    return Agent(2, SPEC, policy=shield(**given), dial=DIAL, features=NAMES)


def live(agent, rounds, world, **asked):
    lived = []
    for _ in range(rounds):
        context = world.context()
        decision = agent.decide(context, **asked)
        cost = world.cost(context, decision.action)
        agent.update(decision, reward=0.0, cost=cost)
        lived.append((context, decision, cost))
    return lived


def test_each_group_counts_its_own_rounds_by_brute_force():
    lived = live(grouped(climb=None), 120, Wards(rare=0.4))
    past, checked = {0.0: [], 1.0: []}, set()
    for number, (context, decision, cost) in enumerate(lived, start=1):
        own, dose = past[context["ward"]], context["dose"]
        size, rank = shortest_window(len(own), "0.1")
        scale = decision.action / dose
        if not rank:
            assert decision.action == pytest.approx(0.1 * dose)
            assert (decision.promise, decision.limit) == ("declared", "shield_start")
        elif scale > 0.101 and decision.action < 20.0:
            window = [each for _, each in own[len(own) - size :]]
            assert is_largest(window, scale - 1e-11, BRACKET, threshold=2.0, rank=rank, near=1e-9)
            told = decision.certificate["count"]["exceeding"]
            assert set(told) <= {place for place, _ in own[len(own) - size :]}
            checked.add((context["ward"], size))
        own.append((number, Past(decision.action, cost, lambda at, dose=dose: min(max(at, 0.1) * dose, 20.0))))
    assert checked >= {(0.0, 9), (0.0, 19), (1.0, 9), (1.0, 19)}


def test_a_rare_fragile_group_keeps_its_own_risk_which_pooled_rounds_do_not():
    """Runs of 60 rounds at a risk of 0.1: how often members of the rare group exceed, after its start."""
    over = {"ward": [], None: []}
    for group, found in over.items():
        for seed in range(12):
            agent = grouped(group=group, climb=None)
            lived = live(agent, 60, Wards(seed, rare=0.2))
            found += [cost > 2.0 for context, decision, cost in lived[20:] if context["ward"]]
    assert np.mean(over[None]) > 0.25
    assert np.mean(over["ward"]) < 0.12


def test_the_certificate_names_the_group_and_counts_within_it():
    agent = grouped()
    live(agent, 80, Wards(rare=0.3))
    decision = agent.decide({"dose": 4.0, "ward": 1.0})
    told = decision.certificate
    json.dumps(told)
    assert told["group"] == "1"
    assert told["statement"].startswith("P(cost > 2) <= 0.1 in this round, within its group 1: of the latest ")
    assert " rounds of group 1 with known outcomes" in told["statement"]
    assert any("the promise is within each group" in line for line in told["assumptions"])
    new = agent.preview({"dose": 4.0, "ward": 7.0})
    assert "0 rounds of group 7 so far, too few" in new.explain()
    assert "7" not in agent._learner.histories


@pytest.mark.parametrize(
    "options", [{}, {"learned": True, "lag": 1}, {"group": lambda raw: "old" if raw["ward"] else 0}]
)
def test_saved_groups_go_on_alike(options, tmp_path):
    agent, world = grouped(**options), Wards(rare=0.3)
    live(agent, 70, world)
    waiting, left = agent.decide(world.context()), agent.decide(world.context())
    agent.update(left, action=0.0, reward=0.0, cost=0.0, unrelated=True)
    agent.save(tmp_path / "agent")
    policy = agent.policy if "group" in options else None
    agents = [agent, Agent.load(tmp_path / "agent", policy=policy)]
    if policy is None:
        agents.append(pickle.loads(pickle.dumps(agent)))  # noqa: S301 -- it was written just before
    raw = dict(zip(NAMES.names, waiting.context.tolist(), strict=True))
    for each in agents:
        each.update(context=raw, action=waiting.action, reward=0.0, cost=1.0, round=waiting.round)
    given = [[decision.action for _, decision, _ in live(each, 40, Wards(5))] for each in agents]
    assert all(each == given[0] for each in given)
    told = [each.preview({"dose": 4.0, "ward": 1.0}).certificate for each in agents]
    assert all(each == told[0] for each in told)


def test_a_loaded_function_that_remembers_or_is_another_one_is_refused(tmp_path):
    calls = iter(range(1000))
    live(remembering := grouped(group=lambda raw: next(calls) // 12), 20, Wards())
    remembering.save(tmp_path / "remembering")
    with pytest.raises(InvalidInput, match=r"group\(context\) = '1': was '0' in round 1; .* on the context alone"):
        Agent.load(tmp_path / "remembering", policy=remembering.policy)
    live(agent := grouped(group=None, base=lambda raw: raw["dose"]), 5, Wards())
    agent.save(tmp_path / "agent")
    policy = shield(**{**agent.policy.options, "base": lambda raw: raw["dose"] + 1.0})
    with pytest.raises(InvalidInput, match=r"base\(context\) = .*: was 4.\d+ in round 1"):
        Agent.load(tmp_path / "agent", policy=policy)


def test_groups_and_units_that_cannot_be_are_refused():
    for options, words in [
        ({"group": 3.5}, "group = 3.5: must be a feature's name, a column's number or a function of the context"),
        ({"unit": ""}, "unit = '': must say what labels name"),
        ({"unit": "patient"}, "unit = 'patient': keeps a level for each label, and the level does not adapt; state"),
        ({"regressor": object()}, "is for a learned base; state learned=True"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            shield(**options)
    with pytest.raises(InvalidInput, match="group = 'age': must be the name of a feature; the features are dose"):
        grouped(group="age")
    for number, words in ((7, "must be a column of a context of dimension 2"), (1, "must be a name where there are")):
        with pytest.raises(InvalidInput, match=f"group = {number}: {words}"):
            grouped(group=number)
    with pytest.raises(InvalidInput, match="unit = 1: must be a word: a column is for simulations; unit='patient'"):
        make_agent(options={"unit": 1, "adapt": 0.1})
    for options, name in (({"unit": "patient", "adapt": 0.1}, "patient"), ({"group": "ward"}, "ward")):
        with pytest.raises(InvalidInput, match=rf"\['{name}'\]: are named, and only an Agent has names"):
            shield(base=0, **options).init(3, ridge=1.0)
    with pytest.raises(InvalidInput, match="group = 3: must be a column of a context of dimension 3"):
        shield(base=0, group=3).init(3, ridge=1.0)
    context = {"dose": 4.0, "ward": 1.0}
    with pytest.raises(InvalidInput, match=r"group\(context\) = None: must be a text or a number"):
        grouped(group=lambda raw: None).decide(context)
    with pytest.raises(InvalidInput, match=r"group: your function failed on this context \(KeyError: 'age'\)"):
        grouped(group=lambda raw: raw["age"]).decide(context)
    agent = make_agent(options={"unit": "patient", "adapt": 0.1})
    context = Patients().context()
    for label, words in [
        (None, "unit = None: is missing, and levels are kept for each patient"),
        (17, "unit = 17: must be a text that is not empty"),
        ("", "unit = '': must be a text"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            agent.decide(context, unit=label)
        with pytest.raises(InvalidInput, match="row 1: " + words):
            agent.decide_many([context] * 2, units=["p1", label])
    assert agent.decisions == 0
    with pytest.raises(InvalidInput, match="unit = 'p1': is not for this policy"):
        make_agent().decide(context, unit="p1")
    with pytest.raises(InvalidInput, match="unit = 'p1': is not for hp_probe"):
        Agent(2, make_spec()).decide([0.1, 0.1], unit="p1")


def test_each_unit_has_its_own_level_and_long_run_bound_even_if_one_is_adversarial():
    """p1 exceeds whenever more than the start is given; p2 never does. The recursion is repeated in plain lines."""
    rate, levels = 0.2, {"p1": 0.1, "p2": 0.1}
    agent = make_agent(options={"unit": "patient", "adapt": rate, "growth": growth.additive(0.0, 0.05)})
    counts = {label: [0, 0, 0] for label in levels}
    rng = np.random.default_rng(0)
    for _ in range(150):
        label = "p1" if rng.random() < 0.3 else "p2"
        context = {"dose": 4.0, "weight": 70.0, "steep": 30.0}
        decision = agent.decide(context, unit=label)
        exceeds = label == "p1" and decision.action > 1.0
        agent.update(decision, reward=0.0, cost=5.0 if exceeds else 0.0)
        levels[label] = min(0.1, levels[label] + rate * (0.1 - exceeds))
        counts[label][0] += 1
        counts[label][1] += exceeds
        if agent.alarmed:
            agent.resume()
    for label, (known, exceeded, _) in counts.items():
        decision = agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0}, unit=label)
        told = decision.certificate["adaptive"]
        assert decision.prediction.level == pytest.approx(levels[label])
        assert (told["unit"], told["known"], told["exceeded"], told["open"]) == (label, known, exceeded, 0)
        assert told["bound"] == pytest.approx(0.1 * known + 0.1 / rate + 0.9)
        assert exceeded <= told["bound"]
        assert f"of {known} known rounds of patient {label} {exceeded} exceeded" in decision.explain()
    assert counts["p1"][1] > 0
    assert agent.preview(context, unit="p2").action > agent.preview(context, unit="p1").action
    assert agent.preview(context, unit="p3").prediction.level == 0.1


def test_the_levels_of_late_and_raised_rounds_are_bounded_for_any_sequence():
    """The recursion against its bound on adversarial sequences, with up to four rounds of a label open at once."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        levels, open_rounds = Levels(0.1, 0.3), []
        for place in range(200):
            label = str(rng.integers(2))
            levels.open(label)
            open_rounds.append((place, levels.at(label)[0] <= 0.0))
            while len(open_rounds) > 3 * rng.random():
                told, at_start = open_rounds.pop(int(rng.integers(len(open_rounds))))
                outcome = None if rng.random() < 0.1 else bool(not at_start and rng.random() < 0.8)
                levels.tell(told, outcome, at_start=at_start)
        for label in ("0", "1"):
            _, tally = levels.at(label)
            bound = 0.1 * tally.followed + 0.1 / 0.3 + 0.9 * (tally.open_at_once + tally.at_start)
            assert tally.exceeded <= bound + 1e-9


def test_saved_levels_go_on_alike(tmp_path):
    agent, world = make_agent(options={"unit": "patient", "adapt": 0.1, "lag": 1}), Patients()
    for number in range(60):
        context = world.context()
        decision = agent.decide(context, unit=f"p{number % 3}")
        agent.update(decision, reward=0.0, cost=world.cost(context, decision.action))
    context = world.context()
    waiting = agent.decide_many([context] * 2, units=["p0", "p9"])
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    raw = dict(zip(("dose", "weight", "steep"), (context[name] for name in ("dose", "weight", "steep")), strict=True))
    for each in (agent, loaded):
        for decision in waiting:
            each.update(context=raw, action=decision.action, reward=0.0, cost=9.0, round=decision.round)
    for label in ("p0", "p1", "p9", "new"):
        one, two = (each.preview(context, unit=label) for each in (agent, loaded))
        assert one.certificate == two.certificate
