"""The routes. All share access control, reading the body, errors, and the entry in the OpenAPI document; those of
studies and decisions make one call to the study each.
"""

from __future__ import annotations

import asyncio
import re
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from safedial.errors import InvalidInput
from safedial.rounds.decision import LIMITS
from safedial.service import schemas
from safedial.service.access import Caller
from safedial.service.app_state import Service
from safedial.service.charts import Wanted, counts, rows_page, series, unit_page, units_page
from safedial.service.problem import Fields, Problem, answer_error, headers_of, read_json, take
from safedial.study.answer import NAME, Receipt
from safedial.study.event import Event, orjson
from safedial.study.manage import list_studies, make_study
from safedial.study.study_errors import StoreUnavailable, StudyError
from safedial.study.study_spec import read_spec
from safedial.study.verify import verify_study
from safedial.version import __version__

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


# --- Routes of studies and decisions

LARGEST_DIM = 1_000
"""The largest dimension of a study created over HTTP, because d x d numbers are held in memory."""


@route("POST", "/v1/studies", role="admin", takes=schemas.NewStudy, gives=schemas.NewStudyState, key=True)
async def create(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Create a study. With an Idempotency-Key, repeating the request returns the study that it created."""
    if caller.study:
        raise Problem("forbidden", "this key is for one study")
    again = idempotency_key(request) is not None
    check_spec(fields["spec"])
    made, notes = await asyncio.to_thread(
        make_study,
        fields["name"],
        fields["spec"],
        storage=service.store,
        actor=caller.actor,
        load_if_exists=again,
    )
    service.studies[made.name] = made
    again = not made.created
    return reply({**await state_of(made), "warnings": notes, "replayed": again}, 201, replayed=again)


@contextmanager
def of_right_kind() -> Iterator[None]:
    """Refuse a specification with values of unexpected types."""
    try:
        yield
    except InvalidInput:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
        raise Problem("invalid_input", "spec: holds a value of the wrong kind", field="spec") from None


def check_spec(given: Any) -> None:
    """Refuse an invalid specification."""
    with of_right_kind():
        dim = read_spec(given, quiet=True).rules.dim
    if dim > LARGEST_DIM:
        raise Problem("invalid_input", f"dim: a study made over HTTP has at most {LARGEST_DIM}", field="spec")


@route("GET", "/v1/studies", gives=schemas.Studies)
async def studies(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The studies that the key may see."""
    found = await asyncio.to_thread(list_studies, service.store)
    return reply({"studies": [row for row in found if caller.study in ("", row["name"])]})


@route("GET", "/v1/studies/{name}", gives=schemas.StudyState)
async def state(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """A study's counts, the monitor's evidence, whether and why it has stopped, and its specification."""
    return reply(await state_of(await service.study(request.path_params["name"])))


async def state_of(study: Any) -> dict[str, Any]:
    return {**await asyncio.to_thread(study.status), "spec": study.spec.fields}


@route("POST", "/v1/studies/{name}/decisions", role="decide", takes=schemas.Ask, gives=schemas.Decision, key=True)
async def decide(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Advise an action for a context. Answered after the commit.

    A repeated Idempotency-Key gets the earlier answer, marked by `replayed` and the header Idempotent-Replayed;
    `stop_reason` says whether the study has stopped since.
    """
    study = service.studies.get(request.path_params["name"]) or await service.study(request.path_params["name"])
    ask = partial(study.ask, **fields, key=idempotency_key(request), actor=caller.actor)
    made = await service.writer.call(ask)
    return reply(made.to_dict(shared=True), 201, replayed=made.replayed)


@route("GET", "/v1/decisions/{decision_id}", gives=schemas.DecisionRecord)
async def decision(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """A decision, its certificate, an explanation in plain words, and later reports about it."""
    name = request.path_params["decision_id"]
    study = await service.of_decision(name)

    def read() -> dict[str, Any]:
        found = study.decision(name)
        why = LIMITS[found.limit]
        return {**found.to_dict(), "why": why, "explanation": str(found.explain()), "events": study.about(name)}

    return reply(await asyncio.to_thread(read))


async def _told(service: Service, request: Request, act: str, caller: Caller, fields: dict[str, Any]) -> Response:
    name = request.path_params["decision_id"]
    study = await service.of_decision(name)
    return receipt_of(await service.writer.call(partial(getattr(study, act), name, **fields, actor=caller.actor)))


def receipt_of(receipt: Receipt) -> Response:
    """201 if it was written now, 200 if it was already there."""
    return reply(receipt.to_dict(), 201 if receipt.created else 200, replayed=not receipt.created)


def writes(path: str, *, role: str, takes: type[BaseModel], key: bool = False) -> Callable[[Handler], Handler]:
    """A route that writes one event and answers with its receipt."""
    again = {200: "already recorded by an earlier request"}
    return route("POST", path, role=role, takes=takes, gives=schemas.Receipt, key=key, also=again)


@writes("/v1/decisions/{decision_id}/outcome", role="observe", takes=schemas.Outcome)
async def outcome(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Report the outcome of a decision, once. A different outcome is a conflict: send a correction instead."""
    try:
        return await _told(service, request, "tell", caller, fields)
    except StudyError as error:
        if error.code != "conflict":
            raise
        way = f"POST /v1/decisions/{request.path_params['decision_id']}/correction, with a reason, replaces an outcome"
        raise Problem("conflict", way) from None


@writes("/v1/decisions/{decision_id}/correction", role="observe", takes=schemas.Correction, key=True)
async def correction(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Correct values of a reported outcome; the model is rebuilt with the corrected ones."""
    return await _told(service, request, "correct", caller, {**fields, "key": idempotency_key(request)})


@writes("/v1/decisions/{decision_id}/void", role="observe", takes=schemas.Void)
async def void(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Declare a round void. Unless its reason is unrelated to the outcome, certified policies and HP-Student learn
    nothing from this round on; the others take it for the worst. It cannot be undone or changed later.
    """
    return await _told(service, request, "void", caller, fields)


@writes("/v1/studies/{name}/resume", role="admin", takes=schemas.Resume, key=True)
async def resume(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Clear an alarm. A person decides this and gives the reason."""
    study = await service.study(request.path_params["name"])
    asked = partial(study.resume, **fields, key=idempotency_key(request), actor=caller.actor)
    return receipt_of(await service.writer.call(asked))


@writes("/v1/studies/{name}/amendment", role="admin", takes=schemas.Amendment, key=True)
async def amendment(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Change the specification from the next decision on. Earlier rounds stay judged by what was stated then."""
    study = await service.study(request.path_params["name"])
    amend = partial(study.amend, **fields, key=idempotency_key(request), actor=caller.actor)

    def amended() -> Receipt:
        with of_right_kind(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return amend()

    return receipt_of(await asyncio.to_thread(amended))


# --- The read-only routes

PAGE = 1_000
MOST_DRAWN = 200
LOOK_SECONDS = 0.4
"""Seconds that the page waits for a log that is still being read; it then shows what was read so far."""

EVENTS_QUERY = {"from_seq": "the first seq to return", "limit": "the largest number of events"}


@route("GET", "/v1/studies/{name}/events", gives=schemas.Events, query=EVENTS_QUERY)
async def events(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The log, one page at a time: the next page begins at `next_seq`."""
    study = await service.study(request.path_params["name"])
    first, most = number(request, "from_seq", 1, 2**62), number(request, "limit", PAGE, PAGE)
    return await service.page(lambda: reply(study.page(first, most, Event.text)))


TRAIL_QUERY = {
    "before": "events before this seq",
    "limit": "the largest number of events",
    "whole": "1 for every event; otherwise without decisions, first outcomes, imports and snapshots",
}


@route("GET", "/v1/studies/{name}/trail", gives=schemas.Trail, query=TRAIL_QUERY)
async def trail(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """What stands out in the log, the latest first: who did what, when and why."""
    study = await service.study(request.path_params["name"])
    before, most = number(request, "before", 2**62, 2**62), max(1, number(request, "limit", 50, 500))
    found = await asyncio.to_thread(study.trail, before, most, whole=number(request, "whole", 0, 1) > 0)
    return reply({"events": found, "before": found[-1]["seq"] if len(found) == most else None})


VERIFY_QUERY = {
    "checkpoint": "what `safedial study checkpoint` wrote or printed, or SEQ:HASH of any answer; of another study: 409"
}


@route("GET", "/v1/studies/{name}/verify", gives=schemas.Verification, query=VERIFY_QUERY)
async def verify(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Check the hash chain, rebuild the state from the log and recompute every decision.

    A long log takes a while, so a worker runs one verification at a time and answers 503 to another.
    """
    name = request.path_params["name"]
    if name not in service.studies and not NAME.fullmatch(name):
        raise Problem("unknown_study")
    if service.verifying.locked():
        raise Problem("overloaded", "a log is being verified already")
    async with service.verifying:
        mark = request.query_params.get("checkpoint")
        report = await asyncio.to_thread(verify_study, service.store, name, checkpoint=mark)  # it may be unreadable
        return reply(report.to_dict())


@route(
    "GET",
    "/v1/studies/{name}/series",
    gives=schemas.Series,
    query={"points": "the largest number of points per curve"},
    also={304: "nothing has changed since the ETag"},
)
async def over_time(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The operator page's data, down-sampled. Read from the log, never through the writer."""
    points = max(10, number(request, "points", 300, 1000))
    track = await service.track(request.path_params["name"], LOOK_SECONDS)
    tag = f'"{track.seq}-{points}-{int(time.time() // 60)}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    async with service.drawing:
        drawn, content = service.drawn.get((track.study.name, points), ("", b""))
        if drawn != tag:
            content = await asyncio.to_thread(draw, track, points)
            if len(service.drawn) >= MOST_DRAWN:
                service.drawn.clear()
            service.drawn[track.study.name, points] = tag, content
    return Response(content, media_type="application/json", headers=headers)


def draw(track: Any, points: int) -> bytes:
    """The page's content, shared by concurrent requests."""
    content = series(track, points)
    # Which phase a resume restarted is not in the columns.
    if content["counts"]["evidence"] is None or track.amendments:
        content["counts"]["evidence"] = track.study.status()["evidence"]
    return orjson.dumps(content)


def counted(track: Any) -> dict[str, Any]:
    """A study's counts for its metrics, with the evidence that its page shows."""
    found = counts(track)
    return {**found, "evidence": track.study.status()["evidence"]} if track.amendments else found


@route(
    "GET",
    "/v1/studies/{name}/decisions",
    gives=schemas.Rows,
    query={
        "before": "decisions before this seq",
        "limit": "the largest number of decisions",
        "search": "only decisions whose number, unit, visit, key or metadata contain this",
        "unit": "only decisions of this unit",
        "visit": "only decisions of this visit",
        "overdue": "1 for decisions whose outcome is overdue",
    },
)
async def rows(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Decisions with their outcomes, newest first, one page at a time."""
    before, most = number(request, "before", None, 2**62), max(1, number(request, "limit", 50, 500))
    query = request.query_params
    late = number(request, "overdue", 0, 1) > 0
    wanted = Wanted(query.get("search", "")[:200], query.get("unit"), query.get("visit"), late)
    named = wanted.unit is not None or wanted.visit is not None
    track = await service.track(request.path_params["name"], 1e9 if named else LOOK_SECONDS, fresh=named)
    return reply(await asyncio.to_thread(rows_page, track, before, most, wanted))


@route(
    "GET",
    "/v1/studies/{name}/units",
    gives=schemas.Units,
    query={
        "after": "units after this many",
        "limit": "the largest number of units",
        "search": "only units whose labels contain this",
    },
)
async def units(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The study's units, each with its own count of outcomes over the threshold and a 95 % interval."""
    after, most = number(request, "after", 0, 2**62), max(1, number(request, "limit", 100, 500))
    track = await service.track(request.path_params["name"], fresh=True)
    search = request.query_params.get("search", "")[:200]
    return reply(await asyncio.to_thread(units_page, track, after, most, search))


@route("GET", "/v1/studies/{name}/units/{unit:path}", gives=schemas.Unit)
async def unit(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """One unit: its course, its own counts, and its long-run statement where the policy keeps a level for each unit."""
    track = await service.track(request.path_params["name"], fresh=True)
    return reply(await asyncio.to_thread(unit_page, track, request.path_params["unit"]))


@route("GET", "/healthz", role=None, gives=schemas.Health)
async def health(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The process answers."""
    return reply({"status": "ok", "version": __version__})


@route("GET", "/readyz", role=None, gives=schemas.Health)
async def ready(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The store also answers and is writable, and the logs were read, so that decisions do not wait; 503 if not."""
    if not service.ready:
        raise StoreUnavailable("storage: the logs are being read")
    await asyncio.to_thread(service.store.check_writable)
    return reply({"status": "ready", "version": __version__})


@route("GET", "/metrics", gives=None)
async def metrics(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Prometheus metrics of this worker."""
    seen = {}
    for row in await asyncio.to_thread(list_studies, service.store):
        if caller.study in ("", row["name"]):
            try:
                track = await service.track(row["name"], LOOK_SECONDS)
            except StoreUnavailable:
                raise
            except StudyError:  # it cannot be read; the others can
                continue
            if track.complete:
                seen[row["name"]] = await asyncio.to_thread(counted, track)
    return Response(service.metrics.text(seen), media_type="text/plain; version=0.0.4; charset=utf-8")
