"""Validation of a replay: checks every argument, splits swept specs into rows, and reads and checks contexts by blocks.

Contexts may be a memory map far larger than memory, so they are never read as a whole: `read_block` reads the rounds of
one block and refuses a context that is not finite or too long, naming the round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.confidence import check_dim
from safedial.bounds.estimate import Estimate
from safedial.bounds.rounding import NORM_SLACK
from safedial.errors import InvalidInput, require
from safedial.io import card, data_frame
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec, split_rows
from safedial.policies import as_policy, rows_learn_alike
from safedial.policies.linear import Linear
from safedial.policies.policy import Task
from safedial.policies.supports import check_supported

if TYPE_CHECKING:
    from pandas import DataFrame

LARGEST_ERROR = 1e-3
"""Engines that keep Σ⁻¹ refuse a larger u·L²/λ."""

WAY_OUT = "use a larger ridge, float64, or engine='reference'"


class Rounds(NamedTuple):
    """A checked replay. `specs` has one spec of plain floats for each row; per-round arrays are (rounds,) or None."""

    policy: Linear
    spec: SafetySpec
    specs: tuple[SafetySpec, ...]
    shared: bool
    dose: Dose
    contexts: Any
    dtype: np.dtype[Any]
    rewards: NDArray[np.float64]
    costs: NDArray[np.float64]
    seen: NDArray[np.bool_]
    reward_sensor: NDArray[np.float64] | None
    cost_sensor: NDArray[np.float64] | None
    baseline_cost: Any
    coins: NDArray[np.float64] | None
    progress: Callable[[int], None] | None

    @property
    def number(self) -> int:
        """How many rounds there are."""
        return self.contexts.shape[0]

    @property
    def dim(self) -> int:
        return self.contexts.shape[1]


def check_rounds(
    policy: Any,
    contexts: Any,
    rewards: Any,
    costs: Any,
    spec: SafetySpec,
    *,
    dose: DoseCurve | Dose | None,
    dtype: str,
    informative: Any,
    reward_sensor: Any,
    cost_sensor: Any,
    baseline_cost: Any,
    coins: Any,
    progress: Callable[[int], None] | None,
) -> Rounds:
    """The arguments of `replay`, checked."""
    policy, dose = as_policy(policy), as_dose(dose)
    require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
    require(dtype in ("float64", "float32"), "dtype", dtype, "must be 'float64' or 'float32'")
    here = frozenset({"replay", "unknown means"})
    check_supported(policy, Task(dim=1, spec=spec, dose=dose, world=here))
    require(progress is None or callable(progress), "progress", progress, "must be a function of the rounds just done")
    contexts = _contexts(contexts)
    count, dim = contexts.shape
    radius = policy.options.get("radius")
    check_dim(radius, dim)
    way_out = "use `simulate` or an `Agent`"
    require(spec.noise_scale is None, "noise_scale", spec.noise_scale, "is not for replays", way_out)
    require(radius != "self-normalised", "radius", radius, "is not for replays", way_out)
    seen = np.ones(count, dtype=bool) if informative is None else _array("informative", informative)
    require(seen.dtype == bool, "informative.dtype", str(seen.dtype), "must be bool")
    require(seen.shape == (count,), "informative.shape", seen.shape, f"must be one value per round, ({count},)")
    specs = split_rows(spec)
    has_sensor = spec.reward_sensor_noise > 0 or spec.cost_sensor_noise > 0
    for name, given in (("reward_sensor", reward_sensor), ("cost_sensor", cost_sensor)):
        noise = getattr(spec, f"{name}_noise")
        require(given is not None or noise == 0, name, given, f"is missing, but the spec has {name}_noise = {noise}")
        require(given is None or has_sensor, name, "given", "is not allowed with a spec without sensor noise")
    tossed = coins is not None or not policy.randomised
    require(tossed, "coins", coins, f"is missing; {policy.name} needs one per round")
    baseline = baseline_cost if np.ndim(baseline_cost) else float(_per_round("baseline_cost", [baseline_cost], 1)[0])
    baseline = _per_round("baseline_cost", baseline, count) if np.ndim(baseline) else baseline
    coins = None if coins is None else _per_round("coins", coins, count)
    proper = coins is None or np.all((coins >= 0) & (coins < 1))
    require(proper, "coins", coins, "must lie in [0, 1)", "rng.random(rounds)")
    return Rounds(
        policy=policy,
        spec=spec,
        specs=specs,
        shared=len(specs) == 1 or rows_learn_alike(policy, spec, dose, baseline),
        dose=dose,
        contexts=contexts,
        dtype=np.dtype(dtype),
        rewards=_per_round("rewards", rewards, count, seen),
        costs=_per_round("costs", costs, count, seen),
        seen=seen,
        reward_sensor=None if reward_sensor is None else _per_round("reward_sensor", reward_sensor, count, seen),
        cost_sensor=None if cost_sensor is None else _per_round("cost_sensor", cost_sensor, count, seen),
        baseline_cost=baseline,
        coins=coins,
        progress=progress,
    )


def read_block(rounds: Rounds, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """(contexts, norms) of rounds start..stop: contiguous rows in the replay's dtype; a view if possible."""
    rows = np.ascontiguousarray(rounds.contexts[start:stop], dtype=rounds.dtype)
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    check_norms(rounds, start, squares)
    return rows, np.sqrt(squares)


