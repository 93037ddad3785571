"""Drift: do the coefficients change over the rounds?"""

from __future__ import annotations

import numpy as np

from safedial.diagnostics.evidence import average, marks
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.linearity import against_features
from safedial.diagnostics.residuals import Rounds

SIZES = (0.1, 0.4, 1.5)
"""Prior deviations of the change of each coefficient, as multiples of S; each gets an equal bet."""

STEPS = (0.25, 0.5, 0.75)
"""Shares of the horizon at which a sudden change is tried."""


def check_drift(rounds: Rounds, *, needed: float) -> Finding:
    """Bets on coefficients that change, gradually over the horizon or at once, against constant ones.

    The horizon must be fixed before the first outcome; a log that ended because of an outcome has none.
    """
    at = marks(len(rounds))
    sizes = rounds.spec.coefficient_bound * np.array(SIZES)[:, None]
    passed = (rounds.number - rounds.number[0]) / rounds.horizon
    shapes = [passed, *(np.where(passed >= step, 1.0, 0.0) for step in STEPS)]
    logs = average([against_features(rounds, shape[:, None] * rounds.context, sizes) for shape in shapes], axis=0)
    early, late = _halves(rounds)
    moved = float(np.linalg.norm(late - early))
    return finding(
        "drift",
        "Drift",
        Process(rounds.number[at - 1], logs, needed),
        tested=f"Are the {rounds.target}'s coefficients the same from the first round to the last?",
        found=f"Fitted to either half, they differ by a vector of norm {moved:.2g} (S = "
        f"{rounds.spec.coefficient_bound:g}).",
        fine="There is no evidence against constant coefficients. (Contexts may drift freely.)",
        broken="Old rounds no longer predict new ones: the confidence set, which uses them all, may miss the truth. "
        "Find out what changed, and restart from there.",
        moved=moved,
    )


def _halves(rounds: Rounds) -> tuple[np.ndarray, np.ndarray]:
    ridge = rounds.spec.ridge * np.eye(rounds.rows.shape[1])
    middle = len(rounds) // 2
    parts = (rounds.rows[:middle], rounds.outcome[:middle]), (rounds.rows[middle:], rounds.outcome[middle:])
    early, late = (np.linalg.solve(rows.T @ rows + ridge, rows.T @ outcome) for rows, outcome in parts)
    return early, late
