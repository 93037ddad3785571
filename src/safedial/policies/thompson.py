"""Thompson: samples the reward; the safe set is HP-UCB's."""

from __future__ import annotations

from typing import Any

from safedial.core.action import Choice, choose
from safedial.core.confidence import bound, resolve_clip
from safedial.core.estimate import Prediction
from safedial.core.namespace import normal_quantile
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.errors import is_number, require
from safedial.policies.policy import Policy


def thompson(*, radius: str = "mixture", clip: bool | None = None, scale: float = 1.0) -> Policy:
    """Sample θ̃ ~ N(θ̂, (scale·κ_r)² Σ⁻¹) and play z_safe if ⟨x,θ̃⟩ ≥ 0, else 0.

    Only ⟨x,θ̃⟩ matters, and it is N(⟨x,θ̂⟩, (scale·κ_r·width)²): one normal number per round, Φ⁻¹(coin), instead of a
    d-dimensional draw. The cost side is HP-UCB's, and so is the promise; the frequentist regret at scale 1 is not
    proved here.

    Args:
        radius, clip: for the cost's bound, as for `hp_ucb`.
        scale: how widely to sample, in units of the reward's noise.
    """
    clip = resolve_clip(radius, clip)
    require(is_number(scale) and 0.0 <= scale < float("inf"), "scale", scale, "must be a finite number >= 0")

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round, baseline_cost, noise=bounds.noise, context=bounds.context)
        sampled = prediction.reward + scale * spec.reward_noise * prediction.width * normal_quantile(coin)
        return choose(sampled, safe, bounds)

    return Policy(
        "thompson", "Thompson", "certified", decide, {"radius": radius, "clip": clip, "scale": scale}, randomised=True
    )
