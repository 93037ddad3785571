"""The compiled program of `jax_blocked`: a chunk of blocks, each made of runs of rounds.

For a block of B rounds, with rows X (B, d), V = XΣ⁻¹, G = VXᵀ and E, first the identity, P = [E | G]. Each run s of n
rounds:

    T, record ← the run's sequential kernel on G_ss, m_s          (`jax_kernel`)
    Q = Tᵀ P_s            what each round of the run saw at its turn
    W = the G-part of Q after the run, transposed
    P ← P − W·diag(s)·Q   m ← m + W·step          for the rounds after the run, in one product

A column of G is not needed once its round is over, and E has one only from then on: one table holds both, E to the left
of the run and G to its right, and the means behind them.

After the block, with the rows Q of all runs, U = Q_E·V, whose rows are Σ⁻¹x as each round saw it, and
Σ⁻¹ ← Σ⁻¹ − Uᵀdiag(s)U, coef ← coef + Uᵀ·step. Two levels of blocks: B is large for the d×d products, n small for the
kernel. The runs of a block are written out one after the other, so that each touches only what it needs (E to its left,
G to its right), and so that a GPU can launch them as one recorded graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safedial.replay_engines import jax_kernel as kernels

matmul = partial(jnp.matmul, precision="highest")
cut, put = jax.lax.dynamic_slice_in_dim, jax.lax.dynamic_update_slice_in_dim


GRAPHS: dict[str, Any] = {
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,WHILE",
    "xla_gpu_graph_min_graph_size": 1,
}
"""Compiler options of this program only: launch kernels as recorded graphs. They are omitted if the compiler does not
know them."""

MEANS = 8
"""Columns of the table behind the block's: the two means, and zeros, because a GPU multiplies odd sizes slowly."""


class Plan(NamedTuple):
    """Where and in which sizes a program runs; `wide` is the dimension, padded."""

    device: Any
    block: int
    run: int
    wide: int
    dtype: str
    warps: int


@lru_cache(maxsize=32)
def program(rule: Any, plan: Plan, blocks: int, form: str) -> Callable[..., tuple[Any, Any]]:
    """The compiled chunk: (state, contexts, inputs, blocks used, rounds before) -> (state, record (ROWS, rounds)).

    Compiled once for each policy object, spec and size; the state's buffers are reused.
    """
    wide, rounds, dtype = plan.wide, plan.block * blocks, plan.dtype
    shapes = ((wide, wide), (wide, 2), (), (), (rounds, rule.dim), (kernels.input_rows(rule.names), rounds), (), ())
    place = jax.sharding.SingleDeviceSharding(plan.device)
    kinds = [np.int32 if number == 6 else dtype for number in range(8)]
    given = [jax.ShapeDtypeStruct(shape, kind, sharding=place) for shape, kind in zip(shapes, kinds, strict=True)]
    step = jax.jit(partial(_chunk_of_blocks, rule=rule, plan=plan, form=form), donate_argnums=0)
    lowered = step.lower(tuple(given[:4]), *given[4:])
    if plan.device.platform == "cpu":
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=GRAPHS)
    except Exception:
        return lowered.compile()


def _chunk_of_blocks(
    state: Any, contexts: Any, inputs: Any, used: Any, before: Any, *, rule: Any, plan: Plan, form: str
) -> tuple[Any, Any]:
    """Loop over the chunk's blocks that are in use."""
    block = plan.block

    def advance(number: Any, carry: Any) -> Any:
        state, records = carry
        left = number * block
        rows, given = cut(contexts, left, block), cut(inputs, left, block, axis=1)
        state, record = _one_block(state, rows, given, before + left, rule=rule, plan=plan, form=form)
        return state, put(records, record, left, axis=1)

    records = jnp.zeros((kernels.ROWS, contexts.shape[0]), plan.dtype)
    return jax.lax.fori_loop(0, used, advance, (state, records))


def _one_block(state: Any, rows: Any, inputs: Any, before: Any, *, rule: Any, plan: Plan, form: str) -> tuple[Any, Any]:
    """One block, as at the top of this module: (state after it, record)."""
    sequence = {
        "plain": kernels.run_plain,
        "pallas": partial(kernels.run_pallas, warps=plan.warps),
        "interpret": partial(kernels.run_pallas, interpret=True),
    }[form]
    _, block, run, wide, *_ = plan
    inverse, coef, log_det, count = state
    squares = jnp.sum(rows * rows, axis=1)
    rows = jnp.pad(rows, ((0, 0), (0, wide - rows.shape[1])))
    inputs = inputs.at[0].set(jnp.sqrt(squares))
    projected = matmul(rows, inverse)
    means = jnp.pad(matmul(rows, coef), ((0, 0), (0, MEANS - 2)))
    table = jnp.concatenate([matmul(projected, rows.T), means], axis=1)
    start = jnp.stack([before, log_det, count])
    records, turns = [], []
    for left in range(0, block, run):
        turned, told, start = sequence(rule, table, start, inputs, left, run=run)
        mine, table = followed(table, turned, told, left=left)
        records.append(told)
        turns.append(jnp.pad(mine[:, : left + run], ((0, 0), (0, block - left - run))))
    record = jnp.concatenate(records, axis=1)
    directions = matmul(jnp.concatenate(turns), projected)
    scaled = directions * jnp.sqrt(record[0])[:, None]
    inverse = inverse + matmul(-scaled.T, scaled)
    coef = coef + matmul(directions.T, record[1:3].T)
    return (inverse, coef, start[1], start[2]), record.at[len(kernels.TRACE)].set(squares)


def followed(table: Any, turned: Any, told: Any, *, left: int) -> tuple[Any, Any]:
    """(what the rounds of a run saw, the table of those after it)."""
    run, block = len(turned), table.shape[1] - MEANS
    right = left + run
    seen = matmul(turned, table[:run])
    mine = jnp.concatenate([seen[:, :left], turned, seen[:, right:block]], axis=1)
    steps = jnp.pad(told[1:3], ((0, MEANS - 2), (0, 0))).T
    change = jnp.concatenate([told[0][:, None] * -mine, steps], axis=1)
    nothing = jnp.zeros((block - right, run), table.dtype)
    rest = jnp.concatenate([table[run:, :left], nothing, table[run:, right:]], axis=1)
    return mine, rest + matmul(mine[:, right:].T, change)
