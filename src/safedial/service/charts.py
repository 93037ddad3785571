"""The data of the operator page: counts, curves of a few hundred points, open outcomes by age, rows by unit."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from safedial.model.costs import thresholds
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.decision import proposal_answer
from safedial.rounds.outcome import STATUSES
from safedial.service.timeline import CODE, NOT_NOTED, OPEN, Track, Turn
from safedial.study.answer import id_of
from safedial.study.event import moment
from safedial.study.export import share_interval, unit_counts, unknown_unit, unknown_visit
from safedial.study.reducer import TAG
from safedial.study.requests import as_label
from safedial.study.state import HOUR

LATEST = 2.5e17
"""In the year 9892, in microseconds."""
AGES = (("under a minute", 60.0), ("under an hour", 3600.0), ("under a day", 86_400.0), ("under a week", 604_800.0))
COUNTS = (
    *("decisions", "outcomes", "violations", "open", "expired", "void", "imported", "evidence", "stop_reason"),
    *("resumes", "unwatched", "oldest_open", "overdue", "overdue_since", "waits_for", "waiting", "frozen"),
)
"""What the page shows of a study's status."""

CURVES = (
    *("round", "seq", "at", "proposed", "advised", "applied", "cost", "cost_max", "violations", "costs"),
    *("rate", "rate_low", "rate_high", "reward", "expected", "best", "evidence"),
)


def series(track: Track, points: int) -> dict[str, Any]:
    """Everything on a study's page, with at most `points` points per curve."""
    status = track.study.status()
    with track.lock:
        rules, guard, began = track.study.spec.rules, track.study.spec.guard, track.study.spec.began
        known, over = track.judged
        return {
            "name": track.study.name,
            "seq": track.seq,
            "complete": track.complete,
            "threshold": rules.spec.threshold,
            "limits": _phase_limits(track),
            "below": rules.policy.options.get("direction") == "below",
            "costs": _limits(rules),
            "risk": rules.spec.guaranteed_risk,
            "guarantee": rules.spec.guarantee,
            "proved": _proved(track),
            "policy": rules.policy.name,
            "reads_reward": rules.policy.reads_reward,
            "dial": rules.dial.to_dict(),
            "fallback_action": rules.fallback_action,
            "labels": track.study.spec.fields.get("labels", {}),
            "due_after": guard.deadline,
            "stops_after": guard.max_open_hours,
            "units": dict(rules.features.units or {}) if rules.features else {},
            "alarm_at": 1.0 / guard.alarm_level if rules.policy.counts else 100.0,
            "counts": counts(track, status),
            "interval": list(share_interval(over.sum(), known.sum())),
            "stops": [_turn(stop) for stop in track.stops[-20:]],
            "resumes": [_turn(resume) for resume in track.resumes[-20:]],
            "guaranteed_since": next((moment(one.at) for one in track.amendments if one.seq == began), None),
            "amendments": [_turn(amendment) for amendment in track.amendments[-20:]],
            "ages": ages(track),
            "curves": curves(track, points),
        }


def _proved(track: Track) -> str:
    """Which decisions have a proved guarantee: the "latest" of those that claim one, an "earlier" one, or "none".
    Before the first of them, what that one will have without outcomes.
    """
    rules, proved = track.study.spec.rules, track.column("proved")
    claimed = proved[np.isfinite(proved)]
    if not len(claimed):
        start = GUARANTEES[rules.spec.guarantee].start if rules.start_action is None else "declared"
        claimed = np.array([GUARANTEES[start].standing])
    return "latest" if claimed[-1] else "earlier" if claimed.any() else "none"


def _phase_limits(track: Track) -> list[dict[str, Any]]:
    """Each threshold, and the number of the event after which it holds."""
    specs = list(track.study.spec.chain)[::-1]
    found = [{"after": spec.since, "threshold": spec.rules.spec.threshold} for spec in specs]
    return [each for n, each in enumerate(found) if not n or each["threshold"] != found[n - 1]["threshold"]]


def _limits(rules: Any) -> dict[str, Any] | None:
    """The limits of several costs, by name."""
    several = rules.spec.costs
    return several and {
        name: {"threshold": cost.threshold, "below": cost.direction == "below", "unit": cost.unit}
        for name, cost in several.items()
    }


def counts(track: Track, status: dict[str, Any]) -> dict[str, Any]:
    """The counts of `Study.status`, and how many of the latest decisions were given the start, since when."""
    start = track.column("start") > 0
    since = int(np.argmin(np.append(start[::-1], False)))
    begun = moment(int(track.value("at", track.rows - since))) if since else None
    return {name: status[name] for name in COUNTS} | {"at_start": since, "at_start_since": begun}


