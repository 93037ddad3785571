"""What is given while a policy has no bound: a dose that the user declares safe, or one that the constants certify."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from safedial.bounds.rounding import round_down
from safedial.bounds.safe_set import SafeSet, largest_safe_intensity, safe_set
from safedial.errors import require
from safedial.model.dial import rounded_down
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import every, where
from safedial.policies import words
from safedial.policies.policy import Asked, Decided, Policy, StartSetting, Task, Terms, part, whole


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


@dataclass(frozen=True, kw_only=True)
class StartingPolicy(Policy):
    """A policy that gives a start dose while it has no bound on C/g.

    Args:
        start_dose: an intensity in (0, 1] that you declare safe for every context. None: the first-round dose that the
            spec's constants certify.
        lag: how many of the latest rounds are left out, because their outcomes may still arrive.
    """

    counts = False

    start_dose: float | None = part(None, "or None for the certified one")
    lag: int = whole(0, way_out="how many rounds an outcome may take")

    @cached_property
    def start(self) -> StartSetting:
        """The declared setting; as the fallback, else, one that the constants certify for every context, if a bound on
        contexts is stated.
        """
        task, spec, curve = self.task, self.safe_spec, self.task.dose.cost
        action = task.start_action
        if self.start_dose is not None and action is None:
            action = task.dial.setting(float(curve.action(self.start_dose)))
        if action is not None or spec.context_bound is None:
            return StartSetting(action, action)
        safe = safe_set(task.spec.coefficient_bound * task.spec.context_bound, task.spec, round=1.0).intensity
        return StartSetting(None, task.dial.setting(float(curve.action(round_down(safe, curve.error_units)))))

    def first(self, asked: Asked) -> SafeSet:
        """What may be given without a bound; nothing where the known baseline cost leaves no room."""
        spec = self.safe_spec
        if self.start_dose is None:
            return safe_set(spec.coefficient_bound * asked.norm, spec, asked.number, asked.baseline)
        room = spec.threshold - asked.baseline >= 0.0
        return SafeSet(where(room, self.start_dose, 0.0), room)

    def allowed(self, upper: Any, known: Any, asked: Asked) -> SafeSet:
        """What an upper bound on C/g allows, where it is known."""
        room = self.safe_spec.threshold - asked.baseline
        return largest_safe_intensity(where(known, upper, 0.0), 0.0, threshold=room)

    def or_first(self, allowed: SafeSet, known: Any, asked: Asked) -> SafeSet:
        """What a bound allows, and the start where it is not known."""
        if every(known):
            return allowed
        return SafeSet(*(where(known, *parts) for parts in zip(allowed, self.first(asked), strict=True)))

    # --- The words of its certificates, of which a family says what is its own

    def terms(self: Any, decided: Decided) -> Terms:
        facts = self.facts(decided)
        assumptions = self.assumptions(decided.guarantee) if GUARANTEES[decided.guarantee].claimed else []
        return Terms(self.statement(decided), assumptions, self.arithmetic(decided, facts), facts)

    def statement(self: Any, decided: Decided) -> str:
        """The guarantee in one sentence: while there is no bound, that of the start, else what is `bounded`."""
        given, spec = GUARANTEES[decided.guarantee], self.spec
        if not given.proved:
            return words.statement(decided.guarantee, spec)
        limited = f"P({words.event(spec)}) <= {spec.violation_risk:g} in this round"
        return f"{limited}, from the constants (start-up)" if given.from_constants else self.bounded(decided, limited)

    def assumptions(self: Any, guarantee: str) -> list[str]:
        """What a decision's guarantee rests on: while there is no bound, what the start does, else all that follows
        from what they share.
        """
        exact = "sensors measure without error; any stated baseline cost is exact"
        shared = [words.exact_curves(self.task.dose), exact, self.applied]
        start = words.start_assumptions(guarantee, self.spec, shared)
        return self.rests_on(shared) if start is None else start

    def arithmetic(self: Any, decided: Decided, facts: dict[str, Any]) -> list[str]:
        """The bound and how it was `reckoned`, or why there is none; the division that gave the largest safe intensity;
        and the guards that changed it.
        """
        upper, allowed = facts["cost_upper"], facts.get("bound_intensity", decided.largest)
        if upper is None:
            safe = rounded_down(decided.largest)
            lines = [*self.no_bound(decided, facts), f"Until then the largest intensity is {safe}."]
        else:
            how = self.reckoned(decided, facts)
            bound = f"The bound: cost per unit of intensity is at most {upper:.4g}: {how}."
            lines = [bound, words.largest_intensity(self.spec, decided.baseline, upper, allowed)]
        return [*lines, *self.guards(decided, facts), *words.part_given(decided)]

    def guards(self, decided: Decided, facts: dict[str, Any]) -> list[str]:
        """Which guard set the intensity; nothing where there are none."""
        return []
