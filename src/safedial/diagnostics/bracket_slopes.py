"""Whether costs rise with the setting, and no faster than their bracket says, on average over units (slopes.py).

An average within a bracket does not show that every unit is, but one beyond it shows that some are not. That a cost
falls by `low` is assumed only above the threshold, so a slope below `low` is no more than a doubt.

Costs below the floor count as the floor, which hides slopes. So there is a second test. In a unit that keeps to its
bracket, a cost that lies above the curve k + high·s, or k·(s/base)^high where that is at least the floor, lies above it
at every smaller setting too. So the share of costs above such a curve, k about their middle, must not rise with s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.diagnostics.bracket_rounds import BracketRounds
from safedial.diagnostics.finding import Finding, stated
from safedial.diagnostics.slopes import Slope, Slopes, slopes

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
        return _untested("monotonicity", "Monotonicity", RISES)
    whole, tried = told.slopes.whole, (told.slopes.whole, *told.slopes.bands)
    lowest = min(tried, key=lambda slope: slope.estimate / slope.error)
    falls = lowest.interval(2.0 * share / len(tried))[1] < 0.0
    word = "contradicted" if falls else "doubtful" if whole.estimate < 0.0 else "ok"
    means = "There is no evidence that costs fall when the setting rises."
    if word != "ok":
        means = (
            "Either the cost falls when the setting rises, or settings were lowered where a high cost was expected. In "
            "the first case the promise does not hold: turn `direction`, or measure another cost. In the second add "
            "what guided the settings to the context."
        )
    where = "" if lowest is whole else f"; the lowest is {_shown(lowest)}"
    found = f"The {told.words} over all settings is {_shown(whole)}{where}."
    return stated("monotonicity", "Monotonicity", word, tested=RISES, found=found, means=means, **_numbers(told.slopes))


def check_growth(told: Compared, share: float) -> Finding:
    """Contradicted if a slope lies above `high`, at level `share` over all bands."""
    if told.bracket is None:
        means = "Costs of 0 or 1 do not show how tolerances spread. `sigma` rests on what you know."
        return stated("bracket", "Bracket", "not applicable", tested=BOUNDED, found="Not applicable.", means=means)
    if told.slopes is None:
        return _untested("bracket", "Bracket", BOUNDED)
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
    return stated("bracket", "Bracket", word, tested=BOUNDED, found=found, means=means, **details)


def _untested(name: str, title: str, tested: str) -> Finding:
    found = "Settings do not vary beyond what context and base explain."
    means = "Nothing can be tested. Vary the settings below the cap, best at random."
    return stated(name, title, "doubtful", tested=tested, found=found, means=means)


def _shown(slope: Slope) -> str:
    low, high = slope.interval()
    return f"{slope.estimate:.3g} (95 %: {low:.3g} to {high:.3g})"


def _numbers(found: Slopes) -> dict[str, Any]:
    return {
        "estimate": found.whole.estimate,
        "interval": list(found.whole.interval()),
        "bands": [[slope.start, slope.end, slope.estimate, *slope.interval()] for slope in found.bands],
    }
