import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedial import InvalidInput, hp_ucb
from safedial.bounds.confidence import RADII, bound, check_dim
from safedial.bounds.estimate import Prediction
from tests.conftest import make_spec
from tests.oracles import Ridge, optimistic_reward, paper_radius, pessimistic_cost


def prediction(dim=3, rounds=40.0, log_det=6.0, reward=0.2, cost=0.1, width=0.3, norm=0.9):
    return Prediction(reward, cost, width, norm, log_det, rounds, dim)


def test_the_paper_radius_is_the_papers():
    spec = make_spec(ridge=2.0, coefficient_bound=3.0, context_bound=1.5)
    ours = RADII["paper"](0.7, prediction(), spec)
    assert ours == pytest.approx(paper_radius(0.7, 3, 40, risk=0.01, ridge=2.0, bound=3.0, length=1.5), rel=1e-14)


@given(
    log_det=st.floats(0, 500),
    noise=st.floats(0.01, 10),
    ridge=st.floats(0.01, 100),
    bound_=st.floats(0.01, 100),
    risk=st.floats(1e-6, 0.5),
)
def test_mixture_is_never_above_the_radius_of_self_normalised(log_det, noise, ridge, bound_, risk):
    spec = make_spec(ridge=ridge, coefficient_bound=bound_, estimation_risk=risk)
    seen = prediction(log_det=log_det)
    assert RADII["mixture"](noise, seen, spec) <= RADII["self-normalised"](noise, seen, spec) * (1 + 1e-14)


@given(st.integers(2, 12), st.integers(0, 60), st.integers(0, 5))
def test_mixture_is_never_above_paper_for_two_dimensions_or_more(dim, rounds, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((rounds, dim))
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    log_det = np.linalg.slogdet(np.eye(dim) + rows.T @ rows)[1]
    seen = prediction(dim=dim, rounds=float(rounds), log_det=float(log_det))
    spec = make_spec()
    assert RADII["mixture"](1.0, seen, spec) <= RADII["paper"](1.0, seen, spec) + 1e-12


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 5), st.integers(0, 12), st.integers(0, 10_000), st.sampled_from(sorted(RADII)))
def test_closed_forms_equal_a_convex_solver_for_both_programs(dim, rounds, seed, radius):
    rng = np.random.default_rng(seed)
    spec = make_spec(ridge=float(rng.uniform(0.2, 3)), cost_noise=0.3, reward_noise=0.4, coefficient_bound=0.5)
    model = Ridge(dim, spec.ridge)
    for _ in range(rounds):
        model.update(rng.standard_normal(dim), rng.standard_normal(), rng.standard_normal())
    context = rng.standard_normal(dim)
    reward_coef, cost_coef = model.coef(model.rewards), model.coef(model.costs)
    width = math.sqrt(context @ np.linalg.solve(model.gram, context))
    seen = Prediction(
        float(context @ reward_coef),
        float(context @ cost_coef),
        width,
        float(np.linalg.norm(context)),
        float(np.linalg.slogdet(model.gram / spec.ridge)[1]),
        float(max(rounds, 1)),
        dim,
    )
    bounds = bound(seen, spec, radius=radius, clip=False)
    solved = optimistic_reward(context, reward_coef, model.gram, bounds.reward_radius)
    assert bounds.reward_upper == pytest.approx(solved, abs=1e-6)
    solved = pessimistic_cost(context, cost_coef, model.gram, bounds.cost_radius, margin=1e6)
    assert bounds.cost_upper == pytest.approx(solved, abs=1e-6)
    assert pessimistic_cost(context, cost_coef, model.gram, bounds.cost_radius, -bounds.cost_upper - 0.1) is None


def test_the_clip_cuts_at_what_the_norms_allow_and_round_one_takes_s_times_l():
    spec = make_spec(coefficient_bound=2.0, context_bound=3.0)
    wide = prediction(width=5.0, norm=1.5, rounds=4.0)
    assert bound(wide, spec, radius="mixture", clip=True).cost_upper == 3.0
    assert bound(wide, spec, radius="mixture", clip=False).cost_upper > 3.0
    first = prediction(width=1.5, norm=1.5, rounds=0.0, log_det=0.0)
    assert bound(first, spec, radius="paper", clip=False).cost_upper == 6.0


def test_a_bound_below_what_the_norms_allow_refutes_the_assumptions():
    spec = make_spec()
    assert bound(prediction(cost=-9.0), spec, radius="mixture", clip=True).refuted
    assert bound(prediction(reward=-9.0), spec, radius="mixture", clip=True).refuted
    assert not bound(prediction(), spec, radius="mixture", clip=True).refuted


@pytest.mark.parametrize("radius", sorted(RADII))
@pytest.mark.parametrize("clip", [True, False])
def test_floats_numpy_and_jax_give_the_same_bounds(radius, clip):
    spec = make_spec()
    floats = bound(prediction(), spec, radius=radius, clip=clip)
    for array in (np.array, jnp.array):
        seen = Prediction(*(array([value]) for value in prediction()[:6]), 3)
        arrays = bound(seen, spec, radius=radius, clip=clip)
        for left, right in zip(floats[:5], arrays[:5], strict=True):
            assert float(np.asarray(right).ravel()[0]) == pytest.approx(float(left), rel=1e-14)


def test_an_unknown_radius_and_paper_at_dimension_one_are_refused():
    with pytest.raises(InvalidInput, match="radius"):
        hp_ucb(radius="tight")
    with pytest.raises(InvalidInput, match="dim = 1"):
        check_dim("paper", 1)
    assert hp_ucb(radius="paper").clip is False
    assert hp_ucb(radius="paper", clip=True).clip is True
    assert hp_ucb(radius="mixture").clip is True
