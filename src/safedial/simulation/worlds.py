"""Simulated worlds: a `World` draws its truth and its rounds, and determines the outcome of each setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safedial.errors import InvalidInput, require
from safedial.model.own_names import made_by
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.world import World


def world_from_dict(fields: Mapping[str, Any]) -> World:
    """The inverse of `World.to_dict`: your own world by its name, "module:Class" or "module:factory"; a non-linear one
    by its kind, a dose-response one by its curve.

    >>> world_from_dict({"dim": 3}), world_from_dict({"kind": "finite", "dim": 2}).name
    (LinearWorld(dim=3, noise='gaussian', contexts='iid', baseline_cost=0.0, mean='linear'), 'NonlinearWorld')
    """
    given = dict(fields)
    if "name" in given:
        return made_by(str(given.pop("name")), given, "[world] name", World, "World")
    kind: Any = NonlinearWorld if "kind" in given else DoseResponseWorld if "curve" in given else LinearWorld
    try:
        return kind(**given)
    except TypeError as error:
        raise InvalidInput(f"[world] {given}: {error}") from error


def as_world(given: World | str | Mapping[str, Any]) -> World:
    """A world, given itself, by its fields, or your own by its name, "module:factory"."""
    if isinstance(given, (str, Mapping)):
        return world_from_dict({"name": given} if isinstance(given, str) else given)
    require(isinstance(given, World), "world", given, "must be a world of safedial.simulation, or your own")
    return given
