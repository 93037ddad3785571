"""HP-Shield's groups, within which rounds are counted, and its adaptive level."""

import json
import math
import pickle

import numpy as np
import pytest

from safedial import Agent, Features, InvalidInput
from tests.lanes import Lanes
from tests.rounds.shield_oracle import Past, is_largest, shortest_window
from tests.rounds.shield_world import BRACKET, DIAL, SPEC, Patients, make_agent, shield

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
        decision = agent.ask(context, **asked)
        cost = world.cost(context, decision.action)
        agent.tell(decision, reward=0.0, cost=cost)
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
            assert (decision.guarantee, decision.limit) == ("declared", "shield_start")
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
    decision = agent.ask({"dose": 4.0, "ward": 1.0})
    told = decision.certificate
    json.dumps(told)
    assert told["group"] == "1"
    assert told["statement"].startswith("P(cost > 2) <= 0.1 in this round, within its group 1: of the latest ")
    assert " rounds of group 1 with known outcomes" in told["statement"]
    assert any("the guarantee is within each group" in line for line in told["assumptions"])
    new = agent.preview({"dose": 4.0, "ward": 7.0})
    assert "0 rounds of group 7 so far, too few" in new.explain()
    assert "7" not in [group.name for group in agent._rounds.learning._state.groups]


@pytest.mark.parametrize(
    "options", [{}, {"learned": True, "lag": 1}, {"group": lambda raw: "old" if raw["ward"] else 0}]
)
def test_saved_groups_go_on_alike(options, tmp_path):
    agent, world = grouped(**options), Wards(rare=0.3)
    live(agent, 70, world)
    waiting, left = agent.ask(world.context()), agent.ask(world.context())
    agent.tell(left, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
    agent.save(tmp_path / "agent")
    policy = agent.policy if "group" in options else None
    agents = [agent, Agent.load(tmp_path / "agent", policy=policy)]
    if policy is None:
        agents.append(pickle.loads(pickle.dumps(agent)))  # noqa: S301 -- it was written just before
    raw = dict(zip(NAMES.names, waiting.context.tolist(), strict=True))
    for each in agents:
        each.tell(context=raw, applied_action=waiting.action, reward=0.0, cost=1.0, round=waiting.round)
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


def test_groups_that_cannot_be_are_refused():
    for options, words in [
        ({"group": 3.5}, "group = 3.5: must be a feature's name, a column's number or a function of the context"),
        ({"regressor": object()}, "is for a learned base; state learned=True"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            shield(**options)
    with pytest.raises(InvalidInput, match="group = 'age': must be the name of a feature; the features are dose"):
        grouped(group="age")
    for number, words in ((7, "must be a column of a context of dimension 2"), (1, "must be a name where there are")):
        with pytest.raises(InvalidInput, match=f"group = {number}: {words}"):
            grouped(group=number)
    with pytest.raises(InvalidInput, match=r"\['ward'\]: are named, and only an Agent has names"):
        Lanes(shield(base=0, group="ward"), SPEC, dim=3, lanes=(1,))
    with pytest.raises(InvalidInput, match="group = 3: must be a column of a context of dimension 3"):
        Lanes(shield(base=0, group=3), SPEC, dim=3, lanes=(1,))
    context = {"dose": 4.0, "ward": 1.0}
    with pytest.raises(InvalidInput, match=r"group\(context\) = None: must be a text or a number"):
        grouped(group=lambda raw: None).ask(context)
    with pytest.raises(InvalidInput, match=r"group: your function failed on this context \(KeyError: 'age'\)"):
        grouped(group=lambda raw: raw["age"]).ask(context)


def test_the_level_of_late_and_raised_rounds_is_bounded_for_any_sequence():
    """The recursion against its bound on adversarial sequences, with up to four rounds open at once; a tenth of the
    rounds is raised above the advice, and does not count.
    """
    rng = np.random.default_rng(1)
    for _ in range(10):
        agent, waiting = make_agent(options={"adapt": 0.3, "climb": None}), []
        for _ in range(100):
            waiting.append(agent.ask({"dose": 4.0, "weight": 70.0, "steep": 30.0}))
            if agent.alarmed:
                agent.resume()
            while len(waiting) > 3 * rng.random():
                decision = waiting.pop(int(rng.integers(len(waiting))))
                raised = rng.random() < 0.1
                over = raised or (decision.numbers["level"] > 0.0 and rng.random() < 0.8)
                applied = min(20.0, 1.5 * decision.action) if raised else decision.action
                agent.tell(decision, applied_action=applied, reward=0.0, cost=9.0 if over else 0.1)
        said = agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0}).certificate["adaptive"]
        assert said["exceeded"] <= said["bound"] - said["open"] + 1e-9
        assert said["known"] < 100


def test_a_saved_level_goes_on_alike(tmp_path):
    agent, world = make_agent(options={"adapt": 0.1, "lag": 1}), Patients()
    for _ in range(60):
        context = world.context()
        decision = agent.ask(context)
        agent.tell(decision, reward=0.0, cost=world.cost(context, decision.action))
    context = world.context()
    waiting = agent.ask_many([context] * 2)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    raw = dict(zip(("dose", "weight", "steep"), (context[name] for name in ("dose", "weight", "steep")), strict=True))
    for each in (agent, loaded):
        for decision in waiting:
            each.tell(context=raw, applied_action=decision.action, reward=0.0, cost=9.0, round=decision.round)
    one, two = (each.preview(context) for each in (agent, loaded))
    assert one.certificate == two.certificate
    assert one.numbers["level"] < 0.1
