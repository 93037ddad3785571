"""Upper bounds on a round's cost for Gaussian noise of unknown size: no κ, no S, no L.

Information does not depend on the dose (`policies.hp_probe`), so n rounds with a dose above 0 are n rows of one
regression, Y = C/g = ⟨x,μ⟩ + σξ, ξ ~ N(0, 1). With the least-squares estimate μ̂, RSS its sum of squared residuals,
ν = n − d, s² = RSS/ν and w² = xᵀ(XᵀX)⁻¹x, each bound has the form

    U(x) = ⟨x,μ̂⟩ + s·k(w, ν, …),        z_safe = 1 if U ≤ τ else τ/U

**Per round.** k = t_{ν,1−δ}·√(1 + w²). Given all contexts, (Y − ⟨x,μ̂⟩)/(s√(1+w²)) has Student's t law with ν degrees of
freedom, so P(Y > U) = δ exactly. Needs i.i.d. noise, and contexts that do not depend on past noise.

**Tolerance.** k solves P(z + wN ≤ kS) = 1 − δ′, where z = Φ⁻¹(1−δ), N ~ N(0, 1) and S² ~ χ²_ν/ν are independent: it is
w times the noncentral t quantile with noncentrality z/w. Since (⟨x,μ⟩ + zσ − ⟨x,μ̂⟩)/s has the law of (z + wN)/S,
P(⟨x,μ⟩ + zσ ≤ U) = 1 − δ′: at this t, with probability 1 − δ′ over the past, P(Y > U | past) ≤ δ.

**Anytime.** Needs only Y_t | past, x_t, a_t ~ N(⟨x_t,μ⟩, σ²). Mix around each null (μ, σ) over ν = μ + σb, ς = σρ,
b|ρ ~ N(0, ρ²I/λ), ρ⁻² ~ Γ(a, a). With A = a + n/2, h = μ̂ − μ, q = hᵀGh, q_H = hᵀ(G⁻¹ + I/λ)⁻¹h, the martingale is

    ln M = −½ ln det(I + G/λ) + a ln a + lnΓ(A) − lnΓ(a) + (RSS + q)/2σ² − A ln(a + (RSS + q_H)/2σ²)

and ln M < ln(1/δ′) for all t with probability ≥ 1 − δ′ (Ville). As q_H ≤ cq with c = λ/(λ + g_min), every (μ, σ) that
is not excluded satisfies, with V = RSS/2σ², p = q/2σ² and K = a + ½ ln det(I + G/λ) − a ln a − ln Γ(A)/Γ(a) + ln 1/δ′,

    V + p − A ln(a + V + cp) ≤ K − a,         and then ⟨x,μ⟩ + zσ ≤ ⟨x,μ̂⟩ + √RSS·(z/√2 + w√p)/√V =: ⟨x,μ̂⟩ + √RSS·F

For fixed V the largest such p lies on the set's upper boundary. With t = a + V + cp that boundary is explicit:

    p(t) = (A ln t − t + K)/(1 − c),        V(t) = t − a − c·p(t),        t ≥ cA

p is concave in t and V convex, so tangents at **any** m > 0 give p ≤ p̄ and V ≥ V̄, both linear in t. With y = √p̄,
F ≤ (z/√2 + wy)/√(γ + εy²), whose largest value over y ≥ 0 is at y = wγ/(εz/√2), or at an end: closed form. So each m
gives a bound that holds for every σ, no grid is searched, and nothing lies between grid points. The maximiser is the
next m; a few steps reach the exact maximum (a quadratic error in m), and the least of the bounds is used. For t > A, p
falls and V rises, so the maximum has t ≤ A. If V̄ reaches 0, σ has no upper bound yet: U = ∞.

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
from numpy.typing import NDArray

from safedial.core.least_squares import Fitted
from safedial.core.namespace import FLOATS, namespace, normal_quantile
from safedial.errors import require

Array = NDArray[np.float64]

CAUTION = 1e-9
"""By how much a quantile is raised, relatively."""

ROUNDING = 1e-14
"""More than the relative rounding of the sums and products that make one learner's bound."""

STEPS = 8
"""Steps to the tangent point of the anytime bound, and the most Newton steps of the tolerance factor."""

