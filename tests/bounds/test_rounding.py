"""The online path never claims more than exact arithmetic would, whatever rounding did."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from safedial import Agent
from safedial.bounds.rounding import certify, round_down, round_up, rounded_spec
from safedial.policies.estimates import Sums
from safedial.policies.table import pack, unpack
from safedial.rounds.decision import setting_of
from tests.conftest import make_spec
from tests.oracles import exact_safe_intensity


def hard_state(rng):
    """A random spec and a few samples whose Gram matrix has a condition number up to 1e12."""
    dim = int(rng.integers(1, 4))
    ridge = 10.0 ** rng.uniform(-9, 2)
    length = 10.0 ** rng.uniform(-2, 3)
    scales = 10.0 ** rng.uniform(-6, 0, dim)
    rows = rng.standard_normal((int(rng.integers(0, 7)), dim)) * scales
    rows *= length / max(np.linalg.norm(rows, axis=1).max(initial=0.0), 1e-300) * rng.uniform(0.1, 1)
    rows = rows[rng.permutation(len(rows))].repeat(int(rng.integers(1, 3)), axis=0)
    spec = make_spec(
        threshold=10.0 ** rng.uniform(-3, 2),
        violation_risk=10.0 ** rng.uniform(-4, -0.5),
        estimation_risk=10.0 ** rng.uniform(-4, -0.5),
        cost_noise=10.0 ** rng.uniform(-3, 1),
        coefficient_bound=10.0 ** rng.uniform(-3, 2),
        context_bound=length,
        ridge=ridge,
    )
    costs = rng.standard_normal(len(rows)) * 10.0 ** rng.uniform(-2, 2)
    context = rng.standard_normal(dim) * scales
    context *= length * rng.uniform(0.01, 1) / np.linalg.norm(context)
    return spec, rows, costs, context


@pytest.mark.portable
def test_the_advised_action_is_never_above_the_bound_in_high_precision(count):
    rng = np.random.default_rng(0)
    tight = 0
    states = count(2_000, 50_000)
    largest_condition = 0.0
    for _ in range(states):
        spec, rows, costs, context = hard_state(rng)
        agent = Agent(len(context), spec)
        for row, cost in zip(rows, costs, strict=True):
            agent.tell(row, 1.0, 0.0, float(cost))
        advised = setting_of(agent._rules, agent.ask(context).safe_intensity)
        exact = exact_safe_intensity([(row, cost, 1.0) for row, cost in zip(rows, costs, strict=True)], context, spec)
        assert mpf(advised) <= exact
        tight += advised >= float(exact) * (1 - 1e-6)
        largest_condition = max(largest_condition, np.linalg.cond(np.eye(len(context)) * spec.ridge + rows.T @ rows))
    assert largest_condition > 1e11
    assert tight > 0.9 * states, "safe, but needlessly low"


def exact_integers(values, *, shift=300):
    """Floats times 2**shift, as the integers that they then are."""
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(fractions, 53).astype(np.int64).astype(object)
    return whole << (exponents.astype(object) + shift - 53)


def test_a_maintained_inverse_is_certified_after_100_000_updates():
    rng = np.random.default_rng(3)
    dim, ridge, number = 6, 0.1, 100_000
    learner = Sums(dim, ridge)
    contexts = rng.standard_normal((number, dim)) * np.geomspace(1, 1e-3, dim)
    costs = rng.standard_normal(number)
    norms = np.linalg.norm(contexts, axis=1)
    for context, norm, cost in zip(contexts, norms.tolist(), costs.tolist(), strict=True):
        learner.add(context, norm, 0.0, cost, 1.0)
    with mp.workdps(50):
        rows, unit = exact_integers(contexts), mpf(2) ** -600
        gram = mp.eye(dim) * mpf(ridge) + mp.matrix((rows.T @ rows).tolist()) * unit
        rhs = mp.matrix((rows.T @ exact_integers(costs)).tolist()) * unit
        log_det = mp.log(mp.det(gram) / mpf(ridge) ** dim)
        assert mpf(learner.log_det) >= log_det
        assert learner.log_det == pytest.approx(float(log_det), rel=1e-7)
        for context, norm in zip(contexts[:50], norms[:50].tolist(), strict=True):
            _, cost, width = learner.read(context, norm)[:3]
            column = mp.matrix([mpf(value) for value in context.tolist()])
            direction = mp.lu_solve(gram, column)
            exact_width = mp.sqrt((column.T * direction)[0])
            exact_cost = (direction.T * rhs)[0]
            assert mpf(width) >= exact_width
            assert mpf(cost) >= exact_cost
            assert width == pytest.approx(float(exact_width), rel=1e-6)
            assert cost == pytest.approx(float(exact_cost), abs=1e-6)


@pytest.mark.parametrize("damage", [1e-9, 0.3, 100.0])
def test_a_damaged_inverse_costs_reward_but_never_safety(damage):
    rng = np.random.default_rng(4)
    learner = Sums(4, 0.5)
    for _ in range(50):
        context = rng.standard_normal(4)
        learner.add(context, float(np.linalg.norm(context)), 0.0, float(rng.standard_normal()), 1.0)
    full = np.tril(learner.gram) + np.tril(learner.gram, -1).T
    for _ in range(100):
        context = rng.standard_normal(4)
        exact_width = math.sqrt(context @ np.linalg.solve(full, context))
        exact_cost = context @ np.linalg.solve(full, learner.cost_rhs)
        worn = unpack(Sums(4, 0.5), pack(learner))
        worn.inverse = np.asfortranarray(learner.inverse * (1 + damage * rng.standard_normal((4, 4))))
        _, cost, width = worn.read(context, float(np.linalg.norm(context)))[:3]
        assert width >= exact_width * (1 - 1e-12)
        assert cost >= exact_cost - 1e-12
        worn.rebuild()
        assert worn.read(context, float(np.linalg.norm(context)))[2] == pytest.approx(exact_width, rel=1e-9)


def test_a_singular_gram_keeps_the_inverse_it_had():
    learner = Sums(2, 1.0)
    learner.gram[:] = 0.0
    before = learner.inverse.copy()
    learner.rebuild()
    np.testing.assert_array_equal(learner.inverse, before)


def test_rounding_goes_to_the_safe_side():
    assert round_up(1.0) > 1.0
    assert round_up(-1.0) > -1.0
    assert round_up(0.0) == 0.0
    assert round_down(0.5) < 0.5
    assert round_down(0.0) == 0.0
    assert round_down(1.0) == 1.0
    moved, spec = rounded_spec(make_spec()), make_spec()
    assert moved.threshold < spec.threshold
    assert moved.cost_noise > spec.cost_noise
    assert moved.coefficient_bound > spec.coefficient_bound


def test_a_zero_context_has_zero_width_and_no_residual():
    zeros = dict.fromkeys(
        ("quadratic", "direction_residual", "residual_norm", "context_norm", "direction_norm", "scale_direction"), 0.0
    )
    assert certify(1.0, 3, **zeros, scale_norm=1.0, target_norm=5.0) == (0.0, 0.0, 0.0)
