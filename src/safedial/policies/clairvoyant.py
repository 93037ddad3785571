"""Clairvoyant: the optimal feasible action given θ* and μ*; regret is measured against it."""

from __future__ import annotations

from typing import Any

from safedial.core.action import Choice, choose
from safedial.core.binary import binary_safe_set
from safedial.core.confidence import Bounds
from safedial.core.estimate import Prediction
from safedial.core.margin import subgaussian_spec
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.policies.policy import Policy


def clairvoyant(*, binary_cost: bool = False) -> Policy:
    """α*_t of the paper: the best action in the true feasible set (eq. setOfFeasibleDosages).

    The same rule with width 0 and the true coefficients. It keeps the sub-Gaussian noise margin, whatever the spec's,
    because knowing the means does not reveal the noise.

    Args:
        binary_cost: the cost is 0 or 1, and the known quantity is its log-odds at full intensity.
    """

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        if binary_cost:
            safe = binary_safe_set(prediction.cost, spec, round=round)
        else:
            plain, context = subgaussian_spec(spec), prediction.context
            safe = safe_set(prediction.cost, plain, round=round, baseline_cost=baseline_cost, context=context)
        bounds = Bounds(prediction.reward, prediction.cost, 0.0, 0.0, False)
        return choose(prediction.reward, safe, bounds)

    options = {"binary_cost": binary_cost}
    told = Policy("clairvoyant", "Clairvoyant", "certified", decide, options, knows_truth=True, learns=False)
    return told._replace(binary_cost=binary_cost)
