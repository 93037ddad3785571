"""bayesianbandits' Thompson sampling on levels of the dial: one normal-inverse-gamma regression on the setting, its
square and their products with the context, as its documentation advises for arms that are numbers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .base import Array, Problem, levels, penalised

PACKAGES = ("bayesianbandits",)


class Learner:
    def __init__(self, problem: Problem, *, penalty: float) -> None:
        bandits: Any = import_module("bayesianbandits")
        self.problem, self.penalty = problem, penalty
        self.agent = bandits.LipschitzContextualAgent(
            [bandits.Arm(float(level)) for level in levels(problem)],
            bandits.ThompsonSampling(),
            bandits.FunctionArmFeaturizer(features),
            bandits.NormalInverseGammaRegressor(),
            random_seed=problem.seed + 1,
        )

    def choose(self, context: Array, protocol: float) -> float:
        (setting,) = self.agent.pull(context[None, :])
        return float(setting)

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        score = penalised(self.problem, reward, cost, self.penalty)
        self.agent.update(context[None, :], np.array([score]))


def features(contexts: Array, settings: Any) -> Array:
    """(1, a, a²) times (1, x), less what is the same for all settings but 1: (contexts, features, settings)."""
    rows = np.column_stack([np.ones(len(contexts)), contexts])
    powers = np.array([(setting, setting**2) for setting in settings])
    products = rows[:, :, None, None] * powers.T[None, None]
    return np.concatenate([np.ones((len(rows), 1, len(powers))), products.reshape(len(rows), -1, len(powers))], axis=1)
