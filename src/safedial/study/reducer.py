"""How an event changes the state, and how the state gives the next decision, whose event holds every number of its
certificate by name.

Corrections, and voids after an outcome, replay the log (study/replay_log.py). An alarm that has fired stays: a person
resumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from safedial.model.namespace import Array
from safedial.policies.estimates import dnrm2
from safedial.rounds.decision import Decision, Found
from safedial.rounds.learning import Advice
from safedial.rounds.outcome import Asked, Outcome, Sample
from safedial.rounds.rules import Rules
from safedial.study.amendment import amended_state
from safedial.study.event import EVENT_KINDS, Event
from safedial.study.state import Body, State, outcome_of, takes_back
from safedial.study.study_spec import with_limits
from safedial.version import __version__


class Noted(NamedTuple):
    """What a caller gives with a request: the idempotency key, metadata, a proposed setting, the label of who gets it,
    and the label of the visit.
    """

    key: str | None = None
    meta: Mapping[str, Any] | None = None
    proposal: float | None = None
    unit: str | None = None
    visit: str | None = None


QUESTION = Noted._fields[2:]
"""What of it events, certificates and tables hold under its own name, where it was given."""


def noted_in(body: Mapping[str, Any]) -> Noted:
    """The `Noted` of a `decided` event, from its body."""
    return Noted(*(body.get(name) for name in Noted._fields))


DECIDED = ("action", "baseline_cost", "fallback_reason", "limiter", "intensity", "guarantee", "round", "safe_action")


def body_of(decision: Decision, raw: list[float], state: State, noted: Noted) -> dict[str, Any]:
    """Plain values; an infinite bound (nothing is known yet) is null. `state` is the state before the decision."""
    return {
        **_given(decision, state, noted),
        "frozen": state.learning.frozen,
        "resumed": list(state.resumes),
        "evidence": state.watch.evidence,
        "violations": state.total("violations"),
        "unwatched": state.total("unwatched"),
        "corrected_violations": state.total("corrected_violations"),
        **{name: getattr(decision, name) for name in DECIDED},
        "context": raw,
        "model_seq": state.seq,
        "open": state.waiting,
        "void": state.void if state.before is None else sum(each.void for each in state.learned_in),
        "imported": state.imported if state.before is None else sum(each.imported for each in state.learned_in),
        "version": __version__,
        "found": decision.found._asdict(),
        "numbers": _numbers(decision, state),
    }


NAMED = 100
"""How many of the rounds that would have exceeded a log names with each decision, the latest."""


def _numbers(decision: Decision, state: State) -> dict[str, Any]:
    """The numbers behind a decision; rounds that they name by number are named by their ids, less the study's name."""
    if not state.rules.policy.names_rounds:
        return decision.numbers
    named = [state.learning.named[number - 1] for number in decision.numbers["exceeding"][-NAMED:]]
    return decision.numbers | {"exceeding": named}


def _given(decision: Decision, state: State, noted: Noted) -> dict[str, Any]:
    """What stands in a body only where there is any."""
    facts = {name: value for name, value in noted._asdict().items() if value is not None}
    if state.amendments:
        facts["amended"] = list(state.amendments)
    if (against_start := state.watch.start_evidence) is not None:
        facts["start_evidence"] = against_start
    if decision.extrapolated:
        facts["extrapolated"] = list(decision.extrapolated)
    return facts


def decision_of(rules: Rules, body: Mapping[str, Any], context: Any) -> Decision:
    """The decision that `body_of` wrote, with its certificate."""
    return Decision(
        body["action"],
        body["intensity"],
        body["safe_action"],
        body["round"],
        body["guarantee"],
        context,
        Found(**body["found"]),
        body["numbers"],
        body["baseline_cost"],
        body["fallback_reason"],
        rules,
        limiter=body["limiter"],
        extrapolated=tuple(body.get("extrapolated", ())),
        proposal=body.get("proposal"),
    )


# --- How an event changes the state, and how the state gives the next decision

NO_FIXES: Mapping[int, Any] = {}

TAG = 4
"""Bytes of an event's hash in the id of its decision."""


def decide_next(state: State, asked: Asked, raw: list[float], *, recorded: Any = None) -> tuple[Decision, Advice]:
    """The next decision, and what it was made from. It changes nothing in the state but what the `decided` event would
    change too.

    `raw` is the context as given; `recorded` are numbers to use instead of the state's own.
    """
    features, guard = state.rules.features, state.study.guard
    if features is not None and features.ranges:
        asked = asked._replace(extrapolated=features.outside(raw))
    decision, advice = state.advise(
        asked, coin=coin_after(state.hash), stop_reason=state.stop_reason, recorded=recorded
    )
    if not guard.lowers_nothing:
        decision = with_limits(guard, decision, raw, state.last_action)
    return decision, advice


