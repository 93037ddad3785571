"""NASA's battery in the closed loop, in the arena: every setting warms the cell, and heat carries over."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome
from benchmarks.worlds.battery import BatteryWorld
from safedial.model.brackets import relative
from safedial.model.dose import Dose, identity, power

USUAL = 0.5
"""The share of the largest current that the usual rule draws: 2 A."""


class Cells:
    """One battery for each seed."""

    def __init__(self, seeds: list[int], rounds: int) -> None:
        self.batteries = [BatteryWorld().start(seed) for seed in seeds]
        self.protocol = np.full(len(seeds), USUAL)
        self.stated: dict[str, Any] = {}
        self._show()

    def _show(self) -> None:
        self.context = np.stack([battery.context for battery in self.batteries])
        self.baseline = np.array([battery.carry_over for battery in self.batteries])

    def act(self, setting: Array) -> Outcome:
        steps = [battery.step(float(each)) for battery, each in zip(self.batteries, setting, strict=True)]
        self._show()
        reward, cost = (np.array([getattr(step, name) for step in steps]) for name in ("reward", "cost"))
        return Outcome(reward, cost, reward)


def battery(risk: float) -> ArenaWorld:
    noise = {"reward_noise": 0.08, "cost_noise": 0.08, "reward_sensor_noise": 0.01, "cost_sensor_noise": 0.01}
    return ArenaWorld(
        name="battery",
        dim=BatteryWorld().dim,
        threshold=0.3,
        begin=Cells,
        growth=relative(0.7, 2.2, floor=0.03),
        start_scale=0.5,
        start=0.25,
        context_bound=1.0,
        unit="mean reward a round",
        signed=True,
        constants={**noise, "coefficient_bound": 2.5, "context_bound": 1.0},
        dose=Dose(identity(), power(2.0)),
    )
