"""Functions of a reproducing-kernel Hilbert space with norm ≤ B, on contexts whose kernel matrix is given.

A larger ε′ amounts to a smaller ball, so ε′ = ε serves as well as any other. `linear_eluder` derives what both bounds
use: with λ = c·ε²/(2B)² and σ² the posterior variance at ridge λ, a context that is ε-independent of its predecessors
has σ²/λ > 1/(1 + c).

References: Russo & Van Roy (2013); Srinivas et al. (2010) for the information gain, here ln det(I + K/λ), twice
theirs; Nemhauser, Wolsey & Fisher (1978) for greedy choices of a submodular gain.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safedial.errors import require
from safedial.theory.eluder_bound import Array, Eluder, check_positive
from safedial.theory.linear_eluder import SHARES

LARGEST = 2_000
MARGIN = 1e-5
RESOLVED = 1e-9


def kernel_upper(gram: Any, *, epsilon: float, norm: float) -> Eluder:
    """Below the first k with k·ln((2 + c)/(1 + c)) ≥ G_k, where G_k bounds ln det(I + K_A/λ) over all sets A of k
    contexts (none appears twice, nor do two that the kernel cannot tell apart); least over c.

    A ↦ ln det(I + K_A/λ) is monotone and submodular. With A_i the first i contexts chosen greedily and
    gain(x | A) = ln(1 + σ²(x | A)/λ),

        G_k = min( gain(A_k)/(1 − (1 − 1/k)^k),   min_i gain(A_i) + the k largest gain(x | A_i) outside A_i,
                   the largest Σ_{i≤k} ln(1 + m_i/λ) with m_i ≤ the i-th eigenvalue of K and Σm_i ≤ k·max k(x, x) ).

    The first is at most e/(e − 1) times the greedy gain; the second holds because the best set adds to A_i at most the
    sum of its members' own gains; the third because the eigenvalues of K_A interlace those of K, and it is the bound
    for linear classes where K has low rank (a polynomial kernel).

    >>> kernel_upper(np.eye(5), epsilon=0.1, norm=1.0).dimension      # five contexts, all unrelated
    5
    >>> kernel_upper(np.ones((5, 5)), epsilon=1.9, norm=1.0).dimension         # five that are the same
    1
    """
    matrix, unit = _checked(gram, epsilon, norm)
    if float(matrix.diagonal().max()) <= unit:
        return Eluder(0, "exact", epsilon, "no two functions differ by more than epsilon")
    same = np.unique(matrix, axis=0, return_index=True)[1]
    matrix = matrix[np.ix_(same, same)]
    count = len(matrix)
    for share in SHARES:
        gains = _largest_gains(matrix, share * unit, count)
        step = math.log((2.0 + share) / (1.0 + share))
        broken = np.flatnonzero(step * np.arange(1, len(gains) + 1) >= gains)
        count = int(broken[0]) if len(broken) else count
    method = "information gain" if count < len(matrix) else "number of contexts"
    return Eluder(count, "upper bound", epsilon, method)


def kernel_lower(gram: Any, *, epsilon: float, norm: float) -> Eluder:
    """A sequence found greedily: each step takes the least independent context among those that are still
    ε-independent of the earlier ones.

    The largest h(x) over ‖h‖ ≤ 2B and Σ_j h(x_j)² ≤ ε² is a convex problem whose solution is a multiple of v_λ = (Φ +
    λI)⁻¹φ(x) for some λ ≥ 0. Any λ gives an h that is allowed, namely v_λ·min(ε/√q, 2B/‖v_λ‖), with q = Σ_j
    v_λ(x_j)², v_λ(x) = σ²/λ and ‖v_λ‖² = (v_λ(x) − q)/λ; the best of a grid of λ is taken. So the result is a valid
    sequence, though perhaps not the longest. Values must exceed ε by a relative 1e-5, and variances below 1e-9 of
    k(x, x) are not used, so rounding cannot produce a false sequence.

    >>> kernel_lower(np.eye(5), epsilon=0.1, norm=1.0).dimension
    5
    """
    matrix, unit = _checked(gram, epsilon, norm)
    sequence: list[int] = []
    while len(sequence) < len(matrix):
        reach = _reach(matrix, sequence, epsilon, unit)
        reach[sequence] = 0.0
        independent = np.flatnonzero(reach > epsilon * (1.0 + MARGIN))
        if not len(independent):
            break
        sequence.append(int(independent[np.argmin(reach[independent])]))
    scale = epsilon if sequence else None
    return Eluder(len(sequence), "lower bound", epsilon, "greedy sequence", scale, tuple(sequence))


def _largest_gains(matrix: Array, ridge: float, most: int) -> Array:
    """G_1 … G_most, by a Cholesky factorisation of K + λI that pivots on the largest posterior variance."""
    count = len(matrix)
    variance = matrix.diagonal().copy()
    columns, chosen = np.zeros((most, count)), np.zeros(count, dtype=bool)
    total, best = 0.0, _spectral_gains(matrix, ridge, most)
    for size in range(most):
        gain = np.log1p(np.where(chosen, 0.0, variance) / ridge)
        top = np.sort(gain)[::-1][:most]
        best = np.minimum(best, total + np.cumsum(top))
        pivot = int(np.argmax(np.where(chosen, -1.0, variance)))
        total += float(gain[pivot])
        best[size] = min(best[size], total / (1.0 - (1.0 - 1.0 / (size + 1)) ** (size + 1)))
        rest = matrix[pivot] - columns[:size, pivot] @ columns[:size]
        columns[size] = rest / math.sqrt(float(variance[pivot]) + ridge)
        variance = np.maximum(variance - columns[size] ** 2, 0.0)
        chosen[pivot] = True
    return best


def _spectral_gains(matrix: Array, ridge: float, most: int) -> Array:
    """The largest Σ_{i≤k} ln(1 + m_i/λ) with m_i ≤ e_i, Σm_i ≤ k·max k(x, x): concave, so m_i = min(e_i, one level)."""
    largest = float(matrix.diagonal().max())
    spectrum = np.maximum(np.linalg.eigvalsh(matrix)[::-1], 0.0) + 1e-13 * largest * len(matrix)
    gains = np.empty(most)
    for size in range(1, most + 1):
        rising = spectrum[:size][::-1]
        filled = np.cumsum(rising) + rising * np.arange(size - 1, -1, -1)
        level = np.interp(size * largest, np.r_[0.0, filled], np.r_[0.0, rising])
        gains[size - 1] = np.log1p(np.minimum(rising, level) / ridge).sum()
    return gains


def _reach(matrix: Array, sequence: list[int], epsilon: float, unit: float) -> Array:
    """For every context, a value that some allowed h attains there."""
    own = matrix.diagonal()
    values, basis = np.linalg.eigh(matrix[np.ix_(sequence, sequence)])
    cross, values = (basis.T @ matrix[sequence]) ** 2, np.maximum(values, 0.0)[:, None]
    reach = np.zeros(len(matrix))
    for ridge in unit * 2.0 ** np.arange(-12.0, 13.0):
        variance = own - np.sum(cross / (values + ridge), axis=0)
        at, before = variance / ridge, np.sum(cross / (values + ridge) ** 2, axis=0)
        size = np.maximum(at - before, 0.0) + 0.1 * MARGIN * np.abs(at) + 1e-300
        allowed = np.minimum(epsilon / np.sqrt(before + 1e-300), epsilon / np.sqrt(unit * size / ridge))
        reach = np.maximum(reach, np.where(variance > RESOLVED * own, at * allowed, 0.0))
    return reach


def _checked(gram: Any, epsilon: float, norm: float) -> tuple[Array, float]:
    """The kernel matrix, checked, and ε²/(2B)²."""
    try:
        matrix = np.asarray(gram, dtype=float)
    except (TypeError, ValueError):
        matrix = np.empty(())
    square = matrix.ndim == 2 and matrix.size > 0 and len(matrix) == len(matrix.T)
    require(square, "gram", gram, "must be a square matrix of numbers", "give kernel(X, X)")
    require(len(matrix) <= LARGEST, "contexts", len(matrix), f"must be at most {LARGEST} here", "give fewer contexts")
    scale = float(np.abs(matrix).max())
    require(np.isfinite(scale), "gram", gram, "must hold finite numbers")
    require(np.abs(matrix - matrix.T).max() <= 1e-9 * scale, "gram", gram, "must be symmetric")
    least = float(np.linalg.eigvalsh(matrix)[0])
    rule = f"must be positive semi-definite, not with eigenvalue {least:.3g}"
    require(least >= -1e-9 * scale * len(matrix), "gram", gram, rule)
    return matrix, (check_positive("epsilon", epsilon) / (2.0 * check_positive("norm", norm))) ** 2
