"""The paper's synthetic world: linear reward and cost, unit contexts, noise that scales with the dose.

    R = g_r(α)(⟨x,θ*⟩ + ξ_r) + ε_r          C = b₀ + g_c(α)(⟨x,μ*⟩ + ξ_c) + ε_c

θ*, μ* and the contexts are standard normal vectors scaled to norm S, S and L (section Experimental Results).
Contexts may instead be chosen by an adversary that sees the learner's estimate: of `CANDIDATES` fresh draws it sends
the one whose cost the learner underestimates most, in units of the confidence width. Or they drift: before scaling, the
first coordinate of round t is multiplied by t/`DRIFT`, so contexts turn towards ± the first axis, and rounds are not
exchangeable; with noise `context-scale` they come from where costs are the most uncertain.

If the spec has several costs, each has a μ* and noise of its own, and its curve where it states one; a last axis of
means and noise then has a place for each. The clairvoyant keeps each cost's share of the risk.

Every number comes from a generator keyed by (seed, stream), in order of rounds. So, up to rounding, results do not
depend on how seeds are batched, how rounds are chunked, or which engine is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.costs import split_spec
from safedial.core.estimate import Prediction
from safedial.core.namespace import namespace
from safedial.core.safe_set import largest_safe_intensity
from safedial.core.spec import SafetySpec
from safedial.errors import is_number, is_whole, require
from safedial.worlds.noise import NOISES, context_scale, quantile
from safedial.worlds.world import Exposure, Generators, Normalised, Outcome, World, normals, on_sphere

Array = NDArray[np.float64]

CANDIDATES = 4
DRIFT = 1000


class Truth(NamedTuple):
    """The unknown coefficients, (seeds, d) each; those of several costs (seeds, costs, d)."""

    reward_coef: Array
    cost_coef: Array


@dataclass(frozen=True, kw_only=True)
class LinearWorld(World):
    """The structure of a linear world; the constants are the spec's.

    Args:
        dim: d ≥ 1.
        noise: a family of `NOISES`, for both targets; scaled by the spec's κ.
        contexts: "iid", "adversarial" or "drift".
        mean: "linear", or "sine" for S·sin(π⟨x,θ⟩/(SL)), which a linear learner cannot fit.
        baseline_cost: b₀, known and constant.
    """

    dim: int
    noise: str = "gaussian"
    contexts: Literal["iid", "adversarial", "drift"] = "iid"  # pyright: ignore[reportIncompatibleVariableOverride] -- frozen
    baseline_cost: float = 0.0
    mean: Literal["linear", "sine"] = "linear"

    several_costs, proportional = True, True

    def __post_init__(self) -> None:
        require(is_whole(self.dim), "dim", self.dim, "must be a whole number >= 1")
        require(self.noise in NOISES, "noise", self.noise, "must be one of " + ", ".join(NOISES))
        kinds = ("iid", "adversarial", "drift")
        require(self.contexts in kinds, "contexts", self.contexts, "must be 'iid', 'adversarial' or 'drift'")
        require(self.mean in ("linear", "sine"), "mean", self.mean, "must be 'linear' or 'sine'")
        chosen = self.adversarial and self.noise == "context-scale"
        require(not chosen, "noise", self.noise, "needs iid contexts", "choose another family for an adversary")
        require(is_number(self.baseline_cost), "baseline_cost", self.baseline_cost, "must be a finite number")

    @property
    def adversarial(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it follows from `contexts`
        return self.contexts == "adversarial"

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> Truth:
        """θ* and μ*, uniform on the sphere of radius S."""
        drawn = normals(rngs["truth"], (1 + len(spec.costs or (1,)), self.dim))
        drawn *= spec.coefficient_bound / np.linalg.norm(drawn, axis=-1, keepdims=True)
        if spec.costs is None:
            return Truth(drawn[:, 0], drawn[:, 1])
        plain = {"contexts": self.adversarial, "noise": self.noise == "context-scale"}
        plain |= {"baseline_cost": self.baseline_cost, "sensor noise": spec.sensors_err}
        for name, odd in plain.items():
            require(not odd, name, getattr(self, name, odd), "does not go with several costs", "leave it out")
        return Truth(drawn[:, 0], drawn[:, 1:])

    def draw_noise(self, stream: str, spec: SafetySpec, rngs: Generators, rounds: int) -> Array:
        if stream != "cost_noise" or spec.costs is None:
            return super().draw_noise(stream, spec, rngs, rounds)
        sizes = np.array([cost.noise for cost in spec.costs.values()], dtype=float)
        family, shape = NOISES[self.noise], (rounds, sizes.size)
        return np.stack([family(rng, rounds * sizes.size).reshape(shape) * sizes for rng in rngs[stream]])

    def draw_contexts(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int) -> Array:
        """On the sphere of radius L; with a candidates axis if an adversary chooses."""
        shape = (rounds, CANDIDATES, self.dim) if self.adversarial else (rounds, self.dim)
        vectors = normals(rngs["context"], shape)
        if self.contexts == "drift":
            vectors[..., 0] *= np.arange(done + 1, done + rounds + 1) / DRIFT
        return on_sphere(vectors, spec.context_bound)

    def means(self, spec: SafetySpec, truth: Truth, context: Array) -> tuple[Array, Array]:
        """The means of R/g and C/g at contexts (..., d)."""
        each = context if truth.cost_coef.ndim == truth.reward_coef.ndim else context[..., None, :]
        reward, cost = _along(context, truth.reward_coef), _along(each, truth.cost_coef)
        if self.mean == "sine":
            size = spec.coefficient_bound
            reward, cost = (
                size * namespace(value).sin(np.pi * value / (size * spec.context_bound)) for value in (reward, cost)
            )
        return reward, cost

    def noise_scale(self, spec: SafetySpec, context: Array) -> float | Array:
        """The factor of the noise at a context: 1, except for `context-scale`."""
        return context_scale(context, spec.context_bound) if self.noise == "context-scale" else 1.0

    def outcome(self, spec: SafetySpec, exposure: Exposure) -> Outcome:
        if spec.costs is None:
            return super().outcome(spec, exposure)
        reward = exposure.reward_intensity * (exposure.reward_mean + exposure.reward_noise)
        costs, setting = self._by_cost(spec, exposure), exposure.cost_intensity
        for name, cost in spec.costs.items():
            costs[name] = (setting if cost.curve is None else cost.curve.effect(setting)) * costs[name]
        return Outcome(reward, costs, costs)

    def normalised(self, spec: SafetySpec, exposure: Exposure, weight: Array) -> Normalised:
        if spec.costs is None:
            return super().normalised(spec, exposure, weight)
        return Normalised(exposure.reward_mean + exposure.reward_noise, self._by_cost(spec, exposure))

    def exact_intensity(self, spec: SafetySpec, exposure: Exposure) -> Array | None:
        if spec.costs is None:
            return super().exact_intensity(spec, exposure)
        found = []
        for place, (name, part) in enumerate(split_spec(spec).items()):
            load = exposure.cost_mean[..., place] + quantile(self.noise, 1.0 - part.violation_risk) * part.cost_noise
            safe = largest_safe_intensity(load, 0.0, threshold=part.threshold).intensity
            curve = spec.costs[name].curve
            found.append(safe if curve is None else curve.action(safe))
        return np.min(found, axis=0)

    @staticmethod
    def _by_cost(spec: SafetySpec, exposure: Exposure) -> dict[str, Array]:
        """C/g of each cost."""
        scattered = exposure.cost_mean + exposure.cost_noise
        return {name: scattered[..., place] for place, name in enumerate(spec.costs or ())}

    def next_context(self, candidates: Array, truth: Truth, predict: Callable[[Array], Prediction]) -> Array:
        """The candidate with the largest ⟨x, μ* − μ̂⟩/width."""
        seen = predict(candidates)
        excess = (candidates @ truth.cost_coef[..., None])[..., 0] - seen.cost
        xp = namespace(candidates)
        pick: Any = xp.argmax(excess / xp.maximum(seen.width, 1e-300 + 0.0 * seen.width), axis=-1)
        return xp.take_along_axis(candidates, pick[..., None, None], axis=-2)[..., 0, :]


def _along(left: Any, right: Any) -> Any:
    """⟨left, right⟩ along the last axis; in a compiled program as a sum, which it joins with what comes before."""
    xp = namespace(left)
    return np.vecdot(left, right) if xp is np else xp.sum(left * right, axis=-1)
