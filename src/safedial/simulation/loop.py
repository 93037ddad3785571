"""The loop over rounds of one simulation: decide, learn, account; every other axis is an array's.

Arrays are (rows, seeds), a row for each spec; where doses cannot influence what is learned, rows share one estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.dose import Dose
from safedial.core.estimate import Estimate, Prediction, sample_weight
from safedial.core.safe_set import largest_safe_intensity
from safedial.core.scale import check_rises
from safedial.core.spec import SafetySpec
from safedial.core.spec_grid import as_columns, check_grids
from safedial.core.tighter_radii import Tight
from safedial.errors import require
from safedial.policies import Policy, learner_of, rows_learn_alike
from safedial.policies.clairvoyant import clairvoyant
from safedial.worlds import World
from safedial.worlds.linear import Draws, generators, worst_context
from safedial.worlds.noise import quantile

Array = NDArray[np.float64]

TOTALS = (
    "violations",
    "informative_rounds",
    "uncertified_rounds",
    "full_dose_rounds",
    "full_dose_violations",
    "regret",
    "reward",
    "clairvoyant_reward",
    "exact_clairvoyant_reward",
)


class Round(NamedTuple):
    """What an `observe` callback sees, before the round's update."""

    number: int
    context: Array
    estimate: Any
    prediction: Prediction
    choice: Choice
    truth: Any


class Played(NamedTuple):
    """What a `record` callback sees of a chunk: arrays (rounds, rows, seeds), contexts with a last axis."""

    context: Array
    action: Array
    reward: Array
    cost: Array


