"""Checks of exchangeable rounds, on which a guarantee without constants rests.

Three checks are bets, each valid at any time. If rounds are exchangeable, the rank of a round among the earlier ones is
uniform and independent of the earlier ranks, for any fixed score:

    exchangeability   the p-values of calibration rounds are small (bounds/ranks.py), as the `Agent` watches it
    contexts          a feature's values rank high, or low, among the earlier ones
    carry_over        a cost ranks high, or low, where the one before did, or the other way round; the mean of four

The last two break ties with random numbers of a fixed seed; otherwise ranks would not be independent. The ranks of one
feature say nothing about its next rank, but those of several features together may. So the mean of the bets on k
features is not a valid bet, but the largest of them divided by k is (by the union bound). The other checks report what
they find: `information` applies the policy's own rule, `dose_curve` and `start` never raise a flag. Checks that compare
with stated constants do not apply, and are listed with the reason.

A log does not say why a round was given nothing. For the bound such a round counts for the worst; for the evidence,
where that would be a bet on it, it is left out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from safedial.bounds import ranks
from safedial.bounds.estimate import ridge_fit
from safedial.errors import require
from safedial.model.namespace import Array
from safedial.policies.conformal import FIRST_FIT, REACH
from safedial.policies.policy import OPEN
from safedial.tools.findings import Finding, Process, draw_evidence, finding, log_of, not_applicable, stated
from safedial.tools.log_watch import MarginalWatch, WatchWords, watch_walk
from safedial.tools.pages import FILL, ORANGE, new_figure, title
from safedial.tools.walk import LogCase, LogTest, Walk, require_rounds

LEAST = 2 * FIRST_FIT
"""The fewest rounds with a dose that can be checked: with fewer there is no score to rank."""

LEARNING = ("group", "groups", "window", "lag")
"""The options that say how the policy learns; the others say which dose it gives."""

BETS = 3
TRAINING = 1 / 3
"""The share of the rounds, counted from the first, that trains the predictor of `carry_over`."""

BANDS = 5
NOT_APPLICABLE = {
    "norms": "A conformal guarantee needs neither S nor L.",
    "tails": "No noise constant is stated: scores may have any tails.",
    "linearity": "The mean may be anything; a predictor that misses it costs reward, not the guarantee.",
    "drift": "No coefficients are stated to be constant; exchangeability is checked in its place.",
    "confounding": "A policy chooses doses by the context; the dose-curve check shows what remains of the curve.",
    "noise": "No noise constant is stated, and noise may depend on the context.",
    "influence": "No noise constant says which single record is too large; one score moves a rank by one.",
}


def walked(case: LogCase) -> Walk:
    """The walk of the log through the policy, with the evidence of a walk in which it is not bet on rounds that were
    given nothing.
    """
    options = {name: value for name, value in case.stated.options.items() if name in LEARNING}
    if isinstance(options.get("group"), str):
        group, names = options["group"], case.log.names
        require(group in names, "group", group, "must be one of the context's columns", ", ".join(names))
        options["group"] = names.index(group)
    # Whatever it gives: rounds from before the first decision count as its own.
    options |= {"reach": REACH, "start_dose": 1.0, "history": "calibrate"}
    found = case.walked(("cost",), options, nothing=OPEN)
    require_rounds(found.told, LEAST)
    found.state.next_fit = found.state.count  # the information is that of all rounds
    found.policy.begin(found.state, None)
    if found.known.all():
        return found
    fair = case.walked((), options)
    names = ("evidence", "ranked", "chance", "ranked_evidence")
    return replace(found, **{name: getattr(fair, name) for name in names})


def check(case: LogCase) -> tuple[Walk, list[Finding]]:
    """The walk, and all findings."""
    found, needed = walked(replace(case, log=case.log.prefix)), BETS / case.level
    checks = (check_exchangeability, check_contexts, check_carry_over)
    shown = (check_information(found), check_dose_curve(found), check_start(found))
    return found, [*(each(found, needed=needed) for each in checks), *shown, *not_applicable(NOT_APPLICABLE)]


def evidence_path(chances: Array) -> Array:
    """The evidence of bounds/ranks.py after each p-value; each column is a separate process."""
    capital, path = ranks.init(chances.shape[1:]), np.empty(chances.shape)
    for index, chance in enumerate(chances):
        capital = ranks.update(capital, chance)
        path[index] = ranks.evidence(capital)
    return path


def check_exchangeability(walk: Walk, *, needed: float) -> Finding:
    low = float(np.mean(walk.chance <= 0.05)) if walk.chance.size else 0.0
    return finding(
        "exchangeability",
        Process(walk.rounds.number[walk.ranked], log_of(walk.ranked_evidence), needed),
        tested="Do the costs of later rounds rank higher than those of the calibration rounds before them?",
        found=f"Of {walk.chance.size} calibration rounds {low:.2g} lie among the highest 0.05 of those before them.",
        fine="There is no evidence against exchangeable rounds.",
        broken="Rounds drift, influence each other, or cost more at later doses than the dose curve says: bounds "
        "calibrated on earlier rounds are then too low for later ones. Find out what changed, and restart from there.",
        small_p_values=low,
    )


def check_contexts(walk: Walk, *, needed: float) -> Finding:
    """The largest bet on a feature, half on a rise and half on a fall, divided by the number of features."""
    moving = np.flatnonzero(np.ptp(walk.rounds.context, axis=0) > 0.0)
    paths = np.ones((len(walk.rounds.context), max(moving.size, 1)))
    for place, column in enumerate(moving):
        paths[:, place] = evidence_path(np.column_stack(_ranks(walk.rounds.context[:, column]))).mean(axis=1)
    largest = int(np.argmax(paths.max(axis=0)))
    names = [*walk.rounds.names, "intercept"]
    named = names[moving[largest]] if moving.size else "none"
    words = f"The largest bet, {paths.max():.3g}, is on {named}." if moving.size else "No feature varies."
    return finding(
        "contexts",
        Process(walk.rounds.number, log_of(paths.max(axis=1) / paths.shape[1]), needed),
        tested="Do the contexts of later rounds come from the same source as those of earlier rounds?",
        found=words,
        fine="There is no evidence against contexts from one source.",
        broken="The population has changed. The guarantee is for exchangeable contexts: forget the rounds before the "
        "change, or use a certified policy.",
        feature=named,
    )


def check_carry_over(walk: Walk, *, needed: float) -> Finding:
    """Ranks the residuals of one fit to the first rounds, and bets on each rank given the rank before it."""
    known = np.flatnonzero(np.isfinite(walk.told.cost))
    cut = int(np.ceil(TRAINING * known.size))
    first, later = known[:cut], known[cut:]
    seen = np.ones(first.size, dtype=bool)
    _, coef = ridge_fit(walk.rounds.context[first], walk.told.cost[first, None], seen, walk.spec.ridge)
    residual = walk.told.cost[later] - walk.rounds.context[later] @ coef[:, 0]
    high, low = _ranks(residual)
    was_high = np.concatenate([[False], high[:-1] <= 0.5])
    was_low = np.concatenate([[False], low[:-1] <= 0.5])
    bets = [np.where(was, now, np.nan) for was in (was_high, was_low) for now in (high, low)]
    paths = evidence_path(np.column_stack(bets))
    agree = float(np.mean((high[1:] <= 0.5) == was_high[1:])) if high.size > 1 else 0.5
    return finding(
        "carry_over",
        Process(walk.rounds.number[later], log_of(paths.mean(axis=1)), needed),
        title="Carry-over",
        tested="Does a round's cost predict the next one's?",
        found=f"Costs lie on the same side of the middle as the one before in {agree:.2g} of the rounds (0.5 if not).",
        fine="There is no evidence that one round influences the next.",
        broken="Rounds influence each other: state the remaining effect as the baseline cost, wait longer between "
        "rounds, or add what carries over to the context.",
        same_side=agree,
    )


def check_information(walk: Walk) -> Finding:
    """The rule of `reach`: do more than a third of a group's known calibration rounds have one and the same cost?"""
    ties = walk.policy.ties(walk.state)
    tied = [group for group in ties if group.found]
    value, count, known = tied[0] if tied else max(ties, key=lambda group: group.rounds)
    fine = "Costs differ enough from round to round for their ranks to be informative."
    broken = (
        "Costs carry no information in such a group: the policy stays at the start dose. Report the measured quantity, "
        "not its excess over a limit."
    )
    return stated(
        "information",
        "FLAG" if tied else "quiet",
        tested="Do more than a third of a group's calibration rounds have the same measured cost?",
        found=f"The most common cost, {value:g}, occurs in {count} of the {known} known rounds of its group.",
        means=broken if tied else fine,
        cost=value,
        tied=count,
        known=known,
    )