FEW = 16
"""Points of the polynomial that stands for the tolerance factor of more widths than this."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
REACH = 8.5
"""A standard normal variable lies within ±REACH but for 2e-17."""


class Evidence(NamedTuple):
    """What the anytime bound knows beside the estimate: n, ln det(I + G/λ) or more, and c = λ/(λ + g_min) or more."""

    rounds: Any
    log_det: Any
    shrinkage: Any


class Mixture(NamedTuple):
    """λ and a of the anytime bound, fixed in advance. λ is in units of squared contexts."""

    ridge: float = 5.0
    shape: float = 10.0


def cost_upper(seen: Fitted, promise: str, risk: Any, failure: Any = None, *, mixture: Mixture | None = None) -> Any:
    """U(x) of a promise, "per_round", "tolerance" or "anytime", for risks below ½; ∞ where nothing is known. With a
    variance ratio it bounds Y/√h: `Fitted.root` times it bounds Y.
    """
    if seen.ready is False:
        return math.inf
    degrees = np.where(seen.ready, seen.degrees, 1.0) if isinstance(seen.ready, np.ndarray) else seen.degrees
    if promise == "per_round":
        factor = per_round_factor(degrees, seen.width, risk) / degrees**0.5
    elif promise == "tolerance":
        factor = tolerance_factor(degrees, seen.width, risk, failure) / degrees**0.5
    else:
        chosen = mixture or Mixture()
        shrinkage = chosen.ridge / (chosen.ridge + seen.least) * (1.0 + CAUTION)
        most = namespace(shrinkage).minimum(shrinkage, 1.0 - CAUTION)
        evidence = Evidence(seen.rounds, seen.log_det, most)
        factor = anytime_factor(evidence, seen.width, risk, failure, shape=chosen.shape)
    if isinstance(seen.ready, bool):
        over = seen.spread * float(factor)
        return seen.cost + over + ROUNDING * (abs(seen.cost) + over)
    known = seen.ready & (factor < math.inf)
    return np.where(known, seen.cost + seen.spread * np.where(known, factor, 0.0), math.inf)


def noise_root(ratio: Any, context: Any) -> Any:
    """√h(x): `ratio` is a column of the context that holds h, or a function of the context.

    >>> noise_root(1, np.array([3.0, 4.0]))
    2.0
    """
    value = ratio(context) if callable(ratio) else context[..., ratio]
    sound = np.all(np.isfinite(value)) and np.all(np.asarray(value) > 0.0)
    require(sound, "noise_ratio", value, "must be a finite number > 0 for every context", "it is a ratio of variances")
    return float(value) ** 0.5 if np.ndim(value) == 0 else np.sqrt(value)


def per_round_factor(degrees: Any, width: Any, risk: Any) -> Any:
    """k = t_{ν,1−δ}·√(1 + w²).

    >>> f"{per_round_factor(8.0, 0.5, 0.05):.4f}"
    '2.0790'
    """
    return t_quantile(degrees, risk) * (1.0 + width * width) ** 0.5


def t_quantile(degrees: Any, risk: Any) -> Any:
    """t_{ν,1−δ}, raised by `CAUTION`. Where all degrees are equal, as in most simulations, it is computed once."""
    from scipy.special import stdtrit

    if isinstance(degrees, float) and isinstance(risk, float):
        return _t_quantile(degrees, risk)
    degrees = np.asarray(degrees)
    if degrees.size > 1 and np.all(degrees == degrees.flat[0]):
        degrees = degrees.flat[0]
    value = -stdtrit(degrees, risk)
    return value + CAUTION * np.abs(value)


@lru_cache(maxsize=4096)
def _t_quantile(degrees: float, risk: float) -> float:
    from scipy.special import stdtrit

    value = -float(stdtrit(degrees, risk))
    return value + CAUTION * abs(value)


def t_survival(degrees: Any, value: Any) -> Any:
    """P(t_ν > value): the p-value of a recursive residual."""
    from scipy.special import stdtr

    return stdtr(degrees, -value)


def chance_above(seen: Fitted, outcome: float) -> float:
    """P(t_ν > T) for a round's T = (Y − ⟨x,μ̂⟩)/(s√(1+w²)): its p-value; NaN where the fit says nothing."""
    if not seen.ready or seen.spread <= 0.0:
        return math.nan
    size = (outcome - seen.cost) / (seen.spread * math.sqrt((1.0 + seen.width**2) / seen.degrees))
    return max(float(t_survival(seen.degrees, size)), 1e-300)


