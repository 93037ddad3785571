"""The logistic class against SciPy's optimisers, and against the theorem."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import binomtest

from safedial import InvalidInput
from safedial.bounds.safe_set import binary_safe_set
from safedial.policies import nonlinear_hp_ucb
from safedial.policies.classes import Outcomes, binary
from safedial.policies.classes.binary import derivatives, fit, loss, radius, upper
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.run import simulate
from tests.conftest import make_spec
from tests.policies.problems import misses

SIZE = 1.5


def trial(count=120, seed=0, truth=(0.9, -0.6)):
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (count, 2))
    offsets = np.log(rng.uniform(0.1, 1.0, count))
    labels = (rng.random(count) < expit(contexts @ np.array(truth) + offsets)).astype(float)
    return contexts, offsets, labels, (rng.random(count) < 0.9).astype(float)


@pytest.mark.parametrize("truth", [(0.9, -0.6), (6.0, 6.0)], ids=["inside", "at-the-boundary"])
def test_the_fit_is_the_least_loss_within_the_ball(truth):
    rounds = trial(truth=truth)
    found = fit(*rounds, np.zeros(2), size=SIZE, ridge=0.4)
    other = minimize(
        lambda w: loss(*rounds, w),
        np.zeros(2),
        jac=lambda w: derivatives(*rounds, w)[0],
        constraints=[{"type": "ineq", "fun": lambda w: SIZE**2 - w @ w}],
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    np.testing.assert_allclose(found.coef, other.x, atol=1e-5)
    assert np.linalg.norm(found.coef) <= SIZE * (1 + 1e-12)
    assert 0.0 <= found.gap < 1e-6


def test_the_bound_is_the_largest_value_over_the_set_by_an_optimiser():
    rounds = trial()
    fitted = fit(*rounds, np.zeros(2), size=SIZE, ridge=1 / SIZE**2)
    risk = np.log(20.0)
    level = float(loss(*rounds, fitted.coef) + risk + fitted.excess)
    for here in np.random.default_rng(1).uniform(-1, 1, (5, 2)):

        def most(room, here=here):
            """The largest value over a set, by SciPy from two starts."""
            runs = [
                minimize(lambda w: -here @ w, start, method="SLSQP", constraints=room, options={"ftol": 1e-14})
                for start in (fitted.coef, fitted.coef + 0.1 * here)
            ]
            return max(float(-run.fun) for run in runs)

        damped = [{"type": "ineq", "fun": lambda w: level + 0.5 - loss(*rounds, w) - w @ w / (2 * SIZE**2)}]
        whole = [{"type": "ineq", "fun": lambda w: level - loss(*rounds, w)}]
        whole.append({"type": "ineq", "fun": lambda w: SIZE**2 - w @ w})
        width = np.sqrt(here @ fitted.inverse @ here)
        ellipsoid = here @ fitted.coef + radius(fitted, risk, size=SIZE, ridge=1 / SIZE**2) * width
        mine = float(upper(rounds, fitted, here, ellipsoid, risk, size=SIZE))
        assert mine == pytest.approx(most(damped), abs=1e-5)
        assert most(whole) <= min(mine, ellipsoid) + 1e-6


def test_any_start_gives_a_valid_bound():
    rounds = trial()
    fitted = fit(*rounds, np.zeros(2), size=SIZE, ridge=1 / SIZE**2)
    here = np.array([0.5, 0.5])
    good = float(upper(rounds, fitted, here, 2.0, 3.0, size=SIZE))
    for start in (-50.0, 0.3, 1e3):
        assert float(upper(rounds, fitted, here, 1e3, 3.0, size=SIZE)) >= good - 1e-9
        assert float(upper(rounds, fitted, here, max(start, good), 3.0, size=SIZE)) >= good - 1e-9


def test_a_fit_cut_short_is_still_a_point_of_the_ball_with_its_gap_stated():
    contexts, offsets, labels, weights = trial(count=30, truth=(90.0, 90.0))
    found = fit(contexts * 1e4, offsets, labels, weights, np.zeros(2), size=SIZE, ridge=1.0)
    assert np.linalg.norm(found.coef) <= SIZE * (1 + 1e-12)
    gradient = derivatives(contexts * 1e4, offsets, labels, weights, found.coef)[0]
    assert found.gap == pytest.approx(max(0.0, gradient @ found.coef + SIZE * np.linalg.norm(gradient)), abs=1e-9)


def test_the_excess_covers_what_the_prior_loses(count):
    """ln(1/average likelihood) ≤ excess, by integrating over the prior's ball numerically (d = 2)."""
    for seed in range(count(3, 20)):
        for number in (5, 60, 400):
            rounds = trial(count=number, seed=seed)
            fitted = fit(*rounds, np.zeros(2), size=SIZE, ridge=1.0)
            grid = np.linspace(-1.5 * SIZE, 1.5 * SIZE, 161)
            points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
            points = points[np.linalg.norm(points, axis=-1) <= 1.5 * SIZE]
            values = np.array([loss(*rounds, point) for point in points]) - loss(*rounds, fitted.coef)
            assert -np.log(np.mean(np.exp(-values))) <= fitted.excess + 0.02


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_the_excess_covers_what_the_prior_loses_where_chances_are_one_to_the_last_bit(start):
    """At log-odds of 40 a chance is 1 in floats, and yet its curvature, times e^{hX}, is what the excess is made of."""
    rounds = np.full((1000, 1), 100.0), np.full(1000, -60.0), np.ones(1000), np.ones(1000)
    fitted = fit(*rounds, np.array([start]), size=1.0, ridge=1.0)
    grid = np.linspace(-1.5, 1.5, 3001)
    values = np.array([loss(*rounds, np.array([point])) for point in grid]) - loss(*rounds, fitted.coef)
    assert -np.log(np.mean(np.exp(np.minimum(-values, 700.0)))) <= fitted.excess


