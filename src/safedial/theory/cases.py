"""The classes of `safedial eluder`: for each, its bounds at any ε, a radius at any T, and a bound on its values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from safedial.core.spec import SafetySpec
from safedial.theory.eluder_bound import Array, Eluder, check_values
from safedial.theory.finite_eluder import eluder_dimension, finite_upper, searchable
from safedial.theory.kernel_eluder import kernel_lower, kernel_upper
from safedial.theory.linear_eluder import linear_lower, linear_upper
from safedial.theory.theorem3 import finite_radius, ridge_radius, theorem3_bound


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