def coin_after(before: bytes) -> float:
    """The coin of a randomised decision, uniform on [0, 1). It comes from the hash of the previous event, so that it
    cannot be known earlier and can be recomputed later.
    """
    return (int.from_bytes(before[:8]) >> 11) / 2.0**53


def update_state(
    state: State, event: Event, body: Body, fixes: Mapping[int, Any] = NO_FIXES, known: Any = None
) -> State:
    """The state after one more event, with its body as plain values; a new one if it amends the specification. What is
    about a decision changes the phase that judges it. `fixes` replaces values of outcomes while a log is replayed after
    a correction. `known` is what a new decision was made from, or the checked sample of a new outcome. An event that
    revises an outcome changes nothing here: the log is replayed with its values (replay_log.py).
    """
    means, decision = EVENT_KINDS[event.kind], event.decision
    phase = state.phase(decision) if means.reports or means.loses else state
    phase.seq = state.seq
    if means.decides:
        asked = question_of(state, body)
        if known is None and state.learning.follows:
            _, known = decide_next(state, asked, body["context"])
        _decided(state, event, body, asked, known)
    elif means.reports and not means.revises:
        _reported(phase, event, body, fixes.get(decision), known)
    elif means.loses:
        phase.gone(decision, unrelated=body["unrelated"], final=means.final)
    elif means.imports:
        _imported(state, body)
    elif means.stops:
        state.stop_reason = body["rule"]
    elif means.resumes:
        _resumed(state, event, body)
    elif means.amends:
        state = phase = amended_state(state, event, body)
    phase.seq = state.seq = event.seq
    return state


def context_of(state: State, raw: list[float]) -> Array:
    """The context of a stored round, from its raw values."""
    features = state.rules.features
    values = np.array(raw, dtype=np.float64)
    return values if features is None else features.transform(values)


def question_of(state: State, body: Body) -> Asked:
    """The question behind a `decided` event, read from its body as it was when it was asked."""
    vector = context_of(state, body["context"])
    return Asked(vector, dnrm2(vector), (), body["baseline_cost"], body.get("proposal"))


def _decided(state: State, event: Event, body: Body, asked: Asked, advice: Advice | None) -> None:
    tag = event.hash[:TAG].hex()
    state.decided(event.seq, asked, decision_of(state.rules, body, asked.vector), advice, at=event.at, tag=tag)
    state.new_decisions += 1
    if state.rules.policy.names_rounds:
        state.learning.named.append(f"{event.seq}.{tag}")


def _reported(phase: State, event: Event, body: Body, fix: Mapping[str, Any] | None, sample: Sample | None) -> None:
    """An outcome, with the values that replace it where it was corrected or voided later."""
    told = body if fix is None else {**body, **fix}
    round_ = phase.open.get(event.decision) or phase.expired.get(event.decision)
    if fix is not None:
        phase.corrected_violations += takes_back(phase, round_, body, told)
    if round_ is None:
        return
    outcome = outcome_of(round_, told)
    if "gone" in told:
        phase.voided(event.decision, outcome, unrelated=told["gone"] == "skip")
        return
    given = {"throttled": bool(told.get("throttled")), "unrelated": bool(told.get("unrelated")), "sample": sample}
    phase.told(event.decision, outcome, **given)


def _imported(state: State, body: Body) -> None:
    vector = context_of(state, body["context"])
    outcome = Outcome(body["applied_action"], body["reward"], body["cost"], body["baseline_cost"])
    state.learn_past(outcome, vector, dnrm2(vector))


def _resumed(state: State, event: Event, body: Body) -> None:
    """Clear the rule that stopped the study, in the phases where it has fired."""
    rule, forget = body["rule"], body["forget"]
    fired = [each for each in state.phases if rule in each.fired(latest=each is state)]
    if state not in fired and (forget or not (fired or state.before)):
        fired.append(state)
    joint = rule in ("too_many_void", "too_many_unwatched")
    for phase in state.phases if joint else fired:
        if not phase.watch.counts and (rule in phase.rules.policy.stop_rules or forget):
            if rule in phase.rules.policy.stop_rules:
                phase.learning.restart_evidence()
            phase.watch.crossed = False
        phase.watch.resumed(rule, phase.rounds)
        phase.restart_counts(rule, event.seq)
    if forget:
        state.learning.forget(unrelated=body["unrelated"])
        for phase in state.learned_in:
            phase.orphan()
    state.stop_reason = ""
    for phase in state.phases:
        phase.resumes.append([event.seq, rule, event.at, forget])
