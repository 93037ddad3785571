"""`blocked` in JAX: the same decisions on a CPU or a GPU, contexts streamed to the device in chunks.

`jax_program` is the arithmetic. All its shapes are fixed, so one program serves every chunk; the last chunk is padded
with rounds that teach nothing. The host sends one chunk while the device works on the one before, and reads the records
a few chunks later; norms are computed on the device and checked when they come back.

Double precision is enabled only for the call, in a context, never in the global configuration.
"""

from __future__ import annotations

import warnings
from collections import deque
from typing import Any

import numpy as np

from safedial.bounds.estimate import Estimate, Prediction
from safedial.errors import InvalidInput, import_extra, require
from safedial.simulation.jax_device import device_named, x64
from safedial.simulation.replay_arguments import WAY_OUT, Rounds, Trace, check_norms, empty_trace
from safedial.simulation.replay_round import write_shared_rows

jax = import_extra("jax", "jax")
jnp = import_extra("jax.numpy", "jax")
programs = import_extra("safedial.simulation.jax_replay", "jax")

KERNELS = ("auto", "plain", "pallas", "interpret")
CHUNK_BYTES = 256 << 20
"""The size of the contexts on the device: this much for the chunk in use and as much for the next."""

RUNS = 64
AHEAD = 2
"""Chunks that may wait on the device before the host reads the oldest one's record."""


