"""When an evaluation must not be believed, with the number of rounds that each doubt concerns."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from safedial.decision.defaults import OPEN
from safedial.evaluation.logged_rounds import Array, Rounds
from safedial.evaluation.outcomes import Outcomes, Scores
from safedial.evaluation.play import Played

FAR = 10.0
"""Settings scaled by more than this factor lean on the dose curve far from what was given."""

SURE = 3.3
"""Standard errors from which the previous dose is said to predict a cost: by chance in 1 of 1,000 logs."""


class Doubt(NamedTuple):
    """A reason for doubt: its name, the policy, how many rounds it concerns, and what to make of it."""

    name: str
    policy: str
    rounds: int
    words: str


def doubts(policy: str, outcomes: Outcomes, played: Played, scores: Scores) -> list[Doubt]:
    """All doubts about one policy's figures that concern at least one round."""
    rounds, found = outcomes.rounds, []
    moved = ~outcomes.is_logged(played.advised)
    wanted = np.asarray(outcomes.effect(next(iter(outcomes.curves)), played.advised)) > 0.0
    zero = outcomes.known & ~outcomes.given & wanted & moved
    lost = ~outcomes.known & ~scores.known
    partly = int((scores.over & ~scores.known).sum())
    also = f", also the {partly:,} in which a known cost exceeds" if partly else ""
    void = np.any([np.isfinite(values) for values in rounds.void.values()] or [moved & False], axis=0)

    def add(name: str, concerned: int | np.integer, words: str) -> None:
        if concerned:
            found.append(Doubt(name, policy, int(concerned), words))

    add("no dose", zero.sum(), "were given nothing, and this policy would have given something: not replayable, so "
        "left out of the figures, and nothing is learned from them.")  # fmt: skip
    add("unknown outcomes", lost.sum(), f"have no known outcome, or lack one of several costs: left out{also}. If "
        "rounds are missing because of what happened in them, the share of excesses is too low.")  # fmt: skip
    add("void rounds that exceeded", void.sum(), "were made void after their cost had exceeded: they count as "
        "exceeding where this policy advises what was advised then, else they are left out; nothing is learned from "
        "them.")  # fmt: skip
    add("lowered settings", (rounds.throttled & moved).sum(), "had their setting lowered because of the outcome: it "
        "says nothing about another setting.")  # fmt: skip
    errs, true = outcomes.rules.spec.sensors_err, any(cost.on == "true" for cost in outcomes.costs.values())
    add("measured costs", outcomes.known.sum() if errs and true else 0, "are counted by their measured costs, with the "
        "sensor's error; the promise is on the true one.")  # fmt: skip
    if outcomes.exact:
        add("far from the log", far_from_log(outcomes, scores), f"have a setting that is more than {FAR:g} times the "
            "logged one, or less than a tenth: the figures lean on the dose curve there.")  # fmt: skip
        add("sensor noise", (moved & outcomes.usable).sum() if errs else 0, "have their sensor's error scaled with "
            "the dose, which a sensor would not do.")  # fmt: skip
    else:
        add("costs of 0 or 1", (moved & outcomes.usable).sum() if outcomes.events else 0, "have another setting than "
            "the logged one, and a cost of 0 or 1, which does not scale with the dose: figures are lower and upper "
            "ones, by nothing but that a higher setting does not lower a cost. This policy's model is of costs that "
            "scale.")  # fmt: skip
        add("selection of the logged doses", (moved & outcomes.usable).sum(), "were learned from at the logged "
            "setting, not at this policy's own: had it been in use, it would have seen other costs. If people chose "
            "doses by what they knew of the unit, what was tolerated at them is no fair sample.")  # fmt: skip
    after, evidence = carry_over(outcomes, moved)
    sure = abs(evidence) > SURE
    words = "follow a setting that differs from the log's: if doses carry over to the next round, these are wrong."
    shown = (
        f" The log suggests that they do: costs rise or fall with the previous dose ({evidence:+.1f} standard errors)."
    )
    add("carry-over", after, words + (shown if sure else ""))
    unseen = played.engine == "replay"
    add("alarms", len(rounds) if unseen else 0, "were replayed without the alarms that stop an agent; "
        "engine='agent' (--engine agent) has them, and takes longer.")  # fmt: skip
    add("corrections", rounds.corrected, "were corrected later: the corrected values are used from the outcome on, so "
        "decisions between an outcome and its correction may differ from those of the study.")  # fmt: skip
    add("options of the study", moved.sum() if rounds.exported and outcomes.rules.policy.name in OPEN else 0, "have "
        "another advice than the study's. An export as .csv has neither its options nor the times of its outcomes: if "
        "this is its own policy, evaluate the study or its export as .jsonl, or state what you left open.")  # fmt: skip
    add(
        "amendments",
        0 if rounds.study and outcomes.rules is rounds.study.rules else rounds.amended,
        "were decided after an amendment of the study, which only its own policy follows; all figures are by the "
        "latest specification.",
    )
    return found


def far_from_log(outcomes: Outcomes, scores: Scores) -> int:
    """Rounds whose intensity is far above or below the logged one."""
    name = next(iter(outcomes.curves))
    here = np.where(outcomes.usable, outcomes.at_log[name], math.nan)
    ratio = np.asarray(outcomes.effect(name, scores.applied)) / here
    return int(np.sum((ratio > FAR) | ((ratio > 0.0) & (ratio < 1.0 / FAR))))


def carry_over(outcomes: Outcomes, moved: Array) -> tuple[int, float]:
    """How many rounds follow a round, of the same unit, at which the policy's setting differs; and whether the dose
    before predicts what is left of the cost after a regression on the context, in standard errors.
    """
    before = previous(outcomes.rounds)
    after = int(np.sum(moved[before[before >= 0]]))
    name = next(iter(outcomes.curves))
    chosen = outcomes.usable & (before >= 0)
    chosen[chosen] = outcomes.known[before[chosen]]
    columns = np.column_stack([np.ones(len(before)), outcomes.rounds.raw])[chosen]
    dose = outcomes.rounds.setting[before[chosen]]
    here = outcomes.at_log[name][chosen] if outcomes.exact else 1.0
    cost = (outcomes.rounds.costs[name] - outcomes.rounds.baseline)[chosen] / here
    if len(cost) < columns.shape[1] + 10:
        return after, 0.0
    left = [each - columns @ np.linalg.lstsq(columns, each, rcond=None)[0] for each in (cost, dose)]
    scale = math.sqrt(float(left[0] @ left[0]) * float(left[1] @ left[1]))
    if scale <= 1e-12 * max(1.0, float(abs(dose).max())):
        return after, 0.0
    return after, float(left[0] @ left[1]) / scale * math.sqrt(len(cost))


def previous(rounds: Rounds) -> np.ndarray:
    """The row of the round before, of the same unit where units are named; −1 for the first."""
    units = rounds.labels.get("unit") or [""] * len(rounds)
    last: dict[str, int] = {}
    found = []
    for index, unit in enumerate(units):
        found.append(last.get(unit, -1))
        last[unit] = index
    return np.array(found)
