"""What past rounds say about the noise, for all rounds at once: a quantile or a variance.

Past noise is not observed, but on the confidence event it lies in a known interval: with the bounds of a later time t,

    y_s − UCB_t(x_s) ≤ ξ_s ≤ y_s − LCB_t(x_s) =: û_s          for all s < t

**Quantile.** Let ξ be i.i.d., apart from contexts, and q* = inf{m : P(ξ > m) ≤ δ}, so that P(ξ ≥ q*) ≥ δ. The number
S_n of rounds with ξ_s ≥ q* is a sum of i.i.d. Bernoulli(p), p ≥ δ. For any θ ≤ δ the ratio
(θ/δ)^{S_n}((1−θ)/(1−δ))^{n−S_n} is then a supermartingale, and so is its mean over θ ~ Beta(rδ, r(1−δ)) cut at δ:

    M_n(S_n) = B_δ(rδ + S_n, r(1−δ) + n − S_n) / B_δ(rδ, r(1−δ)) / (δ^{S_n}(1−δ)^{n−S_n})        (B_δ: incomplete beta)

By Ville's inequality M_n(S_n) < 1/δ_q for all n at once with probability ≥ 1 − δ_q; M_n falls in S_n, so S_n ≥ k_n, the
least k with M_n(k) < 1/δ_q. So the k_n-th largest of ξ_1, …, ξ_n is ≥ q*, and as û_s ≥ ξ_s, so is that of û. We take
the mean of M over r = 2/δ, 16/δ, 128/δ, which serves small and large n. (Howard and Ramdas 2022, beta-binomial form.)

**Variance.** Let low ≤ ξ ≤ high, E[ξ|past] = 0, E[ξ²|past] = v in every round, B the larger of low² and high². For Z in
[0, B] with mean v, exp is convex, so E exp(−ηZ) ≤ 1 − (v/B)(1 − e^{−ηB}). Hence Π exp(−ηξ_s²)/(1 − (v/B)(1 − e^{−ηB}))
is a supermartingale, and by Ville, for all n at once and each of J values of η, each at risk δ_q/J,

    v ≤ B(1 − (δ_q/J)^{1/n}·exp(−(η/n)Σξ_s²)) / (1 − e^{−ηB})

with Σξ_s² at most the sum of the larger ends' squares.

Both hold for all n at once, so the least over all past looks holds too. A look is taken whenever the rounds have
grown by a tenth. Which rounds are informative is known before their noise, so leaving the others out changes nothing.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.rounding import UNIT
from safedial.core.spec import SafetySpec

Array = NDArray[np.float64]

SPREADS = (2.0, 16.0, 128.0)
ETAS = 2.0 ** -np.arange(0.0, 14.0)
"""η in units of 1/B."""

FIRST_LOOK, GROWTH = 64, 1.1
MEMORY = 100_000
"""How many rounds are kept: the first ones. They suffice, and choosing them by number causes no bias."""

CAUTION = 1e-6
"""A rank is excluded only if ln M exceeds ln(1/δ_q) by this much, which is more than the rounding of ln B."""


@lru_cache(maxsize=65536)
def rank(count: int, risk: float, failure: float) -> int:
    """k_n: with probability ≥ 1 − `failure`, for all n, at least k_n of n i.i.d. draws reach their (1−risk)-quantile.

    >>> [rank(n, 0.05, 0.01) for n in (50, 200, 1000, 10_000)]
    [0, 1, 28, 426]
    """
    from scipy.special import betainc, betaln, logsumexp

    hits = np.arange(0.0, math.floor(count * risk) + 1.0)
    logs = []
    for spread in SPREADS:
        first, second = spread, spread * (1.0 - risk) / risk
        above, below = first + hits, second + count - hits
        with np.errstate(divide="ignore"):
            posterior = np.log(betainc(above, below, risk)) + betaln(above, below)
        prior = math.log(betainc(first, second, risk)) + betaln(first, second)
        logs.append(posterior - prior - hits * math.log(risk) - (count - hits) * math.log1p(-risk))
    evidence = logsumexp(np.array(logs), axis=0) - math.log(len(SPREADS))
    allowed = evidence < -math.log(failure) + CAUTION
    return int(np.argmax(allowed)) if np.any(allowed) else len(hits)


def variance_bound(total: Any, count: Any, largest: float, failure: float) -> Any:
    """v: with probability ≥ 1 − `failure`, for all n, at least the variance; `total` ≥ Σξ², each ξ² ≤ `largest`.

    >>> f"{variance_bound(10.0, 1000.0, 1.0, 0.01):.4f}"
    '0.0270'
    """
    number = np.maximum(np.asarray(count, dtype=float), 1.0)[..., None]
    share = np.asarray(total, dtype=float)[..., None] / largest
    exponent = (math.log(len(ETAS) / failure) + ETAS * share) / number
    bound = -np.expm1(-exponent) / -np.expm1(-ETAS)
    return largest * np.minimum(bound.min(axis=-1) * (1.0 + 64.0 * UNIT), 1.0)


class Rounds:
    """Contexts and normalised costs of a batch, in order, and the best bound so far: updated in place."""

    def __init__(self, dim: int, batch: tuple[int, ...] = ()) -> None:
        self.dim, self.batch = dim, batch
        self.count, self.next_look = 0, FIRST_LOOK
        self.context, self.cost = np.empty((*batch, 64, dim)), np.empty((*batch, 64))
        self.best: Any = math.inf

    def append(self, context: Any, cost: Any, known: Any = True) -> None:
        """Add a round; an uninformative one has cost −∞, below every noise."""
        if self.count == MEMORY:
            return
        if self.count == self.cost.shape[-1]:
            self.context = np.concatenate([self.context, np.empty_like(self.context)], axis=-2)
            self.cost = np.concatenate([self.cost, np.empty_like(self.cost)], axis=-1)
        self.context[..., self.count, :] = context
        self.cost[..., self.count] = np.where(known, cost, -math.inf)
        self.count += 1

    @property
    def due(self) -> bool:
        return self.count >= self.next_look

    @property
    def seen(self) -> tuple[Array, Array]:
        """(contexts, costs) so far."""
        return self.context[..., : self.count, :], self.cost[..., : self.count]

    def look(self, spec: SafetySpec, lower: Any, upper: Any) -> None:
        """Take a look with the present bounds on the mean costs, and keep the lowest bound so far."""
        known = np.isfinite(self.seen[1])
        cost = np.where(known, self.seen[1], 0.0)
        highest = cost - lower + 4.0 * UNIT * (np.abs(cost) + np.abs(lower))
        lowest = cost - upper - 4.0 * UNIT * (np.abs(cost) + np.abs(upper))
        if spec.margin == "quantile":
            found = quantile_bound(np.where(known, highest, -math.inf), spec)
        else:
            found = _spread(lowest, highest, known, spec)
        best = np.minimum(self.best, found)
        self.best = best if self.batch else float(best)
        self.next_look = math.ceil(GROWTH * self.count) if self.count < MEMORY else math.ceil(GROWTH * self.next_look)


def quantile_bound(highest: Array, spec: SafetySpec) -> Array:
    """The k_n-th largest of the values on the last axis that are finite, +∞ where k_n is 0."""
    counts = np.isfinite(highest).sum(axis=-1)
    shape = np.broadcast_shapes(counts.shape, np.shape(spec.violation_risk))
    ranks = np.vectorize(rank, otypes=[np.int64])(counts, spec.violation_risk, spec.margin_risk)
    falling = -np.sort(-highest, axis=-1)
    picked = np.take_along_axis(
        np.broadcast_to(falling, (*shape, falling.shape[-1])), np.maximum(ranks, 1)[..., None] - 1, -1
    )
    return np.where(ranks > 0, picked[..., 0], math.inf)


def _spread(lowest: Array, highest: Array, known: Any, spec: SafetySpec) -> Array:
    """The variance bound from the intervals [lowest, highest] ∩ [noise_low, noise_high]."""
    low = np.clip(np.where(known, lowest, 0.0), spec.noise_low, 0.0)
    high = np.clip(np.where(known, highest, 0.0), 0.0, spec.noise_high)
    squares = np.maximum(low * low, high * high) * (1.0 + 64.0 * UNIT)
    count = known.sum(axis=-1)
    largest = max(spec.noise_low**2, spec.noise_high**2)
    return variance_bound(squares.sum(axis=-1) * (1.0 + count * UNIT), count, largest, spec.margin_risk)
