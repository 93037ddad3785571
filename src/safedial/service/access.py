"""Who may do what: keys and roles, a token bucket for each key, and the open door on loopback while no key exists.

| role | may |
|---|---|
| `read` | see studies, decisions, events, the page, the metrics |
| `observe` | also report outcomes, correct them, make rounds void |
| `decide` | also ask for decisions |
| `admin` | also create and resume studies |
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from functools import lru_cache
from typing import NamedTuple

from starlette.requests import Request

from safedial.service.problem import Problem
from safedial.study.errors import StudyError
from safedial.study.keys import ROLES, Key, find_key_record, list_keys
from safedial.study.store import Store

FRESH_SECONDS = 1.0
"""How long a key is believed before the store is asked again: a revoked key opens nothing after that."""

RATE, BURST = 2_000.0, 4_000.0
"""Requests a second for each key, and how many may come at once."""

MOST_KEYS = 10_000


class Caller(NamedTuple):
    """Who asks; `actor` goes into the log."""

    actor: str
    role: str
    study: str

    def may(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class Bucket:
    """A token bucket: `rate` tokens a second, at most `burst` of them.

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
    """Checks one request after another. `open_door`: serve without keys while the store has none (loopback only)."""

    def __init__(self, store: Store, *, open_door: bool, rate: float = RATE, burst: float = BURST) -> None:
        self.store, self.open_door, self.rate, self.burst = store, open_door, rate, burst
        self._known: dict[bytes, tuple[float, Key]] = {}
        self._buckets: dict[str, Bucket] = {}
        self._open_until = 0.0

    async def admit(self, request: Request, role: str, study: str | None = None) -> Caller:
        """The caller, if its key may do what `role` does, in this study; and not too often."""
        caller = await self._caller(request)
        bucket = self._buckets.get(caller.actor)
        now = time.monotonic()
        if bucket is None:
            if len(self._buckets) >= MOST_KEYS:
                self._buckets.clear()
            bucket = self._buckets[caller.actor] = Bucket(self.rate, self.burst, now)
        if not bucket.take(now):
            raise Problem("too_many_requests")
        if not caller.may(role) or (study is not None and caller.study not in ("", study)):
            raise Problem("forbidden", f"it takes the role {role}, for this study")
        return caller

    async def _caller(self, request: Request) -> Caller:
        words = request.headers.get("authorization")
        if words is None:
            if self.open_door and _from_here(request) and await self._no_keys():
                return Caller("local", "admin", "")
            raise Problem("unauthenticated")
        scheme, _, text = words.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text:
            raise Problem("unauthenticated")
        name, now = hashlib.sha256(text.encode("utf-8", "replace")).digest(), time.monotonic()
        until, key = self._known.get(name, (0.0, None))
        if key is None or until < now:
            key = await asyncio.to_thread(find_key_record, self.store, text)
            if key is None:
                self._known.pop(name, None)
                raise Problem("unauthenticated")
            if len(self._known) >= MOST_KEYS:
                self._known.clear()
            self._known[name] = now + FRESH_SECONDS, key
        return Caller(f"key:{key.id}", key.role, key.study)

    async def _no_keys(self) -> bool:
        """Whether no key was ever made: after the first one, the door is shut for good."""
        now = time.monotonic()
        if now > self._open_until:
            if await asyncio.to_thread(list_keys, self.store):
                self.open_door = False
                return False
            self._open_until = now + FRESH_SECONDS
        return True


def is_loopback(host: str) -> bool:
    """Whether a server on this address can be reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("localhost")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def _from_here(request: Request) -> bool:
    """Whether a request comes from this machine, as far as it says itself: not by a proxy, not by another's name.

    A proxy that says nothing of itself cannot be told apart, so a service behind one needs a key.
    """
    headers, client = request.headers, request.client
    here = client is not None and is_loopback(client.host)
    return here and _is_local(headers.get("host", "")) and not any(name in headers for name in FORWARDED)


@lru_cache(100)
def _is_local(host: str) -> bool:
    """Whether the Host header names this machine: a page from elsewhere that points its own name here does not.

    >>> [_is_local(host) for host in ("127.0.0.1:8000", "[::1]:80", "localhost", "evil.example:8000", "")]
    [True, True, True, False, False]
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def refuse_open_address(store: Store, host: str) -> None:
    """Another address than loopback needs a key first."""
    if not is_loopback(host) and not any(key.revoked is None for key in list_keys(store)):
        words = "can be reached from other machines, so it needs keys; safedial key create --role admin makes one"
        raise StudyError("invalid_input", f"host = {host!r}: {words}")
