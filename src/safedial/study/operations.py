"""What can be done to a study, each as one function that runs inside a write transaction.

Everything is checked before the first event is appended: an operation that raises leaves no trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from safedial.errors import require
from safedial.online.conformal import ConformalLearner
from safedial.online.outcome import normalise
from safedial.study.answer import Receipt, StudyDecision, decided, receipt
from safedial.study.desk import Desk
from safedial.study.door import Asked
from safedial.study.errors import StudyError
from safedial.study.event import Event, canonical
from safedial.study.fold import context_of, decide_next
from safedial.study.ids import DecisionId, check_id, id_of, no_decision
from safedial.study.record import Noted, body_of, noted_in

VALUES = ("reward", "cost", "applied_action", "throttled")


def request_digest(request: Any) -> bytes:
    """What an idempotency key is kept with: a request in one form."""
    return hashlib.sha256(canonical(request).encode()).digest()


def request_of(event: Event) -> Any:
    """The request that made an event, as its digest was taken; None for kinds that take no key."""
    body = event.fields()
    if event.kind == "decided":
        return asking(body["context"], body["baseline_cost"], noted_in(body))
    if event.kind == "correction":
        return ["correct", event.decision, {name: body[name] for name in body["changed"]}, event.reason]
    return ["resume", body["forget"], event.reason] if event.kind == "resumed" else None


def asking(raw: list[float], baseline_cost: float, noted: Noted) -> list[Any]:
    """A question, as its digest is taken; without metadata as it was before there were any."""
    return ["ask", raw, baseline_cost, *([noted.meta] if noted.meta else [])]


def once(desk: Desk, key: str | None, request: Any, make: Callable[[], Event]) -> tuple[Event, bool]:
    """The event that `make` appends, or the one that the same request with this key appended before."""
    if key is None:
        return make(), True
    digest = request_digest(request)
    seq = desk.known_key(key, digest)
    if seq is None:
        event = make()
        desk.keep_key(key, digest, event.seq)
        return event, True
    event = desk.event(seq)
    if event is None:
        raise StudyError("log_broken", f"study {desk.source.name!r}: event {seq} is missing; verify the study")
    return event, False


def ask(desk: Desk, *, asked: Asked, noted: Noted, baseline_cost: float, actor: str) -> StudyDecision:
    bodies = []

    def make() -> Event:
        at = desk.time_of_decision()
        decision = decide_next(desk.state, asked.vector, asked.norm, asked.raw, baseline_cost)
        bodies.append(body_of(decision, asked.raw, desk.state, noted))
        return desk.append("decided", bodies[0], actor=actor, vector=asked.vector, at=at)

    event, created = once(desk, noted.key, asking(asked.raw, baseline_cost, noted), make)
    if not created and event.kind != "decided":
        raise StudyError("key_reused", f"key = {str(noted.key)[:80]!r}: was used for another request")
    context = asked.vector if created else context_of(desk.state, event.fields()["context"])
    made = decided(desk.state.study, desk.source.name, event, context, bodies[0] if created else None)
    return made._replace(replayed=not created, stopped=desk.state.stopped)


def tell(desk: Desk, decision: DecisionId, body: dict[str, Any], *, actor: str) -> Receipt:
    """Report an outcome, once. The same again is the same answer; another is a conflict."""
    state = desk.state
    check_decision(desk, decision)
    turn = state.open.get(decision.seq) or state.expired.get(decision.seq)
    if turn is None:
        found = said_before(desk, decision, body)
        if found is not None:
            return receipt(decision, found, False)
        advice = the_decision(desk, decision).fields()
        action, baseline = advice["action"], advice["baseline_cost"]
        context = context_of(state, advice["context"])
    else:
        action, baseline, context = turn.action, turn.baseline_cost, turn.context
    check_outcome(desk, body, action, baseline, context)
    return receipt(decision, desk.append("outcome", body, decision=decision.seq, actor=actor))


def said_before(desk: Desk, decision: DecisionId, body: dict[str, Any]) -> Event | None:
    """The outcome event that says the same; None where nothing was said yet."""
    last = None
    for event in desk.about(decision.seq):
        if event.kind == "outcome" and event.body == canonical(body):
            return event
        last = event
    if last is not None:
        way_out = (
            "correct() replaces an outcome" if last.kind in ("outcome", "correction") else "a void round stays void"
        )
        words = f"has another answer already ({last.kind}, seq {last.seq}); {way_out}"
        raise StudyError("conflict", f"decision_id = {str(decision)!r}: {words}")
    return None


def correct(
    desk: Desk, decision: DecisionId, changed: dict[str, Any], *, reason: str, actor: str, key: str | None
) -> Receipt:
    """Replace values of an outcome; the state is folded again as if they had come first."""
    need_reason(reason)
    check_decision(desk, decision)

    def make() -> Event:
        advice, values, outcome = effective(desk, decision)
        body = {**values, **changed}
        context = context_of(desk.state, advice["context"])
        check_outcome(desk, body, advice["action"], advice["baseline_cost"], context)
        body |= {"outcome_seq": outcome, "changed": sorted(changed)}
        return desk.append("correction", body, decision=decision.seq, actor=actor, reason=reason)

    return receipt(decision, *once(desk, key, ["correct", decision.seq, changed, reason], make))


def effective(desk: Desk, decision: DecisionId) -> tuple[dict[str, Any], dict[str, Any], int]:
    """(advice, values as they stand, seq of the outcome) of a decision with an outcome that counts."""
    advice = the_decision(desk, decision).fields()
    values, outcome = None, 0
    for event in desk.about(decision.seq):
        body = event.fields()
        if event.kind == "voided":
            raise StudyError("conflict", f"decision_id = {str(decision)!r}: is void; a void round stays void")
        if event.kind in ("outcome", "correction"):
            values = {name: body[name] for name in VALUES}
            values |= {"unrelated": True} if body.get("unrelated") else {}
            outcome = outcome or event.seq
    if values is None:
        raise StudyError("conflict", f"decision_id = {str(decision)!r}: has no outcome yet; report it with tell()")
    return advice, values, outcome


def void(desk: Desk, decision: DecisionId, *, unrelated: bool, reason: str, actor: str) -> Receipt:
    """Take a round out. Unless that has nothing to do with its outcome, the model stops before it, for ever."""
    need_reason(reason)
    body: dict[str, Any] = {"unrelated": unrelated}
    check_decision(desk, decision)
    if decision.seq not in desk.state.open and decision.seq not in desk.state.expired:
        for event in desk.about(decision.seq):
            if event.kind == "voided":
                same = event.fields()["unrelated"] == unrelated and event.reason == reason
                if same:
                    return receipt(decision, event, False)
                raise StudyError("conflict", f"decision_id = {str(decision)!r}: is void already, otherwise")
            if event.kind == "outcome":
                body |= {"after_outcome": True, "outcome_seq": event.seq}
    return receipt(decision, desk.append("voided", body, decision=decision.seq, actor=actor, reason=reason))


def expire(desk: Desk, decisions: list[DecisionId], *, unrelated: bool, reason: str, actor: str) -> list[Receipt]:
    """Stop waiting for outcomes. Unless `unrelated`, a late one may still come, and the model waits for it."""
    need_reason(reason)
    once_each = len({decision.seq for decision in decisions}) == len(decisions)
    require(once_each, "decision_ids", [str(each) for each in decisions], "must name each decision once")
    for decision in decisions:
        check_decision(desk, decision)
        if decision.seq not in desk.state.open:
            raise StudyError("conflict", f"decision_id = {str(decision)!r}: does not wait for an outcome")
    body = {"unrelated": unrelated}
    return [
        receipt(each, desk.append("expired", body, decision=each.seq, actor=actor, reason=reason)) for each in decisions
    ]


def resume(desk: Desk, *, forget: bool, reason: str, actor: str, key: str | None) -> Receipt:
    """Take the guard's alarm back: a person's decision."""
    need_reason(reason)

    def make() -> Event:
        state = desk.state
        require(state.stopped, "study", desk.source.name, "is not stopped", "there is nothing to resume")
        fits = not forget or isinstance(state.learner, ConformalLearner)
        require(fits, "forget", forget, "is for hp_conformal: a certified learner's rounds stay true")
        body = {"rule": state.stopped, "forget": forget}
        return desk.append("resumed", body, actor=actor, reason=reason)

    return receipt(None, *once(desk, key, ["resume", forget, reason], make))


def checkpoint(desk: Desk, *, reason: str, actor: str) -> dict[str, Any]:
    """Mark the log, and say what to write down elsewhere."""
    event = desk.append("checkpoint", {"after": desk.state.seq}, actor=actor, reason=reason)
    return {"study": desk.source.name, "seq": event.seq, "hash": event.hash.hex()}


def bring_in(desk: Desk, rounds: list[dict[str, Any]], *, reason: str, actor: str) -> int:
    """Append past rounds with their outcomes: all of them, before the first decision, or none."""
    first = desk.state.rounds == 0
    require(first, "study", desk.source.name, "has made decisions", "import history before the first one")
    for body in rounds:
        desk.append("imported", body, actor=actor, reason=reason)
    return len(rounds)


def check_outcome(desk: Desk, body: dict[str, Any], action: float, baseline_cost: float, context: Any) -> None:
    applied, rules = body["applied_action"], desk.state.study.rules
    if not body["throttled"]:
        given = action if applied is None else applied
        normalise(rules, given, body["reward"], body["cost"], baseline_cost, context)
    elif applied is not None and rules.version > 1:
        low, high = rules.dial.low, rules.dial.high
        require(low <= applied <= high, "applied_action", applied, f"must lie between {low:g} and {high:g}")


def check_decision(desk: Desk, decision: DecisionId) -> None:
    """Refuse an id that is not that of a decision of this log."""
    turn = desk.state.open.get(decision.seq) or desk.state.expired.get(decision.seq)
    if turn is not None:
        check_id(decision, decision._replace(tag=turn.tag))
    else:
        the_decision(desk, decision)


def the_decision(desk: Desk, decision: DecisionId) -> Event:
    """The event of a decision, whose id must be its own."""
    event = desk.event(decision.seq)
    if event is None or event.kind != "decided":
        raise no_decision(decision)
    check_id(decision, id_of(desk.state.study.rules_version, desk.source.name, event.seq, event.hash))
    return event


def need_reason(reason: Any) -> None:
    stated = isinstance(reason, str) and reason.strip()
    require(stated, "reason", reason, "must say why, in words", code="reason_required")
