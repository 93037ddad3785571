"""What a risk means in units of the noise."""

from __future__ import annotations

from typing import Any

from safedial.core.namespace import namespace, normal_quantile


def log_inverse(risk: Any) -> Any:
    """ln(1/risk)."""
    return -namespace(risk).log(risk)


def tail(risk: Any, margin: str = "subgaussian") -> Any:
    """q, in units of κ, that noise exceeds with probability at most `risk`: √(2 ln 1/δ), or Φ⁻¹(1−δ) if Gaussian.

    >>> [f"{tail(0.01, margin):.4f}" for margin in ("subgaussian", "gaussian")]
    ['3.0349', '2.3263']
    """
    if margin == "gaussian":
        quantile = -normal_quantile(risk)
        return namespace(quantile).maximum(quantile, 0.0 * quantile)
    return (2.0 * log_inverse(risk)) ** 0.5
