"""Confounded doses: were they chosen by the context?

If a doctor chooses doses by what they see, only the model separates the effect of the dose from that of the context: if
the mean bends with a feature that guides the doses, a fitted dose curve bends instead.

**Evidence.** Take two successive rounds, with doses a, a′ and contexts x, x′. If doses are chosen without the context,
the two doses could just as well have been swapped. With predictions f of the dose, and s² of its variance, both from
earlier rounds,

    2/(1 + exp(−k(a − a′)(f(x) − f(x′))/s²))

then has mean exactly 1, whatever k and f: swapping the doses flips the exponent's sign, and 2/(1 + e^−u) + 2/(1 + e^u)
is 2. For Gaussian doses and k = 1 it is the likelihood ratio. Its product over pairs is a martingale that starts at 1:
it ever reaches 1/a with probability at most a, however often you look. Every k of `BOLDNESS` gets an equal bet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.diagnostics.evidence import average, marks
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.residuals import Array, Rounds

BOLDNESS = np.array([0.1, 0.3, 1.0])
"""The values of k that get a bet."""

FIRST, GROWTH = 16, 1.15
"""Rounds before the first prediction (or three for each feature), and the growth from one prediction to the next."""


LEAST_VARIANCE = 1e-3
"""The least s², as a share of the doses' variance: doses by a strict rule leave none."""


class Assignment(NamedTuple):
    """How the doses of some rounds depend on their contexts.

    Attributes:
        log_evidence: ln E after each round.
        explained: the share of the doses' variance that a linear function of the context explains, in-sample.
        strongest: the column of the feature most correlated with the doses; −1 if nothing varies.
    """

    log_evidence: Array
    explained: float
    strongest: int


def assignment(context: Array, action: Array) -> Assignment:
    """Evidence that doses were chosen by the context, for rounds in order.

    >>> rng = np.random.default_rng(0)
    >>> weight, noise = rng.normal(size=(2, 100))
    >>> by_weight = assignment(weight[:, None], 0.5 + 0.1 * weight + 0.05 * noise)
    >>> bool(by_weight.log_evidence[-1] > 5.0), bool(assignment(weight[:, None], noise).log_evidence[-1] < 3.0)
    (True, True)
    """
    count = len(action)
    bets, start = np.zeros((len(BOLDNESS), count)), max(FIRST, 3 * context.shape[1])
    start += start % 2
    while start < count - 1:
        end = min(start + 2 * max(round(0.5 * (GROWTH - 1.0) * start), 1), count - count % 2)
        predicted, variance = _predicted(context[:start], action[:start], context[start:end])
        if variance > 0.0:
            apart = (action[start:end:2] - action[start + 1 : end : 2]) * (predicted[::2] - predicted[1::2])
            bets[:, start + 1 : end : 2] = np.log(2.0) - np.logaddexp(0.0, -BOLDNESS[:, None] * apart / variance)
        start = end
    explained, strongest = _described(context, action)
    return Assignment(average(np.cumsum(bets, axis=1), axis=0), explained, strongest)


def _predicted(context: Array, action: Array, later: Array) -> tuple[Array, float]:
    """The doses that ridge regression on earlier rounds predicts for later contexts, and their variance."""
    middle, size = context.mean(axis=0), context.std(axis=0)
    scale = np.where(size > 0.0, size, np.inf)
    rows, level = (context - middle) / scale, float(action.mean())
    coef = np.linalg.solve(rows.T @ rows + np.eye(rows.shape[1]), rows.T @ (action - level))
    left = action - level - rows @ coef
    variance = float(left @ left) / (len(left) - rows.shape[1] - 1)
    return (later - middle) / scale @ coef, max(variance, LEAST_VARIANCE * float(action.var()))


def _described(context: Array, action: Array) -> tuple[float, int]:
    if len(action) < 2:
        return 0.0, -1
    spread = np.asarray(context.std(axis=0)) * action.std()
    varying = np.flatnonzero(spread > 0.0)
    if not varying.size:
        return 0.0, -1
    rows = context[:, varying] - context[:, varying].mean(axis=0)
    doses = action - action.mean()
    left = doses - rows @ np.linalg.lstsq(rows, doses, rcond=None)[0]
    share = 1.0 - float(left @ left) / float(doses @ doses)
    alone = np.abs(rows.T @ doses) / (len(action) * spread[varying])
    return max(share, 0.0), int(varying[np.argmax(alone)])


def words(found: Assignment, names: tuple[str, ...], count: int) -> str:
    """What was found, in a sentence."""
    told = f"In {count} rounds a linear function of the context explains {found.explained:.0%} of the doses' variance"
    named = f", {names[found.strongest]} the most" if 0 <= found.strongest < len(names) else ""
    return f"{told}{named}."


BROKEN = (
    "The choice of dose depended on the context. Then only the linear model separates the effect of the dose from that "
    "of the context: where the mean bends with a feature that guided the doses, the fitted dose curve bends instead. "
    "Reasons that are not in the log do the same, and no log shows them. Give some doses at random around the usual "
    "ones, or state the dose curve from prior knowledge."
)


def check_confounding(rounds: Rounds, *, needed: float) -> Finding:
    """`assignment` over the rounds without recorded advice: doses that this package advised follow the context by a
    known rule.
    """
    at = marks(len(rounds))
    free = np.flatnonzero(rounds.free)
    found = assignment(rounds.context[free], rounds.action[free])
    passed = np.searchsorted(free, at - 1, side="right")
    logs = np.concatenate([[0.0], found.log_evidence])[passed]
    told = words(found, rounds.names, free.size)
    quiet = "There is no evidence that doses followed the context. No check can see reasons that are not in the log."
    details: dict[str, Any] = {"without_advice": int(free.size), "explained": found.explained}
    return finding(
        "confounding",
        "Confounded doses",
        Process(rounds.number[at - 1], logs, needed),
        tested="In rounds without recorded advice: were doses chosen without the context, or does it predict them?",
        found=told if free.size else "Advice is on record for every round.",
        fine=quiet if free.size else "Doses that followed advice depend on the context by a known rule.",
        broken=BROKEN + " If safedial advised these doses, the log lacks its column `advised`.",
        **details,
    )
