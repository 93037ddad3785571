import json
import math
from collections import deque

import numpy as np
import pandas
import pytest

from safedial import Agent, Dial, Dose, Features, InvalidInput, hill, logistic, make_policy, power, tabulated
from tests.conftest import make_spec


def trained(**options):
    spec = options.pop("spec", make_spec(cost_noise=0.2, reward_noise=0.2))
    agent = Agent(2, spec, **options)
    rng = np.random.default_rng(0)
    for _ in range(200):
        context = rng.uniform(-0.6, 0.6, 2)
        decision = agent.ask(context)
        share = decision.rules.dial.action(decision.action)
        reward = decision.rules.dose.reward.effect(share) * (context @ [0.6, 0.2] + rng.normal(0, spec.reward_noise))
        cost = decision.rules.dose.cost.effect(share) * (context @ [0.3, 0.5] + rng.normal(0, spec.cost_noise))
        agent.tell(context, decision.action, float(reward), float(cost))
    return agent


def snapshot(agent):
    arrays = {name: value.copy() for name, value in agent._rounds.learning.state().items()}
    coin = agent._rng.bit_generator.state["state"]["state"]
    return arrays, agent.decisions, list(agent._rounds.open), agent.evidence, coin


def assert_unchanged(agent, before):
    after = snapshot(agent)
    assert after[1:] == before[1:]
    for name, value in after[0].items():
        np.testing.assert_array_equal(value, before[0][name])


BAD_CONTEXTS = [
    [math.nan, 0.1],
    [0.1],
    [[0.1, 0.2]],
    ["0.1", "0.2"],
    [0.9, 0.9],
    [0.1, [0.2]],
    [0.1, None],
    0.5,
    {"a": 1},
    [10**400, 0],
    [10**5000, 0],
    np.array([True, False]),
    deque([True, 0.0]),
    [np.array(True), 0.0],
    np.ma.masked_array([0.1, 0.2], mask=[True, False]),
    None,
]


@pytest.mark.parametrize("context", BAD_CONTEXTS, ids=range(len(BAD_CONTEXTS)))
def test_a_bad_context_is_refused_and_changes_nothing(context):
    agent = trained(policy=make_policy("thompson"))
    before = snapshot(agent)
    for call in (
        lambda: agent.ask(context),
        lambda: agent.ask_many([[0.1, 0.1], context]),
        lambda: agent.tell(context, 0.1, 0.1, 0.1),
        lambda: agent.tell_many([[0.1, 0.1], context], [0.1, 0.1], [0.1, 0.1], [0.1, 0.1]),
    ):
        with pytest.raises(InvalidInput, match="context"):
            call()
    assert_unchanged(agent, before)


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        ((math.nan, 0.1, 0.1), "action"),
        ((1.5, 0.1, 0.1), "action"),
        ((-0.1, 0.1, 0.1), "action"),
        ((True, 0.1, 0.1), "action"),
        ((0.1, "0.1", 0.1), "reward"),
        ((0.1, None, 0.1), "reward"),
        ((0.1, 10**5000, 0.1), "reward"),
        ((0.1, 0.1, math.nan), "cost"),
        ((1e-200, 1e200, 0.1), "reward"),
        ((1e-200, 0.0, 1e200), "cost"),
        ((0.5, 1e200, 0.0), "reward"),
    ],
)
def test_a_bad_outcome_is_refused_and_changes_nothing(outcome, name):
    agent = trained()
    before = snapshot(agent)
    with pytest.raises(InvalidInput, match=name):
        agent.tell([0.1, 0.1], *outcome)
    with pytest.raises(InvalidInput, match=name):
        agent.tell_many([[0.2, 0.1], [0.1, 0.1]], *([0.1, value] for value in outcome))
    assert_unchanged(agent, before)


