"""What the operator page shows of a study: counts, curves of a few hundred points, open outcomes by age, rows."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np

from safedial.core.margin import round_risk, tail_factor
from safedial.core.monitor import LARGEST_LOG, ODDS
from safedial.service.track import EXPIRED, KNOWN, NOTHING, OPEN, STATUS, THROTTLED, VOID, Track
from safedial.study.event import moment

AGES = (("under a minute", 60.0), ("under an hour", 3600.0), ("under a day", 86_400.0), ("under a week", 604_800.0))


def series(track: Track, points: int) -> dict[str, Any]:
    """Everything on a study's page, in at most `points` points a curve."""
    with track.lock:
        rules, guard = track.study.spec.rules, track.study.spec.guard
        known, over = _known(track)
        path = evidence_path(track)
        return {
            "name": track.study.name,
            "seq": track.seq,
            "threshold": rules.spec.threshold,
            "risk": promised_risk(track),
            "promise": rules.spec.promise,
            "policy": rules.policy.name,
            "dial": rules.dial.to_dict(),
            "fallback_action": rules.fallback_action,
            "alarm_at": 1.0 / guard.alarm_level,
            "counts": counts(track, path),
            "interval": list(interval(int(over.sum()), int(known.sum()))),
            "stops": [{**stop, "at": moment(stop["at"])} for stop in track.stops[-20:]],
            "ages": ages(track),
            "curves": curves(track, points, path),
        }


def counts(track: Track, path: Any = None) -> dict[str, Any]:
    """As `Study.status` counts, from the columns."""
    status = track.column("status")
    known, over = _known(track)
    path = evidence_path(track) if path is None else path
    return {
        "decisions": track.rows,
        "outcomes": int(known.sum()),
        "violations": int(over.sum()),
        "open": int((status == OPEN).sum()),
        "expired": int((status == EXPIRED).sum()),
        "void": int(np.isin(status, (VOID, EXPIRED, THROTTLED)).sum() + track.late),
        "imported": track.imported,
        "evidence": None if track.study.spec.conformal else float(path[-1]) if len(path) else 1.0,
        "stopped": track.stopped,
    }


def promised_risk(track: Track) -> float:
    """The chance of a violation in one round that the promise allows."""
    spec = track.study.spec.rules.spec
    return spec.violation_risk + (0.0 if track.study.spec.conformal else spec.estimation_risk)


