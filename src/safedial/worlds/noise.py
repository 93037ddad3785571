"""Noise families of mean 0 and variance 1.

Four are sub-Gaussian, each with optimal constant exactly 1:

| family | distribution | why its constant is 1 |
|---|---|---|
| `gaussian` | N(0, 1) | by definition |
| `uniform` | on [−√3, √3] | sinh(√3 λ)/(√3 λ) ≤ e^{λ²/2}, term by term; variance 1 |
| `rademacher` | ±1 | cosh λ ≤ e^{λ²/2}; variance 1 |
| `truncated` | N(0, s²) cut at ±2s, with variance 1 | symmetric truncation is strictly sub-Gaussian [1] |

A mean-zero variable's constant is at least its standard deviation. Here they are equal, so none of the four is easier
than its constant says. tests/worlds checks each moment-generating function on a grid.

Three are not, and void the certified promise (κ is then only a scale); they are for policies that need no constants:

| family | distribution |
|---|---|
| `student-t3` | Student's t with 3 degrees of freedom, over √3: no third moment |
| `exponential` | Exp(1) − 1: skewed, with a one-sided heavy tail |
| `context-scale` | Gaussian, its standard deviation between ½ and 1½ depending on the context (`context_scale`) |

[1] Barreto, Marchal and Arbel (2024), on the optimal variance proxy of truncated Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.namespace import namespace

Array = NDArray[np.float64]

CUT = 2.0


def gaussian(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_normal(size)


def rademacher(rng: np.random.Generator, size: int) -> Array:
    return 2.0 * np.floor(2.0 * rng.random(size)) - 1.0


def student_t3(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_t(3.0, size) / math.sqrt(3.0)


def exponential(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_exponential(size) - 1.0


SCALES = (0.5, 1.5)
"""The least and the largest standard deviation of `context-scale`."""


def context_scale(context: Array, bound: float) -> Array:
    """½ + min(d·x₁²/L², 2)/2: the standard deviation of `context-scale` noise."""
    return 0.5 + 0.5 * namespace(context).minimum(context.shape[-1] * context[..., 0] ** 2 / bound**2, 2.0)


NOISES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "gaussian": gaussian,
    "uniform": lambda rng, size: quantile("uniform", rng.random(size)),
    "rademacher": rademacher,
    "truncated": lambda rng, size: quantile("truncated", rng.random(size)),
    "student-t3": student_t3,
    "exponential": exponential,
    "context-scale": gaussian,
}
SUB_GAUSSIAN = ("gaussian", "uniform", "rademacher", "truncated")


def quantile(name: str, probability: Any) -> Any:
    """The smallest q with P(ξ ≤ q) ≥ probability, for noise of unit scale."""
    from scipy.special import ndtr, ndtri, stdtrit

    probability = np.asarray(probability, dtype=float)
    if name == "uniform":
        return (2.0 * probability - 1.0) * math.sqrt(3.0)
    if name == "rademacher":
        return np.where(probability > 0.5, 1.0, -1.0)
    if name == "truncated":
        tail = float(ndtr(-CUT))
        return ndtri(tail + (1.0 - 2.0 * tail) * probability) / deviation()
    if name == "student-t3":
        return stdtrit(3.0, probability) / math.sqrt(3.0)
    if name == "exponential":
        return -np.log1p(-probability) - 1.0
    return ndtri(probability)


def exceeds_rarely(name: str, size: Any, risk: Any) -> Any:
    """Whether P(ξ > size) ≤ risk, for noise of unit scale at contexts drawn uniformly from a sphere.

    The standard deviation s of `context-scale` lies between ½ and 1½ and is at most 1 on average, since d·x₁²/L² has
    mean 1. Φ(−size/s) is monotone in s, and convex below size/√2: where 1½ is below that, and the size so above 0, its
    mean is at most that of the two ends.

    >>> bool(exceeds_rarely("gaussian", 1.7, 0.05)), bool(exceeds_rarely("gaussian", 1.6, 0.05))
    (True, False)
    """
    if name == "context-scale":
        from scipy.special import ndtr

        low, high = (ndtr(-np.asarray(size) / scale) for scale in SCALES)
        chance = np.where(np.asarray(size) >= math.sqrt(2.0) * SCALES[1], 0.5 * (low + high), np.maximum(low, high))
        return chance <= risk
    return quantile(name, 1.0 - np.asarray(risk)) <= size


def deviation() -> float:
    """The standard deviation of a standard normal variable cut at ±CUT."""
    from scipy.special import ndtr

    density = math.exp(-0.5 * CUT**2) / math.sqrt(2.0 * math.pi)
    return math.sqrt(1.0 - 2.0 * CUT * density / (1.0 - 2.0 * float(ndtr(-CUT))))
