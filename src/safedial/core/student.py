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

from safedial.core.least_squares import Fitted
from safedial.core.namespace import FLOATS, namespace, normal_quantile
from safedial.core.tolerance_factor import CAUTION, tolerance_factor

ROUNDING = 1e-14
"""More than the relative rounding of the sums and products that make one learner's bound."""

SPREAD = 30.0
"""How many rounds share half of what a tolerance for all rounds may spend."""

STEPS, NEAR = 12, 1e-3
"""The most steps to the t of the anytime bound; they end with one of at most `NEAR` times A."""


class Evidence(NamedTuple):
    """What the anytime bound knows beside the estimate: n, ln det(I + G/λ) or more, and c = λ/(λ + g_min) or more."""

    rounds: Any
    log_det: Any
    shrinkage: Any


class Region(NamedTuple):
    """A, c, K and a."""

    size: Any
    share: Any
    total: Any
    shape: float


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
    """U(x) of a promise, "per_round", "tolerance" or "anytime", for risks below ½; ∞ where nothing is known."""
    if seen.ready is False:
        return math.inf
    degrees = seen.degrees
    if isinstance(seen.ready, np.ndarray):
        if not np.any(seen.ready):
            return np.full(np.broadcast_shapes(seen.ready.shape, np.shape(risk), np.shape(failure)), math.inf)
        degrees = np.where(seen.ready, degrees, np.max(degrees))
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
    value = -stdtrit(_same(np.asarray(degrees)), risk)
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
    xp = namespace(*seen, width, risk, failure)
    size, share = shape + 0.5 * _same(seen.rounds), seen.shrinkage
    room = 0.5 * seen.log_det - shape * math.log(shape) - _log_gamma(size) + math.lgamma(shape) - xp.log(failure)
    total = room + shape + 1e-13 * (size * xp.log(size) + 1.0)  # more than the rounding of these sums
    noise = -normal_quantile(risk) / math.sqrt(2.0)
    low = xp.maximum(share * size, shape)
    bounded = (size / low - 1.0) * (low - shape) > size * xp.log(low) - low + total
    if not (bounded if xp is FLOATS else np.any(bounded)):
        return math.inf + 0.0 * (width + noise)
    at = _best_point(xp, Region(size, share, total, shape), width / noise)
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


def _log_gamma(value: Any) -> Any:
    from scipy.special import gammaln

    return math.lgamma(value) if isinstance(value, float) else gammaln(value)


def _best_point(xp: Any, region: Region, ratio: Any) -> Any:
    """The t whose bound is least, by Newton's method; `ratio` is w/(z/√2). A step goes at most halfway to an end.

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
    while far and steps < STEPS:
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
