"""What the routes of one worker share: the open store, its studies, access control, metrics and tracks.

One wake-up of the event loop or of the store's writer serves many requests. The two threads share one interpreter. If
every request woke the writer and every answer woke the loop, they would take the interpreter from each other several
times for each decision.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from safedial.errors import import_extra
from safedial.service.access import BURST, RATE, Access, Caller
from safedial.service.problem import BODY_SECONDS, Problem, log
from safedial.service.timeline import Track
from safedial.study.answer import NAME
from safedial.study.manage import list_studies
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StoreUnavailable, StudyError
from safedial.version import __version__

prometheus = import_extra("prometheus_client", "service")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
GAUGES = {
    "decisions": "Decisions made.",
    "outcomes": "Outcomes known.",
    "violations": "Outcomes with a cost above the threshold.",
    "open": "Decisions that wait for an outcome.",
    "overdue": "Decisions whose outcome is overdue.",
    "void": "Rounds without an outcome that counts.",
    "unwatched": "Rounds that ended without an outcome that the watch can count.",
    "resumes": "How often a person cleared an alarm.",
    "stopped": "1 while the guard advises the fallback.",
    "evidence": "Evidence that the guarantee is broken: 1 at the start.",
}


class Metrics:
    """One registry per process; no label holds a value from a request."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        more = {"registry": self.registry}
        self.requests = prometheus.Counter(
            "safedial_requests", "Requests answered.", ["method", "route", "status"], **more
        )
        self.seconds = prometheus.Histogram(
            "safedial_request_seconds", "Seconds until the answer.", ["route"], buckets=SECONDS, **more
        )
        prometheus.Gauge("safedial_info", "The version.", ["version"], **more).labels(__version__).set(1)
        self._known: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        known = self._known.get((method, route, status))
        if known is None:
            labels = self.requests.labels(method, route, str(status)), self.seconds.labels(route)
            known = self._known[method, route, status] = labels
        known[0].inc()
        known[1].observe(seconds)

    def text(self, studies: dict[str, dict[str, Any]]) -> bytes:
        """The worker's metrics and those of the given studies, which the caller may see."""
        registry = prometheus.CollectorRegistry()
        for gauge, words in GAUGES.items():
            made = prometheus.Gauge(f"safedial_study_{gauge}", words, ["study"], registry=registry)
            for name, counts in studies.items():
                value = float(bool(counts["stop_reason"])) if gauge == "stopped" else counts[gauge]
                if value is not None:
                    made.labels(name).set(value)
        return prometheus.generate_latest(self.registry) + prometheus.generate_latest(registry)


# --- Calls of the event loop to the store's writer


class WriterCalls:
    """Hands the requests of one turn of a loop to the writer together, and the answers of one commit to the loop. For
    one event loop: another one, later, begins anew.
    """

    def __init__(self, store: Store, *, seconds: float) -> None:
        self.store, self.seconds = store, seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._begin(None)

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop, self._holds, self._woken = loop, False, False
        self._answered: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()

    async def call(self, operation: Callable[..., Any]) -> Any:
        """The answer to an operation of a study, called with `wait=False`, after its commit.

        An operation that has not begun after `seconds`, or whose request has ended, is taken back.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        if not self._holds:
            self._holds = True
            self.store.hold()
            loop.call_soon(self._release)
        future: Future[Any] = operation(wait=False)
        waiter: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(lambda done: self._done(loop, waiter, done))
        timer = loop.call_later(self.seconds, _too_late, waiter)
        try:
            return await waiter
        except (asyncio.CancelledError, StoreUnavailable):
            future.cancel()
            raise
        finally:
            timer.cancel()

    def _release(self) -> None:
        self._holds = False
        self.store.release()

    def _done(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[Any], done: Future[Any]) -> None:
        """In the writer's thread: wake the loop, unless that was done and it has not come yet. A loop that was closed
        waits for nothing.
        """
        if loop is not self._loop:
            return
        self._answered.append((waiter, done))
        with self._lock:
            woken, self._woken = self._woken, True
        if not woken:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            self._woken = False
        while self._answered:
            waiter, done = self._answered.popleft()
            if waiter.done() or done.cancelled():
                continue
            error = done.exception()
            if error is None:
                waiter.set_result(done.result())
            else:
                waiter.set_exception(error)


def _too_late(waiter: asyncio.Future[Any]) -> None:
    if not waiter.done():
        waiter.set_exception(StoreUnavailable("storage: no answer in time"))


# --- What the routes of one worker share

AGAIN_SECONDS = 0.5
"""Seconds after which a store that does not answer at the start is tried again."""

ANSWER_SECONDS = 20.0
"""Seconds that a request waits for the store before it is answered that the store is unavailable."""

REST, LONGEST_REST = 2.0, 0.5
"""While other requests are being answered, readers of logs rest after each page, for so many times as long as it took,
and no longer than so many seconds.
"""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a worker."""

    body_seconds: float = BODY_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    waiting: int = 2_000
    rate: float = RATE
    burst: float = BURST


