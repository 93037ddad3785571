"""The paper's bounds on widths and regret, with every constant written out.

Theorem 3 with its constants: the regret of non-linear HP-UCB from two eluder dimensions and two radii.

Let all functions lie in [−b, b] (the paper: b = 1), and let the confidence sets ‖f − f̂_t‖²_{D_t} ≤ ρ_t ≤ ρ hold in
all rounds.

**Only informative rounds cost.** Zero is played where the largest reward in the set is negative; then θ*(X_t) < 0,
the clairvoyant plays zero too, and nothing is lost. In the others, R_t ≤ w^r_t + (b/τ)·w^c_t with w the width of the
set at X_t (the paper's two lemmas; θ* ≤ b gives the b). This matters: D_t holds informative rounds only, and the
count below needs X_t to join it.

**How often is the width large?** Two functions of one set differ by ‖f − f′‖_D ≤ 2√ρ. If w_t > ε, a pair of them
differs by more than ε at X_t; on each of K disjoint subsequences of the informative past on which X_t is ε-dependent,
its squares sum to more than ε². So Kε² < 4ρ. Among m contexts some one is ε-dependent on at least m/d − 1 disjoint
subsequences of those before it, d = dim_E(F, ε) (Russo & Van Roy). Hence #{t : w_t > ε} ≤ (4ρ/ε² + 1)·d.

**Their sum.** Order the widths, w₁ ≥ w₂ ≥ …, and let d = dim_E(F, ε). Those ≤ ε sum to at most Tε. For w_k > ε and
every ε″ in [ε, w_k), dim_E falls with ε, so k ≤ (4ρ/ε″² + 1)d, and in the limit w_k ≤ 2√(ρd/(k − d)) for k > d; for k
≤ d, w_k ≤ 2b. With Σ_{i≤n} 1/√i ≤ 2√n,

    W(T) = Tε + 2b·min(d, T) + 4√(dρ·max(T − d, 0)),        R(T) ≤ W_r(T) + (b/τ)·W_c(T).

Any ε is allowed. The paper's lemma takes 1/T², Russo & Van Roy 1/T, the default here: the first term is then 1, and d
is the dimension at a coarser scale, so never larger (for linear classes about half).

The paper's O(√(dTρ)) leaves out Tε and 2b·min(d, T), and its statement holds with probability 1 − δ′ for radii at
δ′/3; two events suffice, so δ′/2 does.
The classes of `safedial eluder` each have bounds at any ε, a radius at any T, and a bound on their values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from safedial.bounds.confidence import RADII, mixture
from safedial.bounds.estimate import Prediction
from safedial.errors import require
from safedial.model.spec import SafetySpec
from safedial.paper.eluder_dimension import (
    Array,
    Eluder,
    check_positive,
    check_values,
    eluder_dimension,
    finite_upper,
    kernel_lower,
    kernel_upper,
    linear_lower,
    linear_upper,
    searchable,
)


def potential_bound(dim: int, rounds: Any, spec: SafetySpec) -> Any:
    """Σ_t min(1, width_t²) ≤ 2 ln det(Σ_T/λ) ≤ 2 d ln(1 + T L²/(dλ)), over informative rounds.

    The paper's lemma lacks λ and the minimum; without them it fails for small λ.
    """
    return 2.0 * dim * np.log1p(np.asarray(rounds, dtype=float) * spec.context_bound**2 / (dim * spec.ridge))


def regret_bound(dim: int, rounds: Any, spec: SafetySpec, *, radius: str = "paper") -> Any:
    """Theorem 2 with its constants, for HP-UCB on the event that both confidence sets hold (probability ≥ 1 − 2δ′).

        R(T) ≤ 2(1 + SL/τ)·max(β_r, β_c)·√(T · max(1, L²/λ) · potential_bound(T))

    From the proof: an uninformative round has reward_upper < 0, so the clairvoyant plays 0 as well and it costs
    nothing; an informative one costs at most 2β_r·width + (SL/τ)·2β_c·width; Cauchy–Schwarz sums the widths, and
    width² ≤ max(1, L²/λ)·min(1, width²), because width² ≤ L²/λ.
    """
    require(radius in RADII, "radius", radius, "must be one of " + ", ".join(RADII))
    sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, "is not part of Theorem 2", "give a spec without it")
    horizon = np.asarray(rounds, dtype=float)
    potential = potential_bound(dim, horizon, spec)
    last = Prediction(0.0, 0.0, 0.0, spec.context_bound, potential / 2.0, horizon, dim)
    largest = np.maximum(RADII[radius](spec.reward_noise, last, spec), RADII[radius](spec.cost_noise, last, spec))
    stretch = max(1.0, spec.context_bound**2 / spec.ridge)
    price = 1.0 + spec.coefficient_bound * spec.context_bound / spec.threshold
    return 2.0 * price * largest * np.sqrt(horizon * stretch * potential)


# --- Theorem 3 with its constants


def width_sum(rounds: Any, *, dimension: Any, radius: Any, epsilon: Any = None, value_bound: float = 1.0) -> Any:
    """W(T), at most 2bT: a bound on the sum of the widths of confidence sets of radius ρ (on the squared norm).

    `dimension` is dim_E(F, ε), or an upper bound on it, at ε = `epsilon` (default 1/T); all arguments broadcast.

    >>> float(width_sum(10_000, dimension=4, radius=25.0))
    4008.199919983996
    """
    horizon = np.asarray(rounds, dtype=float)
    require(np.all(horizon >= 1.0) and np.isfinite(horizon).all(), "rounds", rounds, "must be numbers >= 1")
    size, rho = np.asarray(dimension, dtype=float), np.asarray(radius, dtype=float)
    require(np.all(size >= 0.0) and np.isfinite(size).all(), "dimension", dimension, "must be numbers >= 0")
    require(np.all(rho >= 0.0) and np.isfinite(rho).all(), "radius", radius, "must be numbers >= 0")
    small = 1.0 / horizon if epsilon is None else np.asarray(epsilon, dtype=float)
    require(np.all(small > 0.0) and np.isfinite(small).all(), "epsilon", epsilon, "must be numbers > 0")
    cap = 2.0 * check_positive("value_bound", value_bound)
    rest = np.maximum(horizon - size, 0.0)
    return np.minimum(
        cap * horizon, horizon * small + cap * np.minimum(size, horizon) + 4.0 * np.sqrt(size * rho * rest)
    )


def theorem3_bound(
    rounds: Any,
    *,
    threshold: float,
    reward_dimension: Any,
    cost_dimension: Any,
    reward_radius: Any,
    cost_radius: Any,
    epsilon: Any = None,
    value_bound: float = 1.0,
) -> Any:
    """R(T) ≤ W_r(T) + (b/τ)·W_c(T), on the event that both confidence sets hold in all rounds.

    Regret is also never above bT, so the bound is useful only if it is below that. Dimensions must be exact or upper
    bounds: with a lower bound in their place the result is not a bound.

    >>> dimensions, radii = {"reward_dimension": 4, "cost_dimension": 4}, {"reward_radius": 25, "cost_radius": 25}
    >>> curve = theorem3_bound([1e4, 1e6], threshold=0.5, **dimensions, **radii)
    >>> [round(float(value)) for value in curve]
    [12025, 120027]
    """
    tau = check_positive("threshold", threshold)
    shared = {"epsilon": epsilon, "value_bound": value_bound}
    reward = width_sum(rounds, dimension=reward_dimension, radius=reward_radius, **shared)
    cost = width_sum(rounds, dimension=cost_dimension, radius=cost_radius, **shared)
    return reward + value_bound / tau * cost


def finite_radius(functions: int, *, noise: float, estimation_risk: float) -> float:
    """The paper's ρ = 8κ² ln(|F|/δ′) for a finite class.

    >>> round(finite_radius(100, noise=1.0, estimation_risk=0.01), 2)
    73.68
    """
    require(functions >= 1, "functions", functions, "must be >= 1")
    require(0.0 < estimation_risk < 1.0, "estimation_risk", estimation_risk, "must lie between 0 and 1")
    return float(8.0 * check_positive("noise", noise) ** 2 * np.log(functions / estimation_risk))


def ridge_radius(dim: int, rounds: Any, spec: SafetySpec, *, noise: float) -> Any:
    """The largest squared `mixture` radius after T rounds: κ²(d ln(1 + TL²/(dλ)) + 2 ln(1/δ′)) + λS².

    ‖f − f̂‖_D ≤ ‖w − ŵ‖_Σ, so it serves as ρ. For a kernel class on n contexts take d = n, S = B and L² = max k(x,
    x).
    """
    horizon = np.asarray(rounds, dtype=float)
    log_det = dim * np.log1p(horizon * spec.context_bound**2 / (dim * spec.ridge))
    return mixture(noise, Prediction(0.0, 0.0, 0.0, spec.context_bound, log_det, horizon, dim), spec) ** 2


# --- The classes of `safedial eluder`


@dataclass(frozen=True)
class Case:
    """`lower(epsilon)` and `upper(epsilon)`, which are equal if exact; `radius(rounds, noise)` is ρ.

    `headline` says which of the two to report if they differ.
    """

    lower: Callable[[float], Eluder]
    upper: Callable[[float], Eluder]
    radius: Callable[[float, float], float]
    value_bound: float
    headline: Literal["lower", "upper"] = "upper"


def finite_case(values: Any, spec: SafetySpec, *, method: Any = "auto", progress: Any = None) -> Case:
    """Functions × contexts; the paper's radius."""
    functions = check_values(values)
    exact = method != "greedy" and searchable(functions)

    @cache
    def lower(epsilon: float) -> Eluder:
        return eluder_dimension(functions, epsilon, method=method, progress=progress)

    def upper(epsilon: float) -> Eluder:
        return lower(epsilon) if exact else finite_upper(functions, epsilon)

    def radius(rounds: float, noise: float) -> float:
        return finite_radius(len(functions), noise=noise, estimation_risk=float(spec.estimation_risk))

    return Case(lower, upper, radius, float(np.abs(functions).max()) or 1.0, headline="lower")


