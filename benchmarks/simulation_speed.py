"""Simulated rounds in a second, by engine, number of seeds and dimension, compared with the bare arithmetic.

HP-Probe, unit Gaussian noise, τ = 0.5, the paper's world. Times are from the call to the answer, drawing included and
compiling aside; each engine runs for about `SECONDS`. `naive` is a loop over seeds and rounds in NumPy, as one would
write it: matrix products of single contexts, no batch. `floor` is what the memory allows a program that reads and
writes Σ⁻¹ of every seed in every round: 2d² numbers at the speed of a copy, on a GPU of a copy there. `mabwiser` is
MABWiser's LinUCB with two arms (give the dose or not), one seed, asked and told in every round, in the peers' Python
(`arena.peer`).
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import seconds_of
from benchmarks.arena.peer import peers_python
from safedial.errors import MissingExtra, import_extra, is_whole, require
from safedial.model.spec import SafetySpec
from safedial.paper.synthetic import synthetic_spec
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.run import simulate

SECONDS = 1.0
SEEDS = (1, 10, 500)
DIMS = (10, 26)
LEAST = 20_000
"""Rounds of all seeds in a figure, at least; on a GPU ten thousand times as many, so that the start does not count."""


def bench_simulation(
    dims: tuple[int, ...] = DIMS,
    seeds: tuple[int, ...] = SEEDS,
    *,
    device: str | None = None,
    dtype: str = "float64",
    seconds: float = SECONDS,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """A row for each dimension and number of seeds: rounds in a second by engine, and how long compiling took."""
    for name, values in (("dims", dims), ("seeds", seeds)):
        right = len(values) > 0 and all(is_whole(value) for value in values)
        require(right, name, values, "must be whole numbers >= 1")
    require(0.0 < seconds < math.inf, "seconds", seconds, "must be a number > 0", "for example 1")
    spec = synthetic_spec()
    engines: dict[str, dict[str, Any]] = {"numpy": {}} if device != "gpu" else {}
    if _has_jax():
        given = {"engine": "jax", "device": device, "dtype": dtype}
        engines |= {"jax": given} if device != "gpu" else {}
        engines |= {"jax_counter": given | {"draws": "counter"}}
    copied = _copy_speed() if device != "gpu" else _device_copy_speed("gpu")
    number = 8 if device != "gpu" else np.dtype(dtype).itemsize
    rows = []
    for dim in dims:
        for count in seeds:
            row: dict[str, Any] = {"dim": dim, "seeds": count, "floor": copied / (2 * number * dim**2)}
            if device != "gpu":
                row |= {"naive": _naive(dim, spec, seconds)} | _mabwiser(dim, seconds)
            for name, options in engines.items():
                row |= _timed(name, spec, options, dim=dim, seeds=count, seconds=seconds)
            rows.append(row)
            if progress:
                progress(f"d = {dim}, {count} seeds")
    return rows


def _timed(
    name: str, spec: SafetySpec, options: dict[str, Any], *, dim: int, seeds: int, seconds: float
) -> dict[str, Any]:
    """Rounds in a second, of the first run that takes long enough, compiled before."""
    world, rounds, compiling = LinearWorld(dim=dim), 64, 0.0
    while True:
        made = [simulate("hp_probe", world, spec, rounds=rounds, seeds=seeds, points=10, **options) for _ in range(2)]
        compiling = max(compiling, made[0].compile_seconds)
        taken = min(run.seconds - run.compile_seconds for run in made)
        if taken >= 0.3 * seconds and rounds * seeds >= LEAST * (10_000 if options.get("device") == "gpu" else 1):
            break
        rounds = int(rounds * min(16.0, max(2.0, 0.6 * seconds / taken)))
    return {name: seeds * rounds / taken} | ({f"{name}_compile_seconds": compiling} if options else {})


MABWISER = """
import sys, time
import numpy as np
from mabwiser.mab import MAB, LearningPolicy

dim, seconds = int(sys.argv[1]), float(sys.argv[2])
rng = np.random.default_rng(0)
mab = MAB([0, 1], LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
mab.fit([0, 1], [0.0, 0.0], np.zeros((2, dim)))
rounds, started = 0, time.perf_counter()
while time.perf_counter() - started < seconds:
    context = rng.standard_normal((1, dim))
    context /= np.linalg.norm(context)
    mab.partial_fit([mab.predict(context)], [rng.standard_normal()], context)
    rounds += 1
print(rounds / (time.perf_counter() - started))
"""
"""The loop that people write with MABWiser."""


def _mabwiser(dim: int, seconds: float) -> dict[str, float]:
    """MABWiser's rounds in a second; nothing where it is not installed."""
    command = [peers_python(), "-c", MABWISER, str(dim), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- the user's own Python
    return {"mabwiser": float(done.stdout)} if done.returncode == 0 else {}


def _naive(dim: int, spec: SafetySpec, seconds: float) -> float:
    """One seed as one would write it first: the rule itself, without a batch."""
    rng = np.random.default_rng(0)
    theta, mu = rng.standard_normal((2, dim)) / dim**0.5
    inverse, targets = np.eye(dim) / spec.ridge, np.zeros((2, dim))
    log_det, rounds, started = 0.0, 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        context = rng.standard_normal(dim)
        context *= spec.context_bound / np.linalg.norm(context)
        direction = inverse @ context
        squared = float(context @ direction)
        radius = (spec.cost_noise**2 * (log_det + 2.0 * spec.log_inverse_risk) + spec.ridge) ** 0.5
        upper = min(context @ inverse @ targets[1] + radius * squared**0.5, spec.coefficient_bound)
        load = upper + spec.tail * spec.cost_noise
        dose = 1.0 if load <= spec.threshold else spec.threshold / load
        dose *= 1.0 if context @ inverse @ targets[0] >= 0.0 else (rounds + 1) ** -0.5
        seen = np.array([context @ theta, context @ mu]) + rng.standard_normal(2)
        targets += np.outer(seen, context) if dose > 0.0 else 0.0
        inverse -= np.outer(direction, direction) / (1.0 + squared)
        log_det += np.log1p(squared)
        rounds += 1
    return rounds / (time.perf_counter() - started)


def _has_jax() -> bool:
    """Whether JAX can be imported; that it can be found does not say so."""
    try:
        import_extra("safedial.simulation.jax_device", "jax")
    except MissingExtra:
        return False
    return True


def _copy_speed() -> float:
    """Bytes in a second, read and written, of a copy that no cache holds."""
    source = np.ones(1 << 23)
    target = np.empty_like(source)
    np.copyto(target, source)
    best = min(seconds_of(lambda: np.copyto(target, source)) for _ in range(3))
    return 2 * source.nbytes / best


def _device_copy_speed(device: str, size: int = 1 << 27) -> float:
    """The same on one of JAX's devices; copies are queued, so that none waits for its launch."""
    jax, devices = import_extra("jax", "jax"), import_extra("safedial.simulation.jax_device", "jax")
    source = jax.device_put(np.ones(size, np.float32), devices.device_named(device))
    copied = jax.jit(lambda part: part + 1.0)

    def copies() -> None:
        part = source
        for _ in range(10):
            part = copied(part)
        part.block_until_ready()

    copies()
    return 20 * source.nbytes / min(seconds_of(copies) for _ in range(3))
