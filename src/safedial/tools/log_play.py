"""What a policy does on the rounds of a log, while it learns from what they would have given.

A log is played through an `Agent`, or, where it is long and the policy's estimate linear, through `safedial.replay`,
which computes the same settings at the speed of matrix products but knows no alarms. A study is played through its own
reducer, event by event: outcomes come when they came, void rounds are void, and random numbers are those of its hashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import InvalidInput, require
from safedial.model.costs import as_stated
from safedial.policies.supports import facts
from safedial.rounds.agent import Agent
from safedial.rounds.rules import Rules
from safedial.simulation.replay import replay
from safedial.study.event import EVENT_KINDS, Event
from safedial.study.reducer import body_of, decide_next, noted_in, question_of, update_state
from safedial.study.state import State
from safedial.study.study_spec import StudySpec
from safedial.tools.outcomes import Outcomes
from safedial.tools.past_rounds import Array, Rounds
from safedial.tools.walk import proposals

LONG = 20_000
"""Rounds from which `replay` takes the place of an Agent, where it can."""

STEP = 500
"""Rounds between two calls of `progress`."""

Progress = Callable[[int], None] | None


class Played(NamedTuple):
    """The advised settings, in the dial's units; how; and the round in which the policy stopped itself, with why."""

    advised: Array
    engine: str
    stopped_at: float | None = None
    stop_reason: str = ""


def play(rules: Rules, rounds: Rounds, outcomes: Outcomes, *, seed: int, engine: str, progress: Progress) -> Played:
    """The settings that a policy advises on these rounds."""
    _check_columns(rules, rounds, outcomes)
    if rounds.study is not None:
        return _play_study(rules, rounds, outcomes, progress)
    if engine == "replay":
        return _play_replay(rules, rounds, outcomes, seed, progress)
    if engine == "auto" and len(rounds) >= LONG:
        try:
            return _play_replay(rules, rounds, outcomes, seed, progress)
        except InvalidInput:
            pass  # refused before the first round, or for a reason that the agent has too
    return _play_agent(rules, rounds, outcomes, seed, progress)


def _check_columns(rules: Rules, rounds: Rounds, outcomes: Outcomes) -> None:
    """Refuse a policy that needs what the log lacks."""
    name = rules.policy.name
    rewarded = not outcomes.needs_reward or bool(np.isfinite(rounds.reward).any())
    require(rewarded, "log", list(rounds.names), f"lacks the column `reward`, which {name} learns from", "add it")
    proposals(rules.policy, rounds)


def _play_agent(rules: Rules, rounds: Rounds, outcomes: Outcomes, seed: int, progress: Progress) -> Played:
    fields = ("policy", "dose", "dial", "features", "start_action", "fallback_action", "baseline_range")
    agent = Agent(rules.dim, rules.spec, **{name: getattr(rules, name) for name in fields}, seed=seed)
    for context, action, reward, *costs, baseline in rounds.past:
        cost = as_stated(rules.spec, dict(zip(rounds.costs, costs, strict=True)))
        agent.tell(context, action, reward, cost, baseline_cost=baseline)
    advised, stopped = np.empty(len(rounds)), None
    proposed = proposals(rules.policy, rounds)
    for index in range(len(rounds)):
        question: Any = {} if proposed is None else {"proposal": float(proposed[index])}
        baseline = float(rounds.baseline[index])
        try:
            decision = agent.ask(rounds.context[index], baseline_cost=baseline, allow_extrapolation=True, **question)
            advised[index] = decision.action
            told, unrelated = outcomes.told(index, decision.action), rounds.unrelated[index]
            if told is not None:
                agent.tell(decision, *told, unrelated=unrelated is True)
            elif unrelated is not None or (outcomes.known[index] and not outcomes.given[index]):
                agent.tell(decision, unrelated=unrelated is not False)
        except InvalidInput as error:
            raise InvalidInput(f"log round {rounds.number[index]:g}: {error}", error.code) from error
        if agent.stop_reason and stopped is None:
            stopped = float(rounds.number[index]), agent.stop_reason
        if progress and (index + 1) % STEP == 0:
            progress(STEP)
    return Played(advised, "agent", *(stopped or (None, "")))


def _play_replay(rules: Rules, rounds: Rounds, outcomes: Outcomes, seed: int, progress: Progress) -> Played:
    plain = rules.dial.levels is None and not rounds.past and rules.fallback_action == rules.dial.low
    stated = facts(rules.policy.task)
    one = "several costs" not in stated and outcomes.exact and not rules.policy.options.get("either")
    rule = "does not know levels of a dial, earlier rounds, a fallback, several costs, brackets or costs of 0 or 1"
    require(plain and one, "engine", "replay", rule, "use engine='agent' (--engine agent)")
    way_out, errs = "use engine='agent' (--engine agent)", "sensor noise" in stated
    require(not errs, "engine", "replay", "cannot tell a sensor's error from noise", way_out)
    usable, features = outcomes.usable & np.isfinite(rounds.reward), rules.features
    with np.errstate(divide="ignore", invalid="ignore"):
        rewards = np.where(usable, rounds.reward / outcomes.reward_at_log, math.nan)
        costs = np.where(usable, (rounds.costs["cost"] - rounds.baseline) / outcomes.at_log["cost"], math.nan)
    played = replay(
        rules.policy,
        rounds.context if features is None else np.array([features.transform(row) for row in rounds.context]),
        rewards,
        costs,
        rules.spec,
        dose=rules.dose,
        informative=usable,
        baseline_cost=rounds.baseline if rounds.baseline.any() else 0.0,
        coins=np.random.default_rng(seed).random(len(rounds)),
        progress=progress,
    )
    return Played(rules.dial.low + played.action[0] * (rules.dial.high - rules.dial.low), "replay")