def test_contexts_of_any_size_give_a_bound():
    contexts, offsets, labels, weights = trial()
    for scale in (1e-6, 1e3, 1e6):
        fitted = fit(contexts * scale, offsets, labels, weights, np.zeros(2), size=SIZE, ridge=1 / SIZE**2)
        assert np.isfinite(fitted.excess)


def test_the_safe_dose_has_the_stated_chance():
    spec = make_spec(violation_risk=0.2)
    for log_odds in (-5.0, -0.3, 2.0):
        safe = binary_safe_set(log_odds, spec, round=1)
        chance = expit(log_odds + np.log(safe.intensity))
        assert chance <= 0.2
        assert safe.intensity == pytest.approx(1.0) or chance == pytest.approx(0.2)
    for nothing in (float("nan"), float("inf"), -float("inf")):
        none = binary_safe_set(nothing, spec, round=1)
        assert (none.intensity, none.certified) == (0.0, False)
    joint = make_spec(violation_risk=0.2, guarantee="joint")
    assert binary_safe_set(0.0, joint, round=3.0).intensity < binary_safe_set(0.0, joint, round=1.0).intensity


def test_before_any_data_the_norm_bounds_the_log_odds():
    class_ = binary(norm=2.0, odds=0.5)
    view = class_.look(class_.init(2), np.array([0.6, 0.8]))
    assert class_.ceiling(view, make_spec()) == pytest.approx(2.0 + np.log(0.5))
    assert class_.first(make_spec()) == pytest.approx(2.0 + np.log(0.5))


@pytest.mark.parametrize("label", [0.5, 2.0, -1.0, float("nan")])
def test_a_label_other_than_0_or_1_is_refused_and_changes_nothing(label):
    class_ = binary()
    state = class_.init(2)
    with pytest.raises(InvalidInput, match="must be 0 or 1"):
        class_.update(state, class_.look(state, np.ones(2)), Outcomes((np.float64(label),), 1.0, np.float64(0.5)))
    assert state.rounds.count == 0


def test_a_round_without_a_dose_teaches_nothing():
    class_ = binary()
    state = class_.init(2)
    state = class_.update(state, class_.look(state, np.ones(2)), Outcomes((np.float64(1.0),), 1.0, np.float64(0.0)))
    assert state.informative_rounds == 0.0
    np.testing.assert_array_equal(state.fitted.coef, 0.0)


def test_it_is_fitted_again_when_one_round_in_twenty_is_new():
    class_ = binary()
    state, due = class_.init(2), set()
    for number in range(60):
        outcome = Outcomes((np.float64(number % 2),), 1.0, np.float64(0.5))
        state = class_.update(state, class_.look(state, np.array([0.6, 0.8])), outcome)
        due.add(state.next_fit)
    assert sorted(due) == [*range(2, 41), *range(42, 61, 2), 63]


def test_bad_options_are_refused():
    for options in ({"norm": 0}, {"odds": -1}):
        with pytest.raises(InvalidInput):
            binary(**options)
    with pytest.raises(InvalidInput, match="reward_class"):
        nonlinear_hp_ucb(reward_class=binary())


def test_the_range_holds_for_all_rounds_at_once(count):
    """Level 1e-6 against a binomial at δ′ = 0.1."""
    seeds, rounds = count(60, 400), count(120, 400)
    spec, class_ = make_spec(estimation_risk=0.1, violation_risk=0.3), binary(norm=1.0, odds=0.25)
    world = NonlinearWorld(kind="logistic", dim=2)
    missed = misses(
        nonlinear_hp_ucb(cost_class=class_), class_, world, spec, rounds=rounds, seeds=seeds, simulate=simulate
    )
    assert binomtest(missed, seeds, 0.1, alternative="greater").pvalue > 1e-6
