"""Fixed: the first-round action in every round; the reward of safety without learning."""

from __future__ import annotations

from typing import Any

from safedial.core.action import Choice, choose
from safedial.core.confidence import Bounds
from safedial.core.estimate import Prediction
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.policies.policy import Policy


def fixed(*, clip: bool = True) -> Policy:
    """z = min(1, τ/(S‖x‖ + noise_margin)) in every round, whatever is observed (eq. initialSafeAction).

    Args:
        clip: use S‖x‖, which always bounds the cost; False: the paper's S·L.
    """

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        cost_upper = spec.coefficient_bound * (prediction.norm if clip else 0.0 * prediction.norm + spec.context_bound)
        safe = safe_set(cost_upper, spec, round=round, baseline_cost=baseline_cost, context=prediction.context)
        return choose(0.0, safe, Bounds(cost_upper, cost_upper, 0.0, 0.0, False))

    return Policy("fixed", "Fixed action", "certified", decide, {"clip": clip}, learns=False)
