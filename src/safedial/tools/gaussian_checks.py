"""Checks of Gaussian noise of one size and a linear mean, on which a guarantee with learned noise rests.

If the noise is i.i.d. Gaussian and contexts do not follow it, the pivots T_t = (y_t − ⟨x_t,μ̂⟩)/(s√(1+w²)), each with
the fit before its round, are independent, and so are the p-values u_t = P(t_ν > T_t), which are uniform, given all
contexts (bounds/t_laws.py). Five checks are bets on them, each valid at any time:

    residuals        small u_t: costs above their predictions, as an `Agent` watches it
    normality        u_t too often in the middle, at an end, or at both
    equal_variance   u_t at both ends where a feature is high, or where it is low
    linearity        u_t high or low in general, or where a square or a product of features is high, or low
    contexts         the next round's features are high, or low, where u_t was high, or low, or at either end

All but the first are one bet. With P_j Legendre's polynomial and weights −1 ≤ v_t ≤ 1 that contexts alone determine,
1 + b·v_t·P_j(2u_t − 1) has mean 1 for |b| < 1, and so has each product of them, and the mean over several (j, v, b).
The weights are a feature's rank among the earlier rounds'. `normality` also bets on small 2·min(u, 1 − u).
A weight must not depend on doses or estimates, which follow the noise: `dose_curve` and `start` are shown, without a
flag. For the anytime guarantee, contexts may react: a flag of `contexts` then says that the other flags are unsafe; and
the policy's evidence, which is the monitor's, counts costs above their bounds instead of p-values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from safedial.bounds.least_squares import Fitted
from safedial.bounds.t_laws import chance_above
from safedial.errors import require
from safedial.model.costs import require_one_cost
from safedial.model.namespace import Array
from safedial.tools.evidence import average
from safedial.tools.findings import Finding, Process, finding, log_of, not_applicable
from safedial.tools.log_watch import MarginalWatch, WatchWords, watch_walk
from safedial.tools.rank_checks import check_dose_curve, check_start, evidence_path, marginal_guarantee, ranks_figure
from safedial.tools.walk import LogCase, LogTest, Walk, require_rounds

SPARE = 8
"""The fewest rounds with a dose beyond the dimension that can be checked."""

FORM = ("guarantee", "mixture_ridge", "mixture_shape")
"""The options that say which guarantee is meant; the others say what is given, and when."""

FIT = ("cost", "width", "spread", "degrees", "rounds")
"""The numbers of a bound that a p-value follows from."""

BETS = 5
STAKES = np.array([-0.8, -0.3, -0.1, 0.1, 0.3, 0.8])
PRODUCTS = 60
"""The most squares and products of features that `linearity` bets on."""

NOT_APPLICABLE = {
    "norms": "The guarantee needs neither S nor L.",
    "tails": "No noise constant is stated; normality is checked in its place.",
    "drift": "A drift of the costs shows in residuals and linearity; contexts may drift.",
    "confounding": "A policy chooses doses by the context; the dose-curve check shows what remains of the curve.",
    "noise": "No noise constant is stated; equal variance is checked in its place.",
    "influence": "No noise constant says which single record is too large; normality is checked in its place.",
}


def walked(case: LogCase) -> Walk:
    """The walk of the log, up to the first missing outcome, with the p-value of each cost before it was learned."""
    require_one_cost(case.spec)
    case = replace(case, log=case.log.prefix)
    options = {name: case.stated.options[name] for name in FORM}
    found = case.walked((*FIT, "enough"), options | {"start_dose": 1.0})
    dim = found.policy.task.dim
    require_rounds(found.told, dim + SPARE, f" at dimension {dim}")
    ready, fit = found.known & (found.numbers["enough"] > 0.0), {name: found.numbers[name] for name in FIT}
    seen = Fitted(reward=0.0, **fit, ready=ready, norm=0.0)
    chance = chance_above(seen, np.where(found.known, found.told.cost, 0.0))
    ranked = np.flatnonzero(np.isfinite(chance))
    rule = "has no round with a bound: contexts must have full rank"
    require(ranked.size, "log", f"{len(case.log)} rows", rule, "leave out columns that others determine")
    after = next(iter(found.evidence.values()))[ranked]
    return replace(found, ranked=ranked, chance=chance[ranked], ranked_evidence=after)


def check(case: LogCase) -> tuple[Walk, list[Finding]]:
    """The walk, and all findings."""
    found, needed = walked(case), BETS / case.level
    checks = (check_residuals, check_normality, check_equal_variance, check_linearity, check_next_contexts)
    shown = (check_dose_curve(found), check_start(found))
    return found, [*(each(found, needed=needed) for each in checks), *shown, *not_applicable(NOT_APPLICABLE)]


def check_residuals(walk: Walk, *, needed: float) -> Finding:
    low = float(np.mean(walk.chance <= 0.05))
    return finding(
        "residuals",
        Process(walk.rounds.number[walk.ranked], log_of(evidence_path(walk.chance)), needed),
        tested="Do costs lie above what earlier rounds predict more often than Gaussian noise allows?",
        found=f"Of {walk.chance.size} costs {low:.2g} have a p-value of at most 0.05.",
        fine="There is no evidence against the bounds.",
        broken="Costs exceed their bounds too often: the guarantee is broken. The other checks may say why.",
        small_p_values=low,
    )


def check_normality(walk: Walk, *, needed: float) -> Finding:
    from scipy.special import ndtri

    chance = walk.chance
    ends = log_of(evidence_path(2.0 * np.maximum(np.minimum(chance, 1.0 - chance), 1e-16)))
    logs = average([_bets(chance, (2, 3, 4), np.ones((chance.size, 1))), ends], axis=0)
    scores = -ndtri(np.clip(chance, 1e-15, 1.0 - 1e-15))
    skew, tails = float(np.mean(scores**3)), float(np.mean(scores**4)) - 3.0
    return finding(
        "normality",
        Process(walk.rounds.number[walk.ranked], logs, needed),
        tested="Are the recursive residuals Gaussian?",
        found=f"As normal scores they have skewness {skew:.2g} and excess kurtosis {tails:.2g} (0 for Gaussian noise).",
        fine="There is no evidence against Gaussian noise. A log cannot prove it.",
        broken="The noise is not Gaussian, and the bounds' risk is not δ: transform the cost, or use hp_conformal, "
        "which needs no distribution.",
        skewness=skew,
        excess_kurtosis=tails,
    )


def check_equal_variance(walk: Walk, *, needed: float) -> Finding:
    logs, largest = _on_features(walk, (2,), walk.ranked)
    return finding(
        "equal_variance",
        Process(walk.rounds.number[walk.ranked], logs, needed),
        tested="Is the noise as large for all contexts?",
        found=f"The feature with the largest bet is {largest}.",
        fine="There is no evidence against noise of one size.",
        broken="The noise depends on the context: bounds are too low where it is large. Use hp_conformal, "
        "which needs no noise of one size.",
        feature=largest,
    )


def check_linearity(walk: Walk, *, needed: float) -> Finding:
    logs, largest = _on_features(walk, (1,), walk.ranked, products=True)
    return finding(
        "linearity",
        Process(walk.rounds.number[walk.ranked], logs, needed),
        tested="Is the mean cost per unit of intensity linear in the context, with the same coefficients throughout?",
        found=f"The largest bet is on {largest}.",
        fine="There is no evidence against a linear mean.",
        broken="The mean is not linear, or has changed: predictions err, and the noise looks larger than it is where "
        "they do. Add features such as squares, or start again after a change.",
        feature=largest,
    )


def check_next_contexts(walk: Walk, *, needed: float) -> Finding:
    """The p-value of a round against the features of the next one."""
    later = walk.ranked + 1
    later = later[later < len(walk.rounds.context)]
    logs, largest = _on_features(walk, (1, 2), later)
    return finding(
        "contexts",
        Process(walk.rounds.number[later], logs, needed),
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


def _on_features(walk: Walk, degrees: tuple[int, ...], rows: Array, *, products: bool = False) -> tuple[Array, str]:
    """`_bets` of the first p-values in equal shares on each feature at these rows, and whose bets end largest."""
    weights, names = _features(walk, products=products)
    chance = walk.chance[: len(rows)]
    paths = np.stack([_bets(chance, degrees, column[rows, None]) for column in weights.T], axis=1)
    return average(paths), names[int(np.argmax(paths[-1])) if len(paths) else 0]


def _features(walk: Walk, *, products: bool) -> tuple[Array, list[str]]:
    """Weights by row, and their names: ranks of the features that vary, or of their squares and products with one
    constant weight before them.
    """
    names = [*walk.rounds.names, "intercept"]
    moving = np.flatnonzero(np.ptp(walk.rounds.context, axis=0) > 0.0)
    if not products:
        columns, found = [walk.rounds.context[:, place] for place in moving], [names[place] for place in moving]
        return np.column_stack([_places(each) for each in columns] or [np.zeros(len(walk.rounds.context))]), found or [
            "none"
        ]
    pairs = list(combinations_with_replacement(moving.tolist(), 2))[:PRODUCTS]
    ranks = [_places(walk.rounds.context[:, one] * walk.rounds.context[:, two]) for one, two in pairs]
    words = [f"{names[one]} x {names[two]}" for one, two in pairs]
    return np.column_stack([np.ones(len(walk.rounds.context)), *ranks]), ["all rounds alike", *words]


def _places(values: Any) -> Array:
    """(how many earlier values are smaller − how many are larger)/(how many there are), 0 for the first."""
    earlier: list[float] = []
    found = np.zeros(len(values))
    for index, value in enumerate(values.tolist()):
        if index:
            found[index] = (bisect_left(earlier, value) + bisect_right(earlier, value)) / index - 1.0
        insort(earlier, value)
    return found


# --- The page and the monitor


def _guarantee(walk: Walk) -> str:
    contexts = "" if walk.policy.options["guarantee"] == "anytime" else ", contexts do not follow past costs"
    condition = f"if noise is Gaussian and of one size, the mean is linear{contexts}, and the dose curve is exact"
    return marginal_guarantee(walk, condition)


WORDS = WatchWords(
    against="noise is not Gaussian of one size",
    starts="{starts} rounds had no bound.",
    quiet="no evidence against Gaussian noise of one size, which the guarantee assumes.",
    alarm="costs lie above their predictions more than Gaussian noise of one size allows. Stop or fall back, and find "
    "out what changed (safedial check).",
)


def watch(case: LogCase) -> MarginalWatch:
    """The monitor: the policy's evidence after each cost that it was told."""
    walk = walked(case)
    return watch_walk(walk, case.level, WORDS, walk.ranked, walk.ranked_evidence)


TEST = LogTest(
    check=check,
    watch=watch,
    figure=partial(ranks_figure, over="p-values of costs (dashed: even)", across="chance of a cost at least as high"),
    drawn="Evidence over time, p-values, costs by dose",
    guarantee=_guarantee,
)
