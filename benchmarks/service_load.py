"""`make bench-service`: decisions a second over HTTP, the page on a long log, and what the page costs a writer.

The server runs as users run it (`safedial serve`); the load comes from this process over raw sockets, and both share
the machine's cores. Contexts have 16 features; every commit of SQLite is synced (`synchronous=FULL`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import uvloop

from safedial.service.client import Client

SPEC = {
    "dim": 16,
    "threshold": 0.5,
    "total_risk": 0.02,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1,
    "context_bound": 1,
    "fallback_action": 0.0,
    "guard": {"max_open": 1_000_000},
}


TRUTH = np.full((16, 2), [0.2, 0.1])
"""Reward and cost coefficients, within the stated norms."""


class Wire(asyncio.Protocol):
    """One connection: a request out, its whole answer back."""

    def __init__(self) -> None:
        self.buffer, self.waiter = b"", None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0 or self.waiter is None:
            return
        at = self.buffer.find(b"content-length:", 0, end)
        size = int(self.buffer[at + 15 : self.buffer.find(b"\r\n", at)])
        if len(self.buffer) >= end + 4 + size:
            answer, self.buffer = self.buffer, b""
            waiter, self.waiter = self.waiter, None
            waiter.set_result((int(answer[9:12]), answer[end + 4 :]))

    def connection_lost(self, _: Exception | None) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(ConnectionError("the server closed the connection"))

    async def call(self, request: bytes) -> tuple[int, bytes]:
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.waiter


def post(path: str, content: bytes, key: str = "") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
    )
    head += f"\r\nAuthorization: Bearer {key}" if key else ""
    return head.encode() + b"\r\n\r\n" + content


def contexts(count: int, seed: int) -> list[list[float]]:
    drawn = np.random.default_rng(seed).standard_normal((count, 16))
    return (drawn / (np.linalg.norm(drawn, axis=1, keepdims=True) * 1.001)).tolist()


async def load(
    ports: list[int],
    study: str,
    *,
    seconds: float,
    connections: int,
    tell: bool,
    key: str = "",
    goes_on: Callable[[], bool] | None = None,
) -> dict[str, float]:
    """Ask (and tell) on every connection, one request after the other, for so many seconds, and as long as it
    `goes_on`.
    """
    loop = asyncio.get_running_loop()
    drawn = contexts(2000, 1)
    asks = [post(f"/v1/studies/{study}/decisions", json.dumps({"context": x}).encode(), key) for x in drawn]
    noise = np.random.default_rng(2).standard_normal((len(drawn), 2))
    units = (np.array(drawn) @ TRUTH + 0.2 * noise).tolist()
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def one(number: int) -> None:
        _, wire = await loop.create_connection(Wire, "127.0.0.1", ports[number % len(ports)])
        at = number
        while (started := time.perf_counter()) < end or (goes_on is not None and goes_on()):
            status, answer = await wire.call(asks[at % len(asks)])
            times.append(time.perf_counter() - started)
            if status != 201:
                raise SystemExit(f"the service answered {status}: {answer[:300]!r}")
            if tell:
                said = orjson.loads(answer)
                reward, cost = (said["intensity"] * unit for unit in units[at % len(asks)])
                content = orjson.dumps({"reward": reward, "cost": cost})
                status, answer = await wire.call(post(f"/v1/decisions/{said['id']}/outcome", content, key))
                if status != 201:
                    raise SystemExit(f"the service answered {status}: {answer[:300]!r}")
            at += connections
        wire.transport.close()

    started = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(connections)))
    passed = time.perf_counter() - started
    p50, p99 = np.percentile(np.array(times) * 1e3, [50, 99])
    return {"per_second": len(times) / passed, "p50_ms": float(p50), "p99_ms": float(p99), "decisions": len(times)}


@contextlib.contextmanager
def serving(storage: str, *, workers: int = 1) -> Iterator[int]:
    """`safedial serve` in a process of its own; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "safedial", "serve", "--storage", storage, "--port", port, "--workers", workers, "--rate", 1_000_000]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen([sys.executable, *map(str, words)], env=one_thread, stderr=subprocess.DEVNULL)  # noqa: S603 -- fixed words
    try:
        client = Client(f"http://127.0.0.1:{port}", retries=60, pause=0.05, timeout=10)
        client._send("GET", "/readyz")
        yield port
    finally:
        server.terminate()
        server.wait()


def memory_mb(process: psutil.Process) -> float:
    """A process's own memory, without the pages of the store's file that SQLite maps: the machine may drop those."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return process.memory_info().rss / 2**20
    (line,) = (each for each in status.read_text().splitlines() if each.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def report(label: str, row: dict[str, float]) -> None:
    print(f"  {label:44} {row['per_second']:>8,.0f} {row['p50_ms']:>9.1f} {row['p99_ms']:>9.1f}", flush=True)


def decisions(storage: str, label: str, *, seconds: float, workers: int = 1) -> None:
    with serving(storage, workers=workers) as port:
        client = Client(f"http://127.0.0.1:{port}", timeout=30)
        client.create_study("load", SPEC)
        uvloop.run(load([port], "load", seconds=1.0, connections=16, tell=True))
        for words, tell in (("each followed by its outcome", True), ("asking alone", False)):
            row = uvloop.run(load([port], "load", seconds=seconds, connections=16, tell=tell))
            report(f"{label}, {words}", row)
        state = client.study("load")
        if state["stop_reason"]:
            raise SystemExit(f"the study stopped: {state['stop_reason']}")
        client.close()


def postgres() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.study.postgres import Server

    return Server(durable=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    options = parser.parse_args()
    print("\nDecisions over HTTP, d = 16, 16 connections, load generator included")
    print(f"  {'':44} {'per s':>8} {'p50 ms':>9} {'p99 ms':>9}")
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "postgresql":
            decisions(f"sqlite:///{folder}/load.db", "SQLite FULL", seconds=options.seconds)
    if options.only != "sqlite":
        server = postgres()
        try:
            decisions(server.url(), "PostgreSQL, two workers", seconds=options.seconds, workers=2)
        finally:
            server.stop()
