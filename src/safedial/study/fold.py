"""One event after the other into the state, and a decision out of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import monitor, tails
from safedial.core.confidence import cost_radius_of, reward_radius_of
from safedial.core.margin import round_risk
from safedial.online.advice import decide
from safedial.online.blas import dnrm2
from safedial.online.conformal import ConformalLearner
from safedial.online.decision import Decision
from safedial.online.outcome import Sample, counted, normalise
from safedial.study.guard import with_habits
from safedial.study.state import Round, State

Vector = NDArray[np.float64]
Body = Mapping[str, Any]

NO_FIXES: Mapping[int, Any] = {}


def decide_next(state: State, vector: Vector, norm: float, raw: list[float], baseline_cost: float) -> Decision:
    """The next decision, from what the state knows. Changes nothing that the `decided` event would not change too."""
    study, learner = state.study, state.learner
    learner.begin()
    stopped = state.stopped
    if not stopped and isinstance(learner, ConformalLearner) and learner.alarmed:
        stopped = "drift"
    decision = decide(
        study.rules,
        state.spec,
        learner,
        learner.predict(vector, norm),
        vector,
        state.rounds + 1,
        baseline_cost,
        stopped=stopped,
    )
    return with_habits(study.guard, decision, raw, state.last_action)


def fold(
    state: State,
    seq: int,
    kind: str,
    decision: int,
    body: Body,
    fixes: Mapping[int, Any] = NO_FIXES,
    vector: Vector | None = None,
) -> None:
    """Apply one event. `fixes` replaces what outcomes said, while a log is folded again after a correction; `vector` is
    the context of a decision, where it is known already.

    A `correction`, and a `voided` event after an outcome, change nothing here: they ask for a fold with fixes.
    """
    if kind == "decided":
        _decided(state, seq, body, context_of(state, body["context"]) if vector is None else vector)
    elif kind == "outcome":
        _outcome(state, decision, fixes.get(decision, body))
    elif kind in ("voided", "expired"):
        _gone(state, decision, kind, body)
    elif kind == "imported":
        _imported(state, body)
    elif kind == "alarm":
        state.stopped = body["rule"]
    elif kind == "resumed":
        _resumed(state, body)
    state.seq = seq


def context_of(state: State, raw: list[float]) -> Vector:
    """The context of a stored round, from its raw values."""
    features = state.study.rules.features
    values = np.array(raw, dtype=np.float64)
    return values if features is None else features.transform(values)


def _decided(state: State, seq: int, body: Body, vector: Vector) -> None:
    state.learner.begin()
    place = state.learner.open(vector)
    state.rounds += 1
    state.new_decisions += 1
    state.last_action = body["action"]
    state.broken = state.broken or body["doubt"] == "assumption_broken"
    if body["intensity"] > 0.0:
        watched = not body["doubt"] and body["promise"] != "none"
        number, action, baseline = body["round"], body["action"], body["baseline_cost"]
        state.open[seq] = Round(number, vector, dnrm2(vector), action, baseline, watched, place)
        if state.study.ordered:
            state.queue.append(seq)
    _notice(state)


def _outcome(state: State, decision: int, body: Body) -> None:
    """Learn, now or when the rounds before are known. A round that was advised nothing is known already."""
    turn = state.open.pop(decision, None) or _found_again(state, decision)
    if turn is None:
        return
    gone = body.get("gone", "throttled" if body.get("throttled") else "")
    if gone:
        _lose(state, decision, turn, skip=gone == "skip")
        return
    applied = body["applied_action"]
    rules = state.study.rules
    given = turn.action if applied is None else applied
    sample = normalise(rules, given, body["reward"], body["cost"], turn.baseline_cost, turn.context)
    over = sample.measured > rules.spec.threshold
    state.outcomes += 1
    state.violations += over
    state.recent.append(over)
    if turn.number == state.rounds:
        state.last_action = sample.applied
    if state.study.conformal:
        state.learner.learn(turn.context, turn.norm, sample, turn.place)
        _notice(state)
    elif state.study.ordered:
        state.held[decision] = turn, sample, False
        _advance(state)
    else:
        _learn(state, turn, sample)


def _gone(state: State, decision: int, kind: str, body: Body) -> None:
    """A round without an outcome: passed over where that has nothing to do with the outcome, else in the way."""
    turn = state.open.pop(decision, None) or (_found_again(state, decision) if kind == "voided" else None)
    if turn is None:
        return
    if kind == "expired" and not body["unrelated"]:
        state.expired[decision] = turn
        state.void += 1
        state.new_void += 1
    else:
        _lose(state, decision, turn, skip=body["unrelated"])


def _found_again(state: State, decision: int) -> Round | None:
    """An expired round that is heard of after all, and so is no longer among the missing."""
    turn = state.expired.pop(decision, None)
    if turn is not None:
        state.void -= 1
        state.new_void = max(0, state.new_void - 1)
    return turn


def _lose(state: State, decision: int, turn: Round, *, skip: bool) -> None:
    """A round whose outcome stays unknown: passed over, or, where that may have to do with it, the end of learning."""
    state.void += 1
    state.new_void += 1
    if state.study.ordered:
        state.held[decision] = turn, None, not skip
        _advance(state)
    elif not state.study.conformal and not skip:
        state.frozen = True


def _advance(state: State) -> None:
    queue, held = state.queue, state.held
    while queue and queue[0] in held:
        turn, sample, lost = held.pop(queue.popleft())
        if sample is not None:
            _learn(state, turn, sample)
        elif lost:
            state.frozen = True
            _count_as_kept(state, turn)


def _learn(state: State, turn: Round, sample: Sample) -> None:
    """Watch a round, and learn from it; behind a lost one only the watch goes on."""
    if sample.weight > 0.0:
        _watch_tails(state, turn, sample)
    if not state.frozen:
        state.learner.learn(turn.context, turn.norm, sample, None)
    if turn.watched and sample.applied <= turn.action:
        seen = counted(state.study.rules.spec, sample, float(turn.number))
        if seen:
            state.monitor = monitor.update(state.monitor, *seen)
            if seen[0] and monitor.alarm(state.monitor, state.study.guard.alarm_level):
                state.crossed = True


def _count_as_kept(state: State, turn: Round) -> None:
    """The monitor takes a lost round for one that kept the promise: less evidence than there was, so still valid."""
    if turn.watched:
        risk = float(round_risk(state.study.rules.spec, float(turn.number)))
        state.monitor = monitor.update(state.monitor, False, risk)


def _watch_tails(state: State, turn: Round, sample: Sample) -> None:
    """Set the residuals of a sample against the stated noise, before it is learned from."""
    rules = state.study.rules
    seen: Any = state.learner.predict(turn.context, turn.norm)
    spec, radius, share = rules.spec, rules.policy.options["radius"], math.sqrt(sample.weight)
    of_reward, of_cost = reward_radius_of(radius, seen, spec), cost_radius_of(radius, seen, spec)
    width = share * seen.width
    state.tails = [
        tails.update(state.tails[0], share * (sample.reward - seen.reward), of_reward * width, spec.reward_noise),
        tails.update(state.tails[1], share * (sample.cost - seen.cost), of_cost * width, spec.cost_noise),
    ]
    state.noisy = state.noisy or tails.alarm(max(state.tails), 0.5 * state.study.guard.alarm_level)


def _notice(state: State) -> None:
    """Take note of a conformal learner's own watch."""
    if isinstance(state.learner, ConformalLearner) and state.learner.alarmed:
        state.crossed = True


def _imported(state: State, body: Body) -> None:
    vector = context_of(state, body["context"])
    applied, reward, cost, baseline = (body[name] for name in ("applied_action", "reward", "cost", "baseline_cost"))
    sample = normalise(state.study.rules, applied, reward, cost, baseline, vector)
    state.learner.learn(vector, dnrm2(vector), sample, None)
    state.imported += 1


def _resumed(state: State, body: Body) -> None:
    if isinstance(state.learner, ConformalLearner):
        state.learner.watch_afresh()
        if body.get("forget"):
            state.learner.forget()
            for waiting in (state.open, state.expired):
                for seq, turn in waiting.items():
                    waiting[seq] = turn._replace(place=-1)
    state.monitor = monitor.init()
    state.tails = [0.0, 0.0]
    state.crossed = state.broken = state.noisy = False
    state.stopped = ""
    state.recent.clear()
    state.new_decisions = state.new_void = 0
