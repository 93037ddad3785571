"""The paper's synthetic world: linear reward and cost, unit contexts, noise that scales with the dose.

    R = g_r(α)(⟨x,θ*⟩ + ξ_r) + ε_r          C = b₀ + g_c(α)(⟨x,μ*⟩ + ξ_c) + ε_c

θ*, μ* and the contexts are standard normal vectors scaled to norm S, S and L (section Experimental Results).
Contexts may instead be chosen by an adversary that sees the learner's estimate: of `CANDIDATES` fresh draws it sends
the one whose cost the learner underestimates most, in units of the confidence width. Or they drift: before scaling, the
first coordinate of round t is multiplied by t/`DRIFT`, so contexts turn towards ± the first axis, and rounds are not
exchangeable; with noise `context-scale` they come from where costs are the most uncertain.

Every number comes from a generator keyed by (seed, stream), drawn in order of rounds: but for rounding, results do not
depend on how seeds are batched, how rounds are chunked, or which engine asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.estimate import Prediction
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.worlds.noise import NOISES, context_scale

Array = NDArray[np.float64]

CANDIDATES = 4
DRIFT = 1000
STREAMS = ("truth", "context", "reward_noise", "cost_noise", "coin", "reward_sensor", "cost_sensor")


class Truth(NamedTuple):
    """The unknown coefficients, (seeds, d) each."""

    reward_coef: Array
    cost_coef: Array


class Draws(NamedTuple):
    """A chunk of rounds: arrays (rounds, seeds, ...)."""

    context: Array
    reward_noise: Array
    cost_noise: Array
    coin: Array
    reward_sensor: Array
    cost_sensor: Array


@dataclass(frozen=True, kw_only=True)
class LinearWorld:
    """The structure of a linear world; the constants are the spec's.

    Args:
        dim: d ≥ 1.
        noise: a family of `NOISES`, for both targets; scaled by the spec's κ.
        contexts: "iid", "adversarial" or "drift".
        mean: "linear", or "sine" for S·sin(π⟨x,θ⟩/(SL)), with which a linear learner is wrong.
        baseline_cost: b₀, known and constant.
    """

    dim: int
    noise: str = "gaussian"
    contexts: Literal["iid", "adversarial", "drift"] = "iid"
    baseline_cost: float = 0.0
    mean: Literal["linear", "sine"] = "linear"

    def __post_init__(self) -> None:
        whole = isinstance(self.dim, int) and not isinstance(self.dim, bool)
        require(whole and self.dim >= 1, "dim", self.dim, "must be a whole number >= 1")
        require(self.noise in NOISES, "noise", self.noise, "must be one of " + ", ".join(NOISES))
        kinds = ("iid", "adversarial", "drift")
        require(self.contexts in kinds, "contexts", self.contexts, "must be 'iid', 'adversarial' or 'drift'")
        require(self.mean in ("linear", "sine"), "mean", self.mean, "must be 'linear' or 'sine'")
        chosen = self.adversarial and self.noise == "context-scale"
        require(not chosen, "noise", self.noise, "needs iid contexts", "choose another family for an adversary")
        number = isinstance(self.baseline_cost, (int, float)) and not isinstance(self.baseline_cost, bool)
        finite = number and np.isfinite(self.baseline_cost)
        require(finite, "baseline_cost", self.baseline_cost, "must be a finite number")

    binary_cost = False

    @property
    def adversarial(self) -> bool:
        return self.contexts == "adversarial"

    def draw_truth(self, spec: SafetySpec, rngs: dict[str, list[np.random.Generator]]) -> Truth:
        """θ* and μ*, uniform on the sphere of radius S."""
        pairs = np.stack([rng.standard_normal((2, self.dim)) for rng in rngs["truth"]])
        pairs *= spec.coefficient_bound / np.linalg.norm(pairs, axis=-1, keepdims=True)
        return Truth(pairs[:, 0], pairs[:, 1])

    def draw_chunk(
        self, spec: SafetySpec, rngs: dict[str, list[np.random.Generator]], rounds: int, done: int = 0
    ) -> Draws:
        """The `rounds` rounds after `done`, of every seed; with a candidates axis where an adversary chooses."""
        noise = NOISES[self.noise]
        seeds = len(rngs["context"])
        normals = np.empty((seeds, rounds, CANDIDATES if self.adversarial else 1, self.dim))
        numbers = {stream: np.zeros((seeds, rounds)) for stream in STREAMS[2:]}
        scales = {
            "reward_noise": spec.reward_noise,
            "cost_noise": spec.cost_noise,
            "reward_sensor": spec.reward_sensor_noise,
            "cost_sensor": spec.cost_sensor_noise,
        }
        for row in range(seeds):
            rngs["context"][row].standard_normal(out=normals[row])
            rngs["coin"][row].random(out=numbers["coin"][row])
            for stream, scale in scales.items():
                if scale:
                    numbers[stream][row] = noise(rngs[stream][row], rounds) * scale
        if self.contexts == "drift":
            normals[..., 0] *= np.arange(done + 1, done + rounds + 1)[:, None] / DRIFT
        length = (spec.context_bound * (1.0 - 1e-15)) / np.sqrt(np.vecdot(normals, normals))
        context = np.ascontiguousarray(np.swapaxes(normals * length[..., None], 0, 1))
        by_round = {stream: np.ascontiguousarray(values.T) for stream, values in numbers.items()}
        if self.adversarial:
            return Draws(context, **by_round)
        for stream in ("reward_noise", "cost_noise"):
            by_round[stream] = by_round[stream] * self.noise_scale(spec, context[:, :, 0])
        return Draws(context[:, :, 0], **by_round)

    def means(self, spec: SafetySpec, truth: Truth, context: Array) -> tuple[Array, Array]:
        """The means of R/g and C/g at contexts (..., d)."""
        linear = (np.vecdot(context, coef) for coef in truth)
        if self.mean == "linear":
            reward, cost = linear
            return reward, cost
        size = spec.coefficient_bound
        reward, cost = (size * np.sin(np.pi * value / (size * spec.context_bound)) for value in linear)
        return reward, cost

    def realized_cost(self, intensity: Any, mean: Any, noise: Any) -> Array:
        """C without baseline and sensor error."""
        return intensity * (mean + noise)

    def noise_scale(self, spec: SafetySpec, context: Array) -> float | Array:
        """What the noise is multiplied by at a context: 1 but for `context-scale`."""
        return context_scale(context, spec.context_bound) if self.noise == "context-scale" else 1.0


def generators(seeds: list[int]) -> dict[str, list[np.random.Generator]]:
    """One generator for each (stream, seed)."""
    return {stream: [np.random.default_rng([seed, number]) for seed in seeds] for number, stream in enumerate(STREAMS)}


def worst_context(candidates: Array, truth: Truth, prediction: Prediction) -> Array:
    """The adversary's pick, (..., d) from (..., candidates, d): the largest ⟨x, μ* − μ̂⟩/width."""
    excess = (candidates @ truth.cost_coef[..., None])[..., 0] - prediction.cost
    pick: Any = np.argmax(excess / np.maximum(prediction.width, 1e-300), axis=-1)
    return np.take_along_axis(candidates, pick[..., None, None], axis=-2)[..., 0, :]
