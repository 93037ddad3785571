"""A request's headers and body: limits on size, time and depth; JSON with finite numbers; an object of known fields."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request

from safedial.service.problem import Problem
from safedial.study.event import orjson

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
