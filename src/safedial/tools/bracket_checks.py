"""Checks of a kept bracket: that costs rise with the setting, no faster than stated, and that the start is safe.

Each check says ok, doubtful or contradicted, with its number and what to do.

| check | kind | contradicted if |
|---|---|---|
| monotonicity, bracket | slopes given context and base (`compare`) | one is below 0, or above `high` |
| rounds | evidence of the policy (policies/shield.py) | it reaches K/level |
| contexts, proposals | evidence against exchangeable ranks (rank_checks.py) | it reaches K/level |
| start | evidence of excesses at the start | it reaches K/level |
| information, missing | counted | never |

With K tests, each at level/K, the chance of any false contradiction is at most `level` by the union bound: for evidence
over all time, for slopes approximately and at one look.

Slopes are averages over units. An average within a bracket does not show that every unit is, but one beyond it shows
that some are not. That a cost falls by `low` is assumed only above the threshold, so a slope below `low` is no more
than a doubt. Costs below the floor count as the floor, which hides slopes. So there is a second test. In a unit that
keeps to its bracket, a cost that lies above the curve k + high·s, or k·(s/base)^high where that is at least the floor,
lies above it at every smaller setting too. So the share of costs above such a curve, k about their middle, must not
rise with s.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import require
from safedial.model.costs import ONE, Cost, cost_columns
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.tools.findings import Finding, Process, draw_evidence, finding, log_of, stated
from safedial.tools.log_watch import MarginalWatch, WatchWords, first_alarm, watch_walk
from safedial.tools.pages import BLUE, COLOURS, ORANGE, new_figure, title
from safedial.tools.rank_checks import check_contexts
from safedial.tools.slopes import Slope, Slopes, slopes
from safedial.tools.walk import LogCase, LogTest, Walk, proposals

WATCHED = ("base", "growth", "start_scale", "direction")
"""The options that the evidence and the bracket rest on; the others say what is given below the cap."""

DRIFT, START = "bracket_drift", "start_refuted"
"""The rules that the policy's evidence stops an agent by."""

SAME = 1.0 + 1e-9
"""A setting that was a share of the dial differs from a stated one by rounding."""


RISES = "Given context and base, do costs rise with the setting, or at least not fall?"
BOUNDED = "Given context and base, do costs rise no faster with the setting than stated, on average over units?"

FEW = 0.1
"""The share of rounds, at the lowest scales, that the second test may leave out."""

WITHIN = "There is no evidence against the bracket on average. That does not show that every unit keeps to it."
NEAR = (
    "The slope may lie above `high`: the log does not show the bracket even on average. Widen it, or collect rounds at "
    "more different settings."
)
SLOW = (
    "Costs rise more slowly than `low`. That matters for rounds above the threshold, which then tolerate less than is "
    "counted. State a smaller `low`."
)
BEYOND = (
    "Costs rise faster than `high` on average, and some units are above the average: rounds tolerate less than is "
    "counted. State a larger `high` (safedial calibrate proposes one), and return to the start until then."
)


class Compared(NamedTuple):
    """A cost's slopes given context and base, None if settings hardly vary; and the bracket to compare them with, None
    for costs of 0 or 1. `above`: the slope of the share above the bracket's curve. `words` name a slope; `floored` says
    how many costs were too small to be evidence.
    """

    slopes: Slopes | None
    bracket: tuple[float, float] | None
    above: Slope | None
    words: str
    floored: str = ""


def compare(cost: Cost, measured: Array, *, setting: Array, base: Array, context: Array, ends: Array) -> Compared:
    """A cost's slopes; where the bracket's numbers, `ends` (n, 2), are features, in multiples of `high`."""
    growth, logs = cost.growth, cost.growth.name != "additive"
    used = np.isfinite(measured) & ((setting > 0.0) | (not logs))
    setting, base, measured, context = (part[used] for part in (setting, base, measured, context))
    low, high = ends[used].T
    if logs:  # bands are then of the scale, and slopes the same, since the base is given
        setting, base = np.log(setting / base), np.log(base)
    outcome, words, floored = measured if cost.direction == "above" else -measured, "slope", ""
    rise, least = high * setting, -np.inf
    if growth.name == "relative":
        least = np.log(growth.parameters["floor"] or 1e-3 * cost.limit)
        outcome, words = np.log(np.maximum(outcome, np.exp(least))), "elasticity"
        small = int((outcome <= least).sum())
        floored = f" {small} of {len(outcome)} costs lie at the floor, {np.exp(least):g}, or below." if small else ""
    elif growth.name == "spread":
        outcome, words = np.asarray(cost.exceeded(measured), dtype=float), "slope of the share that exceeds"
    bracket = (float(low[0]), float(high[0]))
    if growth.features:
        bracket = (float((low / np.where(high > 0.0, high, np.inf)).min()), 1.0)
        setting, words = setting * high, f"{words}, in multiples of `high`,"
    known = np.column_stack([context, base])
    found = slopes(outcome, setting, known)
    if growth.name == "spread":
        return Compared(found, None, None, words)
    middle = max(float(np.median(outcome - rise)), least - float(np.quantile(rise, FEW)))
    seen = middle + rise >= least
    above = slopes((outcome - rise > middle)[seen].astype(float), setting[seen], known[seen])
    return Compared(found, bracket, above and above.whole, words, floored)


