"""A warning for dials whose lowest level may be out of reach."""

from __future__ import annotations

import warnings

from safedial.core.estimate import Prediction
from safedial.decision.own_functions import longest_context
from safedial.decision.rules import Rules
from safedial.policies.fixed import fixed


def warn_where_no_level_is_reached(rules: Rules) -> None:
    """Warn if levels may keep an agent at zero for ever: without a dose there is nothing to learn from."""
    if not rules.dial.levels:
        return
    longest = longest_context(rules.dim, rules.spec.context_bound)
    first = Prediction(0.0, 0.0, 0.0, rules.spec.context_bound, 0.0, 0.0, rules.dim, context=longest)
    safe = fixed().decide(first, rules.spec, round=1.0, coin=0.5).safe.intensity
    lowest = next(level for level in rules.dial.levels if level > rules.dial.low or level == rules.dial.levels[-1])
    needed = float(rules.dose.cost.effect(rules.dial.action(lowest)))
    if safe < needed:
        warnings.warn(
            f"the lowest level, {rules.dial.text(lowest)}, has intensity {needed:.3g}; at contexts of norm L the first "
            f"safe intensity is {safe:.3g}. Such rounds get no dose and teach nothing; unless shorter contexts come, "
            "the agent stays at zero. A lower level, a higher threshold or less noise would help",
            UserWarning,
            stacklevel=5,
        )
