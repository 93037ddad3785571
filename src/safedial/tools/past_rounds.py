"""Past rounds: what was asked, given and told, from a log, a study's export, or a study.

A log as CSV and a `Log` have one row for each round, each outcome known before the next decision. A study, or its
export as .jsonl, also tells when each outcome came, which rounds are void, and which random numbers were drawn.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, require
from safedial.io import read_text
from safedial.model.costs import cost_columns
from safedial.model.dial import Dial, Features
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.rounds.log_file import CONTEXT, KNOWN, Log, is_export, parse_log, raw_contexts

SETTING = "applied setting"

LABELS = ("unit", "visit")
"""Columns that say whose round it is."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Rounds in decision order; n rows.

    Attributes:
        context: (n, k), with `names`: as a policy sees them or, where they were read with features, before centring and
            scaling, as an agent with these features is asked.
        setting: as applied, in the dial's units. advised: NaN where the log does not say, and −∞ where the guarantee
            does not cover the round.
        reward, costs: as measured, NaN where not known; costs by name, "cost" if there is one.
        void: of rounds that were made void after a cost exceeded, the costs and, as `SETTING`, the setting; NaN
            elsewhere. They count where the advice is the logged one, and are not learned from.
        throttled: the setting was lowered because of the outcome, which says nothing about other settings.
        unrelated: of a lost outcome, whether its reason is stated to be unrelated; None where nothing is stated.
        past: rounds from before the first decision, as the arguments of `Agent.update`.
        study, events: the specification of a study and its events.
        exported: the rows are those of a study, without its specification.
        unseen: how many rounds with a guarantee have no outcome in the log, and no row.
        corrected, amended: rounds of a study whose outcome was corrected, and rounds after its first amendment.
    """

    names: tuple[str, ...]
    context: Array
    setting: Array
    advised: Array
    reward: Array
    costs: dict[str, Array]
    baseline: Array
    number: Array
    throttled: NDArray[np.bool_]
    unrelated: list[bool | None]
    proposal: Array | None = None
    labels: dict[str, list[str]] = field(default_factory=dict)
    past: list[tuple[Any, ...]] = field(default_factory=list)
    study: Any = None
    events: list[Any] = field(default_factory=list)
    corrected: int = 0
    amended: int = 0
    exported: bool = False
    unseen: int = 0
    void: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.setting)

    def scored(self, name: str) -> Array:
        """The costs of that name, or the settings, as they count: with those of void rounds that exceeded."""
        values = self.setting if name == SETTING else self.costs[name]
        return np.where(np.isnan(values), self.void[name], values) if self.void else values


def read_rounds(
    log: Any,
    spec: SafetySpec | None,
    *,
    dial: Dial,
    features: Features | None,
    context_columns: Sequence[str] | None = None,
) -> Rounds:
    """The rounds of a `Log`, a .csv or .jsonl file, or a `Study`, which has its own spec, dial and features."""
    if isinstance(log, Log):
        return _from_log(log, _stated(spec), dial, features, {})
    if hasattr(log, "events") and hasattr(log, "spec"):
        return _from_events(_paged(log), log.spec, log.name)
    way_out = "give a Log, the path of a .csv or .jsonl file, or a Study"
    require(isinstance(log, (str, Path)), "log", type(log).__name__, "is not a log", way_out)
    if Path(log).suffix.lower() == ".jsonl":
        return _from_events(_lines(Path(log)), None, "")
    text = read_text(log, "log")
    if is_export(dict.fromkeys(_heads(text), ())):
        return replace(_from_rows(csv.DictReader(io.StringIO(text)), _stated(spec), features), exported=True)
    return _from_text(text, _stated(spec), dial=dial, features=features, context_columns=context_columns)


def _heads(text: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader(io.StringIO(text)), [])]


def _stated(spec: SafetySpec | None) -> SafetySpec:
    way_out = "name a spec file (--spec FILE; in Python spec=..., also a SafetySpec), or a study, which has its own"
    require(spec is not None, "spec", spec, "is missing: it states the threshold and the risk", way_out)
    return spec  # pyright: ignore[reportReturnType] -- checked above


def _from_text(
    text: str,
    spec: SafetySpec,
    *,
    dial: Dial,
    features: Features | None,
    context_columns: Sequence[str] | None,
) -> Rounds:
    heads = _heads(text)
    require("action" in heads, "log", heads, "has no column `action`", "evaluate needs what was applied in each round")
    costs, named = list(cost_columns(spec)), features.names if features else ()
    also = [*costs, *(name for name in ("reward", "proposal") if name in heads and name not in named)]
    labels = [name for name in LABELS if name in heads and name not in (*named, *(context_columns or ()))]
    rest = [name for name in heads if name not in (*KNOWN, *also, *labels)]
    log = parse_log(
        text, context_columns=context_columns or named or rest, dial=dial, needs=("action", *costs), also=also
    )
    if "reward" not in heads:
        log = replace(log, reward=np.full(len(log), math.nan))
    cells = list(csv.DictReader(io.StringIO(text))) if labels else []
    return _from_log(log, spec, dial, None, {name: [row[name] for row in cells] for name in labels})


def _from_log(
    log: Log, spec: SafetySpec, dial: Dial, features: Features | None, labels: dict[str, list[str]]
) -> Rounds:
    """A `Log` as rounds; with `features` its contexts are centred and scaled."""
    columns = {"cost": log.cost, **log.extra}
    absent = [name for name in cost_columns(spec) if name not in columns]
    way_out = "they are the costs, and the base if proposed; read_log(..., also=[...]) reads them"
    require(not absent, "log", absent, "lacks these columns of numbers", way_out)
    told = {
        "reward": log.reward,
        **{name: columns[name] for name in cost_columns(spec)},
        "baseline_cost": log.baseline_cost,
    }
    for name, values in told.items():
        rows = np.flatnonzero(np.isinf(values))
        require(not rows.size, f"log round {log.round[rows[:1]]}", f"{name} = inf", "must be finite", "NaN: not known")
    width = dial.high - dial.low

    def settings(shares: Array) -> Array:
        # A share of the dial that was read from a setting differs from it by rounding.
        return shares if dial.is_plain else np.array([float(f"{dial.low + share * width:.12g}") for share in shares])

    return Rounds(
        names=log.names if features is None else features.names,
        context=log.context if features is None else raw_contexts(log.context, features),
        setting=settings(log.action),
        advised=settings(log.advised),
        reward=log.reward,
        costs={name: columns[column] for column, name in cost_columns(spec).items()},
        baseline=log.baseline_cost,
        number=log.round,
        throttled=np.zeros(len(log), dtype=bool),
        unrelated=[None] * len(log),
        proposal=log.extra.get("proposal"),
        labels=labels,
        unseen=len(log.unseen),
    )


def _from_rows(rows: Iterable[Mapping[str, Any]], spec: SafetySpec, features: Features | None) -> Rounds:
    """The rows of a study's export, or of `Study.rows`."""
    listed = [{name: value for name, value in row.items() if value not in (None, "")} for row in rows]
    decided = [row for row in listed if "round" in row]
    require(decided, "log", "export", "has no decision yet", "evaluate a study that has advised something")
    names = [name.removeprefix(CONTEXT) for name in listed[0] if name.startswith(CONTEXT)]
    names = list(features.names) if features else names

    def column(name: str, chosen: list[dict[str, Any]] = decided) -> Array:
        return np.array([float(row.get(name, "nan")) for row in chosen])

    def contexts(chosen: list[dict[str, Any]]) -> Array:
        return np.stack([column(CONTEXT + name, chosen) for name in names], axis=1)

    costs = cost_columns(spec)
    earlier = [row for row in listed if "round" not in row]
    told = [column(name, earlier) for name in ("applied_action", "reward", *costs, "baseline_cost")]
    idle = np.array([row["status"] == "nothing given" for row in decided])
    gone = np.array([row["status"] in ("open", "void", "expired") for row in decided])
    hidden = np.array([row["status"] == "void" and str(row.get("violated")) == "True" for row in decided])
    unrelated = [str(row["unrelated"]) == "True" if "unrelated" in row else None for row in decided]
    advised, numbers = column("action"), column("round")  # numbers may begin again after an amendment
    applied = np.where(idle & ~np.isfinite(column("applied_action")), advised, column("applied_action"))
    return Rounds(
        names=tuple(names),
        context=contexts(decided),
        setting=np.where(gone, math.nan, applied),
        advised=advised,
        reward=np.where(gone, math.nan, np.where(idle, np.nan_to_num(column("reward")), column("reward"))),
        costs={
            name: np.where(
                gone, math.nan, np.where(idle & np.isnan(column(head)), column("baseline_cost"), column(head))
            )
            for head, name in costs.items()
        },
        void={
            name: np.where(hidden, column(head), math.nan)
            for head, name in {**costs, "applied_action": SETTING}.items()
        },
        baseline=column("baseline_cost"),
        number=numbers if np.all(np.diff(numbers) > 0) else np.arange(1.0, len(decided) + 1.0),
        throttled=np.array([row["status"] == "throttled" for row in decided]),
        unrelated=unrelated,
        proposal=column("proposal") if any("proposal" in row for row in decided) else None,
        labels={
            name: [str(row.get(name, "")) for row in decided] for name in LABELS if any(name in row for row in decided)
        },
        past=list(zip(contexts(earlier), *told, strict=True)) if earlier else [],
        corrected=sum(row["status"] == "corrected" for row in decided),
    )


