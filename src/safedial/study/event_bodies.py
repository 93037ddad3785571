"""A decision as the body of its event, and back: every number of its certificate, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from safedial.core.promise import PROMISES
from safedial.decision.decision import Decision
from safedial.decision.rules import Rules
from safedial.decision.written_choice import read_choice, written_choice
from safedial.study.state import State
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


def body_of(decision: Decision, raw: list[float], state: State, noted: Noted) -> dict[str, Any]:
    """Plain values; an infinite bound (nothing is known yet) is null. `state` is the state before the decision."""
    return {
        **_given(decision, state, noted),
        "frozen": state.frozen,
        "resumed": list(state.resumes),
        "unwatched": state.total("unwatched"),
        "corrected_violations": state.total("corrected_violations"),
        "action": decision.action,
        "baseline_cost": decision.baseline_cost,
        "context": raw,
        "fallback_reason": decision.fallback_reason,
        "limiter": decision.limiter,
        "intensity": decision.intensity,
        "model_seq": state.seq,
        "open": state.waiting,
        "void": state.void if state.before is None else sum(each.void for each in state.learned_in),
        "imported": state.imported if state.before is None else sum(each.imported for each in state.learned_in),
        "promise": decision.promise,
        "round": decision.round,
        "safe_action": decision.safe_action,
        "version": __version__,
        "choice": written_choice(decision.choice),
        "prediction": _prediction(decision, state),
    }


def _prediction(decision: Decision, state: State) -> dict[str, Any]:
    """The prediction as plain values; rounds that it names by number are named by their ids, less the study's name."""
    written = decision.rules.learner.written(decision.prediction)
    if state.learner.reads_questions and "exceeding" in written:
        written["exceeding"] = [state.named[number - 1] for number in written["exceeding"]]
    return written


def _given(decision: Decision, state: State, noted: Noted) -> dict[str, Any]:
    """What stands in a body only where there is any; `evidence` is that of a learner that watches itself."""
    facts = {name: value for name, value in noted._asdict().items() if value is not None}
    if state.amendments:
        facts["amended"] = list(state.amendments)
    if decision.extrapolated:
        facts["extrapolated"] = list(decision.extrapolated)
    if state.learner.watches_itself:
        facts["evidence"] = state.watch.evidence
    return facts


def decision_of(rules: Rules, body: Mapping[str, Any], context: Any) -> Decision:
    """The decision that `body_of` wrote, with its certificate."""
    return Decision(
        body["action"],
        body["intensity"],
        body["safe_action"],
        body["round"],
        not body["fallback_reason"] and PROMISES[body["promise"]].from_constants,
        context,
        rules.learner.read_written(rules, body["prediction"]),
        read_choice(body["choice"]),
        body["baseline_cost"],
        body["fallback_reason"],
        rules,
        limiter=body["limiter"],
        extrapolated=tuple(body.get("extrapolated", ())),
        proposal=body.get("proposal"),
    )
