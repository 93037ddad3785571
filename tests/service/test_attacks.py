"""Callers without a key cannot hold the service down: silent connections, endless headers, thousands of wrong keys.

`make soak` measures the same at full size, with the times of those who ask meanwhile.
"""

import asyncio
import contextlib
import http.client
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request

from safedial.service import access
from safedial.service.app_state import WriterCalls
from safedial.service.connections import LimitedProtocol
from safedial.service.problem import LARGEST_HEADERS
from safedial.service.server import running
from safedial.study.database import sa
from safedial.study.keys import create_key, hash_key
from safedial.study.study import Study
from tests.service.conftest import Caller
from tests.study.conftest import SPEC


@pytest.fixture
def guarded(store):
    """A service whose requests need a key, and one who has a key to ask."""
    Study.create("trial", SPEC, storage=store)
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
        assert sum(map(len, LimitedProtocol.shares.values())) <= 21


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
        found = await checks._key(Request({"type": "http"}, asyncio.Event().wait), name)
        return found, time.monotonic() - started

    async def play():
        return [await timed(hash_key(each)) for each in (text, "first", "second", text)]

    right, first, second, again = asyncio.run(play())
    assert [each[0] for each in (right, first, second, again)] == [made, None, None, made]
    assert second[1] >= 0.1
    assert again[1] < 0.1, "a key in memory is found without the store"


# --- Callers with wrong keys, or with keys that may do less, take all connections


def talk(caller, words, *, receive=0):
    """A connection that has sent these words, with little room for an answer where `receive` says so."""
    host, _, port = caller.url.removeprefix("http://").partition(":")
    made = socket.socket()
    if receive:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    made.settimeout(10)
    made.connect((host, int(port)))
    made.sendall(words)
    return made


def head(method, path, key, more=b""):
    return b"%b %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n%b\r\n" % (method, path, key.encode(), more)


def keyed(store, role):
    return create_key(store, role, reason="test", actor="tester")[0]


SLOW = b"Content-Type: application/json\r\nContent-Length: 20\r\n"


@pytest.mark.parametrize("kind", ["wrong keys", "slow bodies", "unread pages", "wrong keys again and again"])
def test_whoever_may_not_decide_cannot_take_the_connections_of_those_who_may(guarded, store, kind, monkeypatch):
    monkeypatch.setattr(LimitedProtocol, "most", 20)
    monkeypatch.setattr(access, "WRONG_BURST", 0.0)
    observe, read = keyed(store, "observe"), keyed(store, "read")
    words = {
        "wrong keys": head(b"GET", b"/v1/studies", "sd_0_wrong"),
        "wrong keys again and again": head(b"GET", b"/v1/studies", "sd_0_wrong") * 20,
        "slow bodies": head(b"POST", b"/v1/decisions/trial.2/outcome", observe, SLOW),
        "unread pages": head(b"GET", b"/v1/studies/trial/events", read) * 20,
    }[kind]
    with contextlib.ExitStack() as stack:
        answers = []
        for _ in range(30):
            stack.enter_context(talk(guarded, words))
        for _ in range(30):
            stack.enter_context(talk(guarded, words))
            answers.append(answer_of(guarded))
    assert answers == [201] * 30


def answer_of(caller):
    try:
        return caller.ask("trial", [0.1, 0.1]).status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__


def test_strangers_and_keys_of_others_leave_a_connection_that_is_kept_open_alone(guarded, store, monkeypatch):
    monkeypatch.setattr(LimitedProtocol, "most", 20)
    read, whole = keyed(store, "read"), head(b"GET", b"/v1/studies/trial", guarded.key)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(talk(guarded, whole))
        assert kept.recv(100_000).startswith(b"HTTP/1.1 200 ")
        for number in range(60):
            words = b"" if number % 2 else head(b"GET", b"/v1/studies/trial", read)
            stack.enter_context(talk(guarded, words))
        time.sleep(0.2)
        kept.sendall(whole)
        assert kept.recv(100_000).startswith(b"HTTP/1.1 200 ")


def test_callers_without_a_key_wait_for_their_refusals_longer_the_more_they_are(store, monkeypatch):
    monkeypatch.setattr(access, "WRONG_BURST", 0.0)
    monkeypatch.setattr(access, "WRONG_REFUSED", 10.0)
    keyed(store, "read")
    with running(store) as url, ThreadPoolExecutor(20) as pool:
        started = time.monotonic()
        answers = list(pool.map(lambda _: Caller(url).get("/v1/studies").status, range(20)))
    assert answers == [401] * 20
    assert time.monotonic() - started > 1.0, "20 at once, 10 a second"


def test_answers_that_nobody_reads_hold_no_more_memory_than_is_allowed(guarded, store, monkeypatch):
    made = LimitedProtocol.connection_made

    def narrow(self, transport):  # so that what is not read stays in the process, and not in the system's buffers
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made(self, transport)

    monkeypatch.setattr(LimitedProtocol, "connection_made", narrow)
    monkeypatch.setattr(LimitedProtocol, "most_unread", 2_000_000)
    study = Study.create("trial", storage=store, load_if_exists=True)
    for _ in range(100):
        study.ask([0.1, 0.1])
    page = head(b"GET", b"/v1/studies/trial/events", keyed(store, "read"))
    whole = len(Caller(guarded.url, guarded.key).get("/v1/studies/trial/events").content)
    with contextlib.ExitStack() as stack:
        unread = [stack.enter_context(talk(guarded, page, receive=4096)) for _ in range(40)]
        most, until = 2_000_000 // whole + 2, time.monotonic() + 30
        while not (LimitedProtocol.unread and still_open(unread) <= most) and time.monotonic() < until:
            time.sleep(0.1)
        assert still_open(unread) <= most, "the longest unread are closed"
        assert guarded.ask("trial", [0.1, 0.1]).status == 201
        assert len(Caller(guarded.url, guarded.key).get("/v1/studies/trial/events").content) > whole


def still_open(connections):
    """How many of these the service has not closed: their ports are among those of its connections."""
    ports = {each.client[1] for share in LimitedProtocol.shares.values() for each in share}
    return sum(each.getsockname()[1] in ports for each in connections)


# --- Headers


def test_headers_that_are_too_large_are_431_in_however_many_parts_they_come(guarded):
    for size in (70_000, 120_000):
        answer = guarded.get("/healthz", X_Long="a" * size)
        assert (answer.status, answer.headers["connection"]) == (431, "close"), size


def test_two_host_headers_are_refused(guarded):
    with talk(guarded, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n") as twice:
        assert twice.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_an_answer_that_was_committed_is_sent_although_another_request_has_begun(guarded, monkeypatch):
    """The writer answers after longer than a request's headers may take."""
    monkeypatch.setattr(LimitedProtocol, "seconds", 0.2)
    call = WriterCalls.call

    async def slow(self, operation):
        made = await call(self, operation)
        await asyncio.sleep(0.6)
        return made

    monkeypatch.setattr(WriterCalls, "call", slow)
    body = b'{"context": [0.1, 0.1]}'
    more = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    words = head(b"POST", b"/v1/studies/trial/decisions", guarded.key, more) + body + b"GET /healthz HTTP/1.1\r\nHo"
    with talk(guarded, words) as pipelined:
        assert pipelined.recv(100_000).startswith(b"HTTP/1.1 201 ")
