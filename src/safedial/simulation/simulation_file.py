"""A simulation's save file: its settings as plain values, its results as arrays."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from safedial.errors import require
from safedial.io import read_archive, write_archive
from safedial.policies import as_policy
from safedial.rounds.rules import read_parts, saved_policy, write_parts
from safedial.simulation.worlds import world_from_dict
from safedial.version import __version__

if TYPE_CHECKING:
    from safedial.simulation.run import Simulation

FORM = "safedial-simulation"
PARTS = ("policy", "world", "spec", "dose", "stated")


def save(run: Simulation, path: str | os.PathLike[str]) -> None:
    """Write a whole file or nothing."""
    kept = {each.name: getattr(run, each.name) for each in fields(run)}
    arrays = {name: value for name, value in kept.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in kept.items() if name not in arrays and name not in PARTS}
    header = {"safedial_version": __version__, **_written(run), "rest": rest}
    write_archive(path, header, arrays, form=FORM)


def read(path: str | os.PathLike[str], given: dict[str, Any]) -> dict[str, Any]:
    """The fields of the simulation; `given` are parts of the user's own, which the file does not hold."""
    header, arrays = read_archive(path, form=FORM)
    parts = {name: given.get(name) for name in PARTS}
    known = parts["policy"]
    parts["policy"] = saved_policy(header["policy"], None if known is None else as_policy(known))
    for key in ("world", "spec", "dose", "stated"):
        if header[key] is None and parts[key] is None:
            continue
        saved, now = header[key], parts[key]
        if now is None:
            own = key == "world" and "name" in saved
            way_out = f"give it again: Simulation.load(path, {key}=...)"
            require(not own, key, saved.get("name"), "is your own, which the file does not hold", way_out)
            part = "spec" if key == "stated" else key
            parts[key] = world_from_dict(saved) if key == "world" else read_parts({part: saved})[part]
        else:
            same = _written_part(key, now) == saved
            require(same, key, now, "is not the one that was saved", "give the same one")
    return parts | header["rest"] | arrays


def _written(run: Simulation) -> dict[str, Any]:
    return {name: _written_part(name, getattr(run, name)) for name in PARTS}


def _written_part(name: str, part: Any) -> Any:
    return write_parts({name: part})[name] if name == "policy" else part and part.to_dict()
