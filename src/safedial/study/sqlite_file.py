"""The file of a SQLite store: how it is opened, and whether it is still the file that was opened.

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

import os
import secrets
import sqlite3
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any, NamedTuple

from safedial.study.errors import StoreUnavailable

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
