"""The values of an outcome as samples of its round, and whether a change of them takes back an excess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safedial.decision.outcome import Outcome, Sample, for_the_watch, normalise, read_cost
from safedial.decision.rounds import Round
from safedial.study.state import State

Body = Mapping[str, Any]


def sample_of(state: State, round_: Round, body: Body) -> Sample:
    """The sample of a round, from the values of its outcome."""
    outcome = Outcome(_applied(round_, body), body["reward"], body["cost"], round_.baseline_cost)
    return normalise(state.study.rules, outcome, round_.context)


def watched_sample(state: State, round_: Round, body: Body) -> Sample:
    """What the watch is told of an outcome from which nothing is learned."""
    rules = state.study.rules
    cost = read_cost(rules.spec, body["cost"])
    return for_the_watch(rules, _applied(round_, body), cost, round_.baseline_cost)


def _applied(round_: Round, body: Body) -> float:
    stated = body["applied_action"]
    return round_.action if stated is None else stated


def takes_back(state: State, round_: Round | None, before: Body, after: Body) -> bool:
    """Whether new values of an outcome take back an excess: of its cost, or of its cost at the advice, which is what
    the watch counts; also where the round was declared void afterwards.
    """
    pairs = zip(_excesses(state, round_, before), _excesses(state, round_, after), strict=True)
    return any(was and not now for was, now in pairs)


def _excesses(state: State, round_: Round | None, body: Body) -> list[bool]:
    found = [state.learner.is_over(state.study.rules, body["cost"])]
    if round_ is not None:
        sample = watched_sample(state, round_, body)
        found.append(state.watch.exceeded(round_, sample, throttled=bool(body.get("throttled"))))
    return found
