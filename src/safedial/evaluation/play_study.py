"""A policy on the events of a study: each event is applied by the study's own reducer, to another state."""

from __future__ import annotations

from typing import Any

from safedial.errors import InvalidInput, require
from safedial.evaluation.logged_rounds import Rounds
from safedial.evaluation.outcomes import Outcomes
from safedial.study.event import Event
from safedial.study.event_bodies import body_of, noted_in
from safedial.study.event_kinds import EVENT_KINDS
from safedial.study.reducer import decide_next, question_of, update_state
from safedial.study.spec import StudySpec
from safedial.study.state import State

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
            asked = question_of(state, body)
            decision = decide_next(state, asked, body["context"])
        except InvalidInput as error:
            raise InvalidInput(f"event {event.seq}: {error}", error.code) from error
        update_state(state, event, body_of(decision, body["context"], state, noted_in(body)), known=asked)
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
