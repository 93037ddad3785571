"""Sub-Gaussian tails: is the noise as light as κ says?"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from safedial.diagnostics.evidence import average, marks, running, spread
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.residuals import Array, Rounds

HEIGHTS = np.array([2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0])
"""q: residuals beyond qκ and their slack are counted."""

GAINS = np.array([1.5, 4.0, 20.0])
"""Odds multiples that get a bet at each height, and one more for which a single such residual is strong evidence."""

TELLING = 3e-3
"""That last bet's largest product of a height's chance and its odds multiple."""


def check_tails(rounds: Rounds, *, needed: float) -> Finding:
    """Two kinds of bets, in equal shares.

    * On width: `spread` over all rounds (evidence.py).
    * On rare large residuals: |ξ| > qκ has probability ≤ p = 2e^{−q²/2}, or 2Φ(−q) if the spec's margin assumes
      Gaussian noise. On the event of the confidence set |e_t| > qκ + slack_t implies it, so Π m^v/(1 + p(m − 1)) is a
      supermartingale there, as in core/monitor.py.

    If the margin assumes bounded noise in the cost, one residual beyond the range and its slack is a flag.
    """
    at = marks(len(rounds))
    wide = spread(running(rounds.rows, rounds.outcome, at), rounds.noise)
    scaled = (np.abs(rounds.residual) - rounds.slack) / rounds.noise
    chance = _chances(rounds)
    odds = np.concatenate([np.tile(GAINS[:, None], len(HEIGHTS)), np.maximum(TELLING / chance, GAINS[-1])[None]])
    over = scaled[:, None] > HEIGHTS
    gains = over[:, None] * np.log(odds) - np.log1p(chance * (odds - 1.0))
    rare = average(np.cumsum(gains, axis=0)[at - 1].reshape(len(at), -1))
    outside = _outside_range(rounds)
    logs = np.where(np.cumsum(outside)[at - 1] > 0, np.inf, average([wide, rare], axis=0))
    deviation = float(np.sqrt(np.mean(rounds.residual**2)))
    height = math.sqrt(2.0 * math.log(2.0 * len(rounds)))
    largest = float(scaled.max())
    return finding(
        "tails",
        "Sub-Gaussian tails",
        Process(rounds.number[at - 1], logs, needed),
        tested=f"Are one-step-ahead residuals of the {rounds.target} as small, and large ones as rare, as noise with "
        f"constant κ = {rounds.noise:g} allows?",
        found=f"Their root mean square is {deviation:.3g} (κ = {rounds.noise:g}); the largest exceeds its slack by "
        f"{max(largest, 0.0):.2g} κ, where {height:.2g} κ is usual in {len(rounds)} rounds; {int(over[:, 2].sum())} "
        f"exceed it by 3 κ, at most {len(rounds) * chance[2]:.2g} are expected."
        + _range_words(rounds, int(outside.sum())),
        fine="There is no evidence against κ. Residuals cannot prove that it is large enough.",
        broken=_broken(rounds),
        deviation=deviation,
        largest=largest,
        beyond_three=int(over[:, 2].sum()),
    )


def _chances(rounds: Rounds) -> Array:
    """p at each height: what the stated noise allows."""
    from scipy.special import ndtr

    if rounds.target == "cost" and rounds.spec.margin == "gaussian":
        return 2.0 * np.asarray(ndtr(-HEIGHTS))
    return 2.0 * np.exp(-0.5 * HEIGHTS**2)


def _outside_range(rounds: Rounds) -> NDArray[np.bool_]:
    """Where the cost's noise must lie beyond its stated range, on the event of the confidence set."""
    spec = rounds.spec
    if rounds.target != "cost" or spec.margin != "bounded":
        return np.zeros(len(rounds), dtype=bool)
    return (rounds.residual - rounds.slack > spec.noise_high) | (rounds.residual + rounds.slack < spec.noise_low)


def _range_words(rounds: Rounds, outside: int) -> str:
    spec = rounds.spec
    if rounds.target != "cost" or spec.margin != "bounded":
        return ""
    return f" {outside} lie beyond the stated range from {spec.noise_low:g} to {spec.noise_high:g}."


def _broken(rounds: Rounds) -> str:
    if rounds.target == "reward":
        return "This costs reward, not safety: the reward's constant plays no part in safety. State a larger κ."
    return (
        "The noise margin κ√(2 ln 1/δ) and the radius may be too small: costs can exceed the threshold more often than "
        "promised. If linearity, drift or the dose curve raise a flag too, begin there: a wrong mean looks like wide "
        "noise. Otherwise restart with a larger κ; if tails are heavy no κ is enough, and promise = 'conformal' needs "
        "none."
    )
