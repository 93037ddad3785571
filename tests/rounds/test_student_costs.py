"""Several costs under a student guarantee: each by its own bound and share, the smallest setting, Agent and study."""

import numpy as np
import pytest

from safedial import Agent, Cost, InvalidInput, SafetySpec, hp_student
from safedial.model.dose import hill
from tests.rounds.test_student_agent import upper_from_scratch

COSTS = {"heat": Cost(threshold=0.5, share=0.75), "load": Cost(threshold=0.3, share=0.25)}
RISKS = {"violation_risk": 0.08, "guarantee": "student"}
SPEC = SafetySpec(costs=COSTS, **RISKS)
COEF = {"heat": np.array([0.3, -0.2]), "load": np.array([0.1, 0.2])}


def outcome(rng, context, intensity, unknown=False):
    noise = 0.15 * rng.standard_normal(3)
    cost = {
        name: float(intensity * (context @ coef + size))
        for (name, coef), size in zip(COEF.items(), noise[:2], strict=True)
    }
    return {"reward": float(intensity * (0.5 + noise[2])), "cost": cost | ({"load": None} if unknown else {})}


def play(agent, rounds, seed=0):
    rng, rows = np.random.default_rng(seed), []
    for _ in range(rounds):
        context = rng.standard_normal(2)
        decision = agent.ask(context)
        told = outcome(rng, context, decision.intensity)
        agent.tell(decision, **told)
        rows.append((context, {name: cost / decision.intensity for name, cost in told["cost"].items()}, decision))
    return rows


def test_each_cost_has_its_own_bound_at_its_share_and_the_smallest_setting_counts():
    rows = play(Agent(2, SPEC, start_action=0.05), 30)
    contexts = np.array([row[0] for row in rows])
    for number, (context, _, decision) in enumerate(rows):
        if number < 4:
            assert (decision.guarantee, decision.action, decision.limit) == ("declared", 0.05, "start_dose")
            continue
        uppers = {
            name: upper_from_scratch(
                contexts[:number], np.array([row[1][name] for row in rows[:number]]), context, 0.08 * cost.share
            )
            for name, cost in COSTS.items()
        }
        allowed = {
            name: min(1.0, COSTS[name].threshold / upper) if upper > 0 else 1.0 for name, upper in uppers.items()
        }
        assert decision.guarantee == "student"
        assert decision.safe_action == pytest.approx(min(allowed.values()), abs=1e-7)
        facts = decision.certificate
        assert {name: part["cost_upper"] for name, part in facts["costs"].items()} == pytest.approx(uppers, abs=1e-8)
        assert facts["risk"]["violation_risk"] == pytest.approx(0.08)
    assert facts["statement"] == "P(heat > 0.5 or load > 0.3) <= 0.08 in this round, for Gaussian noise of any size"


def test_costs_exceed_together_no_more_often_than_the_risk(count):
    """Both costs have one and the same noise, or opposite ones; P(any Y > its U) ≤ δ, false-alarm level 1e-6."""
    from scipy.stats import binomtest

    from safedial.bounds import least_squares
    from safedial.bounds.t_laws import cost_upper

    lanes, rng = count(4000, 40_000), np.random.default_rng(1)
    for sign in (1.0, -1.0):
        fits = [least_squares.init(2, (lanes,)) for _ in range(2)]
        for _ in range(9):
            context, noise = rng.standard_normal((lanes, 2)), rng.standard_normal(lanes)
            seen = [least_squares.predict(fit, context) for fit in fits]
            bounds = [cost_upper(each, "per_round", 0.05) for each in seen]
            costs = noise, sign * noise
            fits = [
                least_squares.update(*each, costs[k], costs[k]) for k, each in enumerate(zip(fits, seen, strict=True))
            ]
        over = int(np.sum((costs[0] > bounds[0]) | (costs[1] > bounds[1])))
        assert binomtest(over, lanes, 0.1, alternative="greater").pvalue > 1e-6