def check_dose_curve(walk: Walk) -> Finding:
    """Mean residuals in bands of the intensity; never raises a flag."""
    known = np.flatnonzero(np.isfinite(walk.told.cost) & (walk.numbers["cost"] != 0.0))
    residual, intensity = (walk.told.cost - walk.numbers["cost"])[known], walk.told.intensity[known]
    parts = [part for part in np.array_split(np.argsort(intensity, kind="stable"), BANDS) if part.size]
    bands, means = ([float(values[part].mean()) for part in parts] for values in (intensity, residual))
    shown = ", ".join(f"{mean:.2g} at {band:.2g}" for band, mean in zip(bands, means, strict=True))
    spread = float(residual.std()) if residual.size else 0.0
    return stated(
        "dose_curve",
        "shown",
        tested="Once divided by g, does the cost still depend on the dose?",
        found="Mean cost per unit of intensity beyond its prediction, in bands of the intensity: "
        f"{shown or 'none yet'} (their deviation is {spread:.2g}).",
        means="If g is exact, the means are near 0 and rise slightly, because doses are larger where the prediction is "
        "too low. Means that rise by more than the deviation suggest that larger doses cost more than g says. No flag "
        "is raised: doses depend on contexts, so a mean that the predictor misses looks the same. The first check "
        "catches what harms the guarantee.",
        bands=bands,
        mean_residuals=means,
    )


