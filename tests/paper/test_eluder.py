"""The eluder dimension against the bare definition, and Theorem 3's width sum against widths that are played out."""

import json
import math
from functools import cache
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from safedial import InvalidInput, SafetySpec
from safedial.paper import eluder_dimension as kernel_eluder
from safedial.paper import eluder_dimension as search
from safedial.paper.eluder_dimension import (
    eluder_dimension,
    finite_upper,
    is_eluder_sequence,
    kernel_lower,
    kernel_upper,
    linear_lower,
    linear_upper,
)
from safedial.paper.regret import (
    finite_case,
    finite_radius,
    kernel_case,
    linear_case,
    report,
    ridge_radius,
    theorem3_bound,
    theorem3_curve,
    width_sum,
)
from tests.program import run

SMALL = st.tuples(st.integers(2, 4), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-3, 3))
)


def by_definition(values, epsilon):
    """The longest sequence over all sequences (repeats allowed) and all ε′ that could matter, in whole numbers.

    ε′ may be lowered to the largest sum it must bear, or to ε; so these are all that need to be tried.
    """
    functions, contexts = values.shape
    differences = [
        tuple(int(value) for value in values[f] - values[g])
        for f in range(functions)
        for g in range(functions)
        if f != g
    ]
    sums = {
        sum(d[x] ** 2 for x in part) for d in differences for size in range(contexts + 1)
        for part in combinations(range(contexts), size)
    }  # fmt: skip

    def longest(squared_scale):
        @cache
        def after(before):
            follow = [
                x
                for x in range(contexts)
                if any(sum(d[y] ** 2 for y in before) <= squared_scale < d[x] ** 2 and d[x] > 0 for d in differences)
            ]
            return max((1 + after(tuple(sorted((*before, x)))) for x in follow), default=0)

        return after(())

    return max(longest(scale) for scale in {epsilon**2} | {total for total in sums if total > epsilon**2})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SMALL, st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0]))
def test_the_search_equals_the_definition(values, epsilon):
    found = eluder_dimension(values, epsilon)
    assert found.kind == "exact"
    assert found.dimension == by_definition(values, epsilon) == len(found.sequence)
    assert found.dimension <= finite_upper(values, epsilon).dimension
    if found.sequence:
        assert found.scale >= epsilon
        assert is_eluder_sequence(values, found.sequence, found.scale)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(2, 9))
def test_growing_and_shrinking_agree_and_greedy_is_never_above(seed, functions, contexts):
    values = np.random.default_rng(seed).uniform(-1, 1, (functions, contexts))
    lengths, limit = [], search.SHRINK_AT_MOST
    try:
        for search.SHRINK_AT_MOST in (-1, 99):
            lengths.append(eluder_dimension(values, 0.05))
            assert is_eluder_sequence(values, lengths[-1].sequence, lengths[-1].scale)
    finally:
        search.SHRINK_AT_MOST = limit
    lower = eluder_dimension(values, 0.05, method="greedy")
    assert lower.kind == "lower bound"
    assert lower.dimension <= lengths[0].dimension == lengths[1].dimension


def test_each_pair_of_the_witness_tells_its_context_from_those_before():
    values = np.random.default_rng(3).uniform(-1, 1, (9, 10))
    found = eluder_dimension(values, 0.1)
    for place, (context, (f, g)) in enumerate(zip(found.sequence, found.pairs, strict=True)):
        gap = np.abs(values[f] - values[g])
        assert np.linalg.norm(gap[list(found.sequence[:place])]) <= found.scale < gap[context]


@pytest.mark.parametrize("n", [2, 5, 12])
def test_indicators_have_one_less_than_their_number_and_all_with_the_zero_function(n):
    assert eluder_dimension(np.eye(n), 0.5).dimension == n - 1
    assert eluder_dimension(np.vstack([np.eye(n), np.zeros(n)]), 0.5).dimension == n
    assert eluder_dimension(np.tri(n + 1, n, -1), 0.5).dimension == n  # steps


def test_constants_have_dimension_one_or_none():
    constants = np.repeat([[0.1], [0.5], [0.9]], 30, axis=1)
    assert eluder_dimension(constants, 0.5) == eluder_dimension(constants, 0.5, method="exact")
    assert eluder_dimension(constants, 0.5).dimension == 1
    assert eluder_dimension(constants, 0.8).dimension == 0  # a tie is no difference, whatever rounding says
    assert eluder_dimension(np.ones((1, 3)), 0.1).dimension == 0


def test_copies_of_a_function_change_nothing_and_a_class_of_zeros_has_a_curve():
    steps = np.repeat(np.tri(5, 4, -1), 80, axis=0)
    assert (eluder_dimension(steps, 0.5).dimension, eluder_dimension(steps, 0.5).kind) == (4, "exact")
    zeros = finite_case(np.zeros((3, 3)), settings_for())
    assert [row["dimension"] for row in theorem3_curve(zeros, settings_for(), 100)] == [0, 0]


