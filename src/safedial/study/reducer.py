"""How an event changes the state, and how the state gives the next decision, whose event holds every number of its
certificate by name.

Corrections, and voids after an outcome, replay the log (study/replay_log.py). An alarm that has fired stays: a person
resumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.policies.estimates import dnrm2
from safedial.rounds.decision import Decision, Found
from safedial.rounds.learning import Advice
from safedial.rounds.outcome import Asked, Outcome, Round, Sample, is_over, normalise
from safedial.rounds.rules import Rules
from safedial.study.amendment import amended_state
from safedial.study.event import EVENT_KINDS, Event, Kind, waits
from safedial.study.state import Body, State, sample_of, takes_back, watched_sample
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
        "frozen": state.frozen,
        "resumed": list(state.resumes),
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
    if not state.study.rules.policy.names_rounds:
        return decision.numbers
    named = [state.named[number - 1] for number in decision.numbers["exceeding"][-NAMED:]]
    return decision.numbers | {"exceeding": named}


def _given(decision: Decision, state: State, noted: Noted) -> dict[str, Any]:
    """What stands in a body only where there is any; `evidence` is that of a policy with evidence of its own."""
    facts = {name: value for name, value in noted._asdict().items() if value is not None}
    if state.amendments:
        facts["amended"] = list(state.amendments)
    if decision.extrapolated:
        facts["extrapolated"] = list(decision.extrapolated)
    if not state.watch.counts:
        facts["evidence"] = state.watch.evidence
    return facts


def decision_of(rules: Rules, body: Mapping[str, Any], context: Any) -> Decision:
    """The decision that `body_of` wrote, with its certificate."""
    return Decision(
        body["action"],
        body["intensity"],
        body["safe_action"],
        body["round"],
        not body["fallback_reason"] and GUARANTEES[body["guarantee"]].from_constants,
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
    study, features = state.study, state.study.rules.features
    if features is not None and features.ranges:
        asked = asked._replace(extrapolated=features.outside(raw))
    coin = coin_after(state.hash) if study.rules.policy.randomised else 0.5
    given = {"coin": coin, "stop_reason": state.stop_reason, "recorded": recorded}
    decision, advice = state.learning.advise(study.rules, asked, number=state.rounds + 1, **given)
    if not study.guard.lowers_nothing:
        decision = with_limits(study.guard, decision, raw, state.last_action)
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
        advice = decide_next(state, asked, body["context"])[1] if known is None else known
        _decided(state, event, body, asked, advice)
    elif means.reports and not means.revises:
        fix = fixes.get(decision)
        told = body if fix is None else {**body, **fix}
        if fix is not None:
            round_ = phase.open.get(decision) or phase.expired.get(decision)
            phase.corrected_violations += takes_back(phase, round_, body, told)
        _outcome(phase, decision, told, known)
    elif means.loses:
        _gone(phase, decision, means, body)
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
    features = state.study.rules.features
    values = np.array(raw, dtype=np.float64)
    return values if features is None else features.transform(values)


def question_of(state: State, body: Body) -> Asked:
    """The question behind a `decided` event, read from its body as it was when it was asked."""
    vector = context_of(state, body["context"])
    return Asked(vector, dnrm2(vector), (), body["baseline_cost"], body.get("proposal"))


def _decided(state: State, event: Event, body: Body, asked: Asked, advice: Advice) -> None:
    learning, policy = state.learning, state.study.rules.policy
    place = learning.open(advice, decision_of(state.study.rules, body, asked.vector))
    if policy.names_rounds:
        state.named.append(f"{event.seq}.{event.hash[:TAG].hex()}")
    state.rounds += 1
    state.new_decisions += 1
    state.broken = state.broken or body["fallback_reason"] == "assumption_broken"
    learning.count_start(body["guarantee"])
    if body["intensity"] == 0.0 and body["limiter"] in ("mask", "cap"):
        learning.leave_out(place)
    elif body["intensity"] == 0.0 and not policy.zero_tells:
        learning.lose(place, body["baseline_cost"])
    if waits(body, policy.zero_tells):
        round_ = round_of(body, asked, place)._replace(at=event.at, tag=event.hash[:TAG].hex())
        state.open[event.seq] = state.watch.guaranteed(round_)
        if state.study.ordered:
            state.queue.append(event.seq)
    state.watch.notice()


def round_of(body: Body, asked: Asked, place: Any = None) -> Round:
    """The round of a decision's event; `watched`: it claims something."""
    watched = not body["fallback_reason"] and GUARANTEES[body["guarantee"]].claimed
    return Round(body["round"], place, body["action"], body["baseline_cost"], watched, asked.vector, asked.norm)


def _outcome(state: State, decision: int, body: Body, known: Sample | None) -> None:
    """Learn from an outcome, now or when the earlier rounds are known. A round without a dose is known already."""
    round_ = state.open.pop(decision, None) or _found_again(state, decision)
    if round_ is None:
        return
    if "gone" in body:
        seen = _voided(state, decision, round_, body)
        _lose(state, decision, round_, skip=body["gone"] == "skip", counted=seen)
        return
    if body.get("throttled"):
        _throttled(state, decision, round_, body)
        _lose(state, decision, round_, skip=False, counted=True)
        return
    sample = sample_of(state, round_, body) if known is None else known
    _count(state, decision, sample)
    unrelated = bool(body.get("unrelated"))
    nothing = sample.weight <= 0.0 or sample.unknown
    dropped = nothing and (unrelated or not state.study.rules.policy.zero_tells)
    state.watch.reported(round_, sample, round_.context, round_.norm, dropped=dropped)
    if round_.number > state.last_known:
        state.last_known, state.last_action = round_.number, min(sample.applied, round_.action)
    if dropped:
        _lose(state, decision, round_, skip=unrelated, counted=True)
    elif not state.study.rules.policy.in_order:
        state.learning.learn(round_.context, round_.norm, sample, round_.place)
        state.watch.notice()
    elif state.study.ordered:
        state.held[decision] = round_, sample, False
        _advance(state)
    else:
        _learn(state, round_, sample)


