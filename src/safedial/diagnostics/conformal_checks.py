"""Checks of what a conformal promise rests on, for logs that no constants describe.

Three are wagers, each valid at any time one looks. If rounds are exchangeable, the rank of a round among the earlier
ones is uniform and independent of the earlier ranks, for any fixed score:

    exchangeability   the p-values of calibration rounds are small (core/exchangeability.py), as the `Agent` watches it
    contexts          a feature's values rank high, or low, among the earlier ones
    carry_over        a cost ranks high, or low, where the one before did, or the other way round; the mean of four

The last two break ties by a coin of fixed seed, without which ranks would not be independent. Ranks of one feature say
nothing about its next rank, but those of several together may, so that the wagers on k features have no mean that is
valid: the largest of them, divided by k, is (by the union bound). The other checks state what
they find: `information` by the rule of the policy's own guard, `dose_curve` and `start` without a flag. Those of
certified specs that compare with constants do not apply, and are listed with the reason.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np

from safedial.diagnostics.conformal_rounds import Array, ConformalRounds, evidence_path
from safedial.diagnostics.finding import Finding, finding, stated
from safedial.policies.conformal.predictors import ridge_fit

WAGERS = 3
TRAINING = 1 / 3
"""The share of the rounds, from the first, that trains the one predictor of `carry_over`."""

BANDS = 5
NOT_APPLICABLE = {
    "norms": "S and L bound nothing here: a conformal promise needs neither.",
    "tails": "No noise constant is stated: scores may have any tails.",
    "linearity": "The mean may be anything; a predictor that misses it costs reward, not the promise.",
    "drift": "No coefficients are stated to be constant; exchangeability is checked in its place.",
    "confounding": "A policy chooses doses by the context; what that leaves of the curve is shown under dose curve.",
    "noise": "No noise constant is stated, and noise may depend on the context.",
    "influence": "No noise constant says which single record is too large; one score moves a rank by one.",
}


def check_conformal(walked: ConformalRounds, *, needed: float) -> list[Finding]:
    """All findings about a walked log."""
    checks = (check_exchangeability, check_contexts, check_carry_over)
    shown = (check_information(walked), check_dose_curve(walked), check_start(walked))
    absent = [
        stated(name, name.capitalize(), "not applicable", tested="", found="Not applicable.", means=reason)
        for name, reason in NOT_APPLICABLE.items()
    ]
    return [*(check(walked, needed=needed) for check in checks), *shown, *absent]


def check_exchangeability(walked: ConformalRounds, *, needed: float) -> Finding:
    low = float(np.mean(walked.chance <= 0.05)) if walked.chance.size else 0.0
    return finding(
        "exchangeability",
        "Exchangeability",
        needed=needed,
        rounds=walked.number[walked.ranked],
        log_evidence=_log(walked.evidence),
        tested="Do the costs of later rounds rank higher than those of the calibration rounds before them?",
        found=f"Of {walked.chance.size} calibration rounds {low:.2g} lie among the highest 0.05 of those before them.",
        fine="Nothing speaks against exchangeable rounds.",
        broken="Rounds drift, influence each other, or cost more at the doses given later than the dose curve says: "
        "calibration on earlier rounds then bounds later ones too low. Find out what changed; start anew from there.",
        small_p_values=low,
    )


def check_contexts(walked: ConformalRounds, *, needed: float) -> Finding:
    """The largest wager on a feature, upwards and downwards in equal parts, over their number."""
    moving = np.flatnonzero(np.ptp(walked.context, axis=0) > 0.0)
    paths = np.ones((len(walked.context), max(moving.size, 1)))
    for place, column in enumerate(moving):
        paths[:, place] = evidence_path(np.column_stack(_ranks(walked.context[:, column]))).mean(axis=1)
    largest = int(np.argmax(paths.max(axis=0)))
    names = [*walked.names, "intercept"]
    named = names[moving[largest]] if moving.size else "none: no feature varies"
    return finding(
        "contexts",
        "Contexts",
        needed=needed,
        rounds=walked.number,
        log_evidence=_log(paths.max(axis=1) / paths.shape[1]),
        tested="Do the contexts of later rounds come from where those of earlier ones came from?",
        found=f"The feature with the largest wager, {paths.max():.3g}, is {named}.",
        fine="Nothing speaks against contexts from one source.",
        broken="Who comes has changed. The promise is for exchangeable contexts: forget the rounds before the change, "
        "or use a certified policy.",
        feature=named,
    )


def check_carry_over(walked: ConformalRounds, *, needed: float) -> Finding:
    """Residuals of one fit, on the first rounds, ranked among those since; bets on a rank by the rank before it."""
    known = np.flatnonzero(np.isfinite(walked.outcome))
    cut = int(np.ceil(TRAINING * known.size))
    first, later = known[:cut], known[cut:]
    seen = np.ones(first.size, dtype=bool)
    _, coef = ridge_fit(walked.context[first], walked.outcome[first, None], seen, walked.rounds.ridge)
    residual = walked.outcome[later] - walked.context[later] @ coef[:, 0]
    high, low = _ranks(residual)
    was_high = np.concatenate([[False], high[:-1] <= 0.5])
    was_low = np.concatenate([[False], low[:-1] <= 0.5])
    wagers = [np.where(was, now, np.nan) for was in (was_high, was_low) for now in (high, low)]
    paths = evidence_path(np.column_stack(wagers))
    agree = float(np.mean((high[1:] <= 0.5) == was_high[1:])) if high.size > 1 else 0.5
    return finding(
        "carry_over",
        "Carry-over",
        needed=needed,
        rounds=walked.number[later],
        log_evidence=_log(paths.mean(axis=1)),
        tested="Does a round's cost tell something about the next one's?",
        found=f"Costs lie on the same side of the middle as the one before in {agree:.2g} of the rounds (0.5 if not).",
        fine="Nothing speaks for an influence of one round on the next.",
        broken="Rounds influence each other: state what is left over as the baseline cost, wait between rounds, or put "
        "what carries over into the context.",
        same_side=agree,
    )


def check_information(walked: ConformalRounds) -> Finding:
    """The rule of `reach`: more than a third of a group's known calibration rounds at one measured cost."""
    frozen = walked.rounds.frozen
    ties = frozen.ties if frozen else None
    tied = np.flatnonzero(ties.found) if ties else np.empty(0, dtype=int)
    group = int(tied[0]) if tied.size else int(np.argmax(ties.count)) if ties else 0
    value, count, known = (part[group].item() for part in ties) if ties else (0.0, 0, 0)
    fine = "Costs differ enough from round to round for their ranks to mean something."
    broken = (
        "Costs carry no information in such a group: the policy stays at the start dose. Report the measured quantity, "
        "not its excess over a limit."
    )
    return stated(
        "information",
        "Information",
        "FLAG" if tied.size else "quiet",
        tested="Have more than a third of a group's calibration rounds one and the same measured cost?",
        found=f"The commonest one, {value:g}, is that of {count} of the {known} known rounds of its group.",
        means=broken if tied.size else fine,
        cost=value,
        tied=count,
        known=known,
    )


