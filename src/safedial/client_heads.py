"""The last event of each study that a client saw, in memory and, where the user names one, in a file.

So each client is a witness: a service whose log does not hold that event has lost or rewritten what it acknowledged.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safedial.errors import InvalidInput

log = logging.getLogger("safedial.client")


class SeenHead(NamedTuple):
    """An event by its seq and hash."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


class Heads:
    """The last event seen, by study. The file is a JSON object, {study: "SEQ:HASH"}; give each process its own."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._seen = {} if self.path is None or not self.path.exists() else _read(self.path)

    def get(self, study: str) -> SeenHead | None:
        return self._seen.get(study)

    def accept(self, study: str, before: SeenHead | None, answer: Mapping[str, Any], *, newest: bool) -> bool:
        """Whether an answer may come from the log that had the event `before` when it was asked for.

        A new event comes after `before`; one that is repeated may be older; with `newest` it is the log's last event.
        The event is remembered if it is the latest so far.
        """
        seq, name = answer["seq"], answer["hash"]
        old = newest or bool(answer.get("replayed"))
        if before is not None and seq == before.seq and not (old and name == before.hash):
            return False
        if before is not None and seq < before.seq and (newest or not old):
            return False
        with self._lock:
            last = self._seen.get(study)
            if last is None or seq > last.seq:
                self._seen[study] = SeenHead(seq, name)
                self._write()
        return True

    def forget(self, study: str) -> None:
        """Forget a study, after it was restored on purpose."""
        with self._lock:
            self._seen.pop(study, None)
            self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps({study: str(head) for study, head in self._seen.items()}, indent=2) + "\n")
            os.replace(partial, self.path)
        except OSError as error:  # the request itself was answered
            log.warning("heads = %s: cannot be written (%s)", self.path, error.strerror)


def _read(path: Path) -> dict[str, SeenHead]:
    try:
        marks = {study: text.partition(":") for study, text in json.loads(path.read_text()).items()}
        return {study: SeenHead(int(seq), bytes.fromhex(name).hex()) for study, (seq, _, name) in marks.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        words = 'must be the file that a client wrote, {"study": "SEQ:HASH"}; remove it to begin anew'
        raise InvalidInput(f"heads = {str(path)!r}: {words}") from error
