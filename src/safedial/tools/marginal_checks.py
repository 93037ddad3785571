"""Checks of what the marginal guarantees rest on, for logs without stated constants: conformal, student, bracket.

**Conformal.** Three checks are bets, each valid at any time. If rounds are exchangeable, the rank of a round among the
earlier ones is uniform and independent of the earlier ranks, for any fixed score:

    exchangeability   the p-values of calibration rounds are small (bounds/ranks.py), as the `Agent` watches it
    contexts          a feature's values rank high, or low, among the earlier ones
    carry_over        a cost ranks high, or low, where the one before did, or the other way round; the mean of four

The last two break ties with random numbers of a fixed seed; otherwise ranks would not be independent. The ranks of one
feature say nothing about its next rank, but those of several features together may. So the mean of the bets on k
features is not a valid bet, but the largest of them divided by k is (by the union bound). The other checks report what
they find: `information` applies the policy's own rule, `dose_curve` and `start` never raise a flag. Checks that compare
with stated constants do not apply, and are listed with the reason.

**Student.** Five checks are bets on the p-values u_t of costs (marginal_rounds.py), each valid at any time: given all
contexts the u_t are independent and uniform if the noise is i.i.d. Gaussian, the mean linear, and contexts do not
follow past noise.

    residuals        small u_t: costs above their predictions, as an `Agent` watches it
    normality        u_t too often in the middle, at an end, or at both
    equal_variance   u_t at both ends where a feature is high, or where it is low
    linearity        u_t high or low in general, or where a square or a product of features is high, or low
    contexts         the next round's features are high, or low, where u_t was high, or low, or at either end

All but the first are one bet. With P_j Legendre's polynomial and weights −1 ≤ v_t ≤ 1 that contexts alone determine,
1 + b·v_t·P_j(2u_t − 1) has mean 1 for |b| < 1, and so has each product of them, and the mean over several (j, v, b).
The weights are a feature's rank among the earlier rounds'. `normality` also bets on small 2·min(u, 1 − u).
A weight must not depend on doses or estimates, which follow the noise: `dose_curve` and `start` are shown, without a
flag. For the anytime guarantee, contexts may react: a flag of `contexts` then says that the other flags are unsafe.

**Bracket.** Each check says ok, doubtful or contradicted, with its number and what to do.

| check | kind | contradicted if |
|---|---|---|
| monotonicity, bracket | slopes given context and base (`compare`) | one is below 0, or above `high` |
| rounds | evidence of the Agent's watch (policies/shield.py) | it reaches K/level |
| contexts, proposals | evidence against exchangeable ranks, as above | it reaches K/level |
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

from bisect import bisect_left, bisect_right, insort
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import legendre

from safedial.bounds.conforming import ridge_fit
from safedial.tools.evidence import average
from safedial.tools.findings import Finding, Process, finding, log_of, not_applicable, stated
from safedial.tools.marginal_rounds import Array, BracketRounds, ConformalRounds, StudentRounds, evidence_path
from safedial.tools.slopes import Slope, Slopes, slopes

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


def check_conformal(walked: ConformalRounds, *, needed: float) -> list[Finding]:
    """All findings about a log that `walk_log` has read."""
    checks = (check_exchangeability, check_contexts, check_carry_over)
    shown = (check_information(walked), check_dose_curve(walked), check_start(walked))
    return [*(check(walked, needed=needed) for check in checks), *shown, *not_applicable(NOT_APPLICABLE)]


def check_exchangeability(walked: ConformalRounds, *, needed: float) -> Finding:
    low = float(np.mean(walked.chance <= 0.05)) if walked.chance.size else 0.0
    return finding(
        "exchangeability",
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
        Process(walked.number, log_of(paths.max(axis=1) / paths.shape[1]), needed),
        tested="Do the contexts of later rounds come from the same source as those of earlier rounds?",
        found=words,
        fine="There is no evidence against contexts from one source.",
        broken="The population has changed. The guarantee is for exchangeable contexts: forget the rounds before the "
        "change, or use a certified policy.",
        feature=named,
    )


def check_carry_over(walked: ConformalRounds, *, needed: float) -> Finding:
    """Ranks the residuals of one fit to the first rounds, and bets on each rank given the rank before it."""
    known = np.flatnonzero(np.isfinite(walked.outcome))
    cut = int(np.ceil(TRAINING * known.size))
    first, later = known[:cut], known[cut:]
    seen = np.ones(first.size, dtype=bool)
    _, coef = ridge_fit(walked.context[first], walked.outcome[first, None], seen, walked.spec.ridge)
    residual = walked.outcome[later] - walked.context[later] @ coef[:, 0]
    high, low = _ranks(residual)
    was_high = np.concatenate([[False], high[:-1] <= 0.5])
    was_low = np.concatenate([[False], low[:-1] <= 0.5])
    bets = [np.where(was, now, np.nan) for was in (was_high, was_low) for now in (high, low)]
    paths = evidence_path(np.column_stack(bets))
    agree = float(np.mean((high[1:] <= 0.5) == was_high[1:])) if high.size > 1 else 0.5
    return finding(
        "carry_over",
        Process(walked.number[later], log_of(paths.mean(axis=1)), needed),
        title="Carry-over",
        tested="Does a round's cost predict the next one's?",
        found=f"Costs lie on the same side of the middle as the one before in {agree:.2g} of the rounds (0.5 if not).",
        fine="There is no evidence that one round influences the next.",
        broken="Rounds influence each other: state the remaining effect as the baseline cost, wait longer between "
        "rounds, or add what carries over to the context.",
        same_side=agree,
    )


def check_information(walked: ConformalRounds) -> Finding:
    """The rule of `reach`: do more than a third of a group's known calibration rounds have one and the same cost?"""
    tied = [group for group in walked.ties if group.found]
    value, count, known = tied[0] if tied else max(walked.ties, key=lambda group: group.rounds)
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


