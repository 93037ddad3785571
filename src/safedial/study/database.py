"""A database by its URL, SQLite or PostgreSQL, with the same statements on both.

SQLite: write-ahead log, `synchronous=FULL` (an acknowledged commit survives a power cut), and write transactions take
the lock at once; each write checks its file (sqlite_file). A file that cannot be written is opened for reading.
PostgreSQL: READ COMMITTED, a lock on the row of the study that is written, and `synchronous_commit=on` whatever the
server's default; a writer that hangs in a transaction is disconnected after a minute (unless the URL has its own
`options`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput
from safedial.study.errors import StoreUnavailable
from safedial.study.schema import check_version, prepare, sa
from safedial.study.sqlite_file import FileLost, SqliteFile

KEPT_SECONDS = 1.0
"""For how long a writer keeps an unused connection; the pool checks one that it gives out."""

BUSY_SECONDS = 10.0
"""How long a writer waits for another process's lock before it reports the store as unavailable."""


def parse_url(storage: str) -> Any:
    """The URL, with the driver that this package installs. Errors do not show its password."""
    if "://" not in str(storage):
        raise InvalidInput(
            f"storage = {str(storage)!r}: must be a URL, for example sqlite:///trial.db or postgresql://…"
        )
    try:
        url = sa.engine.make_url(storage)
    except (sa.exc.ArgumentError, ValueError):
        raise InvalidInput("storage: is not a database URL; write sqlite:///trial.db or postgresql://…") from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise InvalidInput(f"storage = {url.drivername}://…: must begin with sqlite:/// or postgresql://")
    if url.drivername.startswith("sqlite") and url.database in (None, "", ":memory:"):
        raise InvalidInput("storage = sqlite://: a study must outlive its process; name a file, sqlite:///trial.db")
    return url


def shown(storage: str) -> str:
    """A storage URL without its password."""
    return parse_url(storage).render_as_string(hide_password=True)


def lacks_file(storage: str) -> bool:
    """Whether this is a SQLite store whose file does not exist yet."""
    url = parse_url(storage)
    return url.drivername.startswith("sqlite") and not Path(str(url.database)).exists()


def connect(storage: str, *, create: bool = True) -> Any:
    """An engine with its tables ready."""
    if not create and lacks_file(storage):
        raise StoreUnavailable(f"storage = {shown(storage)}: there is no such file")
    engine = open_engine(storage)
    try:
        if is_read_only(engine):
            with reading(engine) as connection:
                check_version(connection)
        else:
            with writing(engine) as connection:
                prepare(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_engine(storage: str) -> Any:
    """An engine that does not check the tables."""
    url = parse_url(storage)
    pooled = {"pool_size": 5, "max_overflow": 20, "hide_parameters": True}
    if url.drivername.startswith("sqlite"):
        file = SqliteFile(str(url.database), busy_seconds=BUSY_SECONDS)
        engine = sa.create_engine(url, creator=file.connect, **pooled)
        engine.safedial_file = file
    else:
        waits = f"-c lock_timeout={int(1000 * BUSY_SECONDS)} -c idle_in_transaction_session_timeout=60000"
        away = {"connect_timeout": 10, **({} if "options" in url.query else {"options": waits})}
        engine = sa.create_engine(url, connect_args=away, pool_pre_ping=True, **pooled)
        sa.event.listen(engine, "connect", _wait_for_disk)
    sa.event.listen(engine, "begin", _begin)
    return engine


def is_read_only(engine: Any) -> bool:
    """Whether the store can only be read."""
    file = getattr(engine, "safedial_file", None)
    return file is not None and file.read_only


class Writer:
    """Write transactions of one thread. Its connection is kept from one to the next, if that follows soon and the last
    one did not fail: taking it from the pool and giving it back takes about as long as a decision.
    """

    def __init__(self, engine: Any) -> None:
        self.engine, self._connection, self._used = engine, None, -math.inf

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def begin(self) -> Iterator[Any]:
        """A connection in a write transaction, which is committed at the end or rolled back."""
        if is_read_only(self.engine):
            raise StoreUnavailable("storage: can only be read here; copy the store to a writable folder")
        if time.monotonic() - self._used > KEPT_SECONDS:
            self.close()
        with unavailable(self.engine):
            if self._connection is None:
                self._connection = self.engine.connect().execution_options(safedial_write=True)
            try:
                with _transaction(self.engine, self._connection):
                    yield self._connection
            except BaseException:
                self.close()
                raise
        self._used = time.monotonic()


@contextmanager
def _transaction(engine: Any, connection: Any) -> Iterator[None]:
    file: SqliteFile | None = getattr(engine, "safedial_file", None)
    if file is None:
        with connection.begin():
            yield
        return
    raw = connection.connection.driver_connection
    try:
        with connection.begin():
            start = file.begin(raw)
            yield
            written = file.count(raw, start)
        file.check(written)
    except FileLost:
        file.save(raw)
        raise


@contextmanager
def writing(engine: Any) -> Iterator[Any]:
    """`Writer.begin` once."""
    writer = Writer(engine)
    try:
        with writer.begin() as connection:
            yield connection
    finally:
        writer.close()


@contextmanager
def reading(engine: Any) -> Iterator[Any]:
    """A connection in a transaction that reads one moment of the store and never waits for a writer."""
    file: SqliteFile | None = getattr(engine, "safedial_file", None)
    with unavailable(engine), engine.connect() as connection:
        if file is not None:
            file.check()
        else:
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            yield connection


@contextmanager
def unavailable(engine: Any) -> Iterator[None]:
    """Turn database errors into `StoreUnavailable`, without SQL, values or passwords in the message."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error) as error:
        original = getattr(error, "orig", error)
        words = str(original or type(error).__name__).splitlines()[0][:200]
        raise StoreUnavailable(f"storage: {type(original or error).__name__}: {words}") from error


def _wait_for_disk(connection: Any, _: Any) -> None:
    """Make the server acknowledge commits only when they are on disk; waiting for a standby stays unchanged."""
    words = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> %s"
    with connection.cursor() as cursor:
        cursor.execute(words, ("remote_apply",))
    connection.commit()


def _begin(connection: Any) -> None:
    if connection.dialect.name == "sqlite":
        write = connection.get_execution_options().get("safedial_write")
        connection.connection.driver_connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
