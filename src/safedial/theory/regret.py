"""The paper's bounds on widths and regret, with every constant written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core.confidence import RADII
from safedial.core.estimate import Prediction
from safedial.core.spec import SafetySpec
from safedial.errors import require


def potential_bound(dim: int, rounds: Any, spec: SafetySpec) -> Any:
    """Σ_t min(1, width_t²) ≤ 2 ln det(Σ_T/λ) ≤ 2 d ln(1 + T L²/(dλ)), over informative rounds.

    The paper's lemma lacks λ and the minimum; without them it fails for small λ.
    """
    return 2.0 * dim * np.log1p(np.asarray(rounds, dtype=float) * spec.context_bound**2 / (dim * spec.ridge))


def regret_bound(dim: int, rounds: Any, spec: SafetySpec, *, radius: str = "paper") -> Any:
    """Theorem 2 with its constants, for HP-UCB on the event that both confidence sets hold (probability ≥ 1 − 2δ′).

        R(T) ≤ 2(1 + SL/τ)·max(β_r, β_c)·√(T · max(1, L²/λ) · potential_bound(T))

    From the proof: an uninformative round has reward_upper < 0, so the clairvoyant plays 0 as well and it costs
    nothing; an informative one costs at most 2β_r·width + (SL/τ)·2β_c·width; Cauchy–Schwarz sums the widths, and
    width² ≤ max(1, L²/λ)·min(1, width²), because width² ≤ L²/λ.
    """
    require(radius in RADII, "radius", radius, "must be one of " + ", ".join(RADII))
    sensor = spec.reward_sensor_noise, spec.cost_sensor_noise
    require(sensor == (0.0, 0.0), "sensor noise", sensor, "is not part of Theorem 2", "give a spec without it")
    horizon = np.asarray(rounds, dtype=float)
    potential = potential_bound(dim, horizon, spec)
    last = Prediction(0.0, 0.0, 0.0, spec.context_bound, potential / 2.0, horizon, dim)
    largest = np.maximum(RADII[radius](spec.reward_noise, last, spec), RADII[radius](spec.cost_noise, last, spec))
    stretch = max(1.0, spec.context_bound**2 / spec.ridge)
    price = 1.0 + spec.coefficient_bound * spec.context_bound / spec.threshold
    return 2.0 * price * largest * np.sqrt(horizon * stretch * potential)
