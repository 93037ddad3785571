"""The routes, thin: who may, what was sent, one call of the study, the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from safedial.errors import InvalidInput
from safedial.service import wire
from safedial.service.access import Caller
from safedial.service.body import read_json, take
from safedial.service.desk import Service
from safedial.service.problem import Problem, answer_error
from safedial.service.series import counts, rows_page, series
from safedial.study import create_study, list_studies
from safedial.study.errors import StudyError
from safedial.study.event import orjson
from safedial.study.spec import read_spec
from safedial.version import __version__

router = APIRouter()
quick: list[Route] = []
"""The same routes without FastAPI's machinery, which they do not need: it describes them, these answer."""

Handler = Callable[[Service, Request, Caller, dict[str, Any]], Awaitable[Response]]
PAGE = 1_000
MOST_DRAWN = 200
LARGEST_DIM = 1_000
"""A study made over HTTP has at most so many numbers in a context: d x d of them are held in memory."""

PRIVATE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Answers hold contexts and outcomes, so nobody on the way keeps them."""

LOOK_SECONDS = 0.4
"""How long a look at the page waits for a log that is still being read; it then shows what there is."""


def route(
    method: str,
    path: str,
    *,
    role: str | None,
    gives: type[BaseModel] | None,
    status: int = 200,
    takes: type[BaseModel] | None = None,
    key: bool = False,
    query: dict[str, str] | None = None,
    also: dict[int, str] | None = None,
) -> Callable[[Handler], Handler]:
    """Put a handler behind admission, the reading of its body, and the one way errors are answered.

    The parameters describe the route in the OpenAPI document too.
    """

    def put(handler: Handler) -> Handler:
        async def endpoint(request: Request) -> Response:
            started = time.perf_counter()
            service: Service = request.app.state.service
            try:
                response = await _serve(service, request, handler, role, takes)
            except Exception as error:
                fields = takes.model_fields if takes else ()
                response = answer_error(error, fields, whole=takes is wire.NewStudy)
            service.metrics.answered(method, path, response.status_code, time.perf_counter() - started)
            return response

        endpoint.__name__, endpoint.__doc__ = handler.__name__, handler.__doc__
        quick.append(Route(path, endpoint, methods=[method], include_in_schema=False))
        described = describe(takes=takes, key=key, query=query or {}, needs_key=role is not None)
        answers: dict[int | str, Any] = {status: {"model": gives} if gives else {"description": "text"}}
        for code, words in (also or {}).items():
            answers[code] = {"description": words, **({"model": gives} if code == 200 else {})}
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            status_code=status,
            response_model=None,
            responses={**answers, "default": {"model": wire.ProblemDetails, "description": "problem+json"}},
            openapi_extra=described,
        )
        return handler

    return put


async def _serve(
    service: Service, request: Request, handler: Handler, role: str | None, takes: type[BaseModel] | None
) -> Response:
    caller = Caller("", "read", "")
    if role is not None:
        caller = await service.access.admit(request, role, request.path_params.get("name") or _study_of(request))
    fields: dict[str, Any] = {}
    if takes is not None:
        fields = take(takes, await read_json(request, seconds=service.limits.body_seconds))
    if service.waiting >= service.limits.waiting:
        raise Problem("overloaded")
    service.waiting += 1
    try:
        return await handler(service, request, caller, fields)
    finally:
        service.waiting -= 1


def _study_of(request: Request) -> str | None:
    decision = request.path_params.get("decision_id")
    return None if decision is None else str(decision).rpartition(".")[0]


def describe(*, takes: type[BaseModel] | None, key: bool, query: dict[str, str], needs_key: bool) -> dict[str, Any]:
    """What FastAPI cannot see of a route that reads its own body."""
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "required": False, "description": words, "schema": {"type": "integer"}}
        for name, words in query.items()
    ]
    if key:
        words = "the same key and body give the same answer; another body is refused"
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": words,
                "schema": {"type": "string", "maxLength": 200},
            }
        )
    said: dict[str, Any] = {"parameters": parameters} if parameters else {}
    if takes is not None:
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{takes.__name__}"}}}
        said["requestBody"] = {"required": True, "content": content}
    if needs_key:
        said["security"] = [{"key": []}, {}]
    return said


def reply(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, PRIVATE, "application/json")


def idempotency_key(request: Request) -> str | None:
    """The header, checked: it is kept for as long as the study."""
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= 200:
        raise Problem("invalid_input", "Idempotency-Key: must have 1 to 200 characters")
    return key


def number(request: Request, name: str, default: int | None, most: int) -> Any:
    """A whole number from the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem("invalid_input", f"{name}: must be a whole number", field=name)
    return min(int(text), most)


