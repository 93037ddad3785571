"""Whether a policy's promise is proved for a world."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core.brackets import Growth
from safedial.core.costs import split_spec
from safedial.core.margin import noise_margin
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.function_classes import FunctionClass
from safedial.policies import Policy
from safedial.worlds import DoseResponseWorld, LinearWorld, NonlinearWorld, World
from safedial.worlds.dose_response import BRACKETED
from safedial.worlds.noise import SUB_GAUSSIAN, exceeds_rarely, quantile
from safedial.worlds.nonlinear import waves

Known = LinearWorld | NonlinearWorld


def promise_holds(policy: Policy, world: World, spec: SafetySpec, *, true: SafetySpec | None = None) -> bool:
    """Whether the policy's promise on the realized cost is proved for the world.

    Certified: the mean cost lies in the policy's class, the noise is what the margin assumes, and the world's constants
    are within those that the policy uses. Conformal: rounds are exchangeable, outcomes over doses do not depend on
    the doses, and the start dose is safe there. Bracket: rounds are exchangeable, each unit
    of the dose-response world keeps to the bracket, and all tolerate the start. Student: the mean cost is linear, the
    noise is Gaussian, and the start dose is safe. About your own world nothing is proved.

    Args:
        spec: what the policy uses.
        true: the world's constants, if they differ.
    """
    promise = PROMISES[policy.promise]
    if isinstance(world, DoseResponseWorld) and not world.is_own:
        return promise.bracketed and _bracket_holds(policy, world, spec)
    if not isinstance(world, Known) or world.is_own or promise.bracketed:
        return False
    world_spec = spec if true is None else true
    if promise.exchangeable:
        exchangeable = world.contexts == "iid" and not world.binary_cost
        return exchangeable and _start_holds(policy.options["start_dose"], world, spec, world_spec)
    if promise.gaussian:
        fitting = world.noise == "gaussian" and world.mean == "linear" and not world.binary_cost
        fitting = fitting or (policy.options["either"] and world.contexts == "iid" and not world.binary_cost)
        costs = [(spec, world_spec)]
        if spec.costs is not None:
            costs = list(zip(split_spec(spec).values(), split_spec(world_spec).values(), strict=True))
        return fitting and all(_start_holds(policy.options["start_dose"], world, *each) for each in costs)
    if not promise.from_constants or not _within(world_spec, spec):
        return False
    fitting = policy.knows_truth or _realizable(policy.options.get("cost_class"), world, world_spec)
    return fitting and (world.binary_cost or (world.noise in SUB_GAUSSIAN and margin_holds(world_spec, world)))


def _bracket_holds(policy: Policy, world: DoseResponseWorld, spec: SafetySpec) -> bool:
    """Whether no unit breaks a bracket, none exceeds at the start, and rounds are exchangeable."""
    several = spec.costs
    growths = [policy.options["growth"]] if several is None else [cost.growth for cost in several.values()]
    share, base = policy.options["start_scale"], policy.options["base"]
    fixed = (world.fall == 1.0 or world.after == 0) and base == 0
    safe = share is not None and share <= world.least * min(world.fall, 1.0)
    return fixed and safe and all(_keeps(growth, world) for growth in growths)


def _keeps(growth: Growth, world: DoseResponseWorld) -> bool:
    """0/1 costs with a least tolerance break a spread bracket: the share that exceeds leaps there."""
    if world.curve == "stated":
        return world.high <= 1.0
    if BRACKETED.get(growth.name) != world.curve:
        return False
    return bool(growth.parameters["low"] <= world.low and world.high <= growth.parameters["high"])


LIMITS = ("cost_noise", "coefficient_bound", "context_bound", "cost_sensor_noise")
"""The constants of the certified promise."""


def _within(true: SafetySpec, stated: SafetySpec) -> bool:
    sizes = [(getattr(true, name), getattr(stated, name)) for name in LIMITS]
    if true.costs is not None and stated.costs is not None:
        sizes = [pair for pair in sizes if pair[0] is not None]
        sizes += [(cost.noise, stated.costs[name].noise) for name, cost in true.costs.items()]
    return all(bool(np.all(actual <= limit)) for actual, limit in sizes)


def _start_holds(start_dose: float | None, world: Known, spec: SafetySpec, true: SafetySpec) -> bool:
    """Whether P(C > τ) ≤ δ with the start dose, for every mean of the world.

    A cost above τ needs noise above τ/z − mean. The dose that the constants certify has τ/z ≥ S‖x‖ + margin; contexts
    of a linear world have norm L, those of other worlds may be short although their mean is not small.
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


def _realizable(class_: FunctionClass | None, world: Known, spec: SafetySpec) -> bool:
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