def tolerance_factor(degrees: Any, width: Any, risk: Any, failure: Any) -> Any:
    """The k with P(z + wN ≤ kS) = 1 − `failure`, z = Φ⁻¹(1 − risk) > 0: w times a noncentral t quantile.

    The tail P(z + wN > kS) is E Φ((z − kS)/w), an integral over S, or E P(S < (z + wN)/k), one over N. The first has a
    smooth integrand if S varies by less than w/k, the second if it varies by more. Newton's steps are on its logarithm.

    >>> f"{tolerance_factor(8.0, 0.5, 0.05, 0.1):.4f}"
    '2.8117'
    """
    quantile = -normal_quantile(np.asarray(risk))
    parts = [np.asarray(part, dtype=float) for part in (degrees, width, quantile, failure)]
    degrees, width, quantile, failure = np.broadcast_arrays(*parts)
    if width.size > FEW and all(np.all(part == part.flat[0]) for part in (degrees, quantile, failure)):
        return _interpolated(float(degrees.flat[0]), width, risk, float(failure.flat[0]))
    factor = _first_factor(degrees, width, quantile, failure)
    for _ in range(STEPS):
        over_size = width >= factor / np.sqrt(2.0 * degrees)
        tail, slope = np.empty(factor.shape), np.empty(factor.shape)
        for chosen, integrals in ((over_size, _tail_over_size), (~over_size, _tail_over_noise)):
            if np.any(chosen):
                known = (part[chosen][..., None] for part in (factor, degrees, width, quantile))
                tail[chosen], slope[chosen] = integrals(*known)
        step = tail * (np.log(tail) - np.log(failure)) / -slope
        factor = np.clip(factor + step, 0.5 * factor, 2.0 * factor)
        if np.all(np.abs(step) <= 1e-12 * factor):
            break
    return factor * (1.0 + CAUTION)


def _interpolated(degrees: float, width: Array, risk: Any, failure: float) -> Array:
    """The factor of many widths, for a simulation: a polynomial in ln(w² + 1/2ν) through FEW points, raised by what it
    may err.
    """
    bend = 0.5 / degrees
    place = np.log(width * width + bend)
    low, high = float(place.min()), float(place.max()) + 1e-9
    nodes = np.cos(np.pi * (np.arange(FEW) + 0.5) / FEW)
    points = np.sqrt(np.maximum(np.exp(0.5 * (low + high) + 0.5 * (high - low) * nodes) - bend, 0.0))
    values = tolerance_factor(degrees, points, np.min(risk), failure) * (1.0 + 1e-6)
    coefficients = np.polynomial.chebyshev.chebfit(nodes, values, FEW - 1)
    return np.polynomial.chebyshev.chebval((2.0 * place - low - high) / (high - low), coefficients)


def _first_factor(degrees: Array, width: Array, quantile: Array, failure: Array) -> Array:
    """A guess: the quantile of z + wN over that of S, each at half of the failure."""
    from scipy.special import gammaincinv

    low = np.sqrt(2.0 * gammaincinv(0.5 * degrees, 0.5 * failure) / degrees)
    return (quantile - width * normal_quantile(0.5 * failure)) / low


def _tail_over_size(factor: Array, degrees: Array, width: Array, quantile: Array) -> tuple[Array, Array]:
    """P(z + wN > kS) and its derivative in k, by quadrature over S."""
    from scipy.special import gammaln, ndtr

    spread = 1.0 / np.sqrt(2.0 * degrees)
    low, high = np.maximum(1.0 - 9.0 * spread, 0.0), 1.0 + 9.0 * spread + 6.0 / degrees
    size = 0.5 * (low + high) + 0.5 * (high - low) * NODES
    half = 0.5 * degrees
    with np.errstate(divide="ignore"):
        log_density = (degrees - 1.0) * np.log(size) - half * size * size + half * np.log(half) - gammaln(half)
    mass = 2.0 * np.exp(log_density) * (0.5 * (high - low)) * WEIGHTS
    score = (quantile - factor * size) / width
    density = np.exp(-0.5 * score * score) / math.sqrt(2.0 * math.pi)
    return np.sum(mass * ndtr(score), axis=-1), -np.sum(mass * density * size / width, axis=-1)


def _tail_over_noise(factor: Array, degrees: Array, width: Array, quantile: Array) -> tuple[Array, Array]:
    """The same, by quadrature over N above −z/w, below which z + wN < 0 ≤ kS."""
    from scipy.special import gammainc, gammaln

    low = np.full(width.shape, -REACH)
    np.divide(-quantile, width, out=low, where=quantile < REACH * width)
    noise = 0.5 * (low + REACH) + 0.5 * (REACH - low) * NODES
    size = (quantile + width * noise) / factor
    half = 0.5 * degrees
    mass = np.exp(-0.5 * noise * noise) / math.sqrt(2.0 * math.pi) * (0.5 * (REACH - low)) * WEIGHTS
    with np.errstate(divide="ignore"):
        log_density = (degrees - 1.0) * np.log(size) - half * size * size + half * np.log(half) - gammaln(half)
    tail = np.sum(mass * gammainc(half, half * size * size), axis=-1)
    return tail, -np.sum(mass * 2.0 * np.exp(log_density) * size, axis=-1) / factor[..., 0]


