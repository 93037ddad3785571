"""Linearity: does the mean outcome per unit of intensity bend in the context?"""

from __future__ import annotations

import numpy as np

from safedial.diagnostics.evidence import average, least_squares, marks, mixture, running
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.residuals import Array, Rounds

SIZES = (0.1, 0.4, 1.5)
"""Prior deviations of the bent terms, in units of S·L at contexts of norm L; each gets an equal bet."""

LARGEST_QUADRATIC = 12
"""Up to this dimension all squares and products are tried as well."""


def bends(rounds: Rounds) -> list[Array]:
    """Sets of further features, each known before the outcome: powers of the prediction (1, ĉ², ĉ³), all quadratics."""
    reach = rounds.spec.coefficient_bound * rounds.spec.context_bound
    share = np.clip(rounds.fitted / reach, -2.0, 2.0)
    sets = [np.column_stack([np.ones(len(rounds)), share**2, share**3])]
    dim = rounds.context.shape[1]
    if dim <= LARGEST_QUADRATIC:
        scaled = rounds.context / rounds.spec.context_bound
        first, second = np.triu_indices(dim)
        sets.append(scaled[:, first] * scaled[:, second])
    return sets


def against_features(rounds: Rounds, extra: Array, sizes: Array) -> Array:
    """ln E over time of a mean ⟨x,μ⟩ + ⟨extra,ν⟩ against ⟨x,μ⟩ with any μ; `sizes` (k, 1): deviations of ν tried."""
    at = marks(len(rounds))
    root = np.sqrt(rounds.weight)[:, None]
    dim = rounds.rows.shape[1]
    moments = running(np.hstack([rounds.rows, root * extra]), rounds.outcome, at)
    null = moments._replace(gram=moments.gram[:, :dim, :dim], rhs=moments.rhs[:, :dim])
    least = least_squares(null)
    base = np.full(dim, rounds.spec.coefficient_bound)
    priors = [np.concatenate([base, np.broadcast_to(size, extra.shape[1])]) for size in sizes]
    return average([mixture(moments, prior, rounds.noise, least) for prior in priors], axis=0)


def check_linearity(rounds: Rounds, *, needed: float) -> Finding:
    """Bets on bent means against every linear one (`mixture` in evidence.py)."""
    at = marks(len(rounds))
    reach = rounds.spec.coefficient_bound * rounds.spec.context_bound
    sizes = reach * np.array(SIZES)[:, None]
    logs = average([against_features(rounds, extra, sizes) for extra in bends(rounds)], axis=0)
    share, rise = _binned(rounds)
    return finding(
        "linearity",
        "Linearity",
        Process(rounds.number[at - 1], logs, needed),
        tested=f"Is the mean {rounds.target} per unit of intensity linear in the context, or does a constant, a "
        "square, a cube of the prediction or a product of features help?",
        found=f"Mean residuals in five bands of the prediction range from {min(rise):.2g} to {max(rise):.2g} "
        f"(κ = {rounds.noise:g}).",
        fine="There is no evidence against a linear mean.",
        broken="The confidence set is for linear means: the bound on the mean cost may be too low for some contexts. "
        " Add the features that bend (squares, products, an intercept), or use promise = 'conformal', which "
        "needs no linearity.",
        bands=share,
        mean_residuals=rise,
    )


def _binned(rounds: Rounds) -> tuple[list[float], list[float]]:
    """Five bands of the prediction, from the second half of the rounds: their middles and mean residuals."""
    late = slice(len(rounds) // 2, None)
    order = np.argsort(rounds.fitted[late], kind="stable")
    parts = np.array_split(order, 5)
    fitted, residual = rounds.fitted[late], rounds.residual[late]
    return [float(fitted[part].mean()) for part in parts], [float(residual[part].mean()) for part in parts]
