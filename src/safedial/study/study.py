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

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

from safedial.decision.units import real, reals
from safedial.decision.validation import read_baseline
from safedial.errors import refusal, require
from safedial.study import operations
from safedial.study.answer import Receipt, StudyDecision
from safedial.study.event_bodies import Noted
from safedial.study.history import read_history
from safedial.study.ids import read_own_id
from safedial.study.requests import checked_text, microseconds, read_key, read_meta, read_raw, written_time
from safedial.study.store import Answer
from safedial.study.study_reader import StudyReader
from safedial.study.transaction import StudyTransaction


class Study(StudyReader):
    """One study in a store. Safe to use from several threads, and beside other processes on the same store. `created`
    says whether `create_study` made it just now.

    Methods that write take `actor` (who did it), return after the commit, and with `wait=False` give a
    `concurrent.futures.Future` instead.
    """

    @overload
    def ask(
        self,
        context: Any,
        *,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        baseline_cost: float = 0.0,
        allow_extrapolation: bool = False,
        actor: str | None = None,
        wait: Literal[True] = True,
    ) -> StudyDecision: ...

    @overload
    def ask(
        self,
        context: Any,
        *,
        key: str | None = None,
        meta: Mapping[str, Any] | None = None,
        baseline_cost: float = 0.0,
        allow_extrapolation: bool = False,
        actor: str | None = None,
        wait: Literal[False],
    ) -> Future[StudyDecision]: ...

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
    ) -> StudyDecision | Future[StudyDecision]:
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
        noted = Noted(read_key(rules.version, key), None if meta is None else read_meta(rules.version, meta))
        baseline = read_baseline(rules, baseline_cost)
        work = partial(operations.ask, asked=asked, noted=noted, baseline_cost=baseline, actor=self._who(actor))
        return self._write(work, wait, key)

    @overload
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
        wait: Literal[True] = True,
    ) -> Receipt: ...

    @overload
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
        wait: Literal[False],
    ) -> Future[Receipt]: ...

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
    ) -> Receipt | Future[Receipt]:
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
        for name, given in (("throttled", throttled), ("unrelated", unrelated)):
            if not isinstance(given, bool):
                raise refusal(name, given, "must be True or False")
        gain, harm = reals({"reward": reward, "cost": cost})
        body: dict[str, Any] = {
            "reward": gain,
            "cost": harm,
            "applied_action": None if applied_action is None else real("applied_action", applied_action),
            "throttled": throttled,
        }
        if unrelated:
            body["unrelated"] = True
        if observed_at is not None:
            body["observed_at"] = written_time(observed_at)
        work = partial(operations.tell, decision=read_own_id(self.name, decision_id), body=body, actor=self._who(actor))
        return self._write(work, wait)

    @overload
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
        wait: Literal[True] = True,
    ) -> Receipt: ...

    @overload
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
        wait: Literal[False],
    ) -> Future[Receipt]: ...

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
    ) -> Receipt | Future[Receipt]:
        """Replace values of an outcome that was reported wrongly; the log is replayed with the right ones."""
        given = {"reward": reward, "cost": cost, "applied_action": applied_action}
        changed = {name: real(name, value) for name, value in given.items() if value is not None}
        require(changed, "correction", None, "is empty", "give reward, cost or applied_action")
        decision, why = read_own_id(self.name, decision_id), checked_text("reason", reason)
        work = partial(operations.correct, decision=decision, changed=changed, reason=why)
        return self._write(partial(work, key=checked_text("key", key), actor=self._who(actor)), wait)

    @overload
    def void(
        self,
        decision_id: str,
        *,
        reason: str,
        unrelated: bool = False,
        actor: str | None = None,
        wait: Literal[True] = True,
    ) -> Receipt: ...

    @overload
    def void(
        self, decision_id: str, *, reason: str, unrelated: bool = False, actor: str | None = None, wait: Literal[False]
    ) -> Future[Receipt]: ...

    def void(
        self, decision_id: str, *, reason: str, unrelated: bool = False, actor: str | None = None, wait: bool = True
    ) -> Receipt | Future[Receipt]:
        """Take a round out of the study.

        Args:
            unrelated: you state that the reason has nothing to do with the outcome. The round is then passed over;
                otherwise the model learns nothing from this round on, because leaving it out could bias what it learns
                (HP-Conformal counts it as unbounded and goes on).
        """
        require(isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
        decision, why = read_own_id(self.name, decision_id), checked_text("reason", reason)
        work = partial(operations.void, decision=decision, unrelated=unrelated, reason=why)
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
        named = None if listed is None else [read_own_id(self.name, each) for each in listed]
        arguments = {"unrelated": unrelated, "reason": checked_text("reason", reason), "actor": self._who(actor)}

        def work(transaction: StudyTransaction) -> list[Receipt]:
            overdue = (each for each, at in self._waiting(transaction) if at < microseconds(before))
            return operations.expire(transaction, list(overdue) if named is None else named, **arguments)

        return self._run(work)

    @overload
    def resume(
        self,
        reason: str,
        *,
        forget: bool = False,
        key: str | None = None,
        actor: str | None = None,
        wait: Literal[True] = True,
    ) -> Receipt: ...

    @overload
    def resume(
        self,
        reason: str,
        *,
        forget: bool = False,
        key: str | None = None,
        actor: str | None = None,
        wait: Literal[False],
    ) -> Future[Receipt]: ...

    def resume(
        self, reason: str, *, forget: bool = False, key: str | None = None, actor: str | None = None, wait: bool = True
    ) -> Receipt | Future[Receipt]:
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
        return self._run(partial(operations.checkpoint, reason=checked_text("reason", reason), actor=self._who(actor)))

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
        return self._run(work)

    def _write(
        self, operation: Callable[[StudyTransaction], Answer], wait: bool, key: str | None = None
    ) -> Answer | Future[Answer]:
        future = self.store.submit(self._id, self.name, operation, key=key, spec=self.spec)
        return future.result() if wait else future

    def _who(self, actor: str | None) -> str:
        return self.actor if actor is None else checked_text("actor", actor)
