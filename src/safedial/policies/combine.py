"""Policies made of policies: the smallest of what several allow.

Several costs under a guarantee that is split among them: one part for each cost, with its share of the risks, its own
threshold and, where it states one, its own dose curve. `model.costs` has the proof that the smallest of the settings
keeps the guarantee. All parts see every round, so they agree about the reward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from safedial.bounds.rounding import round_down
from safedial.model.costs import split_spec
from safedial.policies import words
from safedial.policies.family import Asked, Bound, Decided, Evidence, Family, Terms, Told

UNION = (
    "each cost is certified by itself with its own share of the risks; the chance that any exceeds is at most their "
    "sum (union bound), however the costs depend on each other"
)


@dataclass(frozen=True, kw_only=True)
class Smallest(Family):
    """No more than any part allows, and nothing until all are ready. It goes by the name and options of its parts."""

    of: Family
    """The policy of each cost, before it knows its task."""

    name = property(lambda self: self.of.name)  # pyright: ignore[reportAssignmentType] -- data of the parts
    label = property(lambda self: self.of.label)  # pyright: ignore[reportAssignmentType]
    guarantee = property(lambda self: self.of.guarantee)  # pyright: ignore[reportAssignmentType]
    in_order = property(lambda self: self.of.in_order)  # pyright: ignore[reportAssignmentType]
    counts = property(lambda self: self.of.counts)  # pyright: ignore[reportAssignmentType]
    reads_reward = property(lambda self: self.of.reads_reward)  # pyright: ignore[reportAssignmentType]
    learns = property(lambda self: self.of.learns)  # pyright: ignore[reportAssignmentType]
    randomised = property(lambda self: self.of.randomised)  # pyright: ignore[reportAssignmentType]
    stop_rules = property(lambda self: self.of.stop_rules)  # pyright: ignore[reportAssignmentType]
    options = property(lambda self: self.of.options)  # pyright: ignore[reportAssignmentType]

    @property
    def recorded(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.of.recorded is None else RecordedParts(self)

    @cached_property
    def parts(self) -> dict[str, Family]:
        """The policy of each cost, by name."""
        task, costs = self.task, self.spec.costs or {}
        made = {}
        for name, spec in split_spec(self.spec).items():
            dose = task.dose if costs[name].curve is None else task.dose._replace(cost=costs[name].curve)
            made[name] = self.of.on(replace(task, spec=spec, dose=dose))
        return made

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> list[Any]:
        return [part.init(lanes, watch=watch) for part in self.parts.values()]

    def begin(self, state: list[Any]) -> None:
        for own, part in zip(state, self.parts.values(), strict=True):
            part.begin(own)

    def bound(self, state: list[Any], asked: Asked) -> Bound:
        found = [part.bound(own, asked) for own, part in zip(state, self.parts.values(), strict=True)]
        chosen = [part.choose(each, asked) for part, each in zip(self.parts.values(), found, strict=True)]
        largest, given = ([self._shared(*pair) for pair in zip(self.parts.values(), each, strict=True)]
                          for each in ([each.largest for each in found], chosen))  # fmt: skip
        numbers: dict[str, Any] = {}
        if self.task.live:
            least = min(range(len(found)), key=largest.__getitem__)
            unknown = [place for place, each in enumerate(found) if not each.ready]
            least = min(unknown, key=largest.__getitem__) if unknown else least
            numbers = self._numbers(found, chosen, least)
            first, limit = found[least].index, found[least].limit
        else:
            first, limit = found[0].index, ""
        whole = [np.minimum.reduce(np.broadcast_arrays(*each)) for each in (largest, given)]
        ready, certified = (_all(getattr(each, name) for each in found) for name in ("ready", "certified"))
        refuted = np.logical_not(_all(np.logical_not(each.refuted) for each in found))
        chosen = np.minimum(*whole)
        return Bound(first, whole[0], numbers, ready, certified, refuted, (found, chosen), limit)

    def choose(self, bound: Bound, asked: Asked) -> Any:
        return np.minimum(bound.memo[1], bound.largest)

    def open(self, state: list[Any], asked: Asked, bound: Bound | None, chosen: Any) -> None:
        found = [None] * len(state) if bound is None else bound.memo[0]
        for own, part, each in zip(state, self.parts.values(), found, strict=True):
            part.open(own, asked, each, chosen)

    def tell(self, state: list[Any], place: int, told: Told) -> None:
        for own, (name, part) in zip(state, self.parts.items(), strict=True):
            part.tell(own, place, self._part_of(told, name))

    def _part_of(self, told: Told, name: str) -> Told:
        """What one part is told. Where a cost is not known, the round teaches no part anything."""
        if not self.task.live:
            return told._replace(cost=told.cost[name])
        parts = told.parts or {}
        return parts[name]._replace(weight=parts[name].weight * (told.weight > 0.0)) if name in parts else told

    def evidence(self, state: list[Any]) -> dict[str, Evidence]:
        """The largest of any part, divided by their number: the evidence of each is fair by itself, and nothing is
        known about all together.
        """
        each = [part.evidence(own) for own, part in zip(state, self.parts.values(), strict=True)]
        count, found = len(each), {}
        for rule in each[0]:
            values = [one[rule].value for one in each]
            limit = each[0][rule].limit
            crossed = np.logical_not(_all(np.asarray(one[rule].value) < count * limit for one in each))
            found[rule] = Evidence(np.maximum.reduce(np.broadcast_arrays(*values)) / count, crossed, limit)
        return found

    def restart(self, state: list[Any]) -> None:
        for own, part in zip(state, self.parts.values(), strict=True):
            part.restart(own)

    # --- intensities of the parts, whose dose curves may differ

    def _shared(self, part: Family, intensity: Any) -> Any:
        """An intensity of one cost's curve in that of the dial, which all costs share: never a higher setting."""
        own, shared = part.task.dose.cost, self.task.dose.cost
        if own is shared:
            return intensity
        if not self.task.live:
            return shared.effect(own.action(intensity))
        if intensity in (0.0, 1.0):
            return intensity
        action = float(own.action(round_down(intensity, own.error_units)))
        return min(round_down(float(shared.effect(action)), shared.error_units), math.nextafter(1.0, 0.0))

    def _setting(self, part: Family, intensity: float) -> float:
        """The largest setting of the dial whose intensity for this cost is at most this one."""
        curve, dial = part.task.dose.cost, self.task.dial
        if dial.is_plain and curve.name == "identity":
            return round_down(intensity)
        action = float(curve.action(round_down(intensity, curve.error_units)))
        return action if dial.is_plain else dial.setting(action)

    # --- the words of its certificates

    def _numbers(self, found: list[Bound], chosen: list[Any], least: int) -> dict[str, Any]:
        """Those of each part, by its name, and those of the one that allows least."""
        numbers = {name: value for name, value in found[least].numbers.items() if name in BOUNDS}
        for name, each, given in zip(self.parts, found, chosen, strict=True):
            own = each.numbers | {"index": each.index, "largest": each.largest, "chosen": given, "ready": each.ready}
            numbers |= {f"{name}.{key}": value for key, value in own.items()}
        return numbers | {"least": list(self.parts)[least]}

    def _decided(self, decided: Decided) -> Iterator[tuple[str, Family, Decided]]:
        """The decision as each part made it."""
        for name, part in self.parts.items():
            own = part_numbers(decided.numbers, name)
            more = {key: own[key] for key in ("index", "largest", "chosen", "ready")}
            yield name, part, decided._replace(numbers=own, **more)

    def terms(self, decided: Decided | None) -> Terms:
        statement = words.statement(self.guarantee, self.spec)
        if decided is None:
            return Terms(statement, joined({name: part.terms(None).assumptions for name, part in self.parts.items()}))
        lines, settings, costs, assumptions = [], [], {}, {}
        stated, least = self.spec.costs or {}, decided.numbers["least"]
        for name, part, own in self._decided(decided):
            terms = part.terms(own)
            lines += [f"{name}: {line}" for line in terms.arithmetic]
            settings.append(f"{self.task.dial.text(self._setting(part, own.largest))} ({name})")
            costs[name] = {**stated[name].to_dict(), "safe_intensity": own.largest, **terms.facts}
            assumptions[name] = terms.assumptions
        risks = [told["risk"] for told in costs.values()]
        facts = {
            "risk": {name: sum(risk[name] for risk in risks) for name in risks[0]},
            "least": least,
            "cost_upper": costs[least]["cost_upper"],
            "costs": costs,
        }
        lines.append(f"The smallest of the largest settings counts: {', '.join(settings)}.")
        return Terms(statement, joined(assumptions), lines, facts)


