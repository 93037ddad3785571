"""Rounds × seeds × specs in one batch.

The loop walks rounds; everything else is an axis. Arrays are (specs, seeds) with one row for each value of the swept
spec fields; all rows see the same contexts and noise (common random numbers). Where the doses cannot influence what is
learned, which is so without sensor noise and baseline cost, because R/g and C/g do not depend on the dose, all
rows share one estimate, and a grid of thresholds costs little more than one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.confidence import check_dim
from safedial.core.dose import Dose, DoseCurve, as_dose
from safedial.core.estimate import Estimate, Prediction, sample_weight
from safedial.core.spec import NUMBERS, SafetySpec
from safedial.errors import require
from safedial.policies import Policy, as_policy
from safedial.policies.clairvoyant import clairvoyant
from safedial.worlds.linear import Draws, LinearWorld, Truth, draw_chunk, draw_truth, generators, worst_context

Array = NDArray[np.float64]

CHUNK = 256
"""Rounds drawn and accounted for at a time. Results do not depend on it."""

SWEPT = ("threshold", "violation_risk", "estimation_risk")


class Round(NamedTuple):
    """What an `observe` callback sees, before the round's update."""

    number: int
    context: Array
    estimate: Any
    prediction: Prediction
    choice: Choice
    truth: Truth


@dataclass(frozen=True)
class Simulation:
    """Outcomes by (spec row, seed), and curves by (checkpoint, spec row, seed). Rewards and regret are noise-free."""

    policy: Policy
    world: LinearWorld
    spec: SafetySpec
    dose: Dose
    rounds: int
    seeds: list[int]
    seconds: float
    violations: Array
    informative_rounds: Array
    regret: Array
    reward: Array
    clairvoyant_reward: Array
    uncertified_rounds: Array
    checkpoints: NDArray[np.int64]
    regret_curve: Array
    violations_curve: Array

    def __repr__(self) -> str:
        rows, seeds = self.violations.shape
        rate = self.violations.mean() / self.rounds
        return (
            f"Simulation(policy={self.policy.name}, dim={self.world.dim}, specs={rows}, seeds={seeds}, "
            f"rounds={self.rounds}, violation_rate={rate:.4g}, regret={self.regret.mean():.4g})"
        )

    @property
    def rounds_per_second(self) -> float:
        return self.violations.size * self.rounds / self.seconds

    def frame(self) -> Any:
        """One row for each (spec row, seed), as a pandas table."""
        from safedial.errors import import_extra

        pandas = import_extra("pandas", "data")
        rows, seeds = self.violations.shape
        table = {"policy": self.policy.name, "dim": self.world.dim, "rounds": self.rounds}
        table |= {name: np.repeat(np.broadcast_to(getattr(self.spec, name), rows), seeds) for name in SWEPT}
        table["seed"] = np.tile(self.seeds, rows)
        table["violation_rate"] = (self.violations / self.rounds).ravel()
        for name in ("regret", "reward", "clairvoyant_reward", "informative_rounds"):
            table[name] = getattr(self, name).ravel()
        return pandas.DataFrame(table)


def simulate(
    policy: str | Policy,
    world: LinearWorld,
    spec: SafetySpec,
    *,
    rounds: int,
    seeds: int | Sequence[int],
    dose: DoseCurve | Dose | None = None,
    points: int = 200,
    progress: Callable[[int], None] | None = None,
    observe: Callable[[Round], None] | None = None,
) -> Simulation:
    """Run `policy` in `world` for `rounds` rounds and every seed; `spec.threshold` and the risks may be 1-d arrays.

    Args:
        seeds: how many (0, 1, …), or which.
        dose: the true dose curves, which the learner knows; the identity by default.
        points: how many checkpoints the curves have.
        progress: called with the number of rounds just finished.
        observe: called every round with a `Round`, before its update.

    >>> from safedial.policies import hp_ucb
    >>> spec = SafetySpec(threshold=[0.1, 0.5], violation_risk=0.01, estimation_risk=0.01, reward_noise=1,
    ...                   cost_noise=1, coefficient_bound=1, context_bound=1)
    >>> simulate(hp_ucb(), LinearWorld(dim=5), spec, rounds=100, seeds=3).violations.shape
    (2, 3)
    """
    policy, dose = as_policy(policy), as_dose(dose)
    chosen = _check(policy, world, spec, rounds, seeds)
    started = time.perf_counter()
    run = _Run(policy, world, _as_columns(spec), dose, chosen, rounds, points, observe)
    starts = range(0, rounds, CHUNK)
    with ThreadPoolExecutor(max_workers=1) as ahead:
        draws = ahead.submit(run.draw, min(CHUNK, rounds))
        for start in starts:
            ready = draws.result()
            after = start + len(ready.coin)
            if after < rounds:
                draws = ahead.submit(run.draw, min(CHUNK, rounds - after))
            run.chunk(start, ready)
            if progress:
                progress(len(ready.coin))
    return Simulation(
        policy=policy,
        world=world,
        spec=spec,
        dose=dose,
        rounds=rounds,
        seeds=chosen,
        seconds=time.perf_counter() - started,
        **run.results(),
    )


