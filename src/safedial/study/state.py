"""The state of a study after an event: the learner, the waiting rounds, the watch. A pure function of the log.

    decided ─► open ─outcome─► held ─(all earlier rounds resolved)─► learner
       └───────────┴─► watch (at once: decision/watch.py)

`queue` holds the rounds that the learner has not passed, in decision order. In learning order "prefix" the learner uses
a round when it is first in the queue and resolved: the bounds hold for every prefix at once, so they hold whatever the
delays depend on. A void round whose reason may be related to its outcome ends the prefix for ever (`frozen`): later
rounds are watched but not learned from. HP-Conformal needs no order: there an unknown round counts as unbounded.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from safedial.core.rounding import rounded_spec
from safedial.decision.learners.kinds import make_learner
from safedial.decision.outcome import Sample
from safedial.decision.rounds import Round
from safedial.decision.watch import Watch
from safedial.study.event import START
from safedial.study.guard import FEW_UNWATCHED
from safedial.study.spec import StudySpec

HOUR = 3_600_000_000
"""Microseconds."""


class State:
    """The state after event `seq`, whose hash is `hash`. Where the learner reads questions, `named` has SEQ.TAG of
    each decision, by which its predictions name earlier rounds.

    For corrections (study/corrections.py): `recent_of` has the decisions behind `recent`, `scatter` what each outcome
    added to the evidence against the noise, and `frozen_at` is the lost decision, or, where the order is not kept, the
    event, from which on nothing was learned.
    """

    def __init__(self, study: StudySpec) -> None:
        self.study = study
        self.spec = rounded_spec(study.rules.spec)
        self.learner = make_learner(study.rules)
        self.seq, self.hash = 0, START
        self.rounds = self.imported = self.outcomes = self.violations = self.void = 0
        self.open: dict[int, Round] = {}
        self.expired: dict[int, Round] = {}
        self.queue: deque[int] = deque()
        self.held: dict[int, tuple[Round, Sample | None, bool]] = {}
        self.watch = Watch(study.rules, self.learner, study.guard.alarm_level)
        self.frozen = self.broken = False
        self.stop_reason = ""
        self.last_action = study.rules.dial.low
        self.recent: deque[bool] = deque(maxlen=study.guard.stop_of_last)
        self.recent_of: deque[int] = deque(maxlen=study.guard.stop_of_last)
        self.scatter: dict[int, list[float]] = {}
        self.frozen_at = 0
        self.new_decisions = self.new_void = self.corrected_violations = self.last_known = 0
        self.resumes: list[list[Any]] = []
        self.named: list[str] = []
        self.snapshots: list[tuple[int, bytes]] = []
        self.next_shot = 256

    @property
    def due(self) -> str:
        """The rule of the guard that has fired but has no event yet: a key of `LIMITS`, or ""."""
        guard = self.study.guard
        if self.stop_reason:
            return ""
        if self.broken and not self.watch.crossed:
            return "assumption_broken"
        if self.watch.crossed or self.watch.noisy:
            return self.watch.due
        if guard.max_open is not None and len(self.open) > guard.max_open:
            return "too_many_open"
        if guard.max_void is not None and self.new_void > guard.max_void:
            return "too_many_void"
        if guard.max_unwatched is not None and self._is_blind(guard.max_unwatched):
            return "too_many_unwatched"
        return "stop_rule" if self._is_done() else ""

    def due_at(self, at: int) -> str:
        """`due` for a decision at a time, in microseconds, when an outcome may be overdue."""
        hours, oldest = self.study.guard.max_open_hours, self.oldest_open
        overdue = hours is not None and oldest is not None and at - oldest > hours * HOUR
        return self.due or ("outcome_overdue" if overdue and not self.stop_reason else "")

    @property
    def oldest_open(self) -> int | None:
        """The time of the oldest open decision, in microseconds."""
        return next(iter(self.open.values())).at if self.open else None

    def overdue_at(self, at: int) -> list[int]:
        """The times, in microseconds, since when outcomes that are open at a time have been overdue, oldest first."""
        hours = self.study.guard.deadline
        wait = None if hours is None else int(hours * HOUR)
        return [] if wait is None else [one.at + wait for one in self.open.values() if at - one.at > wait]

    def _is_blind(self, share: float) -> bool:
        return self.watch.new_unwatched > max(FEW_UNWATCHED, share * self.watch.new_watched)

    def _is_done(self) -> bool:
        guard = self.study.guard
        many = guard.stop_violations is not None and sum(self.recent) >= guard.stop_violations
        return many or (guard.stop_decisions is not None and self.new_decisions >= guard.stop_decisions)

    def summary(self) -> dict[str, Any]:
        """Counts and evidence, for display."""
        facts = {
            "seq": self.seq,
            "decisions": self.rounds,
            "imported": self.imported,
            "outcomes": self.outcomes,
            "open": len(self.open),
            "expired": len(self.expired),
            "void": self.void,
            "waiting": len(self.held),
            "waits_for": self.queue[0] if self.queue else None,
            "frozen": self.frozen,
            "informative_rounds": self.learner.samples,
            "violations": self.violations,
            "evidence": self.watch.evidence,
            "noise_evidence": self.watch.noise_evidence,
            "stopped": self.stop_reason,
        }
        if self.study.rules_version > 1:
            facts |= {"unwatched": self.watch.unwatched, "resumes": len(self.resumes)}
            facts["corrected_violations"] = self.corrected_violations
            if self.learner.starts is not None:
                facts["start_rounds"] = self.learner.starts
        return facts
