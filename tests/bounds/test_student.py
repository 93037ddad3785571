"""The three Student bounds against outside code, exact arithmetic and brute force, and their coverage by simulation."""

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, ndtri, stdtr
from scipy.stats import binom, binomtest, nct

from safedial.bounds import least_squares
from safedial.bounds.least_squares import Fitted
from safedial.bounds.t_laws import (
    CAUTION,
    Evidence,
    Mixture,
    _exact_factor,
    _span,
    _table,
    anytime_factor,
    cost_upper,
    per_round_factor,
    t_quantile,
    tolerance_factor,
)
from tests.conftest import FULL

LEVEL = 1e-6
"""False-alarm level of each statistical test; seeds are fixed."""

LANES = 20_000 if FULL else 500


@pytest.mark.parametrize("degrees", [2.0, 3.0, 17.0, 400.0, 1e5])
@pytest.mark.parametrize("risk", [1e-6, 0.01, 0.05, 0.2, 0.7])
def test_the_t_quantile_is_above_the_exact_one_by_no_more_than_the_caution(degrees, risk):
    found = t_quantile(degrees, risk)
    with mpmath.workdps(30):
        share = mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + mpmath.mpf(found) ** 2), regularized=True) / 2
        tail = share if found > 0 else 1 - share
    assert tail <= risk
    assert float(tail) == pytest.approx(risk, rel=1e-7)
    assert t_quantile(np.full(3, degrees), risk) == found
    assert stdtr(degrees, -found) == pytest.approx(risk, rel=1e-7)


def test_t_quantiles_of_unequal_degrees_are_each_their_own():
    degrees, risks = np.array([2.0, 9.0, 9.0]), np.array([[0.05], [0.01]])
    found = t_quantile(degrees, risks)
    assert found.shape == (2, 3)
    for row, risk in enumerate([0.05, 0.01]):
        assert found[row].tolist() == [t_quantile(each, risk) for each in degrees.tolist()]


def exact_tail(factor, degrees, width, risk):
    """P(z + wN > kS) by quadrature in 25 digits."""
    with mpmath.workdps(25):
        nu, factor, width = mpmath.mpf(degrees), mpmath.mpf(factor), mpmath.mpf(width)
        z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(risk))

        def part(size):
            log = (nu - 1) * mpmath.log(size) - nu * size**2 / 2 + nu / 2 * mpmath.log(nu / 2) - mpmath.loggamma(nu / 2)
            return 2 * mpmath.exp(log) * mpmath.ncdf((z - factor * size) / width)

        sd, turn, bend = 1 / mpmath.sqrt(2 * nu), z / factor, width / factor
        ends = [1 + step * sd for step in (-9, -4, -2, 0, 3)] + [turn + step * bend for step in (-8, -2, 0, 2, 8)]
        least, most = mpmath.mpf(10) ** -12, 1 + 14 * sd
        return mpmath.quad(part, sorted({least, most, *(min(max(end, least), most) for end in ends)}))


CASES = [(2, 0.5, 0.05, 0.01), (2, 1e-3, 0.05, 0.01), (2, 5.0, 0.05, 0.01), (100, 0.2, 0.05, 0.01)]
CASES += [(1000, 0.07, 0.05, 0.01), (1000, 2.0, 0.01, 0.001), (5, 0.3, 0.01, 1e-8), (50, 0.3, 0.45, 0.01)]


@pytest.mark.parametrize(("degrees", "width", "risk", "failure"), CASES)
def test_the_tolerance_factor_is_the_noncentral_t_quantile_rounded_up(degrees, width, risk, failure):
    found = float(tolerance_factor(float(degrees), width, risk, failure))
    tail = exact_tail(found, degrees, width, risk)
    assert tail <= failure
    assert float(tail) == pytest.approx(failure, rel=1e-6)
    assert found == pytest.approx(width * nct.ppf(1 - failure, degrees, -ndtri(risk) / width), rel=1e-7)


@pytest.mark.parametrize("degrees", [2.0, 1000.0])
def test_the_tolerance_factor_of_many_widths_is_that_of_each_rounded_up(degrees):
    widths = np.append(np.random.default_rng(0).gamma(3.0, 0.1, 40), [0.001, 2.0])
    alone = np.array([float(tolerance_factor(degrees, width, 0.05, 0.01)) for width in widths])
    together = tolerance_factor(degrees, widths, 0.05, 0.01)
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    risks = np.array([0.05, 0.2])
    each = [tolerance_factor(degrees, 0.5, risk, 0.01) for risk in risks.tolist()]
    np.testing.assert_allclose(tolerance_factor(degrees, 0.5, risks, 0.01), each, rtol=2e-8)


