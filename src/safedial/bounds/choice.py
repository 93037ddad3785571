"""From bounds and the safe set to a choice (Algorithm 1, line 7).

Reward is z·r(x), increasing or decreasing in z by the sign of r. So the best z in [0, z_safe] is z_safe if the
reward index is ≥ 0. Otherwise it is 0, or the probe: a small share of z_safe, which teaches as much as a full dose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from safedial.bounds.confidence import Bounds
from safedial.bounds.safe_set import SafeSet
from safedial.errors import require
from safedial.model.namespace import namespace, where

ROUNDING = 1e-6
"""How far rounding, also in single precision, may move an intensity out of [0, 1]."""


class Choice(NamedTuple):
    """The choice in a round, with its bounds. `learn` is False if the policy ignores the outcome, `exploring` is True
    if a coin chose, `ready` is False where nothing is known yet, and `limit` is a key of `LIMITS` where something of
    the policy's own set the largest intensity. `settings` has (chosen, largest) of a policy that speaks settings.
    """

    intensity: Any
    safe: SafeSet
    bounds: Bounds
    reward_index: Any
    learn: Any = True
    exploring: Any = False
    ready: Any = True
    limit: str = ""
    settings: Any = None


def choose(reward_index: Any, safe: SafeSet, bounds: Bounds, *, probe: Any = 0.0, least_probe: Any = None) -> Choice:
    """z_safe if the reward index is ≥ 0, else `probe`·z_safe but at least `least_probe`; never above z_safe.

    A probe of 0 is no probe, whatever `least_probe` says.

    >>> nothing = Bounds(0.0, 0.0, 0.0, 0.0, False)
    >>> [choose(index, SafeSet(0.4, True), nothing, probe=0.5).intensity for index in (0.1, -0.1)]
    [0.4, 0.2]
    """
    low = probe * safe.intensity
    if least_probe is not None:
        xp = namespace(reward_index, safe.intensity)
        low = xp.maximum(low, xp.where(probe > 0.0, xp.minimum(least_probe, safe.intensity), low))
    return Choice(where(reward_index >= 0.0, safe.intensity, low), safe, bounds, reward_index)


def check_intensities(policy: str, lowest: Any, highest: Any) -> None:
    """Refuse intensities outside [0, 1], and those that are not numbers, by the lowest and highest that a policy chose.

    >>> check_intensities("mine", 0.2, 1.5)
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: intensity of policy 'mine' = 1.5: must lie in [0, 1]; let `choose` return ...
    """
    lowest, highest = float(lowest), float(highest)
    inside = lowest >= -ROUNDING and highest <= 1.0 + ROUNDING
    outside = highest if highest > 1.0 else lowest
    way_out = "let `choose` return intensities from 0 to the bound's `largest`"
    require(inside, f"intensity of policy {policy!r}", outside, "must lie in [0, 1]", way_out)
