"""Specs whose fields are grids: one row of results for each value, in simulations and replays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from safedial.core.costs import require_one_cost
from safedial.core.dose import Dose
from safedial.core.spec import NUMBERS, SafetySpec
from safedial.errors import require

SWEPT = ("threshold", "violation_risk", "estimation_risk")
"""The spec fields that may be 1-d arrays."""


def check_grids(spec: SafetySpec, *, several: bool = False) -> int:
    """The number of rows of a spec; grids of other fields, of more dimensions or of unequal length are refused.

    `several`: whether the spec may have several costs.
    """
    if not several:
        require_one_cost(spec)
    for name in NUMBERS:
        value, allowed = getattr(spec, name), 1 if name in SWEPT else 0
        require(np.ndim(value) <= allowed, name, value, f"may have at most {allowed} dimensions here")
    sizes = {name: np.size(getattr(spec, name)) for name in SWEPT}
    rows = max(sizes.values())
    require(set(sizes.values()) <= {1, rows}, "spec", sizes, "has grids of unequal length")
    return rows


def as_columns(spec: SafetySpec) -> SafetySpec:
    """Grids as (rows, 1), to broadcast against (rows, seeds) or (rows, rounds)."""
    grids = {name: np.asarray(value)[:, None] for name in SWEPT if np.ndim(value := getattr(spec, name))}
    return replace(spec, **grids)


def one_row(spec: SafetySpec, row: int) -> SafetySpec:
    """One row of a spec, of plain floats."""
    grids = {name: np.asarray(value) for name in SWEPT if np.ndim(value := getattr(spec, name))}
    return replace(spec, **{name: float(value[row if value.size > 1 else 0]) for name, value in grids.items()})


def split_rows(spec: SafetySpec) -> tuple[SafetySpec, ...]:
    """One spec of plain floats for each row.

    >>> grid = SafetySpec(threshold=[0.1, 0.5], violation_risk=0.01, estimation_risk=0.01, reward_noise=1,
    ...                   cost_noise=1, coefficient_bound=1, context_bound=1)
    >>> [row.threshold for row in split_rows(grid)]
    [0.1, 0.5]
    """
    rows = check_grids(spec)
    columns = {name: np.broadcast_to(getattr(spec, name), rows).tolist() for name in SWEPT}
    return tuple(replace(spec, **{name: columns[name][row] for name in SWEPT}) for row in range(rows))


def dose_free_learning(spec: SafetySpec, dose: Dose, baseline_cost: Any) -> bool:
    """Whether all rows learn the same: R/g and C/g do not depend on the dose, and only the reward decides if z > 0."""
    plain = (
        spec.noise_scale is None
        and spec.reward_sensor_noise == 0
        and spec.cost_sensor_noise == 0
        and not np.any(baseline_cost)
    )
    return bool(plain and dose.is_identity and np.ndim(spec.estimation_risk) == 0)
