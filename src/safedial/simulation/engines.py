"""Which engine plays the rounds of a simulation."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from safedial.core.spec import SafetySpec
from safedial.core.spec_grid import check_grids
from safedial.errors import InvalidInput, require
from safedial.policies import Policy
from safedial.simulation.loop import Batch
from safedial.worlds.world import World

ENGINES = ("numpy", "jax", "auto")
DRAWS = ("numpy", "counter")
DTYPES = ("float64", "float32")

WORTHWHILE = 5.0
"""Seconds that the NumPy engine would need, from which on compiling pays."""


def start_batch(
    engine: str,
    policy: Policy,
    world: World,
    spec: SafetySpec,
    *,
    device: str | None,
    draws: str,
    dtype: str,
    **options: Any,
) -> Batch:
    """The batch of the chosen engine, before its first round."""
    require(engine in ENGINES, "engine", engine, "must be one of " + ", ".join(ENGINES))
    require(draws in DRAWS, "draws", draws, "must be one of " + ", ".join(DRAWS))
    require(dtype in DTYPES, "dtype", dtype, "must be one of " + ", ".join(DTYPES))
    asked = {"device": device, "draws": draws, "dtype": dtype}
    if engine == "numpy":
        for name, plain in (("device", None), ("draws", "numpy"), ("dtype", "float64")):
            require(asked[name] == plain, name, asked[name], "needs engine='jax'", "leave it out")
        return Batch(policy, world, spec, **options)
    if engine == "auto" and asked == {"device": None, "draws": "numpy", "dtype": "float64"}:
        rows, seeds = check_grids(spec, several=True), len(options["seeds"])
        seconds = options["rounds"] * (6e-5 + 6e-7 * seeds * rows)
        if seconds < WORTHWHILE or find_spec("jax") is None:
            return Batch(policy, world, spec, **options)
        from safedial.simulation.jax_engine import JaxBatch

        try:
            return JaxBatch(policy, world, spec, **asked, **options)
        except InvalidInput:
            return Batch(policy, world, spec, **options)
    from safedial.simulation.jax_engine import JaxBatch

    return JaxBatch(policy, world, spec, **asked, **options)