def check_norms(rounds: Rounds, start: int, squares: NDArray[np.float64]) -> None:
    """Refuse a context that is not finite, or longer than the spec's `context_bound`; the error names the round."""
    bound = rounds.spec.context_bound
    slack = max(NORM_SLACK, 8.0 * float(np.finfo(rounds.contexts.dtype).eps), 8.0 * float(np.finfo(rounds.dtype).eps))
    allowed = (bound * (1.0 + slack)) ** 2
    if not np.all(squares <= allowed):
        index = int(np.argmax(~(squares <= allowed)))
        row = np.asarray(rounds.contexts[start + index], dtype=np.float64)
        label = f"contexts[{start + index}]"
        require(np.all(np.isfinite(row)), label, row.tolist(), "must be finite")
        norm, way_out = math.hypot(*row.tolist()), "state a larger context_bound, or scale the contexts"
        require(False, f"the norm of {label}", norm, f"must be at most context_bound = {bound:g}", way_out)


def _contexts(contexts: Any) -> Any:
    if not (hasattr(contexts, "dtype") and hasattr(contexts, "shape")):
        contexts = _array("contexts", contexts)
    name, shape = str(contexts.dtype), tuple(contexts.shape)
    plain = hasattr(contexts, "__array__") and not hasattr(contexts, "toarray")
    require(plain, "contexts", type(contexts).__name__, "must be an array", "use np.asarray, or .toarray() if sparse")
    floating = name.startswith(("float", ">f", "<f", "bfloat"))
    require(floating, "contexts.dtype", name, "must be floating", "use .astype('float64')")
    require(len(shape) == 2 and min(shape) >= 1, "contexts.shape", shape, "must be (rounds, dim), each at least 1")
    return contexts


def _per_round(name: str, values: Any, count: int, seen: Any = True) -> NDArray[np.float64]:
    numbers = _array(name, values)
    require(numbers.dtype.kind in "iuf", f"{name}.dtype", str(numbers.dtype), "must be that of numbers")
    numbers = numbers.astype(np.float64)
    require(numbers.shape == (count,), f"{name}.shape", numbers.shape, f"must be one number per round, ({count},)")
    good = np.isfinite(numbers) | ~np.asarray(seen)
    if not np.all(good):
        index = int(np.argmin(good))
        require(False, f"{name}[{index}]", float(numbers[index]), "must be finite where the round is informative")
    return numbers


def _array(name: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name}: is not an array of numbers ({error})") from error


def check_ridge(rounds: Rounds, engine: str) -> None:
    """Refuse if u·L²/λ, about the error of engines that keep Σ⁻¹, is not small."""
    stretch = rounds.spec.context_bound**2 / rounds.spec.ridge
    small = float(np.finfo(rounds.dtype).eps) * stretch <= LARGEST_ERROR
    rule = f"is too small for engine {engine!r} in {rounds.dtype} (L²/λ = {stretch:.3g})"
    require(small, "ridge", rounds.spec.ridge, rule, WAY_OUT)


# --- What a replay returns, and the arrays it is written into while it runs


