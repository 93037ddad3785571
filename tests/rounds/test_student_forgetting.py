"""HP-Student after a new start without the earlier rounds, and with a past from which rounds were withheld.

Each of these was found by an attack: rounds that are forgotten because of their outcomes leave a truncated sample in
force, whose bound is exceeded more often than guaranteed; and each new start of the anytime guarantee spends from δ′.
Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import re

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binomtest

from safedial import Agent, InvalidInput, SafetySpec, create_study, hp_student
from safedial.bounds.t_laws import epoch_share
from safedial.study.store import Store

LEVEL = 1e-6


def exceeds_more(over, rounds, risk):
    """Whether so many of these rounds above the threshold contradict the risk."""
    return binomtest(int(over), int(rounds), risk, alternative="greater").pvalue < LEVEL


def forgetting(chance, *, risk, rounds, runs, seed=0, blind=0, **vouched):
    """(over, rounds, over with a bound, rounds with one, those after a new start) of rounds 11 to `rounds`: an outcome
    is lost because it is high, with this `chance`, and the operator starts again; or every `blind` rounds, whatever the
    outcomes were.
    """
    limit, rng, counts = ndtri(1.0 - chance), np.random.default_rng(seed), np.zeros(5, dtype=int)
    spec = SafetySpec(threshold=0.5, violation_risk=risk, guarantee="student")
    for _ in range(runs):
        agent, begun = Agent(1, spec, start_action=0.02), False
        for number in range(rounds):
            decision, noise = agent.ask([1.0]), rng.standard_normal()
            cost = decision.intensity * (1.0 + noise)
            if number >= 10:
                known = decision.guarantee == "student"
                counts += [cost > 0.5, 1, known and cost > 0.5, known, known and begun]
            if not blind and noise > limit:
                agent.tell(decision, unrelated=False)
                agent.resume(forget=True, **vouched)
                begun = True
            else:
                agent.tell(decision, reward=decision.intensity, cost=cost)
            if blind and number % blind == blind - 1:
                agent.resume(forget=True, **vouched)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.0001, 0.02, 0.05, 0.1])
def test_after_outcomes_that_were_lost_because_they_were_high_no_bound_comes_back(chance):
    """The guarantee is over the past rounds too. Rounds with a bound are here those before the first loss, in runs
    whose outcomes so far were not high; among these alone the rate may be above the risk, as certificates say.
    """
    over, rounds, _, known, again = forgetting(chance, risk=0.05, rounds=60, runs=1500)
    assert not exceeds_more(over, rounds, 0.05)
    assert again == 0 < known
    assert known < 0.9 * rounds or chance < 0.001  # a few runs lose nothing


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.0001, 0.02, 0.05])
def test_neither_does_one_at_a_small_risk(chance):
    over, rounds, _, known, again = forgetting(chance, risk=0.01, rounds=150, runs=800, seed=1)
    assert not exceeds_more(over, rounds, 0.01)
    assert again == 0 < known


def test_forgetting_for_an_unrelated_reason_keeps_the_bound_and_a_false_word_for_it_does_not(count):
    """Blind new starts; and, as a control, the same attack with a reason that is falsely vouched for."""
    over, rounds, bad, known, _ = forgetting(0.0, risk=0.05, rounds=60, runs=count(60, 1500), blind=15, unrelated=True)
    assert not exceeds_more(over, rounds, 0.05)
    assert not exceeds_more(bad, known, 0.05)
    assert known > 0.5 * rounds
    *_, bad, known, _ = forgetting(0.1, risk=0.05, rounds=60, runs=count(100, 1500), unrelated=True)
    assert exceeds_more(bad, known, 0.05)


def failing_studies(every, *, rounds, runs, failure=0.3, risk=0.3):
    """The number of studies in which the anytime bound ever lies below the mean and its noise's quantile."""
    spec = SafetySpec(threshold=0.2, violation_risk=risk, estimation_risk=failure, guarantee="student")
    policy, least, failed = hp_student(guarantee="anytime", mixture_ridge=1.0, mixture_shape=2.0), 1.0 - ndtri(risk), 0
    for seed in range(runs):
        rng, agent, bad = np.random.default_rng(seed), Agent(1, spec, policy=policy, start_action=0.001), False
        for number in range(rounds):
            if every and number and number % every == 0:
                agent.resume(forget=True)
            decision = agent.ask([1.0])
            upper = decision.numbers["cost_upper"]
            bad |= upper is not None and upper < least - 1e-12
            cost = decision.intensity * (1.0 + rng.standard_normal())
            agent.tell(decision, reward=decision.intensity, cost=cost)
        failed += bad
    return failed


@pytest.mark.slow
@pytest.mark.parametrize(("every", "runs"), [(0, 60), (100, 120), (50, 120)])
def test_new_starts_of_the_anytime_guarantee_share_what_it_may_fail_by(every, runs):
    failed = failing_studies(every, rounds=2000, runs=runs)
    assert failed <= 0.3 * runs


def test_each_epoch_of_the_anytime_guarantee_spends_its_part_and_says_so():
    spec = SafetySpec(threshold=0.5, violation_risk=0.05, estimation_risk=0.01, guarantee="student")
    agent = Agent(1, spec, policy=hp_student(guarantee="anytime", mixture_ridge=1.0), start_action=0.05)
    rng, spent = np.random.default_rng(0), []
    for epoch in range(1, 4):
        for _ in range(60):
            decision = agent.ask([1.0])
            agent.tell(decision, reward=0.0, cost=decision.intensity * (0.1 + 0.1 * rng.standard_normal()))
        facts = decision.certificate
        assert facts["guarantee"] == "student"
        assert facts["new_starts"] == epoch - 1
        assert facts["risk"]["estimation_risk"] == 0.01
        assert ("new starts included" in facts["statement"]) == (epoch > 1)
        spent.append(facts["risk"]["this_epoch"])
        agent.resume(forget=True)
    assert spent == pytest.approx([0.01 * epoch_share(epoch) for epoch in (1, 2, 3)])
    assert sum(0.01 * epoch_share(epoch) for epoch in range(1, 100_000)) <= 0.01


