"""The specification of a study: guarantee, policy, units and guard, checked once and stored as plain values.

The guard has the rules that stop a study, and the limits that lower an action. A rule that fires writes one event
(`alarm`); the study then advises its `fallback_action` until a person calls `resume`, with a reason. Caps, masks and
the largest step up lower one action; its certificate shows which in `limit`. They only lower an action and use nothing
from after it, so the guarantee still holds.

| rule | fires when |
|---|---|
| `alarm` | the monitor's evidence (bounds.monitor) reaches 1/`alarm_level` |
| `drift` | HP-Conformal: the evidence that rounds are not exchangeable reaches 100 |
| `bracket_drift` | HP-Shield: the evidence that rounds are not exchangeable, or break their bracket, reaches 100 |
| `student_drift` | HP-Student: the evidence that noise is not Gaussian and of one size reaches 100 |
| `start_refuted` | the evidence that the declared start exceeds more often than the risk reaches 100 |
| `assumption_broken` | the bounds lie outside what the stated norms allow |
| `noise_broken` | the evidence that residuals exceed the stated noise (bounds.monitor) reaches 2/`alarm_level` |
| `too_many_open` | more than `max_open` decisions wait for an outcome |
| `too_many_void` | more than `max_void` rounds since the last resume are void, expired or throttled |
| `too_many_unwatched` | more than `max_unwatched` of the decisions since the last resume (and 20) have no \
outcome that the watch can count: void, expired, open for 200 decisions, or applied above the advice where the model \
cannot rescale |
| `outcome_overdue` | a decision is asked for while an outcome has been open for more than `max_open_hours` |
| `stop_rule` | `stop.violations` of the last `stop.of_last` outcomes were above τ, or `stop.decisions` were made |

`due_after` stops nothing: an outcome that has been open for longer is shown as overdue.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

from safedial.errors import is_whole, require
from safedial.model.costs import cost_columns
from safedial.model.dial import Dial, read_labels, real
from safedial.model.guarantee import CERTIFIED, GUARANTEES
from safedial.model.spec import NAMES
from safedial.policies import FACTORIES, STUDIED, Policy, as_policy
from safedial.rounds.decision import Decision, intensity_of
from safedial.rounds.rules import Rules, own_values, plain_options

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

LEAST_LEVEL = 1e-4
"""The smallest `alarm_level`. A false alarm has probability up to the level plus δ′, which is seldom below 0.01, so a
smaller level gains next to nothing; and at 1e-4 costs that all exceed still stop a study after six rounds or fewer, for
any risk up to 0.1.
"""

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
    rule = f"must lie in [{LEAST_LEVEL:g}, 1): a smaller one would switch the alarm off"
    require(LEAST_LEVEL <= level < 1.0, "guard.alarm_level", level, rule, "0.01 is usual")
    step = fields.get("max_step")
    if step is not None:
        require(real("guard.max_step", step) > 0.0, "guard.max_step", step, "must be > 0")
        lowest = rules.policy.start.least
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
        named = rules.policy.zero_tells and intensity_of(rules, _at_most(dial, cap.limit)) == 0.0
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


# --- The specification of a study

OPTIONS = (
    *("radius", "clip", "probe", "start_dose", "confidence", "group", "window", "lag"),
    *("reach", "history", "groups", "base", "growth", "start_scale"),
)
SHAPE = (
    *("dim", "policy", "dose", "dial", "features", "start_action", "fallback_action", "high_fallback"),
    *("baseline_range", "learning_order", "guard", "labels"),
)


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study's specification. `fields` is its written form: `read_spec(fields)` gives it again.

    `learning_order` is "prefix" (the policy uses the longest run of rounds, from the first, whose outcomes are all
    known; this is valid under any delay) or "arrival" (it uses every outcome at once; delays must not depend on
    outcomes). `before` is the specification up to the amendment, event `since`,
    that made this one, and `began` is the amendment that began its phase (study/amendment.py); 0 if there was none.
    """

    rules: Rules
    guard: Guard
    learning_order: str
    fields: dict[str, Any]
    before: StudySpec | None = None
    since: int = 0
    began: int = 0

    @property
    def chain(self) -> Iterator[StudySpec]:
        """This specification, the one before it, and so on to the study's first."""
        spec: StudySpec | None = self
        while spec is not None:
            yield spec
            spec = spec.before

    def at(self, seq: int) -> StudySpec:
        """The specification that a decision at `seq` was made under."""
        return next(spec for spec in self.chain if seq > spec.since)

    @property
    def phases(self) -> list[StudySpec]:
        """The last specification of each phase, the first phase first."""
        return list({spec.began: spec for spec in reversed(list(self.chain))}.values())

    @property
    def first(self) -> StudySpec:
        """The specification that the study began with."""
        return self.at(1)

    @cached_property
    def ordered(self) -> bool:
        """Whether outcomes are learned from in decision order."""
        return self.learning_order == "prefix" and self.rules.policy.in_order


