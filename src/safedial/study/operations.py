"""The operations on a study, each a function that runs inside a write transaction.

Everything is checked before the first event is appended, so an operation that raises leaves no trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from safedial.errors import require
from safedial.rounds.learning import FORGETTING
from safedial.rounds.outcome import Outcome, Sample, normalise
from safedial.rounds.rules import Rules
from safedial.study.amendment import amended_spec, check_amendable, keeps_learning
from safedial.study.answer import (
    DecisionId,
    Receipt,
    StudyDecision,
    check_id,
    decided,
    id_of,
    no_decision,
    receipt,
    void_already,
)
from safedial.study.event import EVENT_KINDS, Event, RoundHistory, canonical, mark_of
from safedial.study.reducer import QUESTION, Noted, body_of, context_of, decide_next, noted_in
from safedial.study.requests import Request, check_observed, need_reason
from safedial.study.state import State
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec
from safedial.study.transaction import StudyTransaction


def request_digest(request: Any) -> bytes:
    """The digest of a request, which is stored with its idempotency key."""
    return hashlib.sha256(canonical(request).encode()).digest()


def request_of(event: Event) -> Any:
    """The request behind an event, in the form of its digest; None for kinds without keys."""
    body, means = event.fields(), EVENT_KINDS[event.kind]
    if means.decides:
        return asking(body["context"], body["baseline_cost"], noted_in(body))
    if means.reports and means.revises:
        return ["correct", event.decision, {name: body[name] for name in body["changed"]}, event.reason]
    if means.amends:
        return amending(body["spec"], event.reason)
    return resuming(body["forget"], event.reason, unrelated=body["unrelated"]) if means.resumes else None


def resuming(forget: bool, reason: str, *, unrelated: bool) -> list[Any]:
    """A request to resume, in the form of its digest."""
    return ["resume", forget, unrelated, reason]


def amending(fields: dict[str, Any], reason: str) -> list[Any]:
    """A request for an amendment, in the form of its digest: with the whole specification that it gives."""
    return ["amend", fields, reason]


def asking(raw: list[float], baseline_cost: float, noted: Noted) -> list[Any]:
    """A request for a decision, in the form of its digest: that from before metadata and proposals if it has none."""
    if question := {name: value for name in QUESTION if (value := getattr(noted, name)) is not None}:
        return ["ask", raw, baseline_cost, noted.meta, question]
    return ["ask", raw, baseline_cost, *([noted.meta] if noted.meta else [])]


UNIT, VISIT = "\x01unit:", "\x01visit:"
"""Begin the entries of units and visits among the idempotency keys; a key that a caller gives is printable."""


def label_entries(noted: Noted) -> dict[str, bytes]:
    """The entries of a unit and of its visit among the idempotency keys. Labels that differ only in case are one name:
    the digest tells them apart.
    """
    entries = {}
    for begin, labels in ((UNIT, [noted.unit]), (VISIT, [noted.unit, noted.visit])):
        if labels[-1] is not None:
            folded = [label and label.casefold() for label in labels]
            entries[begin + request_digest(folded).hex()] = request_digest(labels)
    return entries


def holder(transaction: StudyTransaction, key: str) -> DecisionId | None:
    """The decision that a key or a visit belongs to. One that was declared void, whose outcome could never be reported,
    releases it.
    """
    seq = transaction.seq_of(key)
    event = None if seq is None else transaction.event(seq)
    if seq is None or event is None or not EVENT_KINDS[event.kind].decides:
        return None
    first = id_of(transaction.source.name, seq, event.hash)
    if history_of(transaction, first).void:
        transaction.release_key(key)
        return None
    return first


def check_visit(transaction: StudyTransaction, noted: Noted) -> None:
    """Refuse a second decision for the same visit of a unit, unless the first was declared void."""
    first = next((holder(transaction, key) for key in label_entries(noted) if key.startswith(VISIT)), None)
    if first is None:
        return
    whose = "" if noted.unit is None else f"unit {noted.unit!r} "
    words = f"already has a decision, {first}; report its outcome, or declare it void before asking again"
    raise StudyError("visit_taken", f"visit = {noted.visit!r}: {whose}{words}", public=f"visit: {words}")


def check_unit(transaction: StudyTransaction, noted: Noted) -> None:
    """Refuse a unit that differs only in case from one of the study: they would be one patient as two."""
    key, name = next(iter(label_entries(noted).items()))
    if transaction.is_other(key, name) and (event := transaction.event(transaction.seq_of(key) or 0)):
        words = f"a unit of this study is {event.fields()['unit']!r}, which differs only in case"
        way_out = "write it the same way, or give another label"
        raise StudyError("invalid_input", f"unit = {noted.unit!r}: {words}; {way_out}", public=f"unit: {way_out}")


def once(transaction: StudyTransaction, key: str | None, request: Any, make: Callable[[], Event]) -> tuple[Event, bool]:
    """The event that `make` appends, or the one that the same request with this key appended before."""
    if key is None:
        return make(), True
    digest = request_digest(request)
    seq = transaction.known_key(key, digest)
    if seq is None:
        event = make()
        transaction.keep_key(key, digest, event.seq)
        return event, True
    event = transaction.event(seq)
    if event is None:
        raise StudyError("log_broken", f"study {transaction.source.name!r}: event {seq} is missing; verify the study")
    return event, False


def ask(transaction: StudyTransaction, read: Callable[[StudySpec], Request], *, actor: str) -> StudyDecision:
    """Advise an action. `read` reads the request for a specification."""
    bodies = []
    raw, asked, noted = read(transaction.state.study)

    def make() -> Event:
        if noted.unit is not None:
            check_unit(transaction, noted)
        if noted.visit is not None:
            check_visit(transaction, noted)
        at = transaction.time_of_decision()
        decision, advice = decide_next(transaction.state, asked, raw)
        bodies.append(body_of(decision, raw, transaction.state, noted))
        event = transaction.append("decided", bodies[0], actor=actor, known=advice, at=at)
        for key, name in label_entries(noted).items():
            if transaction.seq_of(key) is None:
                transaction.keep_key(key, name, event.seq)
        return event

    if noted.key is not None:
        holder(transaction, noted.key)
    event, created = once(transaction, noted.key, asking(raw, asked.baseline_cost, noted), make)
    if not created and not EVENT_KINDS[event.kind].decides:
        raise StudyError("key_reused", f"key = {str(noted.key)[:80]!r}: was used for another request")
    context = asked.vector if created else context_of(transaction.state, event.fields()["context"])
    spec = transaction.state.study.at(event.seq)
    now = {"stop_reason": transaction.state.stop_reason, "amended": transaction.state.study.since > event.seq}
    body = bodies[0] if created else None
    return decided(spec, transaction.source.name, event, context, body, replayed=not created, **now)


def tell(
    transaction: StudyTransaction, decision: DecisionId, read: Callable[[Rules], dict[str, Any]], *, actor: str
) -> Receipt:
    """Report an outcome, once. The same report again gives the same answer; a different one is a conflict. `read`
    reads it by the rules that the decision was made under.
    """
    state = transaction.state.phase(decision.seq)
    body = read(state.study.rules)
    check_decision(transaction, decision)
    round_ = state.open.get(decision.seq) or state.expired.get(decision.seq)
    if round_ is None:
        found = existing_outcome(transaction, decision, body)
        if found is not None:
            return receipt(decision, found, False)
        advice = the_decision(transaction, decision).fields()
        action, baseline = advice["action"], advice["baseline_cost"]
        context = context_of(state, advice["context"])
    else:
        action, baseline, context = round_.action, round_.baseline_cost, round_.context
    sample = check_outcome(state.study.rules, body, action, baseline, context)
    if "observed_at" in body:
        check_observed(body["observed_at"], the_decision(transaction, decision).at)
    return receipt(decision, transaction.append("outcome", body, decision=decision.seq, actor=actor, known=sample))


def existing_outcome(transaction: StudyTransaction, decision: DecisionId, body: dict[str, Any]) -> Event | None:
    """The event that reported the same outcome; None if there is no report yet."""
    events = transaction.about(decision.seq)
    same = next((event for event in events if event.body == canonical(body)), None)
    if same is None and events:
        last = events[-1]
        way_out = "a void round stays void" if EVENT_KINDS[last.kind].loses else "to replace its outcome, correct it"
        words = f"already has a different answer ({last.kind}, seq {last.seq}); {way_out}"
        raise StudyError("conflict", f"decision_id = {str(decision)!r}: {words}")
    return same


def history_of(transaction: StudyTransaction, decision: DecisionId) -> RoundHistory:
    """What was reported about a decision since it was made."""
    return RoundHistory.of(transaction.about(decision.seq))


def correct(
    transaction: StudyTransaction,
    decision: DecisionId,
    read: Callable[[Rules], dict[str, Any]],
    *,
    reason: str,
    actor: str,
    key: str | None,
) -> Receipt:
    """Replace values of an outcome: the log is replayed as if they had been reported at first."""
    need_reason(reason)
    study = transaction.state.phase(decision.seq).study
    changed = read(study.rules)
    check_decision(transaction, decision)

    def make() -> Event:
        advice, known = the_decision(transaction, decision).fields(), history_of(transaction, decision)
        if known.void or known.values is None:
            words = "is void; a void round stays void" if known.void else "has no outcome yet; report it with tell()"
            raise StudyError("conflict", f"decision_id = {str(decision)!r}: {words}")
        body = {**known.values, **({"unrelated": True} if known.unrelated else {}), **changed}
        context = context_of(transaction.state, advice["context"])
        check_outcome(study.rules, body, advice["action"], advice["baseline_cost"], context)
        body |= {"outcome_seq": known.outcome.seq, "changed": sorted(changed)}
        return transaction.append("correction", body, decision=decision.seq, actor=actor, reason=reason)

    return receipt(decision, *once(transaction, key, ["correct", decision.seq, changed, reason], make))


def void(transaction: StudyTransaction, decision: DecisionId, *, unrelated: bool, reason: str, actor: str) -> Receipt:
    """Void a round. Unless the reason is unrelated to its outcome, learning ends before it, for ever."""
    need_reason(reason)
    body: dict[str, Any] = {"unrelated": unrelated}
    check_decision(transaction, decision)
    phase = transaction.state.phase(decision.seq)
    if decision.seq not in phase.open and decision.seq not in phase.expired:
        known = history_of(transaction, decision)
        if known.void:
            if known.unrelated == unrelated and known.void.reason == reason:
                return receipt(decision, known.void, False)
            raise void_already(decision, other_reason=known.void.reason != reason, unrelated=bool(known.unrelated))
        if known.outcome:
            body |= {"after_outcome": True, "outcome_seq": known.outcome.seq}
    return receipt(decision, transaction.append("voided", body, decision=decision.seq, actor=actor, reason=reason))


def expire(
    transaction: StudyTransaction, decisions: list[DecisionId], *, unrelated: bool, reason: str, actor: str
) -> list[Receipt]:
    """Stop waiting for outcomes. Unless `unrelated`, an outcome may still come, and learning waits for it."""
    need_reason(reason)
    once_each = len({decision.seq for decision in decisions}) == len(decisions)
    require(once_each, "decision_ids", [str(each) for each in decisions], "must name each decision once")
    for decision in decisions:
        check_decision(transaction, decision)
        if decision.seq not in transaction.state.phase(decision.seq).open:
            raise StudyError("conflict", f"decision_id = {str(decision)!r}: does not wait for an outcome")
    body = {"unrelated": unrelated}
    return [
        receipt(each, transaction.append("expired", body, decision=each.seq, actor=actor, reason=reason))
        for each in decisions
    ]


def resume(
    transaction: StudyTransaction,
    *,
    rule: str | None,
    forget: bool,
    unrelated: bool,
    reason: str,
    actor: str,
    key: str | None,
) -> Receipt:
    """Clear the guard's alarm; that of `rule`, if it is given."""
    need_reason(reason)

    def make() -> Event:
        state = transaction.state
        require(not (forget and state.watch.counts), "forget", forget, FORGETTING)
        way_out = "there is nothing to resume; with forget it starts again without the earlier rounds"
        if not (state.stop_reason or forget):
            told = f"is not stopped; {way_out}"
            raise StudyError("invalid_input", f"study {transaction.source.name!r} {told}", public=f"the study {told}")
        if rule not in (None, state.stop_reason):
            words = f"the study is stopped by {state.stop_reason or 'nothing'}; look at its status again"
            raise StudyError("other_rule", f"rule = {str(rule)[:80]!r}: {words}", public=f"rule: {words}")
        if forget:
            check_forgettable(transaction.source.name, state)
        body = {"rule": state.stop_reason, "forget": forget, "unrelated": unrelated}
        return transaction.append("resumed", body, actor=actor, reason=reason)

    event, created = once(transaction, key, resuming(forget, reason, unrelated=unrelated), make)
    if rule not in (None, event.fields()["rule"]):
        raise StudyError("key_reused", f"key = {str(key)[:80]!r}: was used for another rule; give a new key")
    return receipt(None, event, created)._replace(stop_reason=transaction.state.stop_reason)