def check_start(walked: ConformalRounds | StudentRounds) -> Finding:
    """How many rounds had no bound; never raises a flag."""
    count, total = int((~walked.bounded).sum()), len(walked.bounded)
    unknown = int((~np.isfinite(walked.outcome)).sum())
    late = np.flatnonzero(~walked.bounded)
    last = f", the last of them round {walked.number[late[-1]]:g}" if count else ""
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


# --- Student

STUDENT_BETS = 5
STAKES = np.array([-0.8, -0.3, -0.1, 0.1, 0.3, 0.8])
PRODUCTS = 60
"""The most squares and products of features that `linearity` bets on."""

STUDENT_NOT_APPLICABLE = {
    "norms": "The guarantee needs neither S nor L.",
    "tails": "No noise constant is stated; normality is checked in its place.",
    "drift": "A drift of the costs shows in residuals and linearity; contexts may drift.",
    "confounding": "A policy chooses doses by the context; the dose-curve check shows what remains of the curve.",
    "noise": "No noise constant is stated; equal variance is checked in its place.",
    "influence": "No noise constant says which single record is too large; normality is checked in its place.",
}


def check_student(walked: StudentRounds, *, needed: float) -> list[Finding]:
    """All findings about a log that `walk_student_log` has read."""
    checks = (check_residuals, check_normality, check_equal_variance, check_linearity, check_next_contexts)
    shown = (check_dose_curve(walked), check_start(walked))
    return [*(check(walked, needed=needed) for check in checks), *shown, *not_applicable(STUDENT_NOT_APPLICABLE)]


def check_residuals(walked: StudentRounds, *, needed: float) -> Finding:
    low = float(np.mean(walked.chance <= 0.05))
    return finding(
        "residuals",
        Process(walked.number[walked.ranked], log_of(evidence_path(walked.chance)), needed),
        tested="Do costs lie above what earlier rounds predict more often than Gaussian noise allows?",
        found=f"Of {walked.chance.size} costs {low:.2g} have a p-value of at most 0.05.",
        fine="There is no evidence against the bounds.",
        broken="Costs exceed their bounds too often: the guarantee is broken. The other checks may say why.",
        small_p_values=low,
    )