def check_monotonicity(told: Compared, share: float) -> Finding:
    """Contradicted if a slope lies below 0, at level `share` over all bands."""
    if told.slopes is None:
        return _untested("monotonicity", RISES)
    whole, tried = told.slopes.whole, (told.slopes.whole, *told.slopes.bands)
    lowest = min(tried, key=lambda slope: slope.estimate / slope.error)
    falls = lowest.interval(2.0 * share / len(tried))[1] < 0.0
    word = "contradicted" if falls else "doubtful" if whole.estimate < 0.0 else "ok"
    means = "There is no evidence that costs fall when the setting rises."
    if word != "ok":
        means = (
            "Either the cost falls when the setting rises, or settings were lowered where a high cost was expected. In "
            "the first case the guarantee does not hold: turn `direction`, or measure another cost. In the second add "
            "what guided the settings to the context."
        )
    where = "" if lowest is whole else f"; the lowest is {_shown(lowest)}"
    found = f"The {told.words} over all settings is {_shown(whole)}{where}."
    return stated("monotonicity", word, tested=RISES, found=found, means=means, **_numbers(told.slopes))


def check_growth(told: Compared, share: float) -> Finding:
    """Contradicted if a slope lies above `high`, at level `share` over all bands."""
    if told.bracket is None:
        means = "Costs of 0 or 1 do not show how tolerances spread. `sigma` rests on what you know."
        return stated("bracket", "not applicable", tested=BOUNDED, found="Not applicable.", means=means)
    if told.slopes is None:
        return _untested("bracket", BOUNDED)
    (low, high), whole = told.bracket, told.slopes.whole
    tried, upper = (whole, *told.slopes.bands), whole.interval()[1]
    each, above = 2.0 * share / (len(tried) + 1), told.above or Slope(0.0, 0.0, 0.0, 1.0, 1.0)
    steepest = max(tried, key=lambda slope: (slope.estimate - high) / slope.error)
    if steepest.interval(each)[0] > high or above.interval(each)[0] > 0.0:
        word, means = "contradicted", BEYOND
    elif max(upper, steepest.interval()[0]) > high or above.interval()[0] > 0.0:
        word, means = "doubtful", NEAR
    else:
        word, means = ("doubtful", SLOW) if upper < low else ("ok", WITHIN)
    where = "" if steepest is whole else f"; the steepest is {_shown(steepest)}"
    found = f"The {told.words} over all settings is {_shown(whole)}{where}; stated: {low:g} to {high:g}.{told.floored}"
    if told.above is not None:
        found += f" The share above the bracket's curve, which must not rise, has slope {_shown(told.above)}."
    details = {"low": low, "high": high, **_numbers(told.slopes)}
    return stated("bracket", word, tested=BOUNDED, found=found, means=means, **details)


def _untested(name: str, tested: str) -> Finding:
    found = "Settings do not vary beyond what context and base explain."
    means = "Nothing can be tested. Vary the settings below the cap, best at random."
    return stated(name, "doubtful", tested=tested, found=found, means=means)


def _shown(slope: Slope) -> str:
    low, high = slope.interval()
    return f"{slope.estimate:.3g} (95 %: {low:.3g} to {high:.3g})"


def _numbers(found: Slopes) -> dict[str, Any]:
    return {
        "estimate": found.whole.estimate,
        "interval": list(found.whole.interval()),
        "bands": [[slope.start, slope.end, slope.estimate, *slope.interval()] for slope in found.bands],
    }


# --- Bracket: all checks

MOST_TIED = 1 / 3
"""The share of costs of one and the same value from which they tell little."""


def walked(case: LogCase) -> Walk:
    """The walk of the log through the policy, in the dial's units; what is given below the cap does not matter."""
    rule = "is missing: it states bracket, base and start"
    require(case.policy is not None, "policy", case.policy, rule, "name hp_shield")
    options = {name: case.stated.options[name] for name in WATCHED}
    found = case.walked(("protocol", "start"), options, dial=case.dial, features=case.features)
    rows = f"{len(case.log)} rows"
    require(found.known.any(), "log", rows, "has no round with a known outcome", "report outcomes first")
    return found


