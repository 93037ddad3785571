"""Reading a study without writing: its decisions, its log, its rows, and `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safedial.checkpoints import Checkpoint
from safedial.core.promise import PROMISES
from safedial.decision.decision import LIMITS, Text
from safedial.decision.validation import read_new_context
from safedial.errors import printable
from safedial.notebook import card, data_frame
from safedial.policies import Policy
from safedial.study.amendment import changes_in
from safedial.study.answer import StudyDecision, decided, shown_event
from safedial.study.database import reading
from safedial.study.event import Event, moment, now
from safedial.study.event_kinds import EVENT_KINDS
from safedial.study.ids import DecisionId, check_id, id_of, no_decision, read_own_id
from safedial.study.labels import labelled
from safedial.study.log import event_hashes, events_about, read_event, read_events, trail
from safedial.study.requests import actor_name
from safedial.study.spec import StudySpec
from safedial.study.store import Store
from safedial.study.store_reader import Answer, leads_to
from safedial.study.tables import effective_rows, write_rows
from safedial.study.transaction import StudyTransaction
from safedial.study.units import by_unit, counts_of, unknown_unit, unknown_visit
from safedial.study.verify import Report
from safedial.study.verify_parts import verify_study

if TYPE_CHECKING:
    from pandas import DataFrame


class StudyReader:
    """One study in a store, for reading."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        actor: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.store, self.name, self.actor = store, name, actor_name(actor)
        self.created = False
        self._id = store.find(name)
        self._opened: StudySpec = store.spec(self._id, name, policy)

    def __repr__(self) -> str:
        return f"Study({self.name!r}, dim={self.spec.rules.dim}, policy={self.spec.rules.policy.name})"

    def _repr_html_(self) -> str:
        facts, policy = self.status(), self.spec.rules.policy
        shown = ("decisions", "outcomes", "open", "void", "violations", "evidence")
        notes = [f"Stopped: {LIMITS[facts['stop_reason']]}."] if facts["stop_reason"] else []
        notes.append(f"{PROMISES[policy.promise].in_brief} Each decision's certificate states every assumption.")
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
        oldest = next(iter(self._waiting(transaction, most=1)), None)
        since = None if oldest is None else moment(oldest[1])
        late = transaction.state.overdue_at(now())
        facts = {"oldest_open": since, "overdue": len(late), "overdue_since": moment(late[0]) if late else None}
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
            wanted = sorted({row.decision for row in rows if row.decision > 1})
            ids = self._ids(event_hashes(connection, self._id, wanted))
        shown = [shown_event(row, ids.get(row.decision), body) for row in rows]
        return {"events": shown, "next_seq": first + len(rows)}

    def trail(self, before: int = 2**62, limit: int = 50, *, whole: bool = False) -> list[dict[str, Any]]:
        """Events before a seq, the latest first: what stands out (alarms, resumes, amendments, corrections, rounds
        taken out), or the `whole` log. An amendment has what it `changed`: [old, new] by name, None if not plain.
        """
        last, most = min(max(1, int(before)), 2**62), min(max(1, int(limit)), 10_000)
        with reading(self.store.engine) as connection:
            rows = trail(connection, self._id, last, most, whole=whole)
            wanted = sorted({row.decision for row in rows if row.decision > 1})
            ids = self._ids(event_hashes(connection, self._id, wanted))
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
            found = [row for row in found if row.get("visit") == visit]
            if not found:
                raise unknown_visit(visit, unit)
        return found

    def to_frame(self, *, unit: str | None = None, visit: str | None = None) -> DataFrame:
        """`rows` as a pandas DataFrame."""
        return data_frame(self.rows(unit=unit, visit=visit))

    frame = to_frame

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
        found = [row for row in self._rows() if row.get("unit") == str(unit)]
        if not found:
            raise unknown_unit(str(unit))
        return found

    def export(self, path: str | Path) -> Path:
        """Write the decisions to .csv or .parquet, or the whole log to .jsonl."""
        with reading(self.store.engine) as connection:
            return write_rows(path, self.spec.first, self.name, read_events(connection, self._id))

    def _run(self, operation: Callable[[StudyTransaction], Answer]) -> Answer:
        return self.store.submit(self._id, self.name, operation, spec=self.spec).result()

    def _read(self, question: Callable[[StudyTransaction], Answer]) -> Answer:
        return self.store.read(self._id, self.name, question, spec=self.spec)

    def _ids(self, hashes: Mapping[int, bytes]) -> dict[int, str]:
        return {seq: str(id_of(self.name, seq, name)) for seq, name in hashes.items()}

    def _event(self, decision_id: str) -> Event:
        asked = read_own_id(self.name, decision_id)
        with reading(self.store.engine) as connection:
            event = read_event(connection, self._id, asked.seq)
        if event is None or not EVENT_KINDS[event.kind].decides:
            raise no_decision(decision_id)
        check_id(asked, id_of(self.name, event.seq, event.hash))
        return event

    def _waiting(self, transaction: StudyTransaction, most: int | None = None) -> list[tuple[DecisionId, int]]:
        transaction.flush()
        waiting = chain.from_iterable(phase.open for phase in reversed(transaction.state.phases))
        found = (event for seq in islice(waiting, most) if (event := transaction.event(seq)))
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
