"""Which engine plays the rounds of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from safedial.errors import InvalidInput, import_extra, require
from safedial.model.spec import check_grids
from safedial.policies import Policy
from safedial.simulation.loop import Batch, Setting

ENGINES = ("numpy", "jax", "auto")
DRAWS = ("numpy", "counter")
DTYPES = ("float64", "float32")
USUAL: dict[str, Any] = {"engine": "numpy", "device": None, "draws": "numpy", "dtype": "float64"}
"""How a simulation is played unless somebody asks for another way."""

WORTHWHILE = 5.0
"""Seconds that the NumPy engine would need, from which on compiling pays."""


def start_batch(engine: str, setting: Setting, *, device: str | None, draws: str, dtype: str) -> Batch:
    """The batch of the chosen engine, before its first round."""
    check_engine({"engine": engine, "device": device, "draws": draws, "dtype": dtype})
    largest = max(setting.seeds)
    fits = draws == "numpy" or largest < 2**64
    require(fits, "seeds", largest, "must be below 2**64 with draws 'counter'", "use smaller ones, or draws 'numpy'")
    plain = (device, draws, dtype) == (None, "numpy", "float64")
    size = len(setting.seeds) * check_grids(setting.spec, several=True)
    slow = engine == "auto" and pays(setting.policy, setting.world.dim, setting.rounds, size)
    if engine == "numpy" or (engine == "auto" and plain and not slow):
        return Batch(setting)
    from safedial.simulation.jax_engine import JaxBatch

    try:
        check_compiles(setting.policy)
        return JaxBatch(setting, device=device, draws=draws, dtype=dtype)
    except InvalidInput:
        if engine == "jax" or not plain:
            raise
        return Batch(setting)


def check_compiles(policy: Policy) -> None:
    """Refuse a policy that engine 'jax' cannot play."""
    rule = f"{policy.name} {policy.uncompiled}"
    require(not policy.uncompiled, "engine", "jax", rule, "use engine 'numpy'")


def check_engine(chosen: Mapping[str, Any]) -> None:
    """Refuse what is no engine, or no option of it: `chosen` has a value for each of `USUAL`."""
    for name, known in (("engine", ENGINES), ("draws", DRAWS), ("dtype", DTYPES)):
        require(chosen[name] in known, name, chosen[name], "must be one of " + ", ".join(known))
    for name, usual in USUAL.items() if chosen["engine"] == "numpy" else ():
        way_out = f"choose that engine, or leave {name} out"
        require(chosen[name] == usual, name, chosen[name], "is for engine jax only", way_out)


def check_device(chosen: Mapping[str, Any]) -> None:
    """Refuse an engine or a device that this machine does not have."""
    if chosen["engine"] == "jax" or (chosen["engine"] == "auto" and chosen["device"] is not None):
        import_extra("safedial.simulation.jax_device", "jax").device_named(chosen["device"])


def pays(policy: Policy, dim: int, rounds: int, size: int) -> bool:
    """Whether JAX is installed, and the NumPy engine would take long enough for compiling to pay. `size`: seeds times
    specs; with the radius `self-normalised`, eigenvectors are found in every round of each.
    """
    each = 1.7e-6 * dim if policy.options.get("radius") == "self-normalised" else 6e-7
    return rounds * (6e-5 + each * size) >= WORTHWHILE and find_spec("jax") is not None
