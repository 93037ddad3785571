"""Gradient-boosted quantiles of the cost (scikit-learn), told that the cost does not fall when the setting rises."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .base import Array, Problem, Quantile

PACKAGES = ("scikit-learn",)


class Learner(Quantile):
    def __init__(self, problem: Problem, *, level: float) -> None:
        ensemble: Any = import_module("sklearn.ensemble")
        rising = [0] * problem.dim + [1]
        model = ensemble.HistGradientBoostingRegressor(
            loss="quantile", quantile=level, monotonic_cst=rising, max_iter=60, random_state=problem.seed
        )
        super().__init__(problem, model)

    def features(self, context: Array, setting: Any) -> Array:
        return np.column_stack([context, setting])
