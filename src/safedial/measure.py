"""Numbers for people: violation rates with intervals, and the paper's bounds with every constant written out."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.classes import FunctionClass
from safedial.core.confidence import RADII
from safedial.core.estimate import Prediction
from safedial.core.margin import noise_margin
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.policies import Policy
from safedial.simulation import Simulation
from safedial.worlds import NonlinearWorld, World
from safedial.worlds.noise import SUB_GAUSSIAN, exceeds_rarely, quantile
from safedial.worlds.nonlinear import waves

Array = NDArray[np.float64]


def seed_interval(values: Any, level: float = 0.95) -> tuple[float, float]:
    """Student's interval for a mean over seeds; the value itself twice where there is one seed.

    >>> [round(end, 3) for end in seed_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.special import stdtrit

    seeds = np.asarray(values, dtype=float)
    mean = float(seeds.mean())
    if seeds.size == 1:
        return mean, mean
    half = float(stdtrit(seeds.size - 1, 0.5 + level / 2)) * float(seeds.std(ddof=1)) / math.sqrt(seeds.size)
    return mean - half, mean + half


def violation_interval(violations: Any, rounds: int, level: float = 0.95) -> tuple[float, float]:
    """An interval for the violation rate: the hull of two.

    Wilson's interval pools all rounds; it is honest for rare events but ignores that seeds differ (each has its own
    θ* and μ*). Student's interval over the seeds' own rates knows that, but is empty when no seed saw a violation.
    The hull covers at least as often as either.

    >>> low, high = violation_interval([2, 3, 1], rounds=10_000)
    >>> bool(0 <= low < 0.0002 < high < 0.001)
    True
    """
    from scipy.special import ndtri

    counts = np.asarray(violations, dtype=float).ravel()
    require(counts.size, "violations", violations, "must hold at least one count")
    total, rate = counts.size * rounds, float(counts.mean() / rounds)
    quantile = float(ndtri(0.5 + level / 2))
    centre = (rate + quantile**2 / (2 * total)) / (1 + quantile**2 / total)
    half = quantile * math.sqrt(rate * (1 - rate) / total + quantile**2 / (4 * total**2)) / (1 + quantile**2 / total)
    low, high = centre - half, centre + half
    by_seed = seed_interval(counts / rounds, level)
    low, high = min(low, by_seed[0]), max(high, by_seed[1])
    return max(low, 0.0) if rate > 0.0 else 0.0, min(high, 1.0) if rate < 1.0 else 1.0


def summary(simulation: Simulation, row: int = 0) -> dict[str, Any]:
    """One spec row of a simulation as plain numbers, averaged over seeds."""
    violations = simulation.violations[row]
    return {
        "policy": simulation.policy.name,
        "dim": simulation.world.dim,
        "threshold": float(np.atleast_1d(simulation.spec.threshold)[row if np.ndim(simulation.spec.threshold) else 0]),
        "rounds": simulation.rounds,
        "seeds": len(simulation.seeds),
        "violation_rate": float(violations.mean() / simulation.rounds),
        "violation_ci": list(violation_interval(violations, simulation.rounds)),
        "regret": float(simulation.regret[row].mean()),
        "reward": float(simulation.reward[row].mean()),
        "clairvoyant_reward": float(simulation.clairvoyant_reward[row].mean()),
        "rounds_per_second": simulation.rounds_per_second,
        "exact_clairvoyant_reward": float(simulation.exact_clairvoyant_reward[row].mean()),
        "full_dose_rounds": float(simulation.full_dose_rounds[row].mean()),
        "full_dose_violation_rate": _share(simulation.full_dose_violations[row], simulation.full_dose_rounds[row]),
        "promised_risk": _promised(simulation, row),
        "regret_ci": list(seed_interval(simulation.regret[row])),
        "informative_rounds": float(simulation.informative_rounds[row].mean()),
        "uncertified_rounds": float(simulation.uncertified_rounds[row].mean()),
        "alarmed_seeds": int(simulation.alarmed[row].sum()),
        "settings": {
            "spec": simulation.spec.to_dict()
            | ({"promise": "none"} if simulation.policy.promise == "heuristic" else {}),
            "policy": {name: _plain(value) for name, value in simulation.policy.options.items()},
            "world": asdict(simulation.world),
            "dose": simulation.dose.to_dict(),
            "seeds": simulation.seeds,
        },
    }


def _plain(option: Any) -> Any:
    """A policy's option as a report shows it: a function class by its description."""
    return option.describe() if isinstance(option, FunctionClass) else option


def _share(part: Array, whole: Array) -> float | None:
    """Σ part / Σ whole, or None of nothing."""
    return float(part.sum() / whole.sum()) if whole.sum() else None


def promise_holds(policy: Policy, world: World, spec: SafetySpec, *, true: SafetySpec | None = None) -> bool:
    """Whether the policy's promise on the realized cost is proved for the world.

    Certified: the mean cost lies in the policy's class, the noise is what the margin assumes, and the world's constants
    are within those that the policy goes by. Conformal: rounds are exchangeable, outcomes over doses do not depend on
    the doses, and the dose of the start is safe there.

    Args:
        spec: what the policy goes by.
        true: the world's constants, where they are others.
    """
    world_spec = spec if true is None else true
    if policy.promise == "conformal":
        exchangeable = world.contexts == "iid" and not world.binary_cost
        return exchangeable and _start_holds(policy.options["start_dose"], world, spec, world_spec)
    if policy.promise != "certified" or not _within(world_spec, spec):
        return False
    fitting = policy.knows_truth or _realizable(policy.options.get("cost_class"), world, world_spec)
    return fitting and (world.binary_cost or (world.noise in SUB_GAUSSIAN and margin_holds(world_spec, world)))


LIMITS = ("cost_noise", "coefficient_bound", "context_bound", "cost_sensor_noise")
"""The constants that the certified promise rests on."""


def _within(true: SafetySpec, stated: SafetySpec) -> bool:
    return all(bool(np.all(getattr(true, name) <= getattr(stated, name))) for name in LIMITS)


def _start_holds(start_dose: float | None, world: World, spec: SafetySpec, true: SafetySpec) -> bool:
    """Whether P(C > τ) ≤ δ with the dose that is played until there are rounds enough, for every mean of the world.

    A cost above τ needs noise above τ/z − mean. The dose that the constants certify has τ/z ≥ S‖x‖ + margin; contexts
    of a linear world have norm L, those of the others may be short where their mean is not.
    """
    if start_dose is not None:
        room = (spec.threshold - world.baseline_cost) / start_dose
    elif isinstance(world, NonlinearWorld):
        return False
    else:
        room = spec.coefficient_bound * true.context_bound + noise_margin(spec, 1.0)
    largest = 1.0
    if not isinstance(world, NonlinearWorld):
        largest = true.coefficient_bound * (true.context_bound if world.mean == "linear" else 1.0)
    return bool(np.all(exceeds_rarely(world.noise, (room - largest) / true.cost_noise, spec.violation_risk)))


def _realizable(class_: FunctionClass | None, world: World, spec: SafetySpec) -> bool:
    """Whether the world's mean cost lies in the class by construction: same kernel, same list, same odds."""
    if world.binary_cost or (class_ is not None and class_.binary):
        return world.binary_cost and class_ is not None and class_.binary and _same_odds(class_, world, spec)
    if class_ is None or world.mean == "linear":
        return world.mean == "linear" and (class_ is None or _holds_linear(class_, spec))
    if isinstance(world, NonlinearWorld) and world.kind == class_.name == "kernel":
        bound = class_.options["bound"]
        wide = class_.options["norm"] >= world.norm and (bound is None or bound >= 1.0)
        return class_.options["kernel"] == world.kernel and wide
    if isinstance(world, NonlinearWorld) and world.kind == class_.name == "finite":
        return getattr(class_.options["functions"], "__name__", "") == waves(world.dim, world.functions).__name__
    return False


def _holds_linear(class_: FunctionClass, spec: SafetySpec) -> bool:
    """Whether every ⟨x, μ⟩ with ‖μ‖ ≤ S lies in the class."""
    options, size = class_.options, spec.coefficient_bound
    same = class_.name in ("linear", "features") and options.get("transform") is None
    same = same or (class_.name == "kernel" and options["kernel"] == "polynomial:1,0" and options["norm"] >= size)
    bound = options.get("bound")
    return same and (bound is None or bound >= size * spec.context_bound)


def _same_odds(class_: FunctionClass, world: Any, spec: SafetySpec) -> bool:
    """Whether a logistic world's log-odds are in the class: its odds, and the spec's S, to which μ* is drawn."""
    wide = bool(np.all(class_.options["norm"] >= np.asarray(spec.coefficient_bound)))
    return class_.options["odds"] == world.odds and wide


def margin_holds(spec: SafetySpec, world: World) -> bool:
    """Whether the world's noise is what the spec's margin assumes."""
    if spec.margin == "bounded":
        low, high = (float(quantile(world.noise, end)) * spec.cost_noise for end in (0.0, 1.0))
        return bool(spec.noise_low <= low and high <= spec.noise_high)
    return spec.margin != "gaussian" or world.noise == "gaussian"


def _promised(simulation: Simulation, row: int) -> float | None:
    """What a spec row's promise risks (`SafetySpec.promised_risk`), or None where nothing is promised."""
    spec = simulation.spec
    if not promise_holds(simulation.policy, simulation.world, spec):
        return None
    total = np.atleast_1d(spec.promised_risk if simulation.policy.promise == "certified" else spec.violation_risk)
    return float(total[row if total.size > 1 else 0])


def potential_bound(dim: int, rounds: Any, spec: SafetySpec) -> Any:
    """Σ_t min(1, width_t²) ≤ 2 ln det(Σ_T/λ) ≤ 2 d ln(1 + T L²/(dλ)), over informative rounds.

    The lemma as the paper prints it lacks λ and the minimum; without them it fails for small λ.
    """
    return 2.0 * dim * np.log1p(np.asarray(rounds, dtype=float) * spec.context_bound**2 / (dim * spec.ridge))


def regret_bound(dim: int, rounds: Any, spec: SafetySpec, *, radius: str = "paper") -> Any:
    """Theorem 2 with its constants, for HP-UCB on the event that both confidence sets hold (probability ≥ 1 − 2δ′).

        R(T) ≤ 2(1 + SL/τ)·max(β_r, β_c)·√(T · max(1, L²/λ) · potential_bound(T))

    From the proof: an uninformative round has reward_upper < 0, so the clairvoyant plays 0 as well and it costs
    nothing; an informative one costs at most 2β_r·width + (SL/τ)·2β_c·width; Cauchy–Schwarz sums the widths, and
    width² ≤ max(1, L²/λ)·min(1, width²), because width² ≤ L²/λ.
    """
    require(radius in RADII, "radius", radius, "must be one of " + ", ".join(RADII))
    sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, "has no part in Theorem 2", "give a spec without it")
    horizon = np.asarray(rounds, dtype=float)
    potential = potential_bound(dim, horizon, spec)
    last = Prediction(0.0, 0.0, 0.0, spec.context_bound, potential / 2.0, horizon, dim)
    largest = np.maximum(RADII[radius](spec.reward_noise, last, spec), RADII[radius](spec.cost_noise, last, spec))
    stretch = max(1.0, spec.context_bound**2 / spec.ridge)
    price = 1.0 + spec.coefficient_bound * spec.context_bound / spec.threshold
    return 2.0 * price * largest * np.sqrt(horizon * stretch * potential)
