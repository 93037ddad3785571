"""Evidence that the noise is larger than stated, valid whenever you look.

With ξ κ-sub-Gaussian given the past and Z standard normal and independent of it, for 0 < s < 1

    E exp(sξ²/2κ²) = E exp(√s ξZ/κ) ≤ E exp(sZ²/2) = (1 − s)^{-1/2},

so E_t = Π √(1−s)·exp(s ξ²/2κ²) is a supermartingale that starts at 1. The noise is not observed, but while the
confidence set holds, |ξ| ≥ |y − ⟨x,μ̂⟩| − β·width =: e. With e (at least 0) in its place the product is smaller still,
and by Ville's inequality it ever reaches 1/a with probability at most a + δ′. A weight ω enters as √ω·e, because √ω
times the noise of a sample is κ-sub-Gaussian. The product grows if the noise is half again as large as stated, if a
unit is mistaken, or if a mean is far from linear; it shrinks if the noise is smaller.

The product runs over rounds in decision order. The bound on |ξ| holds with the confidence set of any time, and a
round without a known outcome has e = 0 and still its factor √(1−s): `expect` it when it is decided, `observe` its
outcome when that is known. The value is then never above that of the full product, whichever outcomes are missing and
for whatever reason.
"""

from __future__ import annotations

import math

SHARE = 0.5
"""s: the bet. A small s detects a slight excess, late; a large s detects a gross one, soon."""

EXPECTED = 0.5 * math.log1p(-SHARE)
"""ln √(1−s): what each round costs."""

LARGEST_LOG = 700.0


def expect(log_evidence: list[float]) -> list[float]:
    """Multiply each product by the factor √(1−s) of a round that is decided but has no outcome yet."""
    return [each + EXPECTED for each in log_evidence]


def observe(log_evidence: float, residual: float, slack: float, noise: float) -> float:
    """Add the residual of a round that was expected."""
    excess = max(abs(residual) - slack, 0.0) / noise
    return min(log_evidence + 0.5 * SHARE * excess * excess, LARGEST_LOG)


def alarm(log_evidence: float, level: float = 0.01) -> bool:
    """True once the evidence reaches 1/level."""
    return log_evidence >= -math.log(level)