def check_start(walk: Walk) -> Finding:
    """How many rounds had no bound; never raises a flag."""
    count, total = int((~walk.ready).sum()), len(walk.ready)
    unknown = int((~np.isfinite(walk.told.cost)).sum())
    late = np.flatnonzero(~walk.ready)
    last = f", the last of them round {walk.rounds.number[late[-1]]:g}" if count else ""
    return stated(
        "start",
        "shown",
        title="Start dose",
        tested="How many rounds had no bound, so that the start dose was due?",
        found=f"In {count} of {total}{last}; {unknown} rounds have no known outcome.",
        means="Early ones belong to the start-up. Later ones come from groups with few rounds, from unknown outcomes, "
        "or from tied costs.",
        start_rounds=count,
        unknown=unknown,
    )


def _ranks(values: Array) -> tuple[Array, Array]:
    """(1 + how many earlier values are larger)/(1 + how many there are), and the same with smaller ones.

    Random numbers of a fixed seed break ties. The first is small where a value is high, the second where it is low.
    """
    coins = np.random.default_rng(0).random(values.size)
    earlier: list[tuple[float, float]] = []
    above = np.empty(values.size)
    for index, value in enumerate(zip((-values).tolist(), coins.tolist(), strict=True)):
        above[index] = bisect_left(earlier, value)
        insort(earlier, value)
    before = np.arange(values.size)
    return (1.0 + above) / (1.0 + before), (1.0 + before - above) / (1.0 + before)


# --- The page and the monitor


def ranks_figure(walk: Walk, findings: Sequence[Finding], *, over: str, across: str) -> Any:
    """Three panels: evidence, p-values, and costs beyond their predictions by dose."""
    figure, axes = new_figure(columns=3, height=2.5)
    draw_evidence(axes[0], [each for each in findings if each.evidence is not None])
    axes[0].legend(fontsize=6, frameon=False)
    axes[1].hist(walk.chance, bins=np.linspace(0.0, 1.0, 21), color=FILL)
    axes[1].axhline(walk.chance.size / 20.0, color="grey", linestyle="--", linewidth=1)
    title(axes[1], over)
    axes[1].set_xlabel(across)
    found = next(each for each in findings if each.name == "dose_curve")
    fitted, cost = walk.numbers["cost"], walk.told.cost
    known = np.isfinite(cost) & (fitted != 0.0)
    axes[2].plot(walk.told.intensity[known], (cost - fitted)[known], ".", color="0.75", markersize=2)
    axes[2].plot(found.details["bands"], found.details["mean_residuals"], "o-", color=ORANGE)
    axes[2].axhline(0.0, color="grey", linewidth=0.8)
    title(axes[2], "cost per unit beyond its prediction")
    axes[2].set_xlabel("intensity")
    return figure


def marginal_guarantee(walk: Walk, condition: str) -> str:
    """What a marginal guarantee says, as HTML."""
    spec = walk.spec
    limit = f"P(cost &gt; {spec.threshold:g}) ≤ {spec.violation_risk:.3g}"
    return f"the spec guarantees {limit} in every round, {condition}."


def _guarantee(walk: Walk) -> str:
    signed = walk.policy.options["groups"] == "sign"
    whole = "" if signed else " and over all rounds, not among those expected to benefit"
    condition = f"on average over calibration rounds{whole}, if rounds are exchangeable and the dose curve is exact"
    return marginal_guarantee(walk, condition)


WORDS = WatchWords(
    against="rounds are not exchangeable",
    starts="{starts} rounds had no conformal bound.",
    quiet="there is no evidence against exchangeable rounds, which the guarantee assumes.",
    alarm="the costs of new rounds rank higher among those of earlier calibration rounds than exchangeable rounds "
    "would. Stop or fall back, and find out what changed, or where the dose curve is wrong (safedial check).",
)


def watch(case: LogCase) -> MarginalWatch:
    """The monitor: bets on the p-values of calibration rounds, in decision order."""
    walk, rule = walked(case), "has no calibration round that can be ranked"
    require(walk.ranked.size, "log", f"{len(case.log)} rows", rule, "half of the rounds after the 20th are")
    return watch_walk(walk, case.level, WORDS, walk.ranked, walk.ranked_evidence)


TEST = LogTest(
    check=check,
    watch=watch,
    figure=partial(
        ranks_figure,
        over="ranks of calibration rounds (dashed: even)",
        across="share of earlier scores at least as high",
    ),
    drawn="Evidence over time, ranks, costs by dose",
    guarantee=_guarantee,
)