def _count(state: State, decision: int, sample: Sample) -> None:
    over = is_over(state.study.rules, sample.measured)
    state.outcomes += 1
    state.violations += over
    state.recent.append(over)


def _throttled(state: State, decision: int, round_: Round, body: Body) -> None:
    """Nothing is learned from a setting that was lowered because of the outcome. A cost above the threshold still
    counts: the advised setting would have cost at least as much, unless more was applied.
    """
    sample = watched_sample(state, round_, body)
    _count(state, decision, sample)
    state.watch.reported(round_, sample, round_.context, round_.norm, throttled=True)
    if not state.study.rules.policy.in_order:
        state.learning.throttled(round_.context, sample, round_.place)
        state.watch.notice()


def _voided(state: State, decision: int, round_: Round, body: Body) -> bool:
    """Whether the outcome of a round that is now void had exceeded the threshold, which still counts."""
    sample = watched_sample(state, round_, body)
    over = state.watch.voided(round_, sample)
    if over:
        _count(state, decision, sample)
    return over


def _gone(state: State, decision: int, means: Kind, body: Body) -> None:
    """A round without an outcome is skipped if the reason is unrelated to the outcome; otherwise it blocks learning."""
    round_ = state.open.pop(decision, None) or (_found_again(state, decision) if means.final else None)
    if round_ is None:
        return
    if not means.final and not body["unrelated"]:
        # The outcome may still come. Learning waits for it, because going on without it would be learning from a
        # selection.
        state.expired[decision] = round_
        state.void += 1
        state.new_void += 1
        state.watch.unseen(round_)
    else:
        _lose(state, decision, round_, skip=body["unrelated"])


def _found_again(state: State, decision: int) -> Round | None:
    """An expired round that is reported after all, so it is no longer missing."""
    round_ = state.expired.pop(decision, None)
    if round_ is not None:
        state.void -= 1
        # A round from before the last resume of the rule must not make up for a void after it.
        since = max((seq for seq, rule, _ in state.resumes if rule == "too_many_void"), default=0)
        if decision > since:
            state.new_void = max(0, state.new_void - 1)
        state.watch.unseen(round_, -1)
    return round_


def _lose(state: State, decision: int, round_: Round, *, skip: bool, counted: bool = False) -> None:
    """Skip a round without a usable outcome, or, if the reason may be related to the outcome, end learning.

    A policy that needs no order leaves it out in the first case and takes it for the worst in the second. `counted`:
    the watch has counted it already.
    """
    # Why this can end learning: the bounds are proved for a run of rounds without gaps. Rounds that are missing because
    # of their outcomes (a patient who fell ill stays away) would bias the estimate towards safety, unnoticed.
    state.void += 1
    state.new_void += 1
    if not counted:
        state.watch.unseen(round_)
    if state.study.ordered:
        state.held[decision] = round_, None, not skip
        _advance(state)
    elif not state.study.rules.policy.in_order:
        if skip:
            state.learning.leave_out(round_.place)
            state.watch.notice()
        else:
            state.learning.lose(round_.place)
    elif not skip:
        state.frozen = True


def _advance(state: State) -> None:
    queue, held = state.queue, state.held
    while queue and queue[0] in held:
        decision = queue.popleft()
        round_, sample, lost = held.pop(decision)
        if sample is not None:
            _learn(state, round_, sample)
        elif lost:
            state.frozen = True


def _learn(state: State, round_: Round, sample: Sample) -> None:
    """Learn from a round, unless an earlier one was lost."""
    if not state.frozen:
        state.learning.learn(round_.context, round_.norm, sample, None)


def _imported(state: State, body: Body) -> None:
    vector = context_of(state, body["context"])
    outcome = Outcome(body["applied_action"], body["reward"], body["cost"], body["baseline_cost"])
    sample = normalise(state.study.rules, outcome, vector)
    state.learning.learn(vector, dnrm2(vector), sample, None)
    state.imported += 1


def _resumed(state: State, event: Event, body: Body) -> None:
    """Clear the rule that stopped the study, in the phases where it has fired."""
    rule, forget = body["rule"], body["forget"]
    fired = [each for each in state.phases if rule in each.fired(latest=each is state)]
    if state not in fired and (forget or not (fired or state.before)):
        fired.append(state)
    joint = rule in ("too_many_void", "too_many_unwatched")
    for phase in state.phases if joint else fired:
        if not phase.watch.counts and (rule in phase.study.rules.policy.stop_rules or forget):
            phase.learning.restart_evidence()
            phase.watch.crossed = False
        phase.watch.resumed(rule, phase.rounds)
        phase.restart_counts(rule)
    if forget:
        state.learning.forget(unrelated=body["unrelated"])
        for waiting in (part for phase in state.learned_in for part in (phase.open, phase.expired)):
            waiting |= {seq: round_._replace(place=-1) for seq, round_ in waiting.items()}
    state.stop_reason = ""
    for phase in state.phases:
        phase.resumes.append([event.seq, rule, event.at])
