"""Non-linear worlds: what they draw is what they say."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binomtest

from safedial import InvalidInput
from safedial.simulation.nonlinear_worlds import DOSE, KINDS, NonlinearWorld, binary_cost, sensitivity, waves
from safedial.simulation.world import generators
from tests.conftest import make_spec

SPEC = make_spec(context_bound=2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_draws_do_not_depend_on_batching_or_chunks(kind):
    world = NonlinearWorld(kind=kind, dim=2)
    whole = world.draw_chunk(SPEC, generators([7, 8]), 20)
    rngs = generators([8])
    parts = [world.draw_chunk(SPEC, rngs, size) for size in (3, 16, 1)]
    for name in whole._fields:
        joined = np.concatenate([getattr(part, name) for part in parts])[:, 0]
        np.testing.assert_allclose(joined, getattr(whole, name)[:, 1], rtol=0.0, atol=1e-14)
    assert np.all(np.linalg.norm(whole.context, axis=-1) <= 2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_means_lie_within_1_where_the_paper_wants_them(kind):
    world = NonlinearWorld(kind=kind, dim=2)
    rngs = generators([0, 1, 2])
    spec = make_spec()
    means = world.means(spec, world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, 300).context)
    assert means[0].shape == (300, 3)
    assert np.max(np.abs(means[0])) <= 1.0 + 1e-3
    if kind != "logistic":
        assert np.max(np.abs(means[1])) <= 1.0 + 1e-3


@pytest.mark.parametrize("dim", [1, 3, 5])
def test_a_kernel_function_stays_within_1_between_the_contexts_it_was_checked_at(dim):
    """By SciPy's optimiser, from the best of many other contexts."""
    world, spec = NonlinearWorld(kind="kernel", dim=dim), make_spec()
    rng = np.random.default_rng(1)
    points = rng.standard_normal((4000, dim))
    points *= (rng.random((4000, 1)) ** (1 / dim)) / np.linalg.norm(points, axis=1, keepdims=True)
    inside = {"type": "ineq", "fun": lambda x: 1.0 - x @ x}
    for function in world.draw_truth(spec, generators(range(4))).cost:
        for sign in (1.0, -1.0):
            start = points[np.argmax(sign * function(points))]
            found = minimize(lambda x, f=function, s=sign: -s * f(x[None])[0], start, constraints=[inside])
            assert sign * function((found.x / max(1.0, np.linalg.norm(found.x)))[None])[0] <= 1.0 + 1e-6


def test_the_finite_worlds_truth_is_a_member_of_its_list():
    world, spec = NonlinearWorld(kind="finite", dim=2, functions=50), make_spec()
    truth = world.draw_truth(spec, generators([3]))
    contexts = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    values = waves(2, 50)(contexts)
    assert np.min(np.max(np.abs(values - truth.cost[0](contexts)[:, None]), axis=0)) < 1e-12


def test_a_kernel_function_has_the_norm_it_states():
    """The norm is the supremum of interpolation norms over point sets: never above, and close with many points."""
    world, spec = NonlinearWorld(kind="kernel", dim=2, norm=1.5), make_spec()
    function = world.draw_truth(spec, generators([0])).reward[0]
    from safedial.policies.classes.kernel import rbf

    points = np.random.default_rng(1).uniform(-0.7, 0.7, (60, 2))
    values, vectors = np.linalg.eigh(rbf(0.5)(points, points))
    kept = values > 1e-9
    projected = vectors.T @ function(points)
    interpolation = np.sqrt(np.sum(projected[kept] ** 2 / values[kept]))
    assert 0.9 < interpolation <= 1.5 + 1e-3


def test_a_norm_that_no_bounded_function_has_is_refused():
    with pytest.raises(InvalidInput, match="norm = 40"):
        NonlinearWorld(kind="kernel", dim=1, norm=40.0).draw_truth(make_spec(), generators([0]))


def test_events_come_with_the_stated_chance():
    """Level 1e-6, two-sided."""
    uniform = np.random.default_rng(0).random(40_000)
    for intensity, log_odds in ((0.3, 0.5), (1.0, -2.0)):
        events = int(binary_cost(np.full(40_000, intensity), np.full(40_000, log_odds), uniform).sum())
        assert binomtest(events, 40_000, expit(log_odds + np.log(intensity))).pvalue > 1e-6
    assert not np.any(binary_cost(np.zeros(9), np.full(9, 50.0), np.zeros(9)))


def test_sensitivity_is_the_published_halving_of_ec50_to_the_hill_coefficient():
    assert sensitivity(-1.0) == pytest.approx(0.5**2.51)
    assert sensitivity(1.0) == 1.0
    assert DOSE == "hill:0.3733,2.51"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"kind": "cubic", "dim": 2}, "kind"),
        ({"kind": "finite", "dim": 0}, "dim"),
        ({"kind": "dose-toxicity", "dim": 3}, "age and need"),
        ({"kind": "finite", "dim": 2, "functions": 0}, "functions"),
        ({"kind": "kernel", "dim": 2, "norm": -1}, "norm"),
        ({"kind": "kernel", "dim": 2, "kernel": "rfb"}, "kernel"),
        ({"kind": "logistic", "dim": 2, "odds": 0}, "odds"),
        ({"kind": "finite", "dim": 2, "noise": "context-scale"}, "noise"),
    ],
)
def test_bad_options_are_refused(options, rule):
    with pytest.raises(InvalidInput, match=rule):
        NonlinearWorld(**options)
