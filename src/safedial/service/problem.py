"""Errors over HTTP: one table of codes, one form (problem+json, RFC 9457), and never a value from the request.

A study's error has a code (`safedial.study.study_errors.MEANINGS`). The answer gives that code, its meaning, the name
of the field and the error's `public` text, but not its message, which may contain a context. Only the message about a
specification, which contains no context, is given in full. A request's body is limited in size, time and depth; it is
an object of known fields, with finite numbers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import traceback
from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import BaseModel
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


# --- A request's headers and body

LARGEST = 256 * 1024
DEEPEST = 16
BODY_SECONDS = 10.0

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A JSON string, closed or cut short, so that a body of many quotes is scanned only once."""

_BRACKET = re.compile(rb"[\[\]{}]")


def headers_of(request: Request) -> dict[bytes, bytes]:
    """The headers by their names in lower case; of equal names the first."""
    known = request.scope.get("safedial.headers")
    if known is None:
        known = request.scope["safedial.headers"] = dict(reversed(request.scope["headers"]))
    return known


async def read_json(request: Request, *, seconds: float = BODY_SECONDS) -> Any:
    """The body as plain values, or an error that reveals nothing of its content."""
    kind = headers_of(request).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        raise Problem("not_json")
    return parse(await _receive(request, seconds))


async def _receive(request: Request, seconds: float) -> bytes:
    stated = headers_of(request).get(b"content-length", b"")
    if stated.isdigit() and int(stated) > LARGEST:
        raise Problem("too_large", f"at most {LARGEST} bytes")
    content, more, end = b"", True, asyncio.get_running_loop().time() + seconds
    while more:
        message = _arrived(request)
        if message is None:
            try:
                async with asyncio.timeout_at(end):
                    message = await request.receive()
            except TimeoutError:
                raise Problem("slow_body", f"within {seconds:g} seconds") from None
        if message["type"] == "http.disconnect":
            raise Problem("malformed")
        content += message.get("body", b"")
        if len(content) > LARGEST:
            raise Problem("too_large", f"at most {LARGEST} bytes")
        more = message.get("more_body", False)
    return content


def _arrived(request: Request) -> Any:
    """The next part of the body if it is here, as it mostly is: a timer would take longer than reading it. Otherwise
    None.
    """
    waiting: Any = request.receive()
    try:
        waiting.send(None)
    except StopIteration as done:
        return done.value
    waiting.close()
    return None


def parse(content: bytes) -> Any:
    """JSON as plain values.

    >>> parse(b'{"context": [0.5, 1e3]}')
    {'context': [0.5, 1000.0]}
    >>> for words in (b"[NaN]", b"[-1e400]", b"[0.5", b"[" * 99):
    ...     try:
    ...         parse(words)
    ...     except Problem as problem:
    ...         print(problem.code)
    not_finite
    not_finite
    malformed
    too_deep
    """
    if content.count(b"[") + content.count(b"{") > DEEPEST and depth(content) > DEEPEST:
        raise Problem("too_deep", f"at most {DEEPEST} levels")
    try:
        return orjson.loads(content)
    except ValueError:
        raise Problem("not_finite" if _has_nonfinite_number(content) else "malformed") from None


def depth(content: bytes) -> int:
    """How deeply brackets are nested, ignoring those inside strings.

    >>> depth(b'{"a": [1, "[[["]}')
    2
    """
    level = deepest = 0
    for found in _BRACKET.finditer(_STRING.sub(b"", content)):
        level += 1 if found[0] in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _has_nonfinite_number(content: bytes) -> bool:
    """Whether the text is JSON except for values that are not finite numbers: NaN, Infinity, 1e400."""
    odd: list[str] = []

    def number(text: str) -> float:
        value = float(text)
        odd.extend([] if math.isfinite(value) else [text])
        return value

    try:
        json.loads(content, parse_constant=number, parse_float=number, parse_int=number)
    except (ValueError, RecursionError):
        return False
    return bool(odd)


class Fields(NamedTuple):
    """The names of a request's fields, and those of them that it must have."""

    known: tuple[str, ...]
    required: tuple[str, ...]

    @classmethod
    def of(cls, model: type[BaseModel] | None) -> Fields:
        fields = {} if model is None else model.model_fields
        return cls(tuple(fields), tuple(name for name, field in fields.items() if field.is_required()))


def take(named: Fields, given: Any) -> dict[str, Any]:
    """The fields of a request. Unknown and missing names are refused; null means absent.

    The study checks the values of the fields, so that each is checked only once.
    """
    if not isinstance(given, dict):
        raise Problem("invalid_input", "the body must be an object")
    unknown = [name for name in given if name not in named.known]
    if unknown:
        raise Problem("invalid_input", f"{len(unknown)} unknown field(s); known are " + ", ".join(named.known))
    fields = {name: value for name, value in given.items() if value is not None}
    for name in named.required:
        if name not in fields:
            raise Problem("invalid_input", f"{name} is missing", field=name)
    return fields
