"""Worlds of `safedial.simulation.worlds` in the arena: the paper's, contexts that drift, costs that are flat, then
steep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.model.brackets import additive, relative
from safedial.model.spec import SafetySpec
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.world import NOISY, Exposure, World, generators

CHUNK = 256
"""Rounds that are drawn at a time. Results do not depend on it."""
UNIT: dict[str, Any] = {"reward_noise": 1.0, "cost_noise": 1.0, "coefficient_bound": 1.0, "context_bound": 1.0}


class SimulatedStream:
    """The rounds of a `World` on the random numbers of a simulation; the intensity is the setting."""

    def __init__(
        self, world: World, spec: SafetySpec, usual: Callable[[Array], Array], seeds: list[int], rounds: int
    ) -> None:
        self.world, self.spec, self.usual, self.left, self.done = world, spec, usual, rounds, 0
        self.rngs = generators(seeds)
        self.truth = world.draw_truth(spec, self.rngs)
        self.baseline = np.full(len(seeds), world.baseline_cost)
        self.stated: dict[str, Any] = {}
        self._place = self._held = 0
        self._next()

    def _next(self) -> None:
        if self._place == self._held:
            self._held, self._place = min(CHUNK, max(self.left, 1)), 0
            self._draws = self.world.draw_chunk(self.spec, self.rngs, self._held, self.done)
            self._means = self.world.means(self.spec, self.truth, self._draws.context)
            self.done += self._held
        self.context = self._draws.context[self._place]
        self.protocol = self.usual(self.context)

    def act(self, setting: Array) -> Outcome:
        reward_mean, cost_mean = (mean[self._place] for mean in self._means)
        noise = (getattr(self._draws, stream)[self._place] for stream in NOISY)
        exposure = Exposure(self.context, reward_mean, cost_mean, setting, setting, *noise)
        reward, cost, _ = self.world.outcome(self.spec, exposure)
        best = self._best(exposure)
        known = None if best is None else np.where(reward_mean >= 0.0, best, 0.0) * reward_mean
        found = Outcome(reward, np.asarray(cost), setting * reward_mean, known)
        self._place, self.left = self._place + 1, self.left - 1
        self._next()
        return found

    def _best(self, exposure: Exposure) -> Any:
        return self.world.exact_intensity(self.spec, exposure)


class PrintedStream(SimulatedStream):
    """Its clairvoyant knows the means and the noise's constant alone, as the one of the paper's regret."""

    def _best(self, exposure: Exposure) -> Any:
        load = exposure.cost_mean + self.spec.tail * self.spec.cost_noise
        return largest_safe_intensity(load, 0.0, threshold=self.spec.threshold).intensity


def printed(risk: float) -> ArenaWorld:
    """The paper's world with its own risks, δ = δ′ = 0.01, and its own regret."""
    made, risks = paper(risk), {"violation_risk": 0.01, "estimation_risk": 0.01}
    spec = SafetySpec(threshold=made.threshold, **risks, **UNIT)
    begin = partial(PrintedStream, LinearWorld(dim=made.dim), spec, lambda context: np.full(len(context), 0.2))
    return replace(made, name="paper, as printed", begin=begin, constants=UNIT | risks)


def paper(risk: float, *, contexts: Any = "iid", name: str = "paper", noise: float = 1.0) -> ArenaWorld:
    """The paper's synthetic world: d = 10, unit noise, τ = 0.5."""
    world = LinearWorld(dim=10, contexts=contexts)
    unit: dict[str, Any] = UNIT | {"reward_noise": noise, "cost_noise": noise}
    spec = SafetySpec(threshold=0.5, total_risk=risk, **unit)
    exact = SafetySpec(threshold=0.5, violation_risk=risk, estimation_risk=0.01, **unit)
    return ArenaWorld(
        name=name,
        dim=world.dim,
        threshold=spec.threshold,
        begin=partial(SimulatedStream, world, exact, lambda context: np.full(len(context), 0.2)),
        growth=relative(1.0, 1.0, floor=0.0),
        start_scale=0.5,
        start=0.1,
        context_bound=1.0,
        unit="share of the clairvoyant",
        signed=True,
        constants=unit,
    )


def drift(risk: float) -> ArenaWorld:
    """The paper's world with contexts that turn towards one axis, and with less noise."""
    return paper(risk, contexts="drift", name="drift", noise=0.3)


def flat_then_steep(risk: float) -> ArenaWorld:
    """Costs that do not move up to a knee, different for each unit, and then rise steeply."""
    world = DoseResponseWorld(curve="hinge", dim=4, low=2.0, high=6.0, knee=0.8, spread=0.4, effect=0.4, least=0.1)
    spec = SafetySpec(threshold=1.0, violation_risk=risk, guarantee="bracket")
    return ArenaWorld(
        name="flat-then-steep",
        dim=world.dim,
        threshold=1.0,
        begin=partial(SimulatedStream, world, spec, lambda context: context[:, 0]),
        growth=additive(2.0, 6.0),
        start_scale=0.1,
        start=0.01,
        context_bound=2.0,
        unit="share of the clairvoyant",
    )
