"""What a service answers, read from its bytes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from safedial.errors import InvalidInput

ADVICE = ("action", "id", "seq", "intensity", "safe_action", "certificate", "hash", "replayed", "stop_reason")
"""The fields of an answer to a question, but for `proposal_answer`, which only a proposal has."""


class Advice(NamedTuple):
    """The setting for the dial. If `fallback` is True, no decision was made, so there is no id to report on.

    `hash` is the hash of the decision's event; `replayed` marks an earlier answer, repeated for the same key;
    `stop_reason` names the rule that has stopped the study since; `proposal_answer` says whether a proposal was
    granted, lowered or raised.
    """

    action: float
    id: str | None
    seq: int | None
    intensity: float | None
    safe_action: float | None
    certificate: dict[str, Any] | None
    fallback: bool = False
    reason: str = ""
    hash: str | None = None
    replayed: bool = False
    stop_reason: str = ""
    proposal_answer: str = ""


def read_answer(text: bytes) -> dict[str, Any] | None:
    """The service's answer; None for any other answer, such as a proxy's error page."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def read_refusal(status: int, text: bytes) -> InvalidInput:
    """The error for a request that the service refuses."""
    try:
        problem = json.loads(text)
        code, words = problem["code"], problem.get("detail") or problem["title"]
        field = problem.get("field") or ""
        where = f"{field}: " if field and not words.startswith((f"{field}:", f"{field} ")) else ""
    except (ValueError, KeyError, TypeError):
        code, words, where = "invalid_input", "no further words", ""
    return InvalidInput(f"the service refused ({status} {code}): {where}{words}", code)
