"""A database by its URL, SQLite or PostgreSQL, with the same statements on both, and the tables of a store.

SQLite: write-ahead log, `synchronous=FULL` (an acknowledged commit survives a power cut), and write transactions take
the lock at once. A file that cannot be written is opened for reading. PostgreSQL: READ COMMITTED, a lock on the row of
the study that is written, and `synchronous_commit=on` whatever the server's default; a writer that hangs in a
transaction is disconnected after a minute (unless the URL has its own `options`).

`studies` holds the head of each log: the row that a writer locks, with the last seq and hash. `studies`, `idempotency`
(but for the digests) and `snapshots` can be computed again from `events`; `keys`, the access keys, stands for itself.

SQLite keeps writing to files that were moved, deleted or overwritten, where nobody finds the data. So each write
compares the files with their last known state, at its start and again before it is acknowledged:

| what | rule |
|---|---|
| file, `-wal`, `-shm` | the files at these paths are those that were opened |
| size of the file | never shrinks |
| writes counted in its header | neither fewer than last seen, nor more than there were |
| `-wal` | grows, or starts again once everything written before is in the file |

The count is `user_version`, which each write transaction raises by one (SQLite's own change counter does not change in
write-ahead mode). A checkpoint copies it to the file, so an older copy has a smaller count.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import sqlite3
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from safedial.errors import InvalidInput, import_extra
from safedial.study.study_errors import StoreUnavailable, StudyError

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "mmap_size=268435456")
READ = "SELECT count(*) FROM sqlite_master"
LARGEST = 2**31
"""Counts wrap around here; a count is ahead of another by less than half of it."""

USER_VERSION = 60
WAL_HEADER = 32
AGAIN_SECONDS = 0.05
READ_BYTES = os.O_RDONLY | getattr(os, "O_BINARY", 0)


class FileLost(StoreUnavailable):
    """The store's file is no longer the one that was opened; no more writes are acknowledged."""


class _Seen(NamedTuple):
    inodes: tuple[tuple[int, int] | None, ...]
    size: int
    stored: int
    wal: tuple[bytes, int]
    written: int


class _Connection(sqlite3.Connection):
    """A connection that tells its `SqliteFile` when it is closed."""

    file: SqliteFile | None = None

    def close(self) -> None:
        super().close()
        file, self.file = self.file, None
        if file is not None:
            file.closed()


