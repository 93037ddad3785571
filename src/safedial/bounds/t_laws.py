"""The tolerance factor: the k with P(z + wN ≤ kS) = 1 − δ′, N ~ N(0, 1) and S² ~ χ²_ν/ν independent.

It is w times a noncentral t quantile. One needs two dozen quadratures, so factors come from tables, one for a span of
ν, that are raised by more than they err; what a table does not cover is computed.

Upper bounds on a round's cost for Gaussian noise of unknown size: no κ, no S, no L.

Information does not depend on the dose (`policies.linear`), so n rounds with a dose above 0 are n rows of one
regression, Y = C/g = ⟨x,μ⟩ + σξ, ξ ~ N(0, 1). With the least-squares estimate μ̂, RSS its sum of squared residuals,
ν = n − d, s² = RSS/ν and w² = xᵀ(XᵀX)⁻¹x, each bound has the form

    U(x) = ⟨x,μ̂⟩ + s·k(w, ν, …),        z_safe = 1 if U ≤ τ else τ/U

**Per round.** k = t_{ν,1−δ}·√(1 + w²). Given all contexts, (Y − ⟨x,μ̂⟩)/(s√(1+w²)) has Student's t law with ν degrees of
freedom, so P(Y > U) = δ exactly. Needs i.i.d. noise, and contexts that do not depend on past noise.

**Tolerance.** k solves P(z + wN ≤ kS) = 1 − δ′, where z = Φ⁻¹(1−δ), N ~ N(0, 1) and S² ~ χ²_ν/ν are independent: it is
w times the noncentral t quantile with noncentrality z/w. Since (⟨x,μ⟩ + zσ − ⟨x,μ̂⟩)/s has the law of (z + wN)/S,
P(⟨x,μ⟩ + zσ ≤ U) = 1 − δ′: at this t, with probability 1 − δ′ over the past, P(Y > U | past) ≤ δ. With δ′_t that sum
to δ′, fixed in advance, it holds in all rounds at once (union bound; `spent_in`).

**Anytime.** Needs only Y_t | past, x_t, a_t ~ N(⟨x_t,μ⟩, σ²). Mix around each null (μ, σ) over ν = μ + σb, ς = σρ,
b|ρ ~ N(0, ρ²I/λ), ρ⁻² ~ Γ(a, a). With A = a + n/2, h = μ̂ − μ, q = hᵀGh, q_H = hᵀ(G⁻¹ + I/λ)⁻¹h, the martingale is

    ln M = −½ ln det(I + G/λ) + a ln a + lnΓ(A) − lnΓ(a) + (RSS + q)/2σ² − A ln(a + (RSS + q_H)/2σ²)

and ln M < ln(1/δ′) for all t with probability ≥ 1 − δ′ (Ville). As q_H ≤ cq with c = λ/(λ + g_min), every (μ, σ) that
is not excluded satisfies, with V = RSS/2σ², p = q/2σ² and K = a + ½ ln det(I + G/λ) − a ln a − ln Γ(A)/Γ(a) + ln 1/δ′,

    V + p − A ln(a + V + cp) ≤ K − a,         and then ⟨x,μ⟩ + zσ ≤ ⟨x,μ̂⟩ + √RSS·(z/√2 + w√p)/√V =: ⟨x,μ̂⟩ + √RSS·F

Let f = 1 − c, and for any t > 0: r = A/t − 1, h = A ln t − t + K, M = r(t − a) − h, G = f − cr. The first, with
ln y ≤ ln t + (y − t)/t, gives rV ≥ M + Gp. So where r, M and G are positive, by Cauchy–Schwarz,

    F ≤ (z/√2 + w√p)/√(M/r + Gp/r) ≤ √(r·(½z²/M + w²/G))

So each t gives a bound that holds for every σ: no grid is searched, and nothing lies between grid points. The least of
them, which is the largest F, has (z/√2)·√h·G = w√f·M. There the left side rises in t and the right one falls, so a few
steps of Newton's method find t. M is largest at t = max(cA, a); if it is not positive there, σ has no upper bound yet:
U = ∞.

**Variance ratios.** If the noise of a round has variance σ²h(x) with a known h, then Y/√h on x/√h is the regression
above: weighted least squares. Each bound U of Y/√h gives √h·U for Y; per round that is ⟨x,μ̂⟩ + t·s·√(h(x) + w²).

The quantiles are raised by `CAUTION`, relatively, which is more than their numerical error (tests compare them with
50-digit arithmetic).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.least_squares import Fitted
from safedial.model.namespace import FLOATS, Array, namespace, normal_quantile, scalar, some, where

CAUTION = 1e-9
"""By how much a quantile is raised, relatively."""

STEPS = 8
"""The most Newton steps."""

FIRST_SPAN, SPAN, SPAN_NODES, ORDERS = 20, 1.5, 8, np.arange(40.0)
RAISED = 1e-8
"""By how much a table of tolerance factors is raised, relatively; it errs by less than a third of this."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
REACH = 8.5
"""A standard normal variable lies within ±REACH but for 2e-17."""


