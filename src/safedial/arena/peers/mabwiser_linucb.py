"""MABWiser's LinUCB on levels of the dial, one linear model an arm."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .base import Array, Problem, levels, penalised

PACKAGES = ("mabwiser",)


class Learner:
    def __init__(self, problem: Problem, *, penalty: float, alpha: float = 1.0) -> None:
        mab: Any = import_module("mabwiser.mab")
        self.levels, self.problem, self.penalty = levels(problem), problem, penalty
        arms, policy = list(range(len(self.levels))), mab.LearningPolicy.LinUCB(alpha=alpha, l2_lambda=1.0)
        self.bandit = mab.MAB(arms=arms, learning_policy=policy, seed=problem.seed + 1)
        # It must be fitted before it can be asked: one round of no reward with the lowest arm.
        self.bandit.fit(decisions=[0], rewards=[0.0], contexts=np.zeros((1, problem.dim)))
        self.arm = 0

    def choose(self, context: Array, protocol: float) -> float:
        self.arm = int(self.bandit.predict(context[None, :]))
        return float(self.levels[self.arm])

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        score = penalised(self.problem, reward, cost, self.penalty)
        self.bandit.partial_fit([self.arm], [score], context[None, :])
