"""Linear quantile regression of the cost (scikit-learn), on context, setting and their products."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .base import Array, Problem, Quantile

PACKAGES = ("scikit-learn",)


class Learner(Quantile):
    def __init__(self, problem: Problem, *, level: float) -> None:
        linear: Any = import_module("sklearn.linear_model")
        super().__init__(problem, linear.QuantileRegressor(quantile=level, alpha=0.0, solver="highs"))

    def features(self, context: Array, setting: Any) -> Array:
        return np.column_stack([context, setting, context * np.asarray(setting)[:, None]])
