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

`DataWorld` is made from data of your own. In every round each seed draws a row of a table at random, with replacement.
What a full dose gives there, θ*(x) and μ*(x) in place of ⟨x,θ*⟩ and ⟨x,μ*⟩, is known for each row, or is a function of
the context.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedial.bounds.estimate import Prediction
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.errors import InvalidInput, is_number, is_whole, refusal, require
from safedial.model.costs import Cost, limits, split_spec
from safedial.model.namespace import namespace
from safedial.model.spec import SafetySpec
from safedial.simulation.world import (
    NOISES,
    Array,
    Exposure,
    Generators,
    Normalised,
    Outcome,
    World,
    context_scale,
    normals,
    on_sphere,
    quantile,
)

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

    def has_mean_in(self, class_: Any, spec: SafetySpec) -> bool:
        return self.mean == "linear" and (class_ is None or class_.holds_linear(spec))

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> Truth:
        """θ* and μ*, uniform on the sphere of radius S."""
        drawn = self._coefficients(spec, rngs, 1)
        return Truth(drawn[:, 0], drawn[:, 1])

    def _coefficients(self, spec: SafetySpec, rngs: Generators, costs: int) -> Array:
        drawn = normals(rngs["truth"], (1 + costs, self.dim))
        return drawn * (spec.coefficient_bound / np.linalg.norm(drawn, axis=-1, keepdims=True))

    def under(self, spec: SafetySpec) -> World:
        return SeveralCosts(self, spec) if spec.costs else self

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

    def next_context(self, candidates: Array, truth: Truth, predict: Callable[[Array], Prediction]) -> Array:
        """The candidate with the largest ⟨x, μ* − μ̂⟩/width."""
        seen = predict(candidates)
        excess = (candidates @ truth.cost_coef[..., None])[..., 0] - seen.cost
        xp = namespace(candidates)
        pick: Any = xp.argmax(excess / xp.maximum(seen.width, 1e-300 + 0.0 * seen.width), axis=-1)
        return xp.take_along_axis(candidates, pick[..., None, None], axis=-2)[..., 0, :]


class SeveralCosts(LinearWorld):
    """A linear world with a mean and a noise for each of a spec's costs, along a last axis."""

    _costs: Mapping[str, Cost]

    def __init__(self, world: LinearWorld, spec: SafetySpec) -> None:
        super().__init__(**vars(world))
        object.__setattr__(self, "_costs", limits(spec))
        plain = {"contexts": self.adversarial, "noise": self.noise == "context-scale"}
        plain |= {"baseline_cost": self.baseline_cost}
        plain |= {name: getattr(spec, name) for name in ("reward_sensor_noise", "cost_sensor_noise")}
        for name, odd in plain.items():
            require(not odd, name, getattr(self, name, odd), "does not go with several costs", "leave it out")

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> Truth:
        drawn = self._coefficients(spec, rngs, len(self._costs))
        return Truth(drawn[:, 0], drawn[:, 1:])

    def draw_noise(self, stream: str, spec: SafetySpec, rngs: Generators, rounds: int) -> Array:
        if stream != "cost_noise":
            return super().draw_noise(stream, spec, rngs, rounds)
        sizes = np.array([cost.noise for cost in self._costs.values()], dtype=float)
        family, shape = NOISES[self.noise], (rounds, sizes.size)
        return np.stack([family(rng, rounds * sizes.size).reshape(shape) * sizes for rng in rngs[stream]])

    def outcome(self, spec: SafetySpec, exposure: Exposure) -> Outcome:
        reward = exposure.reward_intensity * (exposure.reward_mean + exposure.reward_noise)
        costs, setting = self._by_cost(exposure), exposure.cost_intensity
        for name, cost in self._costs.items():
            costs[name] = (setting if cost.curve is None else cost.curve.effect(setting)) * costs[name]
        return Outcome(reward, costs, costs)

    def normalised(self, spec: SafetySpec, exposure: Exposure, weight: Array) -> Normalised:
        return Normalised(exposure.reward_mean + exposure.reward_noise, self._by_cost(exposure))

    def exact_intensity(self, spec: SafetySpec, exposure: Exposure) -> Array | None:
        found = []
        for place, (name, part) in enumerate(split_spec(spec).items()):
            load = exposure.cost_mean[..., place] + quantile(self.noise, 1.0 - part.violation_risk) * part.cost_noise
            safe = largest_safe_intensity(load, 0.0, threshold=part.threshold).intensity
            curve = self._costs[name].curve
            found.append(safe if curve is None else curve.action(safe))
        return np.min(found, axis=0)

    def _by_cost(self, exposure: Exposure) -> dict[str, Array]:
        """C/g of each cost."""
        scattered = exposure.cost_mean + exposure.cost_noise
        return {name: scattered[..., place] for place, name in enumerate(self._costs)}


def _along(left: Any, right: Any) -> Any:
    """⟨left, right⟩ along the last axis; in a compiled program as a sum, which it joins with what comes before."""
    xp = namespace(left)
    return np.vecdot(left, right) if xp is np else xp.sum(left * right, axis=-1)


# --- A world made from data of your own: its contexts are rows of a table

