"""The tables of a store, and their schema version.

`studies` holds the head of each log: the row that a writer locks, with the last seq and hash. `studies`, `idempotency`
(but for the digests) and `snapshots` can be computed again from `events`; `keys`, the access keys, stands for itself.
"""

from __future__ import annotations

import re
from typing import Any

from safedial.errors import import_extra
from safedial.study.errors import StudyError

sa = import_extra("sqlalchemy", "service")

SCHEMA = 1

metadata: Any = sa.MetaData()
meta = sa.Table("safedial_meta", metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text))
studies = sa.Table(
    "studies",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("head_seq", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.LargeBinary, nullable=False),
)
events = sa.Table(
    "events",
    metadata,
    sa.Column("study_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("decision", sa.BigInteger, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
)
about = sa.Index("events_about", events.c.study_id, events.c.decision)
idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("study_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
)
snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("study_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("study", sa.Text, nullable=False),
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("created_reason", sa.Text, nullable=False),
    sa.Column("revoked", sa.BigInteger),
    sa.Column("revoked_by", sa.Text),
    sa.Column("revoked_reason", sa.Text),
)
TABLES = (meta, studies, events, idempotency, snapshots, keys)


def prepare(connection: Any) -> None:
    """Create the tables if there are none; a store with another schema is refused."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7233176)"))
    if version(connection) > 0:
        check_version(connection)
        return
    metadata.create_all(connection)
    connection.execute(meta.insert().values(name="schema", value=str(SCHEMA)))


def check_version(connection: Any) -> None:
    """Refuse a store that has another schema, or none of ours."""
    found = version(connection)
    if found == 0:
        raise StudyError("wrong_schema", "storage: is not a safedial store; check the URL")
    if found != SCHEMA:
        way_out = "open it with the version that wrote it"
        raise StudyError("wrong_schema", f"storage: has schema {found}, and this safedial reads {SCHEMA}; {way_out}")


def version(connection: Any) -> int:
    """The schema version of a store; 0 if it has none of our tables."""
    if not sa.inspect(connection).has_table("safedial_meta"):
        return 0
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema")).scalar()
    if not (isinstance(found, str) and re.fullmatch("[1-9][0-9]{0,5}", found)):
        words = "the table safedial_meta was changed; restore a backup"
        raise StudyError("wrong_schema", f"storage: schema = {str(found)[:40]!r}: must be a whole number; {words}")
    return int(found)
