"""Evidence that rounds are not exchangeable, valid whenever you look.

The p-values of calibration rounds, each ranked among the earlier ones under the predictor of its time, are independent
and uniform (or larger, where scores tie) if rounds are exchangeable. Bets with mean at most 1 then:

    m^{1{p ≤ a}} / (1 + a(m − 1))      the odds of a p-value at or below a are m times what they should be
    ½ p^{−½}                           p-values are small in general
    1                                  no bet

All pay off when costs are higher than calibration predicted; the first kind is the broken promise itself, at several
levels a. The capital of all bets, equal at the start, with a share 1/(t+1) spread evenly again before bet t, is a
supermartingale that starts at 1: by Ville's inequality it ever reaches 1/a with probability at most a. The spreading
lets capital that waited in "no bet" act when a drift begins late.

Reference for betting on conformal p-values: Vovk, Nouretdinov and Gammerman (2003).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

LEVELS = np.repeat([0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001], 2)
ODDS = np.tile([2.0, 4.0], 7)
"""The pairs (a, m) that are bet on."""

WON, LOST = (paid / (1.0 + LEVELS * (ODDS - 1.0)) for paid in (ODDS, 1.0))
"""By what each multiplies its capital, for a p-value at or below its level, and above it."""

BETS = LEVELS.size + 2
LARGEST = 1e290


class Capital(NamedTuple):
    """What each bet holds, last axis, and how many p-values were seen."""

    held: Any
    seen: Any


def init(batch: tuple[int, ...] = ()) -> Capital:
    return Capital(np.full((*batch, BETS), 1.0 / BETS), np.zeros(batch))


def update(capital: Capital, p: Any) -> Capital:
    """Add one p-value in (0, 1]; NaN leaves the capital unchanged.

    >>> capital = init()
    >>> for _ in range(8):
    ...     capital = update(capital, 0.01)
    >>> bool(evidence(capital) > 100)
    True
    """
    if type(p) is float and p == p:
        return _update_one(capital, p)
    chance = np.asarray(p, dtype=float)[..., None]
    share = (1.0 / (np.asarray(capital.seen) + 2.0))[..., None]
    spread = (1.0 - share) * capital.held + share * np.mean(capital.held, axis=-1, keepdims=True)
    odds = np.where(chance <= LEVELS, WON, LOST)
    bets = np.concatenate([odds, 0.5 * chance**-0.5, np.ones_like(chance)], axis=-1)
    known = np.isfinite(chance)
    held = np.where(known, np.minimum(spread * bets, LARGEST), capital.held)
    return Capital(held, capital.seen + known[..., 0])


def _update_one(capital: Capital, p: float) -> Capital:
    """`update` for one learner, with the same bits in less time."""
    share, bets = 1.0 / (capital.seen + 2.0), np.ones(BETS)
    bets[:-2] = np.where(p <= LEVELS, WON, LOST)
    bets[-2:-1] = 0.5 * np.array([p]) ** -0.5
    spread = (1.0 - share) * capital.held + share * (np.add.reduce(capital.held) / BETS)
    return Capital(np.minimum(spread * bets, LARGEST), capital.seen + 1.0)


def evidence(capital: Capital) -> Any:
    """1 at the start; large when rounds do not look exchangeable."""
    return np.sum(capital.held, axis=-1)


def alarm(capital: Capital, level: float = 0.01) -> Any:
    """True if the evidence is at or above 1/level. Keep the first alarm: a later value does not cancel it."""
    return evidence(capital) >= 1.0 / level
