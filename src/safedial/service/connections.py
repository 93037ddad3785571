"""Connections: how many a process has, whose they are, how long headers may take, how much may wait to be read.

A connection belongs to the key of its latest request, and to strangers before a valid one. One connection too many
closes the one whose latest request lies furthest back: of the strangers while they have more than a tenth of all,
otherwise of the key that has most. So whoever opens thousands closes their own, whether they say nothing, send wrong
keys, or have a key and send slow bodies, and whoever asks and tells keeps theirs.
"""

from __future__ import annotations

import sys
from asyncio import TimerHandle, Transport
from typing import Any, ClassVar

from starlette.requests import Request

from safedial.errors import import_extra
from safedial.service.problem import LARGEST_HEADERS

HEADER_SECONDS = 10.0
MOST_CONNECTIONS = 1_000
MOST_UNREAD = 64 * 2**20
"""Bytes of all answers together that their callers have not read yet."""

STRANGERS = ""
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"

Base: Any = import_extra("uvicorn.protocols.http.auto", "service").AutoHTTPProtocol


def most_connections() -> int:
    """The most connections of a process: half of the files that it may open, because the store needs some too."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    return min(MOST_CONNECTIONS, max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 16))


class LimitedProtocol(Base):
    """A connection. `shares` has those of this process by their owners, the one that was used last at the end; `unread`
    those whose answers wait to be read, the longest waiting first.
    """

    most = most_connections()
    most_unread = MOST_UNREAD
    seconds = HEADER_SECONDS
    shares: ClassVar[dict[str, dict[Any, None]]] = {STRANGERS: {}}
    unread: ClassVar[dict[Any, None]] = {}
    owner: str | None = None
    timer: TimerHandle | None = None
    begun = False
    size = 0

    # --- Whose it is

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self.belong(STRANGERS)
        self.begin_headers()
        if len(self.connections) > self.most:
            strangers = self.shares[STRANGERS]
            largest = strangers if len(strangers) > self.most // 10 else max(self.shares.values(), key=len)
            next(iter(largest)).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)

    def belong(self, owner: str) -> None:
        """From now on it is this owner's, and the one used last."""
        if self.owner is not None:
            del self.shares[self.owner][self]
            if self.owner != STRANGERS and not self.shares[self.owner]:
                del self.shares[self.owner]
        self.owner = owner
        self.shares.setdefault(owner, {})[self] = None

    def leave(self) -> None:
        """It is nobody's any more."""
        self.end_headers()
        self.unread.pop(self, None)
        if self.owner is not None:
            self.belong(STRANGERS)
            del self.shares[STRANGERS][self]
            self.owner = None

    def abort(self) -> None:
        self.leave()
        self.transport.abort()

    # --- Headers

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.begun and self.timer is None:
            self.begin_headers()
        if self.timer is not None:
            self.size += len(data)
            if self.size > LARGEST_HEADERS:
                self.refuse(TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.begun = True
        self.scope["state"]["connection"] = self

    def on_headers_complete(self) -> None:
        self.end_headers()
        super().on_headers_complete()

    def begin_headers(self) -> None:
        """Wait for a request's headers."""
        self.size, self.timer = 0, self.loop.call_later(self.seconds, self.refuse, TOO_SLOW)

    def end_headers(self) -> None:
        """The headers are complete, or the connection ends."""
        self.begun = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def refuse(self, answer: bytes) -> None:
        """Answer and close; what else arrives is not read. An answer that is still to come is sent instead."""
        self.end_headers()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
            self.flow.pause_reading()
        else:
            self.transport.write(answer)
            self.transport.close()

    # --- Answers that nobody reads

    def pause_writing(self) -> None:
        super().pause_writing()
        self.unread[self] = None
        held = {each: each.transport.get_write_buffer_size() for each in self.unread}
        total = sum(held.values())
        for each, size in held.items():
            if total > self.most_unread:
                total -= size
                each.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread.pop(self, None)


def belongs_to(request: Request, owner: str) -> None:
    """Count a request's connection as its owner's."""
    connection = request.scope.get("state", {}).get("connection")
    if connection is not None and connection.owner is not None:
        connection.belong(owner)


PROTOCOL: Any = LimitedProtocol if hasattr(Base, "on_headers_complete") else "auto"
"""What servers use; without httptools (on Windows) uvicorn's own, which limits headers but not connections."""