@pytest.mark.parametrize("baseline", [math.nan, "1", None, False, [], np.array([0.1])])
def test_a_bad_or_missing_baseline_cost_is_refused_and_never_taken_for_zero(baseline):
    agent = trained()
    before = snapshot(agent)
    with pytest.raises(InvalidInput, match="baseline_cost"):
        agent.ask([0.1, 0.1], baseline_cost=baseline)
    with pytest.raises(InvalidInput, match="baseline_cost"):
        agent.tell([0.1, 0.1], 0.1, 0.1, 0.1, baseline_cost=baseline)
    assert_unchanged(agent, before)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": 2.0}, "dim"),
        ({"spec": "safe"}, "spec"),
        ({"spec": make_spec(threshold=[0.1, 0.2])}, "threshold"),
        ({"policy": "hp_usb"}, "hp_ucb"),
        ({"policy": make_policy("hp_ucb", radius="paper"), "dim": 1}, "radius"),
        ({"features": Features(names=("a", "b", "c"))}, "dim"),
        ({"policy": 3}, "policy"),
        ({"policy": make_policy("epsilon_greedy", learn_from="exploring")}, "learn_from"),
        ({"dose": "hill"}, "dose"),
        ({"dial": "knob"}, "dial"),
        ({"fallback_action": 2.0}, "fallback_action"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_an_agent_that_cannot_be_is_refused(arguments, name):
    arguments = {"dim": 2, "spec": make_spec()} | arguments
    with pytest.raises(InvalidInput, match=name):
        Agent(arguments.pop("dim"), arguments.pop("spec"), **arguments)


def test_many_decisions_and_updates_equal_one_at_a_time():
    one, many = trained(policy=make_policy("thompson")), trained(policy=make_policy("thompson"))
    contexts = np.random.default_rng(1).uniform(-0.5, 0.5, (20, 2))
    assert one.dim == contexts.shape[1]
    singles = [one.ask(context, baseline_cost=0.01) for context in contexts]
    batch = many.ask_many(contexts, baseline_costs=[0.01] * 20)
    assert [each.action for each in singles] == [each.action for each in batch]
    actions = [each.action for each in batch]
    for context, action in zip(contexts, actions, strict=True):
        one.tell(context, action, 0.1, 0.05, baseline_cost=0.01)
    many.tell_many(contexts, actions, [0.1] * 20, [0.05] * 20, baseline_costs=[0.01] * 20)
    assert_unchanged(many, snapshot(one))


@pytest.mark.parametrize("curve", [power(2.0), logistic(0.4, 6.0)])
@pytest.mark.parametrize("dial", [Dial(), Dial(low=-3.3, high=7.1)])
def test_whatever_the_units_the_intensity_is_never_above_the_safe_one(curve, dial):
    agent = trained(dose=Dose(hill(0.5), curve), dial=dial)
    for context in np.random.default_rng(2).uniform(-0.6, 0.6, (100, 2)):
        decision = agent.ask(context)
        assert dial.low <= decision.action <= decision.safe_action <= dial.high
        assert decision.intensity <= decision.safe_intensity
        assert curve.effect(dial.action(decision.safe_action)) <= decision.safe_intensity


def test_levels_are_rounded_down():
    agent = trained(
        dial=Dial(high=20, unit="mg", levels=[5, 10, 20]), spec=make_spec(cost_noise=0.05, reward_noise=0.05)
    )
    decisions = [agent.ask(context) for context in np.random.default_rng(3).uniform(-0.6, 0.6, (200, 2))]
    assert {decision.action for decision in decisions} <= {0.0, 5.0, 10.0, 20.0}
    assert any(decision.limit == "level" for decision in decisions)


def test_raw_features_by_name_are_centred_scaled_and_given_an_intercept():
    features = Features(names=("age", "weight"), center=(50, 70), scale=(60, 80), intercept=True)
    agent = Agent(3, make_spec(context_bound=1.5), features=features)
    by_name = agent.ask({"weight": 90, "age": 65})
    by_order = Agent(3, make_spec(context_bound=1.5), features=features).ask([65, 90])
    assert by_name.numbers == by_order.numbers
    assert by_name.numbers["norm"] == pytest.approx(math.sqrt(0.25**2 + 0.25**2 + 1))


def test_a_baseline_above_the_threshold_advises_zero_and_says_why():
    decision = trained().ask([0.1, 0.1], baseline_cost=0.7)
    assert (decision.action, decision.certified, decision.limit) == (0.0, False, "no_certified_action")
    assert "WARNING" in decision.explain()
    assert decision.certificate["holds"] is False


def test_sensor_noise_weights_what_is_learned():
    spec = make_spec(cost_sensor_noise=0.05, cost_noise=0.2, reward_noise=0.2)
    low, high = Agent(2, spec), Agent(2, spec)
    low.tell([0.5, 0.1], 0.01, 0.0, 0.0)
    high.tell([0.5, 0.1], 0.9, 0.0, 0.0)
    assert low.ask([0.5, 0.1]).numbers["width"] > high.ask([0.5, 0.1]).numbers["width"]


def test_a_broken_guarantee_raises_the_alarm_and_every_decision_says_so():
    agent = trained()
    assert not agent.alarmed
    rounds = 0
    while not agent.alarmed:
        agent.tell(agent.ask([0.1, 0.1]), reward=0.1, cost=0.51)
        rounds += 1
    assert rounds <= 12
    assert agent.evidence >= 100
    decision = agent.ask([0.1, 0.1])
    assert (decision.action, decision.certified, decision.limit) == (0.0, False, "alarm")
    assert decision.certificate["holds"] is False
    agent.resume()
    assert not agent.alarmed
    assert agent.ask([0.1, 0.1]).action > 0


def test_data_that_contradict_the_norms_are_flagged():
    agent = Agent(2, make_spec(cost_noise=0.01, reward_noise=0.01))
    for _ in range(200):
        agent.tell([0.5, 0.1], 1.0, 0.1, -3.0)
    decision = agent.ask([0.5, 0.1])
    assert (decision.action, decision.limit, decision.certificate["holds"]) == (0.0, "assumption_broken", False)


@pytest.mark.parametrize("name", ["hp_ucb", "hp_probe", "epsilon_greedy", "thompson", "fixed", "on_expectation"])
def test_the_certificate_is_enough_to_recompute_the_action_by_hand(name):
    agent = trained(policy=name)
    for context in np.random.default_rng(4).uniform(-0.6, 0.6, (40, 2)):
        facts = agent.ask(context).certificate
        load = facts["cost_upper"] + facts["noise_margin"]
        safe = 1.0 if load <= 0 else min(1.0, (facts["spec"]["threshold"] - facts["baseline_cost"]) / load)
        assert facts["safe_intensity"] == pytest.approx(safe, rel=1e-12)
        assert facts["safe_action"] == pytest.approx(safe, rel=1e-12)
        model, spec = facts["model"], facts["spec"]
        volume = model["log_det"] + 2 * math.log(1 / spec["estimation_risk"])
        radius = math.sqrt(spec["cost_noise"] ** 2 * volume + spec["ridge"] * spec["coefficient_bound"] ** 2)
        if name != "fixed":
            upper = model["cost"] + radius * model["width"]
            if facts["radius_name"] == "self-normalised":
                noise, best = spec["cost_noise"] * math.sqrt(volume), facts["self_normalised"]
                upper = best["cost"] + noise * best["width"] + spec["coefficient_bound"] * best["miss"]
                radius = noise + math.sqrt(spec["ridge"]) * spec["coefficient_bound"]
                upper = min(upper, model["cost"] + radius * model["width"])
            assert facts["radius"] == pytest.approx(radius, rel=1e-12)
            upper = min(upper, spec["coefficient_bound"] * model["context_norm"])
            assert facts["cost_upper"] == pytest.approx(upper, rel=1e-12)
        index = facts["reward_index"]
        played = {"cost_bound": safe, "full_dose": safe, "no_expected_benefit": 0.0}.get(facts["limit"])
        if played is not None:
            assert facts["action"] == pytest.approx(played, rel=1e-12)
        elif facts["limit"] == "probe":
            assert index < 0
        else:
            assert facts["limit"] == ("mean_bound" if name == "on_expectation" else "exploration")


@pytest.mark.parametrize("threshold", [0.5, 6.0])
def test_a_certificate_is_plain_json_at_full_dose_too(threshold):
    curve = tabulated([0, 0.5, 1], [0, 0.3, 1])
    agent = Agent(2, make_spec(threshold=threshold), dose=curve, seed=np.int64(3))
    decision = agent.ask([0.6, 0.3])
    assert json.loads(json.dumps(decision.certificate))["action"] == decision.action
    assert isinstance(decision.intensity, float)
    assert (decision.action == 1.0) == (threshold == 6.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda agent: agent.ask({"age": 65}), "lacks the features weight"),
        (lambda agent: agent.ask({"age": 65, "weight": 80, "height": 1}), "has unknown features"),
        (lambda agent: agent.ask({"age": math.nan, "weight": 70}), "'age'"),
        (lambda agent: agent.ask({"age": 500, "weight": 70}), "'age'"),
        (lambda agent: agent.ask_many([[50, 70], [50, math.inf]]), "row 1.*'weight'"),
        (lambda agent: agent.ask_many([[50, 70]], baseline_costs=[0.1, 0.2]), "baseline_costs"),
        (lambda agent: agent.ask_many(0.5), "contexts"),
        (lambda agent: agent.tell_many([[50, 70]] * 2, [0.1, 1.5], [0, 0], [0, 0]), "row 1.*action"),
        (lambda agent: agent.tell_many([[50, 70]], [0.1], [0.1, 0.2], [0.1]), "rewards"),
        (lambda agent: agent.tell_many([[50, 70]], 0.1, [0.1], [0.1]), "actions"),
        (lambda agent: Agent(2, make_spec()).ask({"age": 1}), "Features"),
        (lambda agent: Agent(2, make_spec()).ask(["a", 1]), r"context\[0\] = 'a'"),
    ],
)
def test_bad_rows_and_features_are_refused_with_their_place(call, words):
    agent = Agent(2, make_spec(), features=Features(names=("age", "weight"), center=(50, 70), scale=(60, 80)))
    with pytest.raises(InvalidInput, match=words):
        call(agent)


