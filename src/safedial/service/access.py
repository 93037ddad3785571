"""Access control: keys and roles, a token bucket for each key, and access without a key on loopback until one exists.

| role | may |
|---|---|
| `read` | see studies, decisions, events, the page, the metrics |
| `observe` | also report and correct outcomes, and declare rounds void |
| `decide` | also ask for decisions |
| `admin` | also create and resume studies |
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from starlette.requests import Request

from safedial.service.connections import belongs_to
from safedial.service.problem import Problem, read_headers
from safedial.study.keys import ROLES, Key, hash_key, list_keys, live_keys
from safedial.study.store import Store
from safedial.study.study_errors import StudyError

FRESH_SECONDS = 1.0
"""Seconds for which the keys are held in memory; a revoked key is refused after that."""

WRONG_RATE, WRONG_BURST, WRONG_SECONDS = 10.0, 50.0, 0.5
"""How many requests per second without a valid key, of all callers, are refused at once, unknown keys after they were
looked for in the store. For further ones keys are compared with those in memory, and they are refused after a pause.
"""

WRONG_REFUSED = 200.0
"""How many refusals per second there are at most: the more wait for theirs, the longer each of them waits."""

RATE, BURST = 2_000.0, 4_000.0
"""Requests per second for each key, and how many may come at once."""

MOST_KEYS = 10_000


class Caller(NamedTuple):
    """Who sent the request; the log records `actor`."""

    actor: str
    role: str
    study: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Bucket:
    """A token bucket: `rate` tokens per second, at most `burst` of them.

    >>> bucket = Bucket(rate=1.0, burst=2.0, now=0.0)
    >>> [bucket.take(at) for at in (0.0, 0.0, 0.0, 1.0)]
    [True, True, False, True]
    """

    __slots__ = ("at", "burst", "rate", "tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst, self.tokens, self.at = rate, burst, burst, now

    def take(self, now: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class Access:
    """Checks each request. With `allow_keyless`, no key is needed while the store has none (loopback only)."""

    def __init__(self, store: Store, *, allow_keyless: bool, rate: float = RATE, burst: float = BURST) -> None:
        self.store, self.allow_keyless, self.rate, self.burst = store, allow_keyless, rate, burst
        self._keys: dict[bytes, Key] = {}
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._wrong = Bucket(WRONG_RATE, WRONG_BURST, time.monotonic())
        self._buckets: dict[str, Bucket] = {}
        self._paused = 0
        self._open_until = 0.0

    async def admit(self, request: Request, role: str, study: str | None = None) -> Caller:
        """The caller, if its key has at least the rights of `role` in this study and is within its rate."""
        caller = await self._caller(request)
        if caller is None:
            raise Problem("unauthenticated")
        belongs_to(request, caller.actor)
        # Before the role is checked, so that refused requests count towards the rate as well.
        bucket = self._buckets.get(caller.actor)
        now = time.monotonic()
        if bucket is None:
            if len(self._buckets) >= MOST_KEYS:
                self._buckets.clear()
            bucket = self._buckets[caller.actor] = Bucket(self.rate, self.burst, now)
        if not bucket.take(now):
            raise Problem("too_many_requests")
        if not caller.may(role) or (study is not None and caller.study not in ("", study)):
            raise Problem("forbidden", f"this needs the role {role} for this study")
        return caller

    async def _caller(self, request: Request) -> Caller | None:
        """Who sends the request; None without a valid key."""
        words = read_headers(request).get(b"authorization")
        if words is None and self.allow_keyless and _from_here(request) and await self._no_keys():
            return Caller("local", "admin", "")
        scheme, _, text = (words or b"").decode("latin-1").partition(" ")
        known = scheme.lower() == "bearer" and text.strip()
        key = await self._key(request, hash_key(text.strip()) if known else b"")
        return None if key is None else Caller(f"key:{key.id}", key.role, key.study)

    async def _key(self, request: Request, name: bytes) -> Key | None:
        """The live key with this hash; b"" is none. An unknown key may be a new one, so the store is asked; but not for
        each of thousands.
        """
        now = time.monotonic()
        stale = now - self._read_at >= FRESH_SECONDS
        key = await self._looked_for(name, now) if stale and name else self._keys.get(name)
        if key is None and not self._wrong.take(now):
            await self._pause(request)
        elif key is None and name and not stale:
            key = await self._looked_for(name, now)
        return key

    async def _looked_for(self, name: bytes, now: float) -> Key | None:
        """The live key with this hash, as the store has it. Keys are held by their hashes: no key stays in memory."""
        async with self._reading:
            if self._read_at < now:
                started = time.monotonic()
                self._keys = await asyncio.to_thread(live_keys, self.store)
                self._read_at = started
        return self._keys.get(name)

    async def _pause(self, request: Request) -> None:
        """Wait before a refusal, unless the caller is gone."""
        self._paused += 1
        with suppress(TimeoutError):
            try:
                async with asyncio.timeout(max(WRONG_SECONDS, self._paused / WRONG_REFUSED)):
                    while (await request.receive())["type"] != "http.disconnect":
                        pass
            finally:
                self._paused -= 1

    async def _no_keys(self) -> bool:
        """Whether no key was ever created: once there is one, every request needs a key, even if it is revoked."""
        now = time.monotonic()
        if now > self._open_until:
            if await asyncio.to_thread(list_keys, self.store):
                self.allow_keyless = False
                return False
            self._open_until = now + FRESH_SECONDS
        return True


@lru_cache(1000)
def is_loopback(host: str) -> bool:
    """Whether a server on this address can be reached only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


FORWARDED = frozenset((b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"))


def _from_here(request: Request) -> bool:
    """Whether a request claims to come from this machine: not through a proxy, and with a local Host header.

    A proxy that does not announce itself cannot be detected, so a service behind one needs a key.
    """
    headers, client = read_headers(request), request.scope.get("client")
    here = client is not None and is_loopback(client[0])
    return here and _is_local(headers.get(b"host", b"").decode("latin-1")) and FORWARDED.isdisjoint(headers)


@lru_cache(100)
def _is_local(host: str) -> bool:
    """Whether the Host header names this machine. It does not if another site points its own name here.

    >>> [_is_local(host) for host in ("127.0.0.1:8000", "[::1]:80", "localhost", "evil.example:8000", "")]
    [True, True, True, False, False]
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def refuse_open_address(store: Store, host: str) -> None:
    """Refuse any address but loopback while the store has no key."""
    if not is_loopback(host) and not any(key.revoked is None for key in list_keys(store)):
        words = "can be reached from other machines, so it needs keys; safedial key create --role admin makes one"
        raise StudyError("invalid_input", f"host = {host!r}: {words}")
