"""Errors over HTTP: one table of codes, one form (problem+json, RFC 9457), and never a value from the request.

A study's error has a code (`safedial.study.study_errors.MEANINGS`). The answer gives that code, its meaning, the name
of the field and the error's `public` text, but not its message, which may contain a context. Only the message about a
specification, which contains no context, is given in full.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from safedial.errors import InvalidInput
from safedial.study.event import orjson
from safedial.study.study_errors import MEANINGS

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
    431: ("headers_too_large",),
    500: ("log_broken", "fault"),
    503: ("store_unavailable", "wrong_schema", "overloaded"),
}
STATUS = {code: status for status, codes in _CODES.items() for code in codes}
WORDS = {
    **MEANINGS,
    "malformed": "the body is not JSON, or the request is not HTTP as it should be",
    "too_deep": "the body is nested too deeply",
    "unauthenticated": "this needs a key: Authorization: Bearer sd_…",
    "forbidden": "this key may not do that here",
    "not_found": "there is nothing at this address",
    "method_not_allowed": "this address does not take that method",
    "slow_body": "the body took too long to arrive",
    "too_large": "the body is too large",
    "not_json": "the body must be sent as application/json",
    "too_many_requests": "too many requests with this key; wait and send again",
    "headers_too_large": "the headers are too large",
    "fault": "the service failed; nothing was acknowledged, and its log says where",
    "overloaded": "too many requests wait already; send again later",
}
WAYS_OUT = {
    "not_finite": "every number must be finite and sent as a number: not NaN, infinity, text, true or false",
    "wrong_dimension": "context: must be a flat list of numbers, as many as the study's dim",
    "context_out_of_bounds": "context: its norm must be at most context_bound; scale the features, or state a larger "
    "bound at the start",
    "conflict": "GET /v1/decisions/{id} shows what was recorded",
    "key_reused": "Idempotency-Key: use a new key for a new request, or send the first one again unchanged",
    "reason_required": "reason: must say why, in words",
}
"""What to do about errors that say nothing of their own in public."""

RETRY_SECONDS = {"store_unavailable": 2, "overloaded": 1, "too_many_requests": 1}
"""Retry-After: how long to wait before asking again."""

CLOSING = ("slow_body", "too_large", "headers_too_large")
"""After these the rest of the body may still arrive, so the connection is closed."""

PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Answers hold contexts and outcomes, so no cache may keep them."""
_PRIVATE = [(name.encode(), value.encode()) for name, value in PRIVATE.items()]


class Problem(Exception):
    """A request that is refused before it reaches a study."""

    def __init__(self, code: str, detail: str = "", *, field: str = "") -> None:
        super().__init__(code)
        self.code, self.detail, self.field = code, detail, field


def answer(code: str, detail: str = "", *, field: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """The response for a code."""
    status = STATUS.get(code, 422)
    words = WORDS.get(code, WORDS["invalid_input"])
    content = {"type": f"urn:safedial:problem:{code}", "title": words, "status": status, "code": code}
    content |= {name: text for name, text in (("detail", detail), ("field", field)) if text}
    more = {**PRIVATE, **(headers or {})}
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
        return answer(error.code, detail or WAYS_OUT.get(error.code, ""), field=named if named in fields else "")
    place = "".join(traceback.format_tb(error.__traceback__)[-3:])
    log.error("%s\n%s", type(error).__name__, place)
    return answer("fault")


class Reply(Response):
    """An answer in JSON; its headers are written as they are sent, for which Starlette would take longer."""

    def __init__(self, content: Any, status: int = 200, *, replayed: bool = False) -> None:
        self.body, self.status_code, self.background = orjson.dumps(content), status, None
        length, kind = (b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")
        self.raw_headers = [*_PRIVATE, length, kind, *([(b"idempotent-replayed", b"true")] if replayed else ())]


# --- A request's headers, body and query

LARGEST = 256 * 1024
LARGEST_HEADERS = 64 * 1024
BODY_SECONDS = 10.0

Model = TypeVar("Model", bound=BaseModel)


def read_headers(request: Request) -> dict[bytes, bytes]:
    """The headers by their names in lower case, of equal names the first. Refused are headers that are too large, and
    two Host headers, of which readers could take either.
    """
    known: dict[bytes, bytes] | None = request.scope.get("safedial.headers")
    if known is None:
        given = request.scope["headers"]
        known = request.scope["safedial.headers"] = dict(reversed(given))
        if sum(len(name) + len(value) for name, value in given) > LARGEST_HEADERS:
            raise Problem("headers_too_large", f"at most {LARGEST_HEADERS} bytes")
        if len(known) < len(given) and sum(name == b"host" for name, _ in given) > 1:
            raise Problem("malformed", "Host: must be given once")
    return known


async def read_body(request: Request, model: type[BaseModel], *, seconds: float = BODY_SECONDS) -> dict[str, Any]:
    """The fields of a request's body that are not null, checked by the model."""
    kind = read_headers(request).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        raise Problem("not_json")
    content, more = b"", True
    try:
        async with asyncio.timeout(seconds):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Problem("malformed")
                content += message.get("body", b"")
                more = message.get("more_body", False)
                if len(content) > LARGEST:
                    raise Problem("too_large", f"at most {LARGEST} bytes")
    except TimeoutError:
        raise Problem("slow_body", f"within {seconds:g} seconds") from None
    try:
        given = model.model_validate_json(content)
    except ValidationError as error:
        raise _refused(error, model) from None
    return {name: value for name, value in given if value is not None}


def read_query(request: Request, model: type[Model]) -> Model:
    """The query, checked by the model."""
    try:
        return model.model_validate_strings(dict(request.query_params))
    except ValidationError as error:
        raise _refused(error, model, "the query has ") from None


def _refused(error: ValidationError, model: type[BaseModel], where: str = "") -> Problem:
    """What a model refuses, without the caller's values and names."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    kind, place, words = found[0]["type"], found[0]["loc"], found[0]["msg"]
    if kind == "json_invalid":
        return Problem("too_deep" if "recursion" in words else "malformed")
    if not place:
        return Problem("invalid_input", "the body must be an object")
    if unknown := sum(each["type"] == "extra_forbidden" for each in found):
        names = ", ".join(sorted(model.model_fields)) or "none"
        return Problem("invalid_input", f"{where}{unknown} unknown name(s); it takes {names}")
    field = str(place[0])
    rules = dict.fromkeys(
        each["msg"].replace("Input should be", "must be") for each in found if each["loc"][0] == field
    )
    if kind == "missing":
        return Problem("invalid_input", f"{field} is missing", field=field)
    not_finite = kind in ("finite_number", "float_type")
    return Problem("not_finite" if not_finite else "invalid_input", f"{field}: {' or '.join(rules)}", field=field)
