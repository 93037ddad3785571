"""The loop over the rounds of a simulation: decide, learn, score. Every other axis is an array axis.

Arrays are (rows, seeds), with a row for each spec; if doses cannot influence what is learned, rows share one estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice, choose
from safedial.core.confidence import Bounds
from safedial.core.dose import Dose
from safedial.core.estimate import Estimate, Prediction, sample_weight
from safedial.core.safe_set import SafeSet
from safedial.core.scale import check_rises
from safedial.core.spec import SafetySpec
from safedial.core.spec_grid import as_columns, check_grids
from safedial.core.tighter_radii import Learner, Tight
from safedial.errors import require
from safedial.policies import Policy, learner_of, rows_learn_alike
from safedial.policies.clairvoyant import clairvoyant
from safedial.policies.several_costs import with_costs
from safedial.worlds.world import NOISY, STREAMS, Draws, Exposure, Outcome, World, generators

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

CURVES = ("violations", "regret", "reward", "exact_clairvoyant_reward")
"""The totals that are kept at checkpoints too."""


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
        self.world, self.spec, self.dose, self.observe = world, as_columns(spec), dose, observe
        self.policy = policy = with_costs(policy, self.spec)
        self.rngs = generators(seeds)
        self.truth: Any = world.draw_truth(spec, self.rngs)
        rows = check_grids(spec, several=True)
        alike = world.proportional and rows_learn_alike(policy, spec, dose, world.baseline_cost)
        self.batch = 1 if alike else rows
        self.learner, self.asked = _bound(learner_of(policy, self.spec), self.spec, seeds)
        self.state = self.learner.init(world.dim, ridge=spec.ridge, batch=(self.batch, len(seeds)))
        self.checkpoints = np.unique(np.linspace(0, rounds, points + 1).round().astype(np.int64))[1:]
        self.totals = {name: np.zeros((rows, len(seeds))) for name in TOTALS}
        self.curves: dict[str, list[Array]] = {name: [] for name in CURVES}
        self.exact = clairvoyant(binary_cost=world.binary_cost)
        self.drawn = 0

    def draw(self, step: int) -> Draws:
        """Draw the next chunk's randomness, one chunk ahead, in a separate thread."""
        self.drawn += step
        return self.world.draw_chunk(self.spec, self.rngs, step, self.drawn - step)

    def chunk(self, done: int, draws: Draws) -> None:
        rounds = self._exposure(draws)
        gain, harm, adversarial = rounds.reward_intensity, rounds.cost_intensity, self.world.adversarial
        full = np.empty(harm.shape, dtype=bool)
        # Where rows learn alike, the learner is shown the first one's rounds.
        shown = rounds._replace(reward_intensity=gain[:, : self.batch], cost_intensity=harm[:, : self.batch])
        for index, now in enumerate(map(Exposure._make, zip(*shown, strict=True))):
            coin = draws.coin[index]
            if adversarial:
                self._send(now, draws.context[index])
            prediction, choice = self._decide(done + index + 1, now, coin)
            harm[index], gain[index] = self._applied(choice.intensity)
            full[index] = choice.intensity >= choice.safe.intensity
            if self.policy.learns:
                self._learn(now, prediction, choice, coin)
        outcome = self.world.outcome(self.spec, rounds)
        self._account(done, rounds, outcome, full)
        if self.record:
            self.record(Played(rounds.context, self.dose.cost.action(harm), outcome.reward, outcome.cost))

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
            reward_mean, cost_mean = means[0][:, None], means[1][:, None]
        return Exposure(context, reward_mean, cost_mean, gain, harm, *noise)

    def _send(self, now: Exposure, candidates: Array) -> None:
        """The adversary's context in a round, and its means."""
        state = self.state.estimate if isinstance(self.state, Tight) else self.state
        lifted = Estimate(*(part[:, :, None] for part in state))
        offered = np.broadcast_to(candidates, (self.batch, *candidates.shape))
        now.context[:] = self.world.next_context(offered, self.truth, partial(self.policy.predict, lifted))
        check_rises(self.spec.noise_scale, now.context)
        now.reward_mean[:], now.cost_mean[:] = self.world.means(self.spec, self.truth, now.context)

    def _decide(self, number: int, now: Exposure, coin: Array) -> tuple[Any, Choice]:
        if self.policy.knows_truth:
            prediction = _exact_prediction(now)
            choice = self._knowing(self.policy, prediction, now, number)
        else:
            asked = {"coin": coin} if "coin" in self.asked.predict else {}
            prediction = self.learner.predict(self.state, now.context, **asked)
            choice = self.policy.decide(
                prediction, self.spec, round=number, coin=coin, baseline_cost=self.world.baseline_cost
            )
        if self.observe:
            self.observe(Round(number, now.context, self.state, prediction, choice, self.truth))
        if not np.all(choice.safe.certified):
            self.totals["uncertified_rounds"] += ~np.asarray(choice.safe.certified)
        return prediction, choice

    def _knowing(self, policy: Policy, truth: Prediction, now: Exposure, number: Any) -> Choice:
        """The choice of a policy that knows the truth: its own rule, which takes costs to be in proportion to the
        intensity, or where they are not what the world knows to be best.
        """
        one = self.world.proportional and self.spec.costs is None
        known = None if one else self.world.exact_intensity(self.spec, now)
        if known is not None:
            safe = SafeSet(known, np.full(known.shape, True))
            return choose(now.reward_mean, safe, Bounds(now.reward_mean, now.cost_mean, 0.0, 0.0, False))
        return policy.decide(truth, self.spec, round=number, coin=0.0, baseline_cost=self.world.baseline_cost)

    def _applied(self, intensity: Array) -> tuple[Array, Array]:
        if self.dose.is_identity:
            return intensity, intensity
        action = self.dose.cost.action(intensity)
        return self.dose.cost.effect(action), self.dose.reward.effect(action)

    def _learn(self, now: Exposure, prediction: Any, choice: Choice, coin: Array) -> None:
        weight = sample_weight(self.spec, now.reward_intensity, now.cost_intensity, now.context)
        if choice.learn is not True:
            weight = weight * choice.learn
        reward, cost, event, left_out = self.world.normalised(self.spec, now, weight)
        if left_out is not None:
            weight = np.where(left_out, 0.0, weight)
        given = {"coin": coin, "intensity": now.cost_intensity, "measured": event, "left_out": left_out}
        given["reward_intensity"] = now.reward_intensity
        asked = {name: value for name, value in given.items() if name in self.asked.update}
        cost = event if self.policy.binary_cost else cost
        self.state = self.learner.update(self.state, prediction, reward, cost, weight, **asked)
        self.totals["informative_rounds"] += weight > 0

    def _account(self, done: int, rounds: Exposure, outcome: Outcome, full: Any) -> None:
        """Score a chunk: realized cost against τ, noise-free reward against the clairvoyant's."""
        step = len(full)
        numbers = np.arange(done + 1, done + step + 1, dtype=float)[:, None, None]
        context, reward_mean, cost_mean = rounds.context, rounds.reward_mean, rounds.cost_mean
        truth = Prediction(reward_mean, cost_mean, 0.0, 0.0, 0.0, 0.0, self.world.dim, context=context)
        best = self._knowing(self.exact, truth, rounds, numbers).intensity
        cost = outcome.cost if self.spec.threshold_on == "measured" else outcome.true_cost
        over, finite = exceeded(self.spec, cost)
        require(finite, "dose", self.dose.to_dict(), "gave costs that are not finite")
        reward = rounds.reward_intensity * reward_mean
        optimal = self._applied(best)[1] * reward_mean
        known, exact = self.world.exact_intensity(self.spec, rounds), optimal
        if known is not None:
            exact = self._applied(np.where(reward_mean >= 0.0, known, 0.0))[1] * reward_mean
        marks = self.checkpoints[(self.checkpoints > done) & (self.checkpoints <= done + step)] - done
        for name, values in zip(CURVES, (over.astype(float), optimal - reward, reward, exact), strict=True):
            running = self.totals[name] + np.cumsum(np.broadcast_to(values, full.shape), axis=0)
            self.curves[name].extend(running[mark - 1] for mark in marks)
            self.totals[name] = running[-1]
        self.totals["clairvoyant_reward"] += optimal.sum(axis=0)
        self.totals["full_dose_rounds"] += full.sum(axis=0)
        self.totals["full_dose_violations"] += (full & over).sum(axis=0)

    def results(self) -> dict[str, Any]:
        shape = self.totals["regret"].shape
        alarmed = self.policy.alarmed(self.state) if self.policy.alarmed else False
        return {
            **self.totals,
            "alarmed": np.broadcast_to(alarmed, shape).copy(),
            "checkpoints": self.checkpoints,
            **{f"{name}_curve": np.stack(values) for name, values in self.curves.items()},
        }


