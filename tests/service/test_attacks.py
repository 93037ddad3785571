"""Callers without a key cannot hold the service down: silent connections, endless headers, thousands of wrong keys.

`make soak` measures the same at full size, with the times of those who ask meanwhile.
"""

import asyncio
import contextlib
import socket
import time

import pytest

from safedial.service import access
from safedial.service.server import LARGEST_HEADERS, LimitedProtocol, running
from safedial.study.database import sa
from safedial.study.keys import create_key, hash_key
from safedial.study.manage import create_study
from tests.service.conftest import Caller
from tests.study.conftest import SPEC


@pytest.fixture
def guarded(store):
    """A service whose requests need a key, and one who has a key to ask."""
    create_study("trial", SPEC, storage=store)
    text, _ = create_key(store, "decide", reason="test", actor="tester")
    with running(store) as url:
        yield Caller(url, text)


def connect(caller, words=b"GET /healthz HTTP/1.1\r\nHost:"):
    host, _, port = caller.url.removeprefix("http://").partition(":")
    made = socket.create_connection((host, int(port)), timeout=10)
    made.sendall(words)
    return made


def is_closed(connection):
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


def test_silent_connections_close_each_other_and_not_those_who_ask(guarded, monkeypatch):
    monkeypatch.setattr(LimitedProtocol, "most", 20)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(guarded)) for _ in range(30)]
        answers = []
        for number in range(30):
            silent.append(stack.enter_context(connect(guarded, b"" if number % 2 else b"POST /v1")))
            answers.append(guarded.ask("trial", [0.1, 0.1]).status)
        assert answers == [201] * 30
        assert all(is_closed(each) for each in silent[:30])
        assert len(LimitedProtocol.idle) <= 20


def test_headers_that_take_too_long_are_408_and_closed(guarded, monkeypatch):
    monkeypatch.setattr(LimitedProtocol, "seconds", 0.1)
    with connect(guarded) as slow:
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert is_closed(slow)
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with connect(guarded, whole) as kept:
        assert kept.recv(1000).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.2)
        kept.sendall(whole)
        assert kept.recv(1000).startswith(b"HTTP/1.1 200 "), "an idle connection may wait for longer"
        kept.sendall(whole[:20])
        assert kept.recv(1000).startswith(b"HTTP/1.1 408 "), "the second request's headers may not"


def test_endless_headers_are_refused_before_they_fill_the_memory(guarded):
    sent = 0
    with connect(guarded, b"GET /healthz HTTP/1.1\r\n") as endless:
        endless.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while sent < 64 * 1024 * 1024:
                sent += endless.send(b"X-Filler: " + b"a" * 4000 + b"\r\n")
    assert LARGEST_HEADERS < sent < 16 * 1024 * 1024, "what the sockets' own buffers hold is all that is taken"
    assert guarded.ask("trial", [0.1, 0.1]).status == 201


def test_headers_may_be_as_long_as_the_limit_and_bodies_longer(guarded):
    assert guarded.get("/healthz", X_Long="a" * (LARGEST_HEADERS // 2)).status == 200
    body = {"context": [0.1, 0.1], "meta": {"note": "b" * 100_000}}
    assert guarded.post("/v1/studies/trial/decisions", body).code == "invalid_input"


def test_wrong_keys_are_refused_without_asking_the_store_for_each(guarded, store, monkeypatch):
    monkeypatch.setattr(access, "WRONG_SECONDS", 0.0)
    looked = []
    listen = sa.event.listens_for(store.engine, "before_cursor_execute")
    listen(lambda *words: looked.append(words[2]) if "FROM keys" in words[2] else None)
    started = time.monotonic()
    for number in range(150):
        assert Caller(guarded.url, f"sd_0_wrong{number}").get("/v1/studies").status == 401
    most = access.WRONG_BURST + (access.WRONG_RATE + 1.0) * (time.monotonic() - started) + 2.0
    assert len(looked) <= most < 150
    assert guarded.ask("trial", [0.1, 0.1]).status == 201


def test_too_many_wrong_keys_wait_for_their_refusal_and_a_right_one_does_not(store, monkeypatch):
    monkeypatch.setattr(access, "FRESH_SECONDS", 1e9)
    monkeypatch.setattr(access, "WRONG_RATE", 0.0)
    monkeypatch.setattr(access, "WRONG_BURST", 1.0)
    monkeypatch.setattr(access, "WRONG_SECONDS", 0.1)
    text, made = create_key(store, "decide", reason="test", actor="tester")
    checks = access.Access(store, allow_keyless=False)

    async def timed(name):
        started = time.monotonic()
        found = await checks._key(name)
        return found, time.monotonic() - started

    async def play():
        return [await timed(hash_key(each)) for each in (text, "first", "second", text)]

    right, first, second, again = asyncio.run(play())
    assert [each[0] for each in (right, first, second, again)] == [made, None, None, made]
    assert second[1] >= 0.1
    assert again[1] < 0.1, "a key in memory is found without the store"
