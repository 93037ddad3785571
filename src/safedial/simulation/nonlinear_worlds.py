"""Worlds whose mean outcomes are not linear: finite, kernel, logistic and dose-toxicity.

    R = g_r(α)(θ*(x) + ξ_r)          C = g_c(α)(μ*(x) + ξ_c)          (logistic: C is 0 or 1)

| world | θ*, μ* | contexts |
|---|---|---|
| `finite` | two members of a fixed list of `functions` waves, sin(⟨w_j, x⟩ + b_j) | uniform on the ball ‖x‖ ≤ L |
| `kernel` | functions of RKHS norm `norm`, bounded by 1 | uniform on the ball |
| `logistic` | θ* linear; odds of C = 1 are `odds`·z·exp⟨x, μ*⟩; ‖θ*‖ = ‖μ*‖ = S | uniform on the ball |
| `dose-toxicity` | an opioid's effect, its sensitivity growing with age (below) | age and need, both uniform |

**dose-toxicity** takes its figures from Minto et al. (1997), who measured the effect of the opioid remifentanil on
the EEG of 65 volunteers of 20 to 85 years: a sigmoid Emax (Hill) curve with EC50 = 11.2 ng/ml and Hill coefficient
2.51, EC50 falling by about half over that range of ages. Here EC50(age) is the straight line through 11.2 at 52.5
years that halves from 20 to 85. The dial is the concentration, up to `PEAK` = 30 ng/ml, and g the Hill curve at 52.5
years, `hill:0.3733,2.51`. Well below EC50, the effect at another age is that at 52.5 years times
(11.2/EC50(age))^2.51; this sensitivity, scaled to 1 at 85 years, is μ*, at all concentrations, so that the model's
product form is exact. The reward is the need for analgesia, a number in [−1, 1] that is observed: θ*(x) = need.
Contexts are (age − 52.5)/32.5 and need, times L/√2. Need, noise, the straight line and the product form are ours: a
test bed, not pharmacology.

Reference: C. F. Minto et al., "Influence of age and gender on the pharmacokinetics and pharmacodynamics of
remifentanil. I. Model development", Anesthesiology 86(1), 10–23 (1997).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import InvalidInput, require
from safedial.model.spec import SafetySpec
from safedial.policies.baselines import Clairvoyant, clairvoyant
from safedial.policies.classes.features import check_coordinates
from safedial.policies.classes.function_class import check_bound, check_whole
from safedial.policies.classes.kernel import parse_kernel
from safedial.simulation.world import NOISES, Array, Exposure, Generators, Normalised, Outcome, World, normals

KINDS = ("finite", "kernel", "logistic", "dose-toxicity")
CENTRES = 16
GRID = 500
TRIES = 200
LEAST = 1e-6
CLIMBERS, CLIMBS, STEPS = 30, 60, 8
EC50, HILL, PEAK = 11.2, 2.51, 30.0
DOSE = f"hill:{EC50 / PEAK:.4g},{HILL:g}"


class Truth(NamedTuple):
    """Two mean functions of every seed, as contexts (n, d) → values (n,)."""

    reward: list[Callable[[Array], Array]]
    cost: list[Callable[[Array], Array]]


@dataclass(frozen=True, kw_only=True)
class NonlinearWorld(World):
    """The structure of a non-linear world; noise, L and (logistic) S are the spec's.

    Args:
        kind: "finite", "kernel", "logistic" or "dose-toxicity".
        dim: d ≥ 1; 2 for dose-toxicity.
        noise: a family of `NOISES`; the cost of a logistic world has only its own randomness.
        functions: how many functions the finite world's list has.
        kernel, norm: of the kernel world.
        odds: of an event in the logistic world, at full intensity in context 0.
    """

    kind: str
    dim: int
    noise: str = "gaussian"
    functions: int = 1000
    kernel: str = "rbf:0.5"
    norm: float = 2.0
    odds: float = 0.25

    def __new__(cls, *, kind: str = "", **_: Any) -> NonlinearWorld:
        """Of the class of its kind."""
        return object.__new__(LogisticWorld if kind == "logistic" else cls)

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "kind", self.kind, "must be one of " + ", ".join(KINDS))
        check_whole("dim", self.dim)
        pair = self.kind != "dose-toxicity" or self.dim == 2
        require(pair, "dim", self.dim, "must be 2 in the dose-toxicity world: age and need")
        check_whole("functions", self.functions)
        check_bound("norm", self.norm)
        check_bound("odds", self.odds)
        object.__setattr__(self, "kernel", str(parse_kernel(str(parse_kernel(self.kernel)))))
        fine = self.noise in NOISES and self.noise != "context-scale"
        require(fine, "noise", self.noise, "must be one of " + ", ".join(NOISES) + ", but context-scale")

    @property
    def mean(self) -> str:
        return self.kind

    def has_mean_in(self, class_: Any, spec: SafetySpec) -> bool:
        if class_ is None or class_.name != self.kind:
            return False
        if self.kind == "kernel":
            bound, wide = class_.options["bound"], class_.options["norm"] >= self.norm
            return str(class_.options["kernel"]) == self.kernel and wide and (bound is None or bound >= 1.0)
        return getattr(class_.options["functions"], "__name__", "") == waves(self.dim, self.functions).__name__

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> Truth:
        pairs = [(_truth(self, spec, rng), _truth(self, spec, rng)) for rng in rngs["truth"]]
        if self.kind == "dose-toxicity":
            pairs = [(lambda x: _scaled(x, spec)[:, 1], lambda x: sensitivity(_scaled(x, spec)[:, 0]))] * len(pairs)
        return Truth([reward for reward, _ in pairs], [cost for _, cost in pairs])

    def draw_contexts(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int) -> Array:
        place = _in_square if self.kind == "dose-toxicity" else _in_ball
        return place(normals(rngs["context"], (rounds, self.dim + 1)), spec.context_bound)

    def draw_noise(self, stream: str, spec: SafetySpec, rngs: Generators, rounds: int) -> Array:
        """There is no sensor error here."""
        if stream.endswith("sensor"):
            return np.zeros((len(rngs[stream]), rounds))
        return super().draw_noise(stream, spec, rngs, rounds)

    def means(self, spec: SafetySpec, truth: Truth, context: Array) -> tuple[Array, Array]:
        """θ*(x) and μ*(x) at contexts (rounds, seeds, d)."""
        both = np.empty((2, *context.shape[:-1]))
        for target, functions in enumerate(truth):
            for seed, function in enumerate(functions):
                both[target, :, seed] = function(context[:, seed])
        return both[0], both[1]


class LogisticWorld(NonlinearWorld):
    """The non-linear world of kind "logistic": costs are 0 or 1, and their "noise" is a uniform number."""

    costs_are, proportional = "costs of 0 or 1", False

    def clairvoyant(self) -> Clairvoyant:
        return clairvoyant(binary_cost=True)

    def has_mean_in(self, class_: Any, spec: SafetySpec) -> bool:
        if class_ is None or not class_.binary:
            return False
        wide = bool(np.all(class_.options["norm"] >= np.asarray(spec.coefficient_bound)))  # the norm of μ*
        return class_.options["odds"] == self.odds and wide

    def keeps_noise(self, spec: SafetySpec) -> bool:
        return True

    def draw_noise(self, stream: str, spec: SafetySpec, rngs: Generators, rounds: int) -> Array:
        if stream == "cost_noise":
            return np.stack([rng.random(rounds) for rng in rngs[stream]])
        return super().draw_noise(stream, spec, rngs, rounds)

    def means(self, spec: SafetySpec, truth: Truth, context: Array) -> tuple[Array, Array]:
        reward, cost = super().means(spec, truth, context)
        return reward, cost + np.log(self.odds)

    def outcome(self, spec: SafetySpec, exposure: Exposure) -> Outcome:
        event = binary_cost(exposure.cost_intensity, exposure.cost_mean, exposure.cost_noise)
        return Outcome(super().outcome(spec, exposure).reward, event, event)

    def normalised(self, spec: SafetySpec, exposure: Exposure, weight: Array) -> Normalised:
        event = binary_cost(exposure.cost_intensity, exposure.cost_mean, exposure.cost_noise)
        cost = event / np.where(weight > 0, exposure.cost_intensity, 1.0)
        return Normalised(exposure.reward_mean + exposure.reward_noise, cost, event)


def binary_cost(intensity: Array, log_odds: Array, uniform: Array) -> Array:
    """1 if a uniform number is below P(C = 1), whose odds are z·exp(log-odds)."""
    from scipy.special import expit

    chance = np.where(intensity > 0.0, expit(log_odds + np.log(np.where(intensity > 0.0, intensity, 1.0))), 0.0)
    return (uniform < chance).astype(float)


def waves(dim: int, count: int, *, seed: int = 0, pick: int | None = None) -> Callable[[Any], Any]:
    """The finite world's list: x ↦ (sin(⟨w_1, x⟩ + b_1), …), its directions and phases fixed by the seed; or one of it.

    >>> waves(2, 5)(np.zeros((3, 2))).shape
    (3, 5)
    """
    rng = np.random.default_rng([seed, dim])
    directions = rng.standard_normal((dim, count)) * 2.0
    phases = rng.uniform(-np.pi, np.pi, count)
    if pick is not None:
        directions, phases = directions[:, pick], phases[pick]

    def values(context: Any) -> Any:
        check_coordinates(context, dim)
        return np.sin(np.matmul(context, directions) + phases)

    values.__name__ = f"waves:{count},seed={seed}"
    return values


def sensitivity(age: Any) -> Any:
    """(EC50(85)/EC50(age))^2.51, of age in units of 32.5 years from 52.5: 1 at 85 years.

    >>> [round(float(sensitivity(age)), 3) for age in (-1.0, 0.0, 1.0)]
    [0.176, 0.361, 1.0]
    """
    return ((1.0 - 1.0 / 3.0) / (1.0 - np.asarray(age) / 3.0)) ** HILL


def _truth(world: NonlinearWorld, spec: SafetySpec, rng: np.random.Generator) -> Callable[[Array], Array]:
    if world.kind == "finite":
        return waves(world.dim, world.functions, pick=int(rng.integers(world.functions)))
    if world.kind == "kernel":
        return _kernel_function(world, spec.context_bound, rng)
    coef = rng.standard_normal(world.dim)
    coef *= spec.coefficient_bound / np.linalg.norm(coef)
    return lambda x: x @ coef


def _kernel_function(world: NonlinearWorld, bound: float, rng: np.random.Generator) -> Callable[[Array], Array]:
    """Σ a_i k(c_i, ·) of norm `norm`, drawn until a search for its peaks finds none above 1.

    The function is uniform on the sphere of that norm in the span of the centres: with K = VΛVᵀ their kernel matrix,
    a = VΛ^{−1/2}u has norm √(aᵀKa) = ‖u‖.
    """
    shape = parse_kernel(world.kernel)
    grid = _in_ball(np.random.default_rng(0).standard_normal((GRID, world.dim + 1)), bound)
    for _ in range(TRIES):
        centres = _in_ball(rng.standard_normal((CENTRES, world.dim + 1)), bound)
        values, vectors = np.linalg.eigh(shape(centres, centres))
        direction = rng.standard_normal(CENTRES) * (values > LEAST * values[-1])
        direction *= world.norm * (1.0 - 1e-9) / np.linalg.norm(direction)
        weights = vectors @ (direction / np.sqrt(np.maximum(values, LEAST * values[-1])))

        def function(x: Array, centres: Array = centres, weights: Array = weights) -> Array:
            return shape(x, centres) @ weights

        if np.max(np.abs(function(grid))) <= 1.0 and _peak(function, np.concatenate([grid, centres]), bound) <= 1.0:
            return function
    raise InvalidInput(
        f"norm = {world.norm:g}: {TRIES} functions of the kernel {shape} with this norm were drawn, and none is "
        "bounded by 1; a smaller norm or a shorter length scale has more of them"
    )


def _peak(values: Callable[[Array], Array], starts: Array, bound: float) -> float:
    """The largest |f| on the ball that a search finds, by ever shorter random steps from the best of some contexts."""
    rng = np.random.default_rng(0)
    points = starts[np.argsort(-np.abs(values(starts)))[:CLIMBERS]]
    height = np.abs(values(points))
    for length in bound * np.geomspace(0.3, 1e-4, CLIMBS):
        moved = points[:, None] + rng.standard_normal((len(points), STEPS, points.shape[-1])) * length
        size = np.sqrt(np.vecdot(moved, moved))[..., None]
        moved = moved * np.minimum(1.0, bound / np.maximum(size, 1e-300))
        reached = np.abs(values(moved.reshape(-1, points.shape[-1]))).reshape(len(points), STEPS)
        best = np.argmax(reached, axis=1)
        rows = np.arange(len(points))
        higher = reached[rows, best] > height
        points[higher] = moved[rows, best][higher]
        height = np.maximum(height, reached[rows, best])
    return float(height.max())


def _in_ball(numbers: Array, bound: float) -> Array:
    """Uniform on the ball, from d + 1 normals each."""
    from scipy.special import ndtr

    direction, last = numbers[..., :-1], numbers[..., -1:]
    length = ndtr(last) ** (1.0 / direction.shape[-1]) * (bound * (1.0 - 1e-15))
    return direction * (length / np.sqrt(np.vecdot(direction, direction))[..., None])


def _in_square(numbers: Array, bound: float) -> Array:
    from scipy.special import ndtr

    return (2.0 * ndtr(numbers[..., :-1]) - 1.0) * (bound / np.sqrt(2.0) * (1.0 - 1e-15))


def _scaled(context: Array, spec: SafetySpec) -> Array:
    """Contexts of the dose-toxicity world as age and need in [−1, 1]."""
    return context * (np.sqrt(2.0) / spec.context_bound)