def read_spec(given: Any, *, quiet: bool = False, own: Policy | None = None) -> StudySpec:
    """Check a specification, a mapping of plain values as in JSON. `own` is the policy that it names, if that is the
    user's own.

    >>> spec = read_spec({"dim": 2, "threshold": 0.5, "total_risk": 0.02, "reward_noise": 1, "cost_noise": 1,
    ...                   "coefficient_bound": 1, "context_bound": 1})
    >>> spec.rules.policy.name, spec.learning_order
    ('hp_probe', 'prefix')
    """
    require(isinstance(given, Mapping), "spec", type(given).__name__, "must be an object of named values")
    fields = {str(name): value for name, value in given.items() if value is not None}
    unknown = sorted(set(fields) - {*NAMES, *OPTIONS, *SHAPE})
    near = get_close_matches(unknown[0], {*NAMES, *OPTIONS, *SHAPE}, n=1) if unknown else []
    require(not unknown, "spec", unknown, "has unknown names", f"did you mean {near[0]!r}?" if near else "")
    guarantee = {name: value for name, value in fields.items() if name in NAMES}
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")
        parts = {**fields, "spec": guarantee, "policy": _policy(fields, own)}
        rules = Rules.from_dict(parts, world=frozenset({"log"}))
    curves = sorted(own_values(rules))
    rule = "is your own curve, which a log cannot hold"
    require(not curves, "spec", curves, rule, "use one of this package, or an Agent")
    _check_options(rules)
    learning_order = fields.get("learning_order", "prefix")
    require(learning_order in ("prefix", "arrival"), "learning_order", learning_order, "must be 'prefix' or 'arrival'")
    guard = read_guard(fields.get("guard"), rules)
    confirmed = fields.get("high_fallback", False)
    require(isinstance(confirmed, bool), "high_fallback", confirmed, "must be true or false")
    written = _written(rules, guard, learning_order) | ({"high_fallback": True} if confirmed else {})
    labels = read_labels(fields.get("labels", {}), columns=cost_columns(rules.spec))
    written |= {"labels": labels} if labels else {}
    return StudySpec(rules=rules, guard=guard, learning_order=learning_order, fields=_as_logged(written))


def _check_options(rules: Rules) -> None:
    """A study's options must be plain values, from which its log can be replayed."""
    written = plain_options(rules.policy.options)
    own = [name for name, value in written.items() if isinstance(value, dict) and "custom" in value]
    rule = "is your own function or model, which a log cannot hold"
    require(not own, own[0] if own else "", own, rule, "make its value a feature or a proposal, or use an Agent")


def _as_logged(value: Any) -> Any:
    """Plain values as a log gives them back, so that equal specifications have equal fields."""
    if isinstance(value, Mapping):
        return {str(name): _as_logged(each) for name, each in value.items()}
    return [_as_logged(each) for each in value] if isinstance(value, (list, tuple)) else value


def _written(rules: Rules, guard: Guard, learning_order: str) -> dict[str, Any]:
    """The rules' written form, with the spec's fields at the same level, and what only a study has."""
    form = rules.to_dict()
    written = {**form.pop("spec"), **form, "learning_order": learning_order, "guard": dict(guard.fields)}
    if form["features"]:
        written["features"] = {"ranges": {}, "units": {}, **form["features"]}
    return {name: value for name, value in written.items() if value is not None}


def check_fallback(fields: Mapping[str, Any], spec: StudySpec) -> None:
    """A fallback in the upper half of the dial must be confirmed, because costs grow with the setting."""
    dial, fallback, start = spec.rules.dial, spec.rules.fallback_action, spec.rules.start_action
    high = fallback > 0.5 * (dial.low + dial.high) and fields.get("fallback_action") is not None and fallback != start
    rule = f"is in the upper half of the dial, {dial.low:g} to {dial.high:g}, but it is advised when costs are too high"
    way_out = "state a lower one, or high_fallback: true if lower settings are the dangerous ones"
    require(not high or "high_fallback" in spec.fields, "fallback_action", fallback, rule, way_out)


def own_policy(fields: Mapping[str, Any]) -> Any:
    """The policy of a new study, if it is the user's own."""
    return _named_and_own(fields)[1]


def _named_and_own(fields: Mapping[str, Any]) -> tuple[Any, Any]:
    """The policy as it is stated, a policy by its name and options; and itself, if it is the user's own."""
    stated = GUARANTEES.get(str(fields.get("guarantee")), CERTIFIED)
    given = fields.get("policy", {"name": stated.default_policy, **stated.default_options})
    if not isinstance(given, Policy):
        return given, None
    own = as_policy(given).name not in FACTORIES
    return {"name": given.name, **(plain_options(given.options) if own else given.options)}, given if own else None


def _policy(fields: Mapping[str, Any], own: Policy | None) -> dict[str, Any] | Policy:
    """The policy's written form, with the options in it or beside it; or the user's own policy."""
    (given, stated), options = _named_and_own(fields), {}
    own = stated or own
    proper = isinstance(given, (str, Mapping))
    require(proper, "policy", given, "must be a name, or an object of a name and options", 'give {"name": "hp_probe"}')
    if isinstance(given, Mapping):
        require("name" in given, "policy", sorted(map(str, given)), "has no name", 'give {"name": "hp_probe", ...}')
        given, options = given.get("name"), {name: value for name, value in given.items() if name != "name"}
    options |= {name: fields[name] for name in OPTIONS if name in fields}
    if own is not None:
        return _checked(own, given, options)
    fits = given in STUDIED or given not in FACTORIES
    require(fits, "policy", given, "cannot run a study", "choose " + ", ".join(STUDIED))
    group = options.get("group")
    plain = isinstance(group, (str, int, bool, type(None)))
    require(plain, "group", type(group).__name__, "cannot be stored in a log: give plain values")
    return {"name": str(given), **options}


def _checked(own: Policy, name: Any, options: Mapping[str, Any]) -> Policy:
    """The user's own policy, which must be the one that the study names."""
    require(own.name == name, "policy", own.name, f"must be the study's, {name!r}")
    stated = plain_options(own.options)
    other = sorted(each for each in {*stated, *options} if stated.get(each) != options.get(each))
    require(not other, "policy", own.name, f"differs from the study's policy in these options: {', '.join(other)}")
    return own
