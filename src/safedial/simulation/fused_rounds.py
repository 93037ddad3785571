"""All rounds of a chunk in one fused kernel for a GPU: Σ⁻¹ stays in registers from the first round to the last.

A compiled scan reads and writes Σ⁻¹ of every seed in every round, d² numbers each way, and that is what it waits for.
Here a warp has a few seeds: their Σ⁻¹, θ̂ and μ̂ are read before the first round and written after the last; a round
reads d + 4 numbers and writes two. The rule is the policy's own, as in the scan.

Contexts and estimates are filled up with zeros to a power of two, which a kernel's arrays must have.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas

from safedial.core.estimate import Estimate
from safedial.jax_device import triton
from safedial.simulation.jax_learners import linear
from safedial.simulation.rule import Rule
from safedial.worlds.world import Exposure

ENTRIES = 1024
"""Entries of Σ⁻¹ that a warp holds."""


def play(rule: Rule, state: Estimate, numbers: Any, given: dict[str, Any], *, interpret: bool = False) -> Any:
    """(state, told (rounds, 2, 1, seeds)) of a chunk, as the scan of `jax_engine` has them."""
    dim, dtype, rounds, seeds = rule.world.dim, state.inverse.dtype, len(numbers), state.log_det.shape[-1]
    wide = 1 << max(dim - 1, 1).bit_length()
    block = max(1, ENTRIES // wide**2)
    rule = rule._replace(learner=linear(dim, seeds_last=False), batch=block)
    names, missing = tuple(name for name in given if name != "context"), -seeds % block
    count = seeds + missing

    def padded(part: Any, axes: dict[int, int]) -> Any:
        return jnp.pad(part, [(0, axes.get(axis, 0)) for axis in range(part.ndim)])

    def kernel(fixed: tuple[Any, Any], before: Any, shown: dict[str, Any], after: Any, told: Any) -> None:
        first, contexts = fixed

        def body(index: Any, state: Estimate) -> Estimate:
            index = jnp.asarray(index, jnp.int32)
            here = {name: shown[name][index, :] for name in names} | {"context": contexts[index, :, :]}
            now = Exposure(**{name: here.get(name, 0.0) for name in Exposure._fields})
            coin, number = here.get("coin", 0.0), first[0] + index.astype(dtype)
            prediction, choice = rule.decide(state, number, now, coin)
            learned, step = rule.learn(state, now, prediction, choice, coin)
            flags = sum(jnp.where(held, float(1 << place), 0.0) for place, held in enumerate(step[2:]))
            told[index, 0, :] = choice.intensity.astype(dtype)
            told[index, 1, :] = (flags + 0.0 * choice.intensity).astype(dtype)
            return Estimate(*(part.astype(dtype) for part in learned))

        state = lax.fori_loop(0, rounds, body, Estimate(*(ref[...] for ref in before)))
        for ref, part in zip(after, state, strict=True):
            ref[...] = part

    more = {0: missing, 1: wide - dim, 2: wide - dim}
    parts = tuple(padded(part[0], more) for part in state)
    contexts = padded(given["context"][:, 0], {1: missing, 2: wide - dim})
    noises = {name: padded(given[name][:, 0], {1: missing}) for name in names}

    def blocks(part: Any, axis: int) -> Any:
        size = tuple(block if place == axis else length for place, length in enumerate(part.shape))
        return pallas.BlockSpec(size, lambda at: tuple(at if place == axis else 0 for place in range(part.ndim)))

    states, told = tuple(blocks(part, 0) for part in parts), jax.ShapeDtypeStruct((rounds, 2, count), dtype)
    options: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": triton(1)}
    after, told = pallas.pallas_call(
        kernel,
        grid=(count // block,),
        in_specs=[
            (pallas.BlockSpec((1,), lambda at: (0,)), blocks(contexts, 1)),
            states,
            {name: blocks(part, 1) for name, part in noises.items()},
        ],
        out_specs=[states, blocks(told, 2)],
        out_shape=[tuple(jax.ShapeDtypeStruct(part.shape, dtype) for part in parts), told],
        **options,
    )((numbers[:1], contexts), parts, noises)
    whole = (after[0][:seeds, :dim, :dim], *(part[:seeds, :dim] for part in after[1:3]))
    whole = (*whole, *(part[:seeds] for part in after[3:]))
    return Estimate(*(part[None] for part in whole)), told[:, :, None, :seeds]