BOUNDS = ("cost_upper", "reward_upper", "cost_radius", "reward_radius", "noise", "exploring")
"""The numbers of the part that allows least which stand for the whole."""


class RecordedParts:
    """The same of each part as `Family.recorded` gives."""

    def __init__(self, policy: Smallest) -> None:
        self.policy = policy
        self.names = tuple(f"{name}.{key}" for name, part in policy.parts.items() for key in part.recorded.names)

    def __call__(self, policy: Smallest, numbers: Mapping[str, Any], context: Any) -> list[Any]:
        return [part.recorded(part, part_numbers(numbers, name), context) for name, part in policy.parts.items()]

    def rounding(self, state: list[Any], context: Any, norm: float) -> float:
        """How far rounding may move the numbers of any part."""
        parts = zip(state, self.policy.parts.values(), strict=True)
        return max(part.recorded.rounding(own, context, norm) for own, part in parts)


def part_numbers(numbers: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The numbers of one part."""
    head = f"{name}."
    return {key.removeprefix(head): value for key, value in numbers.items() if key.startswith(head)}


def joined(each: Mapping[str, list[str]]) -> list[str]:
    """The assumptions of each cost, by name: those of all, those of one, and why they suffice together."""
    lists = list(each.values())
    shared = [line for line in lists[0] if all(line in lines for lines in lists)]
    own = [f"{name}: {line}" for name, lines in each.items() for line in lines if line not in shared]
    return [*shared, *own, UNION]


def _all(each: Any) -> Any:
    found = list(each)
    if all(isinstance(one, bool | np.bool_) for one in found):
        return all(found)
    return np.logical_and.reduce(np.broadcast_arrays(*found))