def anytime_factor(seen: Evidence, width: Any, risk: Any, failure: Any, *, shape: float) -> Any:
    """F: the anytime bound is ⟨x,μ̂⟩ + √RSS·F; ∞ while σ has no upper bound.

    >>> f"{anytime_factor(Evidence(100.0, 10.0, 0.1), 0.2, 0.05, 0.01, shape=10.0):.5f}"
    '0.31301'
    """
    from scipy.special import gammaln

    xp = namespace(*seen, width, risk, failure)
    log_gamma = math.lgamma if xp is FLOATS else gammaln
    size, share = shape + 0.5 * seen.rounds, seen.shrinkage
    room = 0.5 * seen.log_det - shape * math.log(shape) - log_gamma(size) + math.lgamma(shape) - xp.log(failure)
    total = room + shape + 1e-13 * (size * xp.log(size) + 1.0)  # more than the rounding of these sums
    region, noise = _Region(size, share, total, shape), -normal_quantile(risk) / math.sqrt(2.0)
    value = _tangent_bound(xp, region, _maximiser(xp, region, noise, width), noise, width)
    return value * (1.0 + CAUTION)


class _Region(NamedTuple):
    """A, c, K and a."""

    size: Any
    share: Any
    total: Any
    shape: float


def _maximiser(xp: Any, region: _Region, noise: Any, width: Any) -> Any:
    """About where F is largest: STEPS of regula falsi (Illinois) on the sign of its derivative in t.

    p ≤ p(A) − (t − A)²/2A(1 − c), so p < 0 below A − √(2A(1 − c)p(A)); V has its least value at cA. The end at A, where
    p' = 0, is left out.
    """
    size, share, total, _ = region
    back = xp.sqrt(2.0 * size * (size * xp.log(size) - size + total))
    low = xp.maximum(size - back, xp.maximum(share, 1e-6) * size * (1.0 + 1e-7)) + 0.0 * (width + noise)
    high = (1.0 - 1e-7) * size + 0.0 * low
    low = xp.minimum(low, high)
    left, right = (_derivative(xp, region, end, noise, width) for end in (low, high))
    at = 0.5 * (low + high)
    for _ in range(STEPS):
        here = _derivative(xp, region, at, noise, width)
        rising = here > 0.0
        left, right = xp.where(rising, here, 0.5 * left), xp.where(rising, 0.5 * right, here)
        low, high = xp.where(rising, at, low), xp.where(rising, high, at)
        part = left / xp.maximum(left - right, 1e-300)
        at = low + xp.minimum(xp.maximum(part, 0.02), 0.98) * (high - low)
    return at


def _derivative(xp: Any, region: _Region, at: Any, noise: Any, width: Any) -> Any:
    """A number with the sign of dF/dt; where p < 0, F is not defined, and it rises."""
    size, share, total, shape = region
    free = 1.0 - share
    height = (size * xp.log(at) - at + total) / free
    rise = (size / at - 1.0) / free
    volume, growth = xp.maximum(at - shape - share * height, 0.0), xp.maximum(1.0 - share * rise, 1e-12)
    root = xp.sqrt(xp.abs(height))
    return width * rise * volume / growth - xp.where(height < 0.0, -root, root) * (noise + width * root)


def _tangent_bound(xp: Any, region: _Region, at: Any, noise: Any, width: Any) -> Any:
    """The largest F under the tangents at m, for cA < m < A."""
    size, share, total, shape = region
    free = 1.0 - share
    height, rise = (size * xp.log(at) - at + total) / free, (size / at - 1.0) / free
    volume, growth = at - shape - share * height, 1.0 - share * rise
    slope = growth / rise
    level = volume - slope * height
    low = xp.sqrt(xp.maximum(height + rise * (share * size - at), 0.0))
    high = xp.sqrt(xp.maximum(height + rise * (size - at), 0.0))
    root = xp.minimum(xp.maximum(width * level / (noise * slope), low), high)
    below = level + slope * root * root
    return xp.where(below > 0.0, (noise + width * root) / xp.sqrt(xp.maximum(below, 1e-300)), math.inf)
