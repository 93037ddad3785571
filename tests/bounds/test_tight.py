"""The tighter radii: identities, a convex solver, and batches."""

import cvxpy
import numpy as np
import pytest

from safedial import InvalidInput, replay
from safedial.bounds import estimate
from safedial.bounds.confidence import bound, check_dim, with_ridge
from safedial.policies import make_policy
from safedial.policies.estimates import Plain
from tests.conftest import make_spec

LEARNED = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.05}


def data(seed, dim=4, rounds=60, noise=0.5):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((rounds, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    truth = rng.standard_normal(dim)
    truth /= np.linalg.norm(truth)
    noises = noise * rng.standard_normal(rounds)
    return contexts, truth, contexts @ truth + noises, noises, rng


def functions(radius, spec):
    """The three functions of an estimate; `predict` computes the norm itself."""
    made = Plain(radius, spec)
    return (
        made.init,
        lambda state, context: made.predict(state, context, np.sqrt(np.vecdot(context, context))),
        made.update,
    )


def learned(contexts, costs, spec, radius, weights=None):
    init, predict, update = functions(radius, spec)
    state = init(contexts.shape[1], ridge=spec.ridge)
    for number, (context, cost) in enumerate(zip(contexts, costs, strict=True)):
        weight = np.float64(1.0 if weights is None else weights[number])
        state = update(state, predict(state, context), np.float64(0.3 * cost), np.float64(cost), weight)
    return state, predict


def largest_by_noise(context, contexts, costs, spec, volume):
    """max ⟨x,μ⟩ over ‖Xᵀ(y − Xμ)‖_{Σ⁻¹} ≤ κ√V and ‖μ‖ ≤ S, by a convex solver."""
    gram, rhs = contexts.T @ contexts, contexts.T @ costs
    half = np.linalg.inv(np.linalg.cholesky(gram + spec.ridge * np.eye(len(rhs))))
    coef = cvxpy.Variable(len(rhs))
    inside = [
        cvxpy.norm(half @ rhs - (half @ gram) @ coef) <= spec.cost_noise * np.sqrt(volume),
        cvxpy.norm(coef) <= spec.coefficient_bound,
    ]
    problem = cvxpy.Problem(cvxpy.Maximize(context @ coef), inside)
    problem.solve(solver=cvxpy.CLARABEL)
    return float(problem.value)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("ridge", "noise"), [(0.2, 0.5), (8.0, 0.5), (3.0, 0.05)])
def test_self_normalised_is_the_convex_program_from_above(seed, ridge, noise):
    """Costs with a norm on the boundary for even seeds, well inside for odd ones."""
    spec = make_spec(ridge=ridge, cost_noise=noise)
    contexts, _, costs, _, rng = data(seed, noise=noise)
    costs = costs * (1.0 if seed % 2 == 0 else 0.4)
    state, predict = learned(contexts, costs, spec, "self-normalised")
    context = rng.standard_normal(4)
    context /= np.linalg.norm(context)
    seen = predict(state, context)
    volume = float(seen.log_det) + 2 * spec.log_inverse_risk
    exact = largest_by_noise(context, contexts, costs, spec, volume)
    ours = float(bound(seen, spec, radius="self-normalised", clip=True).cost_upper)
    found = bound(seen, spec, radius="self-normalised", clip=True)
    plain = min(seen.cost + found.cost_radius * seen.width, spec.coefficient_bound * seen.norm)
    assert exact - 1e-6 <= ours <= plain + 1e-12
    assert ours <= exact + 0.03 * (plain - exact) + 0.01


def test_any_vector_bounds_every_mean_of_the_set():
    """The inequality behind `self-normalised`, with random vectors and random means of the set."""
    spec = make_spec(ridge=2.0, cost_noise=0.5)
    contexts, truth, costs, _, rng = data(1)
    gram, rhs, eye = contexts.T @ contexts, contexts.T @ costs, np.eye(4)
    total = gram + spec.ridge * eye
    volume = np.linalg.slogdet(total / spec.ridge)[1] + 2 * spec.log_inverse_risk
    means = truth + 0.3 * rng.standard_normal((2000, 4))
    gaps = rhs - means @ gram
    inside = np.vecdot(gaps, np.linalg.solve(total, gaps.T).T) <= spec.cost_noise**2 * volume
    inside &= np.linalg.norm(means, axis=1) <= spec.coefficient_bound
    assert inside.sum() > 100
    for vector, context in rng.standard_normal((200, 2, 4)):
        upper = vector @ rhs + spec.cost_noise * np.sqrt(volume * (vector @ total @ vector))
        upper += spec.coefficient_bound * np.linalg.norm(context - gram @ vector)
        assert (means[inside] @ context).max() <= upper


def test_the_ridge_of_self_normalised_follows_from_the_other_numbers_where_none_is_stated():
    plain = make_spec(cost_noise=0.5)
    assert with_ridge(plain, "mixture", 4) is plain
    assert with_ridge(plain, "self-normalised", 4).ridge == pytest.approx(6 * 2 * 0.5)
    stated = make_spec(cost_noise=0.5, ridge=1.0)
    assert with_ridge(stated, "self-normalised", 4) is stated
    with pytest.raises(InvalidInput, match="at most 500"):
        check_dim("self-normalised", 501)


@pytest.mark.parametrize("ridge", [0.1, 1.0, 8.0])
def test_the_distance_to_the_truth_is_the_identity_behind_noise_adaptive(ridge):
    spec = make_spec(ridge=ridge, cost_noise=0.5)
    contexts, truth, costs, noises, rng = data(5, rounds=200)
    weights = rng.random(len(costs))
    init, predict, update = functions("noise-adaptive", spec)
    state, gram, pull = init(4, ridge=ridge), ridge * np.eye(4), 0.0
    for context, cost, noise, weight in zip(contexts, costs, noises, weights, strict=True):
        seen = predict(state, context)
        miss = context @ truth - seen.cost
        pull += weight * (2 * noise * miss + miss**2)
        state = update(state, seen, np.float64(0.0), cost, weight)
        gram = gram + weight * np.outer(context, context)
        error = state.estimate.cost_coef - truth
        assert error @ gram @ error == pytest.approx(ridge * truth @ truth + state.cost_energy - pull, abs=1e-9)


@pytest.mark.parametrize("radius", ["self-normalised", "noise-adaptive"])
def test_a_batch_equals_its_members(radius):
    spec = make_spec(**LEARNED, violation_risk=0.2, cost_noise=0.5)
    runs = [data(seed, rounds=90) for seed in range(3)]
    init, predict, update = functions(radius, spec)
    batch = init(4, ridge=1.0, batch=(1, 3))
    for step in range(90):
        contexts = np.array([run[0][step] for run in runs])[None]
        costs = np.array([run[2][step] for run in runs])[None]
        batch = update(batch, predict(batch, contexts), 0.3 * costs, costs, np.ones((1, 3)))
    here = predict(batch, np.array([run[0][0] for run in runs])[None])
    together = bound(here, spec, radius=radius, clip=True)
    for number, run in enumerate(runs):
        state, predict_one = learned(run[0], run[2], spec, radius)
        alone = bound(predict_one(state, run[0][0]), spec, radius=radius, clip=True)
        for left, right in zip(together[:6], alone[:6], strict=True):
            assert np.asarray(left)[0, number] == pytest.approx(float(right), rel=1e-12)
        assert np.isfinite(alone.noise)


def test_sets_that_are_apart_refute_the_assumptions():
    """A cost of norm 50 with S = 1: no μ of norm 1 explains the data."""
    spec = make_spec(cost_noise=0.3, reward_noise=1e3)
    contexts, truth, *_ = data(0)
    state, predict = learned(contexts, 50.0 * contexts @ truth, spec, "self-normalised")
    seen = predict(state, truth)
    assert bound(seen, spec, radius="self-normalised", clip=True).refuted
    assert not bound(seen, spec, radius="mixture", clip=True).refuted


def test_the_plain_learner_serves_where_nothing_more_is_asked_for():
    assert isinstance(Plain("mixture", make_spec()).init(2, ridge=1.0), estimate.Estimate)
    assert not isinstance(Plain(None, make_spec(**LEARNED)).init(2, ridge=1.0), estimate.Estimate)


def test_replays_say_that_they_do_not_take_them():
    contexts = np.ones((3, 2)) / 2
    for policy, spec, rule in [
        (make_policy("hp_probe", radius="self-normalised"), make_spec(), "radius"),
        (make_policy("hp_probe"), make_spec(**LEARNED), "margin"),
    ]:
        with pytest.raises(InvalidInput, match=rule):
            replay(policy, contexts, np.zeros(3), np.zeros(3), spec)
