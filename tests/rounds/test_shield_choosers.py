"""Which setting is given under HP-Shield's cap: requests, signs and targets. The cap itself stays the count rule's."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

from safedial import Agent, Dial, Features, InvalidInput
from tests.lanes import Lanes
from tests.rounds.shield_oracle import Past, is_largest, shortest_window
from tests.rounds.shield_world import BRACKET, SPEC, Patients, make_agent, shield


class Wishes(Patients):
    """Patients for whom the best setting is a share of the protocol's, and requests that know nothing of safety."""

    best = 0.5

    def reward(self, context, setting):
        return setting * (2.0 * self.best * context["dose"] - setting) + 0.1 * self.rng.standard_normal()

    def request(self, number):
        return float(self.rng.uniform(0.0, 3.0) * 1.01**number)


def live(agent, rounds, world, *, requests=False, reward=None):
    """Decide and report; the decisions with their costs."""
    lived = []
    for number in range(rounds):
        context = world.context()
        asked = {"proposal": world.request(number)} if requests else {}
        decision = agent.ask(context, **asked)
        cost = world.cost(context, decision.action)
        gain = (reward or world.reward)(context, decision.action)
        agent.tell(decision, reward=gain, cost=cost)
        lived.append((context, decision, cost, asked.get("proposal")))
    return lived


def past_of(lived, dial_high=20.0, start=0.25):
    def played(context):
        dose = context["dose"]
        return lambda scale: min(max(scale * dose, start * dose), dial_high)

    return [Past(decision.action, cost, played(context)) for context, decision, cost, _ in lived]


@pytest.mark.parametrize("chooser", ["request", "sign", "target"])
def test_whatever_is_chosen_the_cap_is_the_count_rule_s(chooser):
    agent, world = make_agent(options={"chooser": chooser, "climb": None}), Wishes()
    lived = live(
        agent, 90, world, requests=chooser == "request", reward=lambda context, a: a * (context["weight"] - 70)
    )
    past, checked = past_of(lived), 0
    for place, (context, decision, _, request) in enumerate(lived):
        assert decision.action <= decision.safe_action
        if request is not None:
            assert decision.action == min(request, decision.safe_action)
        size, rank = shortest_window(place, "0.1")
        scale = decision.safe_action / context["dose"]
        if rank and scale > 0.2501 and decision.safe_action < 20.0:
            window = past[place - size : place]
            assert is_largest(window, scale - 1e-11, BRACKET, threshold=2.0, rank=rank, near=1e-9)
            checked += 1
    assert checked > 25
    given = {decision.limit for _, decision, _, _ in lived}
    assert given & {"request", "start_only", "largest_reward"}


def test_a_request_may_lie_below_the_start_and_above_the_dial_and_is_floored_to_a_level():
    agent = make_agent(options={"chooser": "request"})
    context = Patients().context()
    asked = [agent.ask(context, proposal=proposal) for proposal in (0, 0.1, 900)]
    start = 0.25 * context["dose"]
    assert [each.action for each in asked] == [0.0, 0.1, pytest.approx(start)]
    assert [each.limit for each in asked] == ["request", "request", "shield_start"]
    assert asked[1].safe_action == pytest.approx(start)
    stepped = make_agent(options={"chooser": "request", "start_scale": 1.0}, dial=Dial(high=8, levels=[1, 2, 4, 8]))
    context = {"dose": 5.0, "weight": 70.0, "steep": 30.0}
    asked = stepped.ask_many([context] * 4, proposals=[0.5, 1.0, 3.9, 8.0])
    assert [each.action for each in asked] == [0.0, 1.0, 2.0, 4.0]
    assert [each.proposal_answer for each in asked] == ["lowered", "granted", "lowered", "lowered"]
    assert "Proposal: 3.9, lowered to 2, the dial's level below it." in asked[2].explain()


