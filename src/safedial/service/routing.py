"""What all routes share: access control, reading the body, errors, and the entry in the OpenAPI document."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from safedial.service import schemas
from safedial.service.access import Caller
from safedial.service.app_state import Service
from safedial.service.problem import Problem, answer_error
from safedial.service.request_body import Fields, headers_of, read_json, take
from safedial.study.event import orjson

router = APIRouter()
quick: dict[str, list[tuple[re.Pattern[str], Callable[[Request], Awaitable[Response]]]]] = {}
"""The same routes by their methods, for `App`, which answers requests by them; FastAPI only describes them."""

Handler = Callable[[Service, Request, Caller, dict[str, Any]], Awaitable[Response]]

PRIVATE = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""Answers hold contexts and outcomes, so no cache may keep them."""
REPLAYED, JSON = (b"idempotent-replayed", b"true"), (b"content-type", b"application/json")


def route(
    method: str,
    path: str,
    *,
    gives: type[BaseModel] | None,
    role: str | None = "read",
    takes: type[BaseModel] | None = None,
    key: bool = False,
    query: dict[str, str] | None = None,
    also: dict[int, str] | None = None,
) -> Callable[[Handler], Handler]:
    """Wrap a handler with access control, reading of the body and error answers; a POST is answered with 201.

    The parameters also describe the route in the OpenAPI document.
    """
    status = 201 if method == "POST" else 200
    named, known = Fields.of(takes), frozenset(query or ())

    def put(handler: Handler) -> Handler:
        async def endpoint(request: Request) -> Response:
            started = time.perf_counter()
            service: Service = request.app.state.service
            try:
                check_query(request, known)
                response = await _serve(service, request, handler, role, named)
            except Exception as error:
                response = answer_error(error, named.known, whole=takes in (schemas.NewStudy, schemas.Amendment))
            service.metrics.answered(method, path, response.status_code, time.perf_counter() - started)
            return response

        endpoint.__name__, endpoint.__doc__ = handler.__name__, handler.__doc__
        for each in ("GET", "HEAD") if method == "GET" else (method,):
            quick.setdefault(each, []).append((compile_path(path)[0], endpoint))
        described = describe(takes=takes, key=key, query=query or {}, needs_key=role is not None)
        answers: dict[int | str, Any] = {status: {"model": gives} if gives else {"description": "text"}}
        for code, words in (also or {}).items():
            answers[code] = {"description": words, **({"model": gives} if code == 200 else {})}
        answers["default"] = {"model": schemas.ProblemDetails, "description": "problem+json"}
        about: dict[str, Any] = {"responses": answers, "response_model": None, "openapi_extra": described}
        router.add_api_route(path, endpoint, methods=[method], status_code=status, **about)
        return handler

    return put


def check_query(request: Request, known: frozenset[str]) -> None:
    """Refuse a query that has other names than these: a misspelt filter or checkpoint would silently do nothing."""
    if request.scope["query_string"] and not known.issuperset(request.query_params):
        takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
        raise Problem("invalid_input", f"the query has a name that this address does not know; {takes}")


async def _serve(service: Service, request: Request, handler: Handler, role: str | None, named: Fields) -> Response:
    caller = Caller("", "read", "")
    if role is not None:
        caller = await service.access.admit(request, role, request.path_params.get("name") or _study_of(request))
    fields: dict[str, Any] = {}
    if named.known:
        fields = take(named, await read_json(request, seconds=service.limits.body_seconds))
    if service.waiting >= service.limits.waiting:
        raise Problem("overloaded")
    service.waiting += 1
    try:
        return await handler(service, request, caller, fields)
    finally:
        service.waiting -= 1


def _study_of(request: Request) -> str | None:
    decision = request.path_params.get("decision_id")
    return None if decision is None else str(decision).partition(".")[0]


_TEXTS = ("checkpoint", "search", "unit", "visit")
"""Query parameters that are text; the others are whole numbers."""


def describe(*, takes: type[BaseModel] | None, key: bool, query: dict[str, str], needs_key: bool) -> dict[str, Any]:
    """The OpenAPI entries that FastAPI cannot infer, because the route reads its own body."""

    def parameter(name: str, place: str, words: str, kind: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "in": place, "required": False, "description": words, "schema": kind}

    parameters = [
        parameter(name, "query", words, {"type": "string" if name in _TEXTS else "integer"})
        for name, words in query.items()
    ]
    if key:
        words = "the same key and body give the same answer; another body is refused"
        parameters.append(parameter("Idempotency-Key", "header", words, {"type": "string", "maxLength": 200}))
    said: dict[str, Any] = {"parameters": parameters} if parameters else {}
    if takes is not None:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{takes.__name__}"}}}
        said["requestBody"] = {"required": True, "content": content}
    if needs_key:
        said["security"] = [{"key": []}, {}]
    return said


def reply(content: Any, status: int = 200, *, replayed: bool = False) -> Response:
    """An answer; `replayed` marks a repeated one."""
    return Reply(orjson.dumps(content), status, [*PRIVATE, REPLAYED] if replayed else PRIVATE)


class Reply(Response):
    """An answer in JSON; its headers are written as they are sent, which Starlette would take longer for."""

    def __init__(self, body: bytes, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body)), JSON]


def idempotency_key(request: Request) -> str | None:
    """The header, checked."""
    key = headers_of(request).get(b"idempotency-key")
    if key is not None and not 0 < len(key) <= 200:
        raise Problem("invalid_input", "Idempotency-Key: must have 1 to 200 characters")
    return None if key is None else key.decode("latin-1")


def number(request: Request, name: str, default: int | None, most: int) -> Any:
    """A whole number from the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem("invalid_input", f"{name}: must be a whole number", field=name)
    return min(int(text), most)
