"""One study inside a write transaction: its state, caught up with the log, and the events to append."""

from __future__ import annotations

import math
from typing import Any

from safedial.rounds.decision import LIMITS
from safedial.study import log, study_errors
from safedial.study.event import EVENT_KINDS, Event, next_event, now
from safedial.study.log import Head
from safedial.study.replay_log import Change, NeedsReplay, Source, apply_event, catch_up, change_of, snapshot_body
from safedial.study.snapshot import pack
from safedial.study.state import State
from safedial.study.study_errors import StudyError

KEY_DAYS, DAY = 30, 86_400_000_000
"""How long an idempotency key gives the same answer, in days; a day, in microseconds."""

SNAPSHOT_EVENTS, SNAPSHOT_BYTES, REPLAYED_EVENTS = 1_000, 2_000, 256
"""A snapshot is due after this many events, or after one event for this many of its bytes if that is later; and after
replays of this many events, so that they need not be repeated.
"""


class StudyTransaction:
    """A study inside a write transaction. Nothing is durable before the commit. `replayed` are the changes of the past
    that its state knows though they are not in the log yet.
    """

    def __init__(self, source: Source, state: State) -> None:
        self.source, self.state = source, state
        self.replayed: list[Change] = []
        self.written = self.checked_at = 0
        self._fresh: list[Event] = []
        self._keys: dict[str, tuple[bytes, int]] = {}
        self._used: dict[str, tuple[bytes, int] | None] = {}
        self._old: set[str] = set()

    @property
    def connection(self) -> Any:
        return self.source.connection

    def append(
        self,
        kind: str,
        body: dict[str, Any],
        *,
        actor: str,
        decision: int = 0,
        reason: str = "",
        known: Any = None,
        at: int | None = None,
    ) -> Event:
        """Append one event and apply it; if it makes a rule of the guard fire, the alarm follows at once. An event that
        changes the past raises `NeedsReplay`, and nothing is appended, unless the state was replayed with it.

        `known` is the context of a decision or the sample of an outcome, which then need not be computed again. `at` is
        the event's time, if it was read before: a decision has the time at which no outcome was overdue.
        """
        state = self.state
        about: dict[str, Any] = {"at": now() if at is None else at, "actor": actor, "reason": reason}
        event = next_event((state.seq, state.hash), self.source.name, kind, body, decision=decision, **about)
        change = change_of(event, body) if EVENT_KINDS[kind].revises else None
        if change is not None:
            self._expect(change)
        self._fresh.append(event)
        self.state = apply_event(self.state, event, body, known=known)
        if not self.replayed and self.state.due:  # otherwise further changes follow, which the state has already
            self._alarm(self.state.due)
        return event

    def _expect(self, change: Change) -> None:
        """Go on if the state was replayed with this change."""
        known = next((each for each in self.replayed if each[1:] == change[1:]), None)
        if known is None:
            raise NeedsReplay(change)
        self.replayed.remove(known)

    def time_of_decision(self) -> int:
        """The present time, for the next decision. An outcome that is overdue raises its alarm first."""
        at = now()
        rule = self.state.due_at(at)
        if rule:
            self._alarm(rule, at=at)
            self.checked_at = self.state.seq  # the clock raised it, whatever becomes of the question
        return at

    def _alarm(self, rule: str, at: int | None = None) -> None:
        state = self.state
        fired = next((each for each in state.phases if rule in each.fired(latest=each is state)), state)
        body = {
            "rule": rule,
            "evidence": fired.watch.evidence,
            "open": state.waiting,
            "violations": state.total("violations"),
            "fallback_action": state.study.rules.fallback_action,
        }
        self.append("alarm", body, actor="guard", reason=LIMITS[rule], at=at)

    def known_key(self, key: str, digest: bytes) -> int | None:
        """The seq of the event of an idempotency key, or None if it is new; refused for a different request."""
        seq = self.seq_of(key)
        if seq is None:
            return None
        if self.is_old(seq):
            self.release_key(key)
            return None
        found = self._used[key]
        if found is not None and found[0] != digest:
            words = "was used for another request; repeat that request, or use a new key"
            raise StudyError("key_reused", f"key = {key[:80]!r}: {words}")
        return seq

    def seq_of(self, key: str) -> int | None:
        """The seq of the event of an idempotency key, or None if it is new."""
        if key not in self._used:
            self.look_up([key])
        found = self._used[key]
        return None if found is None else found[1]

    def is_other(self, key: str, digest: bytes) -> bool:
        """Whether a key is that of something else."""
        found = None if self.seq_of(key) is None else self._used[key]
        return found is not None and found[0] != digest

    def release_key(self, key: str) -> None:
        """Let a key be used again."""
        self._old.add(key)
        self._used[key] = None

    def is_old(self, seq: int) -> bool:
        """Whether a key's event is older than keys are kept."""
        event = self.event(seq)
        return event is not None and now() - event.at > KEY_DAYS * DAY

    def look_up(self, keys: list[str]) -> None:
        """Read many idempotency keys at once, before the operations that need them."""
        self._used |= dict.fromkeys(keys) | log.find_keys(self.connection, self.source.study, keys)

    def keep_key(self, key: str, digest: bytes, seq: int) -> None:
        self._keys[key] = self._used[key] = digest, seq

    def event(self, seq: int) -> Event | None:
        """An event of this transaction or an earlier one."""
        fresh = next((event for event in self._fresh if event.seq == seq), None)
        return fresh or log.read_event(self.connection, self.source.study, seq)

    def about(self, decision: int) -> list[Event]:
        """The events about a decision, including those of this transaction."""
        self.flush()
        return log.events_about(self.connection, self.source.study, decision)

    def flush(self) -> None:
        """Send new events and keys to the database, still inside the transaction."""
        if self._fresh:
            log.append_events(self.connection, self.source.study, self._fresh)
            self.written += len(self._fresh)
            self._fresh = []
        if self._keys:
            if self._old:
                log.drop_keys(self.connection, self.source.study, sorted(self._old))
                self._old = set()
            log.add_keys(self.connection, self.source.study, self._keys)
            self._keys = {}
        if study_errors.armed:
            study_errors.hit("inserted")

    def follow(self, head: Head) -> bool:
        """Apply what other writers appended; False if the log is not the one of this state."""
        state = self.state
        if state.seq > head.seq or (state.seq == head.seq and state.hash != head.hash):
            return False
        if state.seq < head.seq:
            self.state = catch_up(self.source, state, head.seq)
        return True

    def finish(self) -> None:
        """Send what is left to the database. A snapshot is written if one is due, or after a replay, so that it need
        not be repeated; of the older ones, one is kept for each doubling of age.
        """
        self.flush()
        study, seq, replayed = self.source.study, self.state.seq, self.state.replayed
        if seq // SNAPSHOT_EVENTS == (seq - self.written) // SNAPSHOT_EVENTS and replayed < REPLAYED_EVENTS:
            return
        snapshots = [shot for shot, _ in log.snapshot_seqs(self.connection, study)]
        most = SNAPSHOT_BYTES * (seq - snapshots[0] + replayed) if snapshots else math.inf
        content = pack(self.state)
        if len(content) > most:
            return
        self.state.replayed = 0
        name = log.write_snapshot(self.connection, study, seq, content)
        kept = thinned(seq, snapshots, SNAPSHOT_EVENTS)
        log.drop_snapshots(self.connection, study, set(snapshots) - set(kept))
        first = self.event(1)
        if first is not None:
            self.append("snapshot", snapshot_body(first, seq, name), actor="store")
            self.flush()
        study_errors.hit("snapshot_written")


def thinned(seq: int, shots: list[int], unit: int) -> list[int]:
    """Of snapshots before `seq`, the latest first, the oldest for each doubling of age, so that it can age further."""
    return list({((seq - shot) // unit).bit_length(): shot for shot in shots}.values())
