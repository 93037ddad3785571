"""`Study`: ask for an action and tell its outcome, for months, from several processes, without losing anything.

>>> import tempfile
>>> from safedial import Study
>>> folder = tempfile.TemporaryDirectory()
>>> study = Study.create("infusion", {"dim": 2, "threshold": 0.5, "total_risk": 0.02, "reward_noise": 0.3,
...     "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}, storage=f"sqlite:///{folder.name}/trial.db")
>>> decision = study.ask([0.6, 0.3], key="visit-1")
>>> decision  # doctest: +ELLIPSIS
StudyDecision('infusion.2...', action=0.3286, safe_action=0.3286, guarantee='certified')
>>> study.tell(decision.id, reward=0.12, cost=0.09)  # doctest: +ELLIPSIS
Receipt(decision_id='infusion.2...', seq=3, created=True)
>>> study.verify().ok
True
>>> study.store.close(); folder.cleanup()
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack, overload

from safedial.errors import InvalidInput, is_whole, printable, require
from safedial.io import card, data_frame
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, as_policy
from safedial.rounds.decision import LIMITS, Text
from safedial.rounds.validation import check_forgetting, read_new_context
from safedial.study import operations
from safedial.study.amendment import amended_spec, changes_in, new_fields
from safedial.study.answer import (
    NAME,
    DecisionId,
    Receipt,
    StudyDecision,
    check_id,
    decided,
    id_of,
    labelled,
    no_decision,
    read_own_id,
    shown_event,
)
from safedial.study.checkpoints import Checkpoint
from safedial.study.creation import create_log, opened_store
from safedial.study.database import reading
from safedial.study.event import EVENT_KINDS, Event, moment, now
from safedial.study.export import by_unit, counts_of, effective_rows, unknown_unit, unknown_visit, write_rows
from safedial.study.log import event_hashes, events_about, read_event, read_events, trail
from safedial.study.reducer import Noted
from safedial.study.replay_log import Source
from safedial.study.requests import (
    actor_name,
    as_label,
    checked_text,
    microseconds,
    prepared,
    read_history,
    read_outcome,
    read_request,
    read_values,
)
from safedial.study.store import Answer, Store, leads_to
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec, own_policy, read_spec
from safedial.study.transaction import StudyTransaction
from safedial.study.verify import Report, check_own_policy, verify_study

if TYPE_CHECKING:
    from pandas import DataFrame


class Said(TypedDict, total=False):
    """What a method that writes takes, for the type checker: once for its two forms, with and without waiting."""

    actor: str | None


class Asked(Said, total=False):
    key: str | None
    meta: Mapping[str, Any] | None
    baseline_cost: float
    allow_extrapolation: bool
    proposal: float | None
    unit: str | None
    visit: str | None


class Told(Said, total=False):
    reward: float | None
    cost: Required[float | Mapping[str, float | None]]
    applied_action: float | None
    observed_at: str | datetime | None
    throttled: bool
    unrelated: bool


class Corrected(Said, total=False):
    reason: Required[str]
    reward: float | None
    cost: float | Mapping[str, float | None] | None
    applied_action: float | None
    key: str | None


class Voided(Said, total=False):
    reason: Required[str]
    unrelated: bool


class Resumed(Said, total=False):
    rule: str | None
    forget: bool
    unrelated: bool
    key: str | None


class Study:
    """One study in a store. Several threads and several processes may use it at once. `created` says whether `create`
    has just created it, and `warnings` which of its choices are worth a second thought.

    Methods that write take `actor` (who did it) and return after the commit; with `wait=False` they return a
    `concurrent.futures.Future`.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        actor: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.store, self.name, self.actor = store, name, actor_name(actor)
        self.created, self.warnings = False, list[str]()
        self._id = store.find(name)
        self._opened: StudySpec = store.spec(self._id, name, policy)

    @classmethod
    def create(
        cls,
        name: str,
        spec: SafetySpec | Mapping[str, Any] | None = None,
        *,
        storage: str | Store,
        load_if_exists: bool = False,
        actor: str | None = None,
        quiet: bool = False,
        **more: Any,
    ) -> Study:
        """Create a study, or open an existing one. Choices worth a second thought cause a warning, unless `quiet`.

        Args:
            name: letters, digits, - and _.
            spec: the guarantee and everything else that is fixed for the study's life, as a mapping of plain values; or
                a `SafetySpec`, with the rest (`dim`, `policy`, `dose`, `dial`, `features`, `guard`, `learning_order`,
                …) as arguments.
                Your own `Policy` can run a study in Python: the log keeps its name and its plain options, and you give
                the policy again whenever you open the study.
            storage: sqlite:///file.db or postgresql://user@host/database, or an open `Store`.
            load_if_exists: open a study of that name if there is one; a given specification must match its own.
        """
        given = spec.stated() if isinstance(spec, SafetySpec) else {} if spec is None else spec
        require(isinstance(given, Mapping), "spec", type(given).__name__, "must be a SafetySpec or a mapping")
        whole, fine = {**given, **more}, isinstance(name, str) and NAME.fullmatch(name)
        require(fine, "name", name, "must be letters, digits, - and _, at most 64")
        with opened_store(storage) as store:
            notes = create_log(store, name, whole, actor_name(actor))
            if notes is None and not load_if_exists:
                raise StudyError(
                    "study_exists",
                    f"name = {name!r}: there already is such a study; load_if_exists=True, or --load-if-exists, opens "
                    "it",
                )
            made = cls(store, name, actor=actor, policy=own_policy(whole))
            if notes is None and whole:
                same = read_spec(whole, quiet=True).fields == made.spec.fields
                way_out = "a changed guarantee needs a new study, or `amend`, with a reason"
                require(same, "spec", name, "differs from the study's own", way_out)
        made.created, made.warnings = notes is not None, notes or []
        for note in [] if quiet else made.warnings:
            warnings.warn(note, UserWarning, stacklevel=2)
        return made

    @classmethod
    def open(cls, name: str, *, storage: str | Store, actor: str | None = None, policy: Policy | None = None) -> Study:
        """Open an existing study; `policy` is the one it was created with, if that is your own. It must take the latest
        decision of the log again.
        """
        given = None if policy is None else as_policy(policy)
        with opened_store(storage, create=False) as store:
            opened = cls(store, name, actor=actor, policy=given)
            if given is not None:
                with reading(store.engine) as connection:
                    check_own_policy(Source(connection, store.find(name), name, given))
            return opened

    def __repr__(self) -> str:
        return f"Study({self.name!r}, dim={self.spec.rules.dim}, policy={self.spec.rules.policy.name})"

    def _repr_html_(self) -> str:
        facts, policy = self.status(), self.spec.rules.policy
        shown = ("decisions", "outcomes", "open", "void", "violations", "evidence")
        notes = [f"Stopped: {LIMITS[facts['stop_reason']]}."] if facts["stop_reason"] else []
        notes.append(f"{GUARANTEES[policy.guarantee].in_brief} Each decision's certificate states every assumption.")
        return card(f"Study {self.name}, {policy.name}", [{name: facts[name] for name in shown}], notes)

    @property
    def spec(self) -> StudySpec:
        """Its specification, as of the last amendment that this process knows; that of a store which was restored in
        the meantime does not replace it.
        """
        latest = self.store.spec(self._id, self.name)
        return latest if leads_to(self._opened, latest) else self._opened

    def decision(self, decision_id: str) -> StudyDecision:
        """A past decision, with its certificate."""
        event = self._event(decision_id)
        body = event.fields()
        if amended := body.get("amended"):
            self.store.spec(self._id, self.name, since=amended[-1][0])
        spec = self.spec.at(event.seq)
        asked = read_new_context(spec.rules, body["context"], allow_extrapolation=True)
        return decided(spec, self.name, event, asked.vector, body)

    def about(self, decision_id: str) -> list[dict[str, Any]]:
        """The later events of a decision: outcome, correction, void, expiry."""
        seq = self._event(decision_id).seq
        with reading(self.store.engine) as connection:
            return [shown_event(event, str(decision_id)) for event in events_about(connection, self._id, seq)]

    def explain(self, decision_id: str) -> Text:
        """Why this action, in plain words, and what was reported since."""
        decision = self.decision(decision_id)
        lines = [str(decision.explain())]
        for event in self.about(decision_id):
            facts = ", ".join(_fact(name, value) for name, value in _flat(event["body"]).items() if _told(name, value))
            facts = labelled(facts, decision.labels)
            why = f" ({event['reason']})" if event["reason"] else ""
            lines.append(printable(f"  {event['at']} {event['kind']} by {event['actor']}{why}: {facts}"))
        return Text("\n".join(lines))

    def status(self) -> dict[str, Any]:
        """Counts, the monitor's evidence, whether and why the study has stopped, and notes."""
        return self._read(self._status)

    def _status(self, transaction: StudyTransaction) -> dict[str, Any]:
        self.store.spec(self._id, self.name, since=transaction.state.study.since)  # it goes with the counts
        since, late = transaction.state.oldest_open, transaction.state.overdue_at(now())
        facts: dict[str, Any] = {"oldest_open": None if since is None else moment(since), "overdue": len(late)}
        facts["overdue_since"] = moment(min(late)) if late else None
        facts |= {"hash": transaction.state.hash.hex(), "notes": _notes(transaction)}
        return {"name": self.name, **transaction.state.summary(), **facts}

    def state_digest(self) -> str:
        """The SHA-256 of the study's state: equal in every process that has replayed the same log."""
        from safedial.study.snapshot import state_digest

        return self._read(lambda transaction: state_digest(transaction.state))

    def waiting(self) -> list[dict[str, Any]]:
        """The decisions without an outcome yet, with their times, oldest first."""
        rows = self._read(self._waiting)
        return [{"decision_id": str(each), "seq": each.seq, "at": at} for each, at in rows]

    def events(self, from_seq: int = 1, limit: int = 1000) -> dict[str, Any]:
        """A page of the log: {"events": [...], "next_seq": the first seq after it}."""
        return self.page(from_seq, limit, Event.fields)

    def page(self, from_seq: int, limit: int, body: Callable[[Event], Any]) -> dict[str, Any]:
        """`events`, with the bodies that `body` gives: `Event.text` for an answer in JSON."""
        first, most = max(1, int(from_seq)), min(max(1, int(limit)), 10_000)
        with reading(self.store.engine) as connection:
            rows = list(read_events(connection, self._id, first - 1, first - 1 + most))
            ids = self._ids(connection, rows)
        shown = [shown_event(row, ids.get(row.decision), body) for row in rows]
        return {"events": shown, "next_seq": first + len(rows)}

    def trail(self, before: int = 2**62, limit: int = 50, *, whole: bool = False) -> list[dict[str, Any]]:
        """Events before a seq, the latest first: what stands out (alarms, resumes, amendments, corrections, rounds
        taken out), or the `whole` log. An amendment has what it `changed`: [old, new] by name, None if not plain.
        """
        last, most = min(max(1, int(before)), 2**62), min(max(1, int(limit)), 10_000)
        with reading(self.store.engine) as connection:
            rows = trail(connection, self._id, last, most, whole=whole)
            ids = self._ids(connection, rows)
        return [shown_event(row, ids.get(row.decision)) | self._changed(row) for row in rows]

    def _changed(self, event: Event) -> dict[str, Any]:
        """What an amendment changed, as `changed`; nothing for other events."""
        if not EVENT_KINDS[event.kind].amends:
            return {}
        self.store.spec(self._id, self.name, since=event.seq)
        spec = next(each for each in self.spec.chain if each.since <= event.seq)
        return {"changed": changes_in(spec.before, spec) if spec.before and spec.since == event.seq else {}}

    def verify(self, *, checkpoint: Checkpoint | None = None, progress: Any = None) -> Report:
        """Check the chain of hashes, replay the log, and recompute every decision, as `verify_study`."""
        return verify_study(self.store, self.name, checkpoint=checkpoint, progress=progress)

    def rows(self, *, unit: str | None = None, visit: str | None = None) -> Iterable[dict[str, Any]]:
        """One mapping for each decision: the advice, what was applied, and the outcome; all, or those of a unit, a
        visit or both. A unit or visit that no decision has is an error.
        """
        found = self._rows()
        if unit is not None:
            found = self._of_unit(unit)
        if visit is not None:
            found = [row for row in found if row.get("visit") == as_label(visit)]
            if not found:
                raise unknown_visit(visit, unit)
        return found

    def to_frame(self, *, unit: str | None = None, visit: str | None = None) -> DataFrame:
        """`rows` as a pandas DataFrame."""
        return data_frame(self.rows(unit=unit, visit=visit))

    def units(self) -> list[dict[str, Any]]:
        """The units of the study: how many decisions, outcomes and outcomes over the threshold each has, with a 95 %
        interval for the share of these.
        """
        return [{"unit": unit, **counts_of(rows)} for unit, rows in by_unit(self._rows()).items()]

    def unit(self, unit: str) -> dict[str, Any]:
        """One unit: its counts as in `units`, and its `course` (its `rows`)."""
        course = self._of_unit(unit)
        return {"unit": unit, **counts_of(course), "course": course}

    def _rows(self) -> Iterable[dict[str, Any]]:
        with reading(self.store.engine) as connection:
            yield from effective_rows(self.spec.first, self.name, read_events(connection, self._id))

    def _of_unit(self, unit: str) -> list[dict[str, Any]]:
        found = [row for row in self._rows() if row.get("unit") == as_label(str(unit))]
        if not found:
            raise unknown_unit(str(unit))
        return found

    def export(self, path: str | Path) -> Path:
        """Write the decisions to .csv or .parquet, or the whole log to .jsonl."""
        with reading(self.store.engine) as connection:
            return write_rows(path, self.spec.first, self.name, read_events(connection, self._id))

    @overload
    def ask(self, context: Any, *, wait: Literal[True] = True, **given: Unpack[Asked]) -> StudyDecision: ...

    @overload
    def ask(self, context: Any, *, wait: Literal[False], **given: Unpack[Asked]) -> Future[StudyDecision]: ...

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
            proposal: as for `Agent.ask`, where the policy takes it.
            unit, visit: who gets it, for example a patient, and at which visit. A unit's visit has one decision.
        """
        noted = Noted(key, meta, proposal, unit, visit)
        given = {"baseline_cost": baseline_cost, "allow_extrapolation": allow_extrapolation}
        read = prepared(self.spec, lambda spec: read_request(spec.rules, context, noted, **given))
        return self._write(partial(operations.ask, read=read, actor=self._who(actor)), wait, key)

    @overload
    def tell(self, decision_id: str, *, wait: Literal[True] = True, **given: Unpack[Told]) -> Receipt: ...

    @overload
    def tell(self, decision_id: str, *, wait: Literal[False], **given: Unpack[Told]) -> Future[Receipt]: ...

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
                has no guarantee, nothing can be learned from it, and, as after a void, learning ends there.
            unrelated: if a dose was advised but none applied: you state that the reason has nothing to do with the
                outcome. The round is then skipped; otherwise it counts as void, and learning ends there.
        """
        values = {"reward": reward, "cost": cost, "applied_action": applied_action}
        flags = {"throttled": throttled, "unrelated": unrelated}
        read = partial(read_outcome, values=values, observed_at=observed_at, **flags)
        work = partial(operations.tell, decision=read_own_id(self.name, decision_id), read=read, actor=self._who(actor))
        return self._write(work, wait)

    @overload
    def correct(self, decision_id: str, *, wait: Literal[True] = True, **given: Unpack[Corrected]) -> Receipt: ...

    @overload
    def correct(self, decision_id: str, *, wait: Literal[False], **given: Unpack[Corrected]) -> Future[Receipt]: ...

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
    def void(self, decision_id: str, *, wait: Literal[True] = True, **given: Unpack[Voided]) -> Receipt: ...

    @overload
    def void(self, decision_id: str, *, wait: Literal[False], **given: Unpack[Voided]) -> Future[Receipt]: ...

    def void(
        self, decision_id: str, *, reason: str, unrelated: bool = False, actor: str | None = None, wait: bool = True
    ) -> Receipt | Future[Receipt]:
        """Remove a round from the study. It cannot be undone, and what it states cannot be changed later.

        Args:
            unrelated: you state that the reason has nothing to do with the outcome. The round is then skipped;
                otherwise learning ends there, because leaving the round out could bias the estimate (policies that
                need no order take it for the worst, and continue).
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
                with the other rounds, and policies that need no order take the round for the worst).
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

    @overload
    def resume(self, reason: str, *, wait: Literal[True] = True, **given: Unpack[Resumed]) -> Receipt: ...

    @overload
    def resume(self, reason: str, *, wait: Literal[False], **given: Unpack[Resumed]) -> Future[Receipt]: ...

    def resume(
        self,
        reason: str,
        *,
        rule: str | None = None,
        forget: bool = False,
        unrelated: bool = False,
        key: str | None = None,
        actor: str | None = None,
        wait: bool = True,
    ) -> Receipt | Future[Receipt]:
        """Clear the guard's alarm and restart its evidence: a person's decision, with a reason.

        Args:
            rule: the rule that stopped the study, as you know it; refused if another has stopped it since.
            forget: HP-Conformal, HP-Shield and HP-Student: start again without the earlier rounds, stopped or not.
            unrelated: with `forget`: you state that the reason for starting again has nothing to do with outcomes, or
                is the study's own alarm. Otherwise HP-Student gives no exact guarantee again, except
                `guarantee="anytime"`, which allows any reason.
        """
        check_forgetting(forget, unrelated)
        said = {"reason": checked_text("reason", reason), "key": checked_text("key", key)}
        work = partial(operations.resume, forget=forget, unrelated=unrelated, **said)
        return self._write(partial(work, rule=checked_text("rule", rule), actor=self._who(actor)), wait)

    def amend(
        self,
        spec: SafetySpec | Mapping[str, Any] | None = None,
        *,
        reason: str,
        changes: Mapping[str, Any] | None = None,
        from_round: int | None = None,
        keep_learning: bool | None = None,
        key: str | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Change the specification from the next decision on, for a reason. Earlier rounds stay judged by the earlier
        rules; the guarantee and its evidence begin again, unless only labels and rules of the guard that stop a study
        change. A stopped study stays stopped: resume it afterwards.

        Args:
            spec: the whole new specification, as for `create`; `dim` and `features` stay as they are and may be
                left out. Or a `SafetySpec`: all but the guarantee stays.
            changes: or only what differs, {"threshold": 0.6, "guard": {"max_open": 50}}.
            from_round: the round from which on it holds, as a check: it must be the next one.
            keep_learning: True keeps what was learned, or refuses where nothing proves that this is right; False starts
                again, if the guarantee begins again. By default it is kept where that is proved: if only labels and
                rules of the guard that stop a study change, or, for a certified policy with one cost, only the
                threshold, the fallback and the guard.
        """
        require((spec is None) != (changes is None), "changes", changes, "or spec must be given, but not both")
        whole = from_round is None or is_whole(from_round, 0)
        require(whole, "from_round", from_round, "must be a whole number, that of the next round", "leave it out")
        read = partial(new_fields, given=changes if spec is None else spec, whole=spec is not None)
        with suppress(InvalidInput):  # it warns here; the writer refuses, which knows the present specification
            amended_spec(self.spec, read(self.spec), quiet=False)
        work = partial(operations.amend, read=read, from_round=from_round, keep_learning=keep_learning)
        why, name = checked_text("reason", reason), checked_text("key", key)
        return self._run(partial(work, reason=why, key=name, actor=self._who(actor)))

    def checkpoint(self, reason: str = "", *, actor: str | None = None) -> dict[str, Any]:
        """Mark the log. Keep the answer elsewhere: `verify(checkpoint=...)` then finds any change before it."""
        why = checked_text("reason", reason)
        return self._run(partial(operations.checkpoint, reason=why, actor=self._who(actor)))

    def import_history(
        self, rounds: str | Path | Iterable[Mapping[str, Any]], *, reason: str = "warm start", actor: str | None = None
    ) -> int:
        """Warm start: past rounds from a CSV or parquet file, or from mappings with context, action, reward and cost.

        Either all rounds are imported, before the first decision, or none. Assumed: they are complete and unselected,
        and each action was chosen without knowing anything about its outcome beyond the context. They prove nothing
        about the guarantee, and the monitor does not count them. A context outside the stated ranges is refused.
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
        if not wait:
            return future
        self.store.release()  # whoever waits may be the thread that would release
        return future.result()

    def _who(self, actor: str | None) -> str:
        return self.actor if actor is None else checked_text("actor", actor)

    def _run(self, operation: Callable[[StudyTransaction], Answer]) -> Answer:
        return self.store.submit(self._id, self.name, operation, spec=self.spec).result()

    def _read(self, question: Callable[[StudyTransaction], Answer]) -> Answer:
        return self.store.read(self._id, self.name, question, spec=self.spec)

    def _ids(self, connection: Any, rows: list[Event]) -> dict[int, str]:
        """The ids of the decisions that events are about."""
        wanted = sorted({row.decision for row in rows if row.decision > 1})
        hashes = event_hashes(connection, self._id, wanted)
        return {seq: str(id_of(self.name, seq, name)) for seq, name in hashes.items()}

    def _event(self, decision_id: str) -> Event:
        asked = read_own_id(self.name, decision_id)
        with reading(self.store.engine) as connection:
            event = read_event(connection, self._id, asked.seq)
        if event is None or not EVENT_KINDS[event.kind].decides:
            raise no_decision(decision_id)
        check_id(asked, id_of(self.name, event.seq, event.hash))
        return event

    def _waiting(self, transaction: StudyTransaction) -> list[tuple[DecisionId, int]]:
        transaction.flush()
        waiting = chain.from_iterable(phase.open for phase in reversed(transaction.state.phases))
        found = (event for seq in waiting if (event := transaction.event(seq)))
        return [(id_of(self.name, event.seq, event.hash), event.at) for event in found]


def _told(name: str, value: Any) -> bool:
    """Whether a person is told a recorded value; how a correction was worked in is for programs."""
    return value is not None and value is not False and name not in ("in_place", "outcome_seq")


def _fact(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    return words if value is True else f"{words} {', '.join(value) if isinstance(value, list) else value}"


def _flat(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body with several costs in fields of their own."""
    costs = body.get("cost")
    if not isinstance(costs, dict):
        return dict(body)
    return {**{f"cost_{name}": value for name, value in costs.items()}, **body, "cost": None}


def _notes(transaction: StudyTransaction) -> list[str]:
    last = transaction.event(transaction.state.seq)
    ahead = 0.0 if last is None else (last.at - now()) / 1e6
    if ahead <= 1.0:
        return []
    return [f"the last event is dated {ahead:.0f} s after this clock's time: a clock was set back, or one runs ahead"]