def check(case: LogCase) -> tuple[Walk, list[Finding]]:
    """The walk, and all findings."""
    found = walked(case)
    policy, rounds = found.policy, found.rounds
    given = [] if proposals(policy, rounds) is None else [check_proposals]
    told, tests = [], 3 + len(given) + 2 * len(policy.costs)
    known: dict[str, Any] = {"setting": _effect(found), "base": found.numbers["protocol"], "context": rounds.context}
    for name, cost in policy.costs.items():
        compared = compare(cost, rounds.costs[name], **known, ends=_ends(policy, name, rounds.context))
        told += [_of(name, each(compared, case.level / tests)) for each in (check_monotonicity, check_growth)]
    bets = (check_rounds, check_contexts, *given, check_start)
    told += [_graded(each(found, needed=tests / case.level), case.level) for each in bets]
    ties = [_of(name, check_tied_costs(cost, rounds.costs[name])) for name, cost in policy.costs.items()]
    return found, [*told, *ties, check_missing(found)]


def _effect(walk: Walk) -> Array:
    """Settings as the bracket reads them: in the dial's units, or as values of the dose curve."""
    task, setting = walk.policy.task, walk.rounds.setting
    return setting if task.dose.cost.name == "identity" else walk.told.intensity


def _ends(policy: Any, name: str, context: Array) -> Array:
    """The bracket's two numbers in each round, (n, 2)."""
    found = [policy.costs_at(row)[name].growth.parameters for row in context]
    return np.array([[each.get("low", 0.0), each.get("high", 0.0)] for each in found])


def _at_start(walk: Walk) -> Any:
    return walk.known & (walk.rounds.setting <= walk.numbers["start"] * SAME)


def _missing(walk: Walk) -> int:
    """Rounds without a known outcome, of the log and of the study."""
    return len(walk.rounds) - len(walk) + walk.rounds.unseen


def _of(name: str, found: Finding) -> Finding:
    """A finding about one of several costs, named."""
    return found if name == ONE else replace(found, name=f"{found.name}_{name}", title=f"{found.title} of {name}")


def _graded(found: Finding, level: float) -> Finding:
    """A bet in these words; doubtful where it would raise a flag if it were the only test."""
    if found.flagged:
        return replace(found, word="contradicted")
    return replace(found, word="doubtful" if (found.evidence or 0.0) >= 1.0 / level else "ok")


def check_rounds(walk: Walk, *, needed: float) -> Finding:
    over, count = int((walk.exceeded & walk.covered).sum()), int(walk.covered.sum())
    return finding(
        "rounds",
        Process(walk.rounds.number, log_of(walk.evidence[DRIFT]), needed),
        tested="Do rounds that exceed tolerate less than earlier rounds surely did? (An Agent watches the same.)",
        found=f"{over} of {count} rounds exceeded. The most that each tolerates is ranked among earlier rounds.",
        fine="There is no evidence against exchangeable rounds that keep to their bracket. This test has low power.",
        broken="Rounds changed with time or influence each other, or the bracket is false. Find out which, and forget "
        "the rounds before the change (`agent.resume(forget=True)`) or widen the bracket; `adapt` bounds the long run.",
        exceeded=over,
    )


def check_proposals(walk: Walk, *, needed: float) -> Finding:
    """The check of contexts, on the proposals alone."""
    rows: Any = walk.rounds.proposal
    rounds = replace(walk.rounds, context=rows[:, None], names=("proposal",))
    found = check_contexts(replace(walk, rounds=rounds), needed=needed)
    means = "There is no evidence against proposals from one source."
    if found.flagged:
        means = (
            "Proposals rise or fall with time, and the guarantee is for exchangeable ones: 1 % more each round "
            "breaks it. Use a fixed rule as the base, and let people lower its setting."
        )
    tested = "Do the proposals of later rounds come from the same source as those of earlier rounds?"
    told = f"The bet that they rise, or fall, was worth up to {found.evidence:.3g}."
    return replace(found, name="proposals", title="Proposals", tested=tested, found=told, means=means)


def check_start(walk: Walk, *, needed: float) -> Finding:
    at_start = _at_start(walk)
    count, over = int(at_start.sum()), int((at_start & walk.exceeded).sum())
    fine = "There is no evidence against the start."
    if over:
        fine = "Excesses at the start add to the risk. Their number may be chance; a lower start has fewer."
    return finding(
        "start",
        Process(walk.rounds.number, log_of(walk.evidence[START]), needed),
        tested="Does the start, which you declared safe, exceed the threshold more often than δ?",
        found=f"Of {count} known rounds at the start or below, {over} exceeded.",
        fine=fine,
        broken="The start is not safe. Stop, and declare a lower one.",
        at_start=count,
        exceeded=over,
    )


