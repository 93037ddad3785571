"""A database by its URL: SQLite by default, PostgreSQL by its address; the same statements on both.

SQLite: write-ahead log, `synchronous=FULL` (a commit that was acknowledged survives a power cut), and transactions that
take the write lock at once. PostgreSQL: READ COMMITTED, and a lock on the row of the study that is written; a writer
that hangs in a transaction is cut off after a minute (unless the URL brings `options` of its own).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput
from safedial.study.errors import StoreUnavailable
from safedial.study.schema import prepare, sa

BUSY_SECONDS = 10.0
"""How long a writer waits for another process's lock before it says that the store is not available."""


def parse_url(storage: str) -> Any:
    """The URL, with the driver this package installs; what it cannot be is said without its password."""
    if "://" not in str(storage):
        raise InvalidInput(
            f"storage = {str(storage)!r}: must be a URL, for example sqlite:///trial.db or postgresql://…"
        )
    try:
        url = sa.engine.make_url(storage)
    except (sa.exc.ArgumentError, ValueError):
        raise InvalidInput(
            "storage: cannot be read as a database URL; write sqlite:///trial.db or postgresql://…"
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise InvalidInput(f"storage = {url.drivername}://…: must begin with sqlite:/// or postgresql://")
    if url.drivername.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise InvalidInput("storage = sqlite://: a study must outlive its process; name a file, sqlite:///trial.db")
    return url


def shown(storage: str) -> str:
    """A storage URL for people: without its password."""
    return parse_url(storage).render_as_string(hide_password=True)


def connect(storage: str, *, create: bool = True) -> Any:
    """An engine with its tables ready."""
    url = parse_url(storage)
    if url.drivername.startswith("sqlite") and not create and not Path(str(url.database)).exists():
        raise StoreUnavailable(f"storage = {shown(storage)}: there is no such file")
    engine = open_engine(storage)
    try:
        with writing(engine) as connection:
            prepare(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_engine(storage: str, *, pool: int = 5) -> Any:
    """An engine that takes the tables as they are."""
    url = parse_url(storage)
    lite = url.drivername.startswith("sqlite")
    lock = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    waits = f"-c lock_timeout={int(1000 * BUSY_SECONDS)} -c idle_in_transaction_session_timeout=60000"
    away: dict[str, Any] = {"connect_timeout": 10, **({} if "options" in url.query else {"options": waits})}
    arguments: dict[str, Any] = lock if lite else away
    pooled = {"pool_size": pool, "max_overflow": 20, "pool_pre_ping": not lite}
    engine = sa.create_engine(url, connect_args=arguments, hide_parameters=True, **pooled)
    if lite:
        sa.event.listen(engine, "connect", _pragmas)
    sa.event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def writing(engine: Any) -> Iterator[Any]:
    """A connection in a write transaction, committed at the end or rolled back whole."""
    with unavailable(), engine.connect().execution_options(safedial_write=True) as connection, connection.begin():
        yield connection
        _still_there(connection)


@contextmanager
def reading(engine: Any) -> Iterator[Any]:
    """A connection in a transaction that sees one moment of the store and never waits for a writer."""
    with unavailable(), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            yield connection


@contextmanager
def unavailable() -> Iterator[None]:
    """Database errors as one of ours: no SQL, no values, no password in the words."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        original = getattr(error, "orig", None)
        words = str(original or type(error).__name__).splitlines()[0][:200]
        raise StoreUnavailable(f"storage: {type(original or error).__name__}: {words}") from error


def _still_there(connection: Any) -> None:
    """Refuse to commit to a SQLite file that was moved, deleted or replaced: nobody would find what is written."""
    known = connection.connection.info.get("file")
    if known is not None and _inode(known[0]) != known[1]:
        raise StoreUnavailable("storage: the file was moved, deleted or replaced while in use; put it back or restart")


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _pragmas(connection: Any, record: Any) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    for words in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "mmap_size=268435456"):
        cursor.execute(f"PRAGMA {words}")
    path = cursor.execute("PRAGMA database_list").fetchone()[2]
    record.info["file"] = path, _inode(path)
    cursor.close()


def _begin(connection: Any) -> None:
    if connection.dialect.name == "sqlite":
        write = connection.get_execution_options().get("safedial_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
