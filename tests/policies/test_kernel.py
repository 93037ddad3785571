"""The kernel class is kernel ridge regression, kept up to date by a growing factor."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from safedial import InvalidInput
from safedial.policies import nonlinear_hp_ucb
from safedial.policies.classes import Outcomes, kernel
from safedial.policies.classes.kernel import Kernel, parse_kernel
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.run import simulate
from tests.conftest import make_spec
from tests.policies.problems import learned, misses, rounds_of

HERE = np.array([0.1, -0.3])


def plain(name, contexts, outcomes, weights, ridge, here):
    """m, σ² and ln det(I + K/ρ) from dense formulas."""
    shape, root = parse_kernel(name), np.sqrt(weights)
    gram = root[:, None] * shape(contexts, contexts) * root
    row = root * shape(contexts, here[None])[:, 0]
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    variance = shape.diagonal(here[None])[0] - row @ inverse @ row
    return row @ inverse @ (root * outcomes).T, variance, np.linalg.slogdet(np.eye(len(gram)) + gram / ridge)[1]


@pytest.mark.parametrize("name", ["rbf:0.5", "matern32:0.4", "matern52:0.3+polynomial:2", "0.5*rbf:1*polynomial:1"])
@pytest.mark.parametrize("ridge", [1.0, 0.05])
def test_the_growing_factor_equals_dense_formulas(name, ridge):
    contexts, outcomes, weights = rounds_of(count=90)
    class_ = kernel(name)
    view = class_.look(learned(class_, contexts, outcomes, weights, ridge=ridge), HERE)
    mean, variance, log_det = plain(name, contexts, outcomes, weights, ridge, HERE)
    np.testing.assert_allclose([float(value) for value in view.mean], mean, atol=1e-10)
    assert float(view.deviation) ** 2 == pytest.approx(variance, abs=1e-7)
    assert float(view.deviation) ** 2 >= variance
    assert float(view.log_det) == pytest.approx(log_det, abs=1e-9)
    assert float(view.informative_rounds) == np.sum(weights > 0)


def test_mean_and_deviation_are_those_of_a_gaussian_process():
    contexts, outcomes, _ = rounds_of()
    class_ = kernel("rbf:0.5")
    view = class_.look(learned(class_, contexts, outcomes, np.ones(40), ridge=0.3), HERE)
    process = GaussianProcessRegressor(RBF(0.5), alpha=0.3, optimizer=None).fit(contexts, outcomes.T)
    mean, deviation = process.predict(HERE[None], return_std=True)
    np.testing.assert_allclose([float(value) for value in view.mean], mean[0], atol=1e-10)
    assert float(view.deviation) == pytest.approx(deviation[0, 0], abs=1e-9)


def test_the_range_is_the_mixture_radius_in_feature_space():
    contexts, outcomes, weights = rounds_of()
    spec, class_ = make_spec(cost_noise=0.7, ridge=0.5, estimation_risk=0.03), kernel("rbf:0.5", norm=1.3, bound=None)
    view = class_.look(learned(class_, contexts, outcomes, weights, ridge=0.5), HERE)
    mean, variance, log_det = plain("rbf:0.5", contexts, outcomes, weights, 0.5, HERE)
    reach = np.sqrt(0.7**2 * (log_det + 2 * np.log(1 / 0.03)) + 0.5 * 1.3**2) * np.sqrt(variance / 0.5)
    interval = class_.bounds(view, 1, noise=0.7, spec=spec)
    assert interval.upper == pytest.approx(mean[1] + reach, abs=1e-8)
    assert interval.lower == pytest.approx(mean[1] - reach, abs=1e-8)
    assert class_.ceiling(view, spec) == pytest.approx(1.3)
    assert class_.first(spec) == np.inf
    assert kernel(norm=1.3).ceiling(view, spec) == 1.0


def test_data_that_no_function_of_the_norm_can_give_refute_the_class():
    class_ = kernel("rbf:0.5", norm=0.1)
    contexts = np.tile(HERE, (50, 1))
    state = learned(class_, contexts, np.full((2, 50), 5.0), np.ones(50))
    assert class_.bounds(class_.look(state, HERE), 0, noise=0.1, spec=make_spec()).refuted


def test_a_kernel_that_is_not_positive_is_refused_and_changes_nothing():
    wrong = Kernel(
        "wrong", lambda x, y: 1.0 + 0.0 * (x @ y.T) + 2.0 * (x[:, :1] != y[:, :1].T), lambda x: np.ones(len(x))
    )
    class_ = kernel(wrong)
    state = class_.init(2, ridge=0.1)
    state = class_.update(state, class_.look(state, np.zeros(2)), Outcomes((0.0, 0.0), 1.0))
    with pytest.raises(InvalidInput, match="not positive semi-definite"):
        class_.update(state, class_.look(state, np.ones(2)), Outcomes((0.0, 0.0), 1.0))
    assert state.points[0].rounds.count == 1


def test_rounding_is_allowed_for_at_the_size_of_the_context_asked_about():
    class_ = kernel("polynomial:2", bound=None)
    state = learned(class_, *rounds_of(count=20))
    near, far = (class_.look(state, HERE * size).slack[1] for size in (1.0, 1e3))
    assert far > 1e6 * near


def test_past_the_limit_a_clear_message():
    class_ = kernel(max_points=3)
    contexts, outcomes, _ = rounds_of(count=3)
    state = learned(class_, contexts, outcomes, np.ones(3))
    with pytest.raises(InvalidInput, match="max_points = 3"):
        class_.update(state, class_.look(state, HERE), Outcomes((0.0, 0.0), 1.0))
    with pytest.raises(InvalidInput, match="max_points = 3"):
        simulate(
            nonlinear_hp_ucb(cost_class=class_), NonlinearWorld(kind="kernel", dim=2), make_spec(), rounds=4, seeds=1
        )


@pytest.mark.parametrize("options", [{"norm": 0}, {"norm": True}, {"bound": -1}, {"max_points": 0}, {"kernel": "rbg"}])
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidInput):
        kernel(**options)


def test_the_range_holds_for_all_rounds_at_once(count):
    """Level 1e-6 against a binomial at δ′ = 0.1."""
    seeds, rounds = count(40, 200), count(80, 150)
    spec, class_ = make_spec(estimation_risk=0.1, cost_noise=0.3, reward_noise=0.3), kernel()
    world = NonlinearWorld(kind="kernel", dim=2)
    missed = misses(
        nonlinear_hp_ucb(cost_class=class_), class_, world, spec, rounds=rounds, seeds=seeds, simulate=simulate
    )
    assert binomtest(missed, seeds, 0.1, alternative="greater").pvalue > 1e-6
