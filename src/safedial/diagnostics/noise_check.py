"""Noise that depends on context or action: is κ too small somewhere?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safedial.diagnostics.evidence import Moments, average, least_squares, marks, running, spread
from safedial.diagnostics.finding import Finding, finding
from safedial.diagnostics.residuals import Array, Rounds

FIRST = 16
"""Rounds behind the first cut; cuts are renewed whenever the number of rounds has doubled, from the rounds before."""

SHARES = (1 / 3, 2 / 3)

SAME = 1e-9
"""Cuts that differ by less, relatively, tell nothing apart."""

FEATURES = 20
"""Regions by feature are tried for so many at most: each takes a fit of its own."""


def regions(rounds: Rounds) -> dict[str, NDArray[np.bool_]]:
    """Where each round lies: low and high thirds of the action, of the prediction, of the context's norm and of each of
    the first `FEATURES` features and its size.

    The cuts of a round come from earlier rounds alone, so a region is chosen before the outcome.
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
    """The third and two thirds of the earlier values, by round; nothing lies beyond them in the first rounds, nor where
    they are the same.
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
    """`spread` within each region, all regions in equal shares, those without a round yet at 1 (evidence.py)."""
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
        needed=needed,
        rounds=rounds.number[at - 1],
        log_evidence=logs,
        tested=f"Is the {rounds.target}'s noise wider than κ = {rounds.noise:g} in some part of the contexts, the "
        "actions or the predictions?",
        found=f"It is the most suspect at {worst}: deviation {sizes.get(worst, 0.0):.3g} there; over all parts from "
        f"{min(sizes.values(), default=0.0):.3g} to {max(sizes.values(), default=0.0):.3g}.",
        fine="Nothing speaks against κ in any part. " + _narrower(rounds),
        broken=f"Where the noise is wider than κ, first at {worst}, costs can exceed the threshold more often than "
        "promised. State the κ of the widest part; where small doses are the widest, state the sensor's noise "
        "(cost_sensor_noise).",
        worst=worst,
        deviations=sizes,
    )


def _narrower(rounds: Rounds) -> str:
    if rounds.target == "cost" and rounds.spec.learns_noise:
        return (
            f"The margin '{rounds.spec.margin}' also takes the noise to be the same in every part, which is not "
            "tested: compare the deviations by part."
        )
    return "Where the noise is narrower, κ only costs reward."


def _deviation(moments: Moments, dim: int) -> float:
    return float(np.sqrt(least_squares(moments)[-1] / max(float(moments.count[-1]) - dim, 1.0)))
