"""Which curves the data allow if the context guided the doses.

`fit.py` assumes a mean that is linear in the context and noise proportional to the dose. If doses are random, errors in
either hardly affect the curve; if the context guides them, both bend it. Here neither assumption is needed:

    y = g(α)^s·c(x) + noise       c(x) any combination of the context, its squares and products, and the square and the
                                  cube of p(x), the prediction of ln g(α) from these

For every s, with ρ(·) the residual of least squares on the terms of c multiplied by g^s, the score of s

    Z(s) = Σ ρ(y)·ρ(g^s ln g) / √Σ (ρ(y)·ρ(g^s ln g))²

is about standard normal if g^s is the true curve, whatever the size of the noise at a dose or context. The data allow
the s with |Z(s)| ≤ z. The terms with p(x), which represents the rule behind the doses, remove the effect of that rule
even if c has another form (as in E-estimation: Robins, Mark and Newey, Biometrics 1992). The method assumes that the
context holds every reason behind a dose, which no data can show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from safedial.calibration.choose import GRID, Chosen, departures
from safedial.calibration.curve_families import Array, Family
from safedial.calibration.fit import Data, Noise, fit_curve
from safedial.core.dose import DoseCurve, identity, power
from safedial.diagnostics.slopes import basis, context_terms

EXPONENTS = np.geomspace(0.1, 10.0, 201)
"""The values of s to try. If the data allow the first or the last, they set no bound on that side."""

BAND, RANGE = 1.645, 1.960
"""z of the 90 % band and of the 95 % range."""


class Allowed(NamedTuple):
    """The exponents s for which g^s agrees with the data: the best, and the ends of the 90 % and of the 95 % range."""

    best: float
    band: tuple[float, float]
    range: tuple[float, float]


def allowed_exponents(curve: DoseCurve, data: Data) -> Allowed:
    """The powers of a curve that the data allow, adjusted for the context.

    >>> rng = np.random.default_rng(0)
    >>> weight = rng.uniform(-0.5, 0.5, 400)
    >>> action = np.clip(0.5 + 0.8 * weight + 0.1 * rng.normal(size=400), 0.05, 1.0)
    >>> cost = action * np.exp(-2.0 * weight) * np.exp(0.2 * rng.normal(size=400))
    >>> found = allowed_exponents(identity(), Data(weight[:, None], action, cost))
    >>> bool(found.range[0] < 1.0 < found.range[1])
    True
    """
    heights = np.log(np.asarray(curve.effect(data.action), dtype=float))
    terms = _terms(data.context, heights)
    sizes = np.abs([_score(s, heights, terms, data.outcome) for s in EXPONENTS])
    best = int(np.argmin(sizes))
    return Allowed(float(EXPONENTS[best]), _around(best, sizes <= BAND), _around(best, sizes <= RANGE))


def _score(exponent: float, heights: Array, terms: Array, outcome: Array) -> float:
    """Z(s)."""
    intensity = np.exp(exponent * heights)
    turn, _ = np.linalg.qr(intensity[:, None] * terms)
    slope = intensity * heights
    products = (outcome - turn @ (turn.T @ outcome)) * (slope - turn @ (turn.T @ slope))
    size = float(np.sqrt(products @ products))
    free = max(len(outcome) - terms.shape[1], 1) / len(outcome)
    return float(np.sqrt(free) * products.sum() / size) if size > 0.0 else 0.0


def _terms(context: Array, heights: Array) -> Array:
    """A basis of the functions that c may be."""
    terms = context_terms(context)
    rule = terms @ (terms.T @ heights)
    rule = (rule - rule.mean()) / max(float(rule.std()), 1e-300)
    return basis(np.column_stack([terms, rule**2, rule**3]))


def _around(best: int, allowed: Array) -> tuple[float, float]:
    """The ends of the range of allowed exponents around the best one; at least its neighbours."""
    below, above = np.flatnonzero(~allowed[:best]), np.flatnonzero(~allowed[best + 1 :])
    first = min(below[-1] + 1 if below.size else 0, max(best - 1, 0))
    last = max(best + above[0] if above.size else len(allowed) - 1, min(best + 1, len(allowed) - 1))
    return float(EXPONENTS[first]), float(EXPONENTS[last])


def choose_adjusted(data: Data, *, noise: Noise) -> tuple[Chosen, Allowed]:
    """The identity if the data allow it, else the power curve that fits best; and the powers that the data allow."""
    allowed = allowed_exponents(identity(), data)
    straight = allowed.range[0] <= 1.0 <= allowed.range[1]
    curve = identity() if straight else power(float(f"{allowed.best:.4g}"))
    fit = fit_curve(Family(curve.name, 0, lambda _: curve, ((),)), data, noise)
    heights = np.asarray(fit.curve.effect(GRID))
    alone = Chosen(fit=fit, table={}, grid=GRID, low=heights, high=heights, error=0.0, rivals=())
    return widened(alone, data)[0], allowed


def widened(chosen: Chosen, data: Data) -> tuple[Chosen, Allowed]:
    """A curve with the band and the error of its allowed powers; and the powers that the data allow."""
    curve = chosen.fit.curve
    allowed = allowed_exponents(curve, data)
    heights = np.asarray(curve.effect(GRID), dtype=float)
    ends = [lambda action, s=end: np.asarray(curve.effect(action)) ** s for end in allowed.range]
    made = replace(
        chosen,
        low=np.minimum(chosen.low, heights ** allowed.band[1]),
        high=np.maximum(chosen.high, heights ** allowed.band[0]),
        error=max([chosen.error, *departures(chosen.fit, ends, data.action)]),
    )
    return made, allowed
