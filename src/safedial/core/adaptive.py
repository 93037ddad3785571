"""The count rule in worlds that drift: a per-round promise for exchangeable rounds, a long-run one for any sequence.

Adaptive conformal inference over the same caps, clipped at δ. The level starts at δ₁ = δ and follows the outcomes,

    δ_{t+1} = min(δ, δ_t + γ(δ − 1{C_t > τ}))          m_t = ⌊δ_t(n+1)⌋, the start where m_t ≤ 0

while n is chosen with δ: a window sized by outcomes would lose the proof. There is no clip from below.

**Exchangeable rounds**: δ_t ≤ δ, so m_t ≤ m and P(C_t > τ) ≤ δ stays true in each round.

**Any sequence**, adversarial ones included: over the K rounds with known outcomes

    Σ 1{C > τ} ≤ δK + δ₁/γ + (1 − δ)(D + N₀)

with D the most rounds ever open at once (1 if none is late) and N₀ the excesses at the start. *Proof.* The clip only
lowers, so the excesses are at most δK + (δ₁ − δ_{K+1})/γ. The level falls, by γ(1 − δ), only at an excess. While it is
at or below 0 only starts are played, so beyond the N₀ excesses at the start only the D rounds that were open when it
reached 0 can lower it: δ_{K+1} ≥ −γ(1 − δ)(D + N₀). ∎ Add the rounds that are open now. A round that somebody raised
above its cap stays out of the recursion and of the sum.

Reference: Gibbs and Candès, "Adaptive conformal inference under distribution shift" (2021); the clip is this project's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safedial.core.conformal import NEAR
from safedial.core.namespace import namespace
from safedial.errors import is_number, require


def adapted(level: Any, exceeded: Any, *, risk: Any, rate: float) -> Any:
    """δ_{t+1} from δ_t once an outcome is known; levels and outcomes may be arrays.

    >>> adapted(0.05, True, risk=0.05, rate=0.01), adapted(0.05, False, risk=0.05, rate=0.01)
    (0.0405, 0.05)
    """
    moved = level + rate * (risk - exceeded)
    xp = namespace(moved, risk)
    return xp.where(moved < risk, moved, risk)


def adapted_rank(level: Any, size: Any, rank: Any) -> Any:
    """m_t = ⌊δ_t(n+1)⌋, at most m and at least 0; a product within rounding of a whole number is that number.

    >>> adapted_rank(0.05, 99, 5), adapted_rank(0.0405, 99, 5), adapted_rank(-0.01, 99, 5)
    (5, 4, 0)
    """
    found = level * (size + 1.0) * (1.0 + NEAR)
    if isinstance(found, float):
        return min(rank, max(0, math.floor(found)))
    return np.clip(np.floor(found), 0.0, rank).astype(np.int64)


def excess_bound(known: Any, *, risk: float, rate: float, open_at_once: Any = 1, at_start: Any = 0) -> Any:
    """The most excesses that any sequence of `known` rounds can have had.

    >>> round(excess_bound(1000, risk=0.05, rate=0.01), 9)
    55.95
    """
    return risk * known + risk / rate + (1.0 - risk) * (open_at_once + at_start)


def check_rate(rate: Any, risk: float) -> float:
    """γ, as a number > 0. A large one reacts fast and wastes scale; δ/5 is a common choice."""
    number = is_number(rate) and 0.0 < rate <= 1.0
    require(number, "adapt", rate, "must be a number in (0, 1]", f"{risk / 5:g} is a common choice at this risk")
    return float(rate)
