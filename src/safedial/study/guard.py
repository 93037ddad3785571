"""The guard: the rules that stop a study, and the limits that lower an action.

A rule that fires writes one event (`alarm`); the study then advises its `fallback_action` until a person calls
`resume`, with a reason. Caps, masks and the largest step up lower one action; its certificate shows which in `limit`.
They only lower an action and use nothing from after it, so the promise still holds.

| rule | fires when |
|---|---|
| `alarm` | the monitor's evidence (core.monitor) reaches 1/`alarm_level` |
| `drift` | HP-Conformal: the evidence that rounds are not exchangeable reaches 100 |
| `bracket_drift` | HP-Shield: the evidence that rounds are not exchangeable, or break their bracket, reaches 100 |
| `student_drift` | HP-Student: the evidence that noise is not Gaussian and of one size reaches 100 |
| `start_refuted` | HP-Shield: the evidence that the start exceeds more often than the risk reaches 100 |
| `assumption_broken` | the bounds lie outside what the stated norms allow |
| `noise_broken` | the evidence that residuals exceed the stated noise (core.tails) reaches 2/`alarm_level` |
| `too_many_open` | more than `max_open` decisions wait for an outcome |
| `too_many_void` | more than `max_void` rounds since the last resume are void, expired or throttled |
| `too_many_unwatched` | more than `max_unwatched` of the decisions since the last resume (and 20) have ended without \
an outcome that the watch can count: void, expired, or applied above the advice where the model cannot rescale |
| `outcome_overdue` | a decision is asked for while an outcome has been open for more than `max_open_hours` |
| `stop_rule` | `stop.violations` of the last `stop.of_last` outcomes were above τ, or `stop.decisions` were made |

`due_after` stops nothing: an outcome that has been open for longer is shown as overdue.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from safedial.decision.decide import intensity_of
from safedial.decision.decision import Decision
from safedial.decision.rules import Rules
from safedial.decision.units import Dial, real
from safedial.errors import is_whole, require

MAX_OPEN, MOST = 10_000, 1_000_000_000
MOST_HOURS = 1e6
"""More than a century; much more is beyond what a calendar holds."""
DEFAULTS: Mapping[str, Any] = {
    "alarm_level": 0.01,
    "max_open": MAX_OPEN,
    "max_void": None,
    "max_unwatched": 0.25,
    "max_open_hours": None,
    "max_step": None,
    "caps": [],
    "stop": {},
}
"""The guard of a new study, unless it states otherwise."""

STATED = ("due_after",)
"""Rules of a new study that stand in its log only where they are stated."""

FEW_UNWATCHED = 20
"""`max_unwatched` does not fire before there are more than this many."""


class Cap(NamedTuple):
    """The setting is at most `limit` if every named feature lies in its range."""

    name: str
    limit: float
    ranges: tuple[tuple[int, float, float], ...]

    def holds(self, raw: Sequence[float]) -> bool:
        return all(low <= raw[column] <= high for column, low, high in self.ranges)


@dataclass(frozen=True, kw_only=True)
class Guard:
    """The rules of one study, checked; `fields` is their written form."""

    alarm_level: float = 0.01
    max_open: int | None = MAX_OPEN
    max_void: int | None = None
    max_unwatched: float | None = None
    max_open_hours: float | None = None
    due_after: float | None = None
    max_step: float | None = None
    caps: tuple[Cap, ...] = ()
    stop_violations: int | None = None
    stop_of_last: int = 1
    stop_decisions: int | None = None
    fields: Mapping[str, Any]
    lowers_nothing: bool = field(init=False)
    """Whether there is neither a cap nor a largest step."""

    @property
    def deadline(self) -> float | None:
        """Hours after which an open outcome is overdue: `due_after`, or else `max_open_hours`."""
        return self.max_open_hours if self.due_after is None else self.due_after

    def __post_init__(self) -> None:
        object.__setattr__(self, "lowers_nothing", not self.caps and self.max_step is None)


def read_guard(given: Any, rules: Rules) -> Guard:
    """A guard from its written form, for example {"max_open": 200, "stop": {"violations": 3, "of_last": 50}}.

    The present defaults are written for everything else, so that new defaults change no study.
    """
    fields = {} if given is None else given
    require(isinstance(fields, Mapping), "guard", given, "must be an object of rules")
    known, fields = (*DEFAULTS, *STATED), {**DEFAULTS, **fields}
    unknown = sorted(set(fields) - set(known))
    require(not unknown, "guard", unknown, "has unknown rules", "choose from " + ", ".join(known))
    level = real("guard.alarm_level", fields["alarm_level"])
    require(0.0 < level < 1.0, "guard.alarm_level", level, "must lie strictly between 0 and 1")
    step = fields.get("max_step")
    if step is not None:
        require(real("guard.max_step", step) > 0.0, "guard.max_step", step, "must be > 0")
        lowest = rules.learner.least_setting(rules)
        reaches = lowest is None or rules.dial.low + step >= lowest
        require(
            reaches,
            "guard.max_step",
            step,
            "must reach the dial's lowest level",
            "otherwise no dose would ever be given",
        )
    share = fields.get("max_unwatched")
    if share is not None:
        require(0.0 < real("guard.max_unwatched", share) <= 1.0, "guard.max_unwatched", share, "must lie in (0, 1]")
    hours, due = _hours("max_open_hours", fields), _hours("due_after", fields)
    rule = "must be at most max_open_hours, when the study stops"
    require(due is None or hours is None or due <= hours, "guard.due_after", due, rule)
    stop = fields.get("stop") or {}
    require(isinstance(stop, Mapping), "guard.stop", stop, "must be an object", "name violations, of_last or decisions")
    odd = sorted(set(stop) - {"violations", "of_last", "decisions"})
    require(not odd, "guard.stop", odd, "has unknown names", "violations, of_last, decisions")
    violations = _count("guard.stop.violations", stop.get("violations"))
    of_last = _count("guard.stop.of_last", stop.get("of_last", 1_000_000 if violations else 1)) or 1
    enough = violations is None or violations <= of_last
    require(enough, "guard.stop.violations", violations, f"must be at most of_last = {of_last}")
    caps = fields.get("caps") or []
    require(isinstance(caps, (list, tuple)), "guard.caps", caps, "must be a list")
    return Guard(
        alarm_level=level,
        max_open=_count("guard.max_open", fields["max_open"]),
        max_void=_count("guard.max_void", fields.get("max_void")),
        max_unwatched=None if share is None else float(share),
        max_open_hours=hours,
        due_after=due,
        max_step=None if step is None else float(step),
        caps=tuple(_cap(number, cap, rules) for number, cap in enumerate(caps)),
        stop_violations=violations,
        stop_of_last=of_last,
        stop_decisions=_count("guard.stop.decisions", stop.get("decisions")),
        fields={name: value for name, value in fields.items() if name not in STATED or value is not None},
    )


def with_limits(guard: Guard, decision: Decision, raw: Sequence[float], before: float) -> Decision:
    """The decision with its action lowered to what the caps, the masks and the step from `before` allow."""
    rules, limiter = decision.rules, ""
    dial, limit = rules.dial, decision.action
    for cap in guard.caps:
        # Where rounds that are given nothing wait for their outcomes, those under such a cap do not: it must be named
        # whether or not it lowers the action, so that which rounds are left out depends on contexts alone.
        named = rules.learner.awaits_all and intensity_of(rules, _at_most(dial, cap.limit)) == 0.0
        if (cap.limit < limit or named) and cap.holds(raw):
            limit, limiter = min(cap.limit, limit), "mask" if cap.limit == dial.low else "cap"
    if guard.max_step is not None and limit > before + guard.max_step:
        limit, limiter = before + guard.max_step, "step_up"
    if not limiter:
        return decision
    setting = _at_most(dial, limit)
    return decision._replace(action=setting, intensity=intensity_of(rules, setting), limiter=limiter)


def _at_most(dial: Dial, limit: float) -> float:
    """The largest setting of the dial that does not exceed `limit`."""
    if dial.levels is None:
        return max(dial.low, limit)
    index = bisect_right(dial.levels, limit)
    return dial.levels[index - 1] if index else dial.low


def _cap(number: int, cap: Any, rules: Rules) -> Cap:
    name = f"guard.caps[{number}]"
    proper = isinstance(cap, Mapping) and set(cap) <= {"name", "when", "limit"} and {"when", "limit"} <= set(cap)
    require(proper, name, cap, "must have `when` and `limit`, and may have a `name`")
    dial, limit = rules.dial, real(f"{name}.limit", cap["limit"])
    require(dial.low <= limit <= dial.high, f"{name}.limit", limit, f"must lie between {dial.low:g} and {dial.high:g}")
    require(isinstance(cap["when"], Mapping), f"{name}.when", cap["when"], "must be a mapping from features to ranges")
    ranges = tuple(_range(f"{name}.when", feature, part, rules) for feature, part in cap["when"].items())
    return Cap(str(cap.get("name", f"cap {number + 1}")), limit, ranges)


def _range(name: str, feature: Any, part: Any, rules: Rules) -> tuple[int, float, float]:
    names = rules.features.names if rules.features else tuple(str(column) for column in range(rules.dim))
    require(str(feature) in names, name, feature, "must be one of the features", ", ".join(names[:20]))
    proper = isinstance(part, Mapping) and part and set(part) <= {"min", "max"}
    require(proper, name, part, "must have min, max or both")
    low, high = (real(f"{name}.{end}", part[end]) if end in part else None for end in ("min", "max"))
    return names.index(str(feature)), -math.inf if low is None else low, math.inf if high is None else high


def _hours(name: str, fields: Mapping[str, Any]) -> float | None:
    value = fields.get(name)
    fits = value is None or 0.0 < real(f"guard.{name}", value) <= MOST_HOURS
    rule = f"must be > 0 and at most {MOST_HOURS:.0f} hours"
    require(fits, f"guard.{name}", value, rule, "leave it out if there is no such limit")
    return None if value is None else float(value)


def _count(name: str, value: Any) -> int | None:
    whole = value is None or (is_whole(value, 1) and value <= MOST)
    require(whole, name, value, "must be a whole number from 1 to a thousand million")
    return value
