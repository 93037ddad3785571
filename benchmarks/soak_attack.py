"""Part of `make soak`: callers without a key try to hold the service down while others ask and tell."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import socket
import tempfile
import threading
import time
from typing import Any

import psutil
import uvloop

from benchmarks.service_load import SPEC, load, memory_mb, serving
from safedial.study.keys import create_key
from safedial.study.store import Store
from safedial.study.study import Study

HALF_OPEN, HEADER_BYTES, CALLERS = 1_100, 64 * 2**20, 200


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The deciders' times alone, and during each attack, with the service's memory."""
    seconds = options.attack_seconds
    print(f"Attacks: {seconds:g} s each, and alone", flush=True)
    with tempfile.TemporaryDirectory(prefix="safedial-soak-") as folder:
        storage = f"sqlite:///{folder}/attacked.db"
        with Store(storage) as store:
            Study.create("load", SPEC, storage=store)
            key, _ = create_key(store, "decide", reason="soak", actor="soak")
        with serving(storage) as port:
            server = next(each for each in psutil.Process().children() if "serve" in each.cmdline())
            _measured(port, key, 2.0, server, None, 0)
            alone = _measured(port, key, seconds, server, None, 0)
            found = {"alone": alone}
            _print("alone", alone, alone)
            for name, attack, many in (
                ("half_open", half_open, HALF_OPEN),
                ("headers", headers, HEADER_BYTES),
                ("wrong_keys", wrong_keys, options.wrong_keys),
            ):
                found[name] = _measured(port, key, seconds, server, attack, many)
                found[name]["p99_over_alone"] = found[name]["p99_ms"] / alone["p99_ms"]
                _print(name, found[name], alone)
            found["alone_afterwards"] = _measured(port, key, seconds, server, None, 0)
            _print("alone afterwards", found["alone_afterwards"], alone)
    return found


def _print(name: str, row: dict[str, float], alone: dict[str, float]) -> None:
    share, done = row["p99_ms"] / alone["p99_ms"], f", {row['done']:,.0f} attempts" if "done" in row else ""
    print(
        f"  {name:18} {row['per_second']:>7,.0f}/s, p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms "
        f"({share:.2f} of alone), memory at most {row['memory_mb']:.0f} MB{done}",
        flush=True,
    )


def _measured(port: int, key: str, seconds: float, server: psutil.Process, attack: Any, many: int) -> dict[str, float]:
    """The deciders' load, with an attack from a process of its own, until all wrong keys were tried."""
    memory, over = [memory_mb(server)], threading.Event()
    watching = threading.Thread(target=_watch, args=(server, memory, over))
    watching.start()
    done = multiprocessing.get_context("spawn").Value("q", 0)
    attacker = None
    if attack is not None:
        attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(port, many, done), daemon=True)
        attacker.start()
        until = time.monotonic() + 30
        while not done.value and time.monotonic() < until:
            time.sleep(0.05)

    def goes_on() -> bool:
        return attack is wrong_keys and attacker is not None and attacker.is_alive() and done.value < many

    try:
        row = uvloop.run(load([port], "load", seconds=seconds, connections=16, tell=True, key=key, goes_on=goes_on))
    finally:
        over.set()
        watching.join()
        if attacker is not None:
            attacker.kill()
            attacker.join()
    more = {} if attack is None else {"done": float(done.value)}
    return row | more | {"memory_mb": max(memory)}


def _watch(server: psutil.Process, memory: list[float], over: threading.Event) -> None:
    while not over.wait(0.1):
        memory.append(memory_mb(server))


def half_open(port: int, many: int, done: Any) -> None:
    """So many connections that begin a request and never end it; those that are closed are opened again."""
    held: list[socket.socket] = []
    while True:
        while len(held) < many:
            with contextlib.suppress(OSError):
                made = socket.create_connection(("127.0.0.1", port), timeout=5)
                made.sendall(b"POST /v1/studies HTTP/1.1\r\nHost:")
                made.setblocking(False)
                held.append(made)
        done.value = max(done.value, len(held))
        time.sleep(0.5)
        held = [each for each in held if _is_open(each)]


def _is_open(connection: socket.socket) -> bool:
    try:
        connection.recv(100)
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


def headers(port: int, many: int, done: Any) -> None:
    """Headers without an end, `many` bytes on each connection, or as many as are taken."""
    line = b"X-Filler: " + b"a" * 8000 + b"\r\n"
    while True:
        sent = 0
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as made:
            made.sendall(b"GET /healthz HTTP/1.1\r\n")
            while sent < many:
                made.sendall(line)
                sent += len(line)
        done.value += 1


def wrong_keys(port: int, many: int, done: Any) -> None:
    """`many` wrong keys from 200 connections, each as soon as the one before it is answered."""
    asyncio.run(_wrong_keys(port, many, done))


async def _wrong_keys(port: int, many: int, done: Any) -> None:
    numbers = itertools.count()

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            if number >= many:
                return
            key = f"Authorization: Bearer sd_0_{number}\r\n".encode()
            writer.write(b"GET /v1/studies HTTP/1.1\r\nHost: 127.0.0.1\r\n" + key + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            at = head.lower().index(b"content-length:")
            await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
            done.value += 1

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
