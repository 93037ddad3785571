"""The routes: one table of operations by path and method, whose answering is the same for all: access control, the
body, one call to the study, errors in one form.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from safedial.errors import InvalidInput
from safedial.rounds.decision import LIMITS
from safedial.service import schemas
from safedial.service.access import Caller
from safedial.service.app_state import Service
from safedial.service.charts import Wanted, rows_page, series, unit_page, units_page
from safedial.service.problem import PRIVATE, Problem, Reply, answer, answer_error, read_body, read_headers, read_query
from safedial.study.answer import NAME, Receipt
from safedial.study.event import Event, orjson
from safedial.study.study import Study
from safedial.study.study_errors import StoreUnavailable, StudyError
from safedial.study.study_spec import read_spec
from safedial.study.verify import verify_study
from safedial.version import __version__


class Call(NamedTuple):
    """One request, admitted and read."""

    service: Service
    request: Request
    caller: Caller
    fields: dict[str, Any]
    query: Any

    async def study(self) -> Study:
        """The study that the path names."""
        name = self.request.path_params["name"]
        return self.service.studies.get(name) or await self.service.study(name)

    @property
    def key(self) -> str | None:
        """The Idempotency-Key, which is sent as UTF-8."""
        given = read_headers(self.request).get(b"idempotency-key")
        if given is None:
            return None
        try:
            key = given.decode()
        except UnicodeDecodeError:
            raise Problem("invalid_input", "Idempotency-Key: must be sent as UTF-8") from None
        if not 0 < len(key) <= LONGEST_KEY:
            raise Problem("invalid_input", f"Idempotency-Key: must have 1 to {LONGEST_KEY} characters")
        return key


LONGEST_KEY = 200
Handler = Callable[[Call], Awaitable[Response]]


class Operation(NamedTuple):
    """What a method does at a path, and what the OpenAPI document says of it; `query` is that of a request without."""

    handler: Handler
    gives: type[BaseModel] | str
    role: str | None
    takes: type[BaseModel] | None
    query: BaseModel
    key: bool
    also: dict[int, str]

    async def answer(self, service: Service, request: Request) -> Response:
        """The answer to a request, whatever happens to it."""
        try:
            read_headers(request)
            query = read_query(request, type(self.query)) if request.scope["query_string"] else self.query
            caller, fields = Caller("", "read", ""), {}
            if self.role is not None:
                caller = await service.access.admit(request, self.role, _study_of(request.path_params))
            if self.takes is not None:
                fields = await read_body(request, self.takes, seconds=service.limits.body_seconds)
            if service.waiting >= service.limits.waiting:
                raise Problem("overloaded")
            service.waiting += 1
            try:
                return await self.handler(Call(service, request, caller, fields, query))
            finally:
                service.waiting -= 1
        except Exception as error:
            named = () if self.takes is None else self.takes.model_fields
            return answer_error(error, named, whole=self.takes in (schemas.NewStudy, schemas.Amendment))


def _study_of(params: dict[str, Any]) -> str | None:
    return params.get("name") or (str(params["decision_id"]).partition(".")[0] if "decision_id" in params else None)


@dataclass(frozen=True)
class Resource:
    """An address: its operations by method, as an ASGI app over a service."""

    path: str
    operations: dict[str, Operation]
    service: Service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, method = time.perf_counter(), "GET" if scope["method"] == "HEAD" else scope["method"]
        operation, service = self.operations.get(method), self.service
        if operation is None:
            allowed = sorted({*self.operations, *(("HEAD",) if "GET" in self.operations else ())})
            response = answer("method_not_allowed", headers={"Allow": ", ".join(allowed)})
            method = "other"
        else:
            response = await operation.answer(service, Request(scope, receive, send))
        service.metrics.answered(method, self.path, response.status_code, time.perf_counter() - started)
        await response(scope, receive, send)


operations: dict[str, dict[str, Operation]] = {}
"""By address and method, in the order in which the router tries them: first the address that is asked for most."""


def route(
    method: str,
    path: str,
    *,
    gives: type[BaseModel] | str,
    role: str | None = "read",
    takes: type[BaseModel] | None = None,
    query: type[BaseModel] = schemas.Query,
    key: bool = False,
    also: dict[int, str] | None = None,
) -> Callable[[Handler], Handler]:
    """Put a handler into the table; a POST is answered with 201."""

    def put(handler: Handler) -> Handler:
        operations.setdefault(path, {})[method] = Operation(handler, gives, role, takes, query(), key, also or {})
        return handler

    return put


# --- Routes of studies and decisions


async def _told(call: Call, act: str, **more: Any) -> Response:
    """The receipt of an act on the decision that the path names."""
    name = call.request.path_params["decision_id"]
    act_on = getattr(await call.service.of_decision(name), act)
    return receipt_of(
        await call.service.writer.call(partial(act_on, name, **call.fields, **more, actor=call.caller.actor))
    )


def receipt_of(receipt: Receipt) -> Response:
    """201 if it was written now, 200 if it was already there."""
    return Reply(receipt.to_dict(), 201 if receipt.created else 200, replayed=not receipt.created)


def writes(path: str, *, role: str, takes: type[BaseModel], key: bool = False) -> Callable[[Handler], Handler]:
    """A route that writes one event and answers with its receipt."""
    again = {200: "already recorded by an earlier request"}
    return route("POST", path, role=role, takes=takes, gives=schemas.Receipt, key=key, also=again)


@route("POST", "/v1/studies/{name}/decisions", role="decide", takes=schemas.Ask, gives=schemas.Decision, key=True)
async def decide(call: Call) -> Response:
    """Advise an action for a context. Answered after the commit.

    A repeated Idempotency-Key gets the earlier answer, marked by `replayed` and the header Idempotent-Replayed;
    `stop_reason` says whether the study has stopped since.
    """
    ask = partial((await call.study()).ask, **call.fields, key=call.key, actor=call.caller.actor)
    made = await call.service.writer.call(ask)
    return Reply(made.to_dict(shared=True), 201, replayed=made.replayed)


@writes("/v1/decisions/{decision_id}/outcome", role="observe", takes=schemas.Outcome)
async def outcome(call: Call) -> Response:
    """Report the outcome of a decision, once. A different outcome is a conflict: send a correction instead."""
    try:
        return await _told(call, "tell")
    except StudyError as error:
        if error.code != "conflict":
            raise
        name = call.request.path_params["decision_id"]
        way = f"POST /v1/decisions/{name}/correction, with a reason, replaces an outcome"
        raise Problem("conflict", way) from None


@writes("/v1/decisions/{decision_id}/correction", role="observe", takes=schemas.Correction, key=True)
async def correction(call: Call) -> Response:
    """Correct values of a reported outcome; the model is rebuilt with the corrected ones."""
    return await _told(call, "correct", key=call.key)


@writes("/v1/decisions/{decision_id}/void", role="observe", takes=schemas.Void)
async def void(call: Call) -> Response:
    """Declare a round void. Unless its reason is unrelated to the outcome, certified policies and HP-Student learn
    nothing from this round on; the others take it for the worst. It cannot be undone or changed later.
    """
    return await _told(call, "void")


@route("GET", "/v1/decisions/{decision_id}", gives=schemas.DecisionRecord)
async def decision(call: Call) -> Response:
    """A decision, its certificate, an explanation in plain words, and later reports about it."""
    name = call.request.path_params["decision_id"]
    study = await call.service.of_decision(name)

    def read() -> dict[str, Any]:
        found = study.decision(name)
        why = LIMITS[found.limit]
        return {**found.to_dict(), "why": why, "explanation": str(found.explain()), "events": study.about(name)}

    return Reply(await asyncio.to_thread(read))


LARGEST_DIM = 1_000
"""The largest dimension of a study created over HTTP, because d x d numbers are held in memory."""


@route("POST", "/v1/studies", role="admin", takes=schemas.NewStudy, gives=schemas.NewStudyState, key=True)
async def create(call: Call) -> Response:
    """Create a study. With an Idempotency-Key, repeating the request returns the study that it created."""
    service, name, spec = call.service, call.fields["name"], call.fields["spec"]
    if call.caller.study:
        raise Problem("forbidden", "this key is for one study")
    again = call.key is not None
    with of_right_kind():
        dim = read_spec(spec, quiet=True).rules.dim
    if dim > LARGEST_DIM:
        raise Problem("invalid_input", f"dim: a study made over HTTP has at most {LARGEST_DIM}", field="spec")
    given = {"storage": service.store, "actor": call.caller.actor, "load_if_exists": again, "quiet": True}
    made = await asyncio.to_thread(partial(Study.create, name, spec, **given))
    service.studies[made.name] = made
    again = not made.created
    return Reply({**await state_of(made), "warnings": made.warnings, "replayed": again}, 201, replayed=again)


@contextmanager
def of_right_kind() -> Iterator[None]:
    """Refuse a specification with values of unexpected types."""
    try:
        yield
    except InvalidInput:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError):
        raise Problem("invalid_input", "spec: holds a value of the wrong kind", field="spec") from None


@route("GET", "/v1/studies", gives=schemas.Studies)
async def studies(call: Call) -> Response:
    """The studies that the key may see."""
    return Reply({"studies": await call.service.seen_by(call.caller)})


@route("GET", "/v1/studies/{name}", gives=schemas.StudyState)
async def state(call: Call) -> Response:
    """A study's counts, the monitor's evidence, whether and why it has stopped, and its specification."""
    return Reply(await state_of(await call.study()))


async def state_of(study: Study) -> dict[str, Any]:
    return {**await asyncio.to_thread(study.status), "spec": study.spec.fields}


@writes("/v1/studies/{name}/resume", role="admin", takes=schemas.Resume, key=True)
async def resume(call: Call) -> Response:
    """Clear an alarm. A person decides this and gives the reason."""
    asked = partial((await call.study()).resume, **call.fields, key=call.key, actor=call.caller.actor)
    return receipt_of(await call.service.writer.call(asked))


@writes("/v1/studies/{name}/amendment", role="admin", takes=schemas.Amendment, key=True)
async def amendment(call: Call) -> Response:
    """Change the specification from the next decision on. Earlier rounds stay judged by what was stated then."""
    amend = partial((await call.study()).amend, **call.fields, key=call.key, actor=call.caller.actor)

    def amended() -> Receipt:
        with of_right_kind(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return amend()

    return receipt_of(await asyncio.to_thread(amended))


# --- The read-only routes

PAGE = 1_000
MOST_ROWS = 500
MOST_DRAWN = 200
LONGEST_SEARCH = 200
LOOK_SECONDS = 0.4
"""Seconds that the page waits for a log that is still being read; it then shows what was read so far."""


@route("GET", "/v1/studies/{name}/events", gives=schemas.Events, query=schemas.EventsQuery)
async def events(call: Call) -> Response:
    """The log, one page at a time: the next page begins at `next_seq`."""
    study, first, most = await call.study(), call.query.from_seq, min(call.query.limit, PAGE)
    return await call.service.page(lambda: Reply(study.page(first, most, Event.text)))


@route("GET", "/v1/studies/{name}/trail", gives=schemas.Trail, query=schemas.TrailQuery)
async def trail(call: Call) -> Response:
    """What stands out in the log, the latest first: who did what, when and why."""
    study, most = await call.study(), max(1, min(call.query.limit, MOST_ROWS))
    found = await asyncio.to_thread(study.trail, call.query.before, most, whole=call.query.whole > 0)
    return Reply({"events": found, "before": found[-1]["seq"] if len(found) == most else None})


@route("GET", "/v1/studies/{name}/verify", gives=schemas.Verification, query=schemas.VerifyQuery)
async def verify(call: Call) -> Response:
    """Check the hash chain, rebuild the state from the log and recompute every decision.

    A long log takes a while, so a worker runs one verification at a time and answers 503 to another.
    """
    service, name, mark = call.service, call.request.path_params["name"], call.query.checkpoint
    if name not in service.studies and not NAME.fullmatch(name):
        raise Problem("unknown_study")
    if service.verifying.locked():
        raise Problem("overloaded", "a log is being verified already")
    async with service.verifying:
        report = await asyncio.to_thread(verify_study, service.store, name, checkpoint=mark)  # it may be unreadable
        return Reply(report.to_dict())


@route(
    "GET",
    "/v1/studies/{name}/series",
    gives=schemas.Series,
    query=schemas.SeriesQuery,
    also={304: "nothing has changed since the ETag"},
)
async def over_time(call: Call) -> Response:
    """The operator page's data, down-sampled. Read from the log, never through the writer."""
    service, points = call.service, min(max(10, call.query.points), 1_000)
    track = await service.track(call.request.path_params["name"], LOOK_SECONDS)
    tag = f'"{track.seq}-{points}-{int(time.time() // 60)}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if call.request.headers.get("if-none-match") == tag:
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
    return orjson.dumps(series(track, points))


