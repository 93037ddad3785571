"""Fits one curve to one outcome, with the coefficients profiled out.

    y_t = g_p(α_t)⟨x_t, μ⟩ + noise       noise of deviation κ·g_p(α_t) ("proportional", the paper's) or σ ("constant")

For a fixed shape p, μ is the weighted least-squares fit and the deviation is the root mean square of its residuals. The
shape minimises the Gaussian negative log-likelihood per row with the Jacobian of dividing by g if proportional:

    ℓ(p) = ln κ̂_p + mean ln g_p(α_t)        or        ℓ(p) = ln σ̂_p
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from safedial.calibration.curve_families import Array, Family
from safedial.core.dose import DoseCurve

Noise = Literal["proportional", "constant"]
SMALLEST = 1e-12


class Data(NamedTuple):
    """Rows with a dose: contexts (n, d), actions and one outcome."""

    context: Array
    action: Array
    outcome: Array

    def rows(self, chosen: Array) -> Data:
        return Data(self.context[chosen], self.action[chosen], self.outcome[chosen])


class Fit(NamedTuple):
    """A fitted curve: its free numbers, the coefficients, the noise's deviation and ℓ."""

    family: str
    free: Array
    curve: DoseCurve
    coef: Array
    deviation: float
    loss: float


def fit_curve(family: Family, data: Data, noise: Noise, start: Array | None = None) -> Fit:
    """The curve of the family that fits best; `start` replaces the family's own starts."""
    from scipy.optimize import minimize

    starts = [start] if start is not None else [np.array(each) for each in family.starts]
    if family.size == 0:
        return _profile(family, np.empty(0), data, noise)

    def loss(free: Array) -> float:
        return _profile(family, free, data, noise).loss

    options = {"eps": 1e-5, "ftol": 1e-9, "maxiter": 60}
    found = [minimize(loss, each, method="L-BFGS-B", options=options) for each in starts]
    return _profile(family, min(found, key=lambda each: each.fun).x, data, noise)


def scores(fit: Fit, data: Data, noise: Noise) -> Array:
    """ℓ of each row under a fit made from other rows: half a squared residual, and the logarithms."""
    rows, outcome, logs = _scaled(fit.curve, data, noise)
    return 0.5 * ((outcome - rows @ fit.coef) / fit.deviation) ** 2 + np.log(fit.deviation) + logs


def residuals(fit: Fit, data: Data, noise: Noise) -> Array:
    rows, outcome, _ = _scaled(fit.curve, data, noise)
    return outcome - rows @ fit.coef


def covariance(fit: Fit, data: Data, noise: Noise) -> Array:
    """The covariance of the coefficients, for the fitted curve."""
    rows, _, _ = _scaled(fit.curve, data, noise)
    return fit.deviation**2 * np.linalg.pinv(rows.T @ rows)


def _scaled(curve: DoseCurve, data: Data, noise: Noise) -> tuple[Array, Array, Array]:
    """Rows and outcomes scaled to noise of equal deviation, and what the scaling adds to ℓ."""
    intensity = np.maximum(np.asarray(curve.effect(data.action), dtype=float), SMALLEST)
    if noise == "constant":
        return intensity[:, None] * data.context, data.outcome, np.zeros(len(intensity))
    return data.context, data.outcome / intensity, np.log(intensity)


def _profile(family: Family, free: Array, data: Data, noise: Noise) -> Fit:
    curve = family.make(free)
    rows, outcome, logs = _scaled(curve, data, noise)
    gram = rows.T @ rows
    gram[np.diag_indices_from(gram)] += 1e-10 * max(float(np.trace(gram)), SMALLEST)
    coef = np.linalg.solve(gram, rows.T @ outcome)
    left = outcome - rows @ coef
    deviation = max(float(np.sqrt(left @ left / len(left))), SMALLEST)
    return Fit(family.name, free, curve, coef, deviation, float(np.log(deviation) + logs.mean()))
