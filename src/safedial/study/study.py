"""`Study`: ask for an action, tell what came of it; for months, from several processes, with nothing lost.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> study = create_study("infusion", {"dim": 2, "threshold": 0.5, "total_risk": 0.02, "reward_noise": 0.3,
...     "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}, storage=f"sqlite:///{folder.name}/trial.db")
>>> decision = study.ask([0.6, 0.3], key="visit-1")
>>> decision
StudyDecision('infusion.2', action=0.3286, safe_action=0.3286, promise='certified')
>>> study.tell(decision.id, reward=0.12, cost=0.09)
Receipt(decision_id='infusion.2', seq=3, created=True)
>>> study.verify().ok
True
>>> study.store.close(); folder.cleanup()
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.online.decision import Rules, Text
from safedial.online.door import read_context
from safedial.online.units import as_vector, real
from safedial.study import operations
from safedial.study.answer import Receipt, StudyDecision, decided, shown_event
from safedial.study.database import reading, writing
from safedial.study.desk import Desk
from safedial.study.errors import StudyError
from safedial.study.event import Event, now
from safedial.study.frame import effective_rows, write_rows
from safedial.study.history import read_history
from safedial.study.load import Source
from safedial.study.log import add_study, events_about, find_study, lock_head, read_event, read_events, study_names
from safedial.study.schema import STORE_LOG
from safedial.study.spec import StudySpec, read_spec
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.verify import Report, verify_log
from safedial.study.verify_parts import verify_parts

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LONGEST = 10_000
"""The longest text that an event keeps: a reason, an actor, a key."""


def create_study(
    name: str,
    spec: SafetySpec | Mapping[str, Any] | None = None,
    *,
    storage: str | Store,
    load_if_exists: bool = False,
    actor: str | None = None,
    **more: Any,
) -> Study:
    """Create a study, or open the one that exists.

    Args:
        name: letters, digits, - and _.
        spec: the promise and everything else that is fixed for the study's life, as a mapping of plain values; or a
            `SafetySpec`, with the rest (`dim`, `policy`, `dose`, `dial`, `features`, `guard`, `folding`, …) as
            arguments.
        storage: sqlite:///file.db or postgresql://user@host/database, or an open `Store`.
        load_if_exists: open a study of that name if there is one; its specification must be the same, where one is
            given.
    """
    given = spec.to_dict() if isinstance(spec, SafetySpec) else {} if spec is None else spec
    require(isinstance(given, Mapping), "spec", type(given).__name__, "must be a SafetySpec or a mapping")
    whole = {**given, **more}
    require(
        isinstance(name, str) and NAME.fullmatch(name), "name", name, "must be letters, digits, - and _, at most 64"
    )
    store = storage if isinstance(storage, Store) else Store(storage)
    with writing(store.engine) as connection:
        lock_head(connection, STORE_LOG)
        found = find_study(connection, name)
        if found is None:
            made = read_spec(whole)
            study = add_study(connection, name)
            desk = Desk(Source(connection, study, name), State(made))
            who = _actor(actor)
            desk.append("study_created", {"name": name, "spec": made.fields}, actor=who)
            desk.flush()
    if found is not None and not load_if_exists:
        raise StudyError(
            "study_exists", f"name = {name!r}: there is such a study already; load_if_exists=True opens it"
        )
    opened = Study(store, name, actor=actor)
    if found is not None and whole:
        same = read_spec(whole, quiet=True).fields == opened.spec.fields
        require(same, "spec", name, "is not the one the study was created with", "a changed promise is a new study")
    return opened


def open_study(name: str, *, storage: str | Store, actor: str | None = None) -> Study:
    """A study that exists."""
    return Study(storage if isinstance(storage, Store) else Store(storage, create=False), name, actor=actor)


def list_studies(store: Store) -> list[dict[str, Any]]:
    """Name and number of events of every study in a store."""
    with reading(store.engine) as connection:
        return [{"name": name, "events": seq} for _, name, seq in study_names(connection)]


def find_decision(store: Store, decision_id: str, *, actor: str | None = None) -> tuple[Study, int]:
    """The study of a decision, and its seq there."""
    name, seq = _split(decision_id)
    try:
        return Study(store, name, actor=actor), seq
    except StudyError as error:
        raise _no_decision(decision_id) if error.code == "unknown_study" else error from error


def _split(decision_id: Any) -> tuple[str, int]:
    """The study's name and the seq in a decision's id."""
    name, _, seq = str(decision_id).rpartition(".")
    if not (NAME.fullmatch(name) and seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise _no_decision(decision_id)
    return name, int(seq)


def _no_decision(decision_id: Any) -> StudyError:
    return StudyError("unknown_decision", f"decision_id = {str(decision_id)[:80]!r}: there is no such decision")


def verify_study(
    store: Store,
    name: str,
    *,
    checkpoint: Mapping[str, Any] | str | None = None,
    progress: Any = None,
    workers: int = 1,
) -> Report:
    """`Study.verify` by name alone: of a study whose log may be too broken to open.

    With `workers`, long logs are verified in parts by so many processes (which import the calling program: a script
    needs its `if __name__ == "__main__"`).
    """
    study = store.find(name)
    if workers > 1:
        report = verify_parts(store, study, name, checkpoint=checkpoint, workers=workers)
        if report is not None:
            return report
    with reading(store.engine) as connection:
        return verify_log(Source(connection, study, name), checkpoint=checkpoint, progress=progress)


class Study:
    """One study in a store. Safe to use from several threads, and beside other processes on the same store.

    Methods that write take `actor` (who did it), return after the commit, and with `wait=False` give a
    `concurrent.futures.Future` instead.
    """

    def __init__(self, store: Store, name: str, *, actor: str | None = None) -> None:
        self.store, self.name, self.actor = store, name, _actor(actor)
        self._id = store.find(name)
        self.spec: StudySpec = store.spec(self._id, name)

    def __repr__(self) -> str:
        return f"Study({self.name!r}, dim={self.spec.rules.dim}, policy={self.spec.rules.policy.name})"

    def ask(
        self,
        context: Any,
        *,
        key: str | None = None,
        baseline_cost: float = 0.0,
        actor: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Advise an action for `context`. With a `key`, asking again gives the same decision."""
        raw, vector, norm = read_raw(self.spec.rules, context)
        baseline = real("baseline_cost", baseline_cost)
        work = partial(operations.ask, raw=raw, vector=vector, norm=norm, baseline_cost=baseline)
        return self._write(partial(work, key=_text("key", key), actor=self._who(actor)), wait, key)

    def tell(
        self,
        decision_id: str,
        *,
        reward: float,
        cost: float,
        applied_action: float | None = None,
        observed_at: str | datetime | None = None,
        throttled: bool = False,
        actor: str | None = None,
        wait: bool = True,
    ) -> Any:
        """Report what came of a decision.

        Args:
            applied_action: what was applied, in the dial's units, where it is not the advice; it must have been fixed
                before the outcome acted.
            observed_at: when it was measured, for the record (ISO 8601).
            throttled: the action was lowered or stopped *because of* the outcome. That is no override: the round has no
                promise and cannot be learned from, and, as for a void, the model learns nothing from it on.
        """
        require(isinstance(throttled, bool), "throttled", throttled, "must be True or False")
        body: dict[str, Any] = {
            "reward": real("reward", reward),
            "cost": real("cost", cost),
            "applied_action": None if applied_action is None else real("applied_action", applied_action),
            "throttled": throttled,
        }
        if observed_at is not None:
            body["observed_at"] = _time(observed_at)
        work = partial(operations.tell, decision=self._seq(decision_id), body=body, actor=self._who(actor))
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
            operations.correct, decision=self._seq(decision_id), changed=changed, reason=_text("reason", reason)
        )
        return self._write(partial(work, key=_text("key", key), actor=self._who(actor)), wait)

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
            operations.void, decision=self._seq(decision_id), unrelated=unrelated, reason=_text("reason", reason)
        )
        return self._write(partial(work, actor=self._who(actor)), wait)

    def expire(
        self,
        decision_ids: Iterable[str] | None = None,
        *,
        reason: str,
        before: datetime | None = None,
        unrelated: bool = False,
        actor: str | None = None,
    ) -> list[Receipt]:
        """Stop waiting for the outcomes of these decisions, or of all that were made before a time."""
        require((decision_ids is None) != (before is None), "before", before, "or decision_ids must be given, not both")
        named = None if decision_ids is None else [self._seq(each) for each in decision_ids]
        arguments = {"unrelated": unrelated, "reason": _text("reason", reason), "actor": self._who(actor)}

        def work(desk: Desk) -> list[Receipt]:
            waiting = named if named is not None else [seq for seq, at in self._waiting(desk) if at < _micros(before)]
            return operations.expire(desk, waiting, **arguments)

        return self._write(work, True)

    def resume(
        self, reason: str, *, forget: bool = False, key: str | None = None, actor: str | None = None, wait: bool = True
    ) -> Any:
        """Take the guard's alarm back, and watch afresh: a person's decision, with the reason.

        Args:
            forget: HP-Conformal only: start up again without the earlier rounds.
        """
        require(isinstance(forget, bool), "forget", forget, "must be True or False")
        work = partial(operations.resume, forget=forget, reason=_text("reason", reason), key=_text("key", key))
        return self._write(partial(work, actor=self._who(actor)), wait)

    def checkpoint(self, reason: str = "", *, actor: str | None = None) -> dict[str, Any]:
        """Mark the log; keep the answer elsewhere, and `verify(checkpoint=...)` finds any change before it."""
        return self._write(partial(operations.checkpoint, reason=_text("reason", reason), actor=self._who(actor)), True)

    def import_history(
        self, rounds: str | Path | Iterable[Mapping[str, Any]], *, reason: str = "warm start", actor: str | None = None
    ) -> int:
        """Warm start: past rounds from a CSV or parquet file, or from mappings with context, action, reward and cost.

        All of them, before the first decision, or none. What it rests on: they are complete and unselected, and each
        action was fixed before its outcome. They prove nothing about the promise, and the monitor does not count them.
        """
        rows = read_history(self.spec.rules, rounds)
        work = partial(operations.bring_in, rounds=rows, reason=_text("reason", reason), actor=self._who(actor))
        return self._write(work, True)

    def decision(self, decision_id: str) -> StudyDecision:
        """A decision that was made, with its certificate."""
        event = self._event(decision_id)
        _, vector, _ = read_raw(self.spec.rules, event.fields()["context"])
        return decided(self.spec, self.name, event, vector)

    def about(self, decision_id: str) -> list[dict[str, Any]]:
        """What was said about a decision afterwards: outcome, correction, void, expiry."""
        seq = self._event(decision_id).seq
        with reading(self.store.engine) as connection:
            return [shown_event(event, self.name) for event in events_about(connection, self._id, seq)]

    def explain(self, decision_id: str) -> Text:
        """Why this action, in plain words, and what was said about it since."""
        lines = [str(self.decision(decision_id).explain())]
        for event in self.about(decision_id):
            told = ", ".join(f"{name} {value}" for name, value in event["body"].items() if value is not None)
            why = f" ({event['reason']})" if event["reason"] else ""
            lines.append(f"  {event['at']} {event['kind']} by {event['actor']}{why}: {told}")
        return Text("\n".join(lines))

    def status(self) -> dict[str, Any]:
        """Counts, the monitor's evidence, and whether and why the study has stopped."""
        return self._write(lambda desk: {"name": self.name, **desk.state.summary()}, True)

    def state_digest(self) -> str:
        """The SHA-256 of everything the study knows: equal in any process that has folded the same log."""
        from safedial.study.snapshot import state_digest

        return self._write(lambda desk: state_digest(desk.state), True)

    def waiting(self) -> list[dict[str, Any]]:
        """The decisions that wait for an outcome, with the time they were made, oldest first."""
        rows = self._write(self._waiting, True)
        return [{"decision_id": f"{self.name}.{seq}", "seq": seq, "at": at} for seq, at in rows]

    def events(self, from_seq: int = 1, limit: int = 1000) -> dict[str, Any]:
        """A page of the log: {"events": [...], "next_seq": the first seq behind it}."""
        first, most = max(1, int(from_seq)), min(max(1, int(limit)), 10_000)
        with reading(self.store.engine) as connection:
            rows = list(read_events(connection, self._id, first - 1, first - 1 + most))
        return {"events": [shown_event(event, self.name) for event in rows], "next_seq": first + len(rows)}

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
        future = self.store.submit(self._id, self.name, operation, key=key)
        return future.result() if wait else future

    def _who(self, actor: str | None) -> str:
        return self.actor if actor is None else _text("actor", actor)

    def _seq(self, decision_id: str) -> int:
        name, seq = _split(decision_id)
        if name != self.name:
            raise _no_decision(decision_id)
        return seq

    def _event(self, decision_id: str) -> Event:
        with reading(self.store.engine) as connection:
            event = read_event(connection, self._id, self._seq(decision_id))
        if event is None or event.kind != "decided":
            raise _no_decision(decision_id)
        return event

    def _waiting(self, desk: Desk) -> list[tuple[int, int]]:
        desk.flush()
        return [(seq, event.at) for seq in desk.state.open if (event := desk.event(seq))]


def read_raw(rules: Rules, context: Any) -> tuple[list[float], Any, float]:
    """(raw values in the features' order, the context as a vector, its norm), checked."""
    if rules.features is None:
        vector, norm = read_context(rules, context)
        return vector.tolist(), vector, norm
    names = rules.features.names
    if hasattr(context, "keys"):
        rules.features.transform(context)
        context = [real(f"context[{name!r}]", context[name]) for name in names]
    raw = as_vector(context, len(names), "context")
    vector, norm = read_context(rules, raw)
    return raw.tolist(), vector, norm


def _actor(actor: str | None) -> str:
    if actor is not None:
        return _text("actor", actor)
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _text(name: str, value: Any) -> Any:
    if value is None:
        return None
    proper = isinstance(value, str) and len(value) <= LONGEST and "\x00" not in value and _encodes(value)
    require(proper, name, type(value).__name__, f"must be text of at most {LONGEST} characters")
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _time(value: Any) -> str:
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise StudyError("invalid_input", "observed_at: must be a time as in ISO 8601, 2025-01-31T14:05:00Z") from None
    return when.isoformat()


def _micros(when: datetime | None) -> int:
    return now() if when is None else int(when.timestamp() * 1_000_000)