def test_three_functions_can_have_dimension_three():
    values = np.array([[0.0, 0.0, 0.0], [0.75, 2.0, 0.0], [1.5, 2.0, 2.0]])
    assert eluder_dimension(values, 1.0).dimension == 3 == finite_upper(values, 1.0).dimension


def test_the_dimension_falls_with_epsilon():
    values = np.random.default_rng(0).uniform(-1, 1, (6, 8))
    dimensions = [eluder_dimension(values, epsilon).dimension for epsilon in (0.01, 0.1, 0.5, 1.0, 1.5, 1.9, 2.0)]
    assert dimensions == sorted(dimensions, reverse=True)
    assert dimensions[0] > dimensions[-1] == 0


@pytest.mark.slow
def test_a_large_class_gets_a_lower_bound_that_its_sequence_proves():
    values = np.random.default_rng(1).uniform(-1, 1, (250, 60))
    heard = []
    found = eluder_dimension(values, 0.2, progress=heard.append)
    assert found.kind == "lower bound"
    assert sum(heard) == 100
    assert found.dimension == len(found.sequence) > 10
    assert is_eluder_sequence(values, found.sequence, found.scale)
    with pytest.raises(InvalidInput, match=r"at most 16 contexts that differ .* use greedy"):
        eluder_dimension(values, 0.2, method="exact")


def test_many_contexts_are_looked_at_in_part_and_none_is_longer_than_all():
    values = np.random.default_rng(2).uniform(-1, 1, (12, 150))
    found = eluder_dimension(values, 0.2)
    assert found.dimension > 5
    assert is_eluder_sequence(values, found.sequence, found.scale)
    assert search.longest(np.eye(4), 1.0, 0.0, more_than=4) == []


