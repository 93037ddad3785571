"""Whether a policy's guarantee on the realized cost is proved for a world of this package: what the policy needs for
its proof (`Policy.needs`), against what the world is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.margin import noise_margin
from safedial.model.costs import each_spec
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.world import World, exceeds_rarely


class Case(NamedTuple):
    """A policy in a world. `stated` is what the policy uses, `true` has the world's constants."""

    policy: Policy
    world: Any
    stated: SafetySpec
    true: SafetySpec


def guarantee_holds(policy: Policy, world: World, spec: SafetySpec, *, true: SafetySpec | None = None) -> bool:
    """Whether the policy's guarantee on the realized cost is proved for the world: whether the world has all that the
    policy needs for one of its proofs. About your own world nothing is proved.

    Args:
        spec: what the policy uses.
        true: the world's constants, if they differ.
    """
    case = Case(policy, world, spec, spec if true is None else true)
    return not world.is_own and any(_has(case, needs) for needs in policy.needs)


def _has(case: Case, needs: frozenset[str]) -> bool:
    if (EXACT in needs) != isinstance(case.world, LinearWorld | NonlinearWorld):
        return False
    return all(NEEDS[need](case) for need in needs - case.world.facts - {EXACT})


EXACT = "exact dose curve"


NEEDS: dict[str, Callable[[Case], bool]] = {
    "stated constants": lambda case: _within(case.true, case.stated),
    "stated noise": lambda case: case.world.keeps_noise(case.true),
    "linear mean": lambda case: case.world.mean == "linear",
    "mean in its class": lambda case: case.world.has_mean_in(case.policy.options["cost_class"], case.true),
    "costs of any size": lambda case: False,  # where the world does not state it
    "gaussian noise": lambda case: case.world.noise == "gaussian",
    "exchangeable rounds": lambda case: case.world.contexts == "iid",
    "safe start": lambda case: _starts_safely(case),
    "kept bracket": lambda case: _keeps_bracket(case),
}
"""What a proof may need, by name (`model.guarantee`), beside an exact dose curve."""


def _starts_safely(case: Case) -> bool:
    """For each cost."""
    specs = zip(each_spec(case.stated).values(), each_spec(case.true).values(), strict=True)
    return all(_start_holds(case.policy.options["start_dose"], case.world, *each) for each in specs)


def _keeps_bracket(case: Case) -> bool:
    """Whether no unit breaks a bracket, none exceeds at the start, and rounds are exchangeable."""
    world, options = case.world, case.policy.options
    if not isinstance(world, DoseResponseWorld):
        return False
    costs = case.stated.costs
    growths = [options["growth"]] if costs is None else [cost.growth for cost in costs.values()]
    share, base = options["start_scale"], options["base"]
    rises = options["direction"] == "above"  # the world's cost of one threshold, which no `Cost` turns round
    fixed = (world.fall == 1.0 or world.after == 0) and base == 0 and rises
    safe = share is not None and share <= world.least * min(world.fall, 1.0)
    return fixed and safe and all(world.keeps(growth) for growth in growths)


LIMITS = ("cost_noise", "coefficient_bound", "context_bound", "cost_sensor_noise")
"""The constants of the certified guarantee."""


def _within(true: SafetySpec, stated: SafetySpec) -> bool:
    pairs = [(part, each_spec(stated)[name]) for name, part in each_spec(true).items()]
    return all(bool(np.all(getattr(here, name) <= getattr(said, name))) for here, said in pairs for name in LIMITS)


def _start_holds(start_dose: float | None, world: Any, spec: SafetySpec, true: SafetySpec) -> bool:
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