def _play_study(rules: Rules, rounds: Rounds, outcomes: Outcomes, progress: Progress) -> Played:
    """The study's own events, with this policy's decisions and what they would have given."""
    own = rules is rounds.study.rules
    spec = first_spec(rounds.study) if own else replace(rounds.study, rules=rules, before=None, since=0)
    player = StudyPlayer(spec, rounds, outcomes, amends=own)
    for number, event in enumerate(rounds.events, start=1):
        player.follow(event)
        if progress and number % STEP == 0:
            progress(STEP)
    return Played(np.array(player.advised), "study", *(player.stopped or (None, "")))


# --- A policy on the events of a study

SKIPPED = {"unrelated": True}


def first_spec(spec: StudySpec) -> StudySpec:
    """The specification that a study began with; refused if an amendment changed what its rounds are scored by."""
    for name in ("threshold", "costs", "dose", "dial"):
        values = [each.fields.get(name) for each in spec.chain]
        rule = "was amended, so the study's excesses cannot be counted together"
        way_out = (
            "name another policy, which is judged by the latest specification, or evaluate the study's export as .csv "
            "with a spec of your own (spec=..., --spec FILE)"
        )
        require(values.count(values[0]) == len(values), name, values[0], rule, way_out)
    return spec.first


class StudyPlayer:
    """The state of a policy between events.

    A rule that stops the policy stops it when it is due, not when it stopped the study; the policy is resumed when the
    study was. An outcome counts as it stands now: a correction is known from the outcome on. Where it `amends`, the
    study's own policy follows the study's amendments.
    """

    def __init__(self, spec: StudySpec, rounds: Rounds, outcomes: Outcomes, *, amends: bool) -> None:
        self.state, self.rounds, self.outcomes, self.amends = State(spec), rounds, outcomes, amends
        self.advised: list[float] = []
        self.places: dict[int, int] = {}
        self.stopped: tuple[float, str] | None = None
        self.voided = {
            event.decision: {"gone": "skip" if body["unrelated"] else "block"}
            for event in rounds.events
            if (body := event.fields()).get("after_outcome")
        }

    def follow(self, event: Event) -> None:
        """Apply one event of the study's log."""
        means, body, state = EVENT_KINDS[event.kind], event.fields(), self.state
        if means.decides:
            self._stop(state.due_at(event.at))
            self._decide(event, body)
        elif means.reports and not means.revises:
            place = self.places[event.decision]
            fixes = {event.decision: self.voided[event.decision]} if event.decision in self.voided else {}
            update_state(state, event, self._outcome(place, body), fixes)
        elif means.resumes and (state.stop_reason or body["forget"]):
            update_state(state, event, {**body, "rule": state.stop_reason})
        elif (means.loses and not body.get("after_outcome")) or means.imports or (means.amends and self.amends):
            state = self.state = update_state(state, event, body)
        state.seq, state.hash = event.seq, event.hash
        self._stop(state.due)

    def _stop(self, rule: str) -> None:
        if rule:
            self.state.stop_reason = rule
            number = float(self.rounds.number[max(len(self.advised) - 1, 0)])
            self.stopped = self.stopped or (number, rule)

    def _decide(self, event: Event, body: dict[str, Any]) -> None:
        state, place = self.state, len(self.advised)
        try:
            decision, advice = decide_next(state, question_of(state, body), body["context"])
        except InvalidInput as error:
            raise InvalidInput(f"event {event.seq}: {error}", error.code) from error
        update_state(state, event, body_of(decision, body["context"], state, noted_in(body)), known=advice)
        self.places[event.seq] = place
        self.advised.append(decision.action)
        idle = self.outcomes.known[place] and not self.outcomes.given[place]
        if idle and decision.intensity > 0.0 and not body["intensity"] > 0.0:
            # Nothing was given then, so no outcome will come, for a reason that was known before the round's outcome.
            update_state(state, event._replace(kind="voided", decision=event.seq), SKIPPED)

    def _outcome(self, place: int, body: dict[str, Any]) -> dict[str, Any]:
        """The body of an outcome, as it would have been at this policy's setting."""
        advised, same = self.advised[place], self.outcomes.is_logged(self.advised[place], place)
        told = None if body.get("throttled") else self.outcomes.told(place, advised)
        if told is None:
            return body
        applied, reward, cost = told
        return body | {"reward": reward, "cost": cost} | ({} if same else {"applied_action": applied})
