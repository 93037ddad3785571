"""HP-UCB: Algorithm 1 of the paper, optimistic in reward and pessimistic in cost."""

from __future__ import annotations

from typing import Any

from safedial.core.action import Choice, choose
from safedial.core.confidence import bound, resolve_clip
from safedial.core.estimate import Prediction
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.policies.policy import Policy


def hp_ucb(*, radius: str = "mixture", clip: bool | None = None) -> Policy:
    """High Probability Constrained UCB.

        cost_upper = ⟨x,μ̂⟩ + β_c·width          z_safe = min(1, τ/(cost_upper + noise_margin)), or 1 if that sum ≤ 0
        reward_upper = ⟨x,θ̂⟩ + β_r·width        z = z_safe if reward_upper ≥ 0 else 0

    Args:
        radius: "mixture" (default), "self-normalised" (tighter, with a larger ridge), "noise-adaptive" (for a κ that
            may be far too large), or "paper"; `core.confidence` derives them, docs/choosing.md advises.
        clip: cut cost_upper at S‖x‖, which always holds. Default: True, but False with the paper's radius.

    `hp_ucb(radius="paper")` is Algorithm 1 to the letter, round one with S·L included. The other radii and the clip
    are ours: the same promise, larger doses.

    Reference: Dragazis and Pacchiano, "Safety by Design", Algorithm 1.
    """
    clip = resolve_clip(radius, clip)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round, baseline_cost, noise=bounds.noise, context=bounds.context)
        return choose(bounds.reward_upper, safe, bounds)

    return Policy("hp_ucb", "HP-UCB", "certified", decide, {"radius": radius, "clip": clip})