Function = Callable[[Array], Any]


class DataWorld(World):
    """Contexts from a table, outcomes from its columns or from functions.

    Args:
        contexts: (n, d), each of norm at most L of the spec.
        reward, cost: θ* and μ*, the means of R/g_r and C/g_c: an array (n,), one value for each row, or a function from
            contexts (m, d) to (m,). Rows of equal contexts have the mean of their values.
        noise: a family of `NOISES`, of size κ; or a function from contexts (m, d) to (m,), the standard deviation of
            normal noise in units of κ.
        label: its name in results.

    >>> rows = np.array([[0.6, 0.0], [0.0, 0.8]])
    >>> world = DataWorld(rows, reward=[0.3, 0.5], cost=lambda x: x[:, 1], label="two patients")
    >>> reward, cost = world.means(None, None, rows[:, None])
    >>> reward.ravel().tolist(), cost.ravel().tolist()
    ([0.3, 0.5], [0.0, 0.8])
    """

    def __init__(
        self,
        contexts: ArrayLike,
        *,
        reward: ArrayLike | Function,
        cost: ArrayLike | Function,
        noise: str | Function = "gaussian",
        label: str = "DataWorld",
    ) -> None:
        self.rows = _numbers("contexts", contexts, 2)
        require(self.rows.size, "contexts", f"shape {self.rows.shape}", "must have at least one row and one column")
        self.dim, self.label = self.rows.shape[1], label
        self._keys, self._place = np.unique(_as_keys(self.rows), return_inverse=True)
        self._reward, self._cost = self._values("reward", reward), self._values("cost", cost)
        known = callable(noise) or (isinstance(noise, str) and noise in NOISES and noise != "context-scale")
        names = ", ".join(name for name in NOISES if name != "context-scale")
        require(known, "noise", noise, f"must be one of {names}, or a function of contexts")
        self.noise = "gaussian" if callable(noise) else noise
        self._scale = self._values("noise", noise) if callable(noise) else None
        require(self._scale is None or np.all(self._scale > 0.0), "noise", noise, "must give numbers > 0")

    def _values(self, name: str, given: Any) -> Array:
        """One value for each key, the mean of its rows."""
        values = _numbers(name, self._computed(name, given) if callable(given) else given, 1)
        rule = f"must have one value for each of the {len(self.rows)} rows"
        require(len(values) == len(self.rows), name, f"shape {values.shape}", rule)
        return np.bincount(self._place, values) / np.bincount(self._place)

    def _computed(self, name: str, function: Function) -> Any:
        try:
            return function(self.rows.copy())
        except Exception as error:  # whatever a user's function raises
            rule = f"failed at the contexts, an array of shape {self.rows.shape} ({type(error).__name__}: {error})"
            way_out = "let it take such an array, one context a row, and return a number for each row"
            raise refusal(name, function, rule, way_out) from error

    @property
    def name(self) -> str:
        return self.label

    @property
    def scaled(self) -> bool:
        """Whether the noise depends on the row."""
        return self._scale is not None

    def to_dict(self) -> dict[str, Any]:
        """What tells it apart; the data themselves are not written."""
        told = hashlib.sha256(self.rows.tobytes())
        for part in (self._reward, self._cost, self._scale):
            told.update(b"" if part is None else part.tobytes())
        noise = self.noise if self._scale is None else "own"
        digest = told.hexdigest()[:16]
        return {"name": self.label, "dim": self.dim, "rows": len(self.rows), "noise": noise, "digest": digest}

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> None:
        """The truth is the same for all seeds; what differs is which rows come, and the noise."""
        largest = float(np.sqrt(np.vecdot(self.rows, self.rows)).max())
        way_out = f"state context_bound = {largest:.6g} or more, or scale the contexts"
        bound = spec.context_bound
        require(bound is None or largest <= bound, "context_bound", bound, "is less than the norm of a row", way_out)

    def draw_contexts(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int) -> Array:
        return np.stack([self.rows[rng.integers(len(self.rows), size=rounds)] for rng in rngs["context"]])

    def means(self, spec: SafetySpec, truth: None, context: Array) -> tuple[Array, Array]:
        place = np.searchsorted(self._keys, _as_keys(context))
        return self._reward[place], self._cost[place]

    def noise_scale(self, spec: SafetySpec, context: Array) -> float | Array:
        return 1.0 if self._scale is None else self._scale[np.searchsorted(self._keys, _as_keys(context))]


def _numbers(name: str, given: Any, dimensions: int) -> Array:
    try:
        values = np.array(given, dtype=float, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name}: must be an array of numbers ({error})") from error
    require(values.ndim == dimensions, name, f"shape {values.shape}", f"must be an array of dimension {dimensions}")
    require(np.all(np.isfinite(values)), name, "NaN or infinity", "is not a finite number", "leave such rows out")
    return values + 0.0  # so that -0 is 0


def _as_keys(contexts: Array) -> NDArray[Any]:
    """Each context as one comparable value."""
    whole = np.ascontiguousarray(contexts)
    return whole.view(np.dtype((np.void, whole.shape[-1] * whole.itemsize)))[..., 0]
