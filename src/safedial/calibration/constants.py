"""Proposals for S, L and κ, each with its reason. No data can prove such a constant."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from safedial.calibration.curve_families import Array
from safedial.calibration.fit import Data, Fit, Noise, covariance, residuals

CONFIDENCE = 0.95


class Proposal(NamedTuple):
    """A constant and its reason."""

    value: float
    reason: str


def propose_noise(name: str, fit: Fit, data: Data, noise: Noise, caution: float) -> Proposal:
    """κ: the larger of an upper bound on the residuals' deviation (χ², 95 %) and the largest residual divided by
    √(2 ln 2n), the typical size of the largest of n Gaussian residuals; times `caution`.
    """
    from scipy.special import chdtri

    left = residuals(fit, data, noise)
    free = max(len(left) - len(fit.coef) - len(fit.free), 1)
    deviation = math.sqrt(float(left @ left) / free)
    upper = deviation * math.sqrt(free / float(chdtri(free, CONFIDENCE)))
    tail = float(np.max(np.abs(left))) / math.sqrt(2.0 * math.log(2.0 * len(left)))
    value = round_up(caution * max(upper, tail))
    cause = "their largest one" if tail > upper else "their spread"
    kind = "per unit of intensity " if noise == "proportional" else ""
    return Proposal(
        value,
        f"{name} residuals {kind}have deviation {deviation:.3g}, at most {upper:.3g} (95 %); the largest is "
        f"{float(np.max(np.abs(left))):.3g}, as of noise with constant {tail:.3g}. Set by {cause}, times {caution:g}. "
        "No data bound it from above: if you know the range or the law of the noise, use that.",
    )


def propose_coefficient_bound(fits: dict[str, tuple[Fit, Data]], noise: Noise, caution: float) -> Proposal:
    """S: the largest norm in the 95 % ellipsoids of the coefficients, over the outcomes; times `caution`."""
    from scipy.special import chdtri

    sizes = {}
    for name, (fit, data) in fits.items():
        spread = float(np.linalg.eigvalsh(covariance(fit, data, noise))[-1])
        reach = math.sqrt(max(spread, 0.0) * float(chdtri(len(fit.coef), 1.0 - CONFIDENCE)))
        sizes[name] = (float(np.linalg.norm(fit.coef)), float(np.linalg.norm(fit.coef)) + reach)
    words = "; ".join(f"{name}: {norm:.3g}, at most {top:.3g} (95 %)" for name, (norm, top) in sizes.items())
    value = round_up(caution * max(top for _, top in sizes.values()))
    return Proposal(value, f"Norms of the fitted coefficients: {words}. The largest, times {caution:g}.")


def propose_context_bound(context: Array, caution: float) -> Proposal:
    """L: the norm of the longest context, with a margin; a longer context will be refused, never clipped."""
    longest = float(np.linalg.norm(context, axis=1).max())
    constant = bool(np.all(context == context[0]))
    margin = 1.0 if constant else caution
    words = f"The longest of {len(context)} contexts has norm {longest:.3g}" + (
        "" if constant else f", times {caution:g}"
    )
    return Proposal(round_up(margin * longest), f"{words}. A context beyond it will be refused.")


def round_up(value: float, digits: int = 2) -> float:
    """Round up to `digits` significant digits.

    >>> round_up(0.1234), round_up(30.0), round_up(1.001)
    (0.13, 30.0, 1.1)
    """
    size = 10.0 ** (math.floor(math.log10(max(value, 1e-12))) - digits + 1)
    return float(f"{math.ceil(value / size - 1e-9) * size:.{digits}g}")
