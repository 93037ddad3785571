"""A study's rounds as columns, for the operator page: read from the log page by page, never through the writer.

The database extracts the few numbers needed from each event and returns a whole page of them as one JSON text, so a
page costs the serving process one call and a few milliseconds, however busy its writer is. Counts and evidence are the
study's own (`Study.status`); here is what became of each round.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Mapping
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.model.costs import Cost
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.outcome import STATUSES, is_over
from safedial.study.database import reading, sa
from safedial.study.event import COUNTED, DECISIONS, EVENT_KINDS, RoundHistory, orjson
from safedial.study.reducer import TAG
from safedial.study.state import HOUR
from safedial.study.study import Study

PAGE = 4_000
FRESH_SECONDS = 0.5
"""Seconds until the log is read again."""

CODE = {status: number for number, status in enumerate(STATUSES)}
OPEN, VOID = CODE["open"], CODE["void"]

COLUMNS = (
    *("seq", "at", "tag", "action", "safe_action", "baseline_cost", "estimate", "evidence", "proposal", "watched"),
    *("start", "proved", "status", "applied_action", "reward", "cost", "over", "lasting"),
)
_NUMBERS = {name: name for name in ("action", "safe_action", "baseline_cost", "evidence", "proposal")}
_NUMBERS["estimate"] = "numbers.reward"
_DECIDED = (
    *_NUMBERS.values(),
    *("intensity", "fallback_reason", "guarantee", "limiter", "key", "meta", "unit", "visit"),
)
_OTHERS = ("reward", "cost", "applied_action", "throttled", "unrelated", "rule", "evidence")


class Row(NamedTuple):
    """An event as the query gives it; `tag` is the first hexadecimal digits of its hash."""

    seq: int
    kind: str
    decision: int
    at: int
    tag: str
    fields: list[Any]


class Visit(NamedTuple):
    """What was noted with a decision."""

    key: str | None = None
    meta: dict[str, Any] | None = None
    unit: str | None = None
    visit: str | None = None


class Turn(NamedTuple):
    """An alarm, a resume or an amendment: when, which rule, and on what evidence."""

    seq: int
    at: int
    rule: str
    evidence: float | None = None


NOT_NOTED = Visit()


class Track:
    """The columns of one study, its visits by row, the rows of each unit, its guard's alarms, and its amendments.
    `refresh` may be called from any thread.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.seq = self.rows = 0
        self.complete = False
        self.stops: list[Turn] = []
        self.resumes: list[Turn] = []
        self.amendments: list[Turn] = []
        self.visits: dict[int, Visit] = {}
        self.units: dict[str, list[int]] = {}
        self.lock = threading.RLock()
        self._columns = {name: array("d") for name in COLUMNS}
        self.costs: dict[str, array[float]] = {}
        self._row_of: dict[int, int] = {}
        self._looked = -1e9
        self._query = _query(study.store.engine.dialect.name)

    def column(self, name: str) -> NDArray[np.float64]:
        """A copy of one column."""
        return np.array(self._columns[name])

    def has_status(self, *codes: int) -> NDArray[np.bool_]:
        """By row, whether the status is one of these."""
        return np.isin(self.column("status"), codes)

    @property
    def judged(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """By row, whether an outcome counts, and whether it is beyond the limit."""
        lasting = self.has_status(VOID) & (self.column("lasting") > 0)
        counts = self.has_status(*(CODE[status] for status in COUNTED)) | lasting
        return counts, counts & (self.column("over") > 0)

    def late(self) -> NDArray[np.bool_]:
        """By row, whether the outcome is open and overdue by now."""
        specs = list(self.study.spec.chain)[::-1]
        waits = [np.inf if (hours := spec.guard.deadline) is None else hours * HOUR for spec in specs]
        most = np.array(waits)[np.searchsorted([spec.since for spec in specs], self.column("seq")) - 1]
        return self.has_status(OPEN) & (time.time() * 1e6 - self.column("at") > most)

    def value(self, name: str, row: int) -> float:
        return self._columns[name][row]

    def refresh(self, seconds: float = 1e9, *, fresh: bool = False) -> None:
        """Read new events for at most about `seconds` seconds; `complete` says whether all were read. With `fresh`,
        they are read even if the log was read a moment ago.
        """
        end = time.monotonic() + seconds
        while True:
            with self.lock:
                if self.complete and not fresh and time.monotonic() - self._looked < FRESH_SECONDS:
                    return
                self.complete = self._page()
                self._looked = time.monotonic()
            if self.complete or time.monotonic() > end:
                return

    def _page(self) -> bool:
        first = self.seq
        with reading(self.study.store.engine) as connection:
            where = {"study": self.study.store.find(self.study.name), "after": first, "upto": first + PAGE}
            text = connection.execute(self._query, where).scalar()
        for row in orjson.loads(text) if text else ():
            self._event(Row(*row))
        return self.seq - first < PAGE

    def _event(self, event: Row) -> None:
        means = EVENT_KINDS[event.kind]
        if means.decides:
            self._decided(event.seq, event.at, int(event.tag, 16), event.fields)
        elif event.decision in self._row_of:
            self._resolve(event)
        elif means.amends:
            self.amendments.append(Turn(event.seq, event.at, ""))
            self.study.store.spec(self.study.store.find(self.study.name), self.study.name, since=event.seq)
        elif means.stops or means.resumes:
            stated = dict(zip(_OTHERS, event.fields, strict=True))
            turns = self.stops if means.stops else self.resumes
            turns.append(Turn(event.seq, event.at, stated["rule"] or "", stated["evidence"]))
        self.seq = event.seq

    def _decided(self, seq: int, at: int, tag: int, fields: list[Any]) -> None:
        body, policy, visit = dict(zip(_DECIDED, fields, strict=True)), self._policy(seq), Visit(*fields[-4:])
        known, standing = RoundHistory.decided(body, policy), GUARANTEES[body["guarantee"]].standing
        row = {name: nan if body[path] is None else body[path] for name, path in _NUMBERS.items()}
        row |= {"seq": seq, "at": at, "tag": tag, "watched": known.watched, "status": CODE[known.status]}
        row["start"] = standing >= 0.0 and body["guarantee"] != GUARANTEES[policy.guarantee].given
        row["proved"] = standing
        for name, column in self._columns.items():
            column.append(row.get(name, nan))
        for column in self.costs.values():
            column.append(nan)
        if visit != NOT_NOTED:
            self.visits[self.rows] = visit
        if visit.unit is not None:
            self.units.setdefault(visit.unit, []).append(self.rows)
        self._row_of[seq] = self.rows
        self.rows += 1

    def _policy(self, seq: int) -> Any:
        return self.study.spec.at(seq).rules.policy

    def _resolve(self, event: Row) -> None:
        """What an event says about an earlier decision."""
        row, columns, rules = self._row_of[event.decision], self._columns, self.study.spec.at(event.decision).rules
        action, baseline, watched = (columns[name][row] for name in ("action", "baseline_cost", "watched"))
        before = RoundHistory(STATUSES[int(columns["status"][row])], action, baseline, watched > 0.0)
        known = before.after(event, dict(zip(_OTHERS, event.fields, strict=True)))
        columns["status"][row] = CODE[known.status]
        if known.values is None:
            return
        told = known.values["cost"]
        columns["applied_action"][row], columns["reward"][row] = known.applied, known.values["reward"]
        over = columns["over"][row] = is_over(rules, told)
        columns["lasting"][row] = known._replace(status="void").counts(rules)
        columns["cost"][row] = self._share(row, rules.spec.costs, told, over=over) if rules.spec.costs else told

    def _share(self, row: int, limits: Mapping[str, Cost], told: dict[str, float | None], *, over: bool) -> float:
        """Keep several costs by name. Returns the largest share of its limit; NaN if none is over and one not known."""
        for name in limits:
            column = self.costs.setdefault(name, array("d", [nan] * self.rows))
            column[row] = nan if (cost := told[name]) is None else cost
        known = {name: self.costs[name][row] for name in limits if not isnan(self.costs[name][row])}
        shares = [_share_of(limits[name], cost) for name, cost in known.items()]
        return max(shares) if over or len(known) == len(limits) else nan

    def share(self, name: str, cost: Any) -> Any:
        """One of several costs as a share of its (last) limit: 1 at the limit, more beyond it, on whichever side."""
        specs = (spec.rules.spec.costs or {} for spec in self.study.spec.chain)
        return _share_of(next(costs[name] for costs in specs if name in costs), cost)


def _share_of(limit: Cost, cost: Any) -> Any:
    return 1.0 + limit.excess(cost) / (abs(limit.threshold) or 1.0)


def _query(dialect: str) -> Any:
    """One page of a log as one JSON text; the numbers in it are those of the events, digit for digit."""
    lite = dialect == "sqlite"

    def cut(names: tuple[str, ...]) -> str:
        if lite:
            return "json_extract(body, " + ", ".join(f"'$.{name}'" for name in names) + ")"
        paths = [" -> ".join(f"'{part}'" for part in name.split(".")) for name in names]
        return "json_build_array(" + ", ".join(f"cast(body as json) -> {path}" for path in paths) + ")"

    row, page = ("json_array", "json_group_array") if lite else ("json_build_array", "json_agg")
    fields = f"CASE WHEN kind IN :decisions THEN {cut(_DECIDED)} ELSE {cut(_OTHERS)} END"
    tag = f"lower(hex(substr(hash, 1, {TAG})))" if lite else f"encode(substring(hash from 1 for {TAG}), 'hex')"
    inner = "SELECT * FROM events WHERE study_id = :study AND seq > :after AND seq <= :upto ORDER BY seq"
    words = f"SELECT cast({page}({row}(seq, kind, decision, at, {tag}, {fields})) as text) FROM ({inner}) AS page"  # noqa: S608 -- fixed
    return sa.text(words).bindparams(sa.bindparam("decisions", DECISIONS, expanding=True))
