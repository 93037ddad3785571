"""SafeOpt's rule (Sui, Gotovos, Burdick and Krause 2015), our own small version on our kernel class: its package does
not install. Contexts are part of the point, as in its contextual form (Berkenkamp, Krause and Schoellig 2021).

With Gaussian-process bounds m ± βσ of reward and cost at (context, level): a level is safe if its cost's upper bound
keeps the threshold, and so do all levels below it down to the start. Of the safe levels that may be the best, or that
lie at the edge, the most uncertain one is played.
"""

from __future__ import annotations

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome, Stream
from safedial.policies.classes.function_class import Outcomes
from safedial.policies.classes.kernel import State, View, kernel

LEVELS = 12
RIDGE = 0.1
"""The variance of the noise, in units of the prior's."""
MOST_POINTS = 1000
"""Rounds after this many are not learned from: a decision costs their square."""


class SafeOpt:
    """One learner for each seed."""

    def __init__(self, world: ArenaWorld, seeds: int, beta: float) -> None:
        self.world, self.beta, self.alarms = world, beta, np.zeros(seeds)
        self.model = kernel("rbf:0.7", norm=1.0, bound=None, max_points=MOST_POINTS)
        self.states: list[State] = [self.model.init(world.dim + 1, ridge=RIDGE) for _ in range(seeds)]
        self.levels = np.geomspace(world.start, 1.0, LEVELS)
        self.seen: list[View] = []

    def decide(self, stream: Stream) -> Array:
        self.seen, settings = [], []
        for state, context in zip(self.states, stream.context / self.world.context_bound, strict=True):
            views = [self.model.look(state, np.array([*context, level])) for level in self.levels]
            place = self._choose(views)
            self.seen.append(views[place])
            settings.append(self.levels[place])
        return np.array(settings)

    def _choose(self, views: list[View]) -> int:
        reward, cost = (np.array([float(view.mean[target]) for view in views]) for target in (0, 1))
        width = self.beta * np.array([float(view.deviation) for view in views])
        exceeding = np.flatnonzero(cost + width > 1.0)
        edge = max((int(exceeding[0]) if exceeding.size else LEVELS) - 1, 0)
        safe = slice(0, edge + 1)
        may_be_best = (reward + width)[safe] >= (reward - width)[safe].max()
        may_be_best[edge] = True
        return int(np.argmax(np.where(may_be_best, width[safe], -1.0)))

    def tell(self, outcome: Outcome) -> None:
        told = zip(self.states, self.seen, outcome.reward, outcome.cost / self.world.threshold, strict=True)
        for state, view, *targets in told:
            if state.points[0].rounds.count < MOST_POINTS:
                self.model.update(state, view, Outcomes(tuple(map(np.asarray, targets)), np.ones(())))

    def close(self) -> None:
        """It holds nothing but memory."""
