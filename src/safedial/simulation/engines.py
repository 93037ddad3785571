"""Which engine plays the rounds of a simulation."""

from __future__ import annotations

from importlib.util import find_spec

from safedial.core.spec_grid import check_grids
from safedial.errors import InvalidInput, require
from safedial.simulation.loop import Batch, Setting

ENGINES = ("numpy", "jax", "auto")
DRAWS = ("numpy", "counter")
DTYPES = ("float64", "float32")

WORTHWHILE = 5.0
"""Seconds that the NumPy engine would need, from which on compiling pays."""


def start_batch(engine: str, setting: Setting, *, device: str | None, draws: str, dtype: str) -> Batch:
    """The batch of the chosen engine, before its first round."""
    require(engine in ENGINES, "engine", engine, "must be one of " + ", ".join(ENGINES))
    require(draws in DRAWS, "draws", draws, "must be one of " + ", ".join(DRAWS))
    require(dtype in DTYPES, "dtype", dtype, "must be one of " + ", ".join(DTYPES))
    plain = (device, draws, dtype) == (None, "numpy", "float64")
    if engine == "numpy":
        for name, value, usual in (("device", device, None), ("draws", draws, "numpy"), ("dtype", dtype, "float64")):
            require(value == usual, name, value, "is for engine jax only", f"choose that engine, or leave {name} out")
    if engine == "numpy" or (engine == "auto" and plain and not _pays(setting)):
        return Batch(setting)
    from safedial.simulation.jax_engine import JaxBatch

    try:
        return JaxBatch(setting, device=device, draws=draws, dtype=dtype)
    except InvalidInput:
        if engine == "jax" or not plain:
            raise
        return Batch(setting)


def _pays(setting: Setting) -> bool:
    """Whether JAX is installed, and the NumPy engine would take long enough for compiling to pay."""
    size = len(setting.seeds) * check_grids(setting.spec, several=True)
    return setting.rounds * (6e-5 + 6e-7 * size) >= WORTHWHILE and find_spec("jax") is not None
