"""A study's history as columns, for the operator page: read from the log a page at a time, never through the writer.

The database itself cuts the few numbers that are needed out of each event and hands over a whole page of them as one
JSON text, so a page costs the serving process one call and a few milliseconds, however busy its writer is.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.study import Study
from safedial.study.database import reading
from safedial.study.event import orjson
from safedial.study.schema import sa

PAGE = 4_000
FRESH_SECONDS = 0.5
"""The log is looked at again after that."""

OPEN, KNOWN, VOID, EXPIRED, NOTHING, THROTTLED = range(6)
STATUS = ("open", "known", "void", "expired", "nothing given", "throttled")

NUMBERS = ("seq", "at", "action", "safe_action", "estimate", "applied", "reward", "cost", "resolved", "number")
FLAGS = ("status", "watched", "blocked", "corrected")

_FIELDS = (
    ("action",),
    ("safe_action",),
    ("intensity",),
    ("round",),
    ("doubt",),
    ("promise",),
    ("prediction", "reward"),
    ("reward",),
    ("cost",),
    ("applied_action",),
    ("throttled",),
    ("unrelated",),
    ("rule",),
)


class Track:
    """The columns of one study, and what its guard said. `refresh` may be called from any thread."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.seq = self.rows = 0
        self.numbers: NDArray[np.float64] = np.full((len(NUMBERS), 1024), np.nan)
        self.flags: NDArray[np.int8] = np.zeros((len(FLAGS), 1024), dtype=np.int8)
        self.stops: list[dict[str, Any]] = []
        self.resumes: list[int] = []
        self.stopped = ""
        self.imported = self.late = 0
        self.lock = threading.Lock()
        self._looked = -1e9
        self._query = _query(study.store.engine.dialect.name)

    def column(self, name: str) -> Any:
        """One column, as long as there are decisions."""
        if name in FLAGS:
            return self.flags[FLAGS.index(name), : self.rows]
        return self.numbers[NUMBERS.index(name), : self.rows]

    def refresh(self) -> None:
        """Read what is new."""
        with self.lock:
            if time.monotonic() - self._looked < FRESH_SECONDS:
                return
            while self._page():
                pass
            self._looked = time.monotonic()

    def _page(self) -> bool:
        first = self.seq
        with reading(self.study.store.engine) as connection:
            where = {"study": self.study.store.find(self.study.name), "after": first, "upto": first + PAGE}
            text = connection.execute(self._query, where).scalar()
        for row in orjson.loads(text) if text else ():
            self._event(*row)
        return self.seq - first == PAGE

    def _event(self, seq: int, kind: str, decision: int, at: int, *fields: Any) -> None:
        self.seq = seq
        if kind == "decided":
            self._decided(seq, at, fields)
        elif kind in ("outcome", "correction"):
            self._told(seq, kind, decision, fields)
        elif kind in ("voided", "expired"):
            self._gone(seq, kind, decision, bool(fields[11]))
        elif kind == "imported":
            self.imported += 1
        elif kind == "alarm":
            self.stopped = fields[12]
            self.stops.append({"seq": seq, "at": at, "rule": fields[12]})
        elif kind == "resumed":
            self.stopped = ""
            self.resumes.append(seq)

    def _decided(self, seq: int, at: int, fields: Any) -> None:
        action, safe, intensity, number, doubt, promise, estimate = fields[:7]
        if self.rows == self.numbers.shape[1]:
            self.numbers = np.concatenate([self.numbers, np.full_like(self.numbers, np.nan)], axis=1)
            self.flags = np.concatenate([self.flags, np.zeros_like(self.flags)], axis=1)
        values = (seq, at, action, np.nan if safe is None else safe, estimate, np.nan, np.nan, np.nan, np.nan, number)
        self.numbers[:, self.rows] = values
        status = OPEN if intensity > 0 else NOTHING
        self.flags[:, self.rows] = status, not doubt and promise != "none", False, False
        self.rows += 1

    def _told(self, seq: int, kind: str, decision: int, fields: Any) -> None:
        row = self._row(decision)
        if row is None or self.flags[0, row] == VOID:
            return
        self.late += self.flags[0, row] == EXPIRED
        reward, cost, applied, throttled = fields[7:11]
        self.numbers[5:8, row] = self.numbers[2, row] if applied is None else applied, reward, cost
        if np.isnan(self.numbers[8, row]):
            self.numbers[8, row] = seq
        self.flags[0, row] = THROTTLED if throttled else NOTHING if self.flags[0, row] == NOTHING else KNOWN
        self.flags[2, row] = bool(throttled)
        self.flags[3, row] = kind == "correction"

    def _gone(self, seq: int, kind: str, decision: int, unrelated: bool) -> None:
        row = self._row(decision)
        if row is None:
            return
        self.late += self.flags[0, row] == EXPIRED
        self.flags[0, row] = VOID if kind == "voided" or unrelated else EXPIRED
        self.flags[2, row] = not unrelated
        if self.flags[0, row] == VOID and np.isnan(self.numbers[8, row]):
            self.numbers[8, row] = seq

    def _row(self, decision: int) -> int | None:
        """The row of a decision by its seq; imported rounds have none."""
        seqs = self.numbers[0, : self.rows]
        row = int(np.searchsorted(seqs, decision))
        return row if row < self.rows and seqs[row] == decision else None


def _query(dialect: str) -> Any:
    """One page of a log as one JSON text; the numbers in it are those of the events, digit for digit."""
    lite = dialect == "sqlite"
    body, array, pages = (
        ("body", "json_array", "json_group_array") if lite else ("body::json", "json_build_array", "json_agg")
    )
    cut = ", ".join(" -> ".join([body, *(f"'{name}'" for name in path)]) for path in _FIELDS)
    inner = "SELECT * FROM events WHERE study_id = :study AND seq > :after AND seq <= :upto ORDER BY seq"
    words = f"SELECT {pages}({array}(seq, kind, decision, at, {cut})) FROM ({inner}) AS page"  # noqa: S608 -- fixed
    return sa.text(words.replace("::", r"\:\:"))