def test_a_round_with_an_unknown_cost_is_lost_unless_vouched_for():
    agent, rng = Agent(2, SPEC, start_action=0.05), np.random.default_rng(2)
    play(agent, 10)
    context = rng.standard_normal(2)
    agent.tell(agent.ask(context), **outcome(rng, context, 0.1, unknown=True), unrelated=True)
    assert agent.preview(context).guarantee == "student"
    agent.tell(agent.ask(context), **outcome(rng, context, 0.1, unknown=True))
    held = agent.ask(context)
    assert (held.guarantee, held.limit) == ("declared", "open_rounds")
    agent.resume(forget=True, unrelated=True)
    assert play(agent, 6)[-1][2].guarantee == "student"


def test_rising_costs_stop_the_agent_at_the_number_of_costs_times_the_evidence(tmp_path):
    agent, rng = Agent(2, SPEC, start_action=0.05), np.random.default_rng(3)
    play(agent, 40)
    while agent.stop_reason == "":
        context = rng.standard_normal(2)
        decision = agent.ask(context)
        told = outcome(rng, context, decision.intensity)
        told["cost"]["load"] += 0.6 * decision.intensity
        agent.tell(decision, **told)
        learner = agent._rounds.learning
        parts = zip(learner._state, learner.policy.parts.values(), strict=True)
        each = [part.evidence(own) for own, part in parts]
        each = [float(found["student_drift"].value) for found in each]
        assert agent.evidence == max(each) / 2
    assert agent.stop_reason == "student_drift"
    assert max(each) >= 200
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent")
    agent.resume()
    twin.resume()
    context = rng.standard_normal(2)
    assert twin.ask(context).certificate == agent.ask(context).certificate
    assert agent.evidence == 1.0 / 2.0
    assert agent.cost_coef.shape == (2, 2)
    agent.tell(context, 0.1, **outcome(rng, context, 0.1))
    with pytest.raises(InvalidInput, match="no round is open"):
        agent.tell(context, 0.1, **outcome(rng, context, 0.1))


def test_where_one_cost_has_no_bound_nothing_is_proved():
    """The noise of one cost has an upper bound sooner than the other's, where their shares differ."""
    spec = SafetySpec(costs={"heat": Cost(threshold=0.5, share=0.999), "load": Cost(threshold=0.3, share=0.001)},
                      estimation_risk=0.05, **RISKS)  # fmt: skip
    agent = Agent(2, spec, start_action=0.05, policy=hp_student(guarantee="anytime", mixture_ridge=2.0))
    mixed = 0
    for *_, decision in play(agent, 60):
        known = [decision.numbers[f"{name}.cost_upper"] is not None for name in spec.costs]
        assert decision.guarantee == ("student" if all(known) else "declared")
        if any(known) and not all(known):
            mixed += 1
            assert decision.safe_action <= 0.05
            assert decision.limit in ("start_dose", "probe")
    assert mixed


def test_costs_with_curves_of_their_own_and_a_start_from_constants():
    costs = {"heat": Cost(threshold=0.5, noise=0.2, curve=hill(ed50=0.5)), "load": Cost(threshold=0.3, noise=0.2)}
    constants = {"coefficient_bound": 0.5, "context_bound": 4.0}
    agent = Agent(2, SafetySpec(costs=costs, **RISKS, **constants))
    first = agent.ask([0.1, 0.2])
    assert first.guarantee == "certified"
    assert 0 < first.action < 1
    agent.tell(first, reward=0.0, cost={"heat": 0.0, "load": 0.0})
    play(agent, 8)
    assert agent.ask([0.1, 0.2]).guarantee == "student"


def test_a_withheld_round_of_the_past_is_refused_with_several_costs_too():
    """A nurse who withholds what she fears would bias the bound."""
    agent = Agent(2, SPEC, start_action=0.05)
    with pytest.raises(InvalidInput, match="which rounds get nothing must not depend on outcomes"):
        agent.tell([1.0, 0.0], 0.0, 0.0, {"heat": 0.0, "load": 0.0})
    assert agent.informative_rounds == 0