def linear_case(dim: int, spec: SafetySpec) -> Case:
    """‖w‖ ≤ S on ‖x‖ ≤ L; the squared `mixture` radius."""
    sizes = {"coefficient_bound": spec.coefficient_bound, "context_bound": spec.context_bound}

    def upper(epsilon: float) -> Eluder:
        return linear_upper(dim, epsilon=epsilon, **sizes)

    def lower(epsilon: float) -> Eluder:
        above = upper(epsilon)
        return above if above.kind == "exact" else linear_lower(dim, epsilon=epsilon, **sizes)

    def radius(rounds: float, noise: float) -> float:
        return float(ridge_radius(dim, rounds, spec, noise=noise))

    return Case(lower, upper, radius, spec.coefficient_bound * spec.context_bound)


def kernel_case(gram: Array, spec: SafetySpec) -> Case:
    """Norm ≤ S in the kernel's space on the contexts of `gram`, L² = max k(x, x); the squared `mixture` radius."""

    def lower(epsilon: float) -> Eluder:
        return kernel_lower(gram, epsilon=epsilon, norm=spec.coefficient_bound)

    def upper(epsilon: float) -> Eluder:
        return kernel_upper(gram, epsilon=epsilon, norm=spec.coefficient_bound)

    def radius(rounds: float, noise: float) -> float:
        return float(ridge_radius(len(gram), rounds, spec, noise=noise))

    return Case(lower, upper, radius, spec.coefficient_bound * spec.context_bound)


