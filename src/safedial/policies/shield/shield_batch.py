"""HP-Shield's state in a simulation: the rounds of each group, the adaptive level, and what is given under caps.

A group's rounds are a batch of their own, in which the rounds of other groups are left out. So a learned base is fitted
when there are a tenth more rounds of all groups; an Agent's when there are of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.adaptive import adapted
from safedial.core.tolerated import Cost
from safedial.errors import require
from safedial.policies.shield.batch_chooser import BatchChooser
from safedial.policies.shield.shield_rounds import Setup, ShieldRounds

Array = NDArray[np.float64]


class ShieldBatch:
    """The state. `advise` and `add` take turns, as decisions and outcomes do."""

    def __init__(self, dim: int, *, ridge: float, batch: tuple[int, ...], setup: Setup) -> None:
        self.dim, self.ridge, self.batch, self.setup, self.lanes = dim, ridge, batch, setup, math.prod(batch)
        self.promise: Any = None
        self.count = 0
        self.groups: dict[float, ShieldRounds] = {}

    def state_promise(self, costs: dict[str, Cost], risk: float) -> None:
        """What is promised, before the first advice."""
        self.promise, self.risk, self.level = costs, risk, np.full(self.lanes, risk)
        self.chooser = BatchChooser(self.lanes, self.dim, setup=self.setup, ridge=self.ridge, risk=risk)

    def advise(self, context: Array) -> tuple[Array, Array, Array]:
        """The largest settings at contexts (lanes, d), the starts, and the scales of the settings before clipping."""
        self.group = self._groups(context)
        for key in set(self.group.tolist()) - self.groups.keys():
            self.groups[key] = ShieldRounds(self.dim, ridge=self.ridge, lanes=self.lanes, setup=self.setup)
            self.groups[key].state_promise(self.promise, self.risk)
            self.groups[key].skip(context, self.count)
        level = None if self.setup.adapt is None else self.level
        found = np.zeros((3, self.lanes))
        for key, rounds in self.groups.items():
            found = np.where(self.group == key, rounds.advise(context, level)[:3], found)
        return found[0], found[1], found[2]

    def add(self, context: Array, reward: Array, *, told: Any, costs: dict[str, Array]) -> None:
        """A round's outcome: the reward per unit of the applied setting, the measured costs by name, and in `told`
        what was applied, the reward in all, where all is known, and which rounds are left out.
        """
        applied, total, known, left_out = told
        costs = {name: np.where(known, each, math.nan) for name, each in costs.items()}
        for key, rounds in self.groups.items():
            out, mine = left_out, known
            if self.setup.group is not None:
                other = self.group != key
                out, mine = other if left_out is None else other | left_out, known & ~other
            rounds.add(context, applied=applied, known=mine, costs=costs, left_out=out)
        if self.setup.adapt is not None:
            over = np.any([each.exceeded(costs[name]) for name, each in self.promise.items()], axis=0)
            told = np.where(known, over, self.risk)
            self.level = adapted(self.level, told, risk=self.risk, rate=self.setup.adapt)
        self.chooser.learn(context, applied, reward, total, known & (applied > 0.0))
        self.count += 1

    def _groups(self, context: Array) -> NDArray[Any]:
        """The groups of contexts: one value for each lane, all alike where nothing is stated."""
        stated = self.setup.group
        found = np.zeros(self.lanes) if stated is None else np.asarray(stated(context))
        rule = "must give one value for each context, (n,) for contexts (n, d)"
        require(found.shape == (self.lanes,), "group", found.shape, rule)
        real = found.dtype.kind != "f" or bool(np.all(np.isfinite(found)))
        require(real, "group", found, "must give finite values: a NaN equals no other, so it belongs to no group")
        return found