def check_dose_curve(walked: ConformalRounds) -> Finding:
    """Mean residuals in bands of the intensity; no flag."""
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
        means="Near 0 if g is exact, with a slight rise, since doses are larger where the prediction errs low. Means "
        "that rise by more than the deviation say that larger doses cost more than g allows for. No flag is raised: "
        "doses depend on contexts, so a mean that the predictor misses looks the same; what harms the promise shows as "
        "exchangeability.",
        bands=bands,
        mean_residuals=means,
    )


def check_start(walked: ConformalRounds) -> Finding:
    """How many rounds had no bound; no flag."""
    count, total = int((~walked.bounded).sum()), len(walked.bounded)
    unknown = int((~np.isfinite(walked.outcome)).sum())
    late = np.flatnonzero(~walked.bounded)
    last = f", the last of them round {walked.number[late[-1]]:g}" if count else ""
    return stated(
        "start",
        "Start dose",
        "shown",
        tested="In how many rounds could nothing be said, so that the start dose was due?",
        found=f"In {count} of {total}{last}; {unknown} rounds have no known outcome.",
        means="Early rounds are due to the start-up. Later ones come from groups with few rounds, from outcomes that "
        "are not known, or from costs that are tied.",
        start_rounds=count,
        unknown=unknown,
    )


def _ranks(values: Array) -> tuple[Array, Array]:
    """(1 + how many earlier values are larger)/(1 + how many there are), and the same with smaller ones.

    Ties are broken by a coin of fixed seed. Small where a value is high, and where it is low.
    """
    coins = np.random.default_rng(0).random(values.size)
    earlier: list[tuple[float, float]] = []
    above = np.empty(values.size)
    for index, value in enumerate(zip((-values).tolist(), coins.tolist(), strict=True)):
        above[index] = bisect_left(earlier, value)
        insort(earlier, value)
    before = np.arange(values.size)
    return (1.0 + above) / (1.0 + before), (1.0 + before - above) / (1.0 + before)


def _log(path: Array) -> Any:
    return np.log(np.maximum(path, 1e-300))
