"""A study as a table: one row a decision, with what was applied and what came of it as it stands now."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safedial.decision.rounds import first_status, next_status
from safedial.decision.rules import Rules
from safedial.errors import import_extra, require
from safedial.study.answer import shown_event
from safedial.study.event import Event, moment
from safedial.study.ids import id_of


def effective_rows(rules: Rules, name: str, events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """One mapping a decision, in order; corrections replace what outcomes said."""
    rows: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.kind in ("decided", "imported"):
            rows[event.seq] = _advised(rules, name, event)
        elif event.decision in rows:
            _told(rows[event.decision], event)
    yield from rows.values()


def write_rows(path: str | Path, rules: Rules, name: str, events: Iterable[Event]) -> Path:
    """The table as .csv or .parquet, or every event as .jsonl, one a line, with its hash."""
    target = Path(path)
    kind = target.suffix.lower()
    require(kind in (".csv", ".parquet", ".jsonl"), "path", str(path), "must end in .csv, .parquet or .jsonl")
    if kind == ".jsonl":
        _write_events(target, rules, name, events)
        return target
    rows = list(effective_rows(rules, name, events))
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if kind == ".csv":
        with open(target, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        return target
    table = import_extra("pyarrow", "data").Table.from_pylist([{**dict.fromkeys(columns), **row} for row in rows])
    import_extra("pyarrow.parquet", "data").write_table(table, target)
    return target


def _write_events(path: Path, rules: Rules, name: str, events: Iterable[Event]) -> None:
    ids: dict[int, str] = {}
    with open(path, "w", encoding="utf-8") as file:
        for event in events:
            if event.kind == "decided":
                ids[event.seq] = str(id_of(rules.version, name, event.seq, event.hash))
            file.write(json.dumps(shown_event(event, ids.get(event.decision)), ensure_ascii=False) + "\n")


def _advised(rules: Rules, name: str, event: Event) -> dict[str, Any]:
    body = event.fields()
    names = rules.features.names if rules.features else [f"x{column}" for column in range(rules.dim)]
    imported = event.kind == "imported"
    row = {
        "decision_id": str(id_of(rules.version, name, event.seq, event.hash)),
        "seq": event.seq,
        "round": None if imported else body["round"],
        "at": moment(event.at),
        "key": body.get("key"),
        "action": None if imported else body["action"],
        "safe_action": body.get("safe_action"),
        "intensity": body.get("intensity"),
        "promise": body.get("promise", "imported"),
        "doubt": body.get("doubt", ""),
        "habit": body.get("habit", ""),
        "extrapolated": ", ".join(body.get("extrapolated", ())),
        "baseline_cost": body["baseline_cost"],
        "status": first_status(event.kind, body.get("intensity", 0.0)),
        "unrelated": None,
        "applied_action": body.get("applied_action"),
        "reward": body.get("reward"),
        "cost": body.get("cost"),
        "outcome_at": None,
        "violated": None if not imported else body["cost"] > rules.spec.threshold,
    }
    row["threshold"] = rules.spec.threshold
    row |= dict(zip((f"context.{each}" for each in names), body["context"], strict=True))
    return {**row, **{f"meta.{each}": value for each, value in body.get("meta", {}).items()}}


def _told(row: dict[str, Any], event: Event) -> None:
    body = event.fields()
    row["status"] = next_status(row["status"], event.kind, throttled=bool(body.get("throttled")))
    row["unrelated"] = body.get("unrelated", row["unrelated"])
    if event.kind in ("outcome", "correction"):
        applied = body["applied_action"]
        row |= {
            "applied_action": row["action"] if applied is None else applied,
            "reward": body["reward"],
            "cost": body["cost"],
            "outcome_at": row["outcome_at"] or moment(event.at),
            "violated": body["cost"] > row["threshold"],
        }
