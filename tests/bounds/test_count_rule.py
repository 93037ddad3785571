"""The count rule: windows in exact arithmetic, one lane and many against the definition."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from safedial import growth
from safedial.bounds.count_rule import (
    CLIMB,
    HIGHEST,
    CountWindow,
    climb_limit,
    is_calibrated,
    spread_risk,
    sure_rank,
    window,
)
from safedial.errors import InvalidInput
from tests.lanes import Windows
from tests.oracles import largest_scale

INF = math.inf


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.07, 0.1, 0.29, 0.3, 1 / 3])
def test_a_window_spends_at_most_the_risk_and_is_the_formula_of_the_theory(risk):
    exact = Fraction(repr(risk))
    for count in range(400):
        size, rank = window(count, risk)
        stated = max(1, math.floor(exact * (Fraction(count, 2) + 1)))
        latest = math.ceil(stated / exact) - 1
        assert (size, rank) == ((latest, stated) if latest <= count else (0, 0))
        assert Fraction(rank, size + 1) <= exact
        for since in (0, count // 3, count // 2, count):
            size, rank = window(count, risk, since=since)
            half = max(Fraction(count, 2), math.ceil(1 / exact) - 1)
            assert rank == math.floor(exact * (min(Fraction(since), half) + 1))
            assert size <= since
            assert Fraction(rank, size + 1) <= exact


def test_products_that_floats_round_down_are_whole_numbers():
    assert int(0.29 * 100) == 28
    assert window(198, 0.29) == (99, 29)


def test_a_least_rank_waits_for_a_longer_window():
    assert window(58, 0.05, least=3) == (0, 0)
    assert window(59, 0.05, least=3) == (59, 3)
    assert window(200, 0.05, least=3) == window(200, 0.05)


def test_a_confidence_takes_the_rank_of_the_beta_law_and_waits_until_there_is_one():
    for size in (10, 58, 59, 93, 250, 1000):
        rank = sure_rank(size, 0.05, 0.95)
        assert rank == 0 or beta.cdf(0.05, rank, size + 1 - rank) >= 0.95
        assert beta.cdf(0.05, rank + 1, size - rank) < 0.95
    assert window(58, 0.05, confidence=0.95) == (0, 0)
    assert window(59, 0.05, confidence=0.95) == (59, 1)
    assert window(59, 0.05, confidence=0.95, since=58) == (0, 0)
    assert window(1000, 0.05, confidence=0.95) == (500, sure_rank(500, 0.05, 0.95))


@pytest.mark.parametrize(("options", "words"), [({"risk": 0}, "risk = 0: must be"), ({"risk": True}, "risk = True")])
def test_a_risk_outside_0_and_1_is_refused(options, words):
    with pytest.raises(InvalidInput, match=words):
        window(10, **options)
    with pytest.raises(InvalidInput, match=r"confidence = .*: must be a number in"):
        window(10, 0.05, confidence=1.0)


def test_a_base_is_used_from_a_third_of_the_rounds_on_and_not_before_a_window_is_full():
    assert is_calibrated(19, 57, 0.05)
    assert not is_calibrated(19, 58, 0.05)
    assert not is_calibrated(18, 19, 0.05)


def test_the_largest_scale_is_the_last_at_which_fewer_than_the_rank_exceed():
    rng = np.random.default_rng(1)
    tolerated = rng.choice([-INF, 0.2, 0.5, 0.5, 0.9, INF], (300, 19))
    for rank in (0, 1, 2, 5):
        scale = largest_scale(tolerated, rank)
        exceed = (tolerated < scale[:, None]).sum(axis=1)
        assert np.all(exceed <= max(rank - 1, 0))
        more = np.nextafter(scale, INF)
        worse = (tolerated < more[:, None]).sum(axis=1)
        assert np.all((worse >= rank) | (scale == INF))


def test_the_climb_limit_follows_the_largest_recent_scale_and_never_overflows():
    assert climb_limit([], 0.3) == 0.3
    assert climb_limit([0.1, 0.4], 0.3) == CLIMB * 0.4
    assert climb_limit([1.0], 0.3, climb=2.0) == 2.0
    assert climb_limit([1e300, 1.0], 0.3) == HIGHEST
    both = climb_limit(np.array([[0.1, 0.4], [2.0, 1.0]]), 0.3)
    assert both.tolist() == [CLIMB * 0.4, CLIMB * 2.0]


def test_the_risk_for_costs_of_0_or_1_is_the_one_that_a_step_raises_to_the_risk():
    risk = spread_risk(growth.spread(1.3, 0.4), 0.05)
    assert ndtr(ndtri(risk) + math.log(1.3) / 0.4) == pytest.approx(0.05, rel=1e-12)


def definition(values, *, risk, lag, level=None, confidence=None):
    """λ̂ from scratch: the countable rounds, the window, the count."""
    countable = [value for value in values[: max(0, len(values) - lag)] if value == value]
    size, rank = window(len(countable), risk, confidence=confidence)
    if level is not None:
        rank = min(rank, max(0, math.floor(level * (size + 1) * (1 + 1e-13))))
    return float(largest_scale(np.array(countable[len(countable) - size :] or [INF]), rank))


@pytest.mark.parametrize(("lag", "confidence"), [(0, None), (7, None), (0, 0.8)])
@pytest.mark.parametrize("lanes", [None, 4])
def test_a_window_is_the_definition_while_outcomes_come_late_change_and_are_left_out(lanes, lag, confidence):
    """In each lane, with levels of its own."""
    rng, count = np.random.default_rng(lag), lanes or 1
    scales, rounds = np.full((count, 300), -INF), CountWindow(lanes, 0.1, confidence=confidence)
    shown, plain = (scales, lambda row: row) if lanes else (scales[0], lambda row: float(row[0]))
    for step in range(300):
        for number in rng.integers(0, step + 1, 3):
            before, drawn = scales[:, number].copy(), rng.random(count)
            kinds = rng.integers(0, 4, count)
            scales[:, number] = np.choose(kinds, [np.full(count, -INF), np.round(drawn, 1), drawn, np.full(count, INF)])
            scales[drawn < 0.05, number] = math.nan
            rounds.change(int(number), plain(before), plain(scales[:, number].copy()))
        level = rng.choice([0.1, 0.055, 0.0, -0.1], count) if confidence is None and step % 3 else None
        given = None if level is None else plain(level)
        last = max(rounds.last, step + 1 - lag)
        found = np.atleast_1d(rounds.read(shown, last, level=given))
        for lane in range(count):
            own = None if level is None else float(level[lane])
            told = scales[lane, : step + 1].tolist()
            assert found[lane] == definition(told, risk=0.1, lag=lag, level=own, confidence=confidence), (step, lane)
        if lanes is None and step % 25 == 0:
            again = CountWindow(None, 0.1, confidence=confidence)
            assert again.read(shown, last, level=given) == found[0], "it keeps nothing that it could not find again"
            known = rounds.exceeding(shown, 0.5)
            assert np.all(shown[known] < 0.5)
            assert known.size <= rounds.window.size


def test_rounds_before_a_base_was_fitted_lengthen_the_window_but_do_not_count():
    values = np.random.default_rng(3).random((2, 150))
    later, lanes = CountWindow(None, 0.05), CountWindow(2, 0.05)
    size, rank = window(150, 0.05, since=90)
    assert later.read(values[0], 150, 60, 60) == largest_scale(values[0, 150 - size :], rank)
    assert later.window == (size, rank)
    since = np.array([60, 0])
    assert lanes.read(values, 140, since * 0, since * 0).shape == (2,)
    whole = largest_scale(values[1, 150 - window(150, 0.05)[0] :], window(150, 0.05)[1])
    assert lanes.read(values, 150, since, since).tolist() == [later.scale, whole]


def test_before_there_are_enough_rounds_nothing_is_counted():
    rounds, scales = CountWindow(None, 0.05), np.array([0.1] * 18 + [0.2])
    assert rounds.read(scales, 18) == -INF
    assert rounds.exceeding(scales, 0.5).size == 0
    assert rounds.read(scales, 19) == 0.1
    assert rounds.exceeding(scales, 0.15).tolist() == list(range(18))


def test_lanes_of_equal_length_agree_with_the_definition():
    rng = np.random.default_rng(5)
    tolerated = rng.lognormal(0.0, 0.5, (300, 8))
    batch = Windows(8, 0.05, confidence=0.7)
    for step, row in enumerate(tolerated):
        size, rank = window(step, 0.05, confidence=0.7)
        expected = largest_scale(tolerated[step - size : step].T, rank) if rank else np.full(8, -INF)
        assert np.array_equal(batch.scales(), expected)
        batch.append(row)


@pytest.mark.parametrize("confidence", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("risk", [0.05, 0.2])
def test_a_confidence_never_raises_the_rank_above_the_marginal_one(risk, confidence):
    """With 14 rounds and a confidence of a half, Beta alone would allow m = 1 at a risk of 0.05: 1/15 is more."""
    for count in range(1, 400):
        size, rank = window(count, risk, confidence=confidence)
        assert rank <= math.floor(Fraction(repr(risk)) * (size + 1))
