"""The finite class against plain sums, and its sets against the theorem."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binomtest

from safedial import InvalidInput
from safedial.policies import nonlinear_hp_ucb
from safedial.policies.classes import Outcomes, finite
from safedial.simulation.nonlinear_worlds import NonlinearWorld, waves
from safedial.simulation.run import simulate
from tests.conftest import make_spec
from tests.policies.problems import learned, misses, rounds_of

COUNT = 60
EDGE = 2e-12
"""What a range of values in [−1, 1] may be wider by: the class's allowance for rounding, and as much again."""
HERE = np.array([0.1, -0.3])
SPEC = make_spec(estimation_risk=0.04)


def losses(contexts, outcomes, weights):
    values = waves(2, COUNT)(contexts)
    return np.einsum("n,nf->f", weights, (outcomes[:, None] - values) ** 2), values


@pytest.mark.parametrize("prior", [None, np.arange(1.0, COUNT + 1.0)], ids=["uniform", "prior"])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_the_mixture_set_is_the_one_written_down(prior, noise):
    contexts, outcomes, weights = rounds_of()
    class_ = finite(waves(2, COUNT), prior=prior)
    interval = class_.bounds(class_.look(learned(class_, contexts, outcomes, weights), HERE), 1, noise=noise, spec=SPEC)
    loss, _ = losses(contexts, outcomes[1], weights)
    log_prior = np.log(np.full(COUNT, 1 / COUNT) if prior is None else prior / prior.sum())
    limit = 2 * noise**2 * (np.log(1 / 0.04) - logsumexp(log_prior - loss / (2 * noise**2)))
    here = waves(2, COUNT)(HERE[None])[0]
    inside = here[loss <= limit]
    assert 0 < len(inside) < COUNT
    wanted = here[np.argmin(loss)], inside.min(), inside.max()
    assert interval[:3] == pytest.approx(wanted, rel=0.0, abs=EDGE)
    assert not interval.refuted


def test_the_paper_set_is_the_one_written_down_however_often_the_estimate_moves():
    contexts, outcomes, weights = rounds_of(count=50)
    class_ = finite(waves(2, COUNT), radius="paper")
    state = learned(class_, contexts[:0], outcomes, weights)
    seen = set()
    for index in range(len(contexts)):
        view = class_.look(state, HERE)
        interval = class_.bounds(view, 0, noise=0.1, spec=SPEC)
        loss, values = losses(contexts[:index], outcomes[0, :index], weights[:index])
        best = int(np.argmin(loss))
        distance = np.einsum("n,nf->f", weights[:index], (values - values[:, [best]]) ** 2)
        inside = waves(2, COUNT)(HERE[None])[0][distance <= 8 * 0.01 * np.log(COUNT / 0.04)]
        assert (interval.lower, interval.upper) == pytest.approx((inside.min(), inside.max()), rel=0.0, abs=EDGE)
        seen.add(best)
        told = Outcomes(tuple(outcomes[:, index]), np.float64(weights[index]))
        state = class_.update(state, class_.look(state, contexts[index]), told)
    assert len(seen) > 3


def test_a_batch_equals_one_at_a_time():
    for radius in ("mixture", "paper"):
        class_ = finite(waves(2, COUNT), radius=radius)
        world, policy = NonlinearWorld(kind="finite", dim=2, functions=COUNT), nonlinear_hp_ucb(cost_class=class_)
        spec = make_spec(reward_noise=0.3, cost_noise=0.3)
        together = simulate(policy, world, spec, rounds=60, seeds=3)
        for seed in range(3):
            alone = simulate(policy, world, spec, rounds=60, seeds=[seed])
            assert together.reward[0, seed] == pytest.approx(alone.reward[0, 0], abs=1e-12)


@pytest.mark.parametrize("radius", ["mixture", "paper"])
@pytest.mark.parametrize("bound", [1.0, 1e6])
@pytest.mark.parametrize("weight", [1.0, 1e4])
def test_a_rounding_never_excludes_the_truth(radius, bound, weight):
    """Outcomes without noise, and a second function that fits them better in the last digits alone."""

    def truth(x):
        return 0.5 * bound * x[..., 0]

    def twins(x):
        first, second = truth(x) * (1.0 - 8e-13), truth(x) * (1.0 - 4e-13)
        return np.stack([first, np.where(x[..., 1] > 0.9, -second, second)], axis=-1)

    class_, here = finite(twins, radius=radius, bound=bound), np.array([0.9, 1.0])
    contexts = rounds_of(count=200)[0]
    state = learned(class_, contexts, np.tile(truth(contexts), (2, 1)), np.full(200, weight))
    interval = class_.bounds(class_.look(state, here), 1, noise=1e-15 * bound, spec=SPEC)
    assert interval.lower <= truth(here) <= interval.upper
    assert interval.upper - truth(here) <= EDGE * bound


