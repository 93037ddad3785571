"""The anytime factor of `core.student` for agents and studies from before rules 4, bit for bit as they computed it.

It is valid, but in the first rounds larger than it need be: its steps end early. For fixed V = RSS/2σ² the largest
p = q/2σ² that is not excluded lies on a curve with t = a + V + cp:

    p(t) = (A ln t − t + K)/(1 − c),        V(t) = t − a − c·p(t),        t ≥ cA

p is concave in t and V convex, so tangents at any m > 0 give p ≤ p̄ and V ≥ V̄, both linear in t, and with y = √p̄
F ≤ (z/√2 + wy)/√(γ + εy²), whose largest value over y ≥ 0 is at y = wγ/(εz/√2), or at an end.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

STEPS = 8


class Region(NamedTuple):
    """A, c, K and a."""

    size: Any
    share: Any
    total: Any
    shape: float


def earlier_factor(region: Region, noise: float, width: float) -> float:
    """The largest F under the tangents at m, for cA < m < A."""
    size, share, total, shape = region
    at, free = _illinois(region, noise, width), 1.0 - share
    height, rise = (size * math.log(at) - at + total) / free, (size / at - 1.0) / free
    volume, growth = at - shape - share * height, 1.0 - share * rise
    slope = growth / rise
    level = volume - slope * height
    low = math.sqrt(max(height + rise * (share * size - at), 0.0))
    high = math.sqrt(max(height + rise * (size - at), 0.0))
    root = min(max(width * level / (noise * slope), low), high)
    below = level + slope * root * root
    return (noise + width * root) / math.sqrt(max(below, 1e-300)) if below > 0.0 else math.inf


def _illinois(region: Region, noise: float, width: float) -> float:
    """About where F is largest: STEPS of regula falsi (Illinois) on the sign of its derivative in t.

    p ≤ p(A) − (t − A)²/2A(1 − c), so p < 0 below A − √(2A(1 − c)p(A)); V has its least value at cA. The end at A, where
    p' = 0, is left out.
    """
    size, share, total, _ = region
    back = math.sqrt(2.0 * size * (size * math.log(size) - size + total))
    high = (1.0 - 1e-7) * size
    low = min(max(size - back, max(share, 1e-6) * size * (1.0 + 1e-7)), high)
    left, right = (_derivative(region, end, noise, width) for end in (low, high))
    at = 0.5 * (low + high)
    for _ in range(STEPS):
        here = _derivative(region, at, noise, width)
        if here > 0.0:
            left, right, low = here, 0.5 * right, at
        else:
            left, right, high = 0.5 * left, here, at
        part = left / max(left - right, 1e-300)
        at = low + min(max(part, 0.02), 0.98) * (high - low)
    return at


def _derivative(region: Region, at: float, noise: float, width: float) -> float:
    """A number with the sign of dF/dt; where p < 0, F is not defined, and it rises."""
    size, share, total, shape = region
    free = 1.0 - share
    height = (size * math.log(at) - at + total) / free
    rise = (size / at - 1.0) / free
    volume, growth = max(at - shape - share * height, 0.0), max(1.0 - share * rise, 1e-12)
    root = math.sqrt(abs(height))
    return width * rise * volume / growth - (-root if height < 0.0 else root) * (noise + width * root)
