"""One event of a study's log, its canonical body and the chain of hashes.

    hash_n = SHA-256( netstring(hash_{n-1}) netstring(study) netstring(seq) … netstring(body) )

A netstring is the length in decimal, a colon, the bytes, a comma; so no two different events have the same input. The
first event follows 32 zero bytes. Bodies are JSON with sorted keys; floats are in their shortest exact form.

event_kinds.py has the kinds and what each means.
"""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from safedial.errors import import_extra

orjson = import_extra("orjson", "service")

FORMAT = 1
"""What a log's first event states: how its events are written, and how a state follows from them."""

START = bytes(32)
"""The hash before the first event of a log."""


SHORT = 2047
"""Bytes that are hashed at once. For more of them Python gives the interpreter to other threads, and a busy service
would wait longer to get it back than the hash takes.
"""


class Event(NamedTuple):
    """A row of the log. `decision` is the seq of its decision, or 0; `at` is in microseconds, UTC."""

    seq: int
    kind: str
    decision: int
    at: int
    actor: str
    reason: str
    body: str
    hash: bytes

    def fields(self) -> dict[str, Any]:
        return orjson.loads(self.body)

    def text(self) -> Any:
        """The body as the JSON text that it is, for an answer in JSON."""
        return orjson.Fragment(self.body)


def digest(previous: bytes, study: str, event: tuple[Any, ...]) -> bytes:
    """The hash of an event (its last field is ignored) that follows `previous` in the log of `study`.

    >>> event = (1, "checkpoint", 0, 0, "me", "", "{}")
    >>> written = b"32:" + START + b",1:s,1:1,10:checkpoint,1:0,1:0,2:me,0:,2:{},"
    >>> digest(START, "s", event) == hashlib.sha256(written).digest()
    True
    """
    seq, kind, decision, at, actor, reason, body = event[:7]
    numbers = f"{len(str(seq))}:{seq},{len(kind)}:{kind},{len(str(decision))}:{decision},{len(str(at))}:{at},"
    text = f"{len(study)}:{study},{numbers}{len(actor)}:{actor},{len(reason)}:{reason},{len(body)}:{body},"
    if text.isascii():
        content = text.encode()
    else:
        parts = [part.encode() for part in (study, str(seq), kind, str(decision), str(at), actor, reason, body)]
        content = b"".join([b"%d:%b," % (len(part), part) for part in parts])
    content = b"32:%b,%b" % (previous, content)
    made = hashlib.sha256(content[:SHORT])
    for start in range(SHORT, len(content), SHORT):
        made.update(content[start : start + SHORT])
    return made.digest()


def next_event(
    before: tuple[int, bytes],
    study: str,
    kind: str,
    body: dict[str, Any],
    *,
    at: int,
    actor: str,
    reason: str,
    decision: int = 0,
) -> Event:
    """A new event after the one with this seq and hash in the log of `study`."""
    seq, previous = before
    new = (seq + 1, kind, decision, at, actor, reason, canonical(body))
    return Event(*new, digest(previous, study, new))


def mark_of(study: str, event: Event, first: Event | None) -> dict[str, Any]:
    """An event as a checkpoint; `first` is the first of its log."""
    named = {} if first is None else {"first": bytes(first.hash).hex()}
    return {"study": study, "seq": event.seq, "hash": bytes(event.hash).hex(), **named, "at": moment(event.at)}


def follows(previous: bytes, study: str, event: Event) -> bool:
    """Whether an event has the right hash after `previous`; False if it cannot be hashed."""
    try:
        return digest(previous, study, event) == event.hash
    except (AttributeError, TypeError, UnicodeEncodeError):
        return False


def canonical(body: Any) -> str:
    """Plain values as JSON with sorted keys and exact floats.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()


def now() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def moment(at: int) -> str:
    """A time as ISO 8601 text.

    >>> moment(0)
    '1970-01-01T00:00:00.000000Z'
    """
    return f"{_second(at // 1_000_000)}.{at % 1_000_000:06d}Z"


@lru_cache(16)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()[:19]