def test_a_decision_says_whether_its_proposal_was_granted_lowered_or_raised():
    agent = make_agent(options={"base": "proposal", "start_scale": 0.25})
    world, context = Wishes(), Patients().context()
    lowered = agent.ask(context, proposal=8.0)
    assert (lowered.proposal, lowered.proposal_answer, lowered.action) == (8.0, "lowered", 2.0)
    assert {name: lowered.certificate[name] for name in ("proposal", "proposal_answer")} == {
        "proposal": 8.0,
        "proposal_answer": "lowered",
    }
    agent.tell(lowered, reward=0.0, cost=0.1)
    for _ in range(60):
        decision = agent.ask(context, proposal=0.5)
        agent.tell(decision, reward=0.0, cost=world.cost(context, decision.action))
    assert decision.proposal_answer == "raised"
    assert decision.action > 0.5
    plain = make_agent().ask(context)
    assert (plain.proposal, plain.proposal_answer) == (None, "")
    assert "proposal" not in plain.certificate
    assert "Proposal" not in plain.explain()


def test_what_is_asked_of_a_request_and_what_is_not():
    agent, context = make_agent(options={"chooser": "request"}), Patients().context()
    for proposal, words in [
        (None, "proposal = None: is missing, and the chooser is 'request'"),
        ("3", "proposal = '3': must be a number"),
        (math.nan, "proposal = nan: must be a finite number"),
        (-0.5, "proposal = -0.5: must be at least 0, the dial's low end"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            agent.ask(context, proposal=proposal)
    assert agent.decisions == 0
    with pytest.raises(InvalidInput, match="is not this policy's base, nor a request"):
        make_agent().ask(context, proposal=1.0)
    for options, words in [
        ({"chooser": "request", "base": "proposal"}, "base = 'proposal': is the proposal, which is the request"),
        ({"chooser": "best"}, "chooser = 'best': must be one of largest, request, sign, target"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            shield(**options)
    with pytest.raises(InvalidInput, match=r"request = None: is missing, and the chooser is 'request'"):
        Lanes(shield(base=0, chooser="request"), SPEC, dim=3, lanes=(1,))
    with pytest.raises(InvalidInput, match=r"request = 0: is for simulations; a question brings one, as its proposal"):
        make_agent(options={"chooser": "request", "request": 0})


def test_low_requests_neither_open_the_climb_nor_close_it():
    agent, world = make_agent(options={"chooser": "request"}), Wishes()
    for _ in range(60):
        context = world.context()
        decision = agent.ask(context, proposal=20.0)
        agent.tell(decision, reward=0.0, cost=world.cost(context, decision.action))
    context = {"dose": 4.0, "weight": 70.0, "steep": 30.0}
    before = agent.preview(context, proposal=20.0).action
    for _ in range(10):
        decision = agent.ask(context, proposal=0.6 * before)
        agent.tell(decision, reward=0.0, cost=world.cost(context, decision.action))
    after = agent.preview(context, proposal=20.0)
    assert 0.7 * before < after.action <= 1.25 * before * (1 + 1e-9)


def test_sign_refuses_where_no_benefit_is_expected_and_gives_the_start():
    agent, world = make_agent(options={"chooser": "sign"}), Wishes()
    live(agent, 80, world, reward=lambda context, a: a * ((context["weight"] - 70.0) + world.rng.standard_normal()))
    good = agent.preview({"dose": 4.0, "weight": 95.0, "steep": 30.0})
    bad = agent.preview({"dose": 4.0, "weight": 45.0, "steep": 30.0})
    assert good.action == good.safe_action > 2.0
    assert (bad.action, bad.limit) == (pytest.approx(1.0), "start_only")
    assert bad.safe_action == pytest.approx(good.safe_action)
    assert bad.certificate["reward_index"] < 0.0 < good.certificate["reward_index"]
    assert "given is less, which is safe too" in bad.certificate["statement"]
    json.dumps(bad.certificate)


def test_target_gives_the_setting_of_the_largest_reward_under_the_cap():
    agent, world = make_agent(options={"chooser": "target"}), Wishes()
    live(agent, 29, world)
    cap = agent.preview(world.context())
    assert cap.action == cap.safe_action
    live(agent, 80, world)
    for dose in (2.5, 4.0, 5.5):
        decision = agent.preview({"dose": dose, "weight": 70.0, "steep": 30.0})
        assert decision.action == pytest.approx(0.5 * dose, rel=0.15 if dose == 4.0 else 0.4)
        assert decision.guarantee == "bracket"
        level, slope, bend = agent._rounds.learning._state.rewards.coef.reshape(3, -1) @ np.append(
            1.0, decision.context
        )
        settings = np.linspace(0.25 * dose, decision.safe_action, 65)
        best = settings[np.argmax(level + slope * settings + bend * settings**2)]
        assert decision.action == pytest.approx(best, abs=1e-9)
        assert decision.action == decision.safe_action or decision.limit == "largest_reward"
    world.best = 9.0
    live(agent, 80, world)
    high = agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0})
    assert high.action == high.safe_action


def test_target_on_levels_gives_one_of_them():
    dial = Dial(high=8.0, levels=[1.0, 2.0, 3.0, 4.0, 8.0])
    agent, world = make_agent(options={"chooser": "target", "start_scale": 0.5}, dial=dial), Wishes()
    live(agent, 100, world)
    assert agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0}).action == 2.0