def test_an_unmeasured_violation_does_not_count_and_a_round_that_was_not_certified_proves_nothing():
    """Each of 40 agents alarms falsely with probability at most 0.02; the seeds are fixed."""
    rng = np.random.default_rng(0)
    for number in range(20):
        true = Agent(2, make_spec(threshold_on="true", cost_sensor_noise=0.5, cost_noise=0.3), seed=number)
        hot = Agent(2, make_spec(cost_noise=0.3), seed=number)
        for step in range(200):
            context = rng.uniform(-0.6, 0.6, 2)
            decision = true.ask(context)
            cost = decision.intensity * (context @ [0.3, 0.5] + rng.normal(0, 0.3)) + rng.normal(0, 0.5)
            true.tell(context, decision.action, 0.0, float(cost))
            baseline = 0.6 if step % 10 == 0 else 0.0
            decision = hot.ask(context, baseline_cost=baseline)
            cost = baseline + decision.intensity * (context @ [0.3, 0.5] + rng.normal(0, 0.3))
            hot.tell(context, decision.action, 0.0, float(cost), baseline_cost=baseline)
        assert not true.alarmed
        assert not hot.alarmed


def test_a_sensor_that_hides_a_broken_true_cost_is_still_caught():
    agent = Agent(2, make_spec(threshold_on="true", cost_sensor_noise=0.1))
    for _ in range(30):
        agent.tell(agent.ask([0.1, 0.1]), reward=0.0, cost=2.0)
    assert agent.alarmed


