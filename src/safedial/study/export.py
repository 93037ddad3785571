"""A study as a table: one row for each decision, with its applied setting and outcome as they stand now."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safedial.errors import import_extra, require
from safedial.model.costs import by_name, cost_columns, thresholds
from safedial.rounds.decision import proposal_answer
from safedial.rounds.outcome import is_over
from safedial.rounds.rules import Rules
from safedial.stats import violation_interval
from safedial.study.amendment import amended_spec
from safedial.study.answer import id_of, shown_event
from safedial.study.event import EVENT_KINDS, Event, RoundHistory, moment
from safedial.study.reducer import QUESTION
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec


def effective_rows(spec: StudySpec, name: str, events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """One mapping for each decision, in order; corrections replace the values of outcomes. `spec` is the study's first,
    and each row is judged by the one that its decision was made under.
    """
    rows: dict[int, dict[str, Any]] = {}
    rounds: dict[int, RoundHistory] = {}
    for event in events:
        seq = event.decision or event.seq
        if EVENT_KINDS[event.kind].amends:
            spec = amended_spec(spec, event.fields()["spec"], since=event.seq)
        elif EVENT_KINDS[event.kind].status:
            before, rules = rounds.get(seq, RoundHistory()), spec.at(seq).rules
            rounds[seq] = before.after(event, event.fields(), rules.policy)
            rows[seq] = rows.get(seq) or _advised(rules, name, event)
    for seq, row in rows.items():
        phase = {} if spec.before is None else {"phase": len(spec.at(seq).phases)}
        yield row | phase | _result(spec.at(seq).rules, rounds[seq])


def write_rows(path: str | Path, spec: StudySpec, name: str, events: Iterable[Event]) -> Path:
    """Write the table as .csv or .parquet, or the events as .jsonl, one on each line, with its hash."""
    target = Path(path)
    ending = target.suffix.lower()
    require(ending in (".csv", ".parquet", ".jsonl"), "path", str(path), "must end in .csv, .parquet or .jsonl")
    if ending == ".jsonl":
        _write_events(target, name, events)
        return target
    rows = list(effective_rows(spec, name, events))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if ending == ".csv":
        with open(target, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows({column: _as_text(value) for column, value in row.items()} for row in rows)
        return target
    table = import_extra("pyarrow", "data").Table.from_pylist([{**dict.fromkeys(columns), **row} for row in rows])
    import_extra("pyarrow.parquet", "data").write_table(table, target)
    return target


FORMULA = tuple("=+-@\t\r")


def _as_text(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula, with an apostrophe before it, as is usual there.

    >>> [_as_text(value) for value in ("=1+1", "P-04", "-5", -5.0)]
    ["'=1+1", 'P-04', "'-5", -5.0]
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _write_events(path: Path, name: str, events: Iterable[Event]) -> None:
    ids: dict[int, str] = {}
    with open(path, "w", encoding="utf-8") as file:
        for event in events:
            if EVENT_KINDS[event.kind].decides:
                ids[event.seq] = str(id_of(name, event.seq, event.hash))
            file.write(json.dumps(shown_event(event, ids.get(event.decision)), ensure_ascii=False) + "\n")


def _advised(rules: Rules, name: str, event: Event) -> dict[str, Any]:
    body = event.fields()
    names = rules.features.names if rules.features else [f"x{column}" for column in range(rules.dim)]
    row = {
        "decision_id": str(id_of(name, event.seq, event.hash)),
        "seq": event.seq,
        "round": body.get("round"),
        "at": moment(event.at),
        "key": body.get("key"),
        "action": body.get("action"),
        "safe_action": body.get("safe_action"),
        "intensity": body.get("intensity"),
        "guarantee": body.get("guarantee", "imported"),
        "fallback_reason": body.get("fallback_reason", ""),
        "limiter": body.get("limiter", ""),
        "extrapolated": ", ".join(body.get("extrapolated", ())),
        "baseline_cost": body["baseline_cost"],
        **{name: body[name] for name in QUESTION if name in body},
        **({"proposal_answer": proposal_answer(body["proposal"], body["action"])} if "proposal" in body else {}),
        **_result(rules, RoundHistory()),
        **_thresholds(rules),
    }
    row |= dict(zip((f"context.{each}" for each in names), body["context"], strict=True))
    return {**row, **{f"meta.{each}": value for each, value in body.get("meta", {}).items()}}


def _costs(rules: Rules, cost: Any) -> dict[str, Any]:
    """A cost, or each of several in a column of its own."""
    told = by_name(cost)
    return {column: told.get(name) for column, name in cost_columns(rules.spec).items()}


def _thresholds(rules: Rules) -> dict[str, Any]:
    limits = thresholds(rules.spec)
    return {column: limits[name] for column, name in cost_columns(rules.spec, "threshold").items()}


def _observed(known: RoundHistory) -> dict[str, Any]:
    """When the outcome was measured, where that is reported."""
    observed_at = known.outcome and known.outcome.fields().get("observed_at")
    return {"observed_at": observed_at} if observed_at else {}


def _result(rules: Rules, known: RoundHistory) -> dict[str, Any]:
    values = known.values or {}
    return {
        "status": known.status,
        "unrelated": known.unrelated,
        "applied_action": known.applied,
        "reward": values.get("reward"),
        **_costs(rules, values.get("cost")),
        "outcome_at": known.outcome and moment(known.outcome.at),
        **_observed(known),
        "violated": is_over(rules, values["cost"]) if values else None,
        "counted": known.counts(rules),
    }


# --- A study seen from one unit (a patient, a cell, a vehicle)


def unit_counts(decisions: int, outcomes: int, violations: int) -> dict[str, Any]:
    """Counts of one unit, with a 95 % interval for its share of outcomes over the threshold."""
    interval = list(share_interval(violations, outcomes))
    return {"decisions": decisions, "outcomes": outcomes, "violations": violations, "interval": interval}


def share_interval(violations: Any, outcomes: Any) -> tuple[float, float]:
    """A 95 % interval for the share of outcomes over the threshold."""
    return violation_interval([int(violations)], int(outcomes)) if outcomes else (0.0, 1.0)


def counts_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`unit_counts` of rows of a study's table."""
    rows = list(rows)
    counted = [row for row in rows if row["counted"]]
    return unit_counts(len(rows), len(counted), sum(row["violated"] for row in counted))


def by_unit(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of each unit, in the order of the units' first decisions."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("unit") is not None:
            found.setdefault(row["unit"], []).append(row)
    return found


def unknown_unit(unit: str) -> StudyError:
    words = "no decision of this study has it; check the label"
    return StudyError("unknown_unit", f"unit = {unit[:80]!r}: {words}", public=f"unit: {words}")


def unknown_visit(visit: str, unit: str | None) -> StudyError:
    words = f"no decision of this {'study' if unit is None else 'unit'} has it"
    return StudyError("unknown_visit", f"visit = {visit[:80]!r}: {words}", public=f"visit: {words}")