def _bound(learner: Learner, spec: SafetySpec, seeds: list[int]) -> tuple[Learner, Learner]:
    """A learner, with the spec and generators if it needs them, and the names of the arguments that its parts need."""
    asked = [signature(part).parameters.keys() for part in learner]
    fixed: dict[str, Any] = {"spec": spec}
    if any("rngs" in names for names in asked):
        fixed["rngs"] = [np.random.default_rng([seed, len(STREAMS)]) for seed in seeds]
    given = ({name: fixed[name] for name in fixed if name in names} for names in asked)
    parts = [partial(part, **each) if each else part for part, each in zip(learner, given, strict=True)]
    return Learner(*parts), Learner(*asked)


def exceeded(spec: SafetySpec, cost: Any) -> tuple[Any, bool]:
    """Whether a cost, or any of several, lies on the wrong side of its threshold; and whether all are finite."""
    if spec.costs is None:
        return cost > spec.threshold, bool(np.all(np.isfinite(cost)))
    over = np.stack([each.exceeded(cost[name]) for name, each in spec.costs.items()]).any(axis=0)
    return over, all(bool(np.all(np.isfinite(each))) for each in cost.values())


def _exact_prediction(now: Exposure) -> Prediction:
    nothing = np.zeros(now.reward_mean.shape)
    norm, dim = np.linalg.norm(now.context, axis=-1), now.context.shape[-1]
    return Prediction(now.reward_mean, now.cost_mean, nothing, norm, nothing, nothing, dim, context=now.context)
