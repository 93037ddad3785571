"""An Agent whose start dose is learned, and one without sign groups: what it says, what it waits for, what it keeps."""

import json

import numpy as np
import pytest

from safedial import Agent, Dial, InvalidInput, make_policy
from tests.decision.conformal_rounds import DIM, conformal_spec, outcome, taught

CONSTANTS = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "estimation_risk": 0.01}
LEAN = {"form": "full", "groups": "none", "reach": None}


def opening(start, **changes):
    """An agent with a learned start, and whether it has a declared one."""
    policy = make_policy("hp_conformal", **(LEAN | {"start": start} | changes))
    stated = CONSTANTS if start == "certified" else {}
    return Agent(DIM, conformal_spec(**stated), policy=policy, start_action=None if stated else 0.05)


def test_a_students_start_goes_from_declared_to_student_to_conformal():
    agent, promises = opening("student"), []
    rng = np.random.default_rng(0)
    for _ in range(25):
        context = rng.standard_normal(DIM) / 2
        promises.append(agent.decide(context))
        agent.update(promises[-1], **outcome(rng, context, promises[-1].intensity))
    named = [each.promise for each in promises]
    assert named == ["declared"] * 5 + ["student"] * 15 + ["conformal"] * 5
    early, late = promises[12], promises[24]
    assert (early.limit, early.certified, early.action > 0.05) == ("learned_start", False, True)
    told = early.certificate
    json.dumps(told)
    assert (told["holds"], told["learned_start"], told["start_rounds"]) == (True, "student", 12)
    words = early.explain()
    for part in ("for Gaussian noise of any size (start-up)", "HP-Student's", "is linear in the context", "Gaussian, "):
        assert part in words
    assert not any("exchangeable" in each for each in told["assumptions"])
    assert "not watched" in words
    assert "over all rounds, not among those expected to benefit" in late.explain()
    assert "of its group" not in late.explain()
    assert late.certificate["group"]["calibration_rounds"] == 22, "every round calibrates"
    assert "learned_start" not in late.certificate


def test_a_certified_start_states_both_risks():
    agent, _ = taught(15, opening("certified"))
    decision = agent.decide([0.2, 0.1, 0.0])
    assert (decision.promise, decision.limit, decision.certified) == ("certified", "learned_start", True)
    told = decision.certificate
    assert told["risk"] == {"violation_risk": 0.1, "this_round": 0.1, "estimation_risk": 0.01}
    assert (
        "P(cost > 0.5) <= 0.11 in this round, from the constants and what was learned under them" in told["statement"]
    )
    assert any("norm at most S = 1" in each for each in told["assumptions"])
    assert any("up to the first that is missing" in each for each in told["assumptions"])
    after, _ = taught(10, agent)
    assert after.decide([0.2, 0.1, 0.0]).promise == "conformal"
    rare = conformal_spec(**CONSTANTS, violation_risk=0.01)
    first, learned = (Agent(DIM, rare, policy=make_policy("hp_conformal", start=each)) for each in (None, "certified"))
    fixed, more = (taught(60, each)[0].decide([-1.0, -1.0, 0.0]) for each in (first, learned))
    assert more.safe_action > 1.2 * fixed.safe_action
    assert "what was learned" not in fixed.certificate["statement"]


def test_data_that_contradict_the_constants_end_a_certified_start():
    agent, refuted = opening("certified"), []
    for _ in range(19):
        decision = agent.decide([0.4, 0.0, 0.0])
        refuted.append(decision.fallback_reason)
        agent.update(decision, reward=0.0, cost=-9.0 * decision.intensity)
    assert refuted[0] == ""
    assert refuted[-1] == "assumption_broken"


@pytest.mark.parametrize(
    ("start", "lag", "waits"), [("student", 0, True), ("student", 2, False), ("certified", 0, False)]
)
def test_a_student_waits_for_rounds_beyond_the_lag_and_constants_use_the_longest_prefix(start, lag, waits):
    agent, rng = taught(12, opening(start, lag=lag))
    before = agent.preview([0.2, 0.1, 0.0])
    late = agent.decide([0.1, 0.2, 0.1])
    now = agent.preview([0.2, 0.1, 0.0])
    assert now.promise == ("declared" if waits else start)
    if start == "certified":
        assert now.action == before.action
        other = agent.decide([0.3, 0.1, 0.0])
        agent.update(other, **outcome(rng, other.context, other.intensity))
        assert agent.preview([0.2, 0.1, 0.0]).action == before.action, "the round before it is open"
    agent.update(late, **outcome(rng, late.context, late.intensity))
    agent.decide([0.0, 0.2, 0.0])
    assert agent._learner.opening.learned == (15 if start == "certified" else 14) - 1 - (lag and lag - 1)


