"""The loop over the rounds of a simulation: decide, learn, score. Every other axis is an array axis.

Arrays are (rows, seeds), with a row for each spec; if doses cannot influence what is learned, rows share one estimate.
On Ctrl-C during `simulate` the rounds end with their chunk, and the results so far are returned.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require
from safedial.model.dose import Dose
from safedial.model.noise_scale import check_rises
from safedial.model.spec import SafetySpec, as_columns, check_grids
from safedial.policies import Policy, rows_learn_alike
from safedial.policies.policy import Asked, Bound, Task, check_found, check_intensities
from safedial.simulation.rule import (
    CURVES,
    TOTALS,
    Given,
    Rule,
    Step,
    all_finite,
    check_given,
    checked_means,
    sent_context,
)
from safedial.simulation.world import NOISY, Array, Draws, Exposure, Outcome, World, generators


class Round(NamedTuple):
    """What an `observe` callback sees of a round, before its outcome: the policy with its state, what it was asked, its
    bound and what it gives.
    """

    number: int
    context: Array
    state: Any
    asked: Asked
    bound: Bound
    given: Given
    truth: Any
    policy: Policy


class Played(NamedTuple):
    """What a `record` callback sees of a chunk: arrays (rounds, rows, seeds), contexts with a last axis."""

    context: Array
    action: Array
    reward: Array
    cost: Array


class Setting(NamedTuple):
    """What is simulated: the arguments of `simulate`, checked."""

    policy: Policy
    world: World
    spec: SafetySpec
    dose: Dose
    seeds: list[int]
    rounds: int
    points: int
    observe: Callable[[Round], None] | None = None
    record: Callable[[Played], None] | None = None
    stated: SafetySpec | None = None


class Batch:
    """The state of one simulation between chunks of `step` rounds. Results do not depend on their size."""

    step, engine, compile_seconds = 256, "numpy", 0.0

    def __init__(self, setting: Setting) -> None:
        self.setting, self.seeds = setting, setting.seeds
        spec, dose = setting.spec, setting.dose
        world = setting.world.under(spec)
        self.world, self.spec, self.dose = world, as_columns(spec), dose
        stated = as_columns(setting.stated or spec)
        self.truth: Any = self.draw_truth()
        rows = check_grids(spec, several=True)
        alike = world.proportional and rows_learn_alike(setting.policy, spec, dose, world.baseline_cost)
        self.batch = 1 if alike else rows
        task = Task(dim=world.dim, spec=stated, dose=dose, seeds=tuple(self.seeds), world=world.facts)
        self.policy = setting.policy.on(task)
        self.rule = Rule(self.policy, world, self.spec, dose, self.batch, stated)
        self.checkpoints = np.unique(np.linspace(0, setting.rounds, setting.points + 1).round().astype(np.int64))[1:]
        self.totals = {name: np.zeros((rows, len(self.seeds))) for name in TOTALS}
        self.curves: dict[str, list[Array]] = {name: [] for name in CURVES}
        self.drawn = 0
        self.state = self.start()

    def start(self) -> Any:
        """The policy's state before the first round."""
        return self.policy.init((self.batch, len(self.seeds)), watch=self.policy.watches_lanes)

    def draw_truth(self) -> Any:
        self.rngs = generators(self.seeds)
        return self.world.draw_truth(self.spec, self.rngs)

    def draw(self, step: int) -> Draws | None:
        """Draw the next chunk's randomness, one chunk ahead, in a separate thread; None if the device draws it."""
        self.drawn += step
        return self.world.draw_chunk(self.spec, self.rngs, step, self.drawn - step)

    def marks(self, done: int, step: int) -> NDArray[np.int64]:
        """The checkpoints in the `step` rounds after `done`, counted from there."""
        return self.checkpoints[(self.checkpoints > done) & (self.checkpoints <= done + step)] - done

    def chunk(self, done: int, draws: Any) -> None:
        """Play and score the rounds after `done`."""
        rounds = self._exposure(draws)
        steps = self.play(done, rounds, draws)
        rounds = rounds._replace(reward_intensity=steps.reward_intensity, cost_intensity=steps.cost_intensity)
        outcome = self.world.outcome(self.spec, rounds)
        cost: Any = outcome.cost
        costs = cost.values() if isinstance(cost, Mapping) else (cost,)
        self.require_finite(all(np.isfinite(each).all() for each in (outcome.reward, *costs)))
        self._account(done, rounds, outcome, steps)
        if self.setting.record:
            action = self.dose.cost.action(rounds.cost_intensity)
            self.setting.record(Played(rounds.context, action, outcome.reward, outcome.cost))

    def require_finite(self, finite: Any) -> None:
        way_out = "look at its contexts, means and noise"
        require(finite, "world", self.world.name, "gave an outcome that is not a finite number", way_out)

    def play(self, done: int, rounds: Exposure, draws: Draws) -> Step:
        """The decisions of a chunk, one round after the other."""
        shape = rounds.cost_intensity.shape
        chosen = rounds.cost_intensity if self.dose.is_identity else np.empty(shape)
        told = Step(*rounds[3:5], *(np.empty(shape, dtype=bool) for _ in range(3)))
        for index, now in enumerate(map(Exposure._make, zip(*rounds, strict=True))):
            coin, number = draws.coin[index], done + index + 1
            if self.world.adversarial:
                self._send(now, draws.context[index])
            decided = self.rule.decide(self.state, float(number), now, coin)
            intensity = decided[2].intensity
            if number == 1:
                check_found(self.policy, decided[1], decided[2].chosen)
                check_given(self.policy, decided[2], shape[1:])
                check_intensities(self.policy.name, np.min(intensity), np.max(intensity))
            if self.setting.observe:
                self.setting.observe(Round(number, now.context, self.state, *decided, self.truth, self.policy))
            chosen[index] = intensity
            step = self.rule.learn(self.state, number - 1, now, decided)
            for whole, part in zip(told, step, strict=True):
                whole[index] = part
        check_intensities(self.policy.name, chosen.min(), chosen.max())
        return told

    def _exposure(self, draws: Draws) -> Exposure:
        """A chunk before its decisions; intensities, and an adversary's contexts and means, are filled in later."""
        step, seeds = draws.coin.shape
        harm = np.empty((step, *self.totals["regret"].shape))
        gain = harm if self.dose.is_identity else np.empty_like(harm)
        noise = (getattr(draws, stream)[:, None] for stream in NOISY)
        if self.world.adversarial:
            context = np.empty((step, self.batch, seeds, self.world.dim))
            reward_mean, cost_mean = np.empty((2, step, self.batch, seeds))
        else:
            context = draws.context[:, None]
            check_rises(self.spec.noise_scale, context)
            means = self.world.means(self.spec, self.truth, draws.context)
            reward_mean, cost_mean = (each[:, None] for each in checked_means(self.world, means, (step, seeds)))
        return Exposure(context, reward_mean, cost_mean, gain, harm, *noise)

    def _send(self, now: Exposure, candidates: Array) -> None:
        """The adversary's context in a round, and its means."""
        now.context[:] = sent_context(self.rule, self.state.sums, candidates, self.truth)
        check_rises(self.spec.noise_scale, now.context)
        means = self.world.means(self.spec, self.truth, now.context)
        now.reward_mean[:], now.cost_mean[:] = checked_means(self.world, means, now.cost_mean.shape)

    def _account(self, done: int, rounds: Exposure, outcome: Outcome, steps: Step) -> None:
        """Score a chunk."""
        step = len(steps.full)
        numbers = np.arange(done + 1, done + step + 1, dtype=float)[:, None, None]
        cost = outcome.cost if self.spec.threshold_on == "measured" else outcome.true_cost
        require(all_finite(cost), "dose", self.dose.to_dict(), "gave costs that are not finite")
        marks = self.marks(done, step)
        for name, values in self.rule.score(numbers, rounds, cost, steps).items():
            if name in CURVES:
                running = self.totals[name] + np.cumsum(np.broadcast_to(values, steps.full.shape), axis=0)
                self.curves[name].append(running[marks - 1])
                self.totals[name] = running[-1]
            else:
                self.totals[name] = self.totals[name] + values.sum(axis=0)

    def stop_at(self, done: int) -> None:
        """Make `done`, the end of a chunk, the last checkpoint."""
        reached = self.checkpoints[self.checkpoints <= done]
        if reached.size == 0 or reached[-1] < done:
            reached = np.append(reached, done)
            for name, parts in self.curves.items():
                parts.append(self.totals[name][None])
        self.checkpoints = reached

    def results(self) -> dict[str, Any]:
        shape = self.totals["regret"].shape
        found = self.policy.evidence(self.state).values()
        alarmed = np.any([np.broadcast_to(each.crossed, shape) for each in found], axis=0) if found else False
        return {
            **self.totals,
            "alarmed": np.broadcast_to(alarmed, shape).copy(),
            "checkpoints": self.checkpoints,
            **{f"{name}_curve": np.concatenate(values) for name, values in self.curves.items()},
        }


# --- Ctrl-C during `simulate`

LOGGED = "safedial.simulation.results"
"""The module that only hands on what `simulate` returns, with a log of its rounds."""


def calling_module(depth: int = 2) -> str:
    """The module that called the caller of this function, or that called `logged_simulation` if that did."""
    frame: Any = sys._getframe(depth)
    while frame.f_back is not None and frame.f_globals.get("__name__") == LOGGED:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


@contextmanager
def noted_interrupt(caller: str) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; pressed again, it interrupts at once.

    Only for a call of the user's own, in the main thread. Where a module of this package is the caller, as for a sweep,
    a plan or a comparison, the whole of that ends as ever, so that no part of it is taken for a complete one.

    Args:
        caller: the name of the module that called.
    """
    inside = caller.startswith("safedial.") and not caller.startswith("safedial.cli.")
    before: Any = signal.getsignal(signal.SIGINT)
    if inside or threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            before(number, frame)
        pressed.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
