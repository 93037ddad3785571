"""Features go through the linear machinery; what they miss is added to the bound."""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import InvalidInput
from safedial.bounds import confidence, estimate
from safedial.policies.classes import Outcomes, features, linear
from safedial.policies.classes.features import fourier, splines
from tests.conftest import make_spec
from tests.policies.problems import learned, rounds_of

HERE = np.array([0.1, -0.3])


def test_linear_is_the_linear_bound():
    contexts, outcomes, weights = rounds_of()
    class_, spec = linear(), make_spec()
    view = class_.look(learned(class_, contexts, outcomes, weights), HERE)
    state = estimate.init(2, ridge=1.0)
    for context, *row in zip(contexts, *outcomes, weights, strict=True):
        state = estimate.update(state, estimate.predict(state, context), *row)
    seen = estimate.predict(state, HERE)
    bounds = confidence.bound(seen, spec, radius="mixture", clip=False)
    assert class_.bounds(view, 1, noise=1.0, spec=spec).upper == pytest.approx(float(bounds.cost_upper), abs=1e-12)
    assert class_.bounds(view, 0, noise=1.0, spec=spec).upper == pytest.approx(float(bounds.reward_upper), abs=1e-12)
    assert class_.ceiling(view, spec) == pytest.approx(float(np.linalg.norm(HERE)))
    assert class_.first(spec) == 1.0


def test_any_error_within_the_misspecification_stays_within_the_range(count):
    """An adversary adds ±ε to every outcome's mean, against the learner; level 1e-6 at δ′ = 0.1."""
    seeds, error, spec = count(100, 1000), 0.2, make_spec(estimation_risk=0.1, cost_noise=0.1, coefficient_bound=1.0)
    class_, rng = features(None, misspecification=error, bound=None), np.random.default_rng(3)
    truth = np.array([0.6, -0.5])
    state = class_.init(2, ridge=1.0, batch=(seeds,))
    missed = np.zeros(seeds, dtype=bool)
    for _ in range(150):
        context = rng.uniform(-0.7, 0.7, (seeds, 2))
        view = class_.look(state, context)
        interval = class_.bounds(view, 1, noise=0.1, spec=spec)
        push = error * np.sign(np.vecdot(context, HERE))
        mean = context @ truth + push
        missed |= (mean > interval.upper) | (mean < interval.lower)
        outcome = mean + 0.1 * rng.standard_normal(seeds)
        state = class_.update(state, view, Outcomes((outcome, outcome), np.ones(seeds)))
    assert binomtest(int(missed.sum()), seeds, 0.1, alternative="greater").pvalue > 1e-6
    view = class_.look(state, HERE)
    plain = features(None, bound=None).bounds(view, 1, noise=0.1, spec=spec)
    assert np.all(class_.bounds(view, 1, noise=0.1, spec=spec).upper > plain.upper + error)


def test_maps_have_the_shapes_and_sizes_they_state():
    contexts = np.random.default_rng(0).uniform(-1, 1, (5, 4, 3))
    spline = splines(3, knots=6)(contexts)
    assert spline.shape == (5, 4, 3 * 8)
    assert np.all(np.linalg.norm(spline, axis=-1) <= 1.0 + 1e-12)
    np.testing.assert_array_equal(splines(1, bound=0.5)(np.array([[2.0]])), splines(1, bound=0.5)(np.array([[0.5]])))
    assert fourier(3, count=50)(contexts).shape == (5, 4, 50)
    np.testing.assert_array_equal(fourier(3, seed=1)(contexts), fourier(3, seed=1)(contexts))
    with pytest.raises(InvalidInput, match="2 coordinates"):
        splines(2)(contexts)


def test_a_frozen_networks_last_layer_is_a_map():
    layer = np.random.default_rng(0).standard_normal((2, 4))
    class_ = features(lambda x: np.tanh(x @ layer))
    assert learned(class_, *rounds_of()).reward_coef.shape == (4,)
    assert class_.first(make_spec()) == 1.0


def test_data_out_of_reach_refute_the_class():
    class_ = features(None)
    state = learned(class_, np.tile(HERE, (500, 1)), np.full((2, 500), 9.0), np.ones(500))
    assert class_.bounds(class_.look(state, HERE), 0, noise=0.1, spec=make_spec()).refuted


def test_the_papers_radius_needs_features_within_the_context_bound():
    class_ = features(lambda x: 4.0 * x, radius="paper")
    view = class_.look(class_.init(2, ridge=1.0), HERE)
    with pytest.raises(InvalidInput, match="context_bound"):
        class_.bounds(view, 1, noise=1.0, spec=make_spec(context_bound=1.0))
    assert class_.bounds(view, 1, noise=1.0, spec=make_spec(context_bound=5.0)).upper > 0


@pytest.mark.parametrize("ridge", [1e-7, 1e-2, 1e2])
def test_rounding_never_makes_the_range_smaller_than_a_stable_solver_does(ridge):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((300, 3))
    contexts[::2] = [1.0, 0.0, 0.0] + 1e-4 * rng.standard_normal((150, 3))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    outcomes = contexts @ [0.6, 0.6, 0.5] + rng.normal(0.0, 0.1, (2, 300))
    class_, spec = linear(), make_spec(ridge=ridge)
    view = class_.look(learned(class_, contexts, outcomes, np.ones(300), ridge=ridge), contexts[1])
    basis, root = np.linalg.qr(np.vstack([contexts, np.sqrt(ridge) * np.eye(3)]))
    width = np.linalg.norm(np.linalg.solve(root.T, contexts[1]))
    value = contexts[1] @ np.linalg.solve(root, basis.T @ np.concatenate([outcomes[1], np.zeros(3)]))
    volume = 2.0 * np.log(np.abs(np.diag(root))).sum() - 3.0 * np.log(ridge) + 2.0 * spec.log_inverse_risk
    upper = value + np.sqrt(0.01 * volume + ridge * spec.coefficient_bound**2) * width
    assert upper - 1e-12 <= class_.bounds(view, 1, noise=0.1, spec=spec).upper <= upper + 1e-4


def test_a_ridge_that_rounding_would_swallow_is_refused():
    class_ = linear()
    view = class_.look(class_.init(2, ridge=1e-12), HERE)
    with pytest.raises(InvalidInput, match="ridge"):
        class_.bounds(view, 1, noise=1.0, spec=make_spec(ridge=1e-12))


def changing():
    sizes = iter([3, 4])
    return lambda x: np.zeros((*x.shape[:-1], next(sizes)))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"transform": 3}, "transform"),
        ({"transform": lambda x: np.zeros(5)}, "same leading shape"),
        ({"transform": lambda x: np.full((*x.shape[:-1], 3), np.inf)}, "finite"),
        ({"transform": changing()}, "a different number of features"),
        ({"transform": None, "misspecification": -0.1}, "misspecification"),
        ({"transform": None, "radius": "self-normalised"}, "radius"),
        ({"transform": fourier(3)}, "3 coordinates"),
        ({"transform": None, "bound": 0}, "bound"),
        ({"transform": lambda x: x[..., :1], "radius": "paper"}, "dim = 1"),
    ],
    ids=["number", "shape", "infinite", "changes-size", "negative", "no-self-normalised", "dim", "bound", "paper-at-1"],
)
def test_bad_options_are_refused(options, rule):
    def use():
        class_ = features(**options)
        class_.look(class_.init(2, ridge=1.0), HERE)

    with pytest.raises(InvalidInput, match=rule):
        use()
