"""Dose-curve misfit: does the normalised outcome still depend on the dose?"""

from __future__ import annotations

import numpy as np

from safedial.diagnostics.evidence import average, marks
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.linearity import against_features
from safedial.diagnostics.residuals import Array, Rounds

RATIOS = (0.1, 0.4, 1.5)
"""Prior deviations of the true curve's relative departure from g."""

BASES = (0.003, 0.03)
"""Prior deviations of a cost that does not vanish at dose 0, as multiples of the threshold (for rewards: of S·L)."""

BANDS = 5
SMALLEST = 1e-4
"""The intensity below which 1/g is capped."""


def departures(rounds: Rounds) -> tuple[Array, Array]:
    """Features known before the outcome. If the true curve is h, the normalised mean is (h/g)⟨x,μ⟩: the prediction
    times a function of the dose. If C = b + g(α)(c + ξ), it is c + b/g.
    """
    shape = np.column_stack(
        [rounds.action, np.sqrt(rounds.action), np.log(np.maximum(rounds.intensity, SMALLEST)) / 4.0]
    )
    return rounds.fitted[:, None] * shape, 1.0 / np.maximum(rounds.intensity, SMALLEST)[:, None]


def check_dose_curve(rounds: Rounds, *, needed: float) -> Finding:
    """Bets on normalised means that depend on the dose, against those that do not (`mixture` in evidence.py)."""
    at = marks(len(rounds))
    ratio, base = departures(rounds)
    spec = rounds.spec
    unit = spec.threshold if rounds.target == "cost" else spec.coefficient_bound * spec.context_bound
    by_ratio = against_features(rounds, ratio, np.array(RATIOS)[:, None])
    by_base = against_features(rounds, base, unit * np.array(BASES)[:, None])
    edges, means = _banded(rounds)
    return finding(
        "dose_curve",
        "Dose curve",
        Process(rounds.number[at - 1], average([by_ratio, by_base], axis=0), needed),
        tested=f"Once divided by g, does the mean {rounds.target} still depend on the dose: another curve, or a part "
        "that does not vanish at dose 0?",
        found=f"Mean residuals in {len(means)} bands of the action range from {min(means):.2g} to {max(means):.2g} "
        f"(κ = {rounds.noise:g}); actions reach from {rounds.action.min():.2g} to {rounds.action.max():.2g}.",
        fine="There is no evidence against g at the doses that were used. Doses that were never given prove nothing.",
        broken="The promise is for g: where the true curve lies above it, an action does more than its certificate "
        "says. Refit the curve (safedial calibrate) to a log that covers the dial, or state the baseline cost.",
        bands=edges,
        mean_residuals=means,
    )


def _banded(rounds: Rounds) -> tuple[list[float], list[float]]:
    parts = [part for part in np.array_split(np.argsort(rounds.action, kind="stable"), BANDS) if part.size]
    return [float(rounds.action[part].mean()) for part in parts], [
        float(rounds.residual[part].mean()) for part in parts
    ]
