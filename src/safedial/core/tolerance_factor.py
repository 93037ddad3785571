"""The tolerance factor: the k with P(z + wN ≤ kS) = 1 − δ′, N ~ N(0, 1) and S² ~ χ²_ν/ν independent (core/student.py).

It is w times a noncentral t quantile. One needs two dozen quadratures, so factors come from tables, one for a span of
ν, that are raised by more than they err; what a table does not cover is computed.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.namespace import normal_quantile

Array = NDArray[np.float64]

CAUTION = 1e-9
"""By how much a quantile is raised, relatively."""

STEPS = 8
"""The most Newton steps."""

FIRST_SPAN, SPAN, SPAN_NODES, ORDERS = 20, 1.5, 8, np.arange(40.0)
RAISED = 1e-8
"""By how much a table of tolerance factors is raised, relatively; it errs by less than a third of this."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
REACH = 8.5
"""A standard normal variable lies within ±REACH but for 2e-17."""


def tolerance_factor(degrees: Any, width: Any, risk: Any, failure: Any) -> Any:
    """The k with P(z + wN ≤ kS) = 1 − `failure`, z = Φ⁻¹(1 − risk) > 0, or 1e-8 of it more: w times a noncentral t
    quantile, from a table where one serves (`_table`).

    >>> f"{tolerance_factor(8.0, 0.5, 0.05, 0.1):.4f}"
    '2.8117'
    """
    if type(width) is float and type(risk) is float:
        table = _table(_span(degrees), risk, failure)
        if table is not None and width <= table.widest:
            return table.at(degrees, width)
    spread = [np.asarray(part) for part in (degrees, risk, failure)]
    if all(part.size == 1 or np.all(part == part.flat[0]) for part in spread):  # as in most simulations
        each, share, fails = (float(part.flat[0]) for part in spread)
        table = _table(_span(each), share, fails)
        if table is not None and np.max(width) <= table.widest:
            return table.at(each, width + np.zeros(np.broadcast_shapes(*(part.shape for part in spread))))
    quantile = -normal_quantile(np.asarray(risk))
    parts = [np.asarray(part, dtype=float) for part in (degrees, width, quantile, failure)]
    degrees, width, quantile, failure = np.broadcast_arrays(*parts)
    if not all(np.all(part == part.flat[0]) for part in (quantile, failure)):
        return _exact_factor(degrees, width, quantile, failure)
    value, known = np.empty(width.shape), np.zeros(width.shape, dtype=bool)
    for each in np.unique(degrees).tolist():
        table = _table(_span(each), float(np.min(risk)), float(failure.flat[0]))
        if table is not None:
            here = (degrees == each) & (width <= table.widest)
            value[here], known = table.at(each, width[here]), known | here
    if not np.all(known):
        value[~known] = _exact_factor(*(part[~known] for part in (degrees, width, quantile, failure)))
    return value


def _exact_factor(degrees: Array, width: Array, quantile: Array, failure: Array) -> Array:
    """`tolerance_factor` without a table.

    The tail P(z + wN > kS) is E Φ((z − kS)/w), an integral over S, or E P(S < (z + wN)/k), one over N. The first has a
    smooth integrand if S varies by less than w/k, the second if it varies by more. Newton's steps are on its logarithm.
    """
    factor = np.array(_first_factor(degrees, width, quantile, failure))
    moving = np.ones(factor.shape, dtype=bool)
    for _ in range(STEPS):
        over_size = width >= factor / np.sqrt(2.0 * degrees)
        for which, integrals in ((over_size, _tail_over_size), (~over_size, _tail_over_noise)):
            chosen = moving & which
            if np.any(chosen):
                known = (part[chosen][..., None] for part in (factor, degrees, width, quantile))
                tail, slope = integrals(*known)
                step, before = tail * (np.log(tail) - np.log(failure[chosen])) / -slope, factor[chosen]
                factor[chosen] = np.clip(before + step, 0.5 * before, 2.0 * before)
                moving[chosen] = np.abs(step) > 1e-7 * before
    return factor * (1.0 + CAUTION)


class _Table(NamedTuple):
    """k/√(1 + w²) of a span of ν as Chebyshev coefficients in ln ν and ln(w² + bend), for w up to `widest`; raised."""

    coef: Array
    middle: float
    half: float
    bend: float
    low: float
    high: float
    widest: float

    def at(self, degrees: float, width: Any) -> Any:
        """k, for one ν of the span and one or many widths."""
        turn = (math.log(degrees) - self.middle) / self.half
        here = np.cos(ORDERS[: len(self.coef)] * math.acos(min(max(turn, -1.0), 1.0))) @ self.coef
        if type(width) is float:
            place = (2.0 * math.log(width * width + self.bend) - self.low - self.high) / (self.high - self.low)
            value = float(here @ np.cos(ORDERS * math.acos(min(max(place, -1.0), 1.0))))
            return value * math.sqrt(1.0 + width * width)
        place = (2.0 * np.log(width * width + self.bend) - self.low - self.high) / (self.high - self.low)
        return np.polynomial.chebyshev.chebval(place, here) * np.sqrt(1.0 + width * width)