def tolerance_factor(degrees: Any, width: Any, risk: Any, failure: Any) -> Any:
    """The k with P(z + wN ≤ kS) = 1 − `failure`, z = Φ⁻¹(1 − risk) > 0, or 1e-8 of it more: w times a noncentral t
    quantile, from a table where one serves (`_table`).

    >>> f"{tolerance_factor(8.0, 0.5, 0.05, 0.1):.4f}"
    '2.8117'
    """
    if type(width) is float and type(risk) is float:
        table = _table(_span(degrees), risk, failure)
        if table is not None and width <= table.widest:
            return table.at(degrees, width)
    spread = [np.asarray(part) for part in (degrees, risk, failure)]
    if all(part.size == 1 or np.all(part == part.flat[0]) for part in spread):  # as in most simulations
        each, share, fails = (float(part.flat[0]) for part in spread)
        table = _table(_span(each), share, fails)
        if table is not None and np.max(width) <= table.widest:
            return table.at(each, width + np.zeros(np.broadcast_shapes(*(part.shape for part in spread))))
    quantile = -normal_quantile(np.asarray(risk))
    parts = [np.asarray(part, dtype=float) for part in (degrees, width, quantile, failure)]
    degrees, width, quantile, failure = np.broadcast_arrays(*parts)
    if not all(np.all(part == part.flat[0]) for part in (quantile, failure)):
        return _exact_factor(degrees, width, quantile, failure)
    value, known = np.empty(width.shape), np.zeros(width.shape, dtype=bool)
    for each in np.unique(degrees).tolist():
        table = _table(_span(each), float(np.min(risk)), float(failure.flat[0]))
        if table is not None:
            here = (degrees == each) & (width <= table.widest)
            value[here], known = table.at(each, width[here]), known | here
    if not np.all(known):
        value[~known] = _exact_factor(*(part[~known] for part in (degrees, width, quantile, failure)))
    return value


def _exact_factor(degrees: Array, width: Array, quantile: Array, failure: Array) -> Array:
    """`tolerance_factor` without a table.

    The tail P(z + wN > kS) is E Φ((z − kS)/w), an integral over S, or E P(S < (z + wN)/k), one over N. The first has a
    smooth integrand if S varies by less than w/k, the second if it varies by more. Newton's steps are on its logarithm.
    """
    factor = np.array(_first_factor(degrees, width, quantile, failure))
    moving = np.ones(factor.shape, dtype=bool)
    for _ in range(STEPS):
        over_size = width >= factor / np.sqrt(2.0 * degrees)
        for which, integrals in ((over_size, _tail_over_size), (~over_size, _tail_over_noise)):
            chosen = moving & which
            if np.any(chosen):
                known = (part[chosen][..., None] for part in (factor, degrees, width, quantile))
                tail, slope = integrals(*known)
                step, before = tail * (np.log(tail) - np.log(failure[chosen])) / -slope, factor[chosen]
                factor[chosen] = np.clip(before + step, 0.5 * before, 2.0 * before)
                moving[chosen] = np.abs(step) > 1e-7 * before
    return factor * (1.0 + CAUTION)


class _Table(NamedTuple):
    """k/√(1 + w²) of a span of ν as Chebyshev coefficients in ln ν and ln(w² + bend), for w up to `widest`; raised."""

    coef: Array
    middle: float
    half: float
    bend: float
    low: float
    high: float
    widest: float

    def at(self, degrees: float, width: Any) -> Any:
        """k, for one ν of the span and one or many widths."""
        turn = (math.log(degrees) - self.middle) / self.half
        here = np.cos(ORDERS[: len(self.coef)] * math.acos(min(max(turn, -1.0), 1.0))) @ self.coef
        if type(width) is float:
            place = (2.0 * math.log(width * width + self.bend) - self.low - self.high) / (self.high - self.low)
            value = float(here @ np.cos(ORDERS * math.acos(min(max(place, -1.0), 1.0))))
            return value * math.sqrt(1.0 + width * width)
        place = (2.0 * np.log(width * width + self.bend) - self.low - self.high) / (self.high - self.low)
        return np.polynomial.chebyshev.chebval(place, here) * np.sqrt(1.0 + width * width)


