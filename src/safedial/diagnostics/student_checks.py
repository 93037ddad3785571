"""Checks of what HP-Student's promise rests on, for logs without stated constants.

Five are bets on the p-values u_t of costs (student_rounds.py), each valid at any time: given all contexts the u_t are
independent and uniform if the noise is i.i.d. Gaussian, the mean linear, and contexts do not follow past noise.

    residuals        small u_t: costs above their predictions, as an `Agent` watches it
    normality        u_t too often in the middle, at an end, or at both
    equal_variance   u_t at both ends where a feature is high, or where it is low
    linearity        u_t high or low in general, or where a square or a product of features is high, or low
    contexts         the next round's features are high, or low, where u_t was high, or low, or at either end

All but the first are one bet. With P_j Legendre's polynomial and weights −1 ≤ v_t ≤ 1 that contexts alone determine,
1 + b·v_t·P_j(2u_t − 1) has mean 1 for |b| < 1, and so has each product of them, and the mean over several (j, v, b).
The weights are a feature's rank among the earlier rounds'. `normality` also bets on small 2·min(u, 1 − u).
A weight must not depend on doses or estimates, which follow the noise: `dose_curve` and `start` are shown, without a
flag. For the anytime promise, contexts may react: a flag of `contexts` then says that the other flags are unsafe.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from safedial.diagnostics.conformal_checks import check_dose_curve, check_start
from safedial.diagnostics.conformal_rounds import evidence_path
from safedial.diagnostics.evidence import average
from safedial.diagnostics.finding import Finding, Process, finding, log_of, not_applicable
from safedial.diagnostics.student_rounds import Array, StudentRounds

BETS = 5
STAKES = np.array([-0.8, -0.3, -0.1, 0.1, 0.3, 0.8])
PRODUCTS = 60
"""The most squares and products of features that `linearity` bets on."""

NOT_APPLICABLE = {
    "norms": "The promise needs neither S nor L.",
    "tails": "No noise constant is stated; normality is checked in its place.",
    "drift": "A drift of the costs shows in residuals and linearity; contexts may drift.",
    "confounding": "A policy chooses doses by the context; the dose-curve check shows what remains of the curve.",
    "noise": "No noise constant is stated; equal variance is checked in its place.",
    "influence": "No noise constant says which single record is too large; normality is checked in its place.",
}


def check_student(walked: StudentRounds, *, needed: float) -> list[Finding]:
    """All findings about a log that `walk_student_log` has read."""
    checks = (check_residuals, check_normality, check_equal_variance, check_linearity, check_contexts)
    shown = (check_dose_curve(walked), check_start(walked))
    return [*(check(walked, needed=needed) for check in checks), *shown, *not_applicable(NOT_APPLICABLE)]


def check_residuals(walked: StudentRounds, *, needed: float) -> Finding:
    low = float(np.mean(walked.chance <= 0.05))
    return finding(
        "residuals",
        "Residuals",
        Process(walked.number[walked.ranked], log_of(evidence_path(walked.chance)), needed),
        tested="Do costs lie above what earlier rounds predict more often than Gaussian noise allows?",
        found=f"Of {walked.chance.size} costs {low:.2g} have a p-value of at most 0.05.",
        fine="There is no evidence against the bounds.",
        broken="Costs exceed their bounds too often: the promise is broken. The other checks may say why.",
        small_p_values=low,
    )


def check_normality(walked: StudentRounds, *, needed: float) -> Finding:
    chance = walked.chance
    ends = log_of(evidence_path(2.0 * np.maximum(np.minimum(chance, 1.0 - chance), 1e-16)))
    logs = average([_bets(chance, (2, 3, 4), np.ones((chance.size, 1))), ends], axis=0)
    scores = _scores(chance)
    skew, tails = float(np.mean(scores**3)), float(np.mean(scores**4)) - 3.0
    return finding(
        "normality",
        "Normality",
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
    weights, names = _features(walked, products=False)
    logs, largest = _split(walked.chance, (2,), weights[walked.ranked])
    return finding(
        "equal_variance",
        "Equal variance",
        Process(walked.number[walked.ranked], logs, needed),
        tested="Is the noise as large for all contexts?",
        found=f"The feature with the largest bet is {names[largest]}.",
        fine="There is no evidence against noise of one size.",
        broken="The noise depends on the context: bounds are too low where it is large. State the ratio of variances "
        "(noise_ratio), or use hp_conformal.",
        feature=names[largest],
    )


def check_linearity(walked: StudentRounds, *, needed: float) -> Finding:
    weights, names = _features(walked, products=True)
    logs, largest = _split(walked.chance, (1,), weights[walked.ranked])
    return finding(
        "linearity",
        "Linearity",
        Process(walked.number[walked.ranked], logs, needed),
        tested="Is the mean cost per unit of intensity linear in the context, with the same coefficients throughout?",
        found=f"The largest bet is on {names[largest]}.",
        fine="There is no evidence against a linear mean.",
        broken="The mean is not linear, or has changed: predictions err, and the noise looks larger than it is where "
        "they do. Add features such as squares, or start again after a change.",
        feature=names[largest],
    )


def check_contexts(walked: StudentRounds, *, needed: float) -> Finding:
    """The p-value of a round against the features of the next one."""
    later = walked.ranked + 1
    inside = later < len(walked.context)
    weights, names = _features(walked, products=False)
    logs, largest = _split(walked.chance[inside], (1, 2), weights[later[inside]])
    return finding(
        "contexts",
        "Contexts",
        Process(walked.number[later[inside]], logs, needed),
        tested="Do contexts follow the noise of the round before?",
        found=f"The feature with the largest bet is {names[largest]}.",
        fine="There is no evidence that contexts react to costs. Reactions to earlier rounds are not tested.",
        broken="Contexts react to past costs. The per-round and the tolerance promise need contexts that do not: take "
        "past costs, doses and outcomes out of the context, or use promise='anytime'.",
        feature=names[largest],
    )


def _bets(chance: Array, degrees: tuple[int, ...], weights: Array) -> Array:
    """ln of the mean over degrees, weights and stakes of Π(1 + b·v·P_j(2u − 1)), after each round."""
    logs = []
    for degree in degrees:
        shape = legendre.legval(2.0 * chance - 1.0, np.eye(degree + 1)[degree])
        steps = shape[:, None, None] * weights[:, :, None] * STAKES
        logs.append(np.cumsum(np.log1p(steps), axis=0).reshape(chance.size, -1))
    return average(np.concatenate(logs, axis=1))


def _split(chance: Array, degrees: tuple[int, ...], weights: Array) -> tuple[Array, int]:
    """`_bets` in equal shares on each column of weights, and the column whose bets end largest."""
    paths = np.stack([_bets(chance, degrees, weights[:, place, None]) for place in range(weights.shape[1])], axis=1)
    return average(paths), int(np.argmax(paths[-1])) if len(paths) else 0


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


def _scores(chance: Array) -> Array:
    from scipy.special import ndtri

    return -ndtri(np.clip(chance, 1e-15, 1.0 - 1e-15))
