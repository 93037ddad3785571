"""The parametric class: a real fit, a searched range, and no claim."""

import numpy as np
import pytest

from safedial import InvalidInput
from safedial.function_classes import parametric
from safedial.function_classes.families import network
from tests.conftest import make_spec
from tests.function_classes.problems import learned, rounds_of

HERE = np.array([0.1, -0.3])
LINE = parametric(lambda x, w: x @ w, [0.0, 0.0], bound=None, starts=1)


def test_for_a_linear_family_the_search_finds_the_ellipsoids_ends():
    contexts, outcomes, weights = rounds_of()
    state = learned(LINE, contexts, outcomes, weights)
    interval = LINE.bounds(LINE.look(state, HERE), 1, noise=0.3, spec=make_spec())
    root = np.sqrt(weights)
    gram = (root[:, None] * contexts).T @ (root[:, None] * contexts)
    coef = np.linalg.solve(gram, contexts.T @ (weights * outcomes[1]))
    level = 0.09 * (2 * np.log1p(np.sum(weights > 0)) + 2 * np.log(100))
    reach = np.sqrt(level * (HERE @ np.linalg.solve(gram, HERE)))
    learner = state.learners[0]
    np.testing.assert_allclose(learner.best[1], coef, atol=0.05)
    assert interval.upper == pytest.approx(HERE @ coef + reach, rel=0.05)
    assert interval.lower == pytest.approx(HERE @ coef - reach, rel=0.05)


def test_it_is_labelled_heuristic_and_never_certified():
    assert LINE.label == "heuristic"
    assert "certified" not in str(LINE.describe()) + str(LINE.assumptions)


def test_before_any_data_nothing_is_known():
    interval = LINE.bounds(LINE.look(LINE.init(2), HERE), 0, noise=1.0, spec=make_spec())
    assert (interval.lower, interval.upper) == (-np.inf, np.inf)
    cut = parametric(*network(2))
    assert cut.bounds(cut.look(cut.init(2), HERE), 0, noise=1.0, spec=make_spec()).upper == 1.0
    assert cut.ceiling(None, make_spec()) == cut.first(make_spec()) == 1.0


def test_a_saturated_fit_does_not_hide_the_other_end():
    """At a fit where the network is flat the slope says nothing; scattered parameters do."""
    class_ = parametric(*network(2, units=2))
    state = learned(class_, HERE[None], np.full((2, 1), -4.0), np.ones(1))
    interval = class_.bounds(class_.look(state, HERE), 0, noise=1.0, spec=make_spec())
    assert interval.upper > 0.5


def test_a_family_without_slope_is_answered_with_its_value():
    flat = parametric(lambda x, w: 0.0 * x[:, 0] + 0.0 * w[0] + 0.3, [0.0])
    state = learned(flat, *rounds_of(count=4))
    interval = flat.bounds(flat.look(state, HERE), 0, noise=1.0, spec=make_spec())
    assert (interval.lower, interval.estimate, interval.upper) == (0.3, 0.3, 0.3)


def test_a_far_start_leaves_nothing_scattered_in_the_set():
    contexts, outcomes, _ = rounds_of(count=30)
    far = parametric(lambda x, w: x @ w[:2] + 40.0 * w[2], [0.0, 0.0, 3.0], bound=None, starts=0)
    state = learned(far, contexts, outcomes * 0.0, np.ones(30))
    interval = far.bounds(far.look(state, HERE), 0, noise=0.01, spec=make_spec())
    assert interval.lower < interval.upper < 1.0


@pytest.mark.parametrize(
    ("function", "start", "options"),
    [
        (3, [0.0], {}),
        (lambda x, w: x[:, 0], [], {}),
        (lambda x, w: x[:, 0], [[0.0]], {}),
        (lambda x, w: x[:, 0], [np.nan], {}),
        (lambda x, w: x, [0.0], {}),
        (lambda x, w: x[:, 0], [0.0], {"reach": 0}),
        (lambda x, w: x[:, 0], [0.0], {"bound": -1}),
        (lambda x, w: x[:, 0], [0.0], {"starts": -1}),
    ],
)
def test_bad_input_is_refused(function, start, options):
    with pytest.raises(InvalidInput):
        parametric(function, start, **options).init(2)