def _span(degrees: float) -> int:
    """The number of the span that ν lies in: each below 20 by itself, above by steps of a half."""
    return int(degrees) if degrees < FIRST_SPAN else FIRST_SPAN + int(math.log(degrees / FIRST_SPAN) / math.log(SPAN))


@lru_cache(maxsize=1024)
def _table(span: int, risk: float, failure: float) -> _Table | None:
    """The table of a span. It is raised by `RAISED`, and None unless between its nodes, where a polynomial errs most,
    it errs by less than a third of that.
    """
    single = span < FIRST_SPAN
    start = float(span) if single else FIRST_SPAN * SPAN ** (span - FIRST_SPAN)
    count, widest = (1, 32.0) if single else (SPAN_NODES, 4.0)
    half, bend = 0.5 * math.log(SPAN), 0.5 / start
    middle = math.log(start) + (0.0 if single else half)
    table = _Table(np.ones((1, 1)), middle, half, bend, math.log(bend), math.log(widest * widest + bend), widest)
    first, second = _nodes(count), _nodes(ORDERS.size)
    values = _ratio(table, first, second, risk, failure)
    turns = [np.cos(np.outer(np.arange(each.size), np.arccos(each))) * 2.0 / each.size for each in (first, second)]
    for turn in turns:
        turn[0] *= 0.5
    coef = turns[0] @ values @ turns[1].T
    middles = np.append(0.5 * (second[1:] + second[:-1]), [-1.0, 1.0])
    between = first if single else np.array([-1.0, 0.0, 1.0]), middles
    exact = _ratio(table, *between, risk, failure)
    fitted = np.polynomial.chebyshev.chebgrid2d(*between, coef)
    sound = bool(np.all(np.abs(fitted / exact - 1.0) <= 0.3 * RAISED))
    return table._replace(coef=coef * (1.0 + RAISED)) if sound else None


def _nodes(count: int) -> Array:
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _ratio(table: _Table, first: Array, second: Array, risk: float, failure: float) -> Array:
    """k/√(1 + w²) at each pair of places of a table."""
    degrees = np.exp(table.middle + table.half * first)
    squares = np.exp(0.5 * (table.low + table.high) + 0.5 * (table.high - table.low) * second) - table.bend
    width = np.sqrt(np.maximum(squares, 0.0))
    shape = (degrees.size, width.size)
    parts = (degrees[:, None], width, -normal_quantile(np.asarray(risk)), failure)
    return _exact_factor(*(np.broadcast_to(part, shape) for part in parts)) / np.sqrt(1.0 + width * width)


def _first_factor(degrees: Array, width: Array, quantile: Array, failure: Array) -> Array:
    """A guess: the quantile of z + wN over that of S, each at half of the failure."""
    from scipy.special import gammaincinv

    low = np.sqrt(2.0 * gammaincinv(0.5 * degrees, 0.5 * failure) / degrees)
    return (quantile - width * normal_quantile(0.5 * failure)) / low


def _tail_over_size(factor: Array, degrees: Array, width: Array, quantile: Array) -> tuple[Array, Array]:
    """P(z + wN > kS) and its derivative in k, by quadrature over S."""
    from scipy.special import ndtr

    spread = 1.0 / np.sqrt(2.0 * degrees)
    low, high = np.maximum(1.0 - 9.0 * spread, 0.0), 1.0 + 9.0 * spread + 6.0 / degrees
    size = 0.5 * (low + high) + 0.5 * (high - low) * NODES
    mass = _density_of_size(size, degrees) * (0.5 * (high - low)) * WEIGHTS
    score = (quantile - factor * size) / width
    density = np.exp(-0.5 * score * score) / math.sqrt(2.0 * math.pi)
    return np.sum(mass * ndtr(score), axis=-1), -np.sum(mass * density * size / width, axis=-1)


def _tail_over_noise(factor: Array, degrees: Array, width: Array, quantile: Array) -> tuple[Array, Array]:
    """The same, by quadrature over N above −z/w, below which z + wN < 0 ≤ kS."""
    from scipy.special import gammainc

    low = np.full(width.shape, -REACH)
    np.divide(-quantile, width, out=low, where=quantile < REACH * width)
    noise = 0.5 * (low + REACH) + 0.5 * (REACH - low) * NODES
    size = (quantile + width * noise) / factor
    half = 0.5 * degrees
    mass = np.exp(-0.5 * noise * noise) / math.sqrt(2.0 * math.pi) * (0.5 * (REACH - low)) * WEIGHTS
    tail = np.sum(mass * gammainc(half, half * size * size), axis=-1)
    return tail, -np.sum(mass * _density_of_size(size, degrees) * size, axis=-1) / factor[..., 0]


