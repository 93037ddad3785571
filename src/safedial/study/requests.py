"""Checks of a study's input: contexts, text and times; and of past rounds for a warm start, row by row, before anything
is written.
"""

from __future__ import annotations

import csv
import getpass
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unicodedata import normalize

from safedial.errors import InvalidInput, import_extra, refusal, require
from safedial.model.costs import as_stated, cost_columns
from safedial.model.dial import real
from safedial.rounds.outcome import Asked, Outcome, check_past, normalise, read_cost, stated_reward, written_cost
from safedial.rounds.rules import Rules
from safedial.rounds.validation import in_row, read_new_context, read_question
from safedial.study.event import now
from safedial.study.reducer import Noted
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec

LONGEST = 10_000
"""The longest text in an event: a reason, an actor, a key."""

META_NAME, MOST_META, LONGEST_META = re.compile(r"[A-Za-z0-9_-]{1,40}"), 20, 200
"""The form of metadata names, their number, and the longest text of a decision's metadata."""

Read = TypeVar("Read")


class Request(NamedTuple):
    """A request for a decision: raw values in the features' order, the question, and what else came with it."""

    raw: list[float]
    asked: Asked
    noted: Noted


def read_request(
    rules: Rules, context: Any, noted: Noted, baseline_cost: Any = 0.0, *, allow_extrapolation: bool = False
) -> Request:
    """A new question, checked, with what else came with it."""
    key, meta, proposal, unit, visit = noted
    meta, key = None if meta is None else read_meta(meta), read_key(key)
    values = context if rules.features is None else rules.features.values(context)
    if proposal is not None:
        proposal = real("proposal", proposal)
    unit, visit = (_name(name, label) for name, label in (("unit", unit), ("visit", visit)))
    asked = read_question(rules, values, baseline_cost, allow_extrapolation, proposal)
    raw = asked.vector if rules.features is None else values
    return Request(raw.tolist(), asked, Noted(key, meta, proposal, unit, visit))


def prepared(spec: StudySpec, read: Callable[[StudySpec], Read]) -> Callable[[StudySpec], Read]:
    """`read`, done now, in the caller's thread, for the specification as this process knows it. The writer, which knows
    whether the study was amended since, uses the result or reads again.
    """
    try:
        done = read(spec)
    except InvalidInput:
        return read
    return lambda latest: done if latest is spec else read(latest)


def read_outcome(
    rules: Rules, values: Mapping[str, Any], observed_at: Any, *, throttled: Any, unrelated: Any
) -> dict[str, Any]:
    """The body of an outcome's event, its values checked."""
    for name, given in (("throttled", throttled), ("unrelated", unrelated)):
        if not isinstance(given, bool):
            raise refusal(name, given, "must be True or False")
    stated = {"reward": stated_reward(rules, values["reward"]), "cost": values["cost"]}
    if values["applied_action"] is not None:
        stated["applied_action"] = values["applied_action"]
    body = {"applied_action": None, **read_values(rules, stated), "throttled": throttled}
    if unrelated:
        body["unrelated"] = True
    if observed_at is not None:
        body["observed_at"] = written_time(observed_at)
    return body


