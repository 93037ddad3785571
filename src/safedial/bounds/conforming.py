"""Full conformal ridge regression: the largest cost with which a new round conforms to the calibration rounds.

Let μ̂ be the ridge estimate from all n rounds, A its Gram matrix, r_i the residuals. With a further round (x, y) the
estimate moves along A⁻¹x; with v = (y − ⟨x,μ̂⟩)/(1 + xᵀA⁻¹x) and k_i = x_iᵀA⁻¹x, the residuals after it are, exactly,

    e_new = v           e_i = r_i − k_i v

so that e_i ≥ e_new ⟺ r_i ≥ (1 + k_i)·v: each round is a half-line in v, and the y that conform,
#{i : e_i ≥ e_new} ≥ m, are bounded by sorting n numbers r_i/(1 + k_i). `bounds.ranks` says which m keeps a risk, and
docs/conformal.md derives both.

Arrays start with any shape of lanes, and end with the axis of the rounds, oldest first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.ranks import places
from safedial.model.namespace import Array

SLACK = 1e-12
"""A bound is raised by this share of the size of its parts, which is more than rounding can change."""


class Calibration(NamedTuple):
    """What a new round of any lane is compared with, for each risk: the fit to all rounds, and calibration rounds.

    `inverse` and `coef` are A⁻¹ and μ̂; `columns` the contexts of the calibration rounds, (..., d, n); `codes` their
    groups; `residual` their residuals under μ̂, −∞ of those that bound no next round; `top` the rank that bounds the
    next round of each group, and `sizes` how many rounds it has, both 0 for one never seen.
    """

    inverse: Array
    coef: Array
    columns: Array
    codes: Any
    residual: Array
    top: Any
    sizes: Any

    def upper(self, context: Array, *, code: Any) -> Any:
        """U(x): y of a new round of this group exceeds it with probability at most its risk; +∞ without a bound."""
        direction = (self.inverse @ context[..., None])[..., 0]
        slope = 1.0 + (direction[..., None, :] @ self.columns)[..., 0, :]
        known = np.broadcast_to(np.minimum(code, self.top.shape[-1] - 1), self.top.shape[:-1])
        top = np.take_along_axis(self.top, known[..., None], axis=-1)[..., 0]
        value = largest_conforming(self.compared(code), slope, top)
        # y from v: ⟨x,μ̂⟩ + (1 + xᵀA⁻¹x)·v, raised by more than rounding.
        centre, margin = np.vecdot(context, self.coef), (1.0 + np.vecdot(context, direction)) * value
        return centre + margin + SLACK * (np.abs(centre) + np.abs(margin))

    def compared(self, code: Any) -> Array:
        """The residuals of the rounds that bound the next one of this group, −∞ for others."""
        return np.where(self.codes == np.asarray(code)[..., None], self.residual, -np.inf)


def calibration(inverse: Array, coef: Array, rows: Array, residual: Array, codes: Any, *, risk: Any) -> Calibration:
    """From the contexts, residuals (+∞: unknown) and groups (−1: none) of the calibration rounds."""
    groups = max(1, int(codes.max(initial=-1)) + 1)
    codes = np.where(codes < 0, groups, codes)
    ages, sizes = ages_of(codes, groups + 1)
    sizes[..., groups] = 0
    kept, top = places(sizes, np.asarray(risk)[..., None])
    lanes = np.broadcast_shapes(kept.shape[:-1], codes.shape[:-1])
    each = np.broadcast_to(codes, (*lanes, codes.shape[-1]))
    used = ages < np.take_along_axis(np.broadcast_to(kept, (*lanes, groups + 1)), each, axis=-1)
    limited = np.where(used, residual, -np.inf)
    columns = np.ascontiguousarray(np.matrix_transpose(rows))
    return Calibration(inverse, coef, columns, codes, limited, top, sizes)


def ages_of(codes: Any, groups: int) -> tuple[Any, Any]:
    """For each round, how many later rounds its group has; for each of so many groups, how many rounds it has.

    The rank that bounds the next score often needs only the latest n′ rounds of a group (`bounds.ranks.places`):
    those with age < n′.
    """
    count, lanes = codes.shape[-1], int(np.prod(codes.shape[:-1]))
    # A stable sort puts each group's rounds side by side, oldest first, for all lanes at once: a round's age is then
    # its distance to the end of its run. Small codes as int16, because NumPy sorts those by radix, in linear time.
    order = np.argsort(codes.astype(np.int16) if groups < 2**15 else codes, axis=-1, kind="stable")
    ordered = np.take_along_axis(codes, order, axis=-1)
    last = np.ones(codes.shape, dtype=bool)
    last[..., :-1] = ordered[..., 1:] != ordered[..., :-1]
    ends = np.minimum.accumulate(np.where(last, np.arange(count), count)[..., ::-1], axis=-1)[..., ::-1]
    ages = np.empty(codes.shape, dtype=np.int64)
    np.put_along_axis(ages, order, ends - np.arange(count), axis=-1)
    # One bincount for all lanes: each gets its own range of codes.
    offsets = np.arange(lanes)[:, None] * groups
    sizes = np.bincount((codes.reshape(lanes, count) + offsets).ravel(), minlength=lanes * groups)
    return ages, sizes.reshape((*codes.shape[:-1], groups))


def largest_conforming(residual: Array, slope: Array, top: Any) -> Any:
    """`conforming_bound` for each lane, of the rounds whose residual is not −∞.

    With positive slopes a round counts up to residual/slope, so a quantile of these values is exact. A slope ≤ 0, which
    is rare, makes it count from a value on.
    """
    if np.all(slope > 0.0):
        return nth_largest(residual / slope, top)
    slope, bound = np.broadcast_to(slope, residual.shape), np.empty(np.shape(top))
    for lane in np.ndindex(*np.shape(top)):
        used = residual[lane] > -np.inf
        bound[lane] = conforming_bound(residual[lane][used], slope[lane][used], int(np.asarray(top)[lane]))
    return bound


def nth_largest(values: Array, top: Any) -> Any:
    """The top-th largest along the last axis; +∞ if top is 0."""
    deepest, count = int(np.max(top, initial=0)), values.shape[-1]
    if deepest == 0:
        return np.full(np.shape(top), np.inf)
    best = np.sort(np.partition(values, count - deepest, axis=-1)[..., count - deepest :], axis=-1)
    chosen = np.take_along_axis(best, np.minimum(deepest - top, deepest - 1)[..., None], axis=-1)[..., 0]
    return np.where(top > 0, chosen, np.inf)


def conforming_bound(residual: Array, slope: Array, top: int) -> float:
    """The largest v with #{i : residual_i ≥ slope_i·v} ≥ top; +∞ if it has no bound, or none conforms, or top is 0.

    A round with slope > 0 counts for v ≤ residual/slope. A slope ≤ 0 is rare (it needs x_iᵀA⁻¹x ≤ −1): such a
    round counts for v ≥ residual/slope, or, at slope 0, always or never.

    >>> conforming_bound(np.array([1.0, 2.0, 3.0]), np.ones(3), 2)
    2.0
    """
    if top < 1:
        return np.inf
    ordinary = slope > 0.0
    limits = np.sort(residual[ordinary] / slope[ordinary])[::-1]
    starts = np.sort(residual[slope < 0.0] / slope[slope < 0.0])
    always = int(np.sum((slope == 0.0) & (residual >= 0.0)))
    if starts.size + always >= top:
        return np.inf
    counted = np.arange(1, limits.size + 1) + np.searchsorted(starts, limits, side="right") + always
    conforming = counted >= top
    return float(limits[np.argmax(conforming)]) if conforming.any() else np.inf


# --- Costs that say nothing


class Ties(NamedTuple):
    """The most common measured cost of a group's known calibration rounds, how many have it, how many are known.

    If more than a third are equal, the cost is flat or censored at a limit, and says nothing about the dose's effect.
    """

    value: float = 0.0
    rounds: int = 0
    known: int = 0

    @property
    def found(self) -> bool:
        """Whether more than a third, and at least two, have the same value."""
        return self.rounds >= 2 and 3 * self.rounds > self.known


NO_TIES = Ties()


def find_ties(measured: Array) -> Ties:
    """The most common of a group's known measured costs.

    >>> find_ties(np.array([0.0, 0.0, 0.3])), find_ties(np.array([0.0, 0.7, 0.3])).found
    (Ties(value=0.0, rounds=2, known=3), False)
    """
    if not measured.size:
        return NO_TIES
    values, counts = np.unique(measured, return_counts=True)
    most = int(np.argmax(counts))
    return Ties(float(values[most]), int(counts[most]), int(measured.size))