@pytest.mark.parametrize("radius", ["mixture", "paper"])
def test_the_set_contains_the_least_squares_function_even_where_none_fits(radius):
    class_ = finite([lambda x: 0.0 * x[..., 0], lambda x: 0.0 * x[..., 0] + 0.1], radius=radius)
    state = learned(class_, rounds_of(count=200)[0], np.ones((2, 200)), np.ones(200))
    interval = class_.bounds(class_.look(state, HERE), 0, noise=0.1, spec=SPEC)
    assert interval.estimate == 0.1
    assert interval.upper == pytest.approx(0.1, rel=0.0, abs=EDGE)
    assert not interval.refuted


def test_a_hundred_thousand_functions():
    class_ = finite(waves(2, 100_000))
    contexts, outcomes, weights = rounds_of(count=5)
    view = class_.look(learned(class_, contexts, outcomes, weights), HERE)
    interval = class_.bounds(view, 0, noise=1.0, spec=SPEC)
    assert -1.0 <= interval.lower < interval.upper <= 1.0


def changing():
    sizes = iter([3, 3, 4])
    return lambda x: np.zeros((*x.shape[:-1], next(sizes)))


@pytest.mark.parametrize(
    ("functions", "rule"),
    [
        ([], "at least one"),
        ("sin", "at least one"),
        ([np.sin, 3.0], "at least one"),
        (lambda x: np.zeros((*x.shape[:-1], 0)), "shape"),
        (lambda x: (1.0 + 1e-11) * np.ones((*x.shape[:-1], 3)), r"\[-1, 1\]"),
        (lambda x: -2.0 * np.ones((*x.shape[:-1], 3)), "-2"),
        (lambda x: np.full((*x.shape[:-1], 3), np.nan), r"\[-1, 1\]"),
        (lambda x: np.zeros(7), "shape"),
        (changing(), "changed in number"),
    ],
    ids=["empty", "text", "not-callable", "no-values", "beyond", "too-small", "nan", "shape", "changes-size"],
)
def test_a_class_that_is_none_is_refused(functions, rule):
    def use():
        class_ = finite(functions)
        state = class_.init(2)
        class_.look(state, np.zeros(2))
        class_.look(state, np.zeros(2))

    with pytest.raises(InvalidInput, match=rule):
        use()


@pytest.mark.parametrize("radius", ["mixture", "paper"])
def test_an_outcome_that_is_no_number_rules_nothing_out(radius):
    class_ = finite(waves(2, COUNT), radius=radius)
    contexts, outcomes, _ = rounds_of(count=3)
    outcomes[:, 1] = np.nan
    view = class_.look(learned(class_, contexts, outcomes, np.ones(3)), contexts[0])
    interval = class_.bounds(view, 1, noise=0.5, spec=make_spec())
    assert (interval.lower, interval.upper) == pytest.approx((view.values.min(), view.values.max()), rel=0.0, abs=EDGE)


@pytest.mark.parametrize(
    "options", [{"prior": [1, 2]}, {"prior": [0.0] * COUNT}, {"radius": "small"}, {"bound": 0}, {"bound": "1"}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidInput):
        finite(waves(2, COUNT), **options).init(2)
    with pytest.raises(InvalidInput, match="prior"):
        finite(waves(2, COUNT), radius="paper", prior=np.ones(COUNT))


@pytest.mark.parametrize("radius", ["mixture", "paper"])
def test_the_set_holds_for_all_rounds_at_once(radius, count):
    """Level 1e-6 against a binomial at δ′ = 0.1."""
    seeds, rounds = count(100, 500), count(60, 200)
    spec, class_ = (
        make_spec(estimation_risk=0.1, cost_noise=0.3, reward_noise=0.3),
        finite(waves(2, COUNT), radius=radius),
    )
    world = NonlinearWorld(kind="finite", dim=2, functions=COUNT)
    missed = misses(
        nonlinear_hp_ucb(cost_class=class_), class_, world, spec, rounds=rounds, seeds=seeds, simulate=simulate
    )
    assert binomtest(missed, seeds, 0.1, alternative="greater").pvalue > 1e-6