def test_the_baseline_policy_is_not_watched_and_fixed_learns_nothing():
    expected, fixed = Agent(2, make_spec(), policy="on_expectation"), Agent(2, make_spec(), policy="fixed")
    for agent in (expected, fixed):
        for _ in range(30):
            agent.tell(agent.ask([0.1, 0.1]), reward=0.0, cost=2.0)
    assert not expected.alarmed
    assert fixed.alarmed
    assert fixed.informative_rounds == 0


def test_a_decision_brings_its_own_context_action_and_baseline():
    spec, features = make_spec(), Features(names=("a", "b"), scale=(2, 2))
    one, other = Agent(2, spec, features=features), Agent(2, spec, features=features)
    raw = np.array([0.4, 0.2])
    decision = one.ask(raw, baseline_cost=0.1)
    other.ask(raw, baseline_cost=0.1)
    other.tell(raw, decision.action, 0.2, 0.3, baseline_cost=0.1)
    raw[:] = 9.0
    one.tell(decision, reward=0.2, cost=0.3)
    assert_unchanged(one, snapshot(other))
    with pytest.raises(InvalidInput, match="reward"):
        one.tell(one.ask(raw / 20), cost=0.3)


def test_a_decision_is_reported_once_to_the_agent_that_made_it():
    agent, other = Agent(2, make_spec()), Agent(2, make_spec())
    decision = agent.ask([0.1, 0.2])
    with pytest.raises(InvalidInput, match="another agent"):
        other.tell(decision, reward=0.1, cost=0.1)
    with pytest.raises(InvalidInput, match="preview"):
        agent.tell(agent.preview([0.1, 0.2]), reward=0.1, cost=0.1)
    agent.tell(decision, reward=0.1, cost=0.1)
    before = snapshot(agent)
    with pytest.raises(InvalidInput, match="already"):
        agent.tell(decision, reward=0.1, cost=0.9)
    assert_unchanged(agent, before)


