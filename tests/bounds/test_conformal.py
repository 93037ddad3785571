import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from safedial.bounds.conforming import conforming_bound
from safedial.bounds.ranks import TIE, chances, places
from safedial.policies.bets import Bets


@given(st.integers(0, 5000), st.floats(0.001, 0.999))
def test_the_places_spend_at_most_the_risk_and_waste_less_than_one_score(count, risk):
    kept, top = (int(part) for part in places(count, risk))
    assert 0 <= top <= kept <= count or (top == 0 and kept == count)
    if top:
        assert top / (kept + 1) <= risk * (1 + 1e-12)
        assert top / kept > risk * (1 - 1e-12) or kept == top, "one score fewer would not do"
        assert (top + 1) / (count + 1) > risk * (1 - 1e-12), "no larger rank exists among all"
    else:
        assert 1 / (count + 1) > risk * (1 - 1e-12)


@pytest.mark.parametrize(
    ("count", "risk", "kept", "top"),
    [(99, 0.29, 99, 29), (19, 0.05, 19, 1), (9, 0.3, 9, 3), (18, 0.05, 18, 0), (148, 0.02, 99, 2), (105, 0.1, 99, 10)],
)
def test_whole_products_count_as_whole(count, risk, kept, top):
    assert places(count, risk) == (kept, top)


def test_the_next_score_exceeds_the_ranked_one_as_often_as_stated():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((40_000, 66))
    kept, top = places(65, 0.1)
    assert (kept, top) == (59, 6)
    bound = np.sort(scores[:, 65 - kept : 65], axis=1)[:, kept - top]
    hits = int((scores[:, 65] > bound).sum())
    # Level 1e-6, two-sided: with continuous scores the rate is exactly 6/60.
    assert binomtest(hits, 40_000, 0.1).pvalue > 1e-6


def test_p_values_of_exchangeable_scores_are_uniform_and_independent():
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((4000, 30))
    group, member = np.zeros_like(scores, dtype=int), np.ones_like(scores, dtype=bool)
    found = chances(-scores, -scores, group, member, first=10)
    for place in (0, 10, 19):
        grid = np.arange(1, 12 + place) / (11 + place)
        share = np.searchsorted(np.sort(found[:, place]), grid + 1e-12, side="right") / 4000
        assert np.max(np.abs(share - grid)) < 0.044, "Dvoretzky-Kiefer-Wolfowitz at level 1e-6"
    assert abs(np.corrcoef(found[:, 5], found[:, 6])[0, 1]) < 5 / np.sqrt(4000)


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0])), min_size=1, max_size=9),
    st.integers(0, 10),
)
def test_the_conforming_bound_is_the_largest_value_that_enough_rounds_support(pairs, top):
    residual, slope = np.array([float(pair[0]) for pair in pairs]), np.array([pair[1] for pair in pairs])
    found = conforming_bound(residual, slope, top)
    grid = np.concatenate([np.arange(-160, 161) / 16, [1e9]])
    conforms = [v for v in grid if np.sum(residual >= slope * v) >= top]
    if top == 0 or not conforms or max(conforms) == 1e9:
        assert found == np.inf
    else:
        assert found == pytest.approx(max(conforms), abs=1e-9)


def test_p_values_of_many_rounds_are_those_of_one_at_a_time():
    rng = np.random.default_rng(2)
    low = rng.integers(0, 6, (3, 23)).astype(float)
    up = low + rng.integers(0, 2, low.shape)
    group, member = rng.integers(0, 3, low.shape), rng.random(low.shape) < 0.8
    low[rng.random(low.shape) < 0.2], up[rng.random(low.shape) < 0.1] = -np.inf, np.inf
    for first in (0, 14):
        found = chances(low, up, group, member, first=first)
        for lane, place in np.ndindex(3, 23 - first):
            here = first + place
            mates = low[lane, :here][member[lane, :here] & (group[lane, :here] == group[lane, here])]
            expected = (1 + np.sum(mates <= up[lane, here])) / (1 + mates.size) if member[lane, here] else np.nan
            np.testing.assert_equal(found[lane, place], expected)


def test_a_rounding_breaks_no_tie_between_scores():
    """p-values of scores of few values are the same whatever their last digits are."""
    rng = np.random.default_rng(4)
    scores = rng.integers(-3, 4, 70) * 0.1

    def evidence(scores, lanes):
        bets = Bets(lanes, tie=TIE)
        for score in scores:
            bets.tell(bets.open(), low=score, up=score)
        return float(np.max(bets.evidence().value))

    for lanes in ((), (1,)):
        exact = evidence(scores, lanes)
        for _ in range(5):
            shaken = scores + rng.uniform(-1e-13, 1e-13, scores.shape)
            assert evidence(shaken, lanes) == pytest.approx(exact, rel=1e-12)
