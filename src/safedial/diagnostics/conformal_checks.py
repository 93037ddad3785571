"""Checks of a conformal promise's assumptions, for logs without stated constants.

Three are bets, each valid at any time. If rounds are exchangeable, the rank of a round among the earlier ones is
uniform and independent of the earlier ranks, for any fixed score:

    exchangeability   the p-values of calibration rounds are small (core/exchangeability.py), as the `Agent` watches it
    contexts          a feature's values rank high, or low, among the earlier ones
    carry_over        a cost ranks high, or low, where the one before did, or the other way round; the mean of four

The last two break ties with random numbers of a fixed seed; otherwise ranks would not be independent. The ranks of one
feature say nothing about its next rank, but those of several features together may. So the mean of the bets on k
features is not a valid bet, but the largest of them divided by k is (by the union bound). The other checks report what
they find: `information` applies the policy's own rule, `dose_curve` and `start` never raise a flag. Checks that compare
with stated constants do not apply, and are listed with the reason.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

import numpy as np

from safedial.diagnostics.bracket_rounds import BracketRounds
from safedial.diagnostics.conformal_rounds import Array, ConformalRounds, evidence_path
from safedial.diagnostics.finding import Finding, Process, finding, log_of, not_applicable, stated
from safedial.policies.conformal.frozen import ridge_fit

if TYPE_CHECKING:
    from safedial.diagnostics.student_rounds import StudentRounds

BETS = 3
TRAINING = 1 / 3
"""The share of the rounds, counted from the first, that trains the predictor of `carry_over`."""

BANDS = 5
NOT_APPLICABLE = {
    "norms": "A conformal promise needs neither S nor L.",
    "tails": "No noise constant is stated: scores may have any tails.",
    "linearity": "The mean may be anything; a predictor that misses it costs reward, not the promise.",
    "drift": "No coefficients are stated to be constant; exchangeability is checked in its place.",
    "confounding": "A policy chooses doses by the context; the dose-curve check shows what remains of the curve.",
    "noise": "No noise constant is stated, and noise may depend on the context.",
    "influence": "No noise constant says which single record is too large; one score moves a rank by one.",
}


def check_conformal(walked: ConformalRounds, *, needed: float) -> list[Finding]:
    """All findings about a log that `walk_log` has read."""
    checks = (check_exchangeability, check_contexts, check_carry_over)
    shown = (check_information(walked), check_dose_curve(walked), check_start(walked))
    return [*(check(walked, needed=needed) for check in checks), *shown, *not_applicable(NOT_APPLICABLE)]


def check_exchangeability(walked: ConformalRounds, *, needed: float) -> Finding:
    low = float(np.mean(walked.chance <= 0.05)) if walked.chance.size else 0.0
    return finding(
        "exchangeability",
        "Exchangeability",
        Process(walked.number[walked.ranked], log_of(walked.evidence), needed),
        tested="Do the costs of later rounds rank higher than those of the calibration rounds before them?",
        found=f"Of {walked.chance.size} calibration rounds {low:.2g} lie among the highest 0.05 of those before them.",
        fine="There is no evidence against exchangeable rounds.",
        broken="Rounds drift, influence each other, or cost more at later doses than the dose curve says: bounds "
        "calibrated on earlier rounds are then too low for later ones. Find out what changed, and restart from there.",
        small_p_values=low,
    )


def check_contexts(walked: ConformalRounds | BracketRounds, *, needed: float) -> Finding:
    """The largest bet on a feature, half on a rise and half on a fall, divided by the number of features."""
    moving = np.flatnonzero(np.ptp(walked.context, axis=0) > 0.0)
    paths = np.ones((len(walked.context), max(moving.size, 1)))
    for place, column in enumerate(moving):
        paths[:, place] = evidence_path(np.column_stack(_ranks(walked.context[:, column]))).mean(axis=1)
    largest = int(np.argmax(paths.max(axis=0)))
    names = [*walked.names, "intercept"]
    named = names[moving[largest]] if moving.size else "none"
    words = f"The largest bet, {paths.max():.3g}, is on {named}." if moving.size else "No feature varies."
    return finding(
        "contexts",
        "Contexts",
        Process(walked.number, log_of(paths.max(axis=1) / paths.shape[1]), needed),
        tested="Do the contexts of later rounds come from the same source as those of earlier rounds?",
        found=words,
        fine="There is no evidence against contexts from one source.",
        broken="The population has changed. The promise is for exchangeable contexts: forget the rounds before the "
        "change, or use a certified policy.",
        feature=named,
    )


def check_carry_over(walked: ConformalRounds, *, needed: float) -> Finding:
    """Ranks the residuals of one fit to the first rounds, and bets on each rank given the rank before it."""
    known = np.flatnonzero(np.isfinite(walked.outcome))
    cut = int(np.ceil(TRAINING * known.size))
    first, later = known[:cut], known[cut:]
    seen = np.ones(first.size, dtype=bool)
    _, coef = ridge_fit(walked.context[first], walked.outcome[first, None], seen, walked.rounds.ridge)
    residual = walked.outcome[later] - walked.context[later] @ coef[:, 0]
    high, low = _ranks(residual)
    was_high = np.concatenate([[False], high[:-1] <= 0.5])
    was_low = np.concatenate([[False], low[:-1] <= 0.5])
    bets = [np.where(was, now, np.nan) for was in (was_high, was_low) for now in (high, low)]
    paths = evidence_path(np.column_stack(bets))
    agree = float(np.mean((high[1:] <= 0.5) == was_high[1:])) if high.size > 1 else 0.5
    return finding(
        "carry_over",
        "Carry-over",
        Process(walked.number[later], log_of(paths.mean(axis=1)), needed),
        tested="Does a round's cost predict the next one's?",
        found=f"Costs lie on the same side of the middle as the one before in {agree:.2g} of the rounds (0.5 if not).",
        fine="There is no evidence that one round influences the next.",
        broken="Rounds influence each other: state the remaining effect as the baseline cost, wait longer between "
        "rounds, or add what carries over to the context.",
        same_side=agree,
    )


def check_information(walked: ConformalRounds) -> Finding:
    """The rule of `reach`: do more than a third of a group's known calibration rounds have one and the same cost?"""
    frozen = walked.rounds.frozen
    ties = frozen.ties if frozen else None
    tied = np.flatnonzero(ties.found) if ties else np.empty(0, dtype=int)
    group = int(tied[0]) if tied.size else int(np.argmax(ties.count)) if ties else 0
    value, count, known = (part[group].item() for part in ties) if ties else (0.0, 0, 0)
    fine = "Costs differ enough from round to round for their ranks to be informative."
    broken = (
        "Costs carry no information in such a group: the policy stays at the start dose. Report the measured quantity, "
        "not its excess over a limit."
    )
    return stated(
        "information",
        "Information",
        "FLAG" if tied.size else "quiet",
        tested="Do more than a third of a group's calibration rounds have the same measured cost?",
        found=f"The most common cost, {value:g}, occurs in {count} of the {known} known rounds of its group.",
        means=broken if tied.size else fine,
        cost=value,
        tied=count,
        known=known,
    )