MOST_FORGETS = 10
"""How often a study may start again without its earlier rounds. Each time its evidence starts again too, which is false
with probability 0.01: so all of it together with 0.1 and a little.
"""


def check_forgettable(name: str, state: State) -> None:
    """Refuse to forget too often, and what an alarm that no person has seen rests on."""
    rule = f"has started again without its earlier rounds {state.forgets} times, the most that a study may"
    require(state.forgets < MOST_FORGETS, "study", name, rule, "create a new study")
    if due := next((rule for rule in state.watch.fired() if rule != state.stop_reason), ""):
        words = f"the alarm {due} is due too, and would be forgotten unseen; resume without forget, which raises it"
        raise StudyError("other_rule", f"forget = True: {words}", public=f"forget: {words}")


def amend(
    transaction: StudyTransaction,
    read: Callable[[StudySpec], Mapping[str, Any]],
    *,
    from_round: int | None,
    keep_learning: bool | None,
    reason: str,
    actor: str,
    key: str | None,
) -> Receipt:
    """Change the specification from the next decision on. `read` gives the new fields for the specification that they
    change.
    """
    need_reason(reason)
    state = transaction.state
    seq = None if key is None else transaction.seq_of(key)
    before = state.study if seq is None or transaction.is_old(seq) else state.study.at(seq)
    spec = amended_spec(before, read(before))
    kept = keeps_learning(before, spec, keep_learning)

    def make() -> Event:
        check_amendable(transaction.source.name, state)
        first = state.decisions + 1
        stated = first if from_round is None else from_round
        rule = f"must be the next round, {first}: " + ("it is in the past" if stated < first else "no later")
        require(stated == first, "from_round", from_round, rule, "leave it out")
        body = {"spec": spec.fields, "from_round": first, "keep_learning": kept}
        return transaction.append("amended", body, decision=1, actor=actor, reason=reason)

    event, created = once(transaction, key, amending(spec.fields, reason), make)
    if event.fields()["keep_learning"] != kept:
        raise StudyError("key_reused", f"key = {str(key)[:80]!r}: was used with another keep_learning; give a new key")
    return receipt(None, event, created)


