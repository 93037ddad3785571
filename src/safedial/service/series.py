"""What the operator page shows of a study: counts, curves of a few hundred points, open outcomes by age, rows."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np

from safedial.measure import violation_interval
from safedial.service.evidence import evidence_at, log_path
from safedial.service.track import EXPIRED, KNOWN, OPEN, STATUS, THROTTLED, VOID, Track
from safedial.study.event import moment

AGES = (("under a minute", 60.0), ("under an hour", 3600.0), ("under a day", 86_400.0), ("under a week", 604_800.0))
CURVES = (
    *("round", "seq", "at", "advised", "applied", "cost", "cost_max", "violations"),
    *("rate", "rate_low", "rate_high", "reward", "best", "evidence", "evidence_round"),
)


def series(track: Track, points: int) -> dict[str, Any]:
    """Everything on a study's page, in at most `points` points a curve."""
    with track.lock:
        rules, guard = track.study.spec.rules, track.study.spec.guard
        known, over = _known(track)
        path = log_path(track)
        return {
            "name": track.study.name,
            "seq": track.seq,
            "complete": track.complete,
            "threshold": rules.spec.threshold,
            "risk": rules.spec.promised_risk,
            "promise": rules.spec.promise,
            "policy": rules.policy.name,
            "dial": rules.dial.to_dict(),
            "fallback_action": rules.fallback_action,
            "alarm_at": 1.0 / guard.alarm_level,
            "counts": counts(track, path),
            "interval": list(_interval(over.sum(), known.sum())),
            "stops": [{**stop, "at": moment(stop["at"])} for stop in track.stops[-20:]],
            "ages": ages(track),
            "curves": curves(track, points, path),
        }


def counts(track: Track, path: Any = None) -> dict[str, Any]:
    """As `Study.status` counts, from the columns."""
    with track.lock:
        status = track.column("status")
        known, over = _known(track)
        path = log_path(track) if path is None else path
        return {
            "decisions": track.rows,
            "outcomes": int(known.sum()),
            "violations": int(over.sum()),
            "open": int((status == OPEN).sum()),
            "expired": int((status == EXPIRED).sum()),
            "void": int(np.isin(status, (VOID, EXPIRED, THROTTLED)).sum()) + _withheld(track),
            "imported": track.imported,
            "evidence": None if track.study.spec.conformal else float(evidence_at(path, -1)) if len(path) else 1.0,
            "stopped": track.stopped,
        }


def _withheld(track: Track) -> int:
    """Rounds in which nothing was given though something was advised: from version 2 on they count as void."""
    rules = track.study.spec.rules
    if rules.version == 1 or track.study.spec.conformal:
        return 0
    applied = track.column("applied")[track.column("status") == KNOWN]
    return int((np.asarray(rules.dose.cost.effect(rules.dial.action(applied))) <= 0.0).sum())


def _known(track: Track) -> tuple[Any, Any]:
    """(which rounds have an outcome, which of these lie above the threshold); throttled ones from version 2 on."""
    known = np.isin(track.column("status"), (KNOWN, THROTTLED) if track.study.spec.rules_version > 1 else (KNOWN,))
    return known, known & (track.column("cost") > track.study.spec.rules.spec.threshold)


def ages(track: Track) -> list[dict[str, Any]]:
    """How many open decisions are how old."""
    now = time.time()
    waited = now - track.column("at")[track.column("status") == OPEN] / 1e6
    edges = [-math.inf, *(edge for _, edge in AGES), math.inf]
    words = [*(word for word, _ in AGES), "a week and more"]
    found = [int(((waited >= low) & (waited < high)).sum()) for low, high in itertools.pairwise(edges)]
    return [{"age": word, "open": number} for word, number in zip(words, found, strict=True)]


def curves(track: Track, points: int, path: Any) -> dict[str, Any]:
    """Curves over decisions in at most `points` bins; of each bin the mean, and the extremes where they matter."""
    if not track.rows:
        return {name: [] for name in CURVES}
    edges = np.unique(np.linspace(0, track.rows, min(points, track.rows) + 1).astype(int))
    first, last = edges[:-1], edges[1:] - 1
    known, over = _known(track)
    cost = track.column("cost")
    best = np.maximum(track.column("estimate"), 0.0) * _reward_intensity(track)
    seen, hits = np.cumsum(known)[last], np.cumsum(over)[last]
    ends = [_interval(*pair) for pair in zip(hits, seen, strict=True)]
    spots = np.unique(np.linspace(0, len(path) - 1, min(points, len(path))).astype(int))
    return {
        "round": edges[1:].tolist(),
        "seq": track.column("seq")[last].astype(int).tolist(),
        "at": [moment(int(at)) for at in track.column("at")[last]],
        "advised": plain(_means(track.column("action"), np.ones(track.rows, dtype=bool), first)),
        "applied": plain(_means(track.column("applied"), known, first)),
        "cost": plain(_means(cost, known, first)),
        "cost_max": plain(np.maximum.reduceat(np.where(known, cost, -np.inf), first)),
        "violations": np.add.reduceat(over.astype(int), first).tolist(),
        "rate": plain(np.divide(hits, seen, out=np.full(len(last), np.nan), where=seen > 0)),
        "rate_low": plain([low for low, _ in ends]),
        "rate_high": plain([high for _, high in ends]),
        "reward": plain(np.cumsum(np.where(known, track.column("reward"), 0.0))[last]),
        "best": plain(np.cumsum(np.where(known, best, 0.0))[last]),
        "evidence": plain(evidence_at(path, spots)),
        "evidence_round": (spots + 1).tolist(),
    }


def _interval(violations: Any, rounds: Any) -> tuple[float, float]:
    """A 95 % interval for the violation rate."""
    return violation_interval([int(violations)], int(rounds)) if rounds else (0.0, 1.0)


def _means(values: Any, known: Any, first: Any) -> Any:
    """The mean of each bin's known values; nan where there is none."""
    count = np.add.reduceat(known.astype(float), first)
    total = np.add.reduceat(np.where(known, values, 0.0), first)
    return np.divide(total, count, out=np.full(len(first), np.nan), where=count > 0)


def _reward_intensity(track: Track) -> Any:
    """g_r at the largest safe setting of each decision; 0 where nothing was certified."""
    rules = track.study.spec.rules
    dial, safe = rules.dial, track.column("safe_action")
    share = np.where(np.isnan(safe), 0.0, (safe - dial.low) / (dial.high - dial.low))
    return np.asarray(rules.dose.reward.effect(np.clip(share, 0.0, 1.0)))


def plain(values: Any) -> list[float | None]:
    """Six digits, and null where there is no number."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def rows_page(track: Track, before: int | None, limit: int) -> dict[str, Any]:
    """Decisions, the newest first, from the one before `before` on."""
    with track.lock:
        last = track.rows if before is None else int(np.searchsorted(track.column("seq"), before))
        first = max(0, last - limit)
        page = [_row(track, row) for row in range(last - 1, first - 1, -1)]
        return {"rows": page, "before": int(track.value("seq", first)) if first else None}


def _row(track: Track, row: int) -> dict[str, Any]:
    seq, status = int(track.value("seq", row)), STATUS[int(track.value("status", row))]
    values = {name: track.value(name, row) for name in ("action", "safe_action", "applied", "reward", "cost")}
    over = status == "known" and values["cost"] > track.study.spec.rules.spec.threshold
    return {
        "id": f"{track.study.name}.{seq}",
        "seq": seq,
        "at": moment(int(track.value("at", row))),
        **{name: None if math.isnan(value) else value for name, value in values.items()},
        "status": status,
        "violated": over,
    }
