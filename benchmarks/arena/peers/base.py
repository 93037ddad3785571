"""What every peer is told, and what those share that choose among levels of the dial. NumPy is all it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVELS = 16
"""Levels of the dial of peers that need them: 0, and from the start to 1 in equal ratios."""


class Problem(NamedTuple):
    """A world as a peer is told it: `start` is a setting that is safe for everybody, `signed` whether a dose can harm
    beyond its cost.
    """

    dim: int
    seed: int
    threshold: float
    risk: float
    start: float
    signed: bool


class Peer(Protocol):
    """Chooses a setting in [0, 1] for a context, and learns what came of it."""

    def choose(self, context: Array, protocol: float) -> float: ...
    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None: ...


def levels(problem: Problem) -> Array:
    return np.concatenate([[0.0], np.geomspace(problem.start, 1.0, LEVELS - 1)])


def penalised(problem: Problem, reward: float, cost: float, penalty: float) -> float:
    """The reward of a bandit that knows of no constraint: less a penalty where the cost exceeds the threshold."""
    return reward - penalty * (cost > problem.threshold)


class Quantile(ABC):
    """A model of the cost's quantile given context and setting, refitted when rounds have grown by a tenth.

    It plays the largest level at which the predicted quantile keeps the threshold. Its first 2/risk rounds are at
    random between the start and the protocol. Where the sign of the reward matters, ridge regression learns it, and the
    start is given where it is negative.
    """

    GRID = 96

    def __init__(self, problem: Problem, model: Any) -> None:
        self.problem, self.model = problem, model
        self.rng, self.rows, self.rewards, self.costs = np.random.default_rng(problem.seed), [], [], []
        self.grid, self.fitted = np.geomspace(problem.start, 1.0, self.GRID), 0
        self.reward_coef = np.zeros(problem.dim)

    @abstractmethod
    def features(self, context: Array, setting: Any) -> Array:
        """What the model sees of contexts and settings."""

    def choose(self, context: Array, protocol: float) -> float:
        if not self.fitted:
            return float(self.rng.uniform(self.problem.start, max(self.problem.start, min(protocol, 1.0))))
        if self.problem.signed and context @ self.reward_coef < 0.0:
            return self.problem.start
        bound = self.model.predict(self.features(np.tile(context, (len(self.grid), 1)), self.grid))
        exceeding = np.flatnonzero(bound > self.problem.threshold)
        return float(self.grid[max((exceeding[0] if exceeding.size else self.GRID) - 1, 0)])

    def learn(self, context: Array, setting: float, reward: float, cost: float) -> None:
        self.rows.append((*context, setting))
        self.rewards.append(reward)
        self.costs.append(cost)
        count = len(self.rows)
        if count < 2.0 / self.problem.risk or count < 1.1 * self.fitted:
            return
        self.fitted, rows = count, np.array(self.rows)
        contexts, settings = rows[:, :-1], rows[:, -1]
        self.model.fit(self.features(contexts, settings), np.array(self.costs))
        scaled = contexts * settings[:, None]
        ridge = scaled.T @ scaled + 0.1 * np.mean(settings**2) * np.eye(self.problem.dim)
        self.reward_coef = np.linalg.solve(ridge, scaled.T @ np.array(self.rewards))