def checkpoint(transaction: StudyTransaction, *, reason: str, actor: str) -> dict[str, Any]:
    """Mark the log. Returns what to keep elsewhere."""
    event = transaction.append("checkpoint", {"after": transaction.state.seq}, actor=actor, reason=reason)
    return mark_of(transaction.source.name, event, transaction.event(1))


def import_rounds(transaction: StudyTransaction, rounds: list[dict[str, Any]], *, reason: str, actor: str) -> int:
    """Append past rounds with their outcomes, before the first decision: all of them, or none."""
    first = transaction.state.decisions == 0
    require(first, "study", transaction.source.name, "has made decisions", "import history before the first one")
    for body in rounds:
        transaction.append("imported", body, actor=actor, reason=reason)
    return len(rounds)


def check_outcome(
    rules: Rules, body: dict[str, Any], action: float, baseline_cost: float, context: Any
) -> Sample | None:
    """Refuse an impossible outcome. Returns its sample, or None if it was throttled."""
    applied = body["applied_action"]
    if not body["throttled"]:
        given = action if applied is None else applied
        return normalise(rules, Outcome(given, body["reward"], body["cost"], baseline_cost), context)
    if applied is not None:
        low, high = rules.dial.low, rules.dial.high
        require(low <= applied <= high, "applied_action", applied, f"must lie between {low:g} and {high:g}")
    return None


def check_decision(transaction: StudyTransaction, decision: DecisionId) -> None:
    """Refuse an id that belongs to no decision of this log."""
    phase = transaction.state.phase(decision.seq)
    round_ = phase.open.get(decision.seq) or phase.expired.get(decision.seq)
    if round_ is None:
        the_decision(transaction, decision)
    elif round_.tag != decision.tag:
        check_id(decision, decision._replace(tag=round_.tag))


def the_decision(transaction: StudyTransaction, decision: DecisionId) -> Event:
    """The event of a decision, whose id must match."""
    event = transaction.event(decision.seq)
    if event is None or not EVENT_KINDS[event.kind].decides:
        raise no_decision(decision)
    check_id(decision, id_of(transaction.source.name, event.seq, event.hash))
    return event
