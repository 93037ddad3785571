"""Errors over HTTP: one table of codes, one form (problem+json, RFC 9457), and never a value from the request.

A study's error has a code (`safedial.study.MEANINGS`). The answer gives that code, its meaning, the name of the field
and the error's `public` text, but not its message, which may contain a context. Only the message about a specification,
which contains no context, is given in full.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable

from starlette.responses import Response

from safedial.errors import InvalidInput
from safedial.study.errors import MEANINGS
from safedial.study.event import orjson

log = logging.getLogger("safedial.service")

_CODES = {
    400: ("malformed", "too_deep"),
    401: ("unauthenticated",),
    403: ("forbidden",),
    404: ("unknown_study", "unknown_decision", "unknown_key", "unknown_unit", "unknown_visit", "not_found"),
    405: ("method_not_allowed",),
    408: ("slow_body",),
    409: ("study_exists", "conflict", "visit_taken", "other_rule", "other_study", "own_policy"),
    413: ("too_large",),
    415: ("not_json",),
    422: (
        "invalid_input",
        "not_finite",
        "wrong_dimension",
        "wrong_features",
        "context_out_of_bounds",
        "out_of_range",
        "key_reused",
        "reason_required",
    ),
    429: ("too_many_requests",),
    500: ("log_broken", "fault"),
    503: ("store_unavailable", "wrong_schema", "overloaded"),
}
STATUS = {code: status for status, codes in _CODES.items() for code in codes}
WORDS = {
    **MEANINGS,
    "malformed": "the body is not JSON",
    "too_deep": "the body is nested too deeply",
    "unauthenticated": "this needs a key: Authorization: Bearer sd_…",
    "forbidden": "this key may not do that here",
    "not_found": "there is nothing at this address",
    "method_not_allowed": "this address does not take that method",
    "slow_body": "the body took too long to arrive",
    "too_large": "the body is too large",
    "not_json": "the body must be sent as application/json",
    "too_many_requests": "too many requests with this key; wait and send again",
    "fault": "the service failed; nothing was acknowledged, and its log says where",
    "overloaded": "too many requests wait already; send again later",
}
RETRY_SECONDS = {"store_unavailable": 2, "overloaded": 1, "too_many_requests": 1}
"""Retry-After: how long to wait before asking again."""

CLOSING = ("slow_body", "too_large")
"""After these the rest of the body may still arrive, so the connection is closed."""


class Problem(Exception):
    """A request that is refused before it reaches a study."""

    def __init__(self, code: str, detail: str = "", *, field: str = "") -> None:
        super().__init__(code)
        self.code, self.detail, self.field = code, detail, field


def answer(code: str, detail: str = "", *, field: str = "", headers: dict[str, str] | None = None) -> Response:
    """The response for a code."""
    status = STATUS.get(code, 422)
    words = WORDS.get(code, WORDS["invalid_input"])
    content = {"type": f"urn:safedial:problem:{code}", "title": words, "status": status, "code": code}
    content |= {name: text for name, text in (("detail", detail), ("field", field)) if text}
    more = dict(headers or {})
    if code in RETRY_SECONDS:
        more["Retry-After"] = str(RETRY_SECONDS[code])
    if code in CLOSING:
        more["Connection"] = "close"
    if code == "unauthenticated":
        more["WWW-Authenticate"] = "Bearer"
    return Response(orjson.dumps(content), status, more, "application/problem+json")


def answer_error(error: Exception, fields: Iterable[str] = (), *, whole: bool = False) -> Response:
    """The response for an exception in a route; an unexpected one is logged by type and place, without its message."""
    if isinstance(error, Problem):
        return answer(error.code, error.detail, field=error.field)
    if isinstance(error, InvalidInput):
        named = str(error).partition(" = ")[0].partition(":")[0].partition("[")[0].partition(".")[0]
        detail = str(error) if whole and error.code == "invalid_input" else error.public
        return answer(error.code, detail, field=named if named in fields else "")
    place = "".join(traceback.format_tb(error.__traceback__)[-3:])
    log.error("%s\n%s", type(error).__name__, place)
    return answer("fault")
