"""Vowpal Wabbit's CATS: a bandit over a continuous action (Majzoubi and colleagues 2020).

Coin betting and quadratic features are its tutorial's, and losses lie between 0 and 1 where rewards do. Bins,
bandwidth, exploration and learning rate were chosen from 28 combinations, on 2,000 rounds each of vancomycin and of one
feature.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .base import Array, Problem, penalised

PACKAGES = ("vowpalwabbit",)
BINS, BANDWIDTH = 16, 0.125


class Learner:
    def __init__(self, problem: Problem, *, penalty: float, epsilon: float = 0.1) -> None:
        vowpal: Any = import_module("vowpalwabbit")
        options = f"--cats {BINS} --bandwidth {BANDWIDTH} --min_value 0 --max_value 1 --epsilon {epsilon}"
        self.workspace = vowpal.Workspace(f"{options} --coin -q :: --random_seed {problem.seed + 1} --quiet")
        self.problem, self.penalty, self.density = problem, penalty, 1.0

    def choose(self, context: Array, protocol: float) -> float:
        setting, self.density = self.workspace.predict(f"|x {_features(context)}")
        return min(max(float(setting), 0.0), 1.0)

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        loss = (1.0 - penalised(self.problem, reward, cost, self.penalty)) / (1.0 + self.penalty)
        self.workspace.learn(f"ca {setting:.6f}:{loss:.6f}:{self.density:.6g} |x {_features(context)}")


def _features(context: Array) -> str:
    return " ".join(f"f{number}:{value:.6f}" for number, value in enumerate(context))