def report(case: Case, epsilon: float) -> dict[str, Any]:
    """The dimension as plain values. If the lower and the upper bound are equal, the number is exact."""
    lower, upper = case.lower(epsilon), case.upper(epsilon)
    told = lower if case.headline == "lower" else upper
    meet = lower.dimension == upper.dimension
    return {
        "epsilon": epsilon,
        "dimension": told.dimension,
        "kind": "exact" if meet else told.kind,
        "method": f"{lower.method}; {upper.method}" if meet and lower != upper else told.method,
        "lower_bound": lower.dimension,
        "lower_method": lower.method,
        "upper_bound": upper.dimension,
        "upper_method": upper.method,
        "scale": lower.scale,
        "sequence": list(lower.sequence),
        "pairs": [list(pair) for pair in lower.pairs],
    }


def theorem3_curve(case: Case, spec: SafetySpec, rounds: int) -> list[dict[str, Any]]:
    """Theorem 3 at 10, 100, … up to `rounds`, one class for reward and cost, dimensions (never lower bounds) at 1/T."""
    curve = []
    for horizon in (10**power for power in range(1, len(str(rounds)))):
        upper = case.upper(1.0 / horizon)
        radii = [case.radius(horizon, noise) for noise in (spec.reward_noise, spec.cost_noise)]
        known = {"reward_dimension": upper.dimension, "cost_dimension": upper.dimension}
        sizes = {"reward_radius": radii[0], "cost_radius": radii[1]}
        bound = theorem3_bound(horizon, threshold=spec.threshold, **known, **sizes, value_bound=case.value_bound)
        row = {"rounds": horizon, "epsilon": 1.0 / horizon, "dimension": upper.dimension, "kind": upper.kind}
        curve.append(row | sizes | {"bound": float(bound), "trivial_bound": case.value_bound * horizon})
    return curve
