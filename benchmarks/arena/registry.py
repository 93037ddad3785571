"""The worlds of the arena by name, and one's own by a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from benchmarks.arena import clinic, closed_loop_cell, simulated, warfarin
from benchmarks.arena.arena_world import ArenaWorld
from safedial.errors import require
from safedial.model.own_names import imported

WORLDS: dict[str, Callable[..., ArenaWorld]] = {
    "paper": simulated.paper,
    "drift": simulated.drift,
    "flat-then-steep": simulated.flat_then_steep,
    "vancomycin": clinic.ward,
    "insulin": clinic.table,
    "battery": closed_loop_cell.battery,
    "warfarin": warfarin.warfarin,
}
PRINTED = "paper, as printed"
NEEDS_DATA = ("warfarin",)


def make_world(name: str, risk: float, data: str | None = None) -> ArenaWorld:
    """The world with this name, or your own: "module:factory" or "path.py:factory", called with the risk.

    >>> make_world("paper", 0.05).dim
    10
    """
    if name in NEEDS_DATA:
        words = f"is needed for {name}: the data are not part of this package"
        require(data, "--data", data, words, "name the folder that holds them, or leave this world out")
        return WORLDS[name](risk, data=data)
    if name == PRINTED:
        return simulated.printed(risk)
    if name in WORLDS:
        return WORLDS[name](risk)
    factory = _own(name)
    require(_takes_one(factory), "--world", name, "the factory must take the risk", "write def factory(risk): ...")
    made = factory(risk)
    require(isinstance(made, ArenaWorld), "--world", name, "did not make an ArenaWorld", "see docs/arena.md")
    return made


def _takes_one(factory: Any) -> bool:
    """Whether it can be called with the risk alone; what has no signature, such as a built-in, is tried."""
    try:
        inspect.signature(factory).bind(0.05)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _own(name: str) -> Callable[[float], Any]:
    way_out = 'write "module:factory" or "path.py:factory", or one of ' + ", ".join(WORLDS)
    require(":" in name, "--world", name, "is no world of the arena", way_out)
    return imported(name, "--world", way_out)
