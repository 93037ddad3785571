"""Rounds that are left out: as if they had never been, and the guarantee among the others."""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import InvalidInput, LinearWorld
from safedial.bounds.conforming import find_ties
from tests.conftest import make_spec
from tests.policies.conformal_states import add, conformal, drawn_world, played, refit, tell, upper

LEVEL = 1e-6
"""Of each statistical assertion: it fails with this probability at most if the theorem holds; seeds are fixed."""

TIMES = (50, 100, 200, 600)


def rounds_with_gaps(gone, count=90, dim=3, **options):
    rng = np.random.default_rng(4)
    policy = conformal(dim, make_spec(ridge=0.7, violation_risk=0.2), **options)
    state = policy.init()
    for number in range(count):
        context, noise = rng.standard_normal(dim), rng.standard_normal(2)
        known = number not in gone
        add(policy, state, context, context[0] + noise[0], context.sum() + noise[1], known=known, left=not known)
    refit(policy, state)
    return policy, state, rng.standard_normal(dim)


def test_the_bound_is_that_of_the_rounds_that_stayed():
    """Left out and never there are the same where what stays has the same parts: pairs of rounds go."""
    gone = {20, 21, 60, 61}
    policy, state, context = rounds_with_gaps(gone)
    short, rounds = policy.init(), state.rounds
    for number in range(90):
        if number not in gone:
            add(policy, short, rounds.context[number], rounds.reward[number], rounds.cost[number])
    refit(policy, short)
    assert upper(policy, state, context) == pytest.approx(upper(policy, short, context), rel=1e-9)


def test_what_is_known_or_forgotten_is_not_left_out():
    policy, state, _ = rounds_with_gaps({3, 150}, count=300, window=100)
    assert not state.rounds.rows("left").any(), "both have left the window"
    tell(policy, state, 299, known=False, left=True)
    tell(policy, state, -1, known=False, left=True)
    assert not state.rounds.rows("left").any(), "one is known, the other was never there"
    add(policy, state, np.zeros(3), known=False, left=True)
    tell(policy, state, 300, 1.0, 1.0)
    assert not np.isfinite(state.rounds.cost[300 - state.rounds.first]), "a void round stays void"


@pytest.mark.slow
def test_the_guarantee_holds_where_a_tenth_is_void_for_unrelated_reasons(count):
    """The same rounds are void in every seed: the guarantee holds given which they are."""
    risk, seeds = 0.05, count(1500, 6000)
    spec, world = make_spec(violation_risk=risk, threshold=0.5), LinearWorld(dim=4, noise="student-t3")
    policy = conformal(4, spec, probe=1.0)
    void = np.flatnonzero(np.random.default_rng(7).random(TIMES[-1]) < 0.1)
    data = drawn_world(world, spec, seeds, TIMES[-1])
    for bound, intensity, cost in played(policy, data, TIMES, void=set(void.tolist())):
        violated = intensity * cost > spec.threshold
        for group in (0, 1):
            members = violated[bound.memo == group]
            chance = binomtest(int(members.sum()), members.size, risk, alternative="greater").pvalue
            assert chance > LEVEL, (group, members.mean())
    ready = bound.ready.mean()
    assert ready > 0.99, "one void in ten would leave the start dose for ever if they counted as unbounded"
    assert violated.mean() > 0.5 * risk, "the test is not idle"


def test_ties_are_more_than_a_third_and_at_least_two():
    ties = find_ties(np.array([0.0, 0.0, 1.0, 2.0, 3.0]))
    assert (ties.value, ties.rounds, ties.known, ties.found) == (0.0, 2, 5, True)
    assert not find_ties(np.array([1.0, 2.0, 3.0])).found, "one of three is no tie"
    assert not find_ties(np.empty(0)).found


def test_a_batch_has_no_reach():
    with pytest.raises(InvalidInput, match="leave it out of a simulation"):
        conformal(3, reach=2.0).init((1, 2))
