"""All rounds of a chunk in one fused kernel for a GPU: Σ⁻¹ stays in registers from the first round to the last.

A compiled scan reads and writes Σ⁻¹ of every seed in every round, d² numbers each way, and that is what it waits for.
Here Σ⁻¹, θ̂ and μ̂ are read before the first round and written after the last; a round reads d + 4 numbers and writes
two. The rule is the policy's own, as in the scan.

If there are many seeds, and a thread's registers hold half of Σ⁻¹, which is symmetric, every thread has a seed
(`_lanes`), and no sum needs two threads. Otherwise a warp has a few seeds (`_shared`), and contexts and estimates are
filled up with zeros to a power of two, which a kernel's arrays must have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas

from safedial.core.estimate import Estimate
from safedial.jax_device import triton
from safedial.simulation.jax_learners import linear, packed, packed_place
from safedial.simulation.rule import Rule, with_numbers
from safedial.worlds.world import Exposure

REGISTERS = 190
"""The 32-bit registers that half of Σ⁻¹, θ̂, μ̂ and a context may take in a thread that has a seed of its own."""

MANY = 50_000
"""The seeds from which on every thread may have one. With a tenth of them that gains half as much again, and compiling
takes ten seconds longer, for every spec.
"""


class Form(NamedTuple):
    """How a kernel holds its seeds."""

    block: int
    """Seeds of a warp."""
    wide: int
    """d, filled up."""
    learner: Any
    axis: int
    """Of the seeds in the arrays outside the kernel: the first or the last."""
    load: Any
    store: Any
    context: Any


def _lanes(dim: int) -> Form:
    """A seed for every thread, Σ⁻¹ as the numbers below its diagonal, each an array over the seeds of a warp."""

    def load(refs: Any) -> Estimate:
        inverse, *coefs, log_det, count = refs
        lower = tuple(inverse[i, j, :] for i in range(dim) for j in range(i + 1))
        reward_coef, cost_coef = (tuple(coef[i, :] for i in range(dim)) for coef in coefs)
        return Estimate(lower, reward_coef, cost_coef, log_det[:], count[:])

    def store(refs: Any, state: Estimate) -> None:
        for i in range(dim):
            for j in range(dim):
                refs[0][i, j, :] = state.inverse[packed_place(i, j)]
            refs[1][i, :], refs[2][i, :] = state.reward_coef[i], state.cost_coef[i]
        refs[3][:], refs[4][:] = state[3:]

    return Form(32, dim, packed(dim), -1, load, store, lambda ref, at: tuple(ref[at, i, :] for i in range(dim)))


def _shared(dim: int) -> Form:
    """A few seeds for every warp, their Σ⁻¹ as arrays (seeds, d, d)."""
    wide = 1 << max(dim - 1, 1).bit_length()

    def store(refs: Any, state: Estimate) -> None:
        for ref, part in zip(refs, state, strict=True):
            ref[...] = part

    def load(refs: Any) -> Estimate:
        return Estimate(*(ref[...] for ref in refs))

    learner, entries = linear(dim, seeds_last=False), 1024 if wide <= 16 else 2048  # of Σ⁻¹ in a warp, the fastest
    return Form(max(1, entries // wide**2), wide, learner, 0, load, store, lambda ref, at: ref[at, :, :])


def play(rule: Rule, state: Estimate, chunk: Any, passed: Any, *, interpret: bool = False) -> Any:
    """(state, told (rounds, 2, 1, seeds)) of a chunk, as the scan of `jax_engine` has them. `passed`: numbers of the
    rule, which a kernel must be given as an array.
    """
    (numbers, given), (leaves, form_of_passed) = chunk, jax.tree.flatten(passed)
    scalars = jnp.stack([numbers[0], *(jnp.reshape(each, ()) for each in leaves)])
    dim, dtype, rounds, seeds = rule.world.dim, state.inverse.dtype, len(numbers), state.log_det.shape[-1]
    registers = dtype.itemsize // 4 * (dim * (dim + 1) // 2 + 3 * dim)
    form = _lanes(dim) if seeds >= MANY and registers <= REGISTERS else _shared(dim)
    rule = rule._replace(learner=form.learner, batch=form.block)
    names, missing = tuple(name for name in given if name != "context"), -seeds % form.block

    def kernel(fixed: tuple[Any, Any], before: Any, shown: dict[str, Any], after: Any, told: Any) -> None:
        values, contexts = fixed
        held = [values[place] for place in range(len(scalars))]
        first, known = held[0], with_numbers(rule, jax.tree.unflatten(form_of_passed, held[1:]))

        def body(index: Any, state: Estimate) -> Estimate:
            index = jnp.asarray(index, jnp.int32)
            here = {name: shown[name][index, :] for name in names} | {"context": form.context(contexts, index)}
            now = Exposure(**{name: here.get(name, 0.0) for name in Exposure._fields})
            coin, number = here.get("coin", 0.0), first + index.astype(dtype)
            prediction, choice = known.decide(state, number, now, coin)
            learned, step = known.learn(state, now, prediction, choice, coin)
            flags = sum(jnp.where(flag, float(1 << place), 0.0) for place, flag in enumerate(step[2:]))
            told[index, 0, :] = choice.intensity.astype(dtype)
            told[index, 1, :] = (flags + 0.0 * choice.intensity).astype(dtype)
            return jax.tree.map(lambda part: part.astype(dtype), learned)

        form.store(after, lax.fori_loop(0, rounds, body, form.load(before)))

    def arranged(part: Any, lead: int) -> Any:
        """Filled up, and the seeds, which follow `lead` axes, moved to where the kernel has them."""
        more = [(0, 0)] * lead + [(0, missing)] + [(0, form.wide - dim)] * (part.ndim - lead - 1)
        return jnp.moveaxis(jnp.pad(part, more), lead, lead if form.axis == 0 else -1)

    def blocks(part: Any, axis: int) -> Any:
        axis %= part.ndim
        size = tuple(form.block if place == axis else length for place, length in enumerate(part.shape))
        return pallas.BlockSpec(size, lambda at: tuple(at if place == axis else 0 for place in range(part.ndim)))

    parts, contexts = tuple(arranged(part[0], 0) for part in state), arranged(given["context"][:, 0], 1)
    noises = {name: arranged(given[name][:, 0], 1) for name in names}
    states = tuple(blocks(part, form.axis) for part in parts)
    told = jax.ShapeDtypeStruct((rounds, 2, seeds + missing), dtype)
    options: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": triton(1)}
    after, told = pallas.pallas_call(
        kernel,
        grid=((seeds + missing) // form.block,),
        in_specs=[
            (pallas.BlockSpec(scalars.shape, lambda at: (0,)), blocks(contexts, 1 if form.axis == 0 else -1)),
            states,
            {name: blocks(part, 1) for name, part in noises.items()},
        ],
        out_specs=[states, blocks(told, 2)],
        out_shape=[tuple(jax.ShapeDtypeStruct(part.shape, dtype) for part in parts), told],
        **options,
    )((scalars, contexts), parts, noises)
    after = (jnp.moveaxis(part, form.axis, 0)[:seeds] for part in after)
    whole = (part[(slice(None), *[slice(dim)] * (part.ndim - 1))] for part in after)
    return Estimate(*(part[None] for part in whole)), told[:, :, None, :seeds]
