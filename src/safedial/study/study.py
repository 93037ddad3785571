"""`Study`: ask for an action, tell what came of it; for months, from several processes, with nothing lost.

>>> import tempfile
>>> from safedial.study import create_study
>>> folder = tempfile.TemporaryDirectory()
>>> study = create_study("infusion", {"dim": 2, "threshold": 0.5, "total_risk": 0.02, "reward_noise": 0.3,
...     "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}, storage=f"sqlite:///{folder.name}/trial.db")
>>> decision = study.ask([0.6, 0.3], key="visit-1")
>>> decision  # doctest: +ELLIPSIS
StudyDecision('infusion.2...', action=0.3286, safe_action=0.3286, promise='certified')
>>> study.tell(decision.id, reward=0.12, cost=0.09)  # doctest: +ELLIPSIS
Receipt(decision_id='infusion.2...', seq=3, created=True)
>>> study.verify().ok
True
>>> study.store.close(); folder.cleanup()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from safedial.decision.decision import Text
from safedial.decision.units import real
from safedial.decision.validation import read_baseline
from safedial.errors import printable, require
from safedial.study import operations
from safedial.study.answer import Receipt, StudyDecision, decided, shown_event
from safedial.study.database import reading
from safedial.study.event import Event, moment, now
from safedial.study.event_bodies import Noted
from safedial.study.history import read_history
from safedial.study.ids import DecisionId, check_id, id_of, no_decision, read_id
from safedial.study.log import event_hashes, events_about, read_event, read_events
from safedial.study.requests import actor_name, checked_text, microseconds, read_key, read_meta, read_raw, written_time
from safedial.study.spec import StudySpec
from safedial.study.store import Store
from safedial.study.tables import effective_rows, write_rows
from safedial.study.transaction import StudyTransaction
from safedial.study.verify import Report
from safedial.study.verify_parts import verify_study


class Study:
    """One study in a store. Safe to use from several threads, and beside other processes on the same store. `created`
    says whether `create_study` made it just now.

    Methods that write take `actor` (who did it), return after the commit, and with `wait=False` give a
    `concurrent.futures.Future` instead.
    """

    def __init__(self, store: Store, name: str, *, actor: str | None = None) -> None:
        self.store, self.name, self.actor = store, name, actor_name(actor)
        self.created = False
        self._id = store.find(name)
        self.spec: StudySpec = store.spec(self._id, name)

    def __repr__(self) -> str:
        return f"Study({self.name!r}, dim={self.spec.rules.dim}, policy={self.spec.rules.policy.name})"

    def ask(
        self,
        context: Any,
        *,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        baseline_cost: float = 0.0,
        allow_extrapolation: bool = False,
        actor: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Advise an action for `context`.

        Args:
            key: names the request, a visit say. Asking again with it gives the same decision; it stands on the
                certificate and in exports.
            meta: what else to note down with the decision, {"patient": "P-04", "ward": "3b"}: at most 20 names with
                text of at most 200 characters, numbers or booleans. It is for people, and changes no advice.
            allow_extrapolation: take a context outside the stated ranges of its features, and mark the decision.
        """
        rules = self.spec.rules
        asked = read_raw(rules, context, allow_extrapolation=allow_extrapolation)
        noted = Noted(read_key(rules.version, key), read_meta(rules.version, meta))
        baseline = read_baseline(rules, baseline_cost)
        work = partial(operations.ask, asked=asked, noted=noted, baseline_cost=baseline, actor=self._who(actor))
        return self._write(work, wait, key)

    def tell(
        self,
        decision_id: str,
        *,
        reward: float,
        cost: float,
        applied_action: float | None = None,
        observed_at: str | datetime | None = None,
        throttled: bool = False,
        unrelated: bool = False,
        actor: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Report what came of a decision.

        Args:
            applied_action: what was applied, in the dial's units, where it is not the advice. Whoever chose it must
                have known nothing about this round's outcome beyond the context.
            observed_at: when it was measured, for the record (ISO 8601).
            throttled: the action was lowered or stopped *because of* the outcome. That is no override: the round has no
                promise and cannot be learned from, and, as for a void, the model learns nothing from it on.
            unrelated: where nothing was applied though something was advised: you state that the reason has nothing to
                do with the outcome. The round is then passed over; otherwise it counts as void, and the model learns
                nothing from it on.
        """
        require(isinstance(throttled, bool), "throttled", throttled, "must be True or False")
        require(isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
        body: dict[str, Any] = {
            "reward": real("reward", reward),
            "cost": real("cost", cost),
            "applied_action": None if applied_action is None else real("applied_action", applied_action),
            "throttled": throttled,
        }
        if unrelated:
            body["unrelated"] = True
        if observed_at is not None:
            body["observed_at"] = written_time(observed_at)
        work = partial(operations.tell, decision=self._own(decision_id), body=body, actor=self._who(actor))
        return self._write(work, wait)

    def correct(
        self,
        decision_id: str,
        *,
        reason: str,
        reward: float | None = None,
        cost: float | None = None,
        applied_action: float | None = None,
        key: str | None = None,
        actor: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Replace values of an outcome that was reported wrongly; the model is folded again with the right ones."""
        given = {"reward": reward, "cost": cost, "applied_action": applied_action}
        changed = {name: real(name, value) for name, value in given.items() if value is not None}
        require(changed, "correction", None, "is empty", "give reward, cost or applied_action")
        work = partial(
            operations.correct, decision=self._own(decision_id), changed=changed, reason=checked_text("reason", reason)
        )
        return self._write(partial(work, key=checked_text("key", key), actor=self._who(actor)), wait)

    def void(
        self, decision_id: str, *, reason: str, unrelated: bool = False, actor: str | None = None, wait: bool = True
    ) -> Any:
        """Take a round out of the study.

        Args:
            unrelated: you state that the reason has nothing to do with the outcome. The round is then passed over;
                otherwise the model learns nothing from this round on, because leaving it out could bias what it learns
                (HP-Conformal counts it as unbounded and goes on).
        """
        require(isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
        work = partial(
            operations.void, decision=self._own(decision_id), unrelated=unrelated, reason=checked_text("reason", reason)
        )
        return self._write(partial(work, actor=self._who(actor)), wait)

    def expire(
        self,
        decision_ids: str | Iterable[str] | None = None,
        *,
        reason: str,
        before: datetime | None = None,
        unrelated: bool = False,
        actor: str | None = None,
    ) -> list[Receipt]:
        """Stop waiting for the outcome of a decision, of several, or of all that were made before a time.

        Args:
            unrelated: you state that its absence has nothing to do with the outcome; the round is then passed over.
                Otherwise a late outcome may still come, and until then the model learns nothing from that round on
                (in arrival order it learns from the other rounds; HP-Conformal counts the round as unbounded).
        """
        require((decision_ids is None) != (before is None), "before", before, "or decision_ids must be given, not both")
        require(isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
        listed = [decision_ids] if isinstance(decision_ids, str) else decision_ids
        named = None if listed is None else [self._own(each) for each in listed]
        arguments = {"unrelated": unrelated, "reason": checked_text("reason", reason), "actor": self._who(actor)}

        def work(transaction: StudyTransaction) -> list[Receipt]:
            overdue = (each for each, at in self._waiting(transaction) if at < microseconds(before))
            return operations.expire(transaction, list(overdue) if named is None else named, **arguments)

        return self._write(work, True)

    def resume(
        self, reason: str, *, forget: bool = False, key: str | None = None, actor: str | None = None, wait: bool = True
    ) -> Any:
        """Take the guard's alarm back, and watch afresh: a person's decision, with the reason.

        Args:
            forget: HP-Conformal only: start up again without the earlier rounds.
        """
        require(isinstance(forget, bool), "forget", forget, "must be True or False")
        work = partial(
            operations.resume, forget=forget, reason=checked_text("reason", reason), key=checked_text("key", key)
        )
        return self._write(partial(work, actor=self._who(actor)), wait)

    def checkpoint(self, reason: str = "", *, actor: str | None = None) -> dict[str, Any]:
        """Mark the log; keep the answer elsewhere, and `verify(checkpoint=...)` finds any change before it."""
        return self._write(
            partial(operations.checkpoint, reason=checked_text("reason", reason), actor=self._who(actor)), True
        )

    def import_history(
        self, rounds: str | Path | Iterable[Mapping[str, Any]], *, reason: str = "warm start", actor: str | None = None
    ) -> int:
        """Warm start: past rounds from a CSV or parquet file, or from mappings with context, action, reward and cost.

        All of them, before the first decision, or none. What it rests on: they are complete and unselected, and whoever
        chose an action knew nothing about its outcome beyond the context. They prove nothing about the promise, and the
        monitor does not count them. A context outside a stated range of its features is refused.
        """
        rows = read_history(self.spec.rules, rounds)
        work = partial(
            operations.import_rounds, rounds=rows, reason=checked_text("reason", reason), actor=self._who(actor)
        )
        return self._write(work, True)

    def decision(self, decision_id: str) -> StudyDecision:
        """A decision that was made, with its certificate."""
        event = self._event(decision_id)
        asked = read_raw(self.spec.rules, event.fields()["context"], allow_extrapolation=True)
        return decided(self.spec, self.name, event, asked.vector)

    def about(self, decision_id: str) -> list[dict[str, Any]]:
        """What was said about a decision afterwards: outcome, correction, void, expiry."""
        seq = self._event(decision_id).seq
        with reading(self.store.engine) as connection:
            return [shown_event(event, str(decision_id)) for event in events_about(connection, self._id, seq)]

    def explain(self, decision_id: str) -> Text:
        """Why this action, in plain words, and what was said about it since."""
        lines = [str(self.decision(decision_id).explain())]
        for event in self.about(decision_id):
            told = ", ".join(f"{name} {value}" for name, value in event["body"].items() if value is not None)
            why = f" ({event['reason']})" if event["reason"] else ""
            lines.append(printable(f"  {event['at']} {event['kind']} by {event['actor']}{why}: {told}"))
        return Text("\n".join(lines))

    def status(self) -> dict[str, Any]:
        """Counts, the monitor's evidence, whether and why the study has stopped, and what else is worth knowing."""
        return self._write(self._status, True)

    def _status(self, transaction: StudyTransaction) -> dict[str, Any]:
        oldest = next(iter(self._waiting(transaction, most=1)), None)
        since = None if oldest is None else moment(oldest[1])
        told = {"oldest_open": since, "hash": transaction.state.hash.hex(), "notes": _notes(transaction)}
        return {"name": self.name, **transaction.state.summary(), **told}

    def state_digest(self) -> str:
        """The SHA-256 of everything the study knows: equal in any process that has folded the same log."""
        from safedial.study.snapshot import state_digest

        return self._write(lambda transaction: state_digest(transaction.state), True)

    def waiting(self) -> list[dict[str, Any]]:
        """The decisions that wait for an outcome, with the time they were made, oldest first."""
        rows = self._write(self._waiting, True)
        return [{"decision_id": str(each), "seq": each.seq, "at": at} for each, at in rows]

    def events(self, from_seq: int = 1, limit: int = 1000) -> dict[str, Any]:
        """A page of the log: {"events": [...], "next_seq": the first seq behind it}."""
        first, most = max(1, int(from_seq)), min(max(1, int(limit)), 10_000)
        with reading(self.store.engine) as connection:
            rows = list(read_events(connection, self._id, first - 1, first - 1 + most))
            ids = self._ids(event_hashes(connection, self._id, sorted({row.decision for row in rows if row.decision})))
        return {"events": [shown_event(row, ids.get(row.decision)) for row in rows], "next_seq": first + len(rows)}

    def verify(self, *, checkpoint: Mapping[str, Any] | str | None = None, progress: Any = None) -> Report:
        """Check the chain, fold the log afresh, and compute every decision again."""
        return verify_study(self.store, self.name, checkpoint=checkpoint, progress=progress)

    def rows(self) -> Iterable[dict[str, Any]]:
        """One mapping a decision: what was advised, what was applied, what came of it."""
        with reading(self.store.engine) as connection:
            yield from effective_rows(self.spec.rules, self.name, read_events(connection, self._id))

    def frame(self) -> Any:
        """One row a decision, as a pandas DataFrame."""
        from safedial.errors import import_extra

        return import_extra("pandas", "data").DataFrame(list(self.rows()))

    def export(self, path: str | Path) -> Path:
        """Write the decisions to .csv or .parquet, or the whole log to .jsonl."""
        with reading(self.store.engine) as connection:
            return write_rows(path, self.spec.rules, self.name, read_events(connection, self._id))

    def _write(self, operation: Any, wait: bool, key: str | None = None) -> Any:
        future = self.store.submit(self._id, self.name, operation, key=key, spec=self.spec)
        return future.result() if wait else future

    def _who(self, actor: str | None) -> str:
        return self.actor if actor is None else checked_text("actor", actor)

    def _own(self, decision_id: str) -> DecisionId:
        found = read_id(decision_id)
        if found.study != self.name:
            raise no_decision(decision_id)
        return found

    def _ids(self, hashes: Mapping[int, bytes]) -> dict[int, str]:
        return {seq: str(id_of(self.spec.rules_version, self.name, seq, name)) for seq, name in hashes.items()}

    def _event(self, decision_id: str) -> Event:
        asked = self._own(decision_id)
        with reading(self.store.engine) as connection:
            event = read_event(connection, self._id, asked.seq)
        if event is None or event.kind != "decided":
            raise no_decision(decision_id)
        check_id(asked, id_of(self.spec.rules_version, self.name, event.seq, event.hash))
        return event

    def _waiting(self, transaction: StudyTransaction, most: int | None = None) -> list[tuple[DecisionId, int]]:
        transaction.flush()
        found = (event for seq in islice(transaction.state.open, most) if (event := transaction.event(seq)))
        return [(id_of(self.spec.rules_version, self.name, event.seq, event.hash), event.at) for event in found]


def _notes(transaction: StudyTransaction) -> list[str]:
    last = transaction.event(transaction.state.seq)
    ahead = 0.0 if last is None else (last.at - now()) / 1e6
    if ahead <= 1.0:
        return []
    return [f"the last event is dated {ahead:.0f} s after this clock's time: a clock was put back, or one is ahead"]
