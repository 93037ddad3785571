"""The known ratio of variances of `hp_student`, in an agent or a study that may name its features."""

from __future__ import annotations

from typing import Any

from safedial.decision.units import Features
from safedial.errors import require
from safedial.policies.hp_student import check_ratio


def ratio_of(ratio: Any, dim: int, features: Features | None) -> Any:
    """The variance ratio as a function or a column; a feature's name or number stands for its raw value."""
    names = () if features is None else features.names
    if not isinstance(ratio, str):
        check_ratio(ratio, dim)
        if not (names and isinstance(ratio, int)):
            return ratio
        rule = "is the intercept, which is always 1"
        require(ratio < len(names), "noise_ratio", ratio, rule, "leave it out for noise of one size")
        ratio = names[ratio]
    require(ratio in names, "noise_ratio", ratio, "must be one of the features", ", ".join(names) or "there are none")
    place = names.index(ratio)
    center, scale = ((getattr(features, part) or ())[place] for part in ("center", "scale"))
    return lambda context: center + scale * context[..., place]
