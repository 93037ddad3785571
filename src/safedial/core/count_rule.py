"""The count rule: the largest scale at which at most m − 1 of the latest n rounds would have exceeded.

T̂_i is the tolerated scale of round i (`core.tolerated`): for every λ ≤ T̂_i the round keeps its threshold at a_λ(X_i),
whatever its setting was.

**Theorem.** Let rounds (X_i, C_i(·)) be exchangeable, each C_i non-decreasing in the setting, and n rounds chosen by
number. If m = ⌊δ(n+1)⌋ ≥ 1 and at most m − 1 of the n have T̂_i < λ̂, then for any applied a ≤ a_λ̂(X_{n+1})

    P(C_{n+1}(a) > τ) ≤ m/(n+1) ≤ δ

*Proof.* At most m − 1 of the n rounds exceed at λ̂. If round n+1 exceeds at a ≤ a_λ̂, it exceeds at λ̂ by monotonicity,
and so does every round that tolerates no scale that round n+1 does not tolerate: with round n+1 itself at most m. So
round n+1 is among the m lowest of n+1 in an order that depends on no setting, ties counted against it; at most m of
n+1 rounds can be, and rounds are exchangeable. ∎

Adaptive settings are harmless because T̂ bounds what does not depend on them. The largest such λ̂ is the m-th smallest
T̂, since `core.tolerated` lowers each T̂ until the supremum is attained. It is −∞ where nothing can be said (too few
rounds, or m of them tolerate nothing): the start a₀ is then played, which the user declares safe.

**Which rounds.** Of N countable ones the latest n = ⌈m/δ⌉ − 1, with m = max(1, ⌊δ(N/2 + 1)⌋): about half, because later
rounds were played nearer to the limit and tell more; m/(n+1) = δ where 1/δ is whole. A base fitted at round s counts
only the N_s rounds from s on. A round whose outcome is not known counts with T̂ = −∞, unless somebody vouches that it
is unrelated to context, cost and setting: then it does not count. The latest `lag` rounds do not count, known or not.

**Given the past.** F(λ̂), F(λ) the share of units that exceed at λ, is stochastically at most Beta(m, n + 1 − m), for
i.i.d. rounds, at one t. `confidence` takes the largest m with which it is at most δ with the stated probability,
and at most ⌊δ(n+1)⌋.

**0/1 costs** (`growth.spread`). Such a round tells only that its own scale was kept. The assumption bounds the growth
of the share that exceeds, F(hλ) ≤ ω(F(λ)) with ω(p) = Φ(Φ⁻¹(p) + ln h/σ), concave; so the count rule runs at the lower
risk δ₀ = ω⁻¹(δ) and h·λ̂ is played: E F(hλ̂) ≤ E ω(F(λ̂)) ≤ ω(E F(λ̂)) ≤ ω(δ₀) = δ (Jensen; i.i.d. rounds). The scale
family must be taken without levels there, and floored only when played: between two levels F does not grow slowly.

**Climb limit.** λ_t is at most 1.25 times the largest λ used in the last five known rounds. It only lowers, so the
proof stays; and it finds out a false bracket while that costs little.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from safedial.core.brackets import Growth
from safedial.core.namespace import namespace, normal_quantile
from safedial.errors import is_number, require

CLIMB = 1.25
"""How many times the largest scale of the last known rounds may be used."""

RECENT = 5
"""How many known rounds the climb limit looks back on."""

HIGHEST = 1e300
"""Where a scale that no round limits stops climbing."""

SPREAD_RANK = 3
"""The least m for 0/1 costs: with m = 1 a single excess in the window leads back to the start."""


class Window(NamedTuple):
    """The latest `size` countable rounds (n), of which fewer than `rank` (m) may exceed; (0, 0) before there are
    enough.
    """

    size: int
    rank: int


def window(
    count: int, risk: float, *, since: int | None = None, confidence: float | None = None, least: int = 1
) -> Window:
    """How many of `count` countable rounds are used, and the rank, in exact arithmetic.

    Args:
        count: N. risk: δ, read as the decimal number it is written as: 100·0.29 is 29.
        since: N_s, the countable rounds since the base was fitted; None: all.
        confidence: None, or the probability with which the risk is kept given the past rounds.
        least: the smallest m to act on.

    >>> window(19, 0.05), window(18, 0.05), window(200, 0.05), window(198, 0.29)
    (Window(size=19, rank=1), Window(size=0, rank=0), Window(size=99, rank=5), Window(size=99, rank=29))
    """
    own = count if since is None else since
    if confidence is not None:
        size = min(own, max(count // 2, _least_size(risk, confidence, least)))
        rank = _rank(size, risk, confidence)
        return Window(size, rank) if rank >= least else Window(0, 0)
    over, under = _ratio(risk)
    fewest = -(-least * under // over) - 1
    half = min(2 * own, max(count, 2 * fewest))
    rank = over * (half + 2) // (2 * under)
    return Window(-(-rank * under // over) - 1, rank) if rank >= least else Window(0, 0)


def is_calibrated(since: Any, count: Any, risk: float) -> Any:
    """Whether a base has enough countable rounds since its fit: the newest such base is used. Counts may be arrays.

    >>> is_calibrated(40, 100, 0.05), is_calibrated(30, 100, 0.05), is_calibrated(18, 20, 0.05)
    (True, False, False)
    """
    over, under = _ratio(risk)
    return (since >= -(-under // over) - 1) & (3 * since >= count)


@lru_cache(maxsize=64)
def _ratio(risk: float) -> tuple[int, int]:
    """The risk as a ratio of whole numbers, checked."""
    share = is_number(risk) and 0.0 < risk < 1.0
    require(share, "risk", risk, "must be a number in (0, 1)", "0.05 accepts one excess in 20")
    return Fraction(repr(float(risk))).as_integer_ratio()


@lru_cache(maxsize=65536)
def sure_rank(size: int, risk: float, confidence: float) -> int:
    """The largest m with P(Beta(m, n + 1 − m) ≤ δ) ≥ confidence, by halving; 0 where there is none.

    >>> sure_rank(1000, 0.05, 0.9)
    41
    """
    from scipy.special import betainc

    low, high = 0, size + 1
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle, size + 1.0 - middle, risk) >= confidence:
            low = middle
        else:
            high = middle
    return low


def _rank(size: int, risk: float, confidence: float) -> int:
    """The sure rank, but never above ⌊δ(n+1)⌋: with a low confidence it would be, and P(C > τ) ≤ δ would fail."""
    over, under = _ratio(risk)
    return min(sure_rank(size, risk, confidence), over * (size + 1) // under)


@lru_cache(maxsize=64)
def _least_size(risk: float, confidence: float, least: int) -> int:
    """The fewest rounds with a sure rank of at least `least`."""
    _ratio(risk)
    proper = isinstance(confidence, float) and 0.0 < confidence < 1.0
    require(proper, "confidence", confidence, "must be a number in (0, 1) or None")
    size = 1
    while _rank(size, risk, confidence) < least:
        size *= 2
    low = size // 2
    while size - low > 1:
        middle = (low + size) // 2
        low, size = (low, middle) if _rank(middle, risk, confidence) >= least else (middle, size)
    return size


def climb_limit(used: Any, start: Any, *, climb: float = CLIMB) -> Any:
    """The largest scale that the climb limit allows.

    Args:
        used: the scales used in the last `RECENT` known rounds, on the last axis, after this limit and before flooring
            to levels. A round that was given less than its scale allows is not among them: it is no evidence for that
            scale, nor a reason to fall back.
        start: λ₀ > 0, used before any round is known.

    >>> climb_limit([0.2, 0.25, 0.24], 0.1), climb_limit([], 0.1)
    (0.3125, 0.1)
    """
    if not len(used):
        return start
    most = max(used) if isinstance(used, list) else np.max(used, axis=-1)
    return namespace(most).minimum(climb * most, HIGHEST)


def spread_risk(growth: Growth, risk: float) -> float:
    """δ₀ = Φ(Φ⁻¹(δ) − ln h/σ): the risk at which the count rule runs for 0/1 costs, h·λ̂ being played.

    >>> from safedial.core.brackets import spread
    >>> round(spread_risk(spread(1.25, 0.5), 0.05), 4)
    0.0183
    """
    from scipy.special import ndtr

    step, sigma = growth.parameters["step"], growth.parameters["sigma"]
    return float(ndtr(normal_quantile(risk) - math.log(step) / sigma))
