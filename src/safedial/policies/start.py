"""What is given while a policy has no bound: a dose that the user declares safe, or one that the constants certify."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from safedial.bounds.rounding import round_down
from safedial.bounds.safe_set import SafeSet, safe_set
from safedial.errors import require
from safedial.model.namespace import namespace
from safedial.model.spec import SafetySpec
from safedial.policies.policy import Asked, Task, part

START_DOSE: Any = part(None, "or None for the certified one")
"""The option for it: a positive intensity, or None."""


def declared_dose(given: float | None, task: Task) -> float | None:
    """The intensity of the setting that a task declares safe, checked against the policy's own start dose, if it has
    one; None if the constants must certify the start.
    """
    setting, dial, curve = task.start_action, task.dial, task.dose.cost
    if setting is None:
        spec = task.spec
        sizes = [spec.cost_noise] if spec.costs is None else [cost.noise for cost in spec.costs.values()]
        known = given is not None or (None not in sizes and spec.coefficient_bound is not None)
        rule = "is missing: there must be a dose until there are enough rounds"
        way_out = "declare one that is safe for every context, or give cost_noise and coefficient_bound"
        require(known, "start_action", None, rule, way_out)
        return given
    inside = dial.low < setting <= dial.high
    require(inside, "start_action", setting, f"must lie above {dial.low:g} and at most at {dial.high:g}")
    settable = dial.levels is None or setting in dial.levels
    require(settable, "start_action", setting, f"must be one of the dial's levels {dial.levels}")
    intensity = float(curve.effect(dial.action(setting)))
    within = given is None or intensity <= given
    require(within, "start_action", setting, f"is above the policy's start_dose = {given}", "give one of them")
    return intensity if given is None else given


@dataclass(frozen=True)
class Start:
    """The start of a policy whose `dose` is declared, as an intensity; None: certified by the constants of `spec`."""

    dose: float | None
    task: Task
    spec: SafetySpec

    @cached_property
    def action(self) -> float | None:
        """The declared setting, in the dial's units; None for a certified start."""
        if self.dose is None or self.task.start_action is not None:
            return self.task.start_action
        return self.task.dial.setting(float(self.task.dose.cost.action(self.dose)))

    @cached_property
    def fallback(self) -> float | None:
        """The setting that is safe for every context; None if no bound on contexts is stated."""
        spec, curve = self.task.spec, self.task.dose.cost
        if self.action is not None or spec.context_bound is None:
            return self.action
        longest = spec.coefficient_bound * spec.context_bound
        safe = safe_set(longest, spec, round=1.0).intensity
        return self.task.dial.setting(float(curve.action(round_down(safe, curve.error_units))))

    def safe(self, asked: Asked) -> SafeSet:
        """What may be given; nothing where the known baseline cost leaves no room."""
        if self.dose is None:
            return safe_set(
                self.spec.coefficient_bound * asked.norm, self.spec, round=asked.number, baseline_cost=asked.baseline
            )
        room = self.spec.threshold - asked.baseline >= 0.0
        return SafeSet(namespace(room).where(room, self.dose, 0.0), room)
