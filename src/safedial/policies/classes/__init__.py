"""Function classes for Algorithm 2: which functions the mean reward and cost may be, and what is proved about them.

| class | functions | label |
|---|---|---|
| `linear` | ⟨x, θ⟩, ‖θ‖ ≤ S | certified |
| `finite` | a list of functions, 100,000 or more | certified |
| `kernel` | RKHS norm ≤ B: RBF, Matérn, polynomial, sums, products | certified |
| `features` | ⟨φ(x), θ⟩ up to a stated error: splines, Fourier features, a frozen network | certified |
| `binary` | log-odds of a 0/1 cost | certified |
"""

from __future__ import annotations

from collections.abc import Callable

from safedial.policies.classes.binary import binary
from safedial.policies.classes.features import features, linear
from safedial.policies.classes.finite import finite
from safedial.policies.classes.function_class import FunctionClass, Interval, Outcomes
from safedial.policies.classes.kernel import kernel

CLASSES: dict[str, Callable[..., FunctionClass]] = {
    "linear": linear,
    "finite": finite,
    "kernel": kernel,
    "features": features,
    "binary": binary,
}

__all__ = ["CLASSES", "FunctionClass", "Interval", "Outcomes", *CLASSES]