def _density_of_size(size: Array, degrees: Array) -> Array:
    """The density of S at `size`."""
    from scipy.special import gammaln

    half = 0.5 * degrees
    with np.errstate(divide="ignore"):
        log_density = (degrees - 1.0) * np.log(size) - half * size * size + half * np.log(half) - gammaln(half)
    return 2.0 * np.exp(log_density)


# --- Upper bounds on a round's cost for Gaussian noise of unknown size: no κ, no S, no L

ROUNDING = 1e-14
"""More than the relative rounding of the sums and products that make one learner's bound."""

SPREAD = 30.0
"""How many rounds share half of what a tolerance for all rounds may spend."""

SEARCH_STEPS, NEAR = 12, 1e-3
"""The most steps to the t of the anytime bound; they end with one of at most `NEAR` times A."""


class Evidence(NamedTuple):
    """What the anytime bound knows beside the estimate: n, ln det(I + G/λ) or more, and c = λ/(λ + g_min) or more."""

    rounds: Any
    log_det: Any
    shrinkage: Any


class Mixture(NamedTuple):
    """λ and a of the anytime bound, fixed in advance. λ is in units of squared contexts."""

    ridge: float = 5.0
    shape: float = 10.0


def spent_in(round: Any, failure: Any) -> Any:
    """Round t's part of δ′ if a tolerance shall hold in all rounds: at most δ′·m/((t + m − 1)(t + m)), m = 30, which
    sum to δ′. It is rounded down to a power of √2, so that rounds share their tables of factors.

    >>> bool(sum(spent_in(float(number), 0.01) for number in range(1, 100_000)) <= 0.01)
    True
    """
    share = SPREAD / ((round + SPREAD - 1.0) * (round + SPREAD))
    return failure * 2.0 ** (0.5 * np.floor(2.0 * np.log2(share)))


def epoch_share(epoch: int) -> float:
    """The part of δ′ that an epoch of the anytime guarantee spends: 6/(π²k²), which sum to 1.

    >>> round(epoch_share(1), 4), round(sum(map(epoch_share, range(1, 10_000))), 3)
    (0.6079, 1.0)
    """
    return 6.0 / (math.pi * epoch) ** 2


def cost_upper(seen: Fitted, guarantee: str, risk: Any, failure: Any = None, *, mixture: Mixture | None = None) -> Any:
    """U(x) of a guarantee, "per_round", "tolerance" or "anytime", for risks below ½; ∞ where nothing is known."""
    if not some(seen.ready):
        lanes = np.broadcast_shapes(np.shape(seen.ready), np.shape(risk), np.shape(failure))
        return np.full(lanes, math.inf) if lanes else math.inf
    degrees = seen.degrees if seen.ready is True else np.where(seen.ready, seen.degrees, np.max(seen.degrees))
    if guarantee == "per_round":
        factor = per_round_factor(degrees, seen.width, risk) / degrees**0.5
    elif guarantee == "tolerance":
        factor = tolerance_factor(degrees, seen.width, risk, failure) / degrees**0.5
    else:
        chosen = mixture or Mixture()
        shrinkage = chosen.ridge / (chosen.ridge + seen.least) * (1.0 + CAUTION)
        most = namespace(shrinkage).minimum(shrinkage, 1.0 - CAUTION)
        evidence = Evidence(seen.rounds, seen.log_det, most)
        factor = anytime_factor(evidence, seen.width, risk, failure, shape=chosen.shape)
    # Costs without any scatter are not Gaussian: they tell nothing of the noise.
    known = seen.ready & (factor < math.inf) & (seen.spread > 0.0)
    over = seen.spread * where(known, factor, 0.0)
    return scalar(where(known, seen.cost + over + ROUNDING * (abs(seen.cost) + over), math.inf))


def per_round_factor(degrees: Any, width: Any, risk: Any) -> Any:
    """k = t_{ν,1−δ}·√(1 + w²).

    >>> f"{per_round_factor(8.0, 0.5, 0.05):.4f}"
    '2.0790'
    """
    return t_quantile(degrees, risk) * (1.0 + width * width) ** 0.5


def t_quantile(degrees: Any, risk: Any) -> Any:
    """t_{ν,1−δ}, raised by `CAUTION`. Where all degrees are equal, as in most simulations, it is computed once."""
    if isinstance(degrees, float) and isinstance(risk, float):
        return _t_quantile(degrees, risk)
    return _t_quantile.__wrapped__(_same(np.asarray(degrees)), risk)