def check_normality(walked: StudentRounds, *, needed: float) -> Finding:
    from scipy.special import ndtri

    chance = walked.chance
    ends = log_of(evidence_path(2.0 * np.maximum(np.minimum(chance, 1.0 - chance), 1e-16)))
    logs = average([_bets(chance, (2, 3, 4), np.ones((chance.size, 1))), ends], axis=0)
    scores = -ndtri(np.clip(chance, 1e-15, 1.0 - 1e-15))
    skew, tails = float(np.mean(scores**3)), float(np.mean(scores**4)) - 3.0
    return finding(
        "normality",
        Process(walked.number[walked.ranked], logs, needed),
        tested="Are the recursive residuals Gaussian?",
        found=f"As normal scores they have skewness {skew:.2g} and excess kurtosis {tails:.2g} (0 for Gaussian noise).",
        fine="There is no evidence against Gaussian noise. A log cannot prove it.",
        broken="The noise is not Gaussian, and the bounds' risk is not δ: transform the cost, or use hp_conformal, "
        "which needs no distribution.",
        skewness=skew,
        excess_kurtosis=tails,
    )


def check_equal_variance(walked: StudentRounds, *, needed: float) -> Finding:
    logs, largest = _on_features(walked, (2,), walked.ranked)
    return finding(
        "equal_variance",
        Process(walked.number[walked.ranked], logs, needed),
        tested="Is the noise as large for all contexts?",
        found=f"The feature with the largest bet is {largest}.",
        fine="There is no evidence against noise of one size.",
        broken="The noise depends on the context: bounds are too low where it is large. Use hp_conformal, "
        "which needs no noise of one size.",
        feature=largest,
    )


def check_linearity(walked: StudentRounds, *, needed: float) -> Finding:
    logs, largest = _on_features(walked, (1,), walked.ranked, products=True)
    return finding(
        "linearity",
        Process(walked.number[walked.ranked], logs, needed),
        tested="Is the mean cost per unit of intensity linear in the context, with the same coefficients throughout?",
        found=f"The largest bet is on {largest}.",
        fine="There is no evidence against a linear mean.",
        broken="The mean is not linear, or has changed: predictions err, and the noise looks larger than it is where "
        "they do. Add features such as squares, or start again after a change.",
        feature=largest,
    )


def check_next_contexts(walked: StudentRounds, *, needed: float) -> Finding:
    """The p-value of a round against the features of the next one."""
    later = walked.ranked + 1
    later = later[later < len(walked.context)]
    logs, largest = _on_features(walked, (1, 2), later)
    return finding(
        "contexts",
        Process(walked.number[later], logs, needed),
        tested="Do contexts follow the noise of the round before?",
        found=f"The feature with the largest bet is {largest}.",
        fine="There is no evidence that contexts react to costs. Reactions to earlier rounds are not tested.",
        broken="Contexts react to past costs. The per-round and the tolerance guarantee need contexts that do not: "
        "take past costs, doses and outcomes out of the context, or use guarantee='anytime'.",
        feature=largest,
    )


def _bets(chance: Array, degrees: tuple[int, ...], weights: Array) -> Array:
    """ln of the mean over degrees, weights and stakes of Π(1 + b·v·P_j(2u − 1)), after each round."""
    logs = []
    for degree in degrees:
        shape = legendre.legval(2.0 * chance - 1.0, np.eye(degree + 1)[degree])
        steps = shape[:, None, None] * weights[:, :, None] * STAKES
        logs.append(np.cumsum(np.log1p(steps), axis=0).reshape(chance.size, -1))
    return average(np.concatenate(logs, axis=1))


def _on_features(
    walked: StudentRounds, degrees: tuple[int, ...], rows: Array, *, products: bool = False
) -> tuple[Array, str]:
    """`_bets` of the first p-values in equal shares on each feature at these rows, and whose bets end largest."""
    weights, names = _features(walked, products=products)
    chance = walked.chance[: len(rows)]
    paths = np.stack([_bets(chance, degrees, column[rows, None]) for column in weights.T], axis=1)
    return average(paths), names[int(np.argmax(paths[-1])) if len(paths) else 0]


def _features(walked: StudentRounds, *, products: bool) -> tuple[Array, list[str]]:
    """Weights by row, and their names: ranks of the features that vary, or of their squares and products with one
    constant weight before them.
    """
    names = [*walked.names, "intercept"]
    moving = np.flatnonzero(np.ptp(walked.context, axis=0) > 0.0)
    if not products:
        columns, found = [walked.context[:, place] for place in moving], [names[place] for place in moving]
        return np.column_stack([_places(each) for each in columns] or [np.zeros(len(walked.context))]), found or [
            "none"
        ]
    pairs = list(combinations_with_replacement(moving.tolist(), 2))[:PRODUCTS]
    ranks = [_places(walked.context[:, one] * walked.context[:, two]) for one, two in pairs]
    words = [f"{names[one]} x {names[two]}" for one, two in pairs]
    return np.column_stack([np.ones(len(walked.context)), *ranks]), ["all rounds alike", *words]


