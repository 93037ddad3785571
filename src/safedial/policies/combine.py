"""Policies made of policies. A part needs nothing but the protocol.

| | gives | its guarantee |
|---|---|---|
| `Either` | the smallest of what the parts allow, and the start until all have a bound | holds if any part's does |
| `Smallest` | the smallest, for several costs: each part has one, and its share of the risks | all costs together |

**Either.** C > τ at the smaller of two doses means that C > τ at each of them, since noise scales with the intensity.
So P(C > τ) ≤ δ if any part's bound has it. Each part watches its own assumption. If one of them holds, its evidence
ever reaches 100 with probability at most 0.01, so the smallest is the evidence, and all must have reached it.

**Smallest.** Each part has its share of the risks, its own threshold and, where it states one, its own dose curve.
`model.costs` has the proof that the smallest of the settings keeps the guarantee. All parts see every round, so they
agree about the reward. Where one has no bound yet nothing is proved, and no setting is above the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from safedial.bounds.rounding import round_down
from safedial.model.costs import split_spec
from safedial.model.namespace import namespace
from safedial.policies.policy import (
    ALARM_AT,
    LOST,
    THROTTLED,
    Asked,
    Bound,
    Decided,
    Evidence,
    Policy,
    StartSetting,
    Terms,
    Told,
)

UNION = (
    "each cost is certified by itself with its own share of the risks; the chance that any exceeds is at most their "
    "sum (union bound), however the costs depend on each other"
)


DATA = (
    "name", "label", "guarantee", "in_order", "counts", "reads_reward", "learns", "zero_tells", "knows_truth",
    "randomised", "zero_one", "takes_proposal", "takes_history", "counts_starts", "allows_past_zeros", "history_counts",
    "direction", "exact_dose", "names_rounds", "most_rounds", "stop_rules", "plain_numbers", "watches_lanes",
    "excludes", "needs", "marginal", "is_own",
)  # fmt: skip
"""What drivers ask of a policy, and of those that it is made of alike."""


def _goes_by(one: str, names: tuple[str, ...]) -> Callable[[type], type]:
    """A class whose data `names` are those of the policy in its field `one`."""

    def made(kind: type) -> type:
        for name in names:
            setattr(kind, name, property(attrgetter(f"{one}.{name}")))
        return kind

    return made


class Parts(Policy):
    """A policy whose state is those of its parts, by name. `bound.memo` begins with the bounds of the parts."""

    parts: Any
    """The policies by name, which know their tasks."""

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> dict[str, Any]:
        return {name: part.init(lanes, watch=watch) for name, part in self.parts.items()}

    def begin(self, state: dict[str, Any], asked: Asked) -> None:
        for name, part in self.parts.items():
            part.begin(state[name], asked)

    def open(self, state: dict[str, Any], asked: Asked, bound: Bound | None, chosen: Any) -> None:
        for name, part in self.parts.items():
            part.open(state[name], asked, None if bound is None else bound.memo[0][name], self._own(part, chosen))

    def tell(self, state: dict[str, Any], place: int, told: Told) -> None:
        for name, part in self.parts.items():
            part.tell(state[name], place, self._part_of(told, name))

    def restart(self, state: dict[str, Any], before: dict[str, Any] | None = None) -> None:
        for name, part in self.parts.items():
            part.restart(state[name], None if before is None else before[name])

    def _own(self, part: Policy, intensity: Any) -> Any:
        """What was chosen, as the part speaks of it."""
        return intensity

    def _part_of(self, told: Told, name: str) -> Told:
        """What one part is told."""
        return told


@_goes_by("of", DATA)
@dataclass(frozen=True, kw_only=True)
class Smallest(Parts):
    """No more than any part allows, and nothing until all are ready. It goes by the name and options of its parts."""

    of: Policy
    """The policy of each cost, before it knows its task."""

    named: Policy | None = None
    """The policy with the options that follow from the task, if any do."""

    options = property(lambda self: (self.named or self.of).options)  # pyright: ignore[reportAssignmentType]

    @cached_property
    def start(self) -> StartSetting:
        """The start of each, and what is safe for every cost."""
        starts = [part.start for part in self.parts.values()]
        known = [each.fallback for each in starts if each.fallback is not None]
        return starts[0]._replace(fallback=min(known) if len(known) == len(starts) else None)

    @property
    def recorded(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.of.recorded is None else RecordedParts(self)

    @cached_property
    def parts(self) -> dict[str, Policy]:
        """The policy of each cost, by name."""
        task, costs = self.task, self.spec.costs or {}
        made = {}
        for name, spec in split_spec(self.spec).items():
            dose = task.dose if costs[name].curve is None else task.dose._replace(cost=costs[name].curve)
            # The evidence of each is fair by itself, and nothing is known about all together.
            made[name] = self.of.on(replace(task, spec=spec, dose=dose, alarm_at=ALARM_AT * len(costs)))
        return made

    def bound(self, state: dict[str, Any], asked: Asked) -> Bound:
        by_name = {name: part.bound(state[name], asked) for name, part in self.parts.items()}
        parts, found = list(self.parts.values()), list(by_name.values())
        chosen = [part.choose(each, asked) for part, each in zip(parts, found, strict=True)]
        largest = [self._shared(part, each.largest) for part, each in zip(parts, found, strict=True)]
        given = [self._shared(part, each) for part, each in zip(parts, chosen, strict=True)]
        if self.task.live:
            return self._one(by_name, chosen, largest, given)
        safe, least = (np.minimum.reduce(np.broadcast_arrays(*each)) for each in (largest, given))
        ready, certified = (_all(getattr(each, name) for each in found) for name in ("ready", "certified"))
        refuted = np.logical_not(_all(np.logical_not(each.refuted) for each in found))
        return Bound(found[0].index, safe, {}, ready, certified, refuted, (by_name, np.minimum(safe, least)))

    def _one(self, by_name: dict[str, Bound], chosen: list[Any], largest: list[Any], given: list[Any]) -> Bound:
        """The bound of one lane, in floats: where some part has none yet, the least of those."""
        found = list(by_name.values())
        unknown = [place for place, each in enumerate(found) if not each.ready]
        least = min(unknown or range(len(found)), key=largest.__getitem__)
        safe, first = min(largest), found[least]
        certified, refuted = all(each.certified for each in found), any(each.refuted for each in found)
        memo, numbers = (by_name, min(safe, *given)), self._numbers(found, chosen, least)
        return Bound(first.index, safe, numbers, not unknown, certified, refuted, memo, first.limit)

    def choose(self, bound: Bound, asked: Asked) -> Any:
        return np.minimum(bound.memo[1], bound.largest)

    def _part_of(self, told: Told, name: str) -> Told:
        """What one part is told. Where a cost is not known, the round teaches no part anything."""
        if not self.task.live:
            return told._replace(cost=told.cost[name], measured=told.measured and told.measured[name])
        parts = told.parts or {}
        if name in parts:
            return parts[name]._replace(weight=parts[name].weight * (told.weight > 0.0))
        return told._replace(fate=LOST) if told.fate == THROTTLED else told

    def evidence(self, state: dict[str, Any]) -> dict[str, Evidence]:
        """The largest of any part, divided by their number."""
        each = [part.evidence(state[name]) for name, part in self.parts.items()]
        found = {}
        for rule in each[0]:
            value = np.maximum.reduce(np.broadcast_arrays(*(one[rule].value for one in each))) / len(each)
            found[rule] = Evidence(value, np.logical_not(_all(np.logical_not(one[rule].crossed) for one in each)))
        return found

    # --- intensities of the parts, whose dose curves may differ

    def _shared(self, part: Policy, intensity: Any) -> Any:
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

    def _own(self, part: Policy, intensity: Any) -> Any:
        """The intensity for one cost of a setting with this intensity of the dial's."""
        own, shared = part.task.dose.cost, self.task.dose.cost
        return intensity if own is shared else own.effect(shared.action(intensity))

    def _setting(self, part: Policy, intensity: float) -> float:
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

    def _decided(self, decided: Decided) -> Iterator[tuple[str, Policy, Decided]]:
        """The decision as each part made it."""
        for name, part in self.parts.items():
            own = part_numbers(decided.numbers, name)
            more = {key: own[key] for key in ("index", "largest", "chosen", "ready")}
            own["starts"] = decided.numbers.get("starts")
            yield name, part, decided._replace(numbers=own, **more)

    def terms(self, decided: Decided) -> Terms:
        whole: Any = Policy.on(self.of, self.task)
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
        return Terms(whole.statement(decided), joined(assumptions) if any(assumptions.values()) else [], lines, facts)