def replay_jax(
    rounds: Rounds,
    block: int | None,
    *,
    device: str | None = None,
    run: int | None = None,
    kernel: str = "auto",
    warps: int = 4,
) -> tuple[Trace, tuple[Estimate, ...], int, str, str]:
    """(trace, estimates, block, device, kernel) of a replay.

    Args:
        block: rounds per block, a multiple of `run`; None: 512 on a GPU, 128 on a CPU.
        device: "cpu", "gpu" or None for JAX's default.
        run: rounds per sequential kernel, a power of two; None: 32.
        kernel: "pallas" for the fused kernel (GPU only), "plain" for a JAX loop, "interpret" to run the fused kernel's
            code without a GPU, "auto" for Pallas on a GPU if it compiles, else plain.
        warps: warps of the fused kernel.
    """
    chosen = device_named(device)
    on_gpu = chosen.platform in ("gpu", "cuda", "rocm")
    require(kernel in KERNELS, "kernel", kernel, "must be one of " + ", ".join(KERNELS))
    require(kernel != "pallas" or on_gpu, "kernel", kernel, "needs a GPU", "use 'auto' or 'plain'")
    run = 32 if run is None else run
    require(type(run) is int and run >= 1 and run & (run - 1) == 0, "run", run, "must be a power of two")
    block = (512 if on_gpu else 128) if block is None else block
    size = run * -(-min(block, rounds.number) // run)
    require(
        size // run <= RUNS, "block", size, f"may be at most {RUNS} runs of {run}: all are compiled", "a larger run"
    )
    proper = type(warps) is int and 1 <= warps <= 32 and warps & (warps - 1) == 0
    require(proper, "warps", warps, "must be a power of two from 1 to 32")
    with x64(rounds.dtype == np.float64):
        plan = programs.Plan(chosen, size, run, _wide(rounds.dim, on_gpu), rounds.dtype.name, warps)
        automatic = ("pallas", "plain") if on_gpu else ("plain",)
        return _stream(rounds, plan, automatic if kernel == "auto" else (kernel,))


def _wide(dim: int, on_gpu: bool) -> int:
    """The padded dimension: a GPU multiplies matrices of odd sizes slowly, and padding with zeros changes nothing."""
    return -(-dim // 64) * 64 if on_gpu else dim


def _stream(rounds: Rounds, plan: Any, forms: tuple[str, ...]) -> tuple[Trace, tuple[Estimate, ...], int, str, str]:
    """Send chunks of whole blocks to the device one ahead; read and check their records a few chunks later."""
    trace = empty_trace(len(rounds.specs), rounds.number)
    learning = rounds.specs[:1] if rounds.shared else rounds.specs
    names, columns = _columns(rounds)
    curves = None
    if not rounds.dose.is_identity:
        curves = (rounds.dose.cost.action, rounds.dose.reward.effect, rounds.dose.cost.effect)
    rules = [programs.Rule(rounds.policy, spec, rounds.dim, curves, names) for spec in learning]
    block = plan.block
    blocks = max(1, min(CHUNK_BYTES // (block * rounds.dim * rounds.dtype.itemsize), -(-rounds.number // block)))
    steps, form = _compile(rules, plan, blocks, forms)
    with jax.default_device(plan.device):
        states = [_start(plan.wide, spec.ridge, rounds.dtype) for spec in learning]
    waiting: deque[tuple[int, list[Any]]] = deque()
    for start in range(0, rounds.number, blocks * block):
        part = slice(start, min(start + blocks * block, rounds.number))
        contexts = jax.device_put(_chunk(rounds, part, blocks * block), plan.device)
        inputs = programs.padded_inputs([column[part] for column in columns], blocks * block, rounds.dtype)
        inputs = jax.device_put(inputs, plan.device)
        used = np.int32(-(-(part.stop - start) // block))
        records = []
        for number, step in enumerate(steps):
            states[number], record = step(states[number], contexts, inputs, used, np.asarray(start, rounds.dtype))
            records.append(record)
        waiting.append((start, records))
        if len(waiting) > AHEAD:
            _write(trace, rounds, *waiting.popleft())
    while waiting:
        _write(trace, rounds, *waiting.popleft())
    estimates = tuple(_estimate(state, rounds.dim) for state in states)
    return trace, estimates, block, str(plan.device.device_kind), form


def _compile(rules: list[Any], plan: Any, blocks: int, forms: tuple[str, ...]) -> tuple[list[Any], str]:
    """The programs in the first of `forms` that compiles here; if none does, raise the last error."""
    for form in forms[:-1]:
        try:
            return [programs.program(rule, plan, blocks, form) for rule in rules], form
        except Exception as error:  # what a kernel compiler may raise is not written down anywhere
            words = (
                f"kernel {form!r} does not compile here ({str(error).splitlines()[0][:120]}); {forms[-1]!r} is slower"
            )
            warnings.warn(words, UserWarning, stacklevel=2)
    try:
        return [programs.program(rule, plan, blocks, forms[-1]) for rule in rules], forms[-1]
    except Exception as error:
        said = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        way_out = "engine='blocked'" if forms[-1] == "plain" else "'auto'"
        raise InvalidInput(
            f"kernel = {forms[-1]!r}: does not compile for this policy and dose ({said}); use {way_out}"
        ) from error


def _columns(rounds: Rounds) -> tuple[tuple[str, ...], list[Any]]:
    """The per-round inputs, with an empty column for the norm, which the device computes."""
    baseline = np.broadcast_to(rounds.baseline_cost, rounds.number) if np.any(rounds.baseline_cost) else None
    names = ("rewards", "costs", "seen", "coins", "reward_sensor", "cost_sensor")
    given = {"norm": np.zeros(rounds.number), **{name: getattr(rounds, name) for name in names}}
    given["baseline_cost"] = baseline
    kept = {name: column for name, column in given.items() if column is not None}
    return tuple(kept), list(kept.values())


def _chunk(rounds: Rounds, part: slice, size: int) -> Any:
    """The chunk's contexts in the replay's dtype, zeros after the last round; a device array is not moved."""
    rows = rounds.contexts[part]
    missing = size - (part.stop - part.start)
    if isinstance(rows, jax.Array):
        rows = rows.astype(rounds.dtype)
        return jnp.pad(rows, ((0, missing), (0, 0))) if missing else rows
    if missing:
        full = np.zeros((size, rounds.dim), dtype=rounds.dtype)
        full[: len(rows)] = rows
        return full
    return np.ascontiguousarray(rows, dtype=rounds.dtype)


def _start(dim: int, ridge: float, dtype: Any) -> tuple[Any, ...]:
    """No data yet: Σ = λI, made on the device."""
    zeros = (jnp.zeros((), dtype) for _ in range(2))
    return jnp.eye(dim, dtype=dtype) / ridge, jnp.zeros((dim, 2), dtype), *zeros


def _estimate(state: tuple[Any, ...], dim: int) -> Estimate:
    """The estimate as arrays that stay on the device until they are read."""
    inverse, coef = state[0][:dim, :dim], state[1][:dim]
    return Estimate(inverse, coef[:, 0], coef[:, 1], float(state[2]), int(state[3]))


def _write(trace: Trace, rounds: Rounds, start: int, records: list[Any]) -> None:
    """Bring a chunk's records to the host, check its norms, write its rows."""
    stop = min(start + records[0].shape[1], rounds.number)
    part = slice(start, stop)
    for row, record in enumerate(records):
        values = np.asarray(record)[:, : stop - start].astype(np.float64)
        named = dict(zip((*programs.TRACE, "squares"), values, strict=False))
        check_norms(rounds, start, named["squares"])
        whole = bool(np.all(np.isfinite(named["width"])))
        require(whole, "ridge", rounds.spec.ridge, "is too small for the contexts in this dtype", WAY_OUT)
        for name in ("intensity", "reward_index", "cost_upper", "width"):
            getattr(trace, name)[row, part] = named[name]
        trace.certified[row, part] = named["certified"] > 0
        if len(rounds.specs) > len(records):
            prediction = Prediction(
                **{name: named[name] for name in ("reward", "cost", "width", "log_det", "informative_rounds")},
                norm=np.sqrt(named["squares"]),
                dim=rounds.dim,
            )
            write_shared_rows(trace, rounds, start, prediction)
    if rounds.progress:
        rounds.progress(stop - start)
