"""A study's history as columns, for the operator page: read from the log page by page, never through the writer.

The database extracts the few numbers needed from each event and returns a whole page of them as one JSON text, so a
page costs the serving process one call and a few milliseconds, however busy its writer is.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from array import array
from collections.abc import Iterator, Mapping
from math import isnan, nan
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.margin import round_risk, tail_factor
from safedial.bounds.monitor import ODDS, Monitor, evidence
from safedial.model.costs import Cost
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.outcome import (
    STATUSES,
    Sample,
    cost_at_advice,
    counted_from,
    exceeds,
    for_the_watch,
    is_over,
    judges,
    next_status,
)
from safedial.study.database import reading, sa
from safedial.study.event import DECISIONS, EVENT_KINDS, RoundHistory, orjson, waits
from safedial.study.reducer import TAG
from safedial.study.state import HOUR
from safedial.study.study import Study
from safedial.study.study_spec import StudySpec

PAGE = 4_000
FRESH_SECONDS = 0.5
"""Seconds until the log is read again."""

CODE = {status: number for number, status in enumerate(STATUSES)}
OPEN, VOID, EXPIRED, NOTHING, THROTTLED = (
    CODE[status] for status in ("open", "void", "expired", "nothing given", "throttled")
)
KNOWN = (CODE["known"], CODE["corrected"])

COLUMNS = (
    *("seq", "at", "tag", "action", "safe_action", "estimate", "number", "baseline_cost", "evidence", "proposal"),
    *("watched", "start", "proved"),
    *("applied_action", "reward", "cost", "over", "resolved", "status", "withheld", "blocked"),
)
_DECIDED = (
    *("action", "safe_action", "numbers.reward", "round", "baseline_cost", "evidence", "proposal"),
    *("intensity", "fallback_reason", "guarantee", "limiter", "key", "meta", "unit", "visit"),
)
_OTHERS = ("reward", "cost", "applied_action", "throttled", "unrelated", "rule", "evidence", "keep_learning")


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
    """The columns of one study, its visits by row, the rows of each unit, its guard's alarms, and its amendments; the
    model has learned from row `learned_from` on. `refresh` may be called from any thread.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.seq = self.rows = 0
        self.complete = False
        self.stops: list[Turn] = []
        self.resumes: list[Turn] = []
        self.amendments: list[Turn] = []
        self.learned_from = 0
        self.stop_reason = ""
        self.visits: dict[int, Visit] = {}
        self.units: dict[str, list[int]] = {}
        self.imported = 0
        self.lock = threading.RLock()
        self._columns = {name: array("d") for name in COLUMNS}
        self.costs = {name: array("d") for spec in study.spec.chain for name in spec.rules.spec.costs or ()}
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
    def overdue(self) -> NDArray[np.bool_]:
        """By row, whether the outcome has expired and the model waits for it."""
        return self.has_status(EXPIRED) & (self.column("blocked") > 0)

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
        elif means.imports:
            self.imported += 1
        elif means.amends:
            stated, study = dict(zip(_OTHERS, event.fields, strict=True)), self.study
            self.learned_from = self.learned_from if stated["keep_learning"] else self.rows
            self.amendments.append(Turn(event.seq, event.at, ""))
            study.store.spec(study.store.find(study.name), study.name, since=event.seq)
            for name in (name for spec in study.spec.chain for name in spec.rules.spec.costs or ()):
                self.costs.setdefault(name, array("d", [nan] * self.rows))
        elif means.stops or means.resumes:
            stated = dict(zip(_OTHERS, event.fields, strict=True))
            turns = self.stops if means.stops else self.resumes
            self.stop_reason = stated["rule"] if means.stops else ""
            turns.append(Turn(event.seq, event.at, stated["rule"] or "", stated["evidence"]))
        self.seq = event.seq

    def _decided(self, seq: int, at: int, tag: int, fields: list[Any]) -> None:
        *numbers, intensity, fallback_reason, guarantee, limiter = fields[:-4]
        visit = Visit(*fields[-4:])
        said, policy = GUARANTEES[guarantee], self.study.spec.at(seq).rules.policy
        watched = not fallback_reason and said.claimed
        start = watched and (said.from_constants or not said.proved) and not policy.counts
        proved = float(said.proved) if said.claimed else nan
        given = waits({"intensity": intensity, "limiter": limiter}, policy.zero_tells)
        known = (seq, at, tag, *(nan if number is None else number for number in numbers), watched, start, proved)
        unknown = (nan, nan, nan, False, nan, CODE[next_status("", "open", given=given)], False, False)
        for column, value in zip(self._columns.values(), (*known, *unknown), strict=True):
            column.append(value)
        for column in self.costs.values():
            column.append(nan)
        if visit != NOT_NOTED:
            self.visits[self.rows] = visit
        if visit.unit is not None:
            self.units.setdefault(visit.unit, []).append(self.rows)
        self._row_of[seq] = self.rows
        self.rows += 1

    def _resolve(self, event: Row) -> None:
        """What an event says about an earlier decision."""
        row, columns, spec = self._row_of[event.decision], self._columns, self.study.spec.at(event.decision)
        before = RoundHistory(STATUSES[int(columns["status"][row])], columns["action"][row])
        known = before.after(event, dict(zip(_OTHERS, event.fields, strict=True)))
        columns["status"][row] = CODE[known.status]
        withheld, lost = False, not known.unrelated
        if known.values:
            applied = columns["applied_action"][row] = known.applied
            told = known.values["cost"]
            over = columns["over"][row] = is_over(spec.rules, told)
            columns["reward"][row] = known.values["reward"]
            several = spec.rules.spec.costs
            columns["cost"][row] = self._share(row, several, told, over=over) if several else told
            partial = bool(several) and None in told.values()
            nothing = CODE[known.status] in KNOWN and (applied <= spec.rules.dial.low or partial)
            withheld = nothing and bool(known.unrelated or not spec.rules.policy.zero_tells)
            lost = bool(known.values["throttled"]) or (withheld and lost)
        columns["withheld"][row], columns["blocked"][row] = withheld, lost
        if not (known.status == "expired" and lost) and isnan(columns["resolved"][row]):
            columns["resolved"][row] = event.seq

    def _share(self, row: int, limits: Mapping[str, Cost], told: dict[str, float | None], *, over: bool) -> float:
        """Keep several costs by name. Returns the largest share of its limit; NaN if none is over and one not known."""
        for name in limits:
            self.costs[name][row] = nan if (cost := told[name]) is None else cost
        known = {name: self.costs[name][row] for name in limits if not isnan(self.costs[name][row])}
        shares = [_share_of(limits[name], cost) for name, cost in known.items()]
        return max(shares) if over or len(known) == len(limits) else nan

    def share(self, name: str, cost: Any) -> Any:
        """One of several costs as a share of its (last) limit: 1 at the limit, more beyond it, on whichever side."""
        specs = (spec.rules.spec.costs or {} for spec in self.study.spec.chain)
        return _share_of(next(costs[name] for costs in specs if name in costs), cost)

    @property
    def phases(self) -> list[Track]:
        """The columns of each phase, with its specification; this track if there is only one."""
        specs = self.study.spec.phases
        if len(specs) == 1:
            return [self]
        ends = [*np.searchsorted(self.column("seq"), [spec.began for spec in specs]), self.rows]
        return [self._part(spec, *rows) for spec, rows in zip(specs, itertools.pairwise(ends), strict=True)]

    def _part(self, spec: StudySpec, first: int, end: int) -> Track:
        part = copy.copy(self)
        part.study, part.rows = cast("Study", SimpleNamespace(spec=spec)), end - first
        part._columns = {name: column[first:end] for name, column in self._columns.items()}
        part.costs = {name: self.costs[name][first:end] for name in spec.rules.spec.costs or ()}
        return part


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