def _places(values: Any) -> Array:
    """(how many earlier values are smaller − how many are larger)/(how many there are), 0 for the first."""
    earlier: list[float] = []
    found = np.zeros(len(values))
    for index, value in enumerate(values.tolist()):
        if index:
            found[index] = (bisect_left(earlier, value) + bisect_right(earlier, value)) / index - 1.0
        insort(earlier, value)
    return found


# --- Bracket: whether costs rise with the setting, and no faster than their bracket says, on average over units

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


def compare(walked: BracketRounds, name: str) -> Compared:
    """A cost's slopes; where the bracket's numbers are features, in multiples of `high`."""
    cost, growth = walked.costs[name], walked.costs[name].growth
    logs = growth.name != "additive"
    used = np.isfinite(walked.outcome[name]) & ((walked.effect > 0.0) | (not logs))
    low, high = walked.bracket[name][used].T
    setting, base, measured = (part[used] for part in (walked.effect, walked.protocol, walked.outcome[name]))
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
        outcome, words = walked.over[name][used].astype(float), "slope of the share that exceeds"
    bracket = (float(low[0]), float(high[0]))
    if growth.features:
        bracket = (float((low / np.where(high > 0.0, high, np.inf)).min()), 1.0)
        setting, words = setting * high, f"{words}, in multiples of `high`,"
    context = np.column_stack([walked.context[used], base])
    found = slopes(outcome, setting, context)
    if growth.name == "spread":
        return Compared(found, None, None, words)
    middle = max(float(np.median(outcome - rise)), least - float(np.quantile(rise, FEW)))
    seen = middle + rise >= least
    above = slopes((outcome - rise > middle)[seen].astype(float), setting[seen], context[seen])
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


def check_bracket(walked: BracketRounds, *, level: float) -> list[Finding]:
    """All findings about a log that `walk_bracket_log` has read."""
    proposals = [] if walked.proposal is None else [check_proposals]
    tests = 3 + len(proposals) + 2 * len(walked.costs)
    found = []
    for name in walked.costs:
        told = compare(walked, name)
        found += [_of(name, check(told, level / tests)) for check in (check_monotonicity, check_growth)]
    bets = (check_rounds, check_contexts, *proposals, check_bracket_start)
    found += [_graded(check(walked, needed=tests / level), level) for check in bets]
    return [*found, *(_of(name, check_tied_costs(walked, name)) for name in walked.costs), check_missing(walked)]


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
            "Proposals rise or fall with time, and the guarantee is for exchangeable ones: 1 % more each round "
            "breaks it. Use a fixed rule as the base, and let people lower its setting."
        )
    tested = "Do the proposals of later rounds come from the same source as those of earlier rounds?"
    told = f"The bet that they rise, or fall, was worth up to {found.evidence:.3g}."
    return replace(found, name="proposals", title="Proposals", tested=tested, found=told, means=means)


def check_bracket_start(walked: BracketRounds, *, needed: float) -> Finding:
    count, over = int(walked.at_start.sum()), int((walked.at_start & walked.exceeded).sum())
    fine = "There is no evidence against the start."
    if over:
        fine = "Excesses at the start add to the risk. Their number may be chance; a lower start has fewer."
    return finding(
        "start",
        Process(walked.number, log_of(walked.start_evidence), needed),
        tested="Does the start, which you declared safe, exceed the threshold more often than δ?",
        found=f"Of {count} known rounds at the start or below, {over} exceeded.",
        fine=fine,
        broken="The start is not safe. Stop, and declare a lower one.",
        at_start=count,
        exceeded=over,
    )


def check_tied_costs(walked: BracketRounds, name: str) -> Finding:
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
        "doubtful" if many else "ok",
        title="Missing outcomes",
        tested="Are fewer outcomes missing than the share δ?",
        found=f"{count} of {total} outcomes are missing; the share δ = {walked.risk:g} is {walked.risk * total:.3g}.",
        means=means,
        missing=count,
        rounds=total,
    )