def withheld_past(chance, *, risk, runs, told=200, rounds=10):
    """As above, over the first decisions after a past in which a nurse withheld the dose where she foresaw high costs.
    Whoever reports that past does what its refusal says.
    """
    limit, rng, counts = ndtri(1.0 - chance), np.random.default_rng(0), np.zeros(4, dtype=int)
    spec = SafetySpec(threshold=0.5, violation_risk=risk, guarantee="student")
    for _ in range(runs):
        noise = rng.standard_normal(told)
        withheld = np.flatnonzero(noise > limit)
        agent = Agent(1, spec, start_action=0.02)
        if withheld.size:
            with pytest.raises(InvalidInput) as refused:
                agent.tell([1.0], 0.0, 0.0, 0.0)
            whole = re.search("leave out the whole past", str(refused.value))
            noise = noise[:0] if whole else noise[withheld[-1] + 1 :]
        for each in noise:
            agent.tell([1.0], 0.1, 0.1, 0.1 * (1.0 + each))
        for _ in range(rounds):
            decision = agent.ask([1.0])
            cost, known = decision.intensity * (1.0 + rng.standard_normal()), decision.guarantee == "student"
            counts += [cost > 0.5, 1, known and cost > 0.5, known]
            agent.tell(decision, reward=decision.intensity, cost=cost)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("chance", [1e-6, 0.02, 0.05, 0.1])
def test_a_past_with_withheld_doses_is_left_out_as_a_whole(chance):
    over, rounds, bad, known = withheld_past(chance, risk=0.05, runs=4000)
    assert not exceeds_more(over, rounds, 0.05)
    assert not exceeds_more(bad, known, 0.05)


def agent_of(**options):
    spec = SafetySpec(threshold=0.5, violation_risk=0.05, estimation_risk=0.01, guarantee="student")
    return Agent(1, spec, policy=hp_student(**options), start_action=0.05)


def play(agent, rounds, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        decision = agent.ask([1.0])
        agent.tell(decision, reward=0.0, cost=decision.intensity * (0.3 + 0.1 * rng.standard_normal()))
    return decision


@pytest.mark.parametrize("guarantee", ["per_round", "tolerance", "anytime"])
def test_what_an_unvouched_new_start_leaves_of_a_guarantee(guarantee, tmp_path):
    agent = agent_of(guarantee=guarantee)
    assert play(agent, 80).guarantee == "student"
    agent.resume(forget=True)
    after = play(agent, 80)
    if guarantee == "anytime":
        assert after.guarantee == "student"
        return
    assert (after.guarantee, after.limit, after.action) == ("declared", "forgotten", 0.05)
    assert "nobody vouched that the reason had nothing to do with outcomes" in after.explain()
    agent.resume(forget=True, unrelated=True)  # the earlier reason may still arise again
    assert play(agent, 80).guarantee == "declared"
    agent.save(tmp_path / "agent")
    assert play(Agent.load(tmp_path / "agent"), 5).limit == "forgotten"


def test_a_certificate_says_which_new_starts_and_delays_its_guarantee_allows():
    agent = agent_of(lag=2)
    facts = play(agent, 40).certificate
    assert any("no rounds were forgotten" in line for line in facts["assumptions"])
    assert any("costs exceed more often among the rounds with a bound" in line for line in facts["assumptions"])
    agent.tell(agent.ask([1.0]), unrelated=False)
    play(agent, 3)
    assert "only if you can vouch" in agent.ask([1.0]).explain()


def test_what_is_said_about_forgetting_is_checked():
    agent = agent_of()
    with pytest.raises(InvalidInput, match="unrelated = True: says why earlier rounds are forgotten, and none are"):
        agent.resume(unrelated=True)
    with pytest.raises(InvalidInput, match="unrelated"):
        agent.resume(forget=True, unrelated="yes")
    with pytest.raises(InvalidInput, match="forget"):
        agent.resume(forget=1)


def test_an_amendment_does_not_bring_back_what_a_new_start_lost(tmp_path):
    spec = SafetySpec(threshold=0.5, violation_risk=0.05, guarantee="student")
    rng = np.random.default_rng(3)
    with Store(f"sqlite:///{tmp_path}/study.db") as store:
        study = create_study("one", spec, dim=1, start_action=0.05, storage=store)

        def rounds():
            for _ in range(8):
                advice = study.ask([1.0])
                cost = float(advice.intensity * (0.3 + 0.1 * rng.standard_normal()))
                study.tell(advice.id, reward=0.0, cost=cost)
            return advice.guarantee

        assert rounds() == "student"
        study.amend(changes={"threshold": 0.45}, reason="a lower limit")
        assert rounds() == "student"
        study.resume("high ones were lost", forget=True)
        assert rounds() == "declared"
        study.amend(changes={"threshold": 0.5}, reason="the old limit")
        assert rounds() == "declared"
        assert study.verify().ok


def test_rounds_from_before_a_resume_are_no_evidence_after_it():
    """They were not counted as rounds that would keep their bound, so they cannot be counted as having broken it."""
    agent = agent_of(guarantee="anytime", mixture_ridge=1.0)
    play(agent, 80)
    late = [agent.ask([1.0]) for _ in range(3)]
    agent.resume()
    for decision in late:
        agent.tell(decision, reward=0.0, cost=9.0 * decision.intensity)
    assert agent.evidence == 1.0
