"""Upper bounds on a round's cost for Gaussian noise of unknown size: no κ, no S, no L.

Information does not depend on the dose (`policies.hp_probe`), so n rounds with a dose above 0 are n rows of one
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

from safedial.core.least_squares import Fitted
from safedial.core.namespace import FLOATS, namespace, normal_quantile
from safedial.core.tolerance_factor import CAUTION, tolerance_factor
from safedial.errors import InvalidInput, require

ROUNDING = 1e-14
"""More than the relative rounding of the sums and products that make one learner's bound."""

SPREAD = 30.0
"""How many rounds share half of what a tolerance for all rounds may spend."""

STEPS = 8
"""Steps to the tangent point of the anytime bound."""


class Evidence(NamedTuple):
    """What the anytime bound knows beside the estimate: n, ln det(I + G/λ) or more, and c = λ/(λ + g_min) or more."""

    rounds: Any
    log_det: Any
    shrinkage: Any


class Mixture(NamedTuple):
    """λ and a of the anytime bound, fixed in advance. λ is in units of squared contexts."""

    ridge: float = 5.0
    shape: float = 10.0


def spent_in(round: float, failure: float) -> float:
    """Round t's part of δ′ if a tolerance shall hold in all rounds: at most δ′·m/((t + m − 1)(t + m)), m = 30, which
    sum to δ′. It is rounded down to a power of √2, so that rounds share their tables of factors.

    >>> sum(spent_in(float(number), 0.01) for number in range(1, 100_000)) <= 0.01
    True
    """
    share = SPREAD / ((round + SPREAD - 1.0) * (round + SPREAD))
    return failure * 2.0 ** (0.5 * math.floor(2.0 * math.log2(share)))


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
    # Costs without any scatter are not Gaussian: they tell nothing of the noise.
    if isinstance(seen.ready, bool):
        over = seen.spread * float(factor)
        return seen.cost + over + ROUNDING * (abs(seen.cost) + over) if seen.spread > 0.0 else math.inf
    known = seen.ready & (factor < math.inf) & (seen.spread > 0.0)
    return np.where(known, seen.cost + seen.spread * np.where(known, factor, 0.0), math.inf)


def noise_root(ratio: Any, context: Any) -> Any:
    """√h(x): `ratio` is a column of the context that holds h, or a function of the context.

    >>> noise_root(1, np.array([3.0, 4.0]))
    2.0
    """
    try:
        value = np.asarray(ratio(context) if callable(ratio) else context[..., ratio], dtype=np.float64)
        found = value.shape == np.shape(context)[:-1] and bool(np.all(np.isfinite(value) & (value > 0.0)))
    except Exception as error:
        raise InvalidInput(f"noise_ratio: failed for a context ({type(error).__name__}: {error})") from error
    words = "must be a finite number > 0 for every context"
    require(found, "noise_ratio", value, words, "it is a ratio of variances")
    return float(value) ** 0.5 if value.ndim == 0 else np.sqrt(value)


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
    if not seen.ready:
        return math.nan
    if seen.spread <= 0.0:
        return 1e-300 if outcome > seen.cost else 1.0
    size = (outcome - seen.cost) / (seen.spread * math.sqrt((1.0 + seen.width**2) / seen.degrees))
    return max(float(t_survival(seen.degrees, size)), 1e-300)


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