@pytest.mark.parametrize(("risk", "failure"), [(0.05, 0.01), (0.01, 1e-3), (0.2, 0.1), (0.001, 1e-6)])
def test_a_table_of_tolerance_factors_is_never_below_them_and_hardly_above(risk, failure):
    """Each span of degrees, at its ends and inside, at widths that are no nodes."""
    rng, none = np.random.default_rng(0), 0
    for degrees in (2.0, 5.0, 19.0, 20.0, 29.9, 30.0, 400.0, 1e4):
        table = _table(_span(degrees), risk, failure)
        none += table is None
        widest = 4.0 if table is None else table.widest
        widths = np.concatenate([widest * rng.random(12), widest * np.exp(-9.0 * rng.random(12)), [1e-9, widest]])
        alone = _exact_factor(*np.broadcast_arrays(degrees, widths, -ndtri(risk), failure))
        found = np.array([tolerance_factor(degrees, width, risk, failure) for width in widths.tolist()])
        assert np.all((found >= alone) & (found <= alone * (1 + 2e-8)))
    assert none <= 2


def test_tolerance_factors_of_unequal_degrees_widths_and_risks_are_each_their_own():
    """In one table, in none (one degree of freedom; a width beyond it), and with risks that differ."""
    degrees, widths = np.array([1.0, 8.0, 8.0, 30.0, 30.0]), np.array([0.3, 0.5, 40.0, 0.2, 5.0])
    together = tolerance_factor(degrees, widths, 0.05, 0.01)
    alone = [float(tolerance_factor(*pair, 0.05, 0.01)) for pair in zip(degrees.tolist(), widths.tolist(), strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    np.testing.assert_allclose(tolerance_factor(degrees[[1, 3]], widths[[1, 3]], 0.05, 0.01), together[[1, 3]])
    risks = np.array([[0.05], [0.01]])
    table = tolerance_factor(np.full(2, 8.0), np.array([0.5, 0.6]), risks, 0.01)
    for row, risk in enumerate((0.05, 0.01)):
        exact = [float(tolerance_factor(8.0, width, risk, 0.01)) for width in (0.5, 0.6)]
        np.testing.assert_allclose(table[row], exact, rtol=2e-8)
    equal = tolerance_factor(np.full(2, 8.0), np.array([0.5, 0.6]), np.array([[0.05]]), np.array([[0.01]]))
    np.testing.assert_allclose(equal, table[:1], rtol=2e-8)


def searched(seen, width, risk, failure, shape):
    """max over σ of [zσ + w√q(σ)]/√RSS on a fine grid of V = RSS/2σ², each q(σ) by a root finder."""
    size = shape + seen.rounds / 2
    room = 0.5 * seen.log_det - shape * math.log(shape) - gammaln(size) + gammaln(shape) - math.log(failure)
    best = 0.0
    for volume in np.exp(np.linspace(math.log(1e-3 * size), math.log(3 * size), 2000)):

        def excess(height, volume=volume):
            return volume + height - size * math.log(shape + volume + seen.shrinkage * height) - room

        lowest = max(0.0, size - (shape + volume) / seen.shrinkage)
        if excess(lowest) > 0:
            continue
        height = brentq(excess, lowest, lowest + 100 * size, xtol=1e-13)
        best = max(best, (-ndtri(risk) / math.sqrt(2) + width * math.sqrt(height)) / math.sqrt(volume))
    return best


SEARCHED = [(50, 6.0, 0.3, 0.4), (200, 12.0, 0.11, 0.16), (200, 12.0, 0.11, 0.0), (1000, 20.0, 0.02, 0.07)]


@pytest.mark.parametrize(("rounds", "log_det", "share", "width"), [*SEARCHED, (1000, 2.0, 1e-9, 3.0)])
def test_the_anytime_bound_is_above_every_sigma_and_near_the_largest(rounds, log_det, share, width):
    seen = Evidence(float(rounds), log_det, share)
    found, best = float(anytime_factor(seen, width, 0.05, 0.01, shape=10.0)), searched(seen, width, 0.05, 0.01, 10.0)
    assert best <= found <= best * 1.003


@pytest.mark.parametrize("rounds", [28.0, 60.0, 100.0])
def test_in_the_first_rounds_the_anytime_bound_is_the_largest_over_sigma_too(rounds):
    """Each lane, alone and in a batch, and where lanes differ in n."""
    shrinkage, widths = np.array([0.3, 0.44, 0.6]), np.array([0.2, 0.5, 1.5])
    log_det, counts = np.array([3.0, 9.0, 9.0]), np.array([rounds, rounds, rounds + 40.0])
    together = anytime_factor(Evidence(counts, log_det, shrinkage), widths, 0.05, 0.01, shape=10.0)
    for lane in range(3):
        seen = Evidence(*(float(part[lane]) for part in (counts, log_det, shrinkage)))
        found = anytime_factor(seen, float(widths[lane]), 0.05, 0.01, shape=10.0)
        assert float(together[lane]) == pytest.approx(found, rel=1e-8)
        best = searched(seen, float(widths[lane]), 0.05, 0.01, 10.0)
        assert found == math.inf or best <= found <= best * 1.0005


def test_with_nothing_known_of_one_direction_no_anytime_bound_is_given():
    """c just below 1, where no t has both M > 0 and G > 0."""
    for share in (1 - 1e-5, 1 - 1e-7, 1 - 1e-9):
        seen = Evidence(np.array([200.0, 200.0]), np.array([12.0, 12.0]), np.array([share, 0.1]))
        assert np.isinf(anytime_factor(seen, 0.2, 0.05, 0.01, shape=10.0)).tolist() == [True, False]
        assert anytime_factor(Evidence(200.0, 12.0, share), 0.2, 0.05, 0.01, shape=10.0) == math.inf


def test_at_a_context_of_zero_the_anytime_bound_is_that_of_the_noise_alone():
    """Where the steps to the best point are slow, or too few."""
    cases = [(60.0, 2.2276631515517797, 0.44377376529377033, 0.49, 0.5), (20.0, 4.0, 0.21, 0.001, 0.5)]
    for rounds, log_det, share, risk, shape in [*cases, (200.0, 52.69660542332721, 0.5380667485524875, 0.49, 100.0)]:
        seen = Evidence(rounds, log_det, share)
        found, best = anytime_factor(seen, 0.0, risk, 0.01, shape=shape), searched(seen, 0.0, risk, 0.01, shape)
        assert best <= found <= 1.1 * best


def test_the_anytime_bound_is_infinite_while_sigma_has_no_bound():
    assert anytime_factor(Evidence(8.0, 2.0, 0.5), 0.5, 0.05, 0.01, shape=10.0) == math.inf


def test_the_anytime_bound_rises_with_everything_that_is_rounded_up():
    base = Evidence(200.0, 12.0, 0.1)
    lowest = anytime_factor(base, 0.2, 0.05, 0.01, shape=10.0)
    for more in (base._replace(log_det=12.1), base._replace(shrinkage=0.11)):
        assert anytime_factor(more, 0.2, 0.05, 0.01, shape=10.0) > lowest
    assert anytime_factor(base, 0.21, 0.05, 0.01, shape=10.0) > lowest


def fitted(**changes):
    made = Fitted(0.0, 0.2, 0.3, 2.0, 25.0, True, 1.0, 30.0, log_det=5.0, least=3.0)
    return made._replace(**changes)


def test_one_learner_and_a_batch_have_the_same_bound():
    for guarantee in ("per_round", "tolerance", "anytime"):
        one = cost_upper(fitted(), guarantee, 0.05, 0.01)
        many = fitted(**{name: np.full(2, getattr(fitted(), name)) for name in ("cost", "width", "spread", "degrees")})
        lanes = many._replace(ready=np.array([True, False]), log_det=np.full(2, 5.0), least=np.full(2, 3.0))
        bound = cost_upper(lanes, guarantee, 0.05, 0.01, mixture=Mixture())
        assert bound[0] == pytest.approx(one, rel=1e-12)
        assert bound[1] == math.inf
        assert cost_upper(fitted(ready=False), guarantee, 0.05, 0.01) == math.inf
    assert cost_upper(fitted(), "per_round", 0.05) == pytest.approx(0.2 + 0.4 * 1.7081407612518986 * 1.09**0.5)
    assert cost_upper(fitted(rounds=6.0), "anytime", 0.05, 0.01) == math.inf
    assert per_round_factor(25.0, 0.0, 0.05) == pytest.approx(1.7081407612518986 * (1 + CAUTION))


def rounds_of(dim, lanes, count, seed, noise=None):
    """Contexts that drift and costs, round by round, with the fit before each round."""
    rng = np.random.default_rng(seed)
    coef, fit = rng.standard_normal((lanes, dim)), least_squares.init(dim, (lanes,))
    for number in range(1, count + 1):
        context = rng.standard_normal((lanes, dim)) + np.eye(dim)[0] * number / 20
        drawn = rng.standard_normal(lanes) if noise is None else noise(rng, lanes)
        cost = np.vecdot(context, coef) + 0.7 * drawn
        seen = least_squares.predict(fit, context)
        yield number, seen, cost, np.vecdot(context, coef)
        fit = least_squares.update(fit, seen, -cost, cost)


RISKS = np.array([0.01, 0.02, 0.05, 0.2])[:, None]


@pytest.mark.parametrize("dim", [1, 5, 20])
def test_the_per_round_bound_is_exceeded_with_probability_delta_at_every_time(dim):
    """In drifting contexts, at t = 8, 20, 50, 200, 1000; over the whole study the count is Binomial(T, δ)."""
    looks, last = (8, 20, 50, 200, 1000), (1000 if dim == 5 else 200) if FULL else 50
    lanes = LANES if dim == 1 else LANES // 5
    total, known = np.zeros((4, lanes)), 0
    for number, seen, cost, _ in rounds_of(dim, lanes, last, seed=dim):
        if number < dim + 3:
            assert not np.any(seen.ready)
            continue
        over = cost > cost_upper(seen, "per_round", RISKS)
        total, known = total + over, known + 1
        if number in looks:
            for risk, count in zip(RISKS[:, 0], over.sum(axis=-1), strict=True):
                assert binomtest(int(count), lanes, risk).pvalue > LEVEL, (number, risk, count)
    for risk, counts in zip(RISKS[:, 0], total, strict=True):
        assert binomtest(int(counts.sum()), lanes * known, risk).pvalue > LEVEL
        spread = counts.var(ddof=1) / (known * risk * (1 - risk))
        assert abs(spread - 1) < 5 * math.sqrt((2 + 1 / (known * risk * (1 - risk))) / lanes)
        most = int(binom.ppf(0.99, known, risk))
        beyond, chance = int(np.sum(counts > most)), float(binom.sf(most, known, risk))
        assert binomtest(beyond, lanes, chance).pvalue > LEVEL


def test_the_tolerance_bound_covers_the_quantile_with_its_probability():
    failures = {8: 0, 20: 0, 50: 0}
    for number, seen, _, mean in rounds_of(3, LANES, 50, seed=3):
        if number in failures:
            upper = cost_upper(seen, "tolerance", 0.05, 0.1)
            failures[number] = int(np.sum(mean + 0.7 * 1.6448536269514722 > upper))
    for missed in failures.values():
        assert binomtest(missed, LANES, 0.1).pvalue > LEVEL


@pytest.mark.parametrize("skips", [False, True])
def test_the_anytime_bound_holds_in_all_rounds_against_contexts_that_react(skips):
    """An adversary that knows μ and the estimate sends the context, of four, that is underestimated most, and may give
    nothing in a round, which is left out, after costs that were high.
    """
    lanes, rng, mixture = LANES // 5, np.random.default_rng(7), Mixture(2.0, 10.0)
    coef, fit = rng.standard_normal((lanes, 2)), least_squares.init(2, (lanes,))
    missed, tight, gram, given = np.zeros(lanes, dtype=bool), np.inf, np.zeros((lanes, 2, 2)), np.ones(lanes)
    for _ in range(400 if FULL else 150):
        offered = rng.standard_normal((4, lanes, 2))
        each = least_squares.predict(fit, offered)
        gaps = (np.vecdot(offered, coef) - each.cost) / np.maximum(each.width, 1e-9)
        picked: np.ndarray = np.argmax(gaps, axis=0)
        context = np.take_along_axis(offered, picked[None, :, None], axis=0)[0]
        seen = least_squares.predict(fit, context)
        values = np.linalg.eigvalsh(gram)
        seen = seen._replace(log_det=np.log1p(values / 2.0).sum(axis=-1), least=values[:, 0])
        upper = cost_upper(seen, "anytime", 0.05, 0.1, mixture=mixture)
        over = upper - np.vecdot(context, coef) - 0.7 * 1.6448536269514722
        missed, tight = missed | (over < 0), min(tight, float(np.median(over)))
        cost = np.vecdot(context, coef) + 0.7 * rng.standard_normal(lanes)
        fit = least_squares.update(fit, seen, cost, cost, given)
        gram += given[:, None, None] * context[:, :, None] * context[:, None, :]
        given = np.where(skips & (cost > seen.cost) & (given > 0), 0.0, 1.0)
    assert binomtest(int(missed.sum()), lanes, 0.1, alternative="greater").pvalue > LEVEL
    assert tight < 1.5
