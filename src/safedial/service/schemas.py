"""The bodies and queries of requests, and the bodies of answers: they check requests and make the OpenAPI document.

A request's model checks names and types. What depends on the study (its features, its dial, its policy) the study
checks, wherever a value is from; for that reason a context and a specification pass here as they are, though the
document shows their form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from safedial.model.guarantee import PROVED
from safedial.policies import STUDIED


class Request(BaseModel):
    """The body of a request: no other names than these, no text or booleans as numbers; null is as good as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Query(BaseModel):
    """The query of a request. A misspelt name is refused: it would silently do nothing."""

    model_config = ConfigDict(extra="forbid")


LARGEST = 2**62
Whole = Annotated[int, Field(ge=0, le=LARGEST)]


def _object(given: Any) -> Any:
    """Refuse what is not an object, and numbers in it that are not finite, wherever they are."""
    if not isinstance(given, dict):
        raise PydanticCustomError("dict_type", "must be an object")
    if not all(math.isfinite(value) for value in _floats(given)):
        raise PydanticCustomError("finite_number", "must hold finite numbers")
    return given


def _floats(given: Any) -> Iterable[float]:
    if isinstance(given, (dict, list)):
        for value in given.values() if isinstance(given, dict) else given:
            yield from _floats(value)
    elif isinstance(given, float):
        yield given


class Guard(BaseModel):
    """When a study stops advising, and what lowers an action: docs/study.md."""

    model_config = ConfigDict(extra="allow")
    alarm_level: float | None = Field(
        None, ge=1e-4, lt=1, description="level of the alarms on the guarantee and on the noise; 0.01"
    )
    max_open: int | None = Field(None, ge=1, description="decisions that may wait for an outcome; 10,000")
    max_open_hours: float | None = Field(None, gt=0, description="how long an outcome may be open")
    due_after: float | None = Field(
        None, gt=0, description="hours after which an open outcome is shown as overdue; stops nothing"
    )
    max_void: int | None = Field(None, ge=1, description="rounds that may be void, expired or throttled")
    max_unwatched: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of decisions that may end without an outcome that the watch can count; 0.25",
    )
    max_step: float | None = Field(None, gt=0, description="the largest increase from the previous setting")
    caps: list[dict[str, Any]] | None = Field(None, description='[{"when": {"age": {"min": 75}}, "limit": 2}]')
    stop: dict[str, int] | None = Field(None, description='{"violations": 3, "of_last": 50, "decisions": 1000}')


class Spec(BaseModel):
    """A study's specification. docs/study.md lists all fields."""

    model_config = ConfigDict(extra="allow")
    dim: int | None = Field(None, ge=1, description="length of the context")
    threshold: float | None = Field(
        None, description="τ: the largest acceptable cost, > 0 (of any sign with guarantee bracket); or costs"
    )
    costs: dict[str, Any] | None = Field(
        None,
        description='several costs by name: {"trough": {"threshold": 20, "growth": {...}}, ...}; certified: '
        '{"heat": {"threshold": 2, "noise": 0.2}, ...}',
    )
    violation_risk: float | None = Field(None, gt=0, lt=1, description="δ: the risk in each round")
    estimation_risk: float | None = Field(
        None, gt=0, lt=1, description="δ′: the risk that a confidence set misses in any round of the study"
    )
    total_risk: float | None = Field(None, gt=0, lt=1, description="δ + δ′, split for you")
    reward_noise: float | None = Field(None, gt=0)
    cost_noise: float | None = Field(None, gt=0)
    coefficient_bound: float | None = Field(None, gt=0, description="S")
    context_bound: float | None = Field(None, gt=0, description="L")
    ridge: float | None = Field(None, gt=0, description="λ")
    guarantee: str | None = Field(None, description=", ".join(PROVED))
    policy: Any = Field(None, description=f"{', '.join(STUDIED)}; a name, or an object with options")
    radius: str | None = Field(None, description="mixture, self-normalised, noise-adaptive or paper")
    dose: dict[str, Any] | None = Field(None, description='a dose curve, {"curve": "hill", "ed50": 0.4}')
    dial: dict[str, Any] | None = Field(None, description='{"low": 0, "high": 20, "unit": "mg", "levels": [5, 10, 20]}')
    features: dict[str, Any] | None = Field(
        None,
        description='{"names": [...], "center": [...], "scale": [...], "ranges": {"age": [0, 120]}, "units": {...}}',
    )
    start_action: float | None = Field(
        None, description="where no constants are stated: a setting declared safe for every context"
    )
    fallback_action: float | None = Field(
        None, description="the setting advised while the study is stopped; by default the dial's low end"
    )
    high_fallback: bool | None = Field(
        None, description="true confirms a fallback_action in the upper half of the dial"
    )
    baseline_range: list[float | None] | None = Field(
        None, min_length=2, max_length=2, description="the range of every baseline_cost; by default [0, null]"
    )
    guard: Guard | None = None
    labels: dict[str, str] | None = Field(
        None, description='names for readers: {"cost": "trough", "cost_unit": "mg/l", "reward": ..., "unit": "patient"}'
    )
    learning_order: str | None = Field(None, description="prefix or arrival")


