"""Evidence that the guarantee is broken, valid whenever you look.

If every round violates with probability at most δ_s given the past, then for any odds multiple m > 1

    E_t(m) = Π_s m^{v_s} / (1 + δ_s(m − 1)),      v_s = 1 if C_s > τ else 0

is a supermartingale that starts at 1: the likelihood ratio of a violation chance with m times the odds of δ_s, or, as a
bet, Π(1 + λ_s(v_s − δ_s)) with λ_s = (m − 1)/(1 + δ_s(m − 1)) ≤ 1/δ_s. So is the mean over several m, and by
Ville's inequality it ever reaches 1/a with probability at most a. The guarantee itself holds on an event of probability
≥ 1 − δ′ (1 − δ′ − δ_q with a margin that learns the noise), so an alarm at 1/a is false with probability at most
a + δ′ (+ δ_q), over all time.

**Late or missing outcomes.** The product runs over rounds in decision order. A round without a known outcome enters as
kept, v_s = 0, and is revised when a violation becomes known (`revise`): at any time the value is at most that of the
full product over the same rounds, so Ville's inequality covers it. Nothing waits for an open round, and the order of
reports does not matter. (`update` does both at once, for rounds whose outcome is known.)

Evidence that the noise is larger than stated, valid whenever you look.

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
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from safedial.model.namespace import namespace

ODDS = np.array([1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0])
"""The odds multiples, with equal bets: from a slightly to a grossly broken guarantee."""

LARGEST_LOG = 700.0
"""The evidence stops growing at e^700, just below the largest float."""


class Monitor(NamedTuple):
    """Log-evidence for each of `ODDS` on the last axis, and counts for display."""

    log_evidence: Any
    rounds: Any
    violations: Any


def init(batch: tuple[int, ...] = (), xp: Any = np) -> Monitor:
    count = xp.zeros(batch, dtype=xp.float64)
    return Monitor(xp.zeros((*batch, len(ODDS)), dtype=xp.float64), count, count)


def update(monitor: Monitor, violated: Any, risk: Any) -> Monitor:
    """Add one round: whether its cost exceeded τ, and the risk it was allowed."""
    if type(violated) is bool and type(risk) is float:
        gain = _gain(violated, risk)
        return Monitor(monitor.log_evidence + gain, monitor.rounds + 1.0, monitor.violations + violated)
    xp = namespace(monitor.log_evidence)
    odds = xp.asarray(ODDS)
    hit = xp.asarray(violated, dtype=xp.float64)
    allowed = xp.asarray(risk, dtype=xp.float64)[..., None]
    gain = hit[..., None] * xp.log(odds) - xp.log1p(allowed * (odds - 1.0))
    return Monitor(monitor.log_evidence + gain, monitor.rounds + 1.0, monitor.violations + hit)


def revise(monitor: Monitor, count: Any = 1.0) -> Monitor:
    """Revise a round that was counted as kept but turned out to exceed τ; `count` is 0 in lanes where nothing is
    revised.

    >>> late = revise(update(init(), violated=False, risk=0.01))
    >>> bool(abs(evidence(late) - evidence(update(init(), violated=True, risk=0.01))) < 1e-12)
    True
    """
    added = np.asarray(count)[..., None] * np.log(ODDS)
    return Monitor(monitor.log_evidence + added, monitor.rounds, monitor.violations + count)


@lru_cache(maxsize=64)
def _gain(violated: bool, risk: float) -> Any:
    """What one round of one learner adds. It is cached because most rounds are alike."""
    hit, allowed = np.asarray(violated, dtype=np.float64), np.asarray(risk)[..., None]
    return hit[..., None] * np.log(ODDS) - np.log1p(allowed * (ODDS - 1.0))


def evidence(monitor: Monitor) -> Any:
    """E_t: 1 at the start, large when the guarantee looks broken.

    >>> watched = init()
    >>> for _ in range(3):
    ...     watched = update(watched, violated=True, risk=0.01)
    >>> bool(evidence(watched) > 100)
    True
    """
    if isinstance(monitor.log_evidence, np.ndarray) and monitor.log_evidence.ndim == 1:  # one lane, in plain numbers
        logs = monitor.log_evidence.tolist()
        most = max(logs)
        return math.exp(min(most, LARGEST_LOG)) * sum(math.exp(each - most) for each in logs) / len(logs)
    xp = namespace(monitor.log_evidence)
    peak = xp.max(monitor.log_evidence, axis=-1, keepdims=True)
    return xp.exp(xp.minimum(peak[..., 0], xp.asarray(LARGEST_LOG))) * xp.mean(
        xp.exp(monitor.log_evidence - peak), axis=-1
    )


def alarm(monitor: Monitor, level: float = 0.01) -> Any:
    """True once the evidence reaches 1/level. Keep the first alarm: a later, smaller value does not cancel it."""
    return evidence(monitor) >= 1.0 / level


# --- Evidence that the noise is larger than stated, valid whenever you look

SHARE = 0.5
"""s: the bet. A small s detects a slight excess, late; a large s detects a gross one, soon."""

EXPECTED = 0.5 * math.log1p(-SHARE)
"""ln √(1−s): what each round costs."""


def expect(log_evidence: list[float]) -> list[float]:
    """Multiply each product by the factor √(1−s) of a round that is decided but has no outcome yet."""
    return [each + EXPECTED for each in log_evidence]


def observe(log_evidence: float, residual: float, slack: float, noise: float) -> float:
    """Add the residual of a round that was expected."""
    excess = max(abs(residual) - slack, 0.0) / noise
    return min(log_evidence + 0.5 * SHARE * excess * excess, LARGEST_LOG)


def tails_alarm(log_evidence: float, level: float = 0.01) -> bool:
    """True once the evidence reaches 1/level."""
    return log_evidence >= -math.log(level)
