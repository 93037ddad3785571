"""What draws contexts and noise and determines the outcome of each setting; first the noise families.

All have mean 0 and variance 1. Four are sub-Gaussian, each with optimal constant exactly 1:

| family | distribution | why its constant is 1 |
|---|---|---|
| `gaussian` | N(0, 1) | by definition |
| `uniform` | on [−√3, √3] | sinh(√3 λ)/(√3 λ) ≤ e^{λ²/2}, term by term; variance 1 |
| `rademacher` | ±1 | cosh λ ≤ e^{λ²/2}; variance 1 |
| `truncated` | N(0, s²) cut at ±2s, with variance 1 | symmetric truncation is strictly sub-Gaussian [1] |

A mean-zero variable's constant is at least its standard deviation. Here they are equal, so none of the four is easier
than its constant says. tests/simulation checks each moment-generating function on a grid.

Three are not, and void the certified guarantee (κ is then only a scale); they are for policies that need no constants:

| family | distribution |
|---|---|
| `student-t3` | Student's t with 3 degrees of freedom, over √3: no third moment |
| `exponential` | Exp(1) − 1: skewed, with a one-sided heavy tail |
| `context-scale` | Gaussian, its standard deviation between ½ and 1½ depending on the context (`context_scale`) |

[1] Barreto, Marchal and Arbel (2024), on the optimal variance proxy of truncated Gaussians.

Your own world is one class, derived from `World`, with `dim`, `draw_truth` and `means`. The rest has a default:
contexts uniform on the sphere of radius L, noise of a family of `NOISES`, and the outcomes of the model

    R = g_r(α)(θ*(x) + ξ_r) + ε_r          C = b₀ + g_c(α)(μ*(x) + ξ_c) + ε_c

with h(g(α), x)·ξ instead of g(α)·ξ if the spec has a `noise_scale` h. Override `draw_contexts` for other contexts,
`noise_scale` for noise that depends on the context, `outcome` for costs that are not proportional to the intensity.
Make it a frozen dataclass: its fields are its options, and a grid file may sweep them.

Every method is a pure function of its arguments on whole arrays. Their last axes are (specs, seeds), and d for
contexts; a chunk of rounds has a rounds axis in front.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.estimate import Prediction
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.errors import require
from safedial.model.namespace import Array, namespace, where
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies.baselines import Clairvoyant, clairvoyant

CUT = 2.0


def gaussian(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_normal(size)


def rademacher(rng: np.random.Generator, size: int) -> Array:
    return 2.0 * np.floor(2.0 * rng.random(size)) - 1.0


def student_t3(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_t(3.0, size) / math.sqrt(3.0)


def exponential(rng: np.random.Generator, size: int) -> Array:
    return rng.standard_exponential(size) - 1.0


SCALES = (0.5, 1.5)
"""The least and the largest standard deviation of `context-scale`."""


def context_scale(context: Array, bound: float) -> Array:
    """½ + min(d·x₁²/L², 2)/2: the standard deviation of `context-scale` noise."""
    return 0.5 + 0.5 * namespace(context).minimum(context.shape[-1] * context[..., 0] ** 2 / bound**2, 2.0)


NOISES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "gaussian": gaussian,
    "uniform": lambda rng, size: quantile("uniform", rng.random(size)),
    "rademacher": rademacher,
    "truncated": lambda rng, size: quantile("truncated", rng.random(size)),
    "student-t3": student_t3,
    "exponential": exponential,
    "context-scale": gaussian,
}
SUB_GAUSSIAN = ("gaussian", "uniform", "rademacher", "truncated")


def quantile(name: str, probability: Any) -> Any:
    """The smallest q with P(ξ ≤ q) ≥ probability, for noise of unit scale."""
    from scipy.special import ndtr, ndtri, stdtrit

    probability = np.asarray(probability, dtype=float)
    if name == "uniform":
        return (2.0 * probability - 1.0) * math.sqrt(3.0)
    if name == "rademacher":
        return np.where(probability > 0.5, 1.0, -1.0)
    if name == "truncated":
        tail = float(ndtr(-CUT))
        return ndtri(tail + (1.0 - 2.0 * tail) * probability) / deviation()
    if name == "student-t3":
        return stdtrit(3.0, probability) / math.sqrt(3.0)
    if name == "exponential":
        return -np.log1p(-probability) - 1.0
    return ndtri(probability)


def exceeds_rarely(name: str, size: Any, risk: Any) -> Any:
    """Whether P(ξ > size) ≤ risk, for noise of unit scale at contexts drawn uniformly from a sphere.

    The standard deviation s of `context-scale` lies between ½ and 1½ and is at most 1 on average, since d·x₁²/L² has
    mean 1. Φ(−size/s) is monotone in s, and convex below size/√2: where 1½ is below that, and the size so above 0, its
    mean is at most that of the two ends.

    >>> bool(exceeds_rarely("gaussian", 1.7, 0.05)), bool(exceeds_rarely("gaussian", 1.6, 0.05))
    (True, False)
    """
    if name == "context-scale":
        from scipy.special import ndtr

        low, high = (ndtr(-np.asarray(size) / scale) for scale in SCALES)
        chance = np.where(np.asarray(size) >= math.sqrt(2.0) * SCALES[1], 0.5 * (low + high), np.maximum(low, high))
        return chance <= risk
    return quantile(name, 1.0 - np.asarray(risk)) <= size


def deviation() -> float:
    """The standard deviation of a standard normal variable cut at ±CUT."""
    from scipy.special import ndtr

    density = math.exp(-0.5 * CUT**2) / math.sqrt(2.0 * math.pi)
    return math.sqrt(1.0 - 2.0 * CUT * density / (1.0 - 2.0 * float(ndtr(-CUT))))


# --- A world draws contexts and noise, and determines the outcome of each setting

Generators = dict[str, list[np.random.Generator]]

STREAMS = ("truth", "context", "reward_noise", "cost_noise", "coin", "reward_sensor", "cost_sensor")
NOISY = ("reward_noise", "cost_noise", "reward_sensor", "cost_sensor")


class Draws(NamedTuple):
    """The randomness of a chunk of rounds: arrays (rounds, seeds, ...)."""

    context: Array
    reward_noise: Array
    cost_noise: Array
    coin: Array
    reward_sensor: Array
    cost_sensor: Array


class Exposure(NamedTuple):
    """What determines the outcomes of one round, (specs, seeds), or of a chunk, (rounds, specs, seeds).

    The means come from the world's `means`; the intensities are g_r(α) and g_c(α).
    """

    context: Array
    reward_mean: Array
    cost_mean: Array
    reward_intensity: Array
    cost_intensity: Array
    reward_noise: Array
    cost_noise: Array
    reward_sensor: Array
    cost_sensor: Array


class Outcome(NamedTuple):
    """The measured reward and cost, and the cost without sensor error."""

    reward: Any
    cost: Any
    true_cost: Any


class Normalised(NamedTuple):
    """What a learner sees: R/g_r and (C − b₀)/g_c, and C itself where it does not follow from that: 0 or 1, or several
    costs by name. `left_out`: whose outcomes are lost for a reason unrelated to context, cost and setting; None if none
    are.
    """

    reward: Any
    cost: Any
    measured: Any = None
    left_out: Any = None


class World(ABC):
    """Where simulated outcomes come from."""

    dim: int
    noise: str = "gaussian"
    contexts: str = "iid"
    baseline_cost: float = 0.0
    costs_are: str = "costs of any size"
    """Or "costs of 0 or 1": `means` then gives their log-odds at full intensity."""
    adversarial: bool = False
    """Whether `next_context` chooses each context from candidates, (rounds, seeds, candidates, d)."""
    proportional: bool = True
    """Whether R/g_r and (C − b₀)/g_c do not depend on the dose; False for a class with its own `outcome`."""
    constants: tuple[str, ...] = CONSTANTS
    """The fields of a spec that it is made from."""
    several_costs: bool = False
    """Whether it gives each of a spec's several costs, by name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        inherited: Any = super(cls, cls)
        if cls.outcome is not inherited.outcome and "proportional" not in vars(cls):
            cls.proportional = False

    @property
    def facts(self) -> frozenset[str]:
        """What it states of itself to a policy (`policies.supports`)."""
        stated = {
            "adversarial contexts": self.adversarial,
            "no constants": not self.constants,
            self.costs_are: True,
        }
        return frozenset(name for name, holds in stated.items() if holds)

    def clairvoyant(self) -> Clairvoyant:
        """The policy that knows this world's means, for comparison."""
        return clairvoyant()

    def has_mean_in(self, class_: Any, spec: SafetySpec) -> bool:
        """Whether its mean cost lies in a class by construction, for example of the same kernel; None: is linear."""
        return False

    def keeps_noise(self, spec: SafetySpec) -> bool:
        """Whether its cost's noise is what the spec states, and what its margin assumes."""
        if spec.margin == "bounded" and self.noise in SUB_GAUSSIAN:
            low, high = (float(quantile(self.noise, end)) * spec.cost_noise for end in (0.0, 1.0))
            return bool(spec.noise_low <= low and high <= spec.noise_high)
        return self.noise in (("gaussian",) if spec.margin == "gaussian" else SUB_GAUSSIAN)

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own: nothing is proved about it then."""
        return not type(self).__module__.startswith("safedial.simulation.")

    @property
    def name(self) -> str:
        """Its name in results; for your own world "module:Class", by which `world_from_dict` finds it."""
        place = f"{type(self).__module__}:" if self.is_own else ""
        return place + type(self).__qualname__

    def to_dict(self) -> dict[str, Any]:
        """Its fields, and its name if it is your own; `world_from_dict` is the inverse."""
        return ({"name": self.name} if self.is_own else {}) | vars(self)

    def under(self, spec: SafetySpec) -> World:
        """The world that plays a spec: this one, or its form for several costs."""
        return self

    @abstractmethod
    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> Any:
        """The truth that the learner does not know, for every seed, drawn from `rngs["truth"]`."""

    @abstractmethod
    def means(self, spec: SafetySpec, truth: Any, context: Array) -> tuple[Array, Array]:
        """θ*(x) and μ*(x), the means of R/g_r and C/g_c, at contexts (n, seeds, d): two arrays (n, seeds)."""

    def draw_contexts(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int) -> Array:
        """The contexts of the `rounds` rounds after `done`, (seeds, rounds, d), drawn from `rngs["context"]`."""
        return on_sphere(normals(rngs["context"], (rounds, self.dim)), spec.context_bound)

    def draw_noise(self, stream: str, spec: SafetySpec, rngs: Generators, rounds: int) -> Array:
        """The noise of a stream of `NOISY`, (seeds, rounds)."""
        size = getattr(spec, stream.replace("sensor", "sensor_noise"))
        numbers = np.zeros((len(rngs[stream]), rounds))
        for row, rng in enumerate(rngs[stream] if size else ()):
            numbers[row] = NOISES[self.noise](rng, rounds) * size
        return numbers

    def noise_scale(self, spec: SafetySpec, context: Array) -> float | Array:
        """What the noise is multiplied by at contexts (..., d), unless an adversary chooses them."""
        return 1.0

    def draw_chunk(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int = 0) -> Draws:
        """The `rounds` rounds after `done`, of every seed."""
        drawn = self.draw_contexts(spec, rngs, rounds, done)
        if self.is_own:
            self._check_contexts(spec, drawn, (len(rngs["coin"]), rounds))
        context = np.ascontiguousarray(np.swapaxes(drawn, 0, 1))
        numbers = {stream: self.draw_noise(stream, spec, rngs, rounds) for stream in NOISY}
        numbers["coin"] = np.stack([rng.random(rounds) for rng in rngs["coin"]])
        by_round = {stream: np.ascontiguousarray(np.swapaxes(values, 0, 1)) for stream, values in numbers.items()}
        scale = 1.0 if self.adversarial else self.noise_scale(spec, context)
        if not (np.ndim(scale) == 0 and scale == 1.0):
            found, noise = np.shape(scale), by_round["cost_noise"].shape
            rule = f"has a `noise_scale` of shape {found} at contexts (n, seeds, d), which must be (n, seeds) = {noise}"
            require(found == () or fits(found, noise), "world", self.name, rule, "compute it from the contexts")
            least = float(np.min(scale))
            rule = f"has a `noise_scale` of {least:.6g}, which must be a number >= 0"
            require(least >= 0.0, "world", self.name, rule, "give a standard deviation in units of κ")
            by_round |= {stream: by_round[stream] * scale for stream in ("reward_noise", "cost_noise")}
        return Draws(context, **by_round)

    def _check_contexts(self, spec: SafetySpec, drawn: Any, lead: tuple[int, int]) -> None:
        """Refuse contexts of one's own world that have another shape, or are longer than the spec's L."""
        found, last = np.shape(drawn), (self.dim,)
        proper = (found[:2], found[-1:], len(found)) == (lead, last, 4 if self.adversarial else 3)
        offered = "candidates, " if self.adversarial else ""
        rule = (
            f"has `draw_contexts` that gave shape {found}, which must be (seeds, rounds, {offered}d) = {(*lead, *last)}"
        )
        require(proper, "world", self.name, rule, "draw as many for each seed from rngs['context']")
        bound = spec.context_bound if "context_bound" in self.constants else None
        largest = float(np.sqrt(np.max(np.vecdot(drawn, drawn))))
        rule = f"is less than the norm of a context of world {self.name}, {largest:.6g}"
        within = bound is None or largest <= bound * (1.0 + 1e-9)
        require(within, "context_bound", bound, rule, "state that norm or more, or scale the contexts")

    def next_context(self, candidates: Array, truth: Any, predict: Callable[[Array], Prediction]) -> Array:
        """An adversary's choice, (specs, seeds, d) of (specs, seeds, candidates, d); it may ask for predictions."""
        return candidates[..., 0, :]

    def outcome(self, spec: SafetySpec, exposure: Exposure) -> Outcome:
        """The outcome of a round."""
        context, reward_mean, cost_mean, gain, harm, reward_noise, cost_noise, *sensors = exposure
        scale = spec.noise_scale
        reward = gain * reward_mean + (scale.of(gain, context) if scale else gain) * reward_noise
        cost = harm * cost_mean + scale.of(harm, context) * cost_noise if scale else harm * (cost_mean + cost_noise)
        true_cost = self.baseline_cost + cost
        return Outcome(reward + sensors[0], true_cost + sensors[1], true_cost)

    def normalised(self, spec: SafetySpec, exposure: Exposure, weight: Array) -> Normalised:
        """What a learner sees of one round; any finite numbers if its weight is 0."""
        context, reward_mean, cost_mean, gain, harm, reward_noise, cost_noise, *sensors = exposure
        scale = spec.noise_scale
        if self.proportional and not (scale or spec.sensors):
            return Normalised(reward_mean + reward_noise, cost_mean + cost_noise)
        by_reward, by_cost = where(weight > 0.0, gain, 1.0), where(weight > 0.0, harm, 1.0)
        if not self.proportional:
            reward, cost, _ = self.outcome(spec, exposure)
            return Normalised(reward / by_reward, (cost - self.baseline_cost) / by_cost)
        if scale:
            reward_noise = scale.of(gain, context) / by_reward * reward_noise
            cost_noise = scale.of(harm, context) / by_cost * cost_noise
        reward, cost = reward_mean + reward_noise, cost_mean + cost_noise
        return Normalised(reward + sensors[0] / by_reward, cost + sensors[1] / by_cost)

    def exact_intensity(self, spec: SafetySpec, exposure: Exposure) -> Array | None:
        """The largest intensity with P(C > τ | x) ≤ δ if the noise's law is known (without sensor noise, per round).

        None if there is no formula: the clairvoyant that knows only the noise's constant is then used instead. In a
        world that is not proportional it is what the clairvoyant plays, and what regret is measured against.
        """
        if self.is_own or spec.noise_scale or not self.proportional:
            return None
        load = exposure.cost_mean + self.exact_margin(spec) * self.noise_scale(spec, exposure.context)
        return largest_safe_intensity(load, 0.0, threshold=spec.threshold - self.baseline_cost).intensity

    def exact_margin(self, spec: SafetySpec) -> float | Array:
        """What the noise of the cost exceeds with probability δ, where its scale is 1."""
        return quantile(self.noise, 1.0 - spec.violation_risk) * spec.cost_noise


def generators(seeds: list[int], streams: Sequence[str] = STREAMS) -> Generators:
    """One generator for each (stream, seed)."""
    numbers = {stream: STREAMS.index(stream) for stream in streams}
    return {stream: [np.random.default_rng([seed, number]) for seed in seeds] for stream, number in numbers.items()}


def normals(rngs: list[np.random.Generator], shape: tuple[int, ...]) -> Array:
    """Standard normal numbers of every seed, (seeds, *shape)."""
    drawn = np.empty((len(rngs), *shape))
    for rng, row in zip(rngs, drawn, strict=True):
        rng.standard_normal(out=row)
    return drawn


def on_sphere(vectors: Array, bound: float) -> Array:
    """Vectors (..., d), scaled in place to norm L, rounded down."""
    vectors *= ((bound * (1.0 - 1e-15)) / np.sqrt(np.vecdot(vectors, vectors)))[..., None]
    return vectors


def fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array of the shape `found` has a value for each place of `shape`, or one for several."""
    return len(found) == len(shape) and all(one in (1, other) for one, other in zip(found, shape, strict=True))