@lru_cache(maxsize=4096)
def _t_quantile(degrees: Any, risk: Any) -> Any:
    from scipy.special import stdtrit

    value = -stdtrit(degrees, risk)
    return scalar(value + CAUTION * abs(value))


def chance_above(seen: Fitted, outcome: Any) -> Any:
    """P(t_ν > T) for a round's T = (Y − ⟨x,μ̂⟩)/(s√(1+w²)): its p-value; NaN where the fit says nothing. Costs without
    any scatter are not Gaussian: whatever lies above them cannot be.
    """
    from scipy.special import stdtr

    known, degrees = seen.ready & (seen.spread > 0.0), where(seen.ready, seen.degrees, 1.0)
    scale = where(known, seen.spread, 1.0) * ((1.0 + seen.width * seen.width) / degrees) ** 0.5
    chance = where(known, stdtr(degrees, (seen.cost - outcome) / scale), where(outcome > seen.cost, 0.0, 1.0))
    return scalar(where(seen.ready, np.maximum(chance, 1e-300), math.nan))


def anytime_factor(seen: Evidence, width: Any, risk: Any, failure: Any, *, shape: float) -> Any:
    """F: the anytime bound is ⟨x,μ̂⟩ + √RSS·F; ∞ while σ has no upper bound.

    >>> f"{anytime_factor(Evidence(100.0, 10.0, 0.1), 0.2, 0.05, 0.01, shape=10.0):.5f}"
    '0.31301'
    """
    from scipy.special import gammaln

    xp = namespace(*seen, width, risk, failure)
    size, share = shape + 0.5 * _same(seen.rounds), seen.shrinkage
    gamma = math.lgamma(size) if isinstance(size, float) else gammaln(size)
    room = 0.5 * seen.log_det - shape * math.log(shape) - gamma + math.lgamma(shape) - xp.log(failure)
    total = room + shape + 1e-13 * (size * xp.log(size) + 1.0)  # more than the rounding of these sums
    noise = -normal_quantile(risk) / math.sqrt(2.0)
    low = xp.maximum(share * size, shape)
    bounded = (size / low - 1.0) * (low - shape) > size * xp.log(low) - low + total
    if not (bounded if xp is FLOATS else np.any(bounded)):
        return math.inf + 0.0 * (width + noise)
    at = _best_point(xp, (size, share, total, shape), width / noise)
    rise = size / at - 1.0
    left, right = rise * (at - shape) - (size * xp.log(at) - at + total), 1.0 - share - share * rise
    known, tiny = (left > 0.0) & (right > 0.0), 1e-300
    square = rise * (noise * noise / xp.maximum(left, tiny) + width * width / xp.maximum(right, tiny))
    return xp.where(known, xp.sqrt(square) * (1.0 + CAUTION), math.inf)


def _same(values: Any) -> Any:
    """The one value of an array whose elements are equal, as in most simulations; else the array itself."""
    if isinstance(values, np.ndarray) and values.size > 1 and np.all(values == values.flat[0]):
        return values.flat[0]
    return values


def _best_point(xp: Any, region: tuple[Any, Any, Any, float], ratio: Any) -> Any:
    """The t whose bound is least for (A, c, K, a), by Newton's method; `ratio` is w/(z/√2). A step goes at most halfway
    to an end.

    The first point takes h as h(A) − (A − t)²/2A, M as r(A − a) − h, and G as f.
    """
    size, share, total, shape = region
    free = 1.0 - share
    weight, side = ratio * ratio * free, xp.sqrt(0.5 * size * free)
    root = xp.sqrt(xp.maximum(size * xp.log(size) - size + total, 0.0) / free)
    slant = (1.0 + ratio * root) * side / xp.maximum(ratio * (size - shape), 1e-300)
    low, high = xp.maximum(share * size, shape) * (1.0 + 1e-6), (1.0 - 1e-6) * size
    at = xp.minimum(xp.maximum(size - 2.0 * side * root * slant / xp.sqrt(1.0 + slant * slant), low), high)
    far, steps = True, 0
    while far and steps < SEARCH_STEPS:
        part, over = size / at, at - shape
        rise, height = part - 1.0, size * xp.log(at) - at + total
        left, right = xp.maximum(rise * over - height, 0.0), free - share * rise
        pull, square = weight * left, right * right
        fall = 2.0 * part / at * (pull * over + share * xp.maximum(height, 0.0) * right) + rise * square
        half, before = 0.5 * at, at
        at = at + (pull * left - height * square) / fall
        at = xp.minimum(xp.maximum(at, half + 0.5 * low), half + 0.5 * high)
        moved = xp.abs(at - before) > NEAR * size
        far, steps = moved if xp is FLOATS else np.any(moved), steps + 1
    return at