@pytest.mark.parametrize("options", [{"chooser": "sign"}, {"chooser": "target"}, {"chooser": "request"}])
def test_saved_choosers_go_on_alike(options, tmp_path):
    requests = options["chooser"] == "request"
    agent, world = make_agent(options=options), Wishes()
    live(agent, 75, world, requests=requests)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    pickled = pickle.loads(pickle.dumps(agent))  # noqa: S301 -- it was written just before
    given = []
    for each in (agent, loaded, pickled):
        lived = live(each, 30, copy.deepcopy(world), requests=requests)
        given.append([decision.action for _, decision, _, _ in lived])
    assert given[0] == given[1] == given[2]


def test_previews_fit_the_chooser_ahead_and_change_nothing():
    agent, world = make_agent(options={"chooser": "target"}), Wishes()
    for _ in range(60):
        context = world.context()
        seen, again = agent.preview(context), agent.preview(context)
        decision = agent.ask(context)
        assert seen.action == again.action == decision.action
        agent.tell(decision, reward=world.reward(context, decision.action), cost=world.cost(context, decision.action))


def test_rounds_that_were_given_nothing_tell_no_reward():
    agent = Agent(2, SPEC, policy=shield(base="dose", chooser="sign", start_scale=0.5), dial=Dial(high=20),
                  features=Features(names=("dose", "weight")))  # fmt: skip
    decision = agent.ask({"dose": 4.0, "weight": 1.0})
    agent.tell(decision, applied_action=0.0, reward=5.0, cost=0.0)
    rewards = agent._rounds.learning._state.rewards
    assert (rewards.count, rewards.fitted) == (0, 0)


@pytest.mark.parametrize("chooser", ["largest", "request"])
def test_a_reward_may_be_left_out_where_nothing_is_chosen_by_it(chooser, tmp_path):
    """0 is recorded then."""
    given = {"proposal": 3.0} if chooser == "request" else {}
    for name, reward in (("silent", {}), ("told", {"reward": 0.0})):
        agent = make_agent(options={"chooser": chooser})
        agent.tell(agent.ask({"dose": 4.0, "weight": 70.0, "steep": 0.0}, **given), cost=1.0, **reward)
        agent.save(tmp_path / f"{name}.npz")
    assert (tmp_path / "silent.npz").read_bytes() == (tmp_path / "told.npz").read_bytes()


@pytest.mark.parametrize("chooser", ["sign", "target"])
def test_a_reward_must_be_reported_where_it_is_learned_from(chooser):
    agent = make_agent(options={"chooser": chooser})
    decision = agent.ask({"dose": 4.0, "weight": 70.0, "steep": 0.0})
    with pytest.raises(InvalidInput, match="reward = None: must be reported: hp_shield learns from it"):
        agent.tell(decision, cost=1.0)