class _Run:
    """The state of one simulation between chunks."""

    def __init__(
        self,
        policy: Policy,
        world: LinearWorld,
        spec: SafetySpec,
        dose: Dose,
        seeds: list[int],
        rounds: int,
        points: int,
        observe: Callable[[Round], None] | None,
    ) -> None:
        self.policy, self.world, self.spec, self.dose, self.observe = policy, world, spec, dose, observe
        self.rngs = generators(seeds)
        self.truth = draw_truth(world, spec, self.rngs)
        rows = _rows(spec)
        self.shared = rows == 1 or doses_cannot_teach(world, spec, dose)
        self.state = policy.init(world.dim, ridge=spec.ridge, batch=(1 if self.shared else rows, len(seeds)))
        self.checkpoints = np.unique(np.linspace(0, rounds, points + 1).round().astype(np.int64))[1:]
        self.totals = {
            name: np.zeros((rows, len(seeds)))
            for name in (
                "violations",
                "informative_rounds",
                "uncertified_rounds",
                "regret",
                "reward",
                "clairvoyant_reward",
            )
        }
        self.curves: dict[str, list[Array]] = {"regret": [], "violations": []}
        self.exact = clairvoyant()

    def draw(self, step: int) -> Draws:
        """The next chunk's randomness; runs one chunk ahead, in a thread of its own."""
        return draw_chunk(self.world, self.spec, self.rngs, step)

    def chunk(self, done: int, draws: Draws) -> None:
        step = len(draws.coin)
        rows, seeds = self.totals["regret"].shape
        intensity = np.empty((step, rows, seeds))
        batch = 1 if self.shared else rows
        reward_mean, cost_mean = np.empty((2, step, batch if self.world.adversarial else 1, seeds))
        if not self.world.adversarial:
            reward_mean[:, 0] = np.vecdot(draws.context, self.truth.reward_coef)
            cost_mean[:, 0] = np.vecdot(draws.context, self.truth.cost_coef)
        for index in range(step):
            context = self._context(draws, index)
            if self.world.adversarial:
                reward_mean[index] = np.vecdot(context, self.truth.reward_coef)
                cost_mean[index] = np.vecdot(context, self.truth.cost_coef)
            number = done + index + 1
            intensity[index] = self._round(number, context, draws, index, reward_mean[index], cost_mean[index])
        self._account(done, draws, intensity, reward_mean, cost_mean)

    def _context(self, draws: Draws, index: int) -> Array:
        if not self.world.adversarial:
            return draws.context[index][None]
        lifted = _lift(self.state)
        candidates = np.broadcast_to(draws.context[index], (*self.state.log_det.shape, *draws.context.shape[2:]))
        return worst_context(candidates, self.truth, self.policy.predict(lifted, candidates))

    def _round(
        self, number: int, context: Array, draws: Draws, index: int, reward_mean: Array, cost_mean: Array
    ) -> Array:
        """Decide, then learn from the normalised outcomes. Returns the cost's intensity, (rows, seeds)."""
        if self.policy.knows_truth:
            prediction = _exact_prediction(context, reward_mean, cost_mean)
        else:
            prediction = self.policy.predict(self.state, context)
        choice = self.policy.decide(
            prediction, self.spec, round=number, coin=draws.coin[index], baseline_cost=self.world.baseline_cost
        )
        if self.observe:
            self.observe(Round(number, context, self.state, prediction, choice, self.truth))
        if not np.all(choice.safe.certified):
            self.totals["uncertified_rounds"] += ~np.asarray(choice.safe.certified)
        cost_intensity, reward_intensity = self._applied(choice.intensity)
        if self.policy.learns:
            self._learn(choice, prediction, draws, index, reward_mean, cost_mean, reward_intensity, cost_intensity)
        return np.broadcast_to(cost_intensity, self.totals["regret"].shape)

    def _applied(self, intensity: Array) -> tuple[Array, Array]:
        if self.dose.is_identity:
            return intensity, intensity
        action = self.dose.cost.action(intensity)
        return self.dose.cost.effect(action), self.dose.reward.effect(action)

    def _learn(
        self,
        choice: Choice,
        prediction: Prediction,
        draws: Draws,
        index: int,
        reward_mean: Array,
        cost_mean: Array,
        reward_intensity: Array,
        cost_intensity: Array,
    ) -> None:
        used = slice(0, 1) if self.shared else slice(None)
        reward_intensity, cost_intensity = reward_intensity[used], cost_intensity[used]
        weight = sample_weight(self.spec, reward_intensity, cost_intensity)
        if choice.learn is not True:
            weight = weight * choice.learn
        reward = reward_mean + draws.reward_noise[index]
        cost = cost_mean + draws.cost_noise[index]
        if self.spec.reward_sensor_noise or self.spec.cost_sensor_noise:
            reward = reward + draws.reward_sensor[index] / np.where(weight > 0, reward_intensity, 1.0)
            cost = cost + draws.cost_sensor[index] / np.where(weight > 0, cost_intensity, 1.0)
        self.state = self.policy.update(self.state, prediction, reward, cost, weight)
        self.totals["informative_rounds"] += weight > 0

    def _account(self, done: int, draws: Draws, intensity: Array, reward_mean: Array, cost_mean: Array) -> None:
        """Score a chunk: realized cost against τ, noise-free reward against the clairvoyant's."""
        step = len(intensity)
        numbers = np.arange(done + 1, done + step + 1, dtype=float)[:, None, None]
        truth = Prediction(reward_mean, cost_mean, 0.0, 0.0, 0.0, 0.0, self.world.dim)
        best = self.exact.decide(
            truth, self.spec, round=numbers, coin=0.0, baseline_cost=self.world.baseline_cost
        ).intensity
        reward_intensity = intensity
        if not self.dose.is_identity:
            reward_intensity = self.dose.reward.effect(self.dose.cost.action(intensity))
            best = self.dose.reward.effect(self.dose.cost.action(best))
        sensor = draws.cost_sensor[:, None] if self.spec.threshold_on == "measured" else 0.0
        cost = self.world.baseline_cost + intensity * (cost_mean + draws.cost_noise[:, None]) + sensor
        require(np.all(np.isfinite(cost)), "dose", self.dose.to_dict(), "gave costs that are not finite")
        reward = reward_intensity * reward_mean
        optimal = best * reward_mean
        parts = {"violations": (cost > self.spec.threshold).astype(float), "regret": optimal - reward}
        marks = self.checkpoints[(self.checkpoints > done) & (self.checkpoints <= done + step)] - done
        for name, values in parts.items():
            running = self.totals[name] + np.cumsum(values, axis=0)
            self.curves[name].extend(running[mark - 1] for mark in marks)
            self.totals[name] = running[-1]
        self.totals["reward"] += reward.sum(axis=0)
        self.totals["clairvoyant_reward"] += optimal.sum(axis=0)

    def results(self) -> dict[str, Any]:
        return {
            **self.totals,
            "checkpoints": self.checkpoints,
            "regret_curve": np.stack(self.curves["regret"]),
            "violations_curve": np.stack(self.curves["violations"]),
        }