@route("GET", "/v1/studies/{name}/decisions", gives=schemas.Rows, query=schemas.RowsQuery)
async def rows(call: Call) -> Response:
    """Decisions with their outcomes, newest first, one page at a time."""
    query = call.query
    wanted = Wanted(query.search[:LONGEST_SEARCH], query.unit, query.visit, query.overdue > 0)
    named = wanted.unit is not None or wanted.visit is not None
    track = await call.service.track(call.request.path_params["name"], 1e9 if named else LOOK_SECONDS, fresh=named)
    return Reply(await asyncio.to_thread(rows_page, track, query.before, max(1, min(query.limit, MOST_ROWS)), wanted))


@route("GET", "/v1/studies/{name}/units", gives=schemas.Units, query=schemas.UnitsQuery)
async def units(call: Call) -> Response:
    """The study's units, each with its own count of outcomes over the threshold and a 95 % interval."""
    track = await call.service.track(call.request.path_params["name"], fresh=True)
    most, search = max(1, min(call.query.limit, MOST_ROWS)), call.query.search[:LONGEST_SEARCH]
    return Reply(await asyncio.to_thread(units_page, track, call.query.after, most, search))


@route("GET", "/v1/studies/{name}/units/{unit:path}", gives=schemas.Unit)
async def unit(call: Call) -> Response:
    """One unit: its course, its own counts, and its long-run statement where the policy keeps a level for each unit."""
    track = await call.service.track(call.request.path_params["name"], fresh=True)
    return Reply(await asyncio.to_thread(unit_page, track, call.request.path_params["unit"]))


@route("GET", "/healthz", role=None, gives=schemas.Health)
async def health(call: Call) -> Response:
    """The process answers."""
    return Reply({"status": "ok", "version": __version__})


@route("GET", "/readyz", role=None, gives=schemas.Health)
async def ready(call: Call) -> Response:
    """The store also answers and is writable, and the logs were read, so that decisions do not wait; 503 if not."""
    if not call.service.ready:
        raise StoreUnavailable("storage: the logs are being read")
    await asyncio.to_thread(call.service.store.check_writable)
    return Reply({"status": "ready", "version": __version__})


@route("GET", "/metrics", gives="text/plain")
async def metrics(call: Call) -> Response:
    """Prometheus metrics of this worker."""
    seen = {}
    for row in await call.service.seen_by(call.caller):
        try:
            study = await call.service.study(row["name"])
            seen[row["name"]] = await asyncio.to_thread(study.status)
        except StoreUnavailable:
            raise
        except StudyError:  # it cannot be read; the others can
            continue
    content = call.service.metrics.text(seen)
    return Response(content, headers=PRIVATE, media_type="text/plain; version=0.0.4; charset=utf-8")