# --- The monitor's evidence over time, from a study's columns


def log_path(track: Track) -> tuple[Any, Any]:
    """(seq, ln E_t(m) for each odds multiple m), one row per event that changed it; a resume restarts it.

    The last row is the evidence in `Study.status`, which counts from the start of the last phase on. A policy
    that watches its own assumptions has another, which its decisions state.
    """
    track = track.phases[-1]
    if not track.study.spec.rules.policy.counts:
        return np.empty(0), np.empty((0, len(ODDS)))
    resumes = [turn.seq for turn in track.resumes if turn.rule == "alarm"]
    when, gain = _gains(track, resumes)
    order = np.argsort(when, kind="stable")
    when, path = when[order], np.cumsum(gain[order], axis=0)
    for seq in resumes:
        first = int(np.searchsorted(when, seq))
        path[first:] -= path[first - 1].copy() if first else 0.0
    if resumes and (not len(when) or when[-1] < resumes[-1]):
        return np.append(when, resumes[-1]), np.vstack([path, np.zeros(len(ODDS))])
    return when, path


def evidence_at(path: Any, spots: Any) -> Any:
    """The evidence after some of the events of a path."""
    return evidence(Monitor(path[spots], 0.0, 0.0)) if len(path) else np.empty(0)


def over_threshold(track: Track) -> tuple[Any, Any]:
    """Which decisions have an outcome that counts, and which of these exceeded the threshold.

    Throttled outcomes count too: a cost above the threshold despite the throttle is an excess.
    """
    parts = [_over_threshold(part) for part in track.phases]
    return np.concatenate([known for known, _ in parts]), np.concatenate([over for _, over in parts])


def _over_threshold(track: Track) -> tuple[Any, Any]:
    status, high = track.column("status"), track.column("over") > 0
    known = track.has_status(*KNOWN) | (status == THROTTLED) | _voided_excess(track)
    return known, known & high


def unwatched(track: Track) -> int:
    """How many rounds with a guarantee ended without an outcome that the watch can count."""
    return sum(_unwatched(part) for part in track.phases)


