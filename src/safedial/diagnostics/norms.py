"""Norm bounds: ‖x‖ ≤ L in every row, and ‖μ*‖ ≤ S."""

from __future__ import annotations

import numpy as np

from safedial.diagnostics.evidence import average, bounded_least_squares, marks, mixture, running
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.residuals import Rounds

SIZES = (1.0, 3.0, 10.0)
"""Prior deviations of the coefficients, as multiples of S; each gets an equal bet."""

ROUNDING = 1e-9


def check_norms(rounds: Rounds, *, needed: float) -> Finding:
    """Bets on any μ against the best fit with ‖μ‖ ≤ S (`mixture` in evidence.py); a context longer than L is a flag.

    Contexts are checked in every row, with or without a dose. The radius and the cut at S‖x‖ both depend on S; L is
    only checked.
    """
    spec = rounds.spec
    at = marks(len(rounds))
    moments = running(rounds.rows, rounds.outcome, at)
    null = bounded_least_squares(moments, spec.coefficient_bound)
    dim = rounds.context.shape[1]
    priors = [np.full(dim, size * spec.coefficient_bound) for size in SIZES]
    logs = average([mixture(moments, prior, rounds.noise, null) for prior in priors], axis=0)
    longest = float(rounds.all_norms.max())
    beyond = int((rounds.all_norms > spec.context_bound * (1.0 + ROUNDING)).sum())
    size = float(np.linalg.norm(rounds.coef))
    where = f"{beyond} contexts are longer than L" if beyond else "no context is longer than L"
    return finding(
        "norms",
        "Norm bounds",
        Process(rounds.number[at - 1], np.full(len(at), np.inf) if beyond else logs, needed),
        tested=f"Is every context at most L = {spec.context_bound:g} long, and can the {rounds.target}'s coefficients "
        f"have norm at most S = {spec.coefficient_bound:g}?",
        found=f"The longest context has norm {longest:.3g}: {where}. The estimated coefficients have norm {size:.3g}.",
        fine="There is no evidence against S and L.",
        broken="The radius and the cut at S times the context's norm are too small where S is: doses may be too high. "
        "Restart with bounds that hold (safedial calibrate proposes some), or use promise = 'conformal'.",
        longest_context=longest,
        contexts_beyond=beyond,
        coefficient_norm=size,
    )
