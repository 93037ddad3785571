"""What a study checks at the door: contexts, words, times and the ids of decisions."""

from __future__ import annotations

import getpass
import re
from datetime import datetime
from typing import Any

from safedial.errors import require
from safedial.online.decision import Rules
from safedial.online.door import read_context
from safedial.online.units import as_vector, real
from safedial.study.errors import StudyError
from safedial.study.event import now

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LONGEST = 10_000
"""The longest text that an event keeps: a reason, an actor, a key."""


def split_id(decision_id: Any) -> tuple[str, int]:
    """The study's name and the seq in a decision's id."""
    name, _, seq = str(decision_id).rpartition(".")
    if not (NAME.fullmatch(name) and seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise no_decision(decision_id)
    return name, int(seq)


def no_decision(decision_id: Any) -> StudyError:
    return StudyError("unknown_decision", f"decision_id = {str(decision_id)[:80]!r}: there is no such decision")


def read_raw(rules: Rules, context: Any) -> tuple[list[float], Any, float]:
    """(raw values in the features' order, the context as a vector, its norm), checked."""
    if rules.features is None:
        vector, norm = read_context(rules, context)
        return vector.tolist(), vector, norm
    names = rules.features.names
    if hasattr(context, "keys"):
        rules.features.transform(context)
        context = [real(f"context[{name!r}]", context[name]) for name in names]
    raw = as_vector(context, len(names), "context")
    vector, norm = read_context(rules, raw)
    return raw.tolist(), vector, norm


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
    proper = isinstance(value, str) and len(value) <= LONGEST and "\x00" not in value and _encodes(value)
    require(proper, name, type(value).__name__, f"must be text of at most {LONGEST} characters")
    return value


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
        raise StudyError("invalid_input", "observed_at: must be a time as in ISO 8601, 2025-01-31T14:05:00Z") from None
    return when.isoformat()


def microseconds(when: datetime | None) -> int:
    return now() if when is None else int(when.timestamp() * 1_000_000)