def interval(violations: int, rounds: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a rate.

    >>> [round(end, 3) for end in interval(5, 100)]
    [0.022, 0.112]
    """
    from scipy.special import ndtri

    if rounds == 0:
        return 0.0, 1.0
    q, rate = float(ndtri(0.5 + level / 2)), violations / rounds
    centre = (rate + q * q / (2 * rounds)) / (1 + q * q / rounds)
    half = q * math.sqrt(rate * (1 - rate) / rounds + q * q / (4 * rounds**2)) / (1 + q * q / rounds)
    return max(0.0, centre - half) if violations else 0.0, min(1.0, centre + half) if violations < rounds else 1.0


def evidence_path(track: Track) -> Any:
    """The monitor's evidence after each round that it counted: `safedial.core.monitor` for all rounds at once.

    Rounds count in the order in which the model learned from them; `resume` starts anew.
    """
    spec, study = track.study.spec.rules.spec, track.study.spec
    if study.conformal:
        return np.empty(0)
    learned = _learned_at(track)
    watched = (track.column("watched") > 0) & (track.column("applied") <= track.column("action")) & np.isfinite(learned)
    number, cost = track.column("number")[watched], track.column("cost")[watched]
    margin = np.broadcast_to(tail_factor(spec, number), number.shape) * spec.cost_sensor_noise
    risk = np.broadcast_to(round_risk(spec, number), number.shape)
    if spec.threshold_on != "measured" and spec.cost_sensor_noise > 0.0:
        hit, risk = cost > spec.threshold + margin, np.minimum(2.0 * risk, 0.5)
    else:
        hit = cost > spec.threshold
    gain = hit[:, None] * np.log(ODDS) - np.log1p(risk[:, None] * (ODDS - 1.0))
    order = np.argsort(learned[watched], kind="stable")
    gain, when = gain[order], learned[watched][order]
    log = np.cumsum(gain, axis=0)
    for seq in track.resumes:
        first = int(np.searchsorted(when, seq))
        log[first:] -= log[first - 1] if first else 0.0
    peak = log.max(axis=1, initial=-np.inf) if len(log) else np.empty(0)
    path = np.exp(np.minimum(peak, LARGEST_LOG)) * np.mean(np.exp(log - peak[:, None]), axis=1)
    reset = bool(track.resumes) and (not len(when) or when[-1] < track.resumes[-1])
    return np.append(path, 1.0) if reset else path


def _learned_at(track: Track) -> Any:
    """The seq at which each round's outcome reached the model; infinite where it has not, or never will."""
    status, resolved = track.column("status"), track.column("resolved").copy()
    resolved[np.isnan(resolved)] = np.inf
    if track.study.spec.ordered:
        stands = np.where(track.column("blocked") > 0, np.inf, resolved)
        stands[status == NOTHING] = 0.0
        resolved = np.maximum.accumulate(stands) if track.rows else stands
    return np.where(status == KNOWN, resolved, np.inf)


def _known(track: Track) -> tuple[Any, Any]:
    known = track.column("status") == KNOWN
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
    rows = track.rows
    edges = np.unique(np.linspace(0, rows, min(points, rows) + 1).astype(int)) if rows else np.zeros(1, dtype=int)
    known, over = _known(track)
    cost, reward = (np.where(known, track.column(name), np.nan) for name in ("cost", "reward"))
    best = np.where(known, np.maximum(track.column("estimate"), 0.0) * _reward_intensity(track), np.nan)
    seen, hits = np.cumsum(known), np.cumsum(over)
    last = edges[1:] - 1
    intervals = [interval(int(hits[row]), int(seen[row])) for row in last]
    rate = np.divide(hits[last], seen[last], out=np.full(len(last), np.nan), where=seen[last] > 0)
    spots = np.unique(np.linspace(0, len(path) - 1, min(points, len(path))).astype(int))
    return {
        "round": edges[1:].tolist(),
        "seq": track.column("seq")[last].astype(int).tolist(),
        "at": [moment(int(at)) for at in track.column("at")[last]],
        "advised": plain(_bins(track.column("action"), edges, np.nanmean)),
        "applied": plain(_bins(np.where(known, track.column("applied"), np.nan), edges, np.nanmean)),
        "cost": plain(_bins(cost, edges, np.nanmean)),
        "cost_max": plain(_bins(cost, edges, np.nanmax)),
        "violations": _bins(over.astype(float), edges, np.nansum).astype(int).tolist(),
        "rate": plain(rate),
        "rate_low": plain(np.array([low for low, _ in intervals])),
        "rate_high": plain(np.array([high for _, high in intervals])),
        "reward": plain(np.nancumsum(reward)[last] if rows else np.empty(0)),
        "best": plain(np.nancumsum(best)[last] if rows else np.empty(0)),
        "evidence": plain(path[spots]),
        "evidence_round": (spots + 1).tolist(),
    }


def _reward_intensity(track: Track) -> Any:
    """g_r at the largest safe setting of each decision; 0 where nothing was certified."""
    rules = track.study.spec.rules
    safe = track.column("safe_action")
    share = np.clip(np.where(np.isnan(safe), 0.0, rules.dial.action(np.nan_to_num(safe))), 0.0, 1.0)
    return np.asarray(rules.dose.reward.effect(share))


def _bins(values: Any, edges: Any, reduce: Any) -> Any:
    """One number a bin; nan where a bin holds none."""
    parts = (values[low:high] for low, high in itertools.pairwise(edges))
    return np.array([np.nan if np.isnan(part).all() else float(reduce(part)) for part in parts])


def plain(values: Any) -> list[float | None]:
    """Six digits, and null where there is no number."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in np.asarray(values, dtype=float)]


def rows_page(track: Track, before: int | None, limit: int) -> dict[str, Any]:
    """Decisions, the newest first, from the one before `before` on."""
    with track.lock:
        last = track.rows if before is None else int(np.searchsorted(track.column("seq"), before))
        first = max(0, last - limit)
        threshold = track.study.spec.rules.spec.threshold
        page = [_row(track, row, threshold) for row in range(last - 1, first - 1, -1)]
        return {"rows": page, "before": int(track.column("seq")[first]) if first else None}


def _row(track: Track, row: int, threshold: float) -> dict[str, Any]:
    seq = int(track.column("seq")[row])
    status = STATUS[track.column("status")[row]]
    numbers = {
        name: None if math.isnan(track.column(name)[row]) else float(track.column(name)[row])
        for name in ("action", "safe_action", "applied", "reward", "cost")
    }
    over = numbers["cost"] is not None and status == "known" and numbers["cost"] > threshold
    at = moment(int(track.column("at")[row]))
    return {"id": f"{track.study.name}.{seq}", "seq": seq, "at": at, **numbers, "status": status, "violated": over}
