"""MABWiser's LinUCB on levels of the dial, one linear model an arm."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .base import Array, Problem, levels, penalised

PACKAGES = ("mabwiser",)


class Learner:
    """One bandit for each level: arms share nothing here, the choices are those of one bandit with all arms, and an
    update copies every arm of its bandit.
    """

    def __init__(self, problem: Problem, *, penalty: float, alpha: float = 1.0) -> None:
        mab: Any = import_module("mabwiser.mab")
        self.levels, self.problem, self.penalty = levels(problem), problem, penalty
        policy = mab.LearningPolicy.LinUCB(alpha=alpha, l2_lambda=1.0)
        self.bandits = [mab.MAB([arm], policy, seed=problem.seed + 1) for arm in range(len(self.levels))]
        for arm, bandit in enumerate(self.bandits):  # It must be fitted before it can be asked: a round of nothing.
            bandit.fit([arm], [0.0], np.zeros((1, problem.dim)))
        self.arm = 0

    def choose(self, context: Array, protocol: float) -> float:
        expected = [bandit.predict_expectations(context[None, :])[arm] for arm, bandit in enumerate(self.bandits)]
        self.arm = int(np.argmax(expected))
        return float(self.levels[self.arm])

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        score = penalised(self.problem, reward, cost, self.penalty)
        self.bandits[self.arm].partial_fit([self.arm], [score], context[None, :])
