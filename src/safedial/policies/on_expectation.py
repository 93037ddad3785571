"""On-Expectation: HP-UCB without the noise margin, the baseline of the paper's Table 1."""

from __future__ import annotations

from typing import Any

from safedial.core.action import Choice, choose
from safedial.core.confidence import bound, resolve_clip
from safedial.core.estimate import Prediction
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.policies.policy import Policy


def on_expectation(*, radius: str = "mixture", clip: bool | None = None) -> Policy:
    """Keep the *expected* cost below τ, without a promise on the realized cost.

        z_safe = min(1, τ/cost_upper), or 1 if cost_upper ≤ 0;      z = z_safe if reward_upper ≥ 0 else 0

    This is what the paper's baseline amounts to in its own model. It is not the algorithm of Pacchiano et al. (2024),
    which chooses among finitely many arms with a known safe one and scales its optimism up by a factor that the cost's
    slack dictates; docs/design.md says how the two differ.
    """
    clip = resolve_clip(radius, clip)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round=round, baseline_cost=baseline_cost, on_expectation=True)
        return choose(bounds.reward_upper, safe, bounds)

    return Policy("on_expectation", "On-Expectation", "expected", decide, {"radius": radius, "clip": clip})