def test_decisions_without_an_outcome_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr("safedial.rounds.agent.OPEN_LIMIT", 5)
    agent = Agent(2, make_spec())
    decisions = [agent.ask([0.1, 0.2]) for _ in range(8)]
    agent.tell(decisions[-1], reward=0.1, cost=0.1)
    with pytest.raises(InvalidInput, match="already"):
        agent.tell(decisions[0], reward=0.1, cost=0.1)


def test_a_preview_changes_nothing_and_shows_what_decide_would_say():
    agent = trained(policy=make_policy("thompson"), spec=make_spec(guarantee="joint"))
    before = snapshot(agent)
    seen = agent.preview([0.1, 0.2])
    assert_unchanged(agent, before)
    assert seen.safe_action == agent.ask([0.1, 0.2]).safe_action


def test_rows_of_a_table_are_read_by_name():
    features = Features(names=("age", "weight"), center=(50, 70), scale=(60, 80))
    agent = Agent(2, make_spec(), features=features)
    table = pandas.DataFrame({"weight": [90, 60], "age": [65, 40]})
    decisions = agent.ask_many(table)
    assert decisions[0].context.tolist() == [0.25, 0.25]
    assert agent.preview(table.iloc[0]).context.tolist() == [0.25, 0.25]


def test_levels_that_lock_the_agent_at_zero_are_announced_and_named():
    with pytest.warns(UserWarning, match="stays at zero"):
        agent = Agent(2, make_spec(threshold=0.3), dial=Dial(high=20, unit="mg", levels=[5, 10, 20]))
    decision = agent.ask([0.6, 0.3])
    assert (decision.action, decision.limit) == (0.0, "below_lowest_level")
    with pytest.raises(InvalidInput, match="levels"):
        Agent(2, make_spec(threshold=9.0), dial=Dial(high=20, levels=[5, 10, 20]), fallback_action=7.0)


def test_the_estimates_and_a_short_description_can_be_read():
    agent = trained(spec=make_spec(cost_noise=0.1, reward_noise=0.1))
    assert agent.reward_coef == pytest.approx([0.6, 0.2], abs=0.15)
    assert agent.cost_coef == pytest.approx([0.3, 0.5], abs=0.15)
    assert "decisions=200" in repr(agent)
    assert (agent.policy.name, agent.dial, agent.features) == ("hp_probe", Dial(), None)


def test_words_never_exceed_the_certificate():
    agent = Agent(2, make_spec(), dial=Dial(low=0, high=100, unit="mg"))
    for context in np.random.default_rng(7).uniform(-0.6, 0.6, (50, 2)):
        decision = agent.ask(context)
        assert float(decision.rules.dial.text(decision.safe_action).split()[0]) <= decision.safe_action


def test_a_fallback_is_stated_and_advised_where_nothing_is_certified():
    agent = Agent(2, make_spec(), dial=Dial(high=20, unit="mg"), fallback_action=2.0)
    decision = agent.ask([0.1, 0.1], baseline_cost=0.7)
    assert decision.action == 2.0
    assert decision.certificate["fallback_action"] == 2.0


def test_iterators_are_lists_too():
    agent = Agent(2, make_spec())
    agent.tell_many(iter([[0.1, 0.1]]), iter([0.1]), iter([0.1]), iter([0.1]))
    assert agent.informative_rounds == 1


def test_a_context_of_norm_exactly_l_passes():
    agent = Agent(3, make_spec())
    for context in np.random.default_rng(5).standard_normal((100, 3)):
        assert agent.ask(context / np.linalg.norm(context)).certified