def _unwatched(track: Track) -> int:
    (watched, _), (_, over), spec = _watched(track), _over_threshold(track), track.study.spec
    # A policy with evidence of its own takes none from a round that it leaves out or loses.
    hidden = over & (not spec.rules.policy.counts)
    gone = (track.has_status(VOID, EXPIRED) & (hidden | ~over)) | (hidden & (track.column("withheld") > 0))
    return int((watched & (gone | (track.has_status(THROTTLED, *KNOWN) & _judged(track)[1]))).sum())


def _voided_excess(track: Track) -> Any:
    """Rounds that were declared void after a cost above the threshold was reported; they stay in the evidence."""
    over, rules = track.column("over") > 0, track.study.spec.rules
    for row, sample, advised in _above_advice(track):
        over[row] = exceeds(rules, sample, advised)
    return (track.column("status") == VOID) & over & _watched(track)[0]


def _watched(track: Track) -> tuple[Any, Any]:
    """Which decisions are watched, and the allowed risk of each, as in `rounds.watch.Watch.guaranteed`."""
    study, number = track.study.spec, track.column("number")
    watched = (track.column("watched") > 0) & (track.column("status") != NOTHING)
    allowed = np.zeros(number.shape)
    counts, parts = study.rules.policy.counts, study.rules.parts
    for spec in [study.rules.spec] if parts is None else [part.spec for part in parts.values()]:
        risk = round_risk(spec, number)
        if counts:
            least = tail_factor(spec, number) * spec.cost_sensor_noise
            if spec.threshold_on != "measured" and spec.cost_sensor_noise > 0.0:
                risk, least = np.minimum(2.0 * risk, 1.0), 0.0
            watched = watched & (spec.threshold - track.column("baseline_cost") >= least)
        allowed = allowed + risk
    return watched, np.minimum(allowed, 1.0)


def _judged(track: Track) -> tuple[Any, Any]:
    """By row, whether an outcome breaks the guarantee at the advised setting, and whether it does not tell."""
    number: Any = track.column("number")
    throttled = track.column("status") == THROTTLED
    below = track.column("applied_action") <= track.column("action")
    over, silent = np.zeros((2, track.rows), dtype=bool)
    for rules, costs in _costs_at_advice(track):
        # A throttled cost counts if it exceeds in spite of that, and not because of sensor error.
        spec, high = rules.spec, track.column("over") > 0
        if track.study.spec.rules.parts:
            high = costs > spec.threshold
        sensors = spec.threshold_on == "measured" and spec.cost_sensor_noise > 0.0
        costs = np.where(throttled & ~(high & below & (not sensors)), np.nan, costs)
        silent |= np.isnan(costs)
        if rules.policy.counts:
            over |= costs > counted_from(spec, number)
        else:  # one excess in spite of the throttle tells, whatever the other costs are
            over |= throttled & ~np.isnan(costs)
    return over, silent & ~over


def _costs_at_advice(track: Track) -> list[tuple[Any, Any]]:
    """The rules and the measured costs of each cost; if more was applied than advised, costs at the advised setting."""
    rules = track.study.spec.rules
    parts = {name: (part, np.array(track.costs[name])) for name, part in (rules.parts or {}).items()}
    parts = parts or {"": (rules, track.column("cost"))}
    for row, sample, advised in _above_advice(track):
        for name, (part, costs) in parts.items():
            one = sample.cost.get(name) if name else sample
            meant = cost_at_advice(part, one, advised) if one and judges(part, one, advised) else None
            costs[row] = np.nan if meant is None else meant
    return list(parts.values())


def _above_advice(track: Track) -> Iterator[tuple[int, Sample, float]]:
    """The rounds for which more was applied than advised, as samples for the watch, with their advice."""
    cost, applied, action, baseline = (
        track.column(name) for name in ("cost", "applied_action", "action", "baseline_cost")
    )
    rules = track.study.spec.rules
    names = rules.spec.costs or ()
    for row in np.flatnonzero(applied > action):
        told = {name: track.costs[name][row] for name in names} if names else cost[row]
        yield int(row), for_the_watch(rules, applied[row], told, baseline[row]), action[row]


def _gains(track: Track, resumes: list[int]) -> tuple[Any, Any]:
    """A decision counts as kept when it is made, and is revised when an excess is reported.

    Rounds that were open at a resume after an alarm are no longer revised.
    """
    watched, risk = _watched(track)
    seq, told = track.column("seq"), track.column("resolved")
    told_of = track.has_status(*KNOWN, THROTTLED) | _voided_excess(track)
    over = watched & told_of & _judged(track)[0]
    over &= np.searchsorted(resumes, seq) == np.searchsorted(resumes, np.nan_to_num(told))
    kept = -np.log1p(risk[watched, None] * (ODDS - 1.0))
    revised = np.broadcast_to(np.log(ODDS), (int(over.sum()), len(ODDS)))
    return np.concatenate([seq[watched], told[over]]), np.concatenate([kept, revised])
