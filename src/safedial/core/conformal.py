"""Conformal ranks: which order statistic of n calibration scores bounds the next one.

If n + 1 scores are exchangeable, the last exceeds the ⌈(n+1)(1−δ)⌉-th smallest of the others with probability at most δ
(ties only help), over the draw of all of them. Below n = 1/δ − 1 there is no such score.

Given the calibration scores themselves, the chance that the next exceeds their k-th smallest is random: for continuous
i.i.d. scores it is Beta(n + 1 − k, k). `training_conditional_rank` takes the smallest k for which it stays at or below
δ with a stated confidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def rank(count: Any, risk: Any) -> Any:
    """⌈(n+1)(1−δ)⌉, from 1; above n where n scores are too few.

    It is (n+1) − ⌊(n+1)δ⌋, and a product within a few roundings of a whole number counts as that number, so that
    δ = 0.29 and n = 99 give 71 and not 72.

    >>> int(rank(19, 0.05)), int(rank(18, 0.05)), int(rank(99, 0.01))
    (19, 19, 99)
    """
    size = np.asarray(count, dtype=float) + 1.0
    spare = size * risk
    whole = np.round(spare)
    kept = np.where(np.abs(spare - whole) <= 1e-14 * spare, whole, np.floor(spare))
    return (size - kept).astype(np.int64)


def training_conditional_rank(count: int, risk: float, confidence: float) -> int:
    """The smallest k with P(Beta(n + 1 − k, k) ≤ δ) ≥ confidence; n + 1 where there is none.

    >>> training_conditional_rank(1000, 0.05, 0.9)
    960
    """
    from scipy.special import betainc

    ranks = np.arange(1, count + 1)
    holds = betainc(count + 1.0 - ranks, ranks, risk) >= confidence
    return int(ranks[holds][0]) if holds.any() else count + 1