class SqliteFile:
    """The file of one engine; `read_only` if it or its folder cannot be written."""

    def __init__(self, path: str, *, busy_seconds: float) -> None:
        self.path, self.busy_seconds = os.path.abspath(path), busy_seconds
        self.read_only = os.path.exists(path) and not _can_be_written(self.path)
        self._lock = threading.Lock()
        self._open = 0
        self._header = -1
        self._seen: _Seen | None = None

    def connect(self) -> sqlite3.Connection:
        """A new connection. It creates the file only if no other connection is open."""
        if self.read_only:
            return self._connect_to_read()
        if not self._open:
            create_private(self.path)
        connection = self._connect("rw" if self._open else "rwc")
        try:
            for words in PRAGMAS:
                connection.execute(f"PRAGMA {words}")
            connection.execute(READ).fetchone()
        except sqlite3.Error:
            connection.close()
            raise
        connection.file = self
        with self._lock:
            if not self._open:
                self._header = _acquire(self.path)
                seen = self._look(0)
                self._seen = seen._replace(written=seen.stored)
            self._open += 1
        return connection

    def closed(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                _release(self._header)
                self._header, self._seen = -1, None

    def begin(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """(writes so far, this connection's changes) at the start; refused if the files are not those last seen."""
        written = connection.execute("PRAGMA user_version").fetchone()[0]
        self.check(written, whole=True)
        return written, connection.total_changes

    def count(self, connection: sqlite3.Connection, start: tuple[int, int]) -> int:
        """The number of this transaction, which is written if the transaction changes something."""
        written, changes = start
        if connection.total_changes != changes:
            written = (written + 1) % LARGEST or 1 if written else 1 + secrets.randbelow(LARGEST // 4)
            connection.execute(f"PRAGMA user_version = {written}")
        return written

    def check(self, written: int | None = None, *, whole: bool = False) -> None:
        """Refuse files that do not continue from their last known state. Other processes may change them meanwhile, so
        a problem is checked twice.

        Args:
            written: the number of a known write.
            whole: it is the last one, and nobody else can write now.
        """
        problem = ""
        for pause in (AGAIN_SECONDS, 0.0):
            with self._lock:
                before = self._seen
                if before is None:
                    return
                newer = written is not None and (whole or _behind(before.written, written))
                seen = self._look(written if newer else before.written)
                problem = _problem(before, seen, whole)
                if not problem:
                    self._seen = seen
                    return
            time.sleep(pause)
        raise FileLost(f"storage: {problem} while in use; put the file back, or stop this process and restore a backup")

    def save(self, connection: sqlite3.Connection) -> None:
        """If only the `-wal` is gone, copy its content to the file: those writes were acknowledged."""
        before = self._seen
        gone = before is not None and _inode(self.path) == before.inodes[0] and _inode(f"{self.path}-wal") is None
        if gone:
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error:
                return

    def _look(self, written: Any) -> _Seen:
        wal_inode, start, length = _wal(f"{self.path}-wal")
        inodes = _inode(self.path), wal_inode, _inode(f"{self.path}-shm")
        with _readers_lock:
            os.lseek(self._header, USER_VERSION, os.SEEK_SET)
            stored = int.from_bytes(os.read(self._header, 4), "big")
        return _Seen(inodes, os.fstat(self._header).st_size, stored, (start, length), written)

    def _connect(self, mode: str) -> _Connection:
        uri = f"file:{urllib.parse.quote(self.path)}?{'immutable=1' if mode == 'immutable' else f'mode={mode}'}"
        return sqlite3.connect(
            uri,
            uri=True,
            timeout=self.busy_seconds,
            check_same_thread=False,
            isolation_level=None,
            factory=_Connection,
        )

    def _connect_to_read(self) -> sqlite3.Connection:
        """Open a file that cannot be written: with its `-wal` if there is one, otherwise as it is."""
        held = _wal(f"{self.path}-wal")[2] > 0
        for mode in ("ro",) if held else ("ro", "immutable"):
            connection = self._connect(mode)
            try:
                connection.execute(READ).fetchone()
                return connection
            except sqlite3.OperationalError:
                connection.close()
        words = "cannot be read without writing: a -wal holds its last events" if held else "cannot be read"
        raise StoreUnavailable(f"storage: {words}; copy the file and its -wal to a writable folder")


def create_private(path: str | Path) -> None:
    """Create a new store's file, readable for its owner alone; SQLite gives its `-wal` and `-shm` the same rights.

    A file that exists is not opened: closing any descriptor of it drops the locks of all this process's connections.
    """
    with suppress(OSError):  # SQLite says why it cannot
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _problem(before: _Seen, seen: _Seen, whole: bool) -> str:
    """What is wrong with the files, compared with before; "" if they continue."""
    if seen.inodes[0] != before.inodes[0]:
        return "the file was moved, deleted or replaced"
    if seen.inodes[1:] != before.inodes[1:]:
        return "the file's -wal or -shm was moved, deleted or replaced"
    ahead = whole and not _behind(seen.stored, seen.written)
    if seen.size < before.size or not _behind(before.stored, seen.stored) or ahead:
        return "the file was overwritten with another"
    goes_on = seen.wal[0] == before.wal[0] and seen.wal[1] >= before.wal[1]
    return "" if goes_on or _behind(before.written, seen.stored) else "the file's -wal was overwritten"


def _behind(count: int, other: int) -> bool:
    """Whether `count` equals `other` or comes before it; counts wrap around at the largest.

    >>> _behind(3, 3), _behind(3, 4), _behind(4, 3), _behind(LARGEST - 1, 1)
    (True, True, False, True)
    """
    return (other - count) % LARGEST < LARGEST // 2


def _wal(path: str) -> tuple[tuple[int, int] | None, bytes, int]:
    """(inode; header, which identifies its generation; length) of a write-ahead log."""
    try:
        file = os.open(path, READ_BYTES)
    except OSError:
        return None, b"", 0
    try:
        about = os.fstat(file)
        return (about.st_dev, about.st_ino), os.read(file, WAL_HEADER), about.st_size
    finally:
        os.close(file)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _can_be_written(path: str) -> bool:
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


_readers: dict[tuple[int, int], list[int]] = {}
_readers_lock = threading.Lock()


def _acquire(path: str) -> int:
    """A descriptor to read the file's header. The process shares one, because closing any releases SQLite's locks."""
    with _readers_lock:
        about = os.stat(path)
        name = about.st_dev, about.st_ino
        if name not in _readers:
            _readers[name] = [os.open(path, READ_BYTES), 0]
        _readers[name][1] += 1
        return _readers[name][0]


def _release(descriptor: int) -> None:
    about = os.fstat(descriptor)
    with _readers_lock:
        known = _readers[about.st_dev, about.st_ino]
        known[1] -= 1
        if not known[1]:
            del _readers[about.st_dev, about.st_ino]
            os.close(descriptor)


# --- The tables of a store, and their schema version

sa = import_extra("sqlalchemy", "service")

SCHEMA = 1

metadata: Any = sa.MetaData()


def _table(
    name: str, key: dict[str, Any], columns: dict[str, Any], unique: str = "", empty: tuple[str, ...] = ()
) -> Any:
    """A table, by the types of its key's columns and of the others. `unique` holds no value twice; in `empty` columns
    there may be no value.
    """
    keyed = [sa.Column(each, kind, primary_key=True, autoincrement=False) for each, kind in key.items()]
    others = [sa.Column(each, kind, nullable=each in empty, unique=each == unique) for each, kind in columns.items()]
    return sa.Table(name, metadata, *keyed, *others)


INTEGER, TEXT, BYTES = sa.BigInteger, sa.Text, sa.LargeBinary
PLACE = {"study_id": INTEGER, "seq": INTEGER}

meta = _table("safedial_meta", {"name": TEXT}, {"value": TEXT}, empty=("value",))
studies = _table("studies", {"id": INTEGER}, {"name": TEXT, "head_seq": INTEGER, "head_hash": BYTES}, unique="name")
_event = {"kind": TEXT, "decision": INTEGER, "at": INTEGER, "actor": TEXT, "reason": TEXT, "body": TEXT, "hash": BYTES}
events = _table("events", PLACE, _event)
about = sa.Index("events_about", events.c.study_id, events.c.decision)
idempotency = _table("idempotency", {"study_id": INTEGER, "key": TEXT}, {"digest": BYTES, "seq": INTEGER})
snapshots = _table("snapshots", PLACE, {"digest": BYTES, "content": BYTES})
_created = {"hash": BYTES, "role": TEXT, "study": TEXT, "created": INTEGER, "created_by": TEXT, "created_reason": TEXT}
_revoked = {"revoked": INTEGER, "revoked_by": TEXT, "revoked_reason": TEXT}
keys = _table("keys", {"id": TEXT}, _created | _revoked, unique="hash", empty=tuple(_revoked))
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


# --- A database by its URL, SQLite or PostgreSQL, with the same statements on both

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
