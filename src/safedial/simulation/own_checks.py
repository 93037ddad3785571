"""Checks of what a policy or a world of the user's own gives: types and shapes, in the first round or once a chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core.action import Choice
from safedial.core.safe_set import SafeSet
from safedial.errors import require
from safedial.policies import Policy
from safedial.worlds.world import Array, World, fits


def check_choice(policy: Policy, choice: Any, shape: tuple[int, ...]) -> None:
    """Refuse what is no choice for arrays of this shape, (specs, seeds)."""
    given = type(choice).__name__
    proper = isinstance(choice, Choice) and isinstance(choice.safe, SafeSet)
    rule = f"has a `decide` that returned a {given}, and it must return a Choice with a SafeSet"
    require(proper, "policy", policy.name, rule, "make it with safedial.core.action.choose")
    found = np.shape(choice.intensity)
    rule = (
        f"has a `decide` that gave intensities of shape {found}, and there must be one for each (spec, seed): {shape}"
    )
    require(fits(found, shape), "policy", policy.name, rule, "compute them from the prediction's arrays")


def checked_means(world: World, means: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The two means of a world at contexts (n, seeds, d), each of this shape, (n, seeds). Those of this package, and of
    worlds with several costs, are as they are.
    """
    if not world.is_own or world.several_costs:
        return means
    two = isinstance(means, tuple | list | np.ndarray) and len(means) == 2
    found = [np.shape(each) for each in means] if two else []
    gave = f"shapes {found}" if two else f"a {type(means).__name__}"
    rule = f"has `means` that gave {gave}, and must give two arrays, reward and cost, of shape (n, seeds) = {shape}"
    way_out = "compute both from the contexts, (n, seeds, d)"
    require(two and all(fits(each, shape) for each in found), "world", world.name, rule, way_out)
    reward, cost = (np.broadcast_to(each, shape) for each in means)
    return reward, cost
