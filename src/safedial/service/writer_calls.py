"""Calls of the event loop to the store's writer: one wake-up of either thread serves many requests.

The two threads share one interpreter. If every request woke the writer and every answer woke the loop, they would take
the interpreter from each other several times for each decision.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from safedial.study import Store, StoreUnavailable


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
