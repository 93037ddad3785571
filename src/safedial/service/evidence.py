"""The monitor's evidence over time, from a study's columns: `safedial.core.monitor` for all rounds at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core.margin import round_risk, tail_factor
from safedial.core.monitor import ODDS, Monitor, evidence
from safedial.service.track import EXPIRED, KNOWN, NOTHING, Track


def log_path(track: Track) -> Any:
    """ln E_t(m) for each odds multiple m, one row a round that the monitor counted, in the order of learning.

    Rounds count in the order in which the model learned from them, and `resume` starts anew; the last row is what
    `Study.status` knows.
    """
    spec = track.study.spec.rules.spec
    if track.study.spec.conformal:
        return np.empty((0, len(ODDS)))
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
    for seq in track.resumes:
        first = int(np.searchsorted(when, seq))
        path[first:] -= path[first - 1].copy() if first else 0.0
    afresh = bool(track.resumes) and (not len(when) or when[-1] < track.resumes[-1])
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