@route("POST", "/v1/studies", role="admin", takes=wire.NewStudy, gives=wire.StudyState, status=201, key=True)
async def create(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Create a study. With an Idempotency-Key, the same request again finds the study that it made."""
    if caller.study:
        raise Problem("forbidden", "this key is for one study")
    again = idempotency_key(request) is not None
    check_spec(fields["spec"])
    made = await asyncio.to_thread(
        create_study,
        fields["name"],
        fields["spec"],
        storage=service.store,
        actor=caller.actor,
        load_if_exists=again,
    )
    service.studies[made.name] = made
    return reply(await state_of(made), 201)


def check_spec(given: Any) -> None:
    """Refuse what is no specification, down to values of kinds that nobody thought of."""
    try:
        dim = read_spec(given, quiet=True).rules.dim
    except InvalidInput:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
        raise Problem("invalid_input", "spec: holds a value of the wrong kind", field="spec") from None
    if dim > LARGEST_DIM:
        raise Problem("invalid_input", f"dim: a study made over HTTP has at most {LARGEST_DIM}", field="spec")


@route("GET", "/v1/studies", role="read", gives=wire.Studies)
async def studies(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The studies that the key may see."""
    found = await asyncio.to_thread(list_studies, service.store)
    return reply({"studies": [row for row in found if caller.study in ("", row["name"])]})


@route("GET", "/v1/studies/{name}", role="read", gives=wire.StudyState)
async def state(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Counts, the monitor's evidence, whether and why the study has stopped, and its specification."""
    return reply(await state_of(await service.study(request.path_params["name"])))


async def state_of(study: Any) -> dict[str, Any]:
    return {**await asyncio.to_thread(study.status), "spec": study.spec.fields}


@route("POST", "/v1/studies/{name}/decisions", role="decide", takes=wire.Ask, gives=wire.Decision, status=201, key=True)
async def decide(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Advise an action for a context. Answered after the commit."""
    study = service.studies.get(request.path_params["name"]) or await service.study(request.path_params["name"])
    asked = study.ask(
        fields["context"],
        baseline_cost=fields.get("baseline_cost", 0.0),
        key=idempotency_key(request),
        actor=caller.actor,
        wait=False,
    )
    return reply((await service.done(asked)).to_dict(), 201)


@route("GET", "/v1/decisions/{decision_id}", role="read", gives=wire.DecisionRecord)
async def decision(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """A decision, its certificate, the same in plain words, and what was said about it since."""
    name = request.path_params["decision_id"]
    study = await service.of_decision(name)

    def read() -> dict[str, Any]:
        found = study.decision(name)
        return {**found.to_dict(), "explanation": str(found.explain()), "events": study.about(name)}

    return reply(await asyncio.to_thread(read))


async def _told(service: Service, request: Request, act: str, caller: Caller, fields: dict[str, Any]) -> Response:
    name = request.path_params["decision_id"]
    study = await service.of_decision(name)
    receipt = await service.done(getattr(study, act)(name, **fields, actor=caller.actor, wait=False))
    return reply(receipt.to_dict(), 201 if receipt.created else 200)


AGAIN = {200: "the same was said before"}


@route(
    "POST",
    "/v1/decisions/{decision_id}/outcome",
    role="observe",
    takes=wire.Outcome,
    gives=wire.Receipt,
    status=201,
    also=AGAIN,
)
async def outcome(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Report what came of a decision, once; another outcome is a conflict, and a correction is the way."""
    try:
        return await _told(service, request, "tell", caller, fields)
    except StudyError as error:
        if error.code != "conflict":
            raise
        way = f"POST /v1/decisions/{request.path_params['decision_id']}/correction, with a reason, replaces an outcome"
        raise Problem("conflict", way) from None


@route(
    "POST",
    "/v1/decisions/{decision_id}/correction",
    role="observe",
    takes=wire.Correction,
    gives=wire.Receipt,
    status=201,
    key=True,
    also=AGAIN,
)
async def correction(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Replace values of an outcome that was reported wrongly; the model is folded again with the right ones."""
    return await _told(service, request, "correct", caller, {**fields, "key": idempotency_key(request)})


@route(
    "POST",
    "/v1/decisions/{decision_id}/void",
    role="observe",
    takes=wire.Void,
    gives=wire.Receipt,
    status=201,
    also=AGAIN,
)
async def void(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Take a round out of the study. Unless the reason is unrelated to the outcome, the model stops before it."""
    return await _told(service, request, "void", caller, fields)


@route(
    "POST",
    "/v1/studies/{name}/resume",
    role="admin",
    takes=wire.Resume,
    gives=wire.Receipt,
    status=201,
    key=True,
    also=AGAIN,
)
async def resume(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Take the guard's alarm back: a person's decision, with the reason."""
    study = await service.study(request.path_params["name"])
    asked = study.resume(**fields, key=idempotency_key(request), actor=caller.actor, wait=False)
    receipt = await service.done(asked)
    return reply(receipt.to_dict(), 201 if receipt.created else 200)


@route(
    "GET",
    "/v1/studies/{name}/events",
    role="read",
    gives=wire.Events,
    query={"from_seq": "the first seq wanted", "limit": "at most so many"},
)
async def events(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The log, a page at a time: `next_seq` is where the next page begins."""
    study = await service.study(request.path_params["name"])
    first, most = number(request, "from_seq", 1, 2**62), number(request, "limit", PAGE, PAGE)
    return reply(await asyncio.to_thread(study.events, first, most))


@route("GET", "/v1/studies/{name}/verify", role="read", gives=wire.Verification)
async def verify(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Check the chain of hashes, fold the log afresh and compute every decision again.

    It takes a while on a long log, so a worker does one at a time and answers 503 to another.
    """
    study = await service.study(request.path_params["name"])
    if service.verifying.locked():
        raise Problem("overloaded", "a log is being verified already")
    async with service.verifying:
        return reply((await asyncio.to_thread(study.verify)).to_dict())


@route(
    "GET",
    "/v1/studies/{name}/series",
    role="read",
    gives=wire.Series,
    query={"points": "at most so many points a curve"},
    also={304: "nothing is new since the ETag"},
)
async def over_time(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """What the operator page draws, down-sampled. Read from the log, never through the writer."""
    points = max(10, number(request, "points", 300, 1000))
    track = await service.track(request.path_params["name"], LOOK_SECONDS)
    tag = f'"{track.seq}-{points}-{int(time.time() // 60)}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    drawn, content = service.drawn.get((track.study.name, points), ("", b""))
    if drawn != tag:
        content = await asyncio.to_thread(draw, track, points)
        if len(service.drawn) >= MOST_DRAWN:
            service.drawn.clear()
        service.drawn[track.study.name, points] = tag, content
    return Response(content, media_type="application/json", headers=headers)


def draw(track: Any, points: int) -> bytes:
    """The page's content; shared by all who look at the same time."""
    content = series(track, points)
    if content["counts"]["evidence"] is None:
        content["counts"]["evidence"] = track.study.status()["evidence"]
    return orjson.dumps(content)


@route(
    "GET",
    "/v1/studies/{name}/decisions",
    role="read",
    gives=wire.Rows,
    query={"before": "decisions before this seq", "limit": "at most so many"},
)
async def rows(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Decisions with what came of them, the newest first, a page at a time."""
    before, most = number(request, "before", None, 2**62), max(1, number(request, "limit", 50, 500))
    track = await service.track(request.path_params["name"], LOOK_SECONDS)
    return reply(await asyncio.to_thread(rows_page, track, before, most))


@route("GET", "/healthz", role=None, gives=wire.Health)
async def health(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The process answers."""
    return reply({"status": "ok", "version": __version__})


@route("GET", "/readyz", role=None, gives=wire.Health)
async def ready(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The store answers as well; 503 where it does not."""
    await asyncio.to_thread(list_studies, service.store)
    return reply({"status": "ready", "version": __version__})


@route("GET", "/metrics", role="read", gives=None)
async def metrics(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Prometheus metrics of this worker."""
    seen = {}
    for row in await asyncio.to_thread(list_studies, service.store):
        if caller.study in ("", row["name"]):
            track = await service.track(row["name"], LOOK_SECONDS)
            if track.complete:
                seen[row["name"]] = await asyncio.to_thread(counts, track)
    return Response(service.metrics.text(seen), media_type="text/plain; version=0.0.4; charset=utf-8")
