"""Noise that depends on context or action: is κ too small somewhere?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safedial.diagnostics.evidence import Moments, average, least_squares, marks, running, spread
from safedial.diagnostics.finding import Finding, Process, finding
from safedial.diagnostics.residuals import Array, Rounds

FIRST = 16
"""Rounds before the first cut; cuts are recomputed from earlier rounds whenever the number of rounds has doubled."""

SHARES = (1 / 3, 2 / 3)

SAME = 1e-9
"""Cuts with a smaller relative difference do not separate anything."""

FEATURES = 20
"""The most features with regions of their own: each region needs a separate fit."""


def regions(rounds: Rounds) -> dict[str, NDArray[np.bool_]]:
    """The region of each round: low and high thirds of the action, the prediction, the context's norm, and each of the
    first `FEATURES` features and its size.

    A round's cuts come only from earlier rounds, so its region is chosen before its outcome.
    """
    columns = {"action": rounds.action, "predicted " + rounds.target: rounds.fitted}
    columns["norm"] = np.linalg.norm(rounds.context, axis=1)
    for index, name in enumerate(rounds.names[:FEATURES]):
        columns[name] = rounds.context[:, index]
        columns[f"|{name}|"] = np.abs(rounds.context[:, index])
    masks = {}
    for name, values in columns.items():
        low, high = _cuts(values)
        if not name.startswith("|"):
            masks[f"low {name}"] = values <= low
        masks[f"high {name}"] = values >= high
    return masks


def _cuts(values: Array) -> tuple[Array, Array]:
    """The one-third and two-thirds quantiles of the earlier values, by round; nothing lies beyond them in the first
    rounds, nor where they are equal.
    """
    low, high = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    start = FIRST
    while start < len(values):
        end = min(2 * start, len(values))
        third, two_thirds = np.quantile(values[:start], SHARES)
        if two_thirds - third > SAME * abs(two_thirds):
            low[start:end], high[start:end] = third, two_thirds
        start = end
    return low, high


def check_noise(rounds: Rounds, *, needed: float) -> Finding:
    """`spread` within each region (evidence.py), averaged over regions; a region without rounds counts as 1."""
    at = marks(len(rounds))
    places = regions(rounds)
    inside = {name: running(rounds.rows, rounds.outcome, at, mask) for name, mask in places.items()}
    by_region = {name: spread(moments, rounds.noise) for name, moments in inside.items()}
    logs = average(list(by_region.values()), axis=0)
    sizes = {name: _deviation(inside[name], rounds.rows.shape[1]) for name, mask in places.items() if mask.any()}
    worst = max(sizes, key=lambda name: by_region[name][-1], default="no part yet")
    return finding(
        "noise",
        "Noise by context and action",
        Process(rounds.number[at - 1], logs, needed),
        tested=f"Is the {rounds.target}'s noise wider than κ = {rounds.noise:g} in some part of the contexts, the "
        "actions or the predictions?",
        found=f"The most suspect part is {worst}, with deviation {sizes.get(worst, 0.0):.3g}; over all parts from "
        f"{min(sizes.values(), default=0.0):.3g} to {max(sizes.values(), default=0.0):.3g}.",
        fine="There is no evidence against κ in any part. " + _narrower(rounds),
        broken=f"Where the noise is wider than κ, first at {worst}, costs can exceed the threshold more often than "
        "promised. State the κ of the widest part; if small doses are the widest, state the sensor's noise "
        "(cost_sensor_noise).",
        worst=worst,
        deviations=sizes,
    )


def _narrower(rounds: Rounds) -> str:
    if rounds.target == "cost" and rounds.spec.learns_noise:
        return (
            f"The margin '{rounds.spec.margin}' also assumes that the noise is the same in every part, which is not "
            "tested: compare the deviations by part."
        )
    return "Where the noise is narrower, κ only costs reward."


def _deviation(moments: Moments, dim: int) -> float:
    return float(np.sqrt(least_squares(moments)[-1] / max(float(moments.count[-1]) - dim, 1.0)))