Specification = Annotated[Any, AfterValidator(_object), WithJsonSchema({"type": "object", "title": "Spec"})]
"""Checked by the study; in the document it is `Spec`."""
NUMBER = {"type": "number"}
Context = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "array", "items": NUMBER}, {"type": "object", "additionalProperties": NUMBER}]}),
]


class NewStudy(Request):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    spec: Specification


class Ask(Request):
    """A context, in the order of the study's features or by their names."""

    context: Context
    baseline_cost: float | None = Field(
        None, description="the known cost at action 0; in the study's baseline_range; 0 if absent"
    )
    meta: dict[str, str | bool | int | float] | None = Field(
        None, description="stored with the decision: {ward: 3b}; at most 20 short names and values"
    )
    allow_extrapolation: bool | None = Field(
        None, description="accept a context outside the stated ranges of its features, and mark the decision"
    )
    proposal: float | None = Field(
        None, description="hp_shield, where it takes one: the proposed or requested setting, in the dial's units"
    )
    unit: str | None = Field(None, min_length=1, max_length=200, description="who gets it, for example a patient")
    visit: str | None = Field(
        None, min_length=1, max_length=200, description="the visit; a unit's visit has one decision that is not void"
    )


class Outcome(Request):
    reward: float | None = Field(None, description="as measured; needed only where the policy chooses by it")
    cost: float | dict[str, float | None] = Field(
        description="as measured; an object with each of the spec's costs by name, null where one is not known"
    )
    applied_action: float | None = Field(
        None, description="if it differs from the advice; it must have been chosen without knowledge of the outcome"
    )
    observed_at: str | None = Field(None, description="ISO 8601; neither before the decision nor in the future")
    throttled: bool | None = Field(
        None, description="the action was lowered because of the outcome, which is not an override"
    )
    unrelated: bool | None = Field(
        None,
        description="if nothing was applied although something was advised: you state that the reason has nothing to "
        "do with the outcome; otherwise the round counts as void",
    )


class Correction(Request):
    reason: str = Field(min_length=1)
    reward: float | None = None
    cost: float | dict[str, float | None] | None = Field(None, description="several costs are replaced together")
    applied_action: float | None = None


class Void(Request):
    reason: str = Field(min_length=1)
    unrelated: bool | None = Field(None, description="you state that the reason has nothing to do with the outcome")


class Resume(Request):
    reason: str = Field(min_length=1)
    rule: str | None = Field(None, description="refuse unless this rule has stopped the study")
    forget: bool | None = Field(None, description="where no constants are stated: restart without the earlier rounds")
    unrelated: bool = Field(
        False,
        description="with forget: you state that the reason for it has nothing to do with outcomes; otherwise "
        "a guarantee for Gaussian noise is not exact again",
    )


class Amendment(Request):
    """The specification from the next decision on: the whole of it, or what changes."""

    reason: str = Field(min_length=1)
    spec: Specification | None = Field(None, description="as for a new study; dim and features may be left out")
    changes: Annotated[dict[str, Any], AfterValidator(_object)] | None = Field(
        None, description='only what differs, {"threshold": 0.6}; null drops a field'
    )
    from_round: int | None = Field(None, description="refuse the amendment unless it begins with this round")
    keep_learning: bool | None = Field(
        None, description="true: keep what was learned, or refuse; false: start again; by default kept where proved"
    )


# --- Queries


class EventsQuery(Query):
    from_seq: Whole = Field(1, description="the first seq to return")
    limit: Whole = Field(1_000, description="the largest number of events")


class TrailQuery(Query):
    before: Whole = Field(LARGEST, description="events before this seq")
    limit: Whole = Field(50, description="the largest number of events")
    whole: Whole = Field(
        0, description="1 for every event; otherwise without decisions, first outcomes, imports and snapshots"
    )


class VerifyQuery(Query):
    checkpoint: str | None = Field(
        None,
        description="what `safedial study checkpoint` wrote or printed, or SEQ:HASH of any answer; "
        "of another study: 409",
    )


class SeriesQuery(Query):
    points: Whole = Field(300, description="the largest number of points per curve")


class RowsQuery(Query):
    before: Whole | None = Field(None, description="decisions before this seq")
    limit: Whole = Field(50, description="the largest number of decisions")
    search: str = Field("", description="only decisions whose number, unit, visit, key or metadata contain this")
    unit: str | None = Field(None, description="only decisions of this unit")
    visit: str | None = Field(None, description="only decisions of this visit")
    overdue: Whole = Field(0, description="1 for decisions whose outcome is overdue")