BOUNDS = ("epoch", "cost_upper", "reward", "reward_upper", "cost_radius", "reward_radius", "noise", "exploring")
"""The numbers of the part that allows least which stand for the whole."""


class RecordedParts:
    """The same of each part as `Policy.recorded` gives."""

    def __init__(self, policy: Smallest) -> None:
        self.policy = policy
        self.names = tuple(f"{name}.{key}" for name, part in policy.parts.items() for key in part.recorded.names)

    def __call__(self, policy: Smallest, numbers: Mapping[str, Any], context: Any) -> dict[str, Any]:
        return {name: part.recorded(part, part_numbers(numbers, name), context) for name, part in policy.parts.items()}

    def rounding(self, state: dict[str, Any], context: Any, norm: float) -> float:
        """How far rounding may move the numbers of any part."""
        return max(part.recorded.rounding(state[name], context, norm) for name, part in self.policy.parts.items())


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


# --- Either guarantee suffices


@_goes_by("whole", (*DATA, "uncompiled", "options"))
@dataclass(frozen=True, kw_only=True)
class Either(Parts):
    """The smallest of what the parts allow, and the start until all have a bound. It goes by the name and options of
    `whole`, and the first part chooses.
    """

    whole: Policy
    """The policy as it is named, which has the words of its certificates."""

    members: Mapping[str, Policy] = field(hash=False)
    """The parts, before they know their task."""

    @cached_property
    def parts(self) -> dict[str, Policy]:
        """The parts by name, which know their task."""
        return {name: part.on(self.task) for name, part in self.members.items()}

    @cached_property
    def _first(self) -> Policy:
        return next(iter(self.parts.values()))

    @cached_property
    def start(self) -> StartSetting:
        return self._first.start

    def bound(self, state: dict[str, Any], asked: Asked) -> Bound:
        found = {name: part.bound(state[name], asked) for name, part in self.parts.items()}
        each = list(found.values())
        (first, *others), numbers = each, dict(each[0].numbers)
        for name, bound in list(found.items())[1:]:
            numbers |= {f"{name}.{key}": value for key, value in bound.numbers.items()}
        ready, upper, largest, start = first.ready, first.numbers["cost_upper"], first.largest, first.largest
        xp = namespace(upper, *(bound.numbers["cost_upper"] for bound in others))
        for bound in others:
            ready, upper = ready & bound.ready, xp.maximum(upper, bound.numbers["cost_upper"])
            largest = xp.minimum(largest, bound.largest)
            start = xp.where(bound.ready, start, bound.largest)  # what a part without a bound allows
        numbers["cost_upper"] = xp.where(ready, upper, math.inf)
        limit = next((bound.limit for bound in each if not np.all(bound.ready)), "")
        return first._replace(
            largest=xp.where(ready, largest, start), numbers=numbers, ready=ready, memo=(found,), limit=limit
        )

    def choose(self, bound: Bound, asked: Asked) -> Any:
        return self._first.choose(bound, asked)

    def evidence(self, state: dict[str, Any]) -> dict[str, Evidence]:
        """The smallest, by the rule of the first part; crossed where each ever reached its limit."""
        found = [each for name, part in self.parts.items() for each in part.evidence(state[name]).items()]
        if not found:
            return {}
        (rule, _), values = found[0], np.broadcast_arrays(*(each.value for _, each in found))
        crossed = _all(np.asarray(each.crossed, dtype=bool) for _, each in found)
        return {rule: Evidence(np.minimum.reduce(values), crossed)}

    def terms(self, decided: Decided) -> Terms:
        return Policy.on(self.whole, self.task).terms(decided)
