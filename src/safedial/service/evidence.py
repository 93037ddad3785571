"""The monitor's evidence over time, from a study's columns: `safedial.core.monitor` for all rounds at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core.margin import round_risk, tail_factor
from safedial.core.monitor import ODDS, Monitor, evidence
from safedial.online.outcome import RESCALING
from safedial.service.track import EXPIRED, KNOWN, NOTHING, THROTTLED, Track


def log_path(track: Track) -> Any:
    """ln E_t(m) for each odds multiple m, one row a round that the monitor counts; the last one is `Study.status`'s.

    From version 2 of the rules on: in decision order, with outcomes as they are known now. In version 1: in the order
    in which the model learned from the rounds.
    """
    if track.study.spec.conformal:
        return np.empty((0, len(ODDS)))
    now = track.study.spec.rules_version > 1
    return _path_in_order_of_decisions(track) if now else _path_in_order_of_learning(track)


def _path_in_order_of_decisions(track: Track) -> Any:
    """Each watched round counts from its decision on: as kept, until its cost is known to exceed the threshold."""
    spec, number, baseline = track.study.spec.rules.spec, track.column("number"), track.column("baseline")
    sensor: Any = np.broadcast_to(np.asarray(tail_factor(spec, number)) * spec.cost_sensor_noise, number.shape)
    risk, measured = np.broadcast_to(round_risk(spec, number), number.shape), spec.threshold_on == "measured"
    room, given = spec.threshold - baseline, track.column("status") != NOTHING
    watched = (track.column("watched") > 0) & given & (room >= (sensor if measured else 0.0))
    limit = spec.threshold + (0.0 if measured else sensor)
    allowed = np.where(measured | (sensor == 0.0), risk, np.minimum(2.0 * risk, 1.0))
    over = costs_at_advice(track) > limit
    gain = over[:, None] * np.log(ODDS) - np.log1p(allowed[:, None] * (ODDS - 1.0))
    path, when = np.cumsum(gain[watched], axis=0), track.column("seq")[watched]
    return _begun_again(path, when, [seq for seq, rule in track.resumes if rule == "alarm"])


def costs_at_advice(track: Track) -> Any:
    """`online.outcome.cost_at_advice` for all rounds at once; −∞ where nothing counts."""
    rules, status, cost = track.study.spec.rules, track.column("status"), track.column("cost")
    applied, action, baseline = (track.column(name) for name in ("applied", "action", "baseline"))
    raised = (status == KNOWN) & (applied > action)
    if raised.any():
        curve, dial = rules.dose.cost, rules.dial
        effect = [np.asarray(curve.effect(dial.action(each[raised])), dtype=float) for each in (action, applied)]
        known = (cost - baseline)[raised] * (effect[0] / effect[1])
        cost[raised] = baseline[raised] + known - RESCALING * np.abs(known)
        if rules.spec.noise_scale is not None:
            cost[raised] = -np.inf
    return np.where(np.isin(status, (KNOWN, THROTTLED)), cost, -np.inf)


def _path_in_order_of_learning(track: Track) -> Any:
    spec = track.study.spec.rules.spec
    known, learned = track.column("status") == KNOWN, _learned_at(track)
    kept = ~known if track.study.spec.ordered else np.zeros(track.rows, dtype=bool)
    counts = np.where(kept, track.column("blocked") > 0, track.column("applied") <= track.column("action"))
    watched = (track.column("watched") > 0) & counts & np.isfinite(learned)
    number, cost = track.column("number")[watched], np.where(known, track.column("cost"), -np.inf)[watched]
    risk, limit = np.atleast_1d(round_risk(spec, number)), spec.threshold
    if spec.threshold_on != "measured" and spec.cost_sensor_noise > 0.0:
        limit = spec.threshold + tail_factor(spec, number) * spec.cost_sensor_noise
        risk = np.where(kept[watched], risk, np.minimum(2.0 * risk, 0.5))
    gain = (cost > limit)[:, None] * np.log(ODDS) - np.log1p(risk[:, None] * (ODDS - 1.0))
    order = np.argsort(learned[watched], kind="stable")
    when, path = learned[watched][order], np.cumsum(gain[order], axis=0)
    return _begun_again(path, when, [seq for seq, _ in track.resumes])


def _begun_again(path: Any, when: Any, resumes: list[int]) -> Any:
    """The path with each resume as a new beginning; with a last row of zeros where no round has followed it yet."""
    for seq in resumes:
        first = int(np.searchsorted(when, seq))
        path[first:] -= path[first - 1].copy() if first else 0.0
    afresh = bool(resumes) and (not len(when) or when[-1] < resumes[-1])
    return np.vstack([path, np.zeros(len(ODDS))]) if afresh else path


def evidence_at(path: Any, spots: Any) -> Any:
    """The evidence after some of the rounds of a path."""
    return evidence(Monitor(path[spots], 0.0, 0.0)) if len(path) else np.empty(0)


def _learned_at(track: Track) -> Any:
    """The seq at which the study passed each round; infinite where it has not. Nothing-given rounds are passed at once.

    In decision order a round waits for all before it. One that was lost for a reason of its own is passed as well; the
    monitor takes it for one that kept the promise.
    """
    status, resolved = track.column("status"), track.column("resolved")
    resolved[np.isnan(resolved)] = np.inf
    resolved[status == EXPIRED] = np.inf
    if track.study.spec.ordered and track.rows:
        return np.maximum.accumulate(np.where(status == NOTHING, 0.0, resolved))
    return np.where(status == KNOWN, resolved, np.inf)
