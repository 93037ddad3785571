"""Functions of a user's own (a dose curve, a noise scale) beside a save file, which cannot hold them.

The file holds their names and their values on `GRID`. On load they are given again, and another function of the same
name is found out by its values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.curve import BUILT_IN, GRID
from safedial.core.dose import as_dose
from safedial.core.scale import NoiseScale
from safedial.decision.rules import Rules
from safedial.errors import require

NEAR = 1e-12
"""How far apart values may be, relatively: another machine rounds otherwise."""


def longest_context(dim: int, bound: float) -> NDArray[np.float64]:
    """A context of norm L, its parts all alike: where a scale is looked at before any context is known."""
    return np.full(dim, bound / math.sqrt(dim))


def own_values(rules: Rules) -> dict[str, list[float]]:
    """By name, the values on `GRID` of each function that is the user's own."""
    found = {target: curve.heights() for target, curve in rules.dose._asdict().items() if curve.is_own}
    scale = rules.spec.noise_scale
    if scale is not None and scale.is_own:
        found["noise_scale"] = _heights(scale, rules.dim, rules.spec.context_bound)
    return found


def with_own_functions(fields: Mapping[str, Any], *, dose: Any, noise_scale: NoiseScale | None) -> dict[str, Any]:
    """A saved form of the rules with the functions that the user gives again, each compared with what was saved."""
    return {**fields, "dose": _dose(fields, dose), "spec": _spec(fields, noise_scale)}


def _dose(fields: Mapping[str, Any], given: Any) -> Any:
    """The saved curves; the user's own are those given."""
    saved = fields["dose"]
    own = [target for target in ("reward", "cost") if saved[target]["curve"] not in BUILT_IN]
    if given is None:
        names = [saved[target]["curve"] for target in own]
        rule = "is your own curve, which the file does not hold"
        require(not own, "dose", names, rule, "give it again: Agent.load(path, dose=...)")
        return saved
    dose = as_dose(given)
    for target, curve in dose._asdict().items():
        written = json.loads(json.dumps(curve.to_dict()))
        require(written == saved[target], "dose", written, f"must be the saved one, {saved[target]}")
        if target in own:
            _check_values(fields, target, curve.heights())
    return dose


def _spec(fields: Mapping[str, Any], given: NoiseScale | None) -> dict[str, Any]:
    """The saved spec; a noise scale of the user's own is the one given."""
    spec = fields["spec"]
    saved = spec.get("noise_scale")
    if saved is None or saved["scale"] != "own_scale":
        require(given is None, "noise_scale", given, "was not your own when the agent was saved", "leave it out")
        return spec
    rule, way_out = "is your own, which the file does not hold", "give it again: Agent.load(path, noise_scale=...)"
    require(given is not None, "noise_scale", saved, rule, way_out)
    own = isinstance(given, NoiseScale) and given.to_dict() == saved
    require(own, "noise_scale", given, f"must be the saved one, {saved}")
    _check_values(fields, "noise_scale", _heights(given, fields["dim"], spec["context_bound"]))
    return {**spec, "noise_scale": given}


def _heights(scale: Any, dim: int, bound: float) -> list[float]:
    context = longest_context(dim, bound)
    return [float(scale.of(intensity, context)) for intensity in GRID]


def _check_values(fields: Mapping[str, Any], name: str, now: list[float]) -> None:
    """Refuse another function of the saved name. (Early files hold no values to compare with.)"""
    then = fields.get("own", {}).get(name, now)
    off = max(abs(here - there) / (1.0 + abs(there)) for here, there in zip(now, then, strict=True))
    require(off <= NEAR, name, off, "is another function than the saved one, by so much")
