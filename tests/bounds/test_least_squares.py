"""Least squares round by round against least squares from scratch, and certified numbers against exact arithmetic."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from safedial.bounds import least_squares
from safedial.bounds import triangle as qr
from safedial.bounds.least_squares import WORST


def played(contexts, costs, *, rewards=None, weights=None):
    """The fit of rounds (n, ..., d)."""
    fit = least_squares.init(contexts.shape[-1], contexts.shape[1:-1])
    for number, (context, cost) in enumerate(zip(contexts, costs, strict=True)):
        weight = np.ones(cost.shape) if weights is None else weights[number]
        reward = 0.5 * cost if rewards is None else rewards[number]
        fit = least_squares.update(fit, least_squares.predict(fit, context), reward, cost, weight > 0.0)
    return fit


@pytest.mark.parametrize(("dim", "rounds"), [(1, 4), (3, 5), (5, 40), (10, 300)])
def test_the_recursion_is_least_squares_from_scratch(dim, rounds):
    rng = np.random.default_rng(dim)
    contexts, costs = rng.standard_normal((rounds, 7, dim)), rng.standard_normal((rounds, 7))
    rewards, new = rng.standard_normal((rounds, 7)), rng.standard_normal((7, dim))
    fit = played(contexts, costs, rewards=rewards)
    seen = least_squares.predict(fit, new)
    assert least_squares.is_full(fit)
    assert np.all(seen.ready)
    for lane in range(7):
        rows = contexts[:, lane]
        coef, squares, _, _ = np.linalg.lstsq(rows, costs[:, lane], rcond=None)
        other = np.linalg.lstsq(rows, rewards[:, lane], rcond=None)[0]
        width = math.sqrt(new[lane] @ np.linalg.solve(rows.T @ rows, new[lane]))
        found = seen.cost[lane], seen.reward[lane], seen.width[lane], seen.spread[lane] ** 2
        np.testing.assert_allclose(found, (new[lane] @ coef, new[lane] @ other, width, squares[0]), rtol=1e-8)
    assert np.all(seen.degrees == rounds - dim)


def test_lanes_reach_full_rank_in_their_own_time_and_before_it_nothing_is_known():
    rng = np.random.default_rng(4)
    contexts, costs = rng.standard_normal((9, 2, 3)), rng.standard_normal((9, 2))
    contexts[:6, 1, 2] = 2.0 * contexts[:6, 1, 0] - contexts[:6, 1, 1]  # the second lane spans a plane at first
    fit = played(contexts[:6], costs[:6])
    seen = least_squares.predict(fit, contexts[6])
    assert fit.rank.tolist() == [3, 2]
    assert seen.ready.tolist() == [True, False]
    shortest = np.linalg.pinv(contexts[:6, 1]) @ costs[:6, 1]
    np.testing.assert_allclose(fit.cost_coef[1], shortest, atol=1e-12)
    fit = played(contexts, costs)
    assert least_squares.is_full(fit)
    np.testing.assert_allclose(fit.cost_coef[1], np.linalg.lstsq(contexts[:, 1], costs[:, 1], rcond=None)[0], rtol=1e-9)


def test_a_round_without_weight_changes_nothing():
    rng = np.random.default_rng(5)
    contexts, costs = rng.standard_normal((8, 2, 2)), rng.standard_normal((8, 2))
    weights = np.ones((8, 2))
    weights[[0, 3, 6], 1] = 0.0
    fit = played(contexts, costs, weights=weights)
    kept = weights[:, 1] > 0
    alone = played(contexts[kept][:, 1:], costs[kept][:, 1:])
    for one, other in zip(fit, alone, strict=True):
        np.testing.assert_allclose(one[1], other[0], atol=1e-12)


def test_ill_conditioned_contexts_are_not_known_in_a_batch_either():
    rng = np.random.default_rng(6)
    contexts = rng.standard_normal((30, 1, 2))
    contexts[..., 1] = contexts[..., 0] + 1e-5 * contexts[..., 1]
    near = played(contexts, rng.standard_normal((30, 1)))
    assert near.rank == 2
    assert least_squares.predict(near, contexts[0]).ready.item()
    contexts[..., 1] = contexts[..., 0] + 1e-2 * (contexts[..., 1] - contexts[..., 0])
    far = near._replace(inverse=near.inverse * 1e6)
    assert not least_squares.predict(far, contexts[0]).ready.item()


def exact(contexts, costs, context):
    """(⟨x,μ̂⟩, w, √RSS) in 60 digits."""
    with mpmath.workdps(60):
        rows, targets, here = (mpmath.matrix(part.tolist()) for part in (contexts, costs, context))
        gram = rows.T * rows
        coef = mpmath.lu_solve(gram, rows.T * targets)
        left = targets - rows * coef
        width = mpmath.sqrt((here.T * mpmath.lu_solve(gram, here))[0])
        return (here.T * coef)[0], width, mpmath.sqrt(sum(value * value for value in left))


def triangle_of(contexts, costs):
    triangle = qr.init(contexts.shape[1])
    for context, cost in zip(contexts, costs, strict=True):
        triangle = qr.update(triangle, qr.predict(triangle, context), -cost, cost)
    return triangle


@pytest.mark.parametrize(("dim", "rounds", "apart"), [(1, 3, 1.0), (3, 9, 1.0), (4, 60, 1e-2), (4, 25, 1e-4)])
def test_certified_numbers_are_above_the_exact_ones_and_near_them(dim, rounds, apart):
    rng = np.random.default_rng(dim)
    contexts = rng.standard_normal((rounds, dim))
    if dim > 1:
        contexts[:, 1] = contexts[:, 0] + apart * contexts[:, 1]
    contexts[:, -1] *= 1e-5  # the units of a column do not matter
    costs = contexts @ rng.standard_normal(dim) + 0.3 * rng.standard_normal(rounds)
    triangle = triangle_of(contexts, costs)
    for context in (contexts[0], contexts.mean(axis=0)):
        seen = qr.predict(triangle, context, float(np.linalg.norm(context)))
        assert seen.ready
        for found, true in zip((seen.cost, seen.width, seen.spread), exact(contexts, costs, context), strict=True):
            assert found >= true
            assert found <= true + 1e-3 * (abs(true) + 1.0)
        assert seen.reward == pytest.approx(-float(exact(contexts, costs, context)[0]), rel=1e-6)
    log_det, least = qr.volume(None, triangle, None, True, ridge=5.0)
    with mpmath.workdps(40):
        rows = mpmath.matrix(contexts.tolist())
        values = mpmath.eigsy(rows.T * rows, eigvals_only=True)
        assert log_det >= sum(mpmath.log(1 + value / 5) for value in values)
        assert least <= min(values)
    assert least >= 0.9 * float(min(values)) - 1e-12


def test_rank_deficient_and_ill_conditioned_contexts_say_nothing():
    rng = np.random.default_rng(8)
    contexts, costs = rng.standard_normal((40, 3)), rng.standard_normal(40)
    for few in (0, 2, 3, 4):
        assert not qr.predict(triangle_of(contexts[:few], costs[:few]), contexts[0], 1.0).ready
    assert qr.predict(triangle_of(contexts[:5], costs[:5]), contexts[0], 1.0).ready
    twins = contexts.copy()
    twins[:, 1] = 3.0 * twins[:, 0]
    nothing = contexts.copy()
    nothing[:, 2] = 0.0
    close = contexts.copy()
    close[:, 1] = close[:, 0] + 1e-9 * close[:, 1]
    for rows in (twins, nothing, close):
        triangle = triangle_of(rows, costs)
        assert triangle.condition > WORST
        assert not qr.predict(triangle, rows[0], 1.0).ready


def test_the_condition_is_bounded_between_the_times_when_it_is_computed():
    rng = np.random.default_rng(9)
    contexts = rng.standard_normal((300, 4)) * np.array([1.0, 5.0, 0.1, 1.0])
    triangle = qr.init(4)
    for number, context in enumerate(contexts, start=1):
        triangle = qr.append(triangle, np.append(context, [1.0, 1.0]))
        if number >= 4:
            rows = contexts[:number] / np.linalg.norm(contexts[:number], axis=0)
            true = np.linalg.norm(np.linalg.inv(np.linalg.qr(rows)[1]))
            assert triangle.condition >= true * (1.0 - 1e-9)
            assert number < 20 or triangle.condition <= 2.0 * true


def test_a_look_is_due_before_rounds_have_grown_by_more_than_a_twentieth():
    looks = [number for number in range(1, 20_000) if least_squares.is_due(number)]
    assert looks[:40] == list(range(1, 41))
    assert all(after <= 1.05 * before for before, after in pairwise(looks[39:]))
    assert len(looks) < 350


def test_an_overflowing_condition_is_infinite():
    assert qr._condition(np.asfortranarray(np.diag([1e-320, 1.0, 1.0])), np.ones(3)) == math.inf


def test_both_arithmetics_agree_in_one_lane_and_a_round_that_is_not_known_changes_neither():
    rng = np.random.default_rng(11)
    plain, exact_ = least_squares.init(3), qr.init(3)
    for number in range(30):
        context, (reward, cost), known = rng.standard_normal(3), rng.standard_normal(2), number % 7 != 3
        told = least_squares.predict(plain, context), qr.predict(exact_, context, 1.0)
        if told[1].ready:
            for name in ("reward", "cost", "width", "spread", "degrees"):
                assert float(getattr(told[0], name)) == pytest.approx(getattr(told[1], name), rel=1e-7)
            assert 0.0 < told[1].rounding < 1e-10
        plain = least_squares.update(plain, told[0], reward, cost, known)
        exact_ = qr.update(exact_, told[1], reward, cost, known)
    assert exact_.rounds == plain.rounds == 26
