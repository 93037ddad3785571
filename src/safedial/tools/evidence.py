"""Evidence against a linear mean with κ-sub-Gaussian noise, valid at any time.

Two e-processes: under its null, each has mean at most 1 at every stopping time; by Ville's inequality it ever reaches
1/a with probability at most a. Rows x_t, outcomes y_t = ⟨x_t, μ*⟩ + ξ_t, ξ_t κ-sub-Gaussian given the past and x_t.

**Richer means** (`mixture`). For predictable features φ_t and a fixed ν, exp((‖y − Xμ*‖² − ‖y − Φν‖²)/2κ²) is a
supermartingale (docs/design.md), and so is its mean over ν ~ N(0, P). μ* is unknown; whatever it is, ‖y − Xμ*‖² ≥ R,
the least over all μ that the null allows. With Φ̃ = ΦP^½,

    ln E_t = (R − yᵀ(I + Φ̃Φ̃ᵀ/κ²)⁻¹y)/2κ² − ½ ln det(I + Φ̃ᵀΦ̃/κ²).

R is the residual sum of squares if every μ is allowed, and max_a (yᵀ(I + XXᵀ/a)⁻¹y − aS²) if ‖μ‖ ≤ S: the dual of
constrained least squares, where any a gives a valid bound.

**Wider noise** (`spread`). E exp(sξ²/2κ²) = E_Z E exp(√s Zξ/κ) ≤ E_Z exp(sZ²/2) = (1 − s)^−½ for Z standard normal and
0 ≤ s < 1. So over any predictable choice of n rounds, ln E_t = sR/2κ² + (n/2) ln(1 − s), R as above over these rounds.

No confidence set is needed, because R bounds the unknown part. All is a function of moments that add over rounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.model.namespace import Array

SPREADS = np.array([0.05, 0.15, 0.3, 0.5, 0.7, 0.9])
"""The values of s, each with an equal bet: from slightly to grossly wider noise."""

EMPTY = 1e-12
"""Eigenvalues of the scaled moments below this are rounding error."""

POINTS = 40
"""The number of rounds at which evidence is taken."""


class Moments(NamedTuple):
    """Σ φφᵀ, Σ φy, Σ y² and the number of rounds; a leading axis for points in time."""

    gram: Any
    rhs: Any
    square: Any
    count: Any


def marks(count: int, points: int = POINTS) -> NDArray[np.int64]:
    """The rounds at which evidence is taken: at most `points`, evenly spaced, ending with `count`."""
    return np.unique(np.linspace(0, count, min(points, count) + 1).round().astype(np.int64))[1:]


def running(features: Array, outcomes: Array, at: NDArray[np.int64], used: Any = None) -> Moments:
    """The moments after each of the rounds `at`; `used` masks the rounds that count."""
    chosen = np.ones(len(outcomes)) if used is None else np.asarray(used, dtype=float)
    kept, told = features * chosen[:, None], outcomes * chosen
    pieces = list(zip((0, *at[:-1]), at, strict=True))
    gram = np.cumsum([kept[start:end].T @ kept[start:end] for start, end in pieces], axis=0)
    rhs = np.cumsum([kept[start:end].T @ told[start:end] for start, end in pieces], axis=0)
    return Moments(gram, rhs, np.cumsum(told**2)[at - 1], np.cumsum(chosen)[at - 1])


def least_squares(moments: Moments) -> Array:
    """R if every coefficient is allowed: the residual sum of squares.

    Features are first scaled to equal length, so that their units do not decide which directions count as empty.
    """
    sizes = np.sqrt(np.maximum(np.linalg.diagonal(moments.gram), 1e-300))
    values, turn = np.linalg.eigh(moments.gram / (sizes[..., :, None] * sizes[..., None, :]))
    turned = (np.swapaxes(turn, -1, -2) @ (moments.rhs / sizes)[..., None])[..., 0]
    sound = values > EMPTY
    explained = np.where(sound, turned**2 / np.where(sound, values, 1.0), 0.0)
    return np.maximum(moments.square - explained.sum(axis=-1), 0.0)


def bounded_least_squares(moments: Moments, bound: float) -> Array:
    """R if ‖μ‖ ≤ S: the largest dual value over a grid of a, or the plain residual sum of squares if that is larger."""
    values, turn = np.linalg.eigh(moments.gram)
    turned = (np.swapaxes(turn, -1, -2) @ moments.rhs[..., None])[..., 0] ** 2
    size = np.maximum(values[..., -1:], 1e-300)
    best = least_squares(moments)
    for share in np.logspace(-6, 3, 91):
        ridge = share * size
        dual = moments.square - (turned / (np.maximum(values, 0.0) + ridge)).sum(axis=-1) - ridge[..., 0] * bound**2
        best = np.maximum(best, dual)
    return best


def mixture(moments: Moments, prior: Array, noise: float, least: Array) -> Array:
    """ln E_t for features whose coefficients have prior deviations `prior`, against a null with R = `least`."""
    gram = prior[:, None] * moments.gram * prior / noise**2
    rhs = prior * moments.rhs / noise**2
    core = np.eye(len(prior)) + gram
    explained = np.vecdot(rhs, np.linalg.solve(core, rhs[..., None])[..., 0])
    return 0.5 * (least / noise**2 - moments.square / noise**2 + explained - np.linalg.slogdet(core)[1])


def spread(moments: Moments, noise: float) -> Array:
    """ln E_t against noise wider than κ over the rounds that the moments count."""
    ratio = least_squares(moments) / (2.0 * noise**2)
    bets = SPREADS * ratio[..., None] + 0.5 * np.log1p(-SPREADS) * np.asarray(moments.count)[..., None]
    return average(bets)


def average(logs: Any, axis: int = -1) -> Array:
    """ln of the mean of e-values given by their logarithms: again an e-value.

    >>> float(round(average(np.log([1.0, 3.0])), 6)) == float(round(np.log(2.0), 6))
    True
    """
    values = np.asarray(logs, dtype=float)
    peak = np.max(values, axis=axis, keepdims=True)
    return np.squeeze(peak, axis=axis) + np.log(np.mean(np.exp(values - peak), axis=axis))