class Batch:
    """The state of one simulation between chunks."""

    def __init__(
        self,
        policy: Policy,
        world: World,
        spec: SafetySpec,
        *,
        dose: Dose,
        seeds: list[int],
        rounds: int,
        points: int,
        observe: Callable[[Round], None] | None,
        record: Callable[[Played], None] | None = None,
    ) -> None:
        self.record = record
        self.policy, self.world, self.spec, self.dose, self.observe = policy, world, as_columns(spec), dose, observe
        self.rngs = generators(seeds)
        self.truth: Any = world.draw_truth(spec, self.rngs)
        rows = check_grids(spec)
        self.shared = rows == 1 or rows_learn_alike(policy, spec, dose, world.baseline_cost)
        self.learner = learner_of(policy, self.spec)
        self.state = self.learner.init(world.dim, ridge=spec.ridge, batch=(1 if self.shared else rows, len(seeds)))
        self.checkpoints = np.unique(np.linspace(0, rounds, points + 1).round().astype(np.int64))[1:]
        self.totals = {name: np.zeros((rows, len(seeds))) for name in TOTALS}
        self.curves: dict[str, list[Array]] = {"regret": [], "violations": []}
        self.exact = clairvoyant(binary_cost=world.binary_cost)
        self.drawn = 0

    def draw(self, step: int) -> Draws:
        """The next chunk's randomness; runs one chunk ahead, in a thread of its own."""
        self.drawn += step
        return self.world.draw_chunk(self.spec, self.rngs, step, self.drawn - step)

    def chunk(self, done: int, draws: Draws) -> None:
        step = len(draws.coin)
        rows, seeds = self.totals["regret"].shape
        harm, full = np.empty((step, rows, seeds)), np.empty((step, rows, seeds), dtype=bool)
        gain = harm if self.dose.is_identity else np.empty_like(harm)
        self.heights = np.empty((2, *harm.shape)) if self.spec.noise_scale else None
        batch = 1 if self.shared else rows
        reward_mean, cost_mean = np.empty((2, step, batch if self.world.adversarial else 1, seeds))
        if not self.world.adversarial:
            reward_mean[:, 0], cost_mean[:, 0] = self.world.means(self.spec, self.truth, draws.context)
        seen = []
        for index in range(step):
            context = self._context(draws, index)
            if self.record or self.heights is not None:
                seen.append(context)
            if self.world.adversarial:
                reward_mean[index], cost_mean[index] = self.world.means(self.spec, self.truth, context)
            number = done + index + 1
            harm[index], gain[index], full[index] = self._round(
                number, context, draws, index, reward_mean=reward_mean[index], cost_mean=cost_mean[index]
            )
        self._account(
            done,
            draws,
            harm,
            gain,
            full,
            reward_mean=reward_mean,
            cost_mean=cost_mean,
            contexts=np.stack(seen) if seen else None,
        )
        if self.record:
            reward = gain * reward_mean + self._noise(0, gain, draws.reward_noise) + draws.reward_sensor[:, None]
            cost = self._realized(harm, cost_mean, draws)
            measured = self.world.baseline_cost + cost + draws.cost_sensor[:, None]
            self.record(Played(np.stack(seen), self.dose.cost.action(harm), reward, measured))

    def _noise(self, target: int, intensity: Array, noise: Array) -> Array:
        """The noise of a chunk's outcomes: in proportion to the intensity, or by the spec's scale."""
        return (intensity if self.heights is None else self.heights[target]) * noise[:, None]

    def _realized(self, harm: Array, cost_mean: Array, draws: Draws) -> Array:
        if self.heights is None:
            return self.world.realized_cost(harm, cost_mean, draws.cost_noise[:, None])
        return harm * cost_mean + self._noise(1, harm, draws.cost_noise)

    def _context(self, draws: Draws, index: int) -> Array:
        if not self.world.adversarial:
            return draws.context[index][None]
        state = self.state.estimate if isinstance(self.state, Tight) else self.state
        lifted = _lift(state)
        candidates = np.broadcast_to(draws.context[index], (*state.log_det.shape, *draws.context.shape[2:]))
        return worst_context(candidates, self.truth, self.policy.predict(lifted, candidates))

    def _round(
        self, number: int, context: Array, draws: Draws, index: int, *, reward_mean: Array, cost_mean: Array
    ) -> tuple[Array, Array, Any]:
        """Decide, then learn from the normalised outcomes. Returns the intensities of cost and reward, and where the
        safe one was played in full.
        """
        if self.policy.knows_truth:
            prediction = _exact_prediction(context, reward_mean, cost_mean)
        else:
            prediction = self.learner.predict(self.state, context)
        if self.heights is not None:
            check_rises(self.spec.noise_scale, context)
            prediction = prediction._replace(context=context)
        choice = self.policy.decide(
            prediction, self.spec, round=number, coin=draws.coin[index], baseline_cost=self.world.baseline_cost
        )
        if self.observe:
            self.observe(Round(number, context, self.state, prediction, choice, self.truth))
        if not np.all(choice.safe.certified):
            self.totals["uncertified_rounds"] += ~np.asarray(choice.safe.certified)
        cost_intensity, reward_intensity = self._applied(choice.intensity)
        if self.heights is not None and self.spec.noise_scale is not None:
            for target, intensity in enumerate((reward_intensity, cost_intensity)):
                self.heights[target, index] = self.spec.noise_scale.of(intensity, context)
        if self.policy.learns:
            self._learn(
                choice,
                prediction,
                draws,
                index,
                reward_mean=reward_mean,
                cost_mean=cost_mean,
                reward_intensity=reward_intensity,
                cost_intensity=cost_intensity,
            )
        return cost_intensity, reward_intensity, choice.intensity >= choice.safe.intensity

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
        *,
        reward_mean: Array,
        cost_mean: Array,
        reward_intensity: Array,
        cost_intensity: Array,
    ) -> None:
        used = slice(0, 1) if self.shared else slice(None)
        reward_intensity, cost_intensity = reward_intensity[used], cost_intensity[used]
        context = prediction.context if self.heights is not None else None
        weight = sample_weight(self.spec, reward_intensity, cost_intensity, context)
        if choice.learn is not True:
            weight = weight * choice.learn
        reward = reward_mean + draws.reward_noise[index]
        if self.world.binary_cost:
            self._learn_binary(
                prediction, draws, index, reward=reward, log_odds=cost_mean, weight=weight, intensity=cost_intensity
            )
            return
        cost = cost_mean + draws.cost_noise[index]
        if self.heights is not None:
            steep = [
                self.heights[target, index] / np.where(weight > 0, intensity, 1.0)
                for target, intensity in enumerate((reward_intensity, cost_intensity))
            ]
            reward, cost = (
                reward_mean + steep[0] * draws.reward_noise[index],
                cost_mean + steep[1] * draws.cost_noise[index],
            )
        if self.spec.reward_sensor_noise or self.spec.cost_sensor_noise:
            reward = reward + draws.reward_sensor[index] / np.where(weight > 0, reward_intensity, 1.0)
            cost = cost + draws.cost_sensor[index] / np.where(weight > 0, cost_intensity, 1.0)
        self.state = self.learner.update(self.state, prediction, reward, cost, weight)
        self.totals["informative_rounds"] += weight > 0

    def _learn_binary(
        self,
        prediction: Any,
        draws: Draws,
        index: int,
        *,
        reward: Array,
        log_odds: Array,
        weight: Array,
        intensity: Array,
    ) -> None:
        """A cost of 0 or 1: as it is where the policy knows of it, else divided by the intensity like any other."""
        cost = self.world.realized_cost(intensity, log_odds, draws.cost_noise[index])
        if self.policy.binary_cost:
            self.state = self.policy.update(self.state, prediction, reward, cost, weight, intensity=intensity)
        else:
            shared = cost / np.where(weight > 0, intensity, 1.0)
            self.state = self.policy.update(self.state, prediction, reward, shared, weight)
        self.totals["informative_rounds"] += weight > 0

    def _account(
        self,
        done: int,
        draws: Draws,
        harm: Array,
        gain: Array,
        full: Any,
        *,
        reward_mean: Array,
        cost_mean: Array,
        contexts: Array | None,
    ) -> None:
        """Score a chunk: realized cost against τ, noise-free reward against the clairvoyant's."""
        step = len(harm)
        numbers = np.arange(done + 1, done + step + 1, dtype=float)[:, None, None]
        truth = Prediction(reward_mean, cost_mean, 0.0, 0.0, 0.0, 0.0, self.world.dim, context=contexts)
        best = self.exact.decide(
            truth, self.spec, round=numbers, coin=0.0, baseline_cost=self.world.baseline_cost
        ).intensity
        best = self._applied(best)[1]
        sensor = draws.cost_sensor[:, None] if self.spec.threshold_on == "measured" else 0.0
        realized = self._realized(harm, cost_mean, draws)
        cost = self.world.baseline_cost + realized + sensor
        require(np.all(np.isfinite(cost)), "dose", self.dose.to_dict(), "gave costs that are not finite")
        reward = gain * reward_mean
        optimal = best * reward_mean
        over = cost > self.spec.threshold
        parts = {"violations": over.astype(float), "regret": optimal - reward}
        marks = self.checkpoints[(self.checkpoints > done) & (self.checkpoints <= done + step)] - done
        for name, values in parts.items():
            running = self.totals[name] + np.cumsum(values, axis=0)
            self.curves[name].extend(running[mark - 1] for mark in marks)
            self.totals[name] = running[-1]
        self.totals["reward"] += reward.sum(axis=0)
        self.totals["clairvoyant_reward"] += optimal.sum(axis=0)
        plain = not self.world.binary_cost and self.heights is None
        exact = optimal if not plain else self._exact_reward(draws, reward_mean, cost_mean)
        self.totals["exact_clairvoyant_reward"] += exact.sum(axis=0)
        self.totals["full_dose_rounds"] += full.sum(axis=0)
        self.totals["full_dose_violations"] += (full & over).sum(axis=0)

    def _exact_reward(self, draws: Draws, reward_mean: Array, cost_mean: Array) -> Array:
        """The reward of one who knows both means and the exact noise quantile at δ (no sensor noise, per round)."""
        margin = quantile(self.world.noise, 1.0 - self.spec.violation_risk) * self.spec.cost_noise
        scale = 1.0 if self.world.adversarial else self.world.noise_scale(self.spec, draws.context)
        room = self.spec.threshold - self.world.baseline_cost
        load = cost_mean + margin * (scale[:, None] if isinstance(scale, np.ndarray) else scale)
        safe = largest_safe_intensity(load, 0.0, threshold=room)
        return self._applied(np.where(reward_mean >= 0.0, safe.intensity, 0.0))[1] * reward_mean

    def results(self) -> dict[str, Any]:
        shape = self.totals["regret"].shape
        alarmed = self.policy.alarmed(self.state) if self.policy.alarmed else False
        return {
            **self.totals,
            "alarmed": np.broadcast_to(alarmed, shape).copy(),
            "checkpoints": self.checkpoints,
            "regret_curve": np.stack(self.curves["regret"]),
            "violations_curve": np.stack(self.curves["violations"]),
        }


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
