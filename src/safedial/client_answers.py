"""What a service answers, read from its bytes."""

from __future__ import annotations

import json
from typing import Any

from safedial.errors import InvalidInput


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
        where = f"{problem['field']}: " if problem.get("field") else ""
    except (ValueError, KeyError, TypeError):
        code, words, where = "invalid_input", "no further words", ""
    return InvalidInput(f"the service refused ({status} {code}): {where}{words}", code)
