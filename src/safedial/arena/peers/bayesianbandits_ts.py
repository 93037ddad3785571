"""bayesianbandits' Thompson sampling on levels of the dial, a normal-inverse-gamma regression for each arm."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .base import Array, Problem, levels, penalised

PACKAGES = ("bayesianbandits",)


class Learner:
    def __init__(self, problem: Problem, *, penalty: float) -> None:
        bandits: Any = import_module("bayesianbandits")
        self.levels, self.problem, self.penalty = levels(problem), problem, penalty
        arms = [bandits.Arm(float(level), learner=bandits.NormalInverseGammaRegressor()) for level in self.levels]
        self.agent = bandits.ContextualAgent(arms, bandits.ThompsonSampling(), random_seed=problem.seed + 1)

    def choose(self, context: Array, protocol: float) -> float:
        (setting,) = self.agent.pull(context[None, :])
        return float(setting)

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        score = penalised(self.problem, reward, cost, self.penalty)
        self.agent.update(context[None, :], np.array([score]))
