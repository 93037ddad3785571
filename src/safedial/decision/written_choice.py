"""A choice in plain floats, as plain values and back; an infinite bound (nothing is known yet) is null in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from safedial.core.action import Choice
from safedial.core.confidence import Bounds
from safedial.core.safe_set import SafeSet


def plain_choice(choice: Choice) -> Choice:
    """The choice in plain floats, whatever numbers the policy used."""
    bounds, safe = choice.bounds, choice.safe
    radii = float(bounds.reward_radius), float(bounds.cost_radius)
    noise = None if bounds.noise is None else float(bounds.noise)
    return Choice(
        float(choice.intensity),
        SafeSet(float(safe.intensity), bool(safe.certified)),
        Bounds(float(bounds.reward_upper), float(bounds.cost_upper), *radii, bool(bounds.refuted), noise),
        float(choice.reward_index),
        exploring=bool(choice.exploring),
    )


def written_choice(choice: Choice) -> dict[str, Any]:
    bounds, safe = choice.bounds, choice.safe
    return {
        "certified": bool(safe.certified),
        "cost_radius": float(bounds.cost_radius),
        "cost_upper": float(bounds.cost_upper),
        "intensity": float(choice.intensity),
        "refuted": bool(bounds.refuted),
        "reward_index": float(choice.reward_index),
        "reward_radius": float(bounds.reward_radius),
        "reward_upper": float(bounds.reward_upper),
        "safe_intensity": float(safe.intensity),
        **({} if bounds.noise is None else {"noise": float(bounds.noise)}),
    }


def read_choice(said: Mapping[str, Any]) -> Choice:
    """The inverse of `written_choice`."""
    bounds = Bounds(
        _bound(said["reward_upper"]),
        _bound(said["cost_upper"]),
        said["reward_radius"],
        said["cost_radius"],
        said["refuted"],
        _bound(said["noise"]) if "noise" in said else None,
    )
    return Choice(said["intensity"], SafeSet(said["safe_intensity"], said["certified"]), bounds, said["reward_index"])


def _bound(value: float | None) -> float:
    return math.inf if value is None else value
