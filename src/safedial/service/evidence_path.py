"""The monitor's evidence over time, from a study's columns: `safedial.core.monitor` for all rounds at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from safedial.core.margin import round_risk, tail_factor
from safedial.core.monitor import ODDS, Monitor, evidence
from safedial.decision.outcome import Sample, cost_at_advice, counted_from, for_the_watch
from safedial.service.timeline import EXPIRED, KNOWN, NOTHING, THROTTLED, VOID, Track


def log_path(track: Track) -> tuple[Any, Any]:
    """(seq, ln E_t(m) for each odds multiple m), one row per event that changed it; a resume restarts it.

    The last row is the evidence in `Study.status`, which counts from the start of the last phase on. HP-Conformal has
    another watch, whose evidence its decisions state.
    """
    track = track.phases[-1]
    if track.study.spec.learner.watches_itself:
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
    """How many rounds with a promise ended without an outcome that the watch can count."""
    return sum(_unwatched(part) for part in track.phases)


def _unwatched(track: Track) -> int:
    (watched, _), (_, over), spec = _watched(track), _over_threshold(track), track.study.spec
    # A learner that watches itself takes no evidence from a round that it leaves out or loses.
    hidden = over & spec.learner.watches_itself
    gone = (track.has_status(VOID, EXPIRED) & (hidden | ~over)) | (hidden & (track.column("withheld") > 0))
    return int((watched & (gone | (track.has_status(THROTTLED, *KNOWN) & _judged(track)[1]))).sum())


def _voided_excess(track: Track) -> Any:
    """Rounds that were declared void after a cost above the threshold was reported; they stay in the evidence."""
    over, rules = track.column("over") > 0, track.study.spec.rules
    for row, sample, advised in _above_advice(track):
        over[row] = rules.learner.exceeds(rules, sample, advised)
    return (track.column("status") == VOID) & over & _watched(track)[0]


def _watched(track: Track) -> tuple[Any, Any]:
    """Which decisions are watched, and the allowed risk of each, as in `decision.watch.Watch.promised`."""
    study, number = track.study.spec, track.column("number")
    watched = (track.column("watched") > 0) & (track.column("status") != NOTHING)
    allowed = np.zeros(number.shape)
    for spec in study.learner.specs(study.rules):
        risk = round_risk(spec, number)
        if not study.learner.watches_itself:
            least = tail_factor(spec, number) * spec.cost_sensor_noise
            if spec.threshold_on != "measured" and spec.cost_sensor_noise > 0.0:
                risk, least = np.minimum(2.0 * risk, 1.0), 0.0
            watched = watched & (spec.threshold - track.column("baseline_cost") >= least)
        allowed = allowed + risk
    return watched, np.minimum(allowed, 1.0)


def _judged(track: Track) -> tuple[Any, Any]:
    """By row, whether an outcome breaks the promise at the advised setting, and whether it does not tell."""
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
        if not rules.learner.watches_itself:
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
            meant = cost_at_advice(part, one, advised) if one and part.learner.judges(part, one, advised) else None
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