@dataclass(kw_only=True)
class Service:
    """The shared state of one worker. Every route has it."""

    store: Store
    access: Access
    limits: Limits
    metrics: Metrics = field(default_factory=Metrics)
    studies: dict[str, Study] = field(default_factory=dict)
    tracks: dict[str, Track] = field(default_factory=dict)
    drawn: dict[tuple[str, int], tuple[str, bytes]] = field(default_factory=dict)
    waiting: int = 0
    ready: bool = False
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)
    paging: asyncio.Lock = field(default_factory=asyncio.Lock)
    rests_until: float = 0.0
    writer: WriterCalls = field(init=False)

    def __post_init__(self) -> None:
        self.writer = WriterCalls(self.store, seconds=self.limits.answer_seconds)

    async def seen_by(self, caller: Caller) -> list[dict[str, Any]]:
        """The studies that the caller's key may see."""
        found = await asyncio.to_thread(list_studies, self.store)
        return [row for row in found if caller.study in ("", row["name"])]

    async def study(self, name: str) -> Study:
        """A study by its name; opened once."""
        found = self.studies.get(name)
        if found is None:
            if not NAME.fullmatch(name):
                raise Problem("unknown_study")
            found = await asyncio.to_thread(Study.open, name, storage=self.store, actor="service")
            self.studies[name] = found
        return found

    async def of_decision(self, decision_id: str) -> Study:
        """The study of a decision's id."""
        name = decision_id.partition(".")[0]
        try:
            return await self.study(name)
        except (StudyError, Problem) as error:
            if error.code == "unknown_study":
                raise Problem("unknown_decision") from None
            raise

    async def track(self, name: str, seconds: float = 1e9, *, fresh: bool = False) -> Track:
        """The study's current history, read from the log, never through the writer, for at most `seconds` seconds;
        with `fresh` it has every event that was acknowledged before the call.
        """
        track = self.tracks.get(name)
        if track is None:
            track = self.tracks.setdefault(name, Track(await self.study(name)))
        await asyncio.to_thread(track.refresh, seconds, fresh=fresh)
        return track

    async def page(self, make: Callable[[], Answer]) -> Answer:
        """A page of a log. All readers of logs together take no more than a share of the processor from decisions."""
        async with self.paging:
            if self.waiting > 1:
                await asyncio.sleep(self.rests_until - time.monotonic())
            started = time.monotonic()
            try:
                return await asyncio.to_thread(make)
            finally:
                ended = time.monotonic()
                self.rests_until = ended + min(REST * (ended - started), LONGEST_REST)

    async def warm(self) -> None:
        """Read the logs before the first request for them: first what decisions need, then what the page shows. The
        service is `ready` in between. A study whose log cannot be read does not keep the others waiting.
        """
        names = await self._names()
        for name in names:
            await _noted(name, asyncio.to_thread(self.store.prepare, name))
        self.ready = True
        for name in names:
            await _noted(name, self.track(name))

    async def _names(self) -> list[str]:
        while True:
            try:
                return [row["name"] for row in await asyncio.to_thread(list_studies, self.store)]
            except StudyError as error:
                log.warning("the studies could not be read at the start: %s", error.code)
                await asyncio.sleep(AGAIN_SECONDS)


async def _noted(name: str, reading: Awaitable[Any]) -> None:
    """Log an error, without raising it."""
    try:
        await reading
    except StudyError as error:
        log.warning("the log of %s could not be read at the start: %s", name, error.code)