def _span(degrees: float) -> int:
    """The number of the span that ν lies in: each below 20 by itself, above by steps of a half."""
    return int(degrees) if degrees < FIRST_SPAN else FIRST_SPAN + int(math.log(degrees / FIRST_SPAN) / math.log(SPAN))


@lru_cache(maxsize=1024)
def _table(span: int, risk: float, failure: float) -> _Table | None:
    """The table of a span. It is raised by `RAISED`, and None unless between its nodes, where a polynomial errs most,
    it errs by less than a third of that.
    """
    single = span < FIRST_SPAN
    start = float(span) if single else FIRST_SPAN * SPAN ** (span - FIRST_SPAN)
    count, widest = (1, 32.0) if single else (SPAN_NODES, 4.0)
    half, bend = 0.5 * math.log(SPAN), 0.5 / start
    middle = math.log(start) + (0.0 if single else half)
    table = _Table(np.ones((1, 1)), middle, half, bend, math.log(bend), math.log(widest * widest + bend), widest)
    first, second = _nodes(count), _nodes(ORDERS.size)
    values = _ratio(table, first, second, risk, failure)
    turns = [np.cos(np.outer(np.arange(each.size), np.arccos(each))) * 2.0 / each.size for each in (first, second)]
    for turn in turns:
        turn[0] *= 0.5
    coef = turns[0] @ values @ turns[1].T
    middles = np.append(0.5 * (second[1:] + second[:-1]), [-1.0, 1.0])
    between = first if single else np.array([-1.0, 0.0, 1.0]), middles
    exact = _ratio(table, *between, risk, failure)
    fitted = np.polynomial.chebyshev.chebgrid2d(*between, coef)
    sound = bool(np.all(np.abs(fitted / exact - 1.0) <= 0.3 * RAISED))
    return table._replace(coef=coef * (1.0 + RAISED)) if sound else None


def _nodes(count: int) -> Array:
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _ratio(table: _Table, first: Array, second: Array, risk: float, failure: float) -> Array:
    """k/√(1 + w²) at each pair of places of a table."""
    degrees = np.exp(table.middle + table.half * first)
    squares = np.exp(0.5 * (table.low + table.high) + 0.5 * (table.high - table.low) * second) - table.bend
    width = np.sqrt(np.maximum(squares, 0.0))
    shape = (degrees.size, width.size)
    parts = (degrees[:, None], width, -normal_quantile(np.asarray(risk)), failure)
    return _exact_factor(*(np.broadcast_to(part, shape) for part in parts)) / np.sqrt(1.0 + width * width)


def _first_factor(degrees: Array, width: Array, quantile: Array, failure: Array) -> Array:
    """A guess: the quantile of z + wN over that of S, each at half of the failure."""
    from scipy.special import gammaincinv

    low = np.sqrt(2.0 * gammaincinv(0.5 * degrees, 0.5 * failure) / degrees)
    return (quantile - width * normal_quantile(0.5 * failure)) / low


def _tail_over_size(factor: Array, degrees: Array, width: Array, quantile: Array) -> tuple[Array, Array]:
    """P(z + wN > kS) and its derivative in k, by quadrature over S."""
    from scipy.special import gammaln, ndtr

    spread = 1.0 / np.sqrt(2.0 * degrees)
    low, high = np.maximum(1.0 - 9.0 * spread, 0.0), 1.0 + 9.0 * spread + 6.0 / degrees
    size = 0.5 * (low + high) + 0.5 * (high - low) * NODES
    half = 0.5 * degrees
    with np.errstate(divide="ignore"):
        log_density = (degrees - 1.0) * np.log(size) - half * size * size + half * np.log(half) - gammaln(half)
    mass = 2.0 * np.exp(log_density) * (0.5 * (high - low)) * WEIGHTS
    score = (quantile - factor * size) / width
    density = np.exp(-0.5 * score * score) / math.sqrt(2.0 * math.pi)
    return np.sum(mass * ndtr(score), axis=-1), -np.sum(mass * density * size / width, axis=-1)


def _tail_over_noise(factor: Array, degrees: Array, width: Array, quantile: Array) -> tuple[Array, Array]:
    """The same, by quadrature over N above −z/w, below which z + wN < 0 ≤ kS."""
    from scipy.special import gammainc, gammaln

    low = np.full(width.shape, -REACH)
    np.divide(-quantile, width, out=low, where=quantile < REACH * width)
    noise = 0.5 * (low + REACH) + 0.5 * (REACH - low) * NODES
    size = (quantile + width * noise) / factor
    half = 0.5 * degrees
    mass = np.exp(-0.5 * noise * noise) / math.sqrt(2.0 * math.pi) * (0.5 * (REACH - low)) * WEIGHTS
    with np.errstate(divide="ignore"):
        log_density = (degrees - 1.0) * np.log(size) - half * size * size + half * np.log(half) - gammaln(half)
    tail = np.sum(mass * gammainc(half, half * size * size), axis=-1)
    return tail, -np.sum(mass * 2.0 * np.exp(log_density) * size, axis=-1) / factor[..., 0]
