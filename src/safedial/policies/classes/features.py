"""Feature maps for the class `features`: each is a function from contexts (..., d) to features (..., p).

Functions linear in known features: f(x) = ⟨φ(x), θ⟩ up to a stated misspecification.

    y = ⟨φ(x), θ*⟩ + e(x) + ξ,      ‖θ*‖ ≤ S,      |e(x)| ≤ ε for every x

With e = 0 this is the linear machinery on φ(x) in place of x. With ε > 0 the errors of the rounds so far move the
estimate at x by Σ_s ω_s a_s e(x_s), a_s = φ(x)ᵀΣ⁻¹φ(x_s), and by Cauchy–Schwarz

    |Σ_s ω_s a_s e(x_s)| ≤ ε √(Σ ω_s) √(Σ ω_s a_s²) ≤ ε √N · width,      since Σ ω_s φ_s φ_sᵀ ⪯ Σ,

whatever the errors are, even adversarial ones. So the range at x is

    ⟨φ(x), θ̂⟩ ± [(β + ε√N)·width + ε],

cut at S‖φ(x)‖ + ε and at `bound`. It is valid for all t on the same event as β, because the noise part of θ̂ does not
change. The term ε√N·width does not vanish: a misspecified class has linear regret, here as anywhere.

Rounding: Σ⁻¹ is kept by rank-one updates, whose errors grow like u·N·‖φ‖²/λ. Four times that, in units of 1 + |value|,
is added to the range; that this suffices is measured, not proved. Beyond ‖φ‖² = 1e8·λ the class refuses, because the
updates are not stable there. (For an `Agent` with a linear policy, `bounds.rounding` proves a bound.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from safedial.bounds import estimate
from safedial.bounds.confidence import RADII, check_dim
from safedial.bounds.rounding import NORM_SLACK
from safedial.errors import is_number, require
from safedial.model.namespace import UNIT
from safedial.model.spec import SafetySpec
from safedial.policies.classes.function_class import FunctionClass, Interval, Outcomes, check_bound, check_whole


def fourier(dim: int, *, count: int = 100, length: float = 0.5, seed: int = 0) -> Callable[[Any], Any]:
    """Random Fourier features of the RBF kernel of that length: φ(x)ᵀφ(y) ≈ exp(−‖x−y‖²/(2·length²)).

        φ(x) = √(2/count)·cos(Wx + b),      W ~ N(0, 1/length²), b uniform on [0, 2π)

    Functions of the kernel's space are linear in these features only up to an error: state it as the class's
    `misspecification`. It falls like 1/√count (Rahimi and Recht, 2007).

    >>> x = np.array([[0.1, 0.2], [0.3, -0.2]])
    >>> near = fourier(2, count=20_000)(x)
    >>> bool(abs(near[0] @ near[1] - np.exp(-0.2 / 0.5)) < 0.02)
    True
    """
    check_whole("dim", dim)
    check_whole("count", count)
    check_bound("length", length)
    rng = np.random.default_rng(seed)
    frequencies = rng.standard_normal((dim, count)) / length
    phases = rng.random(count) * (2.0 * np.pi)
    scale = np.sqrt(2.0 / count)

    def transform(context: Any) -> Any:
        check_coordinates(context, dim)
        return scale * np.cos(np.matmul(context, frequencies) + phases)

    transform.__name__ = f"fourier:{count},{length:g},seed={seed}"
    return transform


def check_coordinates(context: Any, dim: int) -> None:
    """Check that contexts have the dimension the map was made for, (..., dim)."""
    shape = np.shape(context)
    require(bool(shape) and shape[-1] == dim, "context", shape, f"must have {dim} coordinates in its last axis")


def splines(dim: int, *, knots: int = 5, degree: int = 3, bound: float = 1.0) -> Callable[[Any], Any]:
    """Additive B-splines: for each coordinate, a basis of `knots + degree − 1` functions on [−bound, bound].

    Coordinates outside are clipped to the range, so that every feature is defined. Features are divided by √dim, so
    that ‖φ(x)‖ ≤ 1.

    >>> basis = splines(1, knots=4)(np.linspace(-1, 1, 7)[:, None])
    >>> basis.shape, bool(np.allclose(basis.sum(axis=-1), 1.0))
    ((7, 6), True)
    """
    from scipy.interpolate import BSpline

    check_whole("dim", dim)
    check_whole("knots", knots, least=2)
    check_whole("degree", degree, least=0)
    end = check_bound("bound", bound)
    inner = np.linspace(-end, end, knots)
    grid = np.concatenate([[-end] * degree, inner, [end] * degree])
    count = knots + degree - 1

    def transform(context: Any) -> Any:
        context = np.asarray(context, dtype=float)
        check_coordinates(context, dim)
        inside = np.clip(context, -end, end)
        basis = BSpline.design_matrix(inside.ravel(), grid, degree).toarray()
        return basis.reshape(*context.shape[:-1], dim * count) / np.sqrt(dim)

    transform.__name__ = f"splines:{knots},degree={degree},bound={bound:g}"
    return transform


# --- Functions linear in known features: f(x) = ⟨φ(x), θ⟩ up to a stated misspecification

NAMES = ("mixture", "paper")
ROUNDING = 4.0 * UNIT
STIFFEST = 1e8


@dataclass(frozen=True)
class Features(FunctionClass):
    """Linear functions of the features φ(x) that `transform` computes: splines, random Fourier features, a frozen
    network's last layer.

    Args:
        transform: from contexts (..., d) to features (..., p); it must not change. None: the context itself.
        misspecification: ε ≥ 0, with |f(x) − ⟨φ(x), θ*⟩| ≤ ε for every context, stated by you.
        radius: "mixture" (default), or "paper" (with the spec's L bounding ‖φ(x)‖, which is checked, and p ≥ 2).
        bound: |f| ≤ bound; Algorithm 2's classes are bounded by 1. None: only by S‖φ(x)‖ + ε.

    The spec's `coefficient_bound` is S, a bound on ‖θ*‖ in feature space.

    >>> class_ = features(lambda x: np.concatenate([x, x**2], axis=-1), misspecification=0.01)
    >>> class_.name, class_.options["misspecification"]
    ('features', 0.01)
    """

    name = "features"
    label = "certified"
    states_norm = True
    transform: Callable[[Any], Any] | None
    _: KW_ONLY
    misspecification: float = 0.0
    radius: str = "mixture"
    bound: float | None = 1.0

    def __post_init__(self) -> None:
        """Check the options."""
        transform, error = self.transform, self.misspecification
        require(transform is None or callable(transform), "transform", transform, "must be a function of contexts")
        require(self.radius in NAMES, "radius", self.radius, "must be one of " + ", ".join(NAMES))
        small = is_number(error) and 0.0 <= error < 1e60
        require(small, "misspecification", error, "must be a number >= 0")
        if self.bound is not None:
            check_bound("bound", self.bound, "must be a number > 0, or None")
        object.__setattr__(self, "misspecification", float(error))

    @property
    def assumptions(self) -> tuple[str, ...]:
        error = self.misspecification
        return (
            "the mean is linear in the features, ‖θ‖ ≤ S" + (f", up to an error of {error:g}" if error else ""),
            *(() if self.bound is None else (f"and is bounded by {self.bound:g}",)),
            "features and ridge fixed in advance",
        )

    def init(self, dim: int, *, ridge: Any = None, batch: tuple[int, ...] = (), targets: int = 2) -> estimate.Estimate:
        size = _map(self.transform, np.zeros((1, dim))).shape[-1]
        check_dim(self.radius, size)
        return estimate.init(size, ridge=ridge, batch=batch)

    def look(self, state: estimate.Estimate, context: Any) -> estimate.Prediction:
        mapped = _map(self.transform, context)
        size = state.reward_coef.shape[-1]
        same = mapped.shape[-1] == size
        require(same, "transform", mapped.shape[-1], f"gave a different number of features than before, {size}")
        return estimate.predict(state, mapped)

    def bounds(self, view: estimate.Prediction, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        seen, error = view, self.misspecification
        value = seen.cost if target else seen.reward
        if self.radius == "paper":
            _check_norm(seen.norm, spec)
        reach = RADII[self.radius](noise, seen, spec) * seen.width
        reach = reach + ROUNDING * (seen.informative_rounds + 1.0) * _stiffness(seen.norm, spec) * (1.0 + np.abs(value))
        if error:
            reach = reach + error * (np.sqrt(seen.informative_rounds) * seen.width + 1.0)
        top = self.ceiling(view, spec)
        lower, upper = value - reach, value + reach
        return Interval(value, lower, upper, (upper < -top) | (lower > top))

    def ceiling(self, view: estimate.Prediction, spec: SafetySpec) -> Any:
        largest = spec.coefficient_bound * view.norm + self.misspecification
        return largest if self.bound is None else np.minimum(largest, self.bound)

    def first(self, spec: SafetySpec) -> Any:
        if self.bound is not None:
            return self.bound
        largest = spec.coefficient_bound * spec.context_bound + self.misspecification
        return largest if self.transform is None else np.inf

    def update(self, state: estimate.Estimate, view: estimate.Prediction, outcomes: Outcomes) -> estimate.Estimate:
        return estimate.update(state, view, outcomes.targets[0], outcomes.targets[-1], outcomes.weight)

    def holds_linear(self, spec: SafetySpec) -> bool:
        size = spec.coefficient_bound * spec.context_bound
        return self.transform is None and (self.bound is None or self.bound >= size)


features = Features


@dataclass(frozen=True)
class Linear(Features):
    """⟨x, θ⟩ with ‖θ‖ ≤ S: the paper's linear model, as a function class.

    With this class, the non-linear policies equal the linear ones up to rounding (tests check to 1e-9).

    >>> linear().label
    'certified'
    """

    name = "linear"
    transform: Callable[[Any], Any] | None = field(init=False, default=None)
    misspecification: float = field(init=False, default=0.0)
    bound: float | None = field(init=False, default=None)


linear = Linear


def _map(transform: Callable[[Any], Any] | None, context: Any) -> Any:
    if transform is None:
        return context
    mapped = np.asarray(transform(context), dtype=float)
    rule = f"must map contexts {np.shape(context)} to features of the same leading shape"
    require(mapped.shape[:-1] == np.shape(context)[:-1] and mapped.ndim, "transform", mapped.shape, rule)
    require(np.all(np.isfinite(mapped)), "transform", "features", "must be finite numbers")
    return mapped


def _check_norm(norm: Any, spec: SafetySpec) -> None:
    largest = float(np.max(norm))
    rule = f"must be at most context_bound = {spec.context_bound:g} for radius 'paper', which depends on it"
    fits = largest <= spec.context_bound * (1.0 + NORM_SLACK)
    require(fits, "norm of the features", largest, rule, "use 'mixture', or scale the features")


def _stiffness(norm: Any, spec: SafetySpec) -> Any:
    """‖φ(x)‖²/λ; refused if rank-one updates would be unstable."""
    ratio = norm * norm / spec.ridge
    rule = f"must be at least the features' squared norm, {float(np.max(norm)) ** 2:.3g}, over {STIFFEST:g}"
    require(
        np.all(ratio <= STIFFEST), "ridge", spec.ridge, rule, "raise it: otherwise rounding would determine the range"
    )
    return ratio
