"""Parametric families for the class `parametric`: a function f(contexts, parameters) and starting parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safedial.function_classes.function_class import check_whole


def network(dim: int, *, units: int = 3, seed: int = 0) -> tuple[Callable[[Any, Any], Any], list[float]]:
    """A network with one hidden layer: tanh(c + Σ_j a_j tanh(⟨v_j, x⟩ + b_j)), and random weights to start from.

    >>> function, start = network(2, units=2)
    >>> len(start), function(np.zeros((4, 2)), np.array(start)).shape
    (9, (4,))
    """
    check_whole("dim", dim)
    check_whole("units", units)
    inner = units * dim

    def function(contexts: Any, parameters: Any) -> Any:
        hidden = np.tanh(contexts @ parameters[:inner].reshape(dim, units) + parameters[inner : inner + units])
        return np.tanh(hidden @ parameters[inner + units : -1] + parameters[-1])

    function.__name__ = f"network:{units}"
    start = np.random.default_rng(seed).standard_normal(inner + 2 * units + 1)
    start[-1] = 0.0
    return function, start.tolist()