class Trace(NamedTuple):
    """What was decided, (rows, rounds): a row for each spec."""

    intensity: NDArray[np.float64]
    reward_index: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    width: NDArray[np.float64]
    certified: NDArray[np.bool_]


def empty_trace(rows: int, rounds: int) -> Trace:
    intensity, reward_index, cost_upper, width = np.empty((4, rows, rounds))
    return Trace(intensity, reward_index, cost_upper, width, np.empty((rows, rounds), dtype=bool))


@dataclass(frozen=True)
class Replay:
    """A finished replay. Arrays are (rows, rounds), a row for each spec of a swept one.

    Attributes:
        intensity: what was played, as the safe set measures it; `action` is the dial.
        reward_index: what the policy compared with 0; `cost_upper`, `width`: the cost's bound, NaN where a rule of your
            own does not tell it, and the width behind it.
        certified: False if not even 0 was safe.
        estimates: the final estimate of each row; shared by all rows if doses cannot change what is learned. With
            engine "jax" its arrays are JAX's and stay on the device; `np.asarray` copies them to the host.
        seconds: from the call to the answer, compilation included.
    """

    policy: Linear
    spec: SafetySpec
    dose: Dose
    intensity: NDArray[np.float64]
    reward_index: NDArray[np.float64]
    cost_upper: NDArray[np.float64]
    width: NDArray[np.float64]
    certified: NDArray[np.bool_]
    estimates: tuple[Estimate, ...]
    rewards: NDArray[np.float64]
    costs: NDArray[np.float64]
    reward_sensor: Any
    cost_sensor: Any
    baseline_cost: Any
    seconds: float
    engine: str
    block: int
    dtype: str
    device: str
    kernel: str

    @property
    def rounds(self) -> int:
        return self.intensity.shape[1]

    @property
    def estimate(self) -> Estimate:
        """The final estimate of the first row."""
        return self.estimates[0]

    @property
    def action(self) -> NDArray[np.float64]:
        """The dial in [0, 1], rounded down."""
        return self.intensity if self.dose.is_identity else self.dose.cost.action(self.intensity)

    @property
    def realized_cost(self) -> NDArray[np.float64]:
        """b₀ + g_c·C/g + ε: what a sensor would have shown; without ε if the threshold limits the true cost."""
        sensed = self.spec.threshold_on == "measured" and self.cost_sensor is not None
        played = self.intensity if self.dose.is_identity else self.dose.cost.effect(self.action)
        return self.baseline_cost + played * self.costs + (self.cost_sensor if sensed else 0.0)

    @property
    def violations(self) -> NDArray[np.int64]:
        """Rounds whose realized cost is above the threshold, by row; an unknown cost does not count."""
        return (self.realized_cost > np.reshape(self.spec.threshold, (-1, 1))).sum(axis=1)

    @property
    def reward(self) -> NDArray[np.float64]:
        """The sum of g_r·R/g over the rounds whose reward is known, by row."""
        played = self.intensity if self.dose.is_identity else self.dose.reward.effect(self.action)
        return np.nansum(played * self.rewards, axis=1)

    def to_frame(self) -> DataFrame:
        """One row for each (spec row, round), as a pandas table."""
        rows, rounds = self.intensity.shape
        numbers = {"spec": np.arange(rows)[:, None], "round": np.arange(1, rounds + 1)}
        played = {"action": self.action, "intensity": self.intensity, "realized_cost": self.realized_cost}
        return data_frame(
            {name: np.broadcast_to(each, (rows, rounds)).ravel() for name, each in (numbers | played).items()}
        )

    def _repr_html_(self) -> str:
        facts = {"engine": self.engine, "rounds": self.rounds, "violations": self.violations.tolist()}
        note = f"Decisions on logged contexts and outcomes. {GUARANTEES[self.policy.guarantee].in_brief}"
        return card(f"Replay of {self.policy.name}", [facts | {"reward": self.reward.tolist()}], [note])

    def __repr__(self) -> str:
        rows, rounds = self.intensity.shape
        return (
            f"Replay(policy={self.policy.name}, engine={self.engine}, dim={len(self.estimate.reward_coef)}, "
            f"specs={rows}, rounds={rounds}, violation_rate={self.violations.mean() / rounds:.4g})"
        )
