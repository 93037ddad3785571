"""The log in SQL: heads, events, keys and snapshots. The statements are the same on every database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from safedial.study.database import idempotency, meta, sa, snapshots, studies
from safedial.study.event import DECISIONS, REVISIONS, ROUTINE, START, Event
from safedial.study.study_errors import StudyError

CHUNK = 10_000

_EVENTS = "SELECT seq, kind, decision, at, actor, reason, body, hash FROM events WHERE study_id = :study"
_AFTER = sa.text(f"{_EVENTS} AND seq > :after AND seq <= :upto ORDER BY seq LIMIT {CHUNK}")
_ONE = sa.text(f"{_EVENTS} AND seq = :seq")
_ABOUT = sa.text(f"{_EVENTS} AND decision = :decision ORDER BY +seq")
"""With the sign, SQLite looks up the decision and sorts; without it, it reads the whole log in order."""

_REVISIONS = sa.text(f"{_EVENTS} AND seq > :after AND seq <= :upto AND kind IN :kinds ORDER BY seq").bindparams(
    sa.bindparam("kinds", REVISIONS, expanding=True)
)
_LATEST = sa.text(f"{_EVENTS} AND kind IN :kinds ORDER BY seq DESC LIMIT 1").bindparams(
    sa.bindparam("kinds", DECISIONS, expanding=True)
)
_TRAIL = sa.text(f"{_EVENTS} AND seq < :before AND kind NOT IN :routine ORDER BY seq DESC LIMIT :most").bindparams(
    sa.bindparam("routine", type_=sa.Text, expanding=True)  # it may be empty, and PostgreSQL compares equal types
)
_KEYS = "SELECT key, digest, seq FROM idempotency WHERE study_id = ? AND key IN "
_ADD_KEYS = "INSERT INTO idempotency (study_id, key, digest, seq) VALUES "
_KEYED = sa.text(
    "SELECT k.seq, k.key, k.digest, e.kind, e.decision, e.at, e.actor, e.reason, e.body, e.hash FROM idempotency AS k "
    "LEFT JOIN events AS e ON e.study_id = k.study_id AND e.seq = k.seq WHERE k.study_id = :study ORDER BY k.seq"
)
_HASHES = sa.text("SELECT seq, hash FROM events WHERE study_id = :study AND seq IN :seqs").bindparams(
    sa.bindparam("seqs", expanding=True)
)
_HEAD = "SELECT head_seq, head_hash FROM studies WHERE id = ?"
_MOVE = "UPDATE studies SET head_seq = ?, head_hash = ? WHERE id = ?"
_SHOTS = sa.text("SELECT seq, digest FROM snapshots WHERE study_id = :study AND seq <= :upto ORDER BY seq DESC")
_SHOT = sa.text("SELECT content FROM snapshots WHERE study_id = :study AND seq = :seq")
_INSERT = "INSERT INTO events (study_id, seq, kind, decision, at, actor, reason, body, hash) VALUES "

ROWS = 100
"""Rows that one statement inserts: fewer than a thousand values, which every SQLite takes."""


class Head(NamedTuple):
    """The last event of a log."""

    seq: int
    hash: bytes


def find_study(connection: Any, name: str) -> int | None:
    return connection.execute(sa.select(studies.c.id).where(studies.c.name == name)).scalar()


def study_names(connection: Any) -> list[tuple[int, str, int]]:
    """(id, name, events) of every study."""
    rows = connection.execute(sa.select(studies.c.id, studies.c.name, studies.c.head_seq).order_by(studies.c.id))
    return [tuple(row) for row in rows]


def lock_store(connection: Any) -> None:
    """Make those who create studies or change keys wait for each other until the transaction ends."""
    connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema").with_for_update())


def add_study(connection: Any, name: str) -> int:
    """Add a row for a new, empty log. Returns its id."""
    study = int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(studies.c.id), 0))).scalar()) + 1
    connection.execute(studies.insert().values(id=study, name=name, head_seq=0, head_hash=START))
    return study


def lock_head(connection: Any, study: int) -> Head:
    """Read and lock the head of a log until the transaction ends, so that no other writer gets the same seq."""
    return read_head(connection, study, " FOR UPDATE" if connection.dialect.name == "postgresql" else "")


def read_head(connection: Any, study: int, lock: str = "") -> Head:
    row = _direct(connection, _HEAD + lock, (study,)).fetchone()
    if row is None:
        raise StudyError("unknown_study", f"study {study}: is no longer in this store")
    return Head(row[0], bytes(row[1]))


def append_events(connection: Any, study: int, rows: list[Event]) -> None:
    """Write events and move the head to the last of them."""
    _insert(connection, _INSERT, [(study, *row) for row in rows])
    _direct(connection, _MOVE, (rows[-1].seq, rows[-1].hash, study))


def read_events(connection: Any, study: int, after: int = 0, upto: int = 2**62) -> Iterator[Event]:
    """Events in order, read in chunks."""
    while True:
        rows = connection.execute(_AFTER, {"study": study, "after": after, "upto": upto}).fetchall()
        for row in rows:
            yield Event._make(row)
        if len(rows) < CHUNK:
            return
        after = rows[-1][0]


def read_event(connection: Any, study: int, seq: int) -> Event | None:
    row = connection.execute(_ONE, {"study": study, "seq": seq}).one_or_none()
    return None if row is None else Event._make(row)


def event_hashes(connection: Any, study: int, seqs: list[int]) -> dict[int, bytes]:
    """The hash of each of these events."""
    rows = connection.execute(_HASHES, {"study": study, "seqs": seqs}) if seqs else ()
    return {seq: bytes(name) for seq, name in rows}


def events_about(connection: Any, study: int, decision: int) -> list[Event]:
    """Outcome, correction, void and expiry of a decision, in order."""
    return [Event._make(row) for row in connection.execute(_ABOUT, {"study": study, "decision": decision})]


def revisions(connection: Any, study: int, after: int, upto: int) -> list[Event]:
    """Every correction and void after one seq, up to another."""
    where = {"study": study, "after": after, "upto": upto}
    return [Event._make(row) for row in connection.execute(_REVISIONS, where)]


def latest_decision(connection: Any, study: int) -> Event | None:
    return next((Event._make(row) for row in connection.execute(_LATEST, {"study": study})), None)


def trail(connection: Any, study: int, before: int, most: int, *, whole: bool) -> list[Event]:
    """Events before a seq, the latest first; unless `whole`, without those that every round brings."""
    where = {"study": study, "before": before, "most": most, "routine": [] if whole else ROUTINE}
    return [Event._make(row) for row in connection.execute(_TRAIL, where)]


def find_keys(connection: Any, study: int, keys: list[str]) -> dict[str, tuple[bytes, int]]:
    """(digest of the request, seq of its event) for each of the idempotency keys that was used."""
    rows = _direct(connection, _KEYS + _marks(len(keys)), (study, *keys)).fetchall()
    return {key: (bytes(digest), seq) for key, digest, seq in rows}


def keyed_events(connection: Any, study: int) -> Any:
    """A row for every idempotency key: seq, key, digest of the request, and the fields of the event at that seq.

    Use it in a `with`: it reads in chunks.
    """
    return connection.execute(_KEYED.execution_options(yield_per=CHUNK), {"study": study})


def add_keys(connection: Any, study: int, keys: Mapping[str, tuple[bytes, int]]) -> None:
    """Keep idempotency keys with the digest of the request and the seq of its event."""
    _insert(connection, _ADD_KEYS, [(study, key, digest, seq) for key, (digest, seq) in keys.items()])


def _insert(connection: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
    """Insert rows, many with one statement: the driver gives other threads the interpreter once for each."""
    for start in range(0, len(rows), ROWS):
        some = rows[start : start + ROWS]
        marks = ", ".join([_marks(len(some[0]))] * len(some))
        _direct(connection, statement + marks, tuple(chain.from_iterable(some)))


def _marks(count: int) -> str:
    return f"({', '.join('?' * count)})"


def _direct(connection: Any, statement: str, values: tuple[Any, ...]) -> Any:
    """Run a statement that every write needs straight on the driver; SQLAlchemy would take longer than the database."""
    words = statement if connection.dialect.name == "sqlite" else statement.replace("?", "%s")
    return connection.connection.driver_connection.execute(words, values)


def drop_keys(connection: Any, study: int, keys: list[str]) -> None:
    """Delete idempotency keys, so that they can be used again."""
    connection.execute(idempotency.delete().where(idempotency.c.study_id == study, idempotency.c.key.in_(keys)))


def snapshot_seqs(connection: Any, study: int, upto: int = 2**62) -> list[tuple[int, bytes]]:
    """(seq, digest) of the snapshots at or before a seq, the latest first."""
    return [(row[0], bytes(row[1])) for row in connection.execute(_SHOTS, {"study": study, "upto": upto})]


def read_snapshot(connection: Any, study: int, seq: int, digest: bytes) -> bytes | None:
    """A snapshot's bytes, or None if they do not match its digest."""
    content = connection.execute(_SHOT, {"study": study, "seq": seq}).scalar()
    content = None if content is None else bytes(content)
    return content if content is not None and hashlib.sha256(content).digest() == digest else None


def write_snapshot(connection: Any, study: int, seq: int, content: bytes) -> bytes:
    """Store a state's bytes. Returns their digest."""
    digest = hashlib.sha256(content).digest()
    connection.execute(snapshots.delete().where(snapshots.c.study_id == study, snapshots.c.seq == seq))
    connection.execute(snapshots.insert().values(study_id=study, seq=seq, digest=digest, content=content))
    return digest


def drop_snapshots(connection: Any, study: int, seqs: Iterable[int]) -> None:
    gone = list(seqs)
    if gone:
        connection.execute(snapshots.delete().where(snapshots.c.study_id == study, snapshots.c.seq.in_(gone)))
