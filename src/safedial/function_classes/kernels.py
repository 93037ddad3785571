"""Positive semi-definite kernels, their sums and products.

A `Kernel` maps points (n, d) and (m, d) to the (n, m) matrix of its values; `largest` maps points (n, d) to k(x, x).
Sums, products (Schur) and positive multiples of kernels are kernels.

>>> smooth = rbf(0.5) + 0.3 * polynomial(2)
>>> str(smooth)
'rbf:0.5+0.3*polynomial:2,1'
>>> float(smooth(np.zeros((1, 2)), np.zeros((1, 2)))[0, 0])
1.3
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, require
from safedial.function_classes.function_class import check_bound, check_whole

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Kernel:
    """k(x, y) as a matrix function, k(x, x) as a vector function, and a name, which `parse_kernel` can read unless it
    contains brackets.
    """

    name: str
    matrix: Callable[[Array, Array], Array]
    diagonal: Callable[[Array], Array]

    def __call__(self, left: Array, right: Array) -> Array:
        return self.matrix(left, right)

    def __str__(self) -> str:
        return self.name

    def __add__(self, other: Kernel) -> Kernel:
        return Kernel(
            f"{self}+{other}", lambda x, y: self(x, y) + other(x, y), lambda x: self.diagonal(x) + other.diagonal(x)
        )

    def __mul__(self, other: Kernel | float) -> Kernel:
        if not isinstance(other, Kernel):
            return constant(other) * self
        names = (f"({part})" if "+" in str(part) else str(part) for part in (self, other))
        return Kernel(
            "*".join(names), lambda x, y: self(x, y) * other(x, y), lambda x: self.diagonal(x) * other.diagonal(x)
        )

    __rmul__ = __mul__


def rbf(length: float = 0.5) -> Kernel:
    """exp(−‖x − y‖²/(2·length²))."""
    scale = 1.0 / check_bound("length", length)

    def matrix(x: Array, y: Array) -> Array:
        return np.exp(-0.5 * _squared_distance(x, y) * scale**2)

    return Kernel(f"rbf:{_digits(length)}", matrix, _ones)


def matern32(length: float = 0.5) -> Kernel:
    """(1 + √3 r)·exp(−√3 r), r = ‖x − y‖/length."""
    scale = np.sqrt(3.0) / check_bound("length", length)

    def matrix(x: Array, y: Array) -> Array:
        r = np.sqrt(_squared_distance(x, y) * scale**2)
        return (1.0 + r) * np.exp(-r)

    return Kernel(f"matern32:{_digits(length)}", matrix, _ones)


def matern52(length: float = 0.5) -> Kernel:
    """(1 + √5 r + 5r²/3)·exp(−√5 r), r = ‖x − y‖/length."""
    scale = np.sqrt(5.0) / check_bound("length", length)

    def matrix(x: Array, y: Array) -> Array:
        squared = _squared_distance(x, y) * scale**2
        r = np.sqrt(squared)
        return (1.0 + r + squared / 3.0) * np.exp(-r)

    return Kernel(f"matern52:{_digits(length)}", matrix, _ones)


def polynomial(degree: int = 2, offset: float = 1.0) -> Kernel:
    """(⟨x, y⟩ + offset)^degree, offset ≥ 0."""
    power = check_whole("degree", degree)
    require(0.0 <= offset < np.inf, "offset", offset, "must be a number >= 0")
    return Kernel(
        f"polynomial:{degree},{_digits(offset)}",
        lambda x, y: (x @ y.T + offset) ** power,
        lambda x: (np.vecdot(x, x) + offset) ** power,
    )


def constant(value: float) -> Kernel:
    """The kernel that is `value` everywhere: a factor in a product, an intercept in a sum."""
    size = check_bound("constant", value)
    return Kernel(_digits(value), lambda x, y: np.full((len(x), len(y)), size), lambda x: np.full(len(x), size))


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
    total = None
    for term in text.split("+"):
        product = None
        for factor in term.split("*"):
            part = _one(factor.strip(), text)
            product = part if product is None else product * part
        total = product if total is None else total + product  # pyright: ignore[reportOperatorIssue]
    return total  # pyright: ignore[reportReturnType] -- a text splits into at least one term


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


def _squared_distance(x: Array, y: Array) -> Array:
    """Σ_j (x_j − y_j)² from the differences, because ‖x‖² + ‖y‖² − 2⟨x, y⟩ cannot separate points far from 0."""
    total = np.zeros((len(x), len(y)))
    for left, right in zip(x.T, y.T, strict=True):
        gap = left[:, None] - right[None, :]
        total += gap * gap
    return total


def _ones(x: Array) -> Array:
    return np.ones(len(x))