def read_values(rules: Rules, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of an outcome as plain numbers, several costs as a mapping."""
    return {
        name: written_cost(read_cost(rules.spec, value)) if name == "cost" else real(name, value)
        for name, value in given.items()
    }


def read_meta(meta: Any) -> dict[str, Any] | None:
    """The metadata of a decision: a few short names with short values."""
    proper = isinstance(meta, Mapping) and len(meta) <= MOST_META
    require(proper, "meta", type(meta).__name__, f"must be a mapping of at most {MOST_META} names to plain values")
    return {_meta_name(name): _meta_value(name, value) for name, value in meta.items()} or None


def _label(name: str, value: Any) -> str:
    """A short text that certificates and tables show."""
    proper = isinstance(value, str) and len(value) <= LONGEST_META and value.isprintable() and _encodes(value)
    require(proper, name, value, f"must be printable text of at most {LONGEST_META} characters")
    return value


def as_label(label: str) -> str:
    """A unit's or visit's label as it is kept: without blanks around it, and each letter in one form (NFC)."""
    return normalize("NFC", label.strip())


def _name(name: str, label: Any) -> str | None:
    if label is None:
        return None
    label = as_label(label) if isinstance(label, str) else label
    require(_label(name, label), name, label, "must not be empty", "leave it out where there is none")
    return label


def _meta_name(name: Any) -> str:
    proper = isinstance(name, str) and META_NAME.fullmatch(name)
    require(proper, "meta", name, "must have names of 1 to 40 letters, digits, - and _")
    return name


def _meta_value(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return _label(f"meta[{name!r}]", value)
    plain = isinstance(value, (bool, int, float))
    require(plain, f"meta[{name!r}]", value, "must be text, a number, true or false")
    number = real(f"meta[{name!r}]", float(value) if isinstance(value, bool) else value)
    exact = not isinstance(value, int) or abs(number) <= 2.0**53
    require(exact, f"meta[{name!r}]", value, "must be at most 2^53", "give it as text")
    return value


def read_key(key: Any) -> str | None:
    """An idempotency key; certificates show it, so it must be printable."""
    text = checked_text("key", key)
    if not (text is None or text.isprintable()):
        raise refusal("key", key, "must be printable text")
    return text


def actor_name(actor: str | None) -> str:
    if actor is not None:
        return checked_text("actor", actor)
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def checked_text(name: str, value: Any) -> Any:
    if value is None:
        return None
    if not (isinstance(value, str) and len(value) <= LONGEST and "\x00" not in value and _encodes(value)):
        raise refusal(name, type(value).__name__, f"must be text of at most {LONGEST} characters")
    return value


def need_reason(reason: Any) -> None:
    stated = isinstance(reason, str) and reason.strip()
    require(stated, "reason", reason, "must state a reason", code="reason_required")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def written_time(value: Any) -> str:
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        words = "observed_at: must be an ISO 8601 time, such as 2025-01-31T14:05:00Z"
        raise StudyError("invalid_input", words, public=words) from None
    return when.isoformat()


def check_observed(observed_at: str, decided: int) -> None:
    """Refuse a time of measurement before its decision, or after now: by more than a day, which clocks and time zones
    may make of it.
    """
    when, day = datetime.fromisoformat(observed_at), timedelta(days=1)
    when = when.replace(tzinfo=when.tzinfo or UTC)
    first, last = (datetime.fromtimestamp(at / 1e6, UTC) for at in (decided, now()))
    way_out = "give the time of the measurement with its zone, such as 2025-01-31T14:05:00Z, or leave it out"
    require(
        when >= first - day, "observed_at", observed_at, f"must not lie before its decision, {first:%F %T}Z", way_out
    )
    require(when <= last + day, "observed_at", observed_at, f"must not lie in the future; it is {last:%F %T}Z", way_out)


def microseconds(when: datetime | None) -> int:
    return now() if when is None else int(when.timestamp() * 1_000_000)


# --- Past rounds for a warm start


def read_history(rules: Rules, given: str | Path | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The bodies of `imported` events.

    A row has `action` (what was applied, in the dial's units), `reward`, `cost`, or `cost_NAME` for each of several,
    optionally `baseline_cost`, and the context: one column for each feature, NAME or context.NAME; without feature
    names x0, x1, … or x1, x2, …
    """
    if not rules.policy.takes_history:
        words = f"{rules.policy.name} learns only from rounds that it decided; start without it"
        raise InvalidInput(f"history: {words}")
    rows = _table(Path(given)) if isinstance(given, (str, Path)) else list(given)
    require(rows, "history", str(given)[:80], "has no rows")
    return [in_row(number, _row, rules, row) for number, row in enumerate(rows, 1)]


def _row(rules: Rules, row: Mapping[str, Any]) -> dict[str, Any]:
    require(hasattr(row, "keys"), "row", type(row).__name__, "must be a mapping from names to values")
    action = row.get("applied_action", row.get("action"))
    values: dict[str, Any] = {"reward": _number("reward", row.get("reward")), "cost": _cost(rules, row)}
    values["applied_action"] = _number("action", action)
    values["baseline_cost"] = _number("baseline_cost", row.get("baseline_cost") or 0.0)
    raw = _context(rules, row)
    vector = read_new_context(rules, raw).vector
    applied, baseline = values["applied_action"], values["baseline_cost"]
    sample = normalise(rules, Outcome(applied, values["reward"], values["cost"], baseline), vector)
    check_past(rules, sample)
    return {"context": raw, **values}


def _cost(rules: Rules, row: Mapping[str, Any]) -> Any:
    """A row's cost, or each of several by name."""
    columns = cost_columns(rules.spec)
    return as_stated(rules.spec, {name: _number(column, row.get(column)) for column, name in columns.items()})


def _context(rules: Rules, row: Mapping[str, Any]) -> list[float]:
    if isinstance(row.get("context"), (list, tuple)):
        return [real(f"context[{number}]", value) for number, value in enumerate(row["context"])]
    source = row["context"] if isinstance(row.get("context"), Mapping) else row
    names = rules.features.names if rules.features else _unnamed(rules.dim, source)
    missing = [name for name in names if name not in source and f"context.{name}" not in source]
    if missing:
        raise InvalidInput(f"context: missing columns {missing}", "wrong_features")
    return [
        _number(f"context[{name!r}]", source[name] if name in source else source[f"context.{name}"]) for name in names
    ]


def _unnamed(dim: int, source: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns of a context without feature names: x0, x1, … as in a study's export, or x1, x2, … as from
    `simulate --log`.
    """
    first = 0 if "x0" in source or "context.x0" in source or f"x{dim}" not in source else 1
    return tuple(f"x{column}" for column in range(first, first + dim))


def _number(name: str, value: Any) -> float:
    """A number, or the text of one, as a CSV holds it."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InvalidInput(f"{name} = {value[:80]!r}: must be a number", "not_finite") from None
    return real(name, value)


def _table(path: Path) -> list[Mapping[str, Any]]:
    kind = path.suffix.lower()
    require(kind in (".csv", ".parquet"), "path", str(path), "must end in .csv or .parquet")
    try:
        if kind == ".parquet":
            return import_extra("pyarrow.parquet", "data").read_table(path).to_pylist()
        with open(path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"path = {str(path)!r}: cannot be read ({error})") from error
