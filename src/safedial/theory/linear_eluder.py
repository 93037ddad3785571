"""Linear functions of bounded norm: bounds from below and above. `kernel_eluder` uses the same argument for RKHS balls.

F = {⟨φ(x), w⟩ : ‖w‖ ≤ S}, so a difference of two functions has a ρ = w − w′ with ‖ρ‖ ≤ 2S, and every such ρ occurs.
A larger ε′ amounts to a smaller ball, so ε′ = ε serves as well as any other.

**From above.** Fix c > 0 and let λ = c·ε²/(2S)², V = λI + Σ_{j<i} φ_jφ_jᵀ. If x_i is ε-independent of its
predecessors, its ρ has ρᵀVρ ≤ ε² + λ(2S)² = (1 + c)ε², so ε < ⟨φ_i, ρ⟩ ≤ ‖φ_i‖_{V⁻¹}·ε√(1 + c): u_i := ‖φ_i‖²_{V⁻¹} >
1/(1 + c). (u_i = σ²/λ, with σ² the posterior variance at ridge λ.) Each context multiplies the determinant by 1 +
u_i, so a sequence of k contexts has

    k·ln((2 + c)/(1 + c)) < ln det(I + ΦᵀΦ/λ) = ln det(I + K/λ)                                     (*)

where K is the kernel matrix of its contexts. At c = 1, which gives ln(3/2), this is the step of Russo & Van Roy. Any
c holds, so the least over a grid of c does. A sequence's first k contexts are a sequence, so dim_E is below the first
k that breaks (*).

Reference: Russo & Van Roy (2013), section on linear classes; for (*) with kernels, Srinivas et al. (2010) define the
information gain ½ ln det(I + K/λ).
"""

from __future__ import annotations

import math

from safedial.errors import is_whole, require
from safedial.theory.eluder_bound import Eluder, check_positive

SHARES = tuple(2.0**power for power in range(-8, 3))
TIE = 1e-12


def linear_lower(dim: int, *, epsilon: float, coefficient_bound: float, context_bound: float) -> Eluder:
    """d(1 + ⌈log₂ a⌉) with a = (2SL/ε)², and 0 if a ≤ 1: the contexts may be any x with ‖x‖ ≤ L.

    One axis: x₁ with x₁² just above (ε/2S)², x₂² just above x₁², then each x_k² just above Σ_{j<k} x_j². The ρ along
    the axis with ρ²·Σ_{j<k} x_j² = ε² (or |ρ| = 2S for the first) has |ρx_k| > ε. Sums double, so x_k² need only
    exceed 2^{k−2}(ε/2S)², and k contexts fit below L if 2^{k−2} < a. The axes do not affect each other, so d axes
    give d times as many.

    >>> linear_lower(3, epsilon=0.1, coefficient_bound=1, context_bound=1).dimension
    30
    """
    ratio = _ratio(dim, epsilon, coefficient_bound, context_bound) * (1.0 - TIE)
    count = dim * (1 + math.ceil(math.log2(ratio))) if ratio > 1.0 else 0
    return Eluder(count, "lower bound", epsilon, "doubling sequence on each axis")


def linear_upper(dim: int, *, epsilon: float, coefficient_bound: float, context_bound: float) -> Eluder:
    """The smallest proved bound for linear functions with ‖w‖ ≤ S on ‖x‖ ≤ L; a = (2SL/ε)². `method` says which.

    * `determinant`: in (*) ln det(I + ΦᵀΦ/λ) ≤ d ln(1 + kL²/(dλ)), by the inequality of the means; L²/λ = a/c. The
      largest k with k·ln((2 + c)/(1 + c)) < d ln(1 + ak/(cd)), least over c.
    * `closed form`: 3d·e/(e − 1)·ln(3 + 3a) + 1, which Russo & Van Roy derive from the same inequality at c = 1;
      never smaller.
    * `doubling`, for d = 1, is exact: there ε-independence of x_k means x_k² > Σ_{j<k} x_j² and x_k² > (ε/2S)²; so
      x_k² > 2^{k−2}(ε/2S)², and the sequence of `linear_lower` cannot be beaten.

    >>> linear_upper(3, epsilon=0.1, coefficient_bound=1, context_bound=1)
    Eluder(dimension=51, kind='upper bound', epsilon=0.1, method='determinant', scale=None, sequence=(), pairs=())
    """
    ratio = _ratio(dim, epsilon, coefficient_bound, context_bound)
    if ratio <= 1.0:
        return Eluder(0, "exact", epsilon, "no two functions differ by more than epsilon")
    if dim == 1:
        lower = linear_lower(1, epsilon=epsilon, coefficient_bound=coefficient_bound, context_bound=context_bound)
        return Eluder(lower.dimension, "exact", epsilon, "doubling")
    closed = math.floor(closed_form(dim, ratio))
    proved = min(_determinant(dim, ratio, share) for share in SHARES)
    return Eluder(min(proved, closed), "upper bound", epsilon, "determinant" if proved <= closed else "closed form")


def closed_form(dim: int, ratio: float) -> float:
    """3d·e/(e − 1)·ln(3 + 3a) + 1, a = (2SL/ε)²."""
    return 3.0 * dim * math.e / (math.e - 1.0) * math.log(3.0 + 3.0 * ratio) + 1.0


def _determinant(dim: int, ratio: float, share: float) -> int:
    """The largest k with k·ln((2 + c)/(1 + c)) < d ln(1 + ak/(cd)); the right side is concave, so these are 1 … k."""
    step = math.log((2.0 + share) / (1.0 + share))

    def fits(count: int) -> bool:
        return count * step < dim * math.log1p(ratio * count / (share * dim))

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _ratio(dim: int, epsilon: float, coefficient_bound: float, context_bound: float) -> float:
    """(2SL/ε)², with the arguments checked."""
    require(is_whole(dim), "dim", dim, "must be a whole number >= 1")
    size = check_positive("coefficient_bound", coefficient_bound) * check_positive("context_bound", context_bound)
    return (2.0 * size / check_positive("epsilon", epsilon)) ** 2
