"""Past rounds for a warm start: from a table with named columns, checked row by row before anything is written."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safedial.decision.outcome import Outcome, check_past, normalise
from safedial.decision.rules import Rules
from safedial.decision.units import real
from safedial.decision.validation import in_row, read_new_context
from safedial.errors import InvalidInput, import_extra, require


def read_history(rules: Rules, given: str | Path | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The bodies of `imported` events.

    A row has `action` (what was applied, in the dial's units), `reward`, `cost`, or `cost_NAME` for each of several,
    optionally `baseline_cost`, and the context: one column for each feature, NAME or context.NAME; without feature
    names x0, x1, … or x1, x2, …
    """
    rules.learner.check_history(rules)
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
    if rules.spec.costs is None:
        return _number("cost", row.get("cost"))
    return {name: _number(f"cost_{name}", row.get(f"cost_{name}")) for name in rules.spec.costs}


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
