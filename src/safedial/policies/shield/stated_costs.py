"""The costs that HP-Shield limits, as a spec and the policy's options state them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from safedial.core.spec import SafetySpec
from safedial.core.tolerated import Cost
from safedial.errors import require

ONE = "cost"
"""The name of a cost that has none."""


def stated_costs(spec: SafetySpec, options: Mapping[str, Any], *, baseline_cost: float = 0.0) -> dict[str, Cost]:
    """The limits on costs, by name: the spec's, or one, named "cost", from its threshold and the policy's options."""
    growth, direction = options["growth"], options["direction"]
    if spec.costs is None:
        require(growth is not None, "growth", growth, "is missing", "state a bracket, for example additive from 0 to 3")
        one = np.size(spec.threshold) == 1 and np.size(spec.violation_risk) == 1
        require(one, "threshold", spec.threshold, "must be one number, as must violation_risk", "sweep in a loop")
        threshold = float(np.squeeze(spec.threshold)) - baseline_cost
        cost = Cost(threshold=threshold, growth=growth, direction=direction, on=spec.threshold_on)
        told = growth.name != "spread" or cost.exceeded(0.0) != cost.exceeded(1.0)
        require(told, "threshold", cost.threshold, "must tell 0 from 1 where costs are 0 or 1", "take 0.5")
        return {ONE: cost}
    for name, given, plain in (("growth", growth, None), ("direction", direction, "above")):
        require(given == plain, name, given, "cannot be combined with the spec's costs", "state it in each Cost")
    zero_one = [name for name, cost in spec.costs.items() if cost.growth.name == "spread"]
    rule = "has a spread bracket, for which there is no proof among several costs"
    require(not zero_one, "costs", zero_one, rule, "report one cost that is 1 where any of them is")
    return dict(spec.costs)