def _turn(turn: Turn) -> dict[str, Any]:
    return {**turn._asdict(), "at": moment(turn.at)}


def ages(track: Track) -> list[dict[str, Any]]:
    """The number of open decisions by age."""
    now = time.time()
    waited = now - track.column("at")[track.column("status") == OPEN] / 1e6
    edges = [-math.inf, *(edge for _, edge in AGES), math.inf]
    words = [*(word for word, _ in AGES), "a week and more"]
    found = [int(((waited >= low) & (waited < high)).sum()) for low, high in itertools.pairwise(edges)]
    return [{"age": word, "open": number} for word, number in zip(words, found, strict=True)]


def curves(track: Track, points: int) -> dict[str, Any]:
    """Curves over decisions in at most `points` bins: the mean of each bin, and the extremes if they matter."""
    if not track.rows:
        return {**{name: [] for name in CURVES}, "costs": {name: [] for name in track.costs}}
    edges = np.unique(np.linspace(0, track.rows, min(points, track.rows) + 1).astype(int))
    first, last = edges[:-1], edges[1:] - 1
    known, over = track.judged
    cost, proposal, earned = (
        track.column("cost"),
        track.column("proposal"),
        track.has_status(CODE["known"], CODE["corrected"]),
    )
    side = -1.0 if track.study.spec.rules.policy.options.get("direction") == "below" else 1.0  # the worst cost
    expected = track.column("estimate") * _reward_intensity(track, "applied_action")
    best = np.maximum(track.column("estimate"), 0.0) * _reward_intensity(track, "safe_action")
    seen, hits = np.cumsum(known)[last], np.cumsum(over)[last]
    ends = [share_interval(*pair) for pair in zip(hits, seen, strict=True)]
    return {
        "round": edges[1:].tolist(),
        "seq": track.column("seq")[last].astype(int).tolist(),
        "at": [moment(int(at)) for at in track.column("at")[last]],
        "proposed": plain(_means(proposal, np.isfinite(proposal), first)),
        "advised": plain(_means(track.column("action"), np.ones(track.rows, dtype=bool), first)),
        "applied": plain(_means(track.column("applied_action"), earned, first)),
        "cost": plain(_means(cost, known, first)),
        "cost_max": _worst(cost, known, first, side),
        "costs": {name: _worst(track.share(name, np.array(each)), known, first) for name, each in track.costs.items()},
        "violations": np.add.reduceat(over.astype(int), first).tolist(),
        "rate": plain(np.divide(hits, seen, out=np.full(len(last), np.nan), where=seen > 0)),
        "rate_low": plain([low for low, _ in ends]),
        "rate_high": plain([high for _, high in ends]),
        "reward": plain(np.cumsum(np.where(earned, track.column("reward"), 0.0))[last]),
        "expected": plain(np.cumsum(np.where(earned, expected, 0.0))[last]),
        "best": plain(np.cumsum(np.where(earned, best, 0.0))[last]),
        "evidence": plain(track.column("evidence")[last]),
    }


def _means(values: Any, known: Any, first: Any) -> Any:
    """The mean of each bin's known values; nan if there is none."""
    count = np.add.reduceat(known.astype(float), first)
    total = np.add.reduceat(np.where(known, values, 0.0), first)
    return np.divide(total, count, out=np.full(len(first), np.nan), where=count > 0)


def _worst(values: Any, known: Any, first: Any, side: float = 1.0) -> list[float | None]:
    """The largest of each bin's known values; with side −1 the smallest."""
    seen = known & np.isfinite(values)
    return plain(side * np.maximum.reduceat(np.where(seen, side * values, -np.inf), first))


def _reward_intensity(track: Track, name: str) -> Any:
    """g_r at a setting of each decision; 0 if there is none."""
    setting, seq = track.column(name), track.column("seq")
    found = np.empty(track.rows)
    for spec in track.study.spec.chain:  # the latest first; each holds for the decisions after it
        here, dial = seq > spec.since, spec.rules.dial
        share = np.where(np.isnan(setting[here]), 0.0, (setting[here] - dial.low) / (dial.high - dial.low))
        found[here] = spec.rules.dose.reward.effect(np.clip(share, 0.0, 1.0))
        seq = np.where(here, -1.0, seq)
    return found


