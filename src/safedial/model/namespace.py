"""The array library of given numbers: NumPy, JAX (or any array-API library), or plain floats.

The rule is written once against a namespace `xp`. Arrays have their own; Python floats get `FLOATS`, whose
functions are those of `math`. So the same lines decide for a batch of ten thousand simulated patients, inside
`jax.jit`, and for one real patient in a few microseconds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT = 2.0**-53
"""u: the largest relative error of one rounded operation."""


class Floats:
    """The few array functions the rule uses, for Python floats. `where` evaluates both branches, as arrays do."""

    sqrt = staticmethod(math.sqrt)
    log = staticmethod(math.log)
    log1p = staticmethod(math.log1p)
    exp = staticmethod(math.exp)
    expm1 = staticmethod(math.expm1)
    abs = staticmethod(abs)
    minimum = staticmethod(min)
    maximum = staticmethod(max)
    logical_and = staticmethod(operator.and_)
    logical_or = staticmethod(operator.or_)

    @staticmethod
    def where(condition: bool, yes: Any, no: Any) -> Any:
        return yes if condition else no

    @staticmethod
    def clip(value: Any, low: Any, high: Any) -> Any:
        return min(max(value, low), high)

    def __getattr__(self, name: str) -> Any:
        """There is no other function."""
        known = ", ".join(each for each in vars(Floats) if not each.startswith("_"))
        raise AttributeError(f"{name!r} is not there for floats, of which an agent decides; these are: {known}")


FLOATS = Floats()
SCALARS = frozenset({float, int, bool})


def namespace(*values: Any) -> Any:
    """The namespace of `values`; Python and NumPy scalars follow the arrays beside them.

    >>> namespace(1.0, 2).__class__.__name__
    'Floats'
    >>> namespace(1.0, np.ones(3)).__name__
    'numpy'
    """
    for value in values:
        if type(value) not in SCALARS:
            return _array_namespace([value for value in values if type(value) not in SCALARS])
    return FLOATS


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, `no` elsewhere, in the condition's namespace."""
    if condition is True or condition is False:
        return yes if condition else no
    return namespace(condition).where(condition, yes, no)


def _array_namespace(arrays: list[Any]) -> Any:
    if all(isinstance(value, (np.ndarray, np.generic)) for value in arrays):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(*(value for value in arrays if not isinstance(value, np.generic)))


def some(condition: Any) -> bool:
    """Whether it holds in any lane; of one lane in less time than NumPy takes."""
    return bool(condition.any()) if isinstance(condition, np.ndarray) else bool(condition)


def every(condition: Any) -> bool:
    """Whether it holds in every lane."""
    return bool(condition.all()) if isinstance(condition, np.ndarray) else bool(condition)


def scalar(value: Any) -> Any:
    """A plain number, which is faster, in place of an array without axes; an array as it is."""
    return value.item() if getattr(value, "ndim", 1) == 0 else value


def is_zero(value: Any) -> bool:
    """Whether `value` is the plain number 0, which means that this part of the model is absent."""
    return isinstance(value, (float, int)) and value == 0


def normal_quantile(probability: Any) -> Any:
    """Φ⁻¹, in the caller's library."""
    xp = namespace(probability)
    ndtri: Callable[[Any], Any]
    if xp in (np, FLOATS):
        from scipy.special import ndtri
    else:
        from jax.scipy.special import ndtri
    quantile = ndtri(probability)
    return float(quantile) if xp is FLOATS else quantile
