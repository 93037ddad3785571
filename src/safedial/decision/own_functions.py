"""The user's own functions (a dose curve, a noise scale), which a save file cannot hold.

The file holds their names and their values on `GRID`. On loading the user gives them again, and the values reveal a
different function of the same name.
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
"""How far values may differ, relatively: another machine rounds differently."""


def longest_context(dim: int, bound: float) -> NDArray[np.float64]:
    """A context of norm L with equal parts, to check a noise scale before any context is known."""
    return np.full(dim, bound / math.sqrt(dim))


def own_values(rules: Rules) -> dict[str, list[float]]:
    """The values on `GRID` of each of the user's own functions, by name."""
    found = {target: curve.heights() for target, curve in rules.dose._asdict().items() if curve.is_own}
    scale = rules.spec.noise_scale
    if scale is not None and scale.is_own:
        found["noise_scale"] = _heights(scale, rules.dim, rules.spec.context_bound)
    return found


def with_own_functions(fields: Mapping[str, Any], *, dose: Any, noise_scale: NoiseScale | None) -> dict[str, Any]:
    """Saved rules with the functions that the user gives again, each compared with the saved one."""
    return {**fields, "dose": _dose(fields, dose), "spec": _spec(fields, noise_scale)}


def _dose(fields: Mapping[str, Any], given: Any) -> Any:
    """The saved curves, or the given ones if they are the user's own."""
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
    """The saved spec, with the given noise scale if it is the user's own."""
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
    """Refuse a different function of the same name."""
    then = fields["own"][name]
    off = max(abs(here - there) / (1.0 + abs(there)) for here, there in zip(now, then, strict=True))
    require(
        off <= NEAR, name, off, "is the distance of this function from the saved one, which must be the same function"
    )
