"""Runs the app: uvicorn with one or several workers, or in a thread for tests and the demo."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from safedial.errors import InvalidInput, import_extra, require
from safedial.service.access import is_loopback, refuse_open_address
from safedial.service.app import make_app
from safedial.service.app_state import Limits
from safedial.service.connections import PROTOCOL
from safedial.study.database import lacks_file
from safedial.study.store import Store

uvicorn = import_extra("uvicorn", "service")

SWITCH_SECONDS = 5e-4
"""How long a thread that reads may keep the interpreter while others wait; Python's own 5 ms would add up to that to
every step of a decision."""

COLLECT_OBJECTS = 20_000
"""New objects after which Python looks for cycles among them; its own 700 would look several times for each batch."""

MMAP_THRESHOLD, LARGE = -3, 1 << 20
"""glibc's number of a setting: from which size on freed memory goes back to the system. glibc raises it to the size of
the snapshots that a long study writes, and then keeps several times as much as one of them.
"""

ROOM = 256 * 2**20
"""Bytes that must be free at the start. OpenBLAS takes 32 MB for each thread when it first multiplies. Where it gets
none it tries again for ever, and holds the interpreter meanwhile: nothing is answered or logged any more.
"""

STORAGE = "SAFEDIAL_STORAGE"
HOST = "SAFEDIAL_HOST"
RATE = "SAFEDIAL_RATE"

QUIET: dict[str, Any] = {
    "access_log": False,
    "log_level": "warning",
    "server_header": False,
    "proxy_headers": False,
    "timeout_keep_alive": 30,
    "http": PROTOCOL,
}
"""The settings of every server: without an access log, so that no address or id is written anywhere."""


def serve(
    storage: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    rate: float | None = None,
    announce: Callable[[bool], None] = lambda new: None,
) -> None:
    """Serve a store until interrupted. An address that other machines can reach needs a key first. `announce` is called
    before the service starts, with whether the store is a new file.
    """
    require(1 <= workers <= 64, "workers", workers, "must lie between 1 and 64")
    require(0 <= port <= 65535, "port", port, "must lie between 0 and 65535")
    check_memory()
    new = lacks_file(storage)
    with Store(storage) as store:
        refuse_open_address(store, host)
    os.environ.update({STORAGE: storage, HOST: host} | ({} if rate is None else {RATE: repr(rate)}))
    announce(new)
    options = {"factory": True, "lifespan": "on", "timeout_graceful_shutdown": 10, **QUIET}
    uvicorn.run("safedial.service.server:worker", host=host, port=port, workers=workers, **options)


def check_memory() -> None:
    """Refuse to start where the process may not have enough memory."""
    try:
        mmap.mmap(-1, ROOM).close()
    except (OSError, MemoryError):
        words = f"memory: less than {ROOM >> 20} MiB are free for this process; raise its limit (ulimit -v)"
        raise InvalidInput(words) from None


def worker() -> Any:
    """The app of one worker process; the store's URL comes from the environment."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECT_OBJECTS)
    with contextlib.suppress(AttributeError, OSError, TypeError):  # other C libraries have no such setting
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE)
    store = Store(os.environ[STORAGE])
    rate = os.environ.get(RATE)
    limits = Limits() if rate is None else Limits(rate=float(rate), burst=2 * float(rate))
    app = make_app(store, allow_keyless=is_loopback(os.environ.get(HOST, "")), limits=limits, own=True)
    gc.freeze()  # what a worker starts with stays: to look through it for cycles takes longer than many decisions
    return app


@contextlib.contextmanager
def running(
    store: Store, *, app: Any = None, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None
) -> Iterator[str]:
    """Run a server in a thread of this process; yields its address when it is ready. The store stays open."""
    made = make_app(store, allow_keyless=is_loopback(host), limits=limits) if app is None else app
    config = uvicorn.Config(made, host=host, port=port, timeout_graceful_shutdown=2, **QUIET)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="safedial-server", daemon=True)
    thread.start()
    try:
        while not (server.started and made.service.ready):
            require(thread.is_alive(), "port", port, "is not free", "choose another, or 0 for any")
            time.sleep(0.01)
        real = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://{host}:{real}"
    finally:
        server.should_exit = True
        thread.join(10)
