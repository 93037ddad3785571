"""Whether costs rise with the setting, and no faster than their bracket says, on average over units (slopes.py).

An average within a bracket does not show that every unit is, but one beyond it shows that some are not. That a cost
falls by `low` is assumed only above the threshold, so a slope below `low` is no more than a doubt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.diagnostics.bracket_rounds import BracketRounds
from safedial.diagnostics.finding import Finding, stated
from safedial.diagnostics.slopes import Slope, Slopes, slopes

RISES = "Given context and base, do costs rise with the setting, or at least not fall?"
BOUNDED = (
    "Given context and base, do costs rise no faster with the setting than the bracket says, on average over units?"
)


class Compared(NamedTuple):
    """A cost's slopes given context and base, None if settings hardly vary; and the bracket to compare them with, None
    for costs of 0 or 1. `words` name a slope; `floored` says how many costs were too small to be evidence.
    """

    slopes: Slopes | None
    bracket: tuple[float, float] | None
    words: str
    floored: str = ""


def compare(walked: BracketRounds, name: str) -> Compared:
    """Costs below the floor count as the floor, as in the bracket. Where the bracket's numbers are features, slopes are
    multiples of `high`.
    """
    cost, measured, (low, high) = walked.costs[name], walked.outcome[name], walked.bracket[name].T
    growth, setting, base = cost.growth, walked.effect, walked.protocol
    signed = measured if cost.direction == "above" else -measured
    used, words, floored = np.isfinite(measured), "slope", ""
    if growth.name != "additive":
        used &= setting > 0.0
        setting, base = np.log(np.where(used, setting, 1.0)), np.log(base)
    if growth.name == "relative":
        floor = growth.parameters["floor"] or 1e-3 * cost.limit
        small = int((signed[used] <= floor).sum())
        floored = f" {small} of {int(used.sum())} costs lie at the floor, {floor:g}, or below, and count as it." * (
            small > 0
        )
        signed, words = np.log(np.fmax(signed, floor)), "elasticity"
    elif growth.name == "spread":
        signed, words = cost.exceeded(measured).astype(float), "slope of the share that exceeds"
    bracket = (float(low[0]), float(high[0]))
    if growth.features:
        bracket = (float((low / np.where(high > 0.0, high, np.inf)).min()), 1.0)
        setting, words = setting * high, f"{words}, in multiples of `high`,"
    found = slopes(signed[used], setting[used], np.column_stack([walked.context, base])[used])
    return Compared(found, None if growth.name == "spread" else bracket, words, floored)


def check_monotonicity(told: Compared, share: float) -> Finding:
    """Contradicted if a slope lies below 0, at level `share` over all bands."""
    if told.slopes is None:
        return _untested("monotonicity", "Monotonicity", RISES)
    whole, tried = told.slopes.whole, (told.slopes.whole, *told.slopes.bands)
    lowest = min(tried, key=lambda slope: slope.estimate / slope.error)
    falls = lowest.interval(2.0 * share / len(tried))[1] < 0.0
    word = "contradicted" if falls else "doubtful" if whole.estimate < 0.0 else "ok"
    means = "Nothing speaks against costs that do not fall when the setting rises."
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
    steepest = max(tried, key=lambda slope: (slope.estimate - high) / slope.error)
    word = "ok"
    means = "Nothing speaks against the bracket on average. That does not show that every unit keeps to it."
    if max(upper, steepest.estimate) > high:
        word = "doubtful"
        means = (
            f"The slope may lie above `high` = {high:g}: the log does not show the bracket even on average. Widen it, "
            "or collect rounds at more different settings."
        )
    elif upper < low:
        word = "doubtful"
        means = (
            f"Costs rise more slowly than `low` = {low:g}. That matters for rounds above the threshold, which then "
            "tolerate less than is counted. State a smaller `low`."
        )
    if steepest.interval(2.0 * share / len(tried))[0] > high:
        word = "contradicted"
        means = (
            f"Costs rise faster than `high` = {high:g} on average, and some units are above the average: rounds "
            f"tolerate less than is counted. State `high` as {1.2 * steepest.interval()[1]:.2g} or more (safedial "
            "calibrate), and return to the start until then."
        )
    where = "" if steepest is whole else f"; the steepest is {_shown(steepest)}"
    found = f"The {told.words} over all settings is {_shown(whole)}{where}; stated: {low:g} to {high:g}.{told.floored}"
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
