"""The parts of an HP-Shield certificate that depend on its base and its chooser."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.decision.units import rounded_down

if TYPE_CHECKING:
    from safedial.decision.decision import Decision

CHOSEN = {"request": "request", "target": "largest_reward", "sign": "start_only"}
"""What set the setting, by the chooser that gave less than the cap."""


def chosen(decision: Decision) -> str:
    """The chooser's reason, where it gave less than the cap."""
    seen = decision.prediction
    return CHOSEN[decision.rules.policy.options["chooser"]] if seen.setting < seen.safe else ""


def base_words(decision: Decision) -> str:
    """What is scaled."""
    seen, rules = decision.prediction, decision.rules
    if seen.fitted is not None:
        return "the learned setting"
    return "the proposed setting" if rules.policy.options["base"] == "proposal" else "the protocol's setting"


def scale_words(decision: Decision) -> str:
    """The scale that was counted, in words."""
    scale = decision.prediction.counted.scale
    if decision.prediction.most == -math.inf:
        return "the start"
    return (
        f"{rounded_down(scale)} times {base_words(decision)}"
        if scale < math.inf
        else (f"any multiple of {base_words(decision)}")
    )


def scales(decision: Decision) -> dict[str, Any]:
    """The scales and the base."""
    seen = decision.prediction
    limits = {"played": seen.setting / seen.base, "largest": seen.safe / seen.base}
    limits |= {"count_rule": seen.allowed, "climb_limit": seen.most}
    base = {"setting": seen.base, "protocol": seen.protocol}
    finite, base = (
        {name: value if math.isfinite(value) else None for name, value in each.items()} for each in (limits, base)
    )
    return {"scale": finite, "base": {**base, "fitted_at_round": seen.fitted}}


def origin(decision: Decision) -> str:
    """Where the base is from."""
    seen, options = decision.prediction, decision.rules.policy.options
    if seen.fitted is not None:
        return f" (learned from the first {seen.fitted} rounds, calibrated on those since)"
    base = options["base"]
    named = isinstance(base, str) and base != "proposal"
    return f" (feature {base})" if named else ""
