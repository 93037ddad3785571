"""Influential rounds: single records that noise does not explain, and how far each moves the estimate."""

from __future__ import annotations

import numpy as np

from safedial.diagnostics.evidence import marks
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.residuals import Array, Rounds

NAMED = 5
"""How many rounds are named."""


def shifts(rounds: Rounds) -> Array:
    """‖μ̂ − μ̂₍₋ₜ₎‖_Σ: how far the last estimate moves, in the norm of the radius, if round t is left out.

    With h = xᵀΣ⁻¹x and r the fit's own residual it is |r|√h/(1 − h) (Sherman–Morrison).
    """
    leverage = np.vecdot(rounds.rows, np.linalg.solve(rounds.gram, rounds.rows.T).T)
    own = rounds.outcome - rounds.rows @ rounds.coef
    return np.abs(own) * np.sqrt(leverage) / np.maximum(1.0 - leverage, 1e-12)


def check_influence(rounds: Rounds, *, needed: float) -> Finding:
    """Σ_t f(p_t)/horizon with p_t = 2exp(−u²/2), u the residual beyond its slack in units of κ, and f(p) = 1/(2√p).

    p_t is at least uniform on the event of the confidence set, and f has mean 1 under the uniform law, so each term has
    mean at most 1/horizon. With future terms counted at their means, the sum is a supermartingale that starts at 1.
    """
    at = marks(len(rounds))
    beyond = np.maximum(np.abs(rounds.residual) - rounds.slack, 0.0) / rounds.noise
    log_bets = np.minimum(-np.log(2.0) - 0.5 * np.minimum(np.log(2.0) - 0.5 * beyond**2, 0.0), 690.0)
    passed = np.minimum(np.arange(1, len(rounds) + 1) / rounds.horizon, 1.0)
    logs = np.log(np.cumsum(np.exp(log_bets)) / rounds.horizon + 1.0 - passed)[at - 1]
    moved = shifts(rounds)
    order = np.argsort(-moved, kind="stable")[:NAMED]
    top = [{"round": int(rounds.number[index]), "shift": float(moved[index])} for index in order]
    odd = [int(rounds.number[index]) for index in np.argsort(-beyond, kind="stable")[:NAMED] if beyond[index] > 4.0]
    words = (
        f"The largest residuals, beyond 4 κ and their slack, are in rounds {', '.join(map(str, odd))}. " if odd else ""
    )
    return finding(
        "influence",
        "Influential rounds",
        Process(rounds.number[at - 1], logs, needed),
        tested=f"Is there a single round whose {rounds.target} no noise with constant κ = {rounds.noise:g} explains?",
        found=f"{words}Leaving out round {top[0]['round']} would move the estimate the most, by {top[0]['shift']:.2g} "
        f"in the norm of the radius (κ = {rounds.noise:g}).",
        fine="No round stands out.",
        broken="The estimate contains a wrong record, or an event outside the model. Look up those rounds and correct "
        "what is wrong (never drop a round because of its outcome: that voids the promise). A tiny dose magnifies any "
        "error.",
        top=top,
        odd_rounds=odd,
    )
