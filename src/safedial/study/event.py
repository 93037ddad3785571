"""One event of a study's log, its canonical body and the chain of hashes; and what each kind of event means.

    hash_n = SHA-256( netstring(hash_{n-1}) netstring(study) netstring(seq) … netstring(body) )

A netstring is the length in decimal, a colon, the bytes, a comma; so no two different events have the same input. The
first event follows 32 zero bytes. Bodies are JSON with sorted keys; floats are in their shortest exact form.

No other module interprets kinds: the
reducer, the tables, the operator page and `verify` all ask here, so they cannot disagree about a round.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from safedial.errors import import_extra
from safedial.rounds.decision import is_watched
from safedial.rounds.outcome import exceeds, for_the_watch, next_status, read_cost
from safedial.rounds.rules import Rules

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


# --- What each kind of event means

VALUES = ("reward", "cost", "applied_action", "throttled")
"""The fields of an outcome in the body of its event."""


class Kind(NamedTuple):
    """What events of a kind do. `status` is the new status of their round, if they have one.

    `reports`: states values of an outcome, which count from then on. `loses`: the outcome is no longer expected, and if
    `final` no longer accepted. `revises`: changes an earlier outcome, if there was one.
    """

    status: str = ""
    decides: bool = False
    imports: bool = False
    reports: bool = False
    loses: bool = False
    final: bool = False
    revises: bool = False
    stops: bool = False
    resumes: bool = False
    amends: bool = False
    creates_study: bool = False
    confirms_snapshot: bool = False


class _Kinds(dict[str, Kind]):
    def __missing__(self, kind: str) -> Kind:
        """An event of an unknown kind says nothing here."""
        return Kind()


EVENT_KINDS = _Kinds({
    "study_created": Kind(creates_study=True),  # the whole specification
    "imported": Kind("imported", imports=True),  # a round from before the study, with its outcome
    "decided": Kind("open", decides=True),  # context, what was found, action, the numbers of its certificate
    "outcome": Kind("known", reports=True),  # reward, cost, applied action
    "correction": Kind("corrected", reports=True, revises=True),  # values that replace those of an outcome
    "voided": Kind("void", loses=True, final=True, revises=True),  # a round without an outcome that counts
    "expired": Kind("expired", loses=True),  # an outcome that is no longer expected
    "alarm": Kind(stops=True),  # the guard stopped the study: which rule, on what evidence
    "resumed": Kind(resumes=True),  # a person cleared an alarm
    "amended": Kind(amends=True),  # the specification from the next decision on; about event 1
    "checkpoint": Kind(),  # seq and hash were given out, to be kept elsewhere
    "snapshot": Kind(confirms_snapshot=True),  # the digest of the stored state after the previous event
})  # fmt: skip

DECISIONS = tuple(kind for kind, means in EVENT_KINDS.items() if means.decides)
REVISIONS = tuple(kind for kind, means in EVENT_KINDS.items() if means.revises)
ROUTINE = tuple(
    kind
    for kind, means in EVENT_KINDS.items()
    if means.decides or means.imports or means.confirms_snapshot or (means.reports and not means.revises)
)
"""What every round brings. The rest stands out in an audit: alarms, resumes, corrections, rounds taken out."""


COUNTED = ("known", "corrected", "throttled")
"""The statuses of rounds whose outcomes count."""


class RoundHistory(NamedTuple):
    """What the log says about a round so far. `values` are the `VALUES` that count; `outcome` is the event that first
    stated them, `void` the one that voided the round. `watched`: its decision claimed something that an outcome can
    contradict.
    """

    status: str = ""
    action: Any = None
    baseline_cost: float = 0.0
    watched: bool = False
    values: dict[str, Any] | None = None
    unrelated: bool | None = None
    outcome: Any = None
    void: Any = None

    @classmethod
    def of(cls, events: Iterable[Any]) -> RoundHistory:
        """What events about a decision said, in order."""
        return reduce(lambda known, event: known.after(event, event.fields()), events, cls())

    @property
    def applied(self) -> Any:
        """The applied setting: the advised one, unless the outcome states another."""
        stated = None if self.values is None else self.values["applied_action"]
        return self.action if self.values and stated is None else stated

    def counts(self, rules: Rules) -> bool:
        """Whether the outcome counts. A violation still does after its round was declared void."""
        if self.status != "void" or self.values is None or not self.watched:
            return self.status in COUNTED
        cost = read_cost(rules.spec, self.values["cost"])
        return exceeds(rules, for_the_watch(rules, self.applied, cost, self.baseline_cost), self.action)

    @classmethod
    def decided(cls, body: Mapping[str, Any], policy: Any = None) -> RoundHistory:
        """The history of a new decision, from the body of its event. It waits for an outcome if it gives something, or,
        where nothing given tells the policy something too, unless a cap of the study gives nothing to contexts like
        this one.
        """
        dose = body["intensity"] > 0.0
        waits = dose or (policy is not None and policy.zero_tells and body["limiter"] not in ("mask", "cap"))
        watched = is_watched(body["guarantee"], given=dose, counts=policy is None or policy.counts)
        return cls(next_status("", "open", given=waits), body["action"], body["baseline_cost"], watched)

    def after(self, event: Any, body: Mapping[str, Any], policy: Any = None) -> RoundHistory:
        """The history with one more event about the round, which `policy` decided."""
        means = EVENT_KINDS[event.kind]
        if means.decides:
            return self.decided(body, policy)
        return RoundHistory(
            next_status(self.status, means.status, throttled=bool(body.get("throttled"))),
            self.action,
            self.baseline_cost,
            self.watched,
            {name: body.get(name) for name in VALUES} if means.reports or means.imports else self.values,
            body.get("unrelated", self.unrelated),
            self.outcome or (event if means.reports else None),
            event if means.final else self.void,
        )
