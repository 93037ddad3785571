"""Positive semi-definite kernels, their sums and products.

A `Kernel` maps points (n, d) and (m, d) to the (n, m) matrix of its values; `largest` maps points (n, d) to k(x, x).
Sums, products (Schur) and positive multiples of kernels are kernels.

>>> smooth = rbf(0.5) + 0.3 * polynomial(2)
>>> str(smooth)
'rbf:0.5+0.3*polynomial:2,1'
>>> float(smooth(np.zeros((1, 2)), np.zeros((1, 2)))[0, 0])
1.3

Functions of a reproducing kernel Hilbert space with norm at most B, learned by kernel ridge regression.

With K the kernel matrix of the n informative rounds, y their normalised outcomes, k = k(X, x) and ρ the ridge:

    m(x) = kᵀ(K + ρI)⁻¹y          σ²(x) = k(x, x) − kᵀ(K + ρI)⁻¹k
    |f(x) − m(x)| ≤ √(κ²(ln det(I + K/ρ) + 2 ln(1/δ′)) + ρB²) · σ(x)/√ρ      for all x and t, with probability ≥ 1 − δ′

This is the `mixture` radius of the linear case in feature space: Σ = ρI + Σ φφᵀ has det(Σ/ρ) = det(I + K/ρ), the width
is ‖φ(x)‖_{Σ⁻¹} = σ(x)/√ρ, and S is B (docs/design.md derives it; nothing in the argument counts dimensions). Compare
Abbasi-Yadkori (2012) and Chowdhury and Gopalan (2017), whose radius is the larger κ√(…) + √ρ B.

K + ρI = LLᵀ is kept as a packed triangle. A round costs one triangular solve, l = L⁻¹k, of n² flops:

    σ² = k(x, x) − l·l        m = l·h,  h = L⁻¹y        new row of L: (√ω l, √(ρ + ω σ²)),  h: (√ω y − √ω l·h)/pivot

with a weight ω as √ω on the round's row. A pivot below √ρ shows that the kernel is not positive semi-definite.

Rounding: K + ρI has condition number at most 1 + nk̄/ρ, k̄ the largest k(x, x); the error of l·l and of l·h by a
triangular solve is a small multiple of n·u·(1 + nk̄/ρ) relative to k̄ and to √k̄‖h‖. `SLACK` times that is added to the
range, some 1e-7 at n = 5,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import reduce
from operator import add, mul
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import InvalidInput, require
from safedial.model.namespace import UNIT, Array
from safedial.model.spec import SafetySpec
from safedial.policies.classes.function_class import FunctionClass, Interval, Outcomes, check_bound, check_whole
from safedial.policies.table import Table


@dataclass(frozen=True)
class Kernel:
    """k(x, y) as a matrix function, k(x, x) as a vector function, and a name, which `parse_kernel` can read unless it
    contains brackets. Kernels of the same name are equal. `made`: the function that made it and its arguments, by which
    it is pickled.
    """

    name: str
    matrix: Callable[[Array, Array], Array] = field(compare=False)
    diagonal: Callable[[Array], Array] = field(compare=False)
    made: tuple[Callable[..., Kernel], tuple[Any, ...]] | None = field(default=None, compare=False)

    def __call__(self, left: Array, right: Array) -> Array:
        return self.matrix(left, right)

    def __str__(self) -> str:
        return self.name

    @property
    def __name__(self) -> str:
        """As a report shows it."""
        return self.name

    def __reduce__(self) -> Any:
        return self.made or (Kernel, (self.name, self.matrix, self.diagonal))

    def __add__(self, other: Kernel) -> Kernel:
        return Kernel(
            f"{self}+{other}",
            lambda x, y: self(x, y) + other(x, y),
            lambda x: self.diagonal(x) + other.diagonal(x),
            (add, (self, other)),
        )

    def __mul__(self, other: Kernel | float) -> Kernel:
        if not isinstance(other, Kernel):
            return constant(other) * self
        return Kernel(
            "*".join(f"({part})" if "+" in str(part) else str(part) for part in (self, other)),
            lambda x, y: self(x, y) * other(x, y),
            lambda x: self.diagonal(x) * other.diagonal(x),
            (mul, (self, other)),
        )

    __rmul__ = __mul__


def rbf(length: float = 0.5) -> Kernel:
    """exp(−‖x − y‖²/(2·length²))."""
    scale = 1.0 / check_bound("length", length)
    made = rbf, (length,)
    return Kernel(f"rbf:{_digits(length)}", lambda x, y: np.exp(-0.5 * _squares(x, y, scale)), _ones, made)


def matern32(length: float = 0.5) -> Kernel:
    """(1 + √3 r)·exp(−√3 r), r = ‖x − y‖/length."""
    scale = float(np.sqrt(3.0) / check_bound("length", length))

    def matrix(x: Array, y: Array) -> Array:
        r = np.sqrt(_squares(x, y, scale))
        return (1.0 + r) * np.exp(-r)

    return Kernel(f"matern32:{_digits(length)}", matrix, _ones, (matern32, (length,)))


def matern52(length: float = 0.5) -> Kernel:
    """(1 + √5 r + 5r²/3)·exp(−√5 r), r = ‖x − y‖/length."""
    scale = float(np.sqrt(5.0) / check_bound("length", length))

    def matrix(x: Array, y: Array) -> Array:
        squared = _squares(x, y, scale)
        r = np.sqrt(squared)
        return (1.0 + r + squared / 3.0) * np.exp(-r)

    return Kernel(f"matern52:{_digits(length)}", matrix, _ones, (matern52, (length,)))


def polynomial(degree: int = 2, offset: float = 1.0) -> Kernel:
    """(⟨x, y⟩ + offset)^degree, offset ≥ 0."""
    power = check_whole("degree", degree)
    require(0.0 <= offset < np.inf, "offset", offset, "must be a number >= 0")
    name, made = f"polynomial:{degree},{_digits(offset)}", (polynomial, (degree, offset))
    return Kernel(name, lambda x, y: (x @ y.T + offset) ** power, lambda x: (np.vecdot(x, x) + offset) ** power, made)


def constant(value: float) -> Kernel:
    """The kernel that is `value` everywhere: a factor in a product, an intercept in a sum."""
    size = check_bound("constant", value)
    made = constant, (value,)
    return Kernel(_digits(value), lambda x, y: np.full((len(x), len(y)), size), lambda x: size * _ones(x), made)


KERNELS: dict[str, Callable[..., Kernel]] = {
    "rbf": rbf,
    "matern32": matern32,
    "matern52": matern52,
    "polynomial": polynomial,
}


def parse_kernel(text: Any) -> Kernel:
    """A kernel from its name: NAME:NUMBER[,NUMBER] joined by * and +, the products first; numbers alone are factors.

    >>> str(parse_kernel("0.5*rbf:0.3+matern52:1*polynomial:1"))
    '0.5*rbf:0.3+matern52:1*polynomial:1,1'
    """
    if isinstance(text, Kernel):
        return text
    require(isinstance(text, str) and text.strip(), "kernel", text, "must be a Kernel or its name", "such as rbf:0.5")
    terms = ([_one(factor.strip(), text) for factor in term.split("*")] for term in text.split("+"))
    return reduce(add, (reduce(mul, factors) for factors in terms))


def _one(text: str, whole: str) -> Kernel:
    name, _, rest = text.partition(":")
    try:
        if name not in KERNELS:
            return constant(float(text))
        numbers = [float(part) for part in rest.split(",") if part]
        if name == "polynomial" and numbers:
            numbers[0] = int(numbers[0]) if numbers[0] == int(numbers[0]) else numbers[0]
        return KERNELS[name](*numbers)
    except (TypeError, ValueError) as error:
        known = ", ".join(KERNELS)
        raise InvalidInput(
            f"kernel = {whole!r}: {text!r} is not one of {known} with its numbers; write for example rbf:0.5, "
            f"polynomial:2,1 or 0.3*matern52:1+rbf:0.2 ({error})"
        ) from error


def _digits(value: float) -> str:
    """The shortest exact form of a number, without a plus sign."""
    short = f"{value:g}"
    return (short if float(short) == value else repr(float(value))).replace("e+", "e")


def _squares(x: Array, y: Array, scale: float) -> Array:
    """scale²·Σ_j (x_j − y_j)² from the differences, as ‖x‖² + ‖y‖² − 2⟨x, y⟩ cannot separate points far from 0."""
    total = np.zeros((len(x), len(y)))
    for left, right in zip(x.T, y.T, strict=True):
        gap = left[:, None] - right[None, :]
        total += gap * gap
    return total * scale**2


def _ones(x: Array) -> Array:
    return np.ones(len(x))


# --- Functions of a reproducing kernel Hilbert space with norm at most B

SLACK = 32.0
TOLERANCE = 1e-6
"""How far below ρ a squared pivot may lie, relative to 1 + k(x, x)/ρ, before the kernel is called indefinite."""


class View(NamedTuple):
    """One context compared with the points so far; arrays of the batch's shape."""

    mean: tuple[Array, ...]
    deviation: Array
    largest: Array
    log_det: Array
    informative_rounds: Array
    slack: tuple[Array, ...]
    context: Array
    projection: list[Array]


