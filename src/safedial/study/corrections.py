"""How a correction of a reward or a cost changes the state, where the learner can revise an outcome. Other corrections,
and voids after an outcome, replay the log (study/replay_log.py).

The estimate is a sum over rounds, and so is the evidence that the promise is broken, so the new outcome takes the
place of the old one in both. The bound on a round's noise holds with the confidence set of any time (core.tails), so
the evidence against the noise takes the new residual as of now. An alarm that has fired stays: a person resumes.
"""

from __future__ import annotations

from typing import Any, cast

from safedial.study.event import Event
from safedial.study.event_kinds import RoundHistory
from safedial.study.log import events_about, read_event
from safedial.study.reducer import keep_scatter, question_of, round_of
from safedial.study.samples import sample_of, takes_back
from safedial.study.spec import StudySpec
from safedial.study.state import State

LARGEST = 1e6
"""A mistyped value that is larger, in units of the largest mean, is taken out by a replay."""

IN_PLACE = "in_place"
"""The field of a correction's event that is folded so; without it the log is replayed."""


def folds(spec: StudySpec, before: RoundHistory, samples: list[Any]) -> bool:
    """Whether a correction replaces an outcome in place: the setting stays, and both outcomes taught something."""
    throttled = before.values is None or before.values["throttled"]
    same = not throttled and all(sample is not None and sample.weight > 0.0 for sample in samples)
    if not (spec.folds and same) or samples[0].weight != samples[1].weight or any(each.unknown for each in samples):
        return False
    # A sum would not recover from a value that dwarfs all others.
    largest = LARGEST * max(1.0, spec.rules.spec.coefficient_bound * spec.rules.spec.context_bound)
    return all(max(abs(each.reward), abs(each.cost)) <= largest for each in samples)


def fold_correction(connection: Any, study: int, state: State, event: Event) -> None:
    """Replace the outcome of a round by its corrected one, in the state that judges it."""
    latest, decision = state, event.decision
    state = state.phase(decision)
    rules = state.study.rules
    advice = cast("Event", read_event(connection, study, decision)).fields()
    known = RoundHistory.of(each for each in events_about(connection, study, decision) if each.seq < event.seq)
    round_ = round_of(advice, question_of(state, advice))
    if round_.watched and state.watch.allowed(round_) is None:
        round_ = round_._replace(watched=False)
    told = known.values or {}, event.fields()
    before, after = (sample_of(state, round_, values) for values in told)
    was, now = (state.learner.is_over(rules, sample.measured) for sample in (before, after))
    state.violations += now - was
    state.corrected_violations += takes_back(state, round_, *told)
    for phase in latest.phases:  # an amendment takes over what the stop rule counts
        last = list(phase.recent_of)[len(phase.recent_of) - len(phase.recent) :]  # a resume clears `recent` alone
        if decision in last:
            phase.recent[last.index(decision)] = now
    if decision in state.held:
        state.held[decision] = round_, after, False
    elif not state.frozen or (decision if state.study.ordered else known.outcome.seq) < state.frozen_at:
        cast("Any", state.learner).revise(round_.context, before, after)
    keep_scatter(state, decision, state.watch.revised(round_, before, after, state.scatter.take(decision)))
    latest.seq = state.seq = event.seq
