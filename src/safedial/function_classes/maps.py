"""Feature maps for the class `features`: each is a function from contexts (..., d) to features (..., p)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safedial.errors import require
from safedial.function_classes.function_class import check_bound, check_whole


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
