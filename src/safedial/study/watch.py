"""The watch of a study: evidence that the promise is broken (core.monitor), or that the noise is larger than stated
(core.tails).

From version 2 on it never waits. A round counts from its decision on as one that keeps the promise, and is revised
when its outcome is known. So whatever is open, void, expired or late, for any reason, only lowers the evidence, which
stays valid (core.monitor), and hides nothing that was reported. Where more was applied than advised, what counts is
the cost that the advised setting would have had (`cost_at_advice`); a throttled round counts where its cost exceeds
the threshold in spite of the throttle. A resume begins a new product, of the rounds that are decided after it: rounds
that are open then are open for reasons that may have to do with their outcomes.

In version 1 rounds were watched in the order of learning, so one open outcome stopped the watch.
"""

from __future__ import annotations

import math
from typing import Any

from safedial.core import monitor, tails
from safedial.core.confidence import cost_radius_of, reward_radius_of
from safedial.core.margin import round_risk
from safedial.core.spec import SafetySpec
from safedial.decision.outcome import Sample, allowed_risk, cost_at_advice, counted, counted_from
from safedial.study.state import Round, State


def decided(state: State, turn: Round) -> Round:
    """Expect an outcome: the round counts as kept. The round, no longer watched where it can prove nothing."""
    if state.learner.watches_itself:
        state.new_watched += turn.watched
        return turn
    state.tails = [tails.expect(each) for each in state.tails]
    if not turn.watched:
        return turn
    state.new_watched += 1
    risk = allowed_risk(state.study.rules.spec, turn.baseline_cost, float(turn.number))
    if risk is None:
        state.new_watched -= 1
        return turn._replace(watched=False)
    state.monitor = monitor.update(state.monitor, False, risk)
    return turn


def told(state: State, turn: Round, sample: Sample, *, throttled: bool = False) -> None:
    """Set a reported outcome against the promise and the noise, whatever else is open."""
    rules = state.study.rules
    if sample.weight > 0.0 and not throttled and turn.number > state.tails_from and not state.learner.watches_itself:
        _watch_tails(state, turn, sample, expected=True)
    if not turn.watched:
        return
    cost = sample.measured if throttled else cost_at_advice(rules, sample, turn.action)
    if throttled and not _throttle_tells(rules.spec, sample, turn.action):
        cost = None
    if cost is None:
        unseen(state, turn)
        return
    over = not state.learner.watches_itself and cost > counted_from(rules.spec, float(turn.number))
    if over and turn.number > state.watched_from:
        state.monitor = monitor.revise(state.monitor)
        state.crossed = state.crossed or bool(monitor.alarm(state.monitor, state.study.guard.alarm_level))


def voided(state: State, turn: Round, sample: Sample) -> bool:
    """A round that is void after its outcome was reported: a cost above the threshold stays in the evidence. Whether it
    was one.

    The round was decided and its outcome is known, so the product stays valid with it, and a void cannot hide it. An
    outcome that was reported wrongly is corrected.
    """
    cost = cost_at_advice(state.study.rules, sample, turn.action) if turn.watched else None
    if cost is None or cost <= state.study.rules.spec.threshold:
        return False
    told(state, turn, sample._replace(weight=0.0))
    return True


def _throttle_tells(spec: SafetySpec, sample: Sample, advised: float) -> bool:
    """Whether a throttled cost says that the advised setting would have exceeded the threshold: it did so itself, at no
    more than the advice, and not perhaps by the sensor's error alone.
    """
    sensors = spec.threshold_on == "measured" and spec.cost_sensor_noise > 0.0
    return sample.measured > spec.threshold and sample.applied <= advised and not sensors


def unseen(state: State, turn: Round) -> None:
    """A round that promised something ended without an outcome that can be counted."""
    state.unwatched += 1
    state.new_unwatched += turn.number > state.unwatched_from


def seen_after_all(state: State, turn: Round) -> None:
    """The outcome of an expired round has come."""
    state.unwatched -= 1
    state.new_unwatched -= turn.number > state.unwatched_from


def resumed(state: State, rule: str) -> None:
    """Begin anew what the rule watches, and nothing else."""
    if rule == "alarm":
        state.monitor, state.crossed, state.watched_from = monitor.init(), False, state.rounds
    elif rule == "drift":
        state.crossed = False
    elif rule == "noise_broken":
        state.tails, state.noisy, state.tails_from = [0.0, 0.0], False, state.rounds
    elif rule == "assumption_broken":
        state.broken = False
    elif rule == "too_many_void":
        state.new_void = 0
    elif rule == "too_many_unwatched":
        state.new_unwatched, state.new_watched, state.unwatched_from = 0, 0, state.rounds
    elif rule == "stop_rule":
        state.recent.clear()
        state.new_decisions = 0


def learned(state: State, turn: Round, sample: Sample) -> None:
    """Version 1: watch a round when it is learned from."""
    if sample.weight > 0.0:
        _watch_tails(state, turn, sample, expected=False)
    if turn.watched and sample.applied <= turn.action:
        seen = counted(state.study.rules.spec, sample, float(turn.number), rules_version=1)
        if seen:
            state.monitor = monitor.update(state.monitor, *seen)
            if seen[0] and monitor.alarm(state.monitor, state.study.guard.alarm_level):
                state.crossed = True


def lost(state: State, turn: Round) -> None:
    """Version 1: a lost round counts as kept when it is passed."""
    if turn.watched:
        risk = float(round_risk(state.study.rules.spec, float(turn.number)))
        state.monitor = monitor.update(state.monitor, False, risk)


def _watch_tails(state: State, turn: Round, sample: Sample, *, expected: bool) -> None:
    """Set the residuals of a sample against the stated noise; what rounding raised the estimate by is no noise (from
    version 2 on).
    """
    rules = state.study.rules
    radius = rules.policy.options.get("radius")
    if radius is None:
        return
    seen: Any = state.learner.predict(turn.context, turn.norm)
    spec, share = rules.spec, math.sqrt(sample.weight)
    of_reward, of_cost = reward_radius_of(radius, seen, spec), cost_radius_of(radius, seen, spec)
    width = share * seen.width
    add, raised = (tails.observe, share * seen.cost_slack) if expected else (tails.update, 0.0)
    state.tails = [
        add(state.tails[0], share * (sample.reward - seen.reward), of_reward * width, spec.reward_noise),
        add(state.tails[1], share * (sample.cost - seen.cost), of_cost * width + raised, spec.cost_noise),
    ]
    state.noisy = state.noisy or tails.alarm(max(state.tails), 0.5 * state.study.guard.alarm_level)
