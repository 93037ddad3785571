import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest

from safedial.core.conformal import rank, training_conditional_rank


@given(st.integers(1, 5000), st.floats(0.001, 0.999))
def test_the_rank_leaves_at_most_the_risk_above_and_is_the_smallest_that_does(count, risk):
    place = int(rank(count, risk))
    left = (count + 1 - place) / (count + 1)
    assert left <= risk * (1 + 1e-12)
    assert (count + 2 - place) / (count + 1) > risk * (1 - 1e-12)


@pytest.mark.parametrize(("count", "risk", "place"), [(99, 0.29, 71), (19, 0.05, 19), (9, 0.3, 7), (18, 0.05, 19)])
def test_whole_products_count_as_whole(count, risk, place):
    assert rank(count, risk) == place


def test_the_next_score_exceeds_the_ranked_one_as_often_as_stated():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((40_000, 60))
    kept = np.sort(scores[:, :59], axis=1)[:, rank(59, 0.1) - 1]
    hits = int((scores[:, 59] > kept).sum())
    # Level 1e-6, two-sided: with continuous scores the rate is exactly 6/60.
    assert binomtest(hits, 40_000, 0.1).pvalue > 1e-6


@pytest.mark.parametrize(("count", "risk", "confidence"), [(200, 0.1, 0.9), (1000, 0.02, 0.95), (30, 0.01, 0.9)])
def test_the_training_conditional_rank_is_the_smallest_that_is_sure_enough(count, risk, confidence):
    place = training_conditional_rank(count, risk, confidence)
    if place <= count:
        assert beta.cdf(risk, count + 1 - place, place) >= confidence
        assert beta.cdf(risk, count + 2 - place, place - 1) < confidence
    else:
        assert beta.cdf(risk, 1, count) < confidence