def plain(values: Any) -> list[float | None]:
    """Six digits, and null if there is no number."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def shown_row(track: Track, row: int) -> dict[str, Any]:
    """A decision with its outcome, as the page and the API show it."""
    tag = int(track.value("tag", row)).to_bytes(TAG, "big")
    seq, status = int(track.value("seq", row)), STATUSES[int(track.value("status", row))]
    names = ("action", "safe_action", "proposal", "applied_action", "reward", "cost")
    values = {name: track.value(name, row) for name in names}
    shown = {name: None if math.isnan(value) else value for name, value in values.items()}
    over = status in ("known", "corrected", "throttled") and bool(track.value("over", row))
    noted = track.visits.get(row, NOT_NOTED)
    return {
        "id": str(id_of(track.study.name, seq, tag)),
        "seq": seq,
        **noted._asdict(),
        "meta": noted.meta or {},
        "at": moment(int(track.value("at", row))),
        **shown,
        "proposal_answer": proposal_answer(shown["proposal"], values["action"]) or None,
        **_costs(track, row),
        "status": status,
        "due_at": _due_at(track, row),
        "violated": over,
    }


def _due_at(track: Track, row: int) -> str | None:
    """When an open outcome is due, where the study states it and a calendar holds it."""
    hours = track.study.spec.at(int(track.value("seq", row))).guard.deadline
    if hours is None or track.value("status", row) != OPEN:
        return None
    due = track.value("at", row) + hours * HOUR
    return moment(int(due)) if due < LATEST else None


def _costs(track: Track, row: int) -> dict[str, Any]:
    """Several costs of a row, by name, None where one is not known."""
    named = thresholds(track.study.spec.at(int(track.value("seq", row))).rules.spec)
    told = {name: float(track.costs[name][row]) for name in named if name in track.costs}
    several = {name: None if math.isnan(cost) else cost for name, cost in told.items()}
    return {"cost": several if any(cost is not None for cost in several.values()) else None} if several else {}


# --- Decisions by unit and visit, for the operator page and the API, from a study's columns

LONGEST_COURSE = 500
"""The most decisions in a unit's course, the latest ones."""


class Wanted(NamedTuple):
    """Which decisions a query asks for."""

    search: str = ""
    unit: str | None = None
    visit: str | None = None
    overdue: bool = False


def rows_page(track: Track, before: int | None, limit: int, wanted: Wanted) -> dict[str, Any]:
    """Decisions before `before`, newest first, that a query asks for."""
    with track.lock:
        last = track.rows if before is None else int(np.searchsorted(track.column("seq"), before))
        found = (row for row in _matching(track, wanted) if row < last)
        rows = list(itertools.islice(found, limit))
        more = len(rows) == limit and rows[-1] > 0
        return {
            "rows": [shown_row(track, row) for row in rows],
            "before": int(track.value("seq", rows[-1])) if more else None,
        }


def _matching(track: Track, wanted: Wanted) -> Iterable[int]:
    """The rows that a query asks for, the latest first."""
    rows: Iterable[int] = range(track.rows - 1, -1, -1)
    if wanted.unit is not None:
        rows = reversed(_of_unit(track, wanted.unit))
    if wanted.visit is not None:
        rows = [row for row in rows if track.visits.get(row, NOT_NOTED).visit == as_label(wanted.visit)]
        if not rows:
            raise unknown_visit(wanted.visit, wanted.unit)
    if wanted.overdue:
        late = track.late()
        rows = [row for row in rows if late[row]]
    if not wanted.search:
        return rows
    return (row for row in rows if _matches(track, row, wanted.search.lower()))


def _matches(track: Track, row: int, words: str) -> bool:
    noted = track.visits.get(row, NOT_NOTED)
    texts = (*(noted.key or "", noted.unit or "", noted.visit or ""), *_pairs(noted.meta or {}))
    return words == str(int(track.value("seq", row))) or any(words in each.lower() for each in texts)


def _pairs(meta: dict[str, Any]) -> list[str]:
    return [f"{name} {value}" for name, value in meta.items()]


def _of_unit(track: Track, unit: str) -> list[int]:
    if (name := as_label(unit)) not in track.units:
        raise unknown_unit(unit)
    return track.units[name]


def units_page(track: Track, after: int, limit: int, search: str = "") -> dict[str, Any]:
    """Units with their counts, in the order of their first decisions; those whose labels contain `search`."""
    with track.lock:
        known, over = track.judged
        fits = (item for item in track.units.items() if search.lower() in item[0].lower())
        some = list(itertools.islice(fits, after, after + limit + 1))
        rows = [{"unit": unit, **_counts(rows, known, over)} for unit, rows in some[:limit]]
        return {"units": rows, "after": after + limit if len(some) > limit else None}


def unit_page(track: Track, unit: str) -> dict[str, Any]:
    """One unit: its counts and its course."""
    with track.lock:
        rows = _of_unit(track, unit)
        told = {"unit": unit, **_counts(rows, *track.judged)}
        told["course"] = [shown_row(track, row) for row in rows[-LONGEST_COURSE:]]
    return told


def _counts(rows: list[int], known: Any, over: Any) -> dict[str, Any]:
    return unit_counts(len(rows), int(known[rows].sum()), int(over[rows].sum()))
