"""What the routes of one worker share: the open store, its studies, access control, metrics and tracks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from safedial.service.access import BURST, RATE, Access
from safedial.service.metrics import Metrics
from safedial.service.problem import Problem, log
from safedial.service.request_body import BODY_SECONDS
from safedial.service.timeline import Track
from safedial.service.writer_calls import WriterCalls
from safedial.study import Store, Study, StudyError, list_studies, open_study
from safedial.study.ids import NAME

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
    """The shared state of one worker. The routes find it as `request.app.state.service`."""

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

    async def study(self, name: str) -> Study:
        """A study by its name; opened once."""
        found = self.studies.get(name)
        if found is None:
            if not NAME.fullmatch(name):
                raise Problem("unknown_study")
            found = await asyncio.to_thread(open_study, name, storage=self.store, actor="service")
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