class Points:
    """The rounds of one learner: contexts and √ω, L⁻¹y for each target (`half`), the rows of L in one (`factor`, of
    K + ρI), ln det(I + K/ρ), and the largest k(x, x).
    """

    def __init__(self, dim: int, targets: int) -> None:
        self.rounds = Table((), context=(0.0, (dim,)), root=0.0)
        self.half, self.factor = Table((targets,), value=0.0), Table((), number=0.0)
        self.log_det, self.largest = 0.0, 0.0


class State(NamedTuple):
    points: list[Points]
    lanes: Any
    """The batch's shape."""
    ridge: float


@dataclass(frozen=True)
class RKHS(FunctionClass):
    """Functions with RKHS norm at most `norm`.

    Args:
        kernel: a `Kernel`, or its name: "rbf:0.5", "matern52:1+polynomial:2", …; fixed in advance.
        norm: B, with ‖f‖ ≤ B in the kernel's own space. Then |f(x)| ≤ B√k(x, x).
        bound: |f| ≤ bound; Algorithm 2's classes are bounded by 1. None: only by B√k(x, x).
        max_points: the most informative rounds it can hold; `update` refuses more. n points take 4n² to 8n² bytes, and
            n² flops per decision: 5,000 points take up to 140 MB and about 3 ms.

    The ridge ρ is the spec's; κ²/B² is a good choice if κ is known.

    >>> kernel("matern52:0.3", norm=1.5).describe()["kernel"]
    'matern52:0.3'
    """

    name = "kernel"
    label = "certified"
    kernel: Any = "rbf:0.5"
    _: KW_ONLY
    norm: float = 2.0
    bound: float | None = 1.0
    max_points: int = 5000  # pyright: ignore[reportIncompatibleVariableOverride] -- an option here

    def __post_init__(self) -> None:
        """Check the options."""
        object.__setattr__(self, "kernel", parse_kernel(self.kernel))
        object.__setattr__(self, "norm", check_bound("norm", self.norm))
        if self.bound is not None:
            check_bound("bound", self.bound, "must be a number > 0, or None")
        object.__setattr__(self, "max_points", check_whole("max_points", self.max_points))

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"the mean lies in the space of the kernel {self.kernel}, with norm at most {self.norm:g}",
            *(() if self.bound is None else (f"and is bounded by {self.bound:g}",)),
            "kernel and ridge fixed in advance",
        )

    def init(self, dim: int, *, ridge: Any = 1.0, batch: tuple[int, ...] = (), targets: int = 2) -> State:
        points = [Points(dim, targets) for _ in range(int(np.prod(batch)))]
        return State(points, np.array(batch, dtype=np.int64), float(ridge))

    def look(self, state: State, context: Any) -> View:
        context = np.asarray(context, dtype=float)
        spread = np.broadcast_to(context, (*state.lanes, context.shape[-1])).reshape(-1, context.shape[-1])
        rows = [_against(self.kernel, points, spread[index]) for index, points in enumerate(state.points)]
        targets = range(len(state.points[0].half.rows("value")))
        pairs = list(zip(rows, state.points, strict=True))

        def gather(values: Any) -> Array:
            return np.array(list(values)).reshape(state.lanes)

        return View(
            tuple(gather(row[0][target] for row in rows) for target in targets),
            np.sqrt(gather(_variance(row, points, state.ridge) for row, points in pairs)),
            gather(row[2] for row in rows),
            gather(points.log_det for points in state.points),
            gather(float(points.rounds.count) for points in state.points),
            tuple(gather(_slack(points, row[2], state.ridge, target) for row, points in pairs) for target in targets),
            spread,
            [row[3] for row in rows],
        )

    def bounds(self, view: View, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        squared = noise * noise * (view.log_det + 2.0 * spec.log_inverse_risk) + spec.ridge * self.norm**2
        value = view.mean[target]
        reach = np.sqrt(squared / spec.ridge) * view.deviation + view.slack[target]
        top = self.ceiling(view, spec)
        return Interval(value, value - reach, value + reach, (value + reach < -top) | (value - reach > top))

    def ceiling(self, view: View, spec: SafetySpec) -> Any:
        largest = self.norm * np.sqrt(view.largest)
        return largest if self.bound is None else np.minimum(largest, self.bound)

    def update(self, state: State, view: View, outcomes: Outcomes) -> State:
        weight = np.broadcast_to(outcomes.weight, state.lanes).ravel()
        targets = [np.broadcast_to(target, state.lanes).ravel() for target in outcomes.targets]
        for index, points in enumerate(state.points):
            if weight[index] > 0.0:
                check_room(points.rounds.count, self.max_points)
                place = view.context[index], view.projection[index]
                told = {"values": [target[index] for target in targets], "weight": weight[index]}
                _append(points, *place, **told, shape=self.kernel, ridge=state.ridge)
        return state

    def first(self, spec: SafetySpec) -> Any:
        return np.inf if self.bound is None else self.bound

    def holds_linear(self, spec: SafetySpec) -> bool:
        size = spec.coefficient_bound
        bounded = self.bound is None or self.bound >= size * spec.context_bound
        return str(self.kernel) == "polynomial:1,0" and self.norm >= size and bounded


kernel = RKHS


def check_room(count: int, most: int) -> None:
    """Refuse a point beyond the limit of the class."""
    way_out = "raise max_points, or use class features with Fourier features, which has no limit"
    require(count < most, "max_points", most, "informative rounds are held already", way_out)


def _against(shape: Kernel, points: Points, context: Array) -> tuple[list[float], float, float, Array]:
    """(means, l·l, k(x, x), l) of one context."""
    from scipy.linalg.blas import dtpsv  # pyright: ignore[reportAttributeAccessIssue] -- made at import

    one = context[None]
    largest = float(shape.diagonal(one)[0])
    rounds, halves = points.rounds, points.half.rows("value")
    if rounds.count == 0:
        return [0.0] * len(halves), 0.0, largest, np.empty(0)
    values = shape(rounds.rows("context"), one)[:, 0] * rounds.rows("root")
    projection = dtpsv(rounds.count, points.factor.rows("number"), values, lower=0, trans=1)
    means = [float(half @ projection) for half in halves]
    return means, float(projection @ projection), largest, projection


def _variance(row: tuple[list[float], float, float, Array], points: Points, ridge: float) -> float:
    """σ² and its slack; never below 0."""
    largest = max(row[2], points.largest)
    count = points.rounds.count
    return max(row[2] - row[1], 0.0) + SLACK * UNIT * count * largest * (1.0 + count * largest / ridge)


def _slack(points: Points, own: float, ridge: float, target: int) -> float:
    size, count, half = max(own, points.largest), points.rounds.count, points.half.rows("value")[target]
    return SLACK * UNIT * count * (1.0 + count * size / ridge) * np.sqrt(size * float(half @ half))


def _append(
    points: Points,
    context: Array,
    projection: Array,
    *,
    values: list[float],
    weight: float,
    shape: Kernel,
    ridge: float,
) -> None:
    """One more row of the factor."""
    count, root = points.rounds.count, float(np.sqrt(weight))
    largest = float(shape.diagonal(context[None])[0])
    squared = ridge + weight * (largest - float(projection @ projection))
    sound = np.isfinite(squared) and squared >= ridge - TOLERANCE * (ridge + weight * largest)
    way_out = "use a kernel of safedial.policies.classes.kernel"
    require(sound, "kernel", str(shape), "is not positive semi-definite at these contexts", way_out)
    pivot = float(np.sqrt(max(squared, ridge)))
    points.factor.extend(count + 1)
    points.factor.rows("number")[-count - 1 :] = np.append(root * projection, pivot)
    points.half.append()
    for half, value in zip(points.half.rows("value"), values, strict=True):
        half[count] = root * (value - float(half[:count] @ projection)) / pivot
    points.rounds.append()
    points.rounds.context[count], points.rounds.root[count] = context, root
    points.log_det += 2.0 * float(np.log(pivot)) - float(np.log(ridge))
    points.largest = max(points.largest, largest)
