"""Limits on connections, before any key is read: how many there are, how long a request's headers may take and be.

If there are too many connections, the one that has been without a complete request for longest is closed. So a caller
who opens thousands and says nothing closes its own, and whoever asks and tells keeps theirs.
"""

from __future__ import annotations

import sys
from asyncio import TimerHandle, Transport
from typing import Any, ClassVar

from safedial.errors import import_extra

HEADER_SECONDS = 10.0
LARGEST_HEADERS = 64 * 1024
MOST_CONNECTIONS = 1_000

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
    """A connection. `idle` has those of this process without a complete request, the longest waiting first."""

    most = most_connections()
    seconds = HEADER_SECONDS
    idle: ClassVar[dict[Any, None]] = {}
    timer: TimerHandle | None = None
    begun = False
    size = 0

    def connection_made(self, transport: Transport) -> None:
        super().connection_made(transport)
        self.begin_headers()
        if len(self.connections) > self.most:
            longest = next(iter(self.idle))
            longest.end_headers()
            longest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_headers()
        super().connection_lost(exc)

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

    def on_headers_complete(self) -> None:
        self.end_headers()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timer is None and not self.transport.is_closing():
            self.idle[self] = None

    def begin_headers(self) -> None:
        """Wait for a request's headers."""
        self.idle.setdefault(self)
        self.size, self.timer = 0, self.loop.call_later(self.seconds, self.refuse, TOO_SLOW)

    def end_headers(self) -> None:
        """The headers are complete, or the connection ends."""
        self.begun = False
        self.idle.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def refuse(self, answer: bytes) -> None:
        """Answer and close; what else arrives is not read."""
        self.end_headers()
        self.transport.write(answer)
        self.transport.close()


PROTOCOL: Any = LimitedProtocol if hasattr(Base, "on_headers_complete") else "auto"
"""What servers use; without httptools (on Windows) uvicorn's own, which limits headers but not connections."""
