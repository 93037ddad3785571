"""`Study`: ask for an action and tell its outcome, for months, from several processes, without losing anything.

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
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, Literal, overload

from safedial.errors import require
from safedial.study import operations
from safedial.study.answer import Receipt, StudyDecision
from safedial.study.event_bodies import Noted
from safedial.study.ids import read_own_id
from safedial.study.requests import checked_text, microseconds, prepared, read_outcome, read_request, read_values
from safedial.study.study_conduct import StudyConduct
from safedial.study.transaction import StudyTransaction


class Study(StudyConduct):
    """One study in a store. Several threads and several processes may use it at once. `created` says whether
    `create_study` has just created it.

    Methods that write take `actor` (who did it) and return after the commit; with `wait=False` they return a
    `concurrent.futures.Future`.
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
        proposal: float | None = None,
        unit: str | None = None,
        visit: str | None = None,
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
        proposal: float | None = None,
        unit: str | None = None,
        visit: str | None = None,
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
        proposal: float | None = None,
        unit: str | None = None,
        visit: str | None = None,
        actor: str | None = None,
        wait: bool = True,
    ) -> StudyDecision | Future[StudyDecision]:
        """Advise an action for `context`.

        Args:
            key: a name for the request. Asking again with the same key gives the same decision.
            meta: other notes on the decision, {"ward": "3b"}: at most 20 names with text of at most 200 characters,
                numbers or booleans. They do not change the advice.
            allow_extrapolation: accept a context outside the stated ranges of its features, and mark the decision.
            proposal: as for `Agent.decide`, where the policy takes it.
            unit, visit: who gets it, for example a patient, and at which visit. A unit's visit has one decision.
        """
        noted = Noted(key, meta, proposal, unit, visit)
        given = {"baseline_cost": baseline_cost, "allow_extrapolation": allow_extrapolation}
        read = prepared(self.spec, lambda spec: read_request(spec.rules, context, noted, **given))
        return self._write(partial(operations.ask, read=read, actor=self._who(actor)), wait, key)

    @overload
    def tell(
        self,
        decision_id: str,
        *,
        reward: float | None = None,
        cost: float | Mapping[str, float | None],
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
        reward: float | None = None,
        cost: float | Mapping[str, float | None],
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
        reward: float | None = None,
        cost: float | Mapping[str, float | None],
        applied_action: float | None = None,
        observed_at: str | datetime | None = None,
        throttled: bool = False,
        unrelated: bool = False,
        actor: str | None = None,
        wait: bool = True,
    ) -> Receipt | Future[Receipt]:
        """Report the outcome of a decision.

        Args:
            reward, cost: as measured. `cost` is a mapping with each of the spec's `costs`, where it states them, None
                where one is not known. `reward` may be left out where the policy does not choose by it (`hp_shield`
                without a chooser that learns); 0 is then recorded.
            applied_action: the applied setting, in the dial's units, if it was not the advice. It must have been chosen
                without knowing anything about this round's outcome beyond the context.
            observed_at: when it was measured, for the record (ISO 8601). At most a day before the decision, and a day
                ahead of this clock.
            throttled: the action was lowered or stopped *because of* the outcome. This is not an override: the round
                has no promise, nothing can be learned from it, and, as after a void, learning ends there.
            unrelated: if a dose was advised but none applied: you state that the reason has nothing to do with the
                outcome. The round is then skipped; otherwise it counts as void, and learning ends there.
        """
        values = {"reward": reward, "cost": cost, "applied_action": applied_action}
        flags = {"throttled": throttled, "unrelated": unrelated}
        read = partial(read_outcome, values=values, observed_at=observed_at, **flags)
        work = partial(operations.tell, decision=read_own_id(self.name, decision_id), read=read, actor=self._who(actor))
        return self._write(work, wait)

    @overload
    def correct(
        self,
        decision_id: str,
        *,
        reason: str,
        reward: float | None = None,
        cost: float | Mapping[str, float | None] | None = None,
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
        cost: float | Mapping[str, float | None] | None = None,
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
        cost: float | Mapping[str, float | None] | None = None,
        applied_action: float | None = None,
        key: str | None = None,
        actor: str | None = None,
        wait: bool = True,
    ) -> Receipt | Future[Receipt]:
        """Replace wrongly reported values of an outcome; the log is replayed with the right ones. Several costs are
        replaced together: give all of them.
        """
        values = {"reward": reward, "cost": cost, "applied_action": applied_action}
        given = {name: value for name, value in values.items() if value is not None}
        require(given, "correction", None, "is empty", "give reward, cost or applied_action")
        decision, why = read_own_id(self.name, decision_id), checked_text("reason", reason)
        work = partial(operations.correct, decision=decision, read=partial(read_values, given=given), reason=why)
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
        """Remove a round from the study. It cannot be undone, and what it states cannot be changed later.

        Args:
            unrelated: you state that the reason has nothing to do with the outcome. The round is then skipped;
                otherwise learning ends there, because leaving the round out could bias the estimate (HP-Conformal
                counts it as unbounded and continues, HP-Shield as one that tolerates nothing).
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
        """Stop waiting for the outcomes of one or several decisions, or of all made before a time.

        Args:
            unrelated: you state that the reason has nothing to do with the outcome; the round is then skipped.
                Otherwise the outcome may still come, and until then learning stops there (in arrival order it goes on
                with the other rounds; HP-Conformal counts the round as unbounded, HP-Shield as one that tolerates
                nothing).
        """
        require(
            (decision_ids is None) != (before is None), "before", before, "or decision_ids must be given, but not both"
        )
        require(isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
        listed = [decision_ids] if isinstance(decision_ids, str) else decision_ids
        named = None if listed is None else [read_own_id(self.name, each) for each in listed]
        arguments = {"unrelated": unrelated, "reason": checked_text("reason", reason), "actor": self._who(actor)}

        def work(transaction: StudyTransaction) -> list[Receipt]:
            overdue = (each for each, at in self._waiting(transaction) if at < microseconds(before))
            return operations.expire(transaction, list(overdue) if named is None else named, **arguments)

        return self._run(work)