def check_dose_curve(walked: ConformalRounds | StudentRounds) -> Finding:
    """Mean residuals in bands of the intensity; never raises a flag."""
    known = np.flatnonzero(np.isfinite(walked.outcome) & (walked.fitted != 0.0))
    residual, intensity = (walked.outcome - walked.fitted)[known], walked.intensity[known]
    parts = [part for part in np.array_split(np.argsort(intensity, kind="stable"), BANDS) if part.size]
    bands, means = ([float(values[part].mean()) for part in parts] for values in (intensity, residual))
    shown = ", ".join(f"{mean:.2g} at {band:.2g}" for band, mean in zip(bands, means, strict=True))
    spread = float(residual.std()) if residual.size else 0.0
    return stated(
        "dose_curve",
        "Dose curve",
        "shown",
        tested="Once divided by g, does the cost still depend on the dose?",
        found="Mean cost per unit of intensity beyond its prediction, in bands of the intensity: "
        f"{shown or 'none yet'} (their deviation is {spread:.2g}).",
        means="If g is exact, the means are near 0 and rise slightly, because doses are larger where the prediction is "
        "too low. Means that rise by more than the deviation suggest that larger doses cost more than g says. No flag "
        "is raised: doses depend on contexts, so a mean that the predictor misses looks the same. The first check "
        "catches what harms the promise.",
        bands=bands,
        mean_residuals=means,
    )


def check_start(walked: ConformalRounds | StudentRounds) -> Finding:
    """How many rounds had no bound; never raises a flag."""
    count, total = int((~walked.bounded).sum()), len(walked.bounded)
    unknown = int((~np.isfinite(walked.outcome)).sum())
    late = np.flatnonzero(~walked.bounded)
    last = f", the last of them round {walked.number[late[-1]]:g}" if count else ""
    return stated(
        "start",
        "Start dose",
        "shown",
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
