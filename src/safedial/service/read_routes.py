"""The read-only routes: the log, its verification, the operator page's data, health and metrics."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from safedial.service import schemas
from safedial.service.access import Caller
from safedial.service.app_state import Service
from safedial.service.charts import counts, series
from safedial.service.problem import Problem
from safedial.service.routing import number, reply, route
from safedial.service.visits import Wanted, rows_page, unit_page, units_page
from safedial.study import StoreUnavailable, StudyError, list_studies, verify_study
from safedial.study.event import Event, orjson
from safedial.study.ids import NAME
from safedial.version import __version__

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