def test_linear_functions_on_a_grid_stay_below_the_bounds_for_all_linear_functions():
    angles = np.linspace(0, np.pi, 7, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    weights = np.vstack([size * circle * sign for size in (0.05, 0.2, 1.0) for sign in (1, -1)])
    contexts = np.vstack([circle[:5], 0.3 * circle[:5]])
    for epsilon in (0.05, 0.3, 1.0):
        exact = eluder_dimension(weights @ contexts.T, epsilon)
        assert exact.kind == "exact"
        assert exact.dimension >= 2
        sizes = {"epsilon": epsilon, "coefficient_bound": 1.0, "context_bound": 1.0}
        assert exact.dimension <= linear_upper(2, **sizes).dimension
        assert exact.dimension <= kernel_upper(contexts @ contexts.T, epsilon=epsilon, norm=1.0).dimension


@pytest.mark.parametrize("epsilon", [0.11, 0.3, 0.5, 1.3, 1.9])
def test_one_dimension_is_exact_and_its_sequence_can_be_built(epsilon):
    count = linear_upper(1, epsilon=epsilon, coefficient_bound=1.0, context_bound=1.0)
    assert count.kind == "exact"
    squares = [(epsilon / 2) ** 2 * (1 + 1e-6)]
    while (following := max(sum(squares), squares[0]) * (1 + 1e-6)) <= 1.0:
        squares.append(following)
    contexts = np.sqrt(squares)
    slopes = np.concatenate([[2.0], epsilon / np.sqrt(np.cumsum(squares))]) * (1 - 1e-9)
    built = eluder_dimension(np.concatenate([slopes, -slopes])[:, None] / 2 * contexts, epsilon * (1 - 1e-6))
    assert built.dimension == len(squares) == count.dimension


def test_linear_bounds_are_in_order_and_the_closed_form_is_the_published_one():
    for dim in (2, 3, 10, 100):
        for epsilon in (1e-6, 1e-3, 0.1, 1.0, 1.99):
            sizes = {"epsilon": epsilon, "coefficient_bound": 2.0, "context_bound": 0.5}
            lower, upper = linear_lower(dim, **sizes), linear_upper(dim, **sizes)
            published = 3 * dim * math.e / (math.e - 1) * math.log(3 + 3 * (2 / epsilon) ** 2) + 1
            assert dim <= lower.dimension <= upper.dimension <= published
            assert (lower.kind, upper.kind, upper.method) == ("lower bound", "upper bound", "determinant")
    nothing = linear_upper(3, epsilon=2.0, coefficient_bound=1.0, context_bound=1.0)
    assert (nothing.dimension, nothing.kind) == (0, "exact")
    assert linear_lower(3, epsilon=2.0, coefficient_bound=1.0, context_bound=1.0).dimension == 0


def gaussian(points, length=0.5):
    return np.exp(-((points[:, None] - points[None]) ** 2).sum(-1) / (2 * length**2))


def test_the_gain_bound_is_above_the_best_set_of_each_size():
    gram, ridge = gaussian(np.random.default_rng(5).uniform(-1, 1, (8, 2))), 0.05
    bound = kernel_eluder._largest_gains(gram, ridge, 8)
    for size in range(1, 9):
        sets = (np.ix_(chosen, chosen) for chosen in map(list, combinations(range(8), size)))
        best = max(np.linalg.slogdet(np.eye(size) + gram[part] / ridge)[1] for part in sets)
        assert best <= bound[size - 1] * (1 + 1e-12)
        assert bound[size - 1] <= best * math.e / (math.e - 1)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_a_kernel_sequence_is_one_by_convex_optimisation_and_no_longer_than_the_bound(epsilon):
    gram, norm = gaussian(np.random.default_rng(6).uniform(-1, 1, (14, 2))), 2.0
    lower = kernel_lower(gram, epsilon=epsilon, norm=norm)
    upper = kernel_upper(gram, epsilon=epsilon, norm=norm)
    assert 3 <= lower.dimension <= upper.dimension <= 14
    features = np.linalg.cholesky(gram + 1e-12 * np.eye(14))
    for place, context in enumerate(lower.sequence):
        weights = cp.Variable(14)
        limits = [cp.norm(weights) <= 2 * norm]
        limits += [cp.norm(features[list(lower.sequence[:place])] @ weights) <= epsilon] if place else []
        assert cp.Problem(cp.Maximize(features[context] @ weights), limits).solve(solver=cp.CLARABEL) > epsilon


def test_a_kernel_class_within_epsilon_or_of_one_context_is_no_puzzle():
    assert kernel_upper(np.eye(4), epsilon=2.0, norm=1.0).dimension == 0
    assert kernel_lower(np.eye(4), epsilon=2.0, norm=1.0).dimension == 0
    assert kernel_upper(np.ones((6, 6)), epsilon=0.01, norm=1.0).dimension == 1
    assert kernel_lower(np.ones((6, 6)), epsilon=0.01, norm=1.0).dimension == 1


@pytest.mark.parametrize("radius", [0.02, 0.3, 2.0])
def test_widths_played_out_sum_to_no_more_than_the_bound(radius):
    """Whatever centre and whatever contexts: here random centres, and always the context of the largest width."""
    rng = np.random.default_rng(8)
    values, rounds = rng.uniform(-1, 1, (12, 10)), 400
    dimension = eluder_dimension(values, 1 / rounds).dimension
    past, total = np.zeros(10), 0.0
    for _ in range(rounds):
        centre = values[rng.integers(12)]
        kept = values[((values - centre) ** 2) @ past <= radius]
        widths = kept.max(axis=0) - kept.min(axis=0)
        context = int(np.argmax(widths))
        total += widths[context]
        past[context] += 1
    assert 1.0 < total <= width_sum(rounds, dimension=dimension, radius=radius)


def test_theorem_3_is_two_width_sums_and_grows_like_the_root():
    dimensions = {"reward_dimension": 5, "cost_dimension": 7, "reward_radius": 3.0, "cost_radius": 4.0}
    rounds, tau = np.array([1e3, 1e5, 1e7]), 0.5
    by_hand = 1 + 2 * 5 + 4 * np.sqrt(15 * (rounds - 5)) + (1 + 2 * 7 + 4 * np.sqrt(28 * (rounds - 7))) / tau
    np.testing.assert_allclose(theorem3_bound(rounds, threshold=tau, **dimensions), by_hand, rtol=1e-12)
    finer = theorem3_bound(rounds, threshold=tau, epsilon=1 / rounds**2, **dimensions)
    np.testing.assert_allclose(by_hand - finer, (1 - 1 / rounds) * 3, rtol=1e-6)
    assert width_sum(10, dimension=50, radius=9.0) == 20
    twice = theorem3_bound(1e5, threshold=tau, value_bound=2.0, **dimensions)
    np.testing.assert_allclose(
        twice, 1 + 4 * 5 + 4 * np.sqrt(15 * (1e5 - 5)) + 4 * (1 + 4 * 7 + 4 * np.sqrt(28 * (1e5 - 7)))
    )


def settings_for(**changes):
    given = {"threshold": 0.5, "violation_risk": 0.01, "estimation_risk": 0.005, "reward_noise": 0.3, "cost_noise": 1.0}
    return SafetySpec(**given | {"coefficient_bound": 1.0, "context_bound": 1.0, "ridge": 2.0} | changes)


def test_radii_are_those_of_the_paper_and_of_the_linear_policies():
    assert finite_radius(50, noise=0.5, estimation_risk=0.01) == pytest.approx(2 * math.log(5000))
    by_hand = 0.09 * (4 * math.log1p(1000 / 8) + 2 * math.log(200)) + 2.0
    assert ridge_radius(4, 1000, settings_for(), noise=0.3) == pytest.approx(by_hand)


def test_cases_report_which_number_they_give_and_a_curve_from_above():
    values = np.random.default_rng(0).uniform(-1, 1, (30, 30))
    cases = {
        "finite": (finite_case(values[:5, :6], settings_for()), "exact"),
        "large": (finite_case(values, settings_for()), "lower bound"),
        "line": (linear_case(1, settings_for()), "exact"),
        "linear": (linear_case(4, settings_for()), "upper bound"),
        "kernel": (
            kernel_case(np.square(1 + values[:, :2] @ values[:, :2].T), settings_for(coefficient_bound=0.3)),
            "upper bound",
        ),
    }
    for case, kind in cases.values():
        told = report(case, 0.3)
        assert told["kind"] == kind
        assert told["lower_bound"] <= told["dimension"] <= told["upper_bound"]
        curve = theorem3_curve(case, settings_for(), 1234)
        assert [row["rounds"] for row in curve] == [10, 100, 1000]
        assert all(row["kind"] in ("exact", "upper bound") for row in curve)
        assert all(0 < row["bound"] <= 6 * case.value_bound * max(1, case.value_bound) * row["rounds"] for row in curve)
    meet = report(kernel_case(np.eye(3), settings_for()), 0.1)
    assert (meet["dimension"], meet["kind"], meet["method"]) == (3, "exact", "greedy sequence; number of contexts")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eluder_dimension([1.0, 2.0], 0.1), "values = .*must be a matrix of numbers"),
        (lambda: eluder_dimension(np.empty((0, 3)), 0.1), "at least one function"),
        (lambda: eluder_dimension([[np.nan, 1.0]], 0.1), "must be finite"),
        (lambda: eluder_dimension([[1.0]], 0.0), "epsilon = 0.0: must be a finite number > 0"),
        (lambda: eluder_dimension([[1.0]], 0.1, method="best"), "method = 'best'"),
        (lambda: linear_upper(0, epsilon=0.1, coefficient_bound=1, context_bound=1), "dim = 0"),
        (lambda: kernel_upper([[1.0, 2.0], [2.0, 1.0]], epsilon=0.1, norm=1), "positive semi-definite.* eigenvalue -1"),
        (lambda: kernel_upper([[1.0, 0.5], [0.2, 1.0]], epsilon=0.1, norm=1), "must be symmetric"),
        (lambda: kernel_upper([[1.0, 0.5]], epsilon=0.1, norm=1), "must be a square matrix"),
        (lambda: kernel_upper(np.full((2, 2), np.inf), epsilon=0.1, norm=1), "finite numbers"),
        (lambda: kernel_lower(np.zeros((2001, 2001)), epsilon=0.1, norm=1), "contexts = 2001: must be at most 2000"),
        (lambda: width_sum(0, dimension=1, radius=1), "rounds = 0"),
        (lambda: width_sum(9, dimension=-1, radius=1), "dimension = -1"),
        (lambda: width_sum(9, dimension=1, radius=np.nan), "radius = nan"),
        (lambda: width_sum(9, dimension=1, radius=1, epsilon=0), "epsilon = 0"),
        (lambda: finite_radius(0, noise=1, estimation_risk=0.1), "functions = 0"),
        (lambda: finite_radius(3, noise=1, estimation_risk=1.0), "estimation_risk = 1.0"),
    ],
)
def test_bad_input_is_told_what_rule_it_broke(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_the_command_gives_one_object_and_reads_a_class_of_ones_own(tmp_path):
    own = tmp_path / "steps.csv"
    own.write_text("0,0,0\n1,0,0\n1,1,0\n1,1,1\n")
    done = run("eluder", "--class", "finite", "--values", str(own), "--epsilon", "0.5", "--rounds", "1000", "--json")
    told = json.loads(done.stdout)
    assert (told["dimension"], told["kind"], told["functions"], told["contexts"]) == (3, "exact", 4, 3)
    assert is_eluder_sequence(np.tri(4, 3, -1), told["sequence"], told["scale"])
    assert [row["rounds"] for row in told["theorem3"]] == [10, 100, 1000]
    shown = run("eluder", "--class", "kernel", "--kernel", "polynomial:1", "--contexts", "99", "--epsilon", "0.5")
    assert (shown.returncode, "lower bound" in shown.stdout) == (0, True)
    wrong = run("eluder", "--class", "finite", "--values", "nowhere.csv", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert "--values = 'nowhere.csv': is not a file" in wrong.stderr