def test_a_round_that_is_left_out_is_skipped_by_the_start_too():
    agent, _ = taught(12, opening("student"))
    given = agent.decide([0.1, 0.2, 0.1])
    assert agent.preview([0.2, 0.1, 0.0]).promise == "declared"
    agent.update(given, reward=0.0, cost=0.0, action=0.0, unrelated=True)
    assert agent.preview([0.2, 0.1, 0.0]).promise == "student"


def test_the_reach_limits_a_learned_start_and_says_so():
    agent, _ = taught(8, opening("student", reach=2.0))
    decision = agent.decide([0.2, 0.1, 0.0])
    assert (decision.limit, decision.action, decision.promise) == ("reach", 0.05, "student")
    agent, _ = taught(19, opening("student", reach=2.0))
    decision = agent.decide([0.2, 0.1, 0.0])
    assert (decision.limit, decision.promise) == ("reach", "student")
    assert decision.action == pytest.approx(0.1)
    low, _ = taught(12, opening("student", reach=1e6))
    assert low.decide([0.2, 0.1, 0.0]).limit == "learned_start"
    first = opening("certified", reach=2.0).decide([0.2, 0.1, 0.0])
    assert (first.limit, first.promise) == ("reach", "certified")


@pytest.mark.parametrize("start", ["student", "certified"])
@pytest.mark.parametrize("history", ["train", "calibrate"])
def test_a_saved_start_goes_on_bit_for_bit_and_history_counts_where_it_calibrates(tmp_path, start, history):
    agent = opening(start, history=history, lag=1)
    rng = np.random.default_rng(3)
    for _ in range(8):
        context = rng.standard_normal(DIM) / 2
        agent.update(context=context, action=0.05, **outcome(rng, context, 0.05))
    assert agent._learner.opening.learned == (
        8 if history == "calibrate" and start == "certified" else 7 + (history == "train")
    )
    agent, rng = taught(9, agent)
    agent.decide(rng.standard_normal(DIM))
    agent.save(tmp_path / "one")
    again = Agent.load(tmp_path / "one")
    again.save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    for _ in range(30):
        context = rng.standard_normal(DIM)
        pair = [each.decide(context) for each in (agent, again)]
        assert (pair[0].action, pair[0].promise) == (pair[1].action, pair[1].promise)
        told = outcome(rng, context, pair[0].intensity)
        for each, decision in zip((agent, again), pair, strict=True):
            each.update(decision, **told)


def test_forgetting_starts_the_start_again():
    agent, _ = taught(30, opening("student"))
    agent.resume(forget=True)
    assert agent.decide([0.2, 0.1, 0.0]).promise == "declared"
    assert agent._learner.opening.learner.samples == 0


def test_rounds_that_leave_the_window_do_not_come_back_to_the_start():
    agent, _ = taught(300, opening("certified", window=100, form="split"))
    assert agent._learner.opening.learned == 300
    stuck = opening("certified", window=100, form="split")
    stuck.decide([0.1, 0.1, 0.1])
    taught(300, stuck)
    assert stuck._learner.opening.learned == 0
    assert stuck.decide([0.2, 0.1, 0.0]).promise == "conformal"


def test_agents_probe_less_than_simulations_unless_it_is_stated(tmp_path):
    agent = Agent(DIM, conformal_spec(), start_action=0.05)
    assert agent.policy.options["probe"] == 0.001
    assert make_policy("hp_conformal").options["probe"] == 0.01
    for stated in (0.01, 0.2, "sqrt"):
        policy = make_policy("hp_conformal", probe=stated)
        assert Agent(DIM, conformal_spec(), policy=policy, start_action=0.05).policy.options["probe"] == stated
    policy = make_policy("hp_conformal", group=lambda x: "all")
    old = Agent(DIM, conformal_spec(), policy=make_policy("hp_conformal", probe=0.01, group=policy.options["group"]),
                start_action=0.05)  # fmt: skip
    old.save(tmp_path / "old")
    assert Agent.load(tmp_path / "old", policy=policy).policy.options["probe"] == 0.01, "as it was saved"
    with pytest.raises(InvalidInput, match="other options than the saved one: probe"):
        Agent.load(tmp_path / "old", policy=make_policy("hp_conformal", probe=0.1, group=policy.options["group"]))


def test_a_learned_start_on_a_dial_with_levels_is_refused():
    policy = make_policy("hp_conformal", **LEAN, start="student")
    with pytest.raises(InvalidInput, match=r"start = 'student'.*dial with levels"):
        Agent(DIM, conformal_spec(), policy=policy, dial=Dial(low=0, high=10, levels=(1.0, 5.0)), start_action=1.0)


def test_a_users_group_is_named_without_sign_groups():
    policy = make_policy("hp_conformal", **LEAN, group=lambda x: "far" if x[0] > 0.0 else "near")
    agent, _ = taught(60, Agent(DIM, conformal_spec(), policy=policy, start_action=0.05))
    words = agent.decide([0.5, 0.1, 0.0]).explain()
    assert "calibration rounds of its group (far)" in words
    assert "over all rounds of your group, not among those expected to benefit" in words