def _from_events(shown: Iterable[Mapping[str, Any]], spec: Any, name: str) -> Rounds:
    """A study's events as `Study.events` shows them, and a line of a .jsonl export holds them."""
    from safedial.study.amendment import amended_spec
    from safedial.study.answer import read_id
    from safedial.study.event import EVENT_KINDS, Event, canonical
    from safedial.study.export import effective_rows
    from safedial.study.study_spec import read_spec

    events = []
    for each in shown:
        try:
            decision = read_id(each["decision_id"]).seq if each["decision_id"] else 0
            at = datetime.fromisoformat(each["at"])
            micros = (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
            fields = (each["seq"], each["kind"], decision, micros, each["actor"], each["reason"])
            events.append(Event(*fields, canonical(each["body"]), bytes.fromhex(each["hash"])))
        except (KeyError, TypeError, ValueError) as error:
            words = "is not an event of a study's log; export it with `safedial study export NAME FILE.jsonl`"
            raise InvalidInput(f"log line {len(events) + 1}: {words} ({error!r})") from error
    require(events and events[0].seq == 1, "log", len(events), "does not begin with a study's first event")
    first = events[0].fields()
    if spec is None:
        spec = read_spec(first["spec"], quiet=True)
        for event in events:
            if EVENT_KINDS[event.kind].amends:
                spec = amended_spec(spec, event.fields()["spec"], since=event.seq)
    rows = effective_rows(spec.first, name or "study", events)
    since = min((each.since for each in spec.chain if each.since), default=math.inf)
    amended = sum(EVENT_KINDS[event.kind].decides and event.seq > since for event in events)
    read = _from_rows(rows, spec.rules.spec, spec.rules.features)
    return replace(read, study=spec, events=events, amended=amended)


def _lines(path: Path) -> Iterable[Any]:
    for number, line in enumerate(read_text(path, "log").splitlines(), start=1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"log line {number}: is not JSON ({error})") from error


def _paged(study: Any) -> Iterable[Any]:
    seq = 1
    while page := study.events(seq, 10_000)["events"]:
        yield from page
        seq += len(page)