def check_tied_costs(cost: Cost, measured: Array) -> Finding:
    """How many costs have one value, and on which side of the threshold it lies."""
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
        "doubtful" if piled else "ok",
        tested="Do more than a third of the costs have one and the same value?",
        found=f"The most common cost, {value:g}, occurs in {count} of {known} known rounds.",
        means=means,
        cost=value,
        tied=count,
        known=known,
    )


def check_missing(walk: Walk) -> Finding:
    risk, total, count = float(walk.spec.violation_risk), len(walk.rounds) + walk.rounds.unseen, _missing(walk)
    means = "A round without an outcome counts as one that exceeds at any setting."
    many = count >= risk * total
    if many:
        means += (
            " So many of them keep the setting at the start, or near it. Report them, state a `lag` if they are late, "
            "or vouch for those whose reason is unrelated to context, cost and setting (`unrelated=True`)."
        )
    return stated(
        "missing",
        "doubtful" if many else "ok",
        title="Missing outcomes",
        tested="Are fewer outcomes missing than the share δ?",
        found=f"{count} of {total} outcomes are missing; the share δ = {risk:g} is {risk * total:.3g}.",
        means=means,
        missing=count,
        rounds=total,
    )


# --- The page and the monitor


def _figure(walk: Walk, findings: Sequence[Finding]) -> Any:
    figure, axes = new_figure(columns=3, height=2.5)
    draw_evidence(axes[0], [each for each in findings if each.evidence is not None])
    axes[0].legend(fontsize=6, frameon=False)
    sloped = [each for each in findings if "bands" in each.details and "high" in each.details]
    for each, colour in zip(sloped, COLOURS.values(), strict=False):
        for start, end, slope, low, high in each.details["bands"]:
            axes[1].fill_between([start, end], low, high, color=colour, alpha=0.25, linewidth=0)
            axes[1].plot([start, end], [slope, slope], color=colour, linewidth=1.5)
        for edge in (each.details["low"], each.details["high"]):
            axes[1].axhline(edge, color=colour, linestyle="--", linewidth=1)
    title(axes[1], "slope by setting, with 95 % intervals (dashed: stated)")
    axes[1].set_xlabel("setting, or its logarithm for a relative bracket")
    number, over = walk.rounds.number, walk.exceeded
    scale = walk.rounds.setting / walk.numbers["protocol"]
    axes[2].plot(number, scale, ".", color=BLUE, markersize=2)
    axes[2].plot(number[over], scale[over], "o", color=ORANGE, markersize=4, fillstyle="none")
    title(axes[2], "setting as a multiple of the base (circles: exceeded)")
    axes[2].set_xlabel("round")
    return figure


def _guarantee(walk: Walk) -> str:
    limits = " or ".join(
        f"{html.escape(name)} {'&gt;' if cost.direction == 'above' else '&lt;'} {cost.threshold:g}"
        for name, cost in walk.policy.costs.items()
    )
    return (
        f"the spec guarantees P({limits}) ≤ {float(walk.spec.violation_risk):.3g} in every round, if rounds are "
        "exchangeable, costs do not fall when the setting rises and keep to their bracket, and the start is safe."
    )


WORDS = WatchWords(
    against="rounds are not exchangeable",
    starts="{starts} rounds were at the start or below; {missing} outcomes are missing.",
    quiet="there is no evidence against exchangeable rounds within their bracket, or the start.",
    alarm="rounds that exceed tolerate less than earlier ones surely did: rounds changed with time, or the bracket is "
    "false. Stop or fall back, and find out which (safedial check).",
)


def watch(case: LogCase) -> MarginalWatch:
    """The monitor: the policy's evidence, of rounds, and separately of the start."""
    walk = walked(case)
    number, start = walk.rounds.number, walk.evidence[START]
    told: dict[str, Any] = {"start_evidence": start, "start_alarm": first_alarm(number, start, case.level)}
    told |= {"start_rounds": int(_at_start(walk).sum()), "missing": _missing(walk)}
    return watch_walk(walk, case.level, WORDS, slice(None), walk.evidence[DRIFT], **told)


def columns(spec: SafetySpec, policy: Policy | Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of numbers that a log has: the costs, which may be empty, and proposals if they are the base."""
    options = policy.options if policy is not None and not isinstance(policy, Mapping) else policy or {}
    base = ["proposal"] if options.get("base") == "proposal" else []
    return {"needs": ("action",), "also": [*cost_columns(spec), *base]}


TEST = LogTest(
    check=check,
    watch=watch,
    figure=_figure,
    drawn="Evidence over time, slopes by setting, settings over time",
    guarantee=_guarantee,
    further=lambda walk: 2 * len(walk.policy.costs),
    slack="; slopes are tested at one look",
    columns=columns,
)
