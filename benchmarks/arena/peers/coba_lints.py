"""coba's linear Thompson sampling. Of coba's learners none takes a continuous action (its Vowpal Wabbit learner refuses
CATS), but this one takes actions with features: the setting is a number, with its square and products with the context.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .base import Array, Problem, levels, penalised

PACKAGES = ("coba",)


class Learner:
    def __init__(self, problem: Problem, *, penalty: float, v: float = 0.1) -> None:
        learners: Any = import_module("coba.learners")
        self.learner = learners.LinTSLearner(v=v, features=[1, "a", "aa", "ax", "aax"], seed=problem.seed + 1)
        self.actions = [(float(level),) for level in levels(problem)]
        self.problem, self.penalty, self.chosen = problem, penalty, (self.actions[0], 1.0)

    def choose(self, context: Array, protocol: float) -> float:
        self.chosen = self.learner.predict(context.tolist(), self.actions)
        return float(self.chosen[0][0])

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        action, chance = self.chosen
        self.learner.learn(context.tolist(), action, penalised(self.problem, reward, cost, self.penalty), chance)
