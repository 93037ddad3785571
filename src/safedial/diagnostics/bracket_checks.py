"""Checks of a bracket promise's assumptions. Each says ok, doubtful or contradicted, with its number and what to do.

| check | kind | contradicted if |
|---|---|---|
| monotonicity, bracket | slopes given context and base (bracket_slopes.py) | one is below 0, or above `high` |
| rounds | evidence of the Agent's watch (decision/learners/shield_watch.py) | it reaches K/level |
| contexts, proposals | evidence against exchangeable ranks (conformal_checks.py) | it reaches K/level |
| start | evidence of excesses at the start | it reaches K/level |
| information, missing | counted | never |

With K tests, each at level/K, the chance of any false contradiction is at most `level` by the union bound: for evidence
over all time, for slopes approximately and at one look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from safedial.diagnostics.bracket_rounds import BracketRounds
from safedial.diagnostics.bracket_slopes import check_growth, check_monotonicity, compare
from safedial.diagnostics.conformal_checks import check_contexts
from safedial.diagnostics.finding import Finding, Process, finding, log_of, stated

MOST_TIED = 1 / 3
"""The share of costs of one and the same value from which they tell little."""


def check_bracket(walked: BracketRounds, *, level: float) -> list[Finding]:
    """All findings about a log that `walk_bracket_log` has read."""
    proposals = [] if walked.proposal is None else [check_proposals]
    tests = 3 + len(proposals) + 2 * len(walked.costs)
    found = []
    for name in walked.costs:
        told = compare(walked, name)
        found += [_of(name, check(told, level / tests)) for check in (check_monotonicity, check_growth)]
    bets = (check_rounds, check_contexts, *proposals, check_start)
    found += [_graded(check(walked, needed=tests / level), level) for check in bets]
    return [*found, *(_of(name, check_information(walked, name)) for name in walked.costs), check_missing(walked)]


def _of(name: str, found: Finding) -> Finding:
    """A finding about one of several costs, named."""
    return found if name == "cost" else replace(found, name=f"{found.name}_{name}", title=f"{found.title} of {name}")


def _graded(found: Finding, level: float) -> Finding:
    """A bet in these words; doubtful where it would raise a flag if it were the only test."""
    if found.flagged:
        return replace(found, word="contradicted")
    return replace(found, word="doubtful" if (found.evidence or 0.0) >= 1.0 / level else "ok")


def check_rounds(walked: BracketRounds, *, needed: float) -> Finding:
    over, count = int((walked.exceeded & walked.covered).sum()), int(walked.covered.sum())
    return finding(
        "rounds",
        "Rounds",
        Process(walked.number, log_of(walked.evidence), needed),
        tested="Do rounds that exceed tolerate less than earlier rounds surely did? (An Agent watches the same.)",
        found=f"{over} of {count} rounds exceeded. The most that each tolerates is ranked among earlier rounds.",
        fine="There is no evidence against exchangeable rounds that keep to their bracket. This test has low power.",
        broken="Rounds changed with time or influence each other, or the bracket is false. Find out which, and forget "
        "the rounds before the change (`agent.resume(forget=True)`) or widen the bracket; `adapt` bounds the long run.",
        exceeded=over,
    )


def check_proposals(walked: BracketRounds, *, needed: float) -> Finding:
    """The check of contexts, on the proposals alone."""
    rows: Any = walked.proposal
    found = check_contexts(replace(walked, context=rows[:, None], names=("proposal",)), needed=needed)
    means = "There is no evidence against proposals from one source."
    if found.flagged:
        means = (
            "Proposals rise or fall with time, and the promise is for exchangeable ones: 1 % more each round "
            "breaks it. Use a fixed rule as the base, and let people lower its setting."
        )
    tested = "Do the proposals of later rounds come from the same source as those of earlier rounds?"
    told = f"The bet that they rise, or fall, was worth up to {found.evidence:.3g}."
    return replace(found, name="proposals", title="Proposals", tested=tested, found=told, means=means)


def check_start(walked: BracketRounds, *, needed: float) -> Finding:
    count, over = int(walked.at_start.sum()), int((walked.at_start & walked.exceeded).sum())
    fine = "There is no evidence against the start."
    if over:
        fine = "Excesses at the start add to the risk. Their number may be chance; a lower start has fewer."
    return finding(
        "start",
        "Start",
        Process(walked.number, log_of(walked.start_evidence), needed),
        tested="Does the start, which you declared safe, exceed the threshold more often than δ?",
        found=f"Of {count} known rounds at the start or below, {over} exceeded.",
        fine=fine,
        broken="The start is not safe. Stop, and declare a lower one.",
        at_start=count,
        exceeded=over,
    )


def check_information(walked: BracketRounds, name: str) -> Finding:
    """How many costs have one value, and on which side of the threshold it lies."""
    cost, measured = walked.costs[name], walked.outcome[name]
    values, counts = np.unique(measured[np.isfinite(measured)], return_counts=True)
    value, count, known = float(values[np.argmax(counts)]), int(counts.max()), int(counts.sum())
    piled = count > max(MOST_TIED * known, 1) and cost.growth.name != "spread"
    means = "Costs differ enough from round to round to tell what rounds tolerate."
    if piled and cost.exceeded(value):
        means = (
            "If this is the sensor's limit, true costs lie beyond it, and rounds tolerate less than is counted. State "
            "`low` = 0, or measure further."
        )
    elif piled:
        means = (
            "Such costs tell little, and the setting stays low. Report the measured quantity, not its excess over a "
            "limit. If the value is the sensor's limit, report that limit; for `relative` the floor must not be lower."
        )
    return stated(
        "information",
        "Information",
        "doubtful" if piled else "ok",
        tested="Do more than a third of the costs have one and the same value?",
        found=f"The most common cost, {value:g}, occurs in {count} of {known} known rounds.",
        means=means,
        cost=value,
        tied=count,
        known=known,
    )


def check_missing(walked: BracketRounds) -> Finding:
    total, count = len(walked.known) + walked.unseen, walked.missing
    means = "A round without an outcome counts as one that exceeds at any setting."
    many = count >= walked.risk * total
    if many:
        means += (
            " So many of them keep the setting at the start, or near it. Report them, state a `lag` if they are late, "
            "or vouch for those whose reason is unrelated to context, cost and setting (`unrelated=True`)."
        )
    return stated(
        "missing",
        "Missing outcomes",
        "doubtful" if many else "ok",
        tested="Are fewer outcomes missing than the share δ?",
        found=f"{count} of {total} outcomes are missing; the share δ = {walked.risk:g} is {walked.risk * total:.3g}.",
        means=means,
        missing=count,
        rounds=total,
    )