class UnitsQuery(Query):
    after: Whole = Field(0, description="units after this many")
    limit: Whole = Field(100, description="the largest number of units")
    search: str = Field("", description="only units whose labels contain this")


# --- Answers


class Decision(BaseModel):
    """An advised action. Its certificate holds every number and assumption behind it."""

    id: str
    seq: int
    hash: str = Field(description="of the event: with its seq a checkpoint, for `verify`")
    action: float
    intensity: float
    safe_action: float | None
    certificate: dict[str, Any]
    proposal: float | None = Field(None, description="the proposal that came with the question")
    proposal_answer: str | None = Field(None, description="granted, lowered or raised; the certificate says why")
    replayed: bool | None = Field(None, description="repeated for the same request with the same key")
    stop_reason: str | None = Field(None, description="the rule that has stopped the study since, or empty")
    amended: bool | None = Field(None, description="the study's specification has changed since")


class DecisionRecord(Decision):
    """A decision, its reason, and later reports about it."""

    why: str = Field(description="what set the action")
    explanation: str
    events: list[Event]


class Receipt(BaseModel):
    """What was written."""

    decision_id: str | None = None
    seq: int
    hash: str = Field(description="of the event: with its seq a checkpoint, for `verify`")
    replayed: bool = Field(description="it was already recorded")
    stop_reason: str | None = Field(
        None, description="of a resume: the rule that has stopped the study again, or empty"
    )


class Event(BaseModel):
    seq: int
    kind: str
    decision_id: str | None
    at: str
    actor: str
    reason: str
    body: dict[str, Any]
    hash: str


class Events(BaseModel):
    events: list[Event]
    next_seq: int


class TrailEvent(Event):
    """An amendment has what it `changed`: [old, new] by name, null for what is not one value."""

    changed: dict[str, Any] | None = None


class Trail(BaseModel):
    """Events, the latest first; `before` asks for earlier ones."""

    events: list[TrailEvent]
    before: int | None


class StudyRow(BaseModel):
    name: str
    events: int


class Studies(BaseModel):
    studies: list[StudyRow]


class StudyState(BaseModel):
    """A study's counts, the monitor's evidence, whether and why it has stopped, and its specification."""

    model_config = ConfigDict(extra="allow")
    name: str
    seq: int
    decisions: int
    outcomes: int
    open: int
    violations: int
    unwatched: int | None = Field(None, description="rounds that ended without an outcome that the watch can count")
    resumes: int | None = Field(None, description="how often a person cleared an alarm")
    forgets: int | None = Field(None, description="how often it started again without the earlier rounds")
    start_evidence: float | None = Field(None, description="evidence that the declared start is not safe")
    amendments: int | None = Field(None, description="how often the specification was amended")
    oldest_open: str | None = Field(None, description="when the oldest open decision was made")
    overdue: int | None = Field(None, description="open outcomes beyond due_after, or else max_open_hours")
    overdue_since: str | None = Field(None, description="when the oldest of them became overdue")
    evidence: float
    stop_reason: str = Field(description="the rule that has stopped the study, or empty")
    hash: str = Field(description="of the last event: with seq a checkpoint")
    notes: list[str] = Field(description="further remarks, in words")
    spec: dict[str, Any]
    replayed: bool | None = Field(None, description="POST only: the study already existed")


class NewStudyState(StudyState):
    warnings: list[str] = Field(description="what to reconsider before the first decision")


class Verification(BaseModel):
    """Whether the hash chain, the rebuilt state and every recomputed decision agree, or the first seq that does not."""

    ok: bool
    study: str
    events: int
    decisions: int
    inexact: int
    seq: int
    hash: str
    first_bad: int | None
    problem: str
    clock_back: int = Field(description="events dated more than a second earlier than the event before them")
    clock_back_at: int | None = Field(description="the first of them")
    checkpoint: int | None = Field(description="the seq of the checkpoint that the log was compared with")


class Series(BaseModel):
    """One study over time, down-sampled: for the operator page."""

    model_config = ConfigDict(extra="allow")
    name: str
    seq: int
    counts: dict[str, Any]


class Rows(BaseModel):
    """A page of decisions, newest first; `before` asks for the next page."""

    rows: list[dict[str, Any]]
    before: int | None


class UnitRow(BaseModel):
    """One unit's own counts, with a 95 % interval for its share of outcomes over the threshold."""

    unit: str
    decisions: int
    outcomes: int
    violations: int
    interval: list[float]


class Units(BaseModel):
    """A page of units, in the order of their first decisions; `after` asks for the next page."""

    units: list[UnitRow]
    after: int | None


class Unit(UnitRow):
    """One unit: its latest decisions, oldest first."""

    course: list[dict[str, Any]]


class ProblemDetails(BaseModel):
    """RFC 9457; `code` is for programs."""

    type: str
    title: str
    status: int
    code: str
    detail: str | None = None
    field: str | None = None


class Health(BaseModel):
    status: str
    version: str


DecisionRecord.model_rebuild()