def doses_cannot_teach(world: LinearWorld, spec: SafetySpec, dose: Dose) -> bool:
    """Whether every row of a sweep learns the same: R/g and C/g free of the dose, z > 0 a matter of reward alone."""
    plain = spec.reward_sensor_noise == 0 and spec.cost_sensor_noise == 0 and world.baseline_cost == 0
    return plain and dose.is_identity and np.ndim(spec.estimation_risk) == 0


def _check(policy: Policy, world: LinearWorld, spec: SafetySpec, rounds: int, seeds: int | Sequence[int]) -> list[int]:
    require(isinstance(world, LinearWorld), "world", world, "must be a LinearWorld")
    require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
    require(isinstance(rounds, int) and rounds >= 1, "rounds", rounds, "must be a whole number >= 1")
    listed = isinstance(seeds, (int, Sequence, range)) and not isinstance(seeds, (bool, str))
    require(listed, "seeds", seeds, "must be a count >= 1, or a list of numbers >= 0")
    chosen = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
    require(len(chosen) >= 1 and min(chosen) >= 0, "seeds", seeds, "must be a count >= 1, or a list of numbers >= 0")
    check_dim(policy.options.get("radius"), world.dim)
    for field in fields(spec):
        value = getattr(spec, field.name)
        allowed = 1 if field.name in SWEPT else 0
        if field.name in NUMBERS:
            require(
                np.ndim(value) <= allowed, field.name, value, f"may have at most {allowed} dimensions in a simulation"
            )
    return chosen


def _rows(spec: SafetySpec) -> int:
    return max(np.size(getattr(spec, name)) for name in SWEPT)


def _as_columns(spec: SafetySpec) -> SafetySpec:
    """Swept fields as (rows, 1), to broadcast against (rows, seeds)."""
    changes = {name: np.asarray(value)[:, None] for name in SWEPT if np.ndim(value := getattr(spec, name))}
    return replace(spec, **changes)


def _lift(estimate: Estimate) -> Estimate:
    """A candidates axis behind the batch axes."""
    return Estimate(
        estimate.inverse[:, :, None],
        estimate.reward_coef[:, :, None],
        estimate.cost_coef[:, :, None],
        estimate.log_det[:, :, None],
        estimate.informative_rounds[:, :, None],
    )


def _exact_prediction(context: Array, reward_mean: Array, cost_mean: Array) -> Prediction:
    nothing = np.zeros(reward_mean.shape)
    norm = np.linalg.norm(context, axis=-1)
    return Prediction(reward_mean, cost_mean, nothing, norm, nothing, nothing, context.shape[-1])
