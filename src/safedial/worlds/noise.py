"""Noise families, each scaled so that its optimal sub-Gaussian constant is exactly 1.

| family | distribution | why its constant is 1 |
|---|---|---|
| `gaussian` | N(0, 1) | by definition |
| `uniform` | on [−√3, √3] | sinh(√3 λ)/(√3 λ) ≤ e^{λ²/2}, term by term; variance 1 |
| `rademacher` | ±1 | cosh λ ≤ e^{λ²/2}; variance 1 |
| `truncated` | N(0, s²) cut at ±2s, with variance 1 | symmetric truncation is strictly sub-Gaussian [1] |

A mean-zero variable's constant is at least its standard deviation, and here it equals it, so none of the four is
given an easier time than its constant says. tests/worlds checks each moment-generating function on a grid.

[1] Barreto, Marchal and Arbel (2024), on the optimal variance proxy of truncated Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CUT = 2.0


def gaussian(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_normal(size)


def uniform(rng: np.random.Generator, size: int) -> Array:
    return (2.0 * rng.random(size) - 1.0) * math.sqrt(3.0)


def rademacher(rng: np.random.Generator, size: int) -> Array:
    return 2.0 * np.floor(2.0 * rng.random(size)) - 1.0


def truncated(rng: np.random.Generator, size: int) -> Array:
    from scipy.special import ndtr, ndtri

    tail = float(ndtr(-CUT))
    density = math.exp(-0.5 * CUT**2) / math.sqrt(2.0 * math.pi)
    deviation = math.sqrt(1.0 - 2.0 * CUT * density / (1.0 - 2.0 * tail))
    return ndtri(tail + (1.0 - 2.0 * tail) * rng.random(size)) / deviation


NOISES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "gaussian": gaussian,
    "uniform": uniform,
    "rademacher": rademacher,
    "truncated": truncated,
}
