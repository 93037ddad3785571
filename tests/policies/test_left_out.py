"""Rounds that are left out: as if they had never been, and the guarantee among the others."""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import LinearWorld, make_policy
from safedial.policies.conformal_rounds import Rounds, Setup, find_ties
from safedial.simulation.world import generators
from tests.conftest import make_spec

LEVEL = 1e-6
"""Of each statistical assertion: it fails with this probability at most if the theorem holds; seeds are fixed."""

TIMES = (50, 100, 200, 600)


def rounds_with_gaps(setup, gone, count=90, dim=3):
    rng = np.random.default_rng(4)
    state = Rounds(dim, ridge=0.7, setup=setup)
    for number in range(count):
        context, noise = rng.standard_normal(dim), rng.standard_normal(2)
        known = number not in gone
        state.append(context, context[0] + noise[0], context.sum() + noise[1] if known else np.inf)
        if not known:
            state.leave_out(number)
    state.refit()
    return state, rng.standard_normal(dim)


def test_the_bound_is_that_of_the_rounds_that_stayed():
    """Left out and never there are the same where what stays has the same parts: pairs of rounds go."""
    gone = {20, 21, 60, 61}
    setup = Setup()
    state, context = rounds_with_gaps(setup, gone)
    short = Rounds(3, ridge=0.7, setup=setup)
    for number in range(90):
        if number not in gone:
            short.append(state.context[number], state.reward[number], state.cost[number])
    short.refit()
    policy, spec = make_policy("hp_conformal"), make_spec(violation_risk=0.2)
    bounds = [policy.decide(policy.predict(s, context), spec, round=1.0, coin=0.5).bounds for s in (state, short)]
    assert bounds[0].cost_upper == pytest.approx(bounds[1].cost_upper, rel=1e-9)


def test_what_is_known_or_forgotten_is_not_left_out():
    state, _ = rounds_with_gaps(Setup(window=100), {3, 150}, count=300)
    assert state.left == {}, "both have left the window"
    state.leave_out(299)
    state.leave_out(-1)
    assert state.left == {}, "one is known, the other was never there"
    number = state.append(np.zeros(3), 0.0, np.inf)
    state.leave_out(number)
    state.fill(number, 1.0, 1.0)
    assert not np.isfinite(state.cost[number - state.dropped]), "a void round stays void"


@pytest.mark.slow
def test_the_guarantee_holds_where_a_tenth_is_void_for_unrelated_reasons(count):
    """The same rounds are void in every seed: the guarantee holds given which they are."""
    risk, seeds = 0.05, count(1500, 6000)
    spec, world = make_spec(violation_risk=risk, threshold=0.5), LinearWorld(dim=4, noise="student-t3")
    policy = make_policy("hp_conformal", start_dose=1e-3, probe=1.0)
    void = np.random.default_rng(7).random(TIMES[-1]) < 0.1
    rngs = generators(list(range(seeds)))
    truth, draws = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, TIMES[-1])
    state = policy.init(4, ridge=spec.ridge, batch=(1, seeds))
    for index in range(TIMES[-1]):
        context = draws.context[index][None]
        means = world.means(spec, truth, context)
        reward, cost = (m + n[index] for m, n in zip(means, (draws.reward_noise, draws.cost_noise), strict=True))
        seen = policy.predict(state, context)
        if index + 1 in TIMES:
            choice = policy.decide(seen, spec, round=index + 1.0, coin=0.5)
            violated = choice.intensity * cost > spec.threshold
            for group in (0, 1):
                members = violated[seen.code == group]
                chance = binomtest(int(members.sum()), members.size, risk, alternative="greater").pvalue
                assert chance > LEVEL, (index + 1, group, members.mean())
        state = policy.update(state, seen, reward, cost, np.full((1, seeds), float(not void[index])))
        if void[index]:
            state.leave_out(state.count - 1)
    ready = np.isfinite(choice.bounds.cost_upper).mean()
    assert ready > 0.99, "one void in ten would leave the start dose for ever if they counted as unbounded"
    assert violated.mean() > 0.5 * risk, "the test is not idle"


def test_ties_are_those_of_known_rounds_of_the_group():
    measured = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0])
    known = np.array([True, True, False, True, True, True, True])
    ties = find_ties(measured, known, np.array([0, 0, 0, 0, 0, 0, 1]), 3)
    assert (ties.count.tolist(), ties.known.tolist()) == ([2, 1, 0], [5, 1, 0])
    assert ties.found.tolist() == [True, False, False]
    assert not find_ties(measured[3:6], known[3:6], np.zeros(3, dtype=int), 2).found.any(), "one of three is no tie"


def test_a_batch_has_no_reach():
    from safedial import InvalidInput

    with pytest.raises(InvalidInput, match="leave it out of a simulation"):
        make_policy("hp_conformal", reach=2.0).init(3, ridge=1.0, batch=(1, 2))
