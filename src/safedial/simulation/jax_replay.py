"""The sequential part of a run of n rounds in JAX: one fused Pallas kernel on a GPU, or a plain loop.

A run owns its corner of the block, G (n, n) and m (n,) for each target. Round j reads width² = G_jj and the two means,
decides by the policy's own rule, and eliminates itself (`blocked`):

    s = ω/(1 + ω·G_jj)      G ← G − s·G_:j G_j:      m ← m + s(y_j − m_j)·G_:j

Beside G it keeps Tᵀ (n, n), first the identity, on which the same elimination acts: row c > j of both loses s·G_jc
times row j. After the run Tᵀ turns any rows that belong to these rounds, of G or of E, into what each round saw at its
turn, so the rest of the block follows by matrix products alone, without a factor or a solve, which are slow on a GPU.

The body works on whole vectors with masks, never on slices, because a kernel can hold those in registers; the same body
runs in both forms.

The compiled program of `jax_blocked` plays a chunk of blocks. For a block of B rounds, with rows X (B, d), V = XΣ⁻¹, G
= VXᵀ and E, first the identity, P = [E | G]. Each run s of n rounds:

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
from jax import lax

from safedial.bounds.estimate import Prediction, sample_weight
from safedial.model.spec import SafetySpec
from safedial.policies.linear import Linear
from safedial.policies.policy import Asked
from safedial.simulation.jax_device import triton

TRACE = (
    "gain",
    "reward_step",
    "cost_step",
    "reward",
    "cost",
    "width",
    "log_det",
    "informative_rounds",
    "intensity",
    "reward_index",
    "cost_upper",
    "certified",
    "growth",
)
"""The rows of a run's record: s, s·(y − m) for each target, what the round saw, what it chose, and ln(1 + ω·width²)."""

ROWS = 16
"""Rows of the record, a power of two, which a kernel's arrays must be."""


class Rule(NamedTuple):
    """Everything that a compiled program depends on; hashable."""

    policy: Linear
    spec: SafetySpec
    dim: int
    curves: tuple[Callable[[Any], Any], ...] | None
    """(cost.action, reward.effect, cost.effect), or None for the identity."""
    names: tuple[str, ...]
    """The per-round inputs, in order: norm, rewards, costs, seen, and where needed coins, baseline, sensor errors."""


def learned(rule: Rule, prediction: Prediction, given: dict[str, Any], number: Any) -> tuple[Any, Any, Any, Any]:
    """((bound, intensity), weight, R/g, C/g) of one round."""
    nothing = 0.0 * given["seen"]
    coin, baseline = given.get("coins", nothing), given.get("baseline_cost", nothing)
    decided = rule.policy.decide(prediction, rule.spec, Asked(None, prediction.norm, number, baseline, coin))
    found, chosen = decided
    reward_intensity = cost_intensity = chosen
    if rule.curves is not None:
        action_of, reward_effect, cost_effect = rule.curves
        action = action_of(chosen)
        reward_intensity, cost_intensity = reward_effect(action), cost_effect(action)
    if not rule.policy.learns:
        return decided, nothing, given["rewards"], given["costs"]
    weight = sample_weight(rule.spec, reward_intensity, cost_intensity) * given["seen"]
    if found.teaches is not True:
        weight = jnp.where(found.teaches, weight, nothing)
    reward, cost = given["rewards"], given["costs"]
    if "reward_sensor" in given:
        reward = reward + given["reward_sensor"] / jnp.where(weight > 0.0, reward_intensity, 1.0)
    if "cost_sensor" in given:
        cost = cost + given["cost_sensor"] / jnp.where(weight > 0.0, cost_intensity, 1.0)
    return decided, weight, reward, cost


def _sequence(rule: Rule, table: tuple[Any, Any, Any], start: tuple[Any, Any, Any], *, read: Any, emit: Any) -> Any:
    """(Tᵀ, start of the next run, record) after a loop over the run's rounds; `table` is G and the two means.

    The diagonal of G is carried beside it, as the means are, so that a round's three numbers are sums over vectors.
    `read(k, j)` is input k of round j, `emit(record, j, values)` writes the record.
    """
    gram, *means = table
    size, dtype = gram.shape[0], gram.dtype
    first, log_det, count = start
    down, across = (lax.broadcasted_iota(jnp.int32, (size, size), axis) for axis in (0, 1))
    place = lax.iota(jnp.int32, size)
    zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)

    def body(index: Any, carry: Any) -> Any:
        gram, turned, vectors, log_det, count, record = carry
        index = jnp.asarray(index, jnp.int32)
        row, turn = (jnp.sum(jnp.where(down == index, part, zero), axis=0) for part in (gram, turned))
        squared, reward, cost = (jnp.sum(jnp.where(place == index, vector, zero)) for vector in vectors)
        squared = jnp.maximum(squared, zero)
        given = {name: read(number, index) for number, name in enumerate(rule.names)}
        width = jnp.sqrt(squared)
        prediction = Prediction(reward, cost, width, given["norm"], log_det, count, rule.dim)
        (found, intensity), weight, *targets = learned(rule, prediction, given, first + index.astype(dtype) + 1.0)
        gain = (weight / (1.0 + weight * squared)).astype(dtype)
        growth = jnp.log1p(weight * squared).astype(dtype)
        steps = [gain * (target - mean) for target, mean in zip(targets, (reward, cost), strict=True)]
        seen = (reward, cost, width, log_det, count)
        certified = jnp.where(found.certified, one, zero)
        chosen = (intensity, found.index + zero, found.numbers.get("cost_upper", jnp.nan) + zero, certified)
        record = emit(record, index, [value.astype(dtype) for value in (gain, *steps, *seen, *chosen, growth)])
        after = jnp.where(place > index, gain * row, zero)[:, None]
        moved = (old + step * row for old, step in zip(vectors[1:], steps, strict=True))
        vectors = (vectors[0] - gain * row * row, *moved)
        log_det, count = log_det + growth, count + jnp.where(weight > 0.0, one, zero)
        return gram - after * row, turned - after * turn, vectors, log_det, count, record

    vectors = (jnp.sum(jnp.where(down == across, gram, zero), axis=0), *means)
    carry = (gram, jnp.where(down == across, one, zero), vectors, log_det, count, emit(None, None, None))
    _, turned, _, log_det, count, record = lax.fori_loop(0, size, body, carry)
    return turned, (first + float(size), log_det, count), record


def run_plain(rule: Rule, table: Any, start: Any, inputs: Any, left: int, *, run: int) -> tuple[Any, Any, Any]:
    """(Tᵀ, record, start of the next run) of one run by a plain JAX loop.

    `table`'s first rows are the run's: G in the columns from `left` on, the means in the two after the block's. start
    (3,): the rounds before, ln det, N; inputs (K, block), the run's from `left` on.
    """

    def emit(record: Any, index: Any, values: Any) -> Any:
        if record is None:
            return jnp.zeros((ROWS, run), table.dtype)
        column = jnp.zeros(ROWS, table.dtype).at[: len(values)].set(jnp.stack(values))
        return lax.dynamic_update_index_in_dim(record, column, index, 1)

    def read(number: int, index: Any) -> Any:
        return lax.dynamic_index_in_dim(inputs[number], left + index, keepdims=False)

    wide = inputs.shape[1]
    given = (table[:run, left : left + run], table[:run, wide], table[:run, wide + 1])
    turned, after, record = _sequence(rule, given, (start[0], start[1], start[2]), read=read, emit=emit)
    return turned, record, jnp.stack(after)


def run_pallas(
    rule: Rule, table: Any, start: Any, inputs: Any, left: int, *, run: int, warps: int = 1, interpret: bool = False
) -> tuple[Any, Any, Any]:
    """`run_plain` as one kernel: G, T and m stay in registers from the first round of the run to the last."""
    from jax.experimental import pallas

    dtype, wide = table.dtype, inputs.shape[1]

    def kernel(given: tuple[Any, Any, Any], turned: Any, record: Any, after: Any) -> None:
        table, start, inputs = given

        def emit(told: Any, index: Any, values: Any) -> Any:
            for number, value in enumerate(values or ()):
                record[number, index] = value
            return jnp.zeros((), jnp.int32) if told is None else told

        def read(number: int, index: Any) -> Any:
            return inputs[number, left + index]

        sums = (table[:run, left : left + run], table[:run, wide], table[:run, wide + 1])
        turned[...], following, _ = _sequence(rule, sums, (start[0], start[1], start[2]), read=read, emit=emit)
        for number, value in enumerate(following):
            after[number] = value

    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((run, run), (ROWS, run), (3,))]
    options: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": triton(warps)}
    return tuple(pallas.pallas_call(kernel, out_shape=shapes, **options)((table, start, inputs)))


def input_rows(names: Any) -> int:
    """Rows of the inputs' array: a power of two, as a kernel needs."""
    return 1 << (len(names) - 1).bit_length()


def padded_inputs(columns: list[Any], size: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Per-round inputs as (K, size), zeros after the last round (seen = 0, so they teach nothing)."""
    inputs = np.zeros((input_rows(columns), size), dtype=dtype)
    for number, column in enumerate(columns):
        inputs[number, : len(column)] = np.nan_to_num(column)
    return inputs


# --- The compiled program of `jax_blocked`: a chunk of blocks, each made of runs of rounds

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
    shapes = ((wide, wide), (wide, 2), (), (), (rounds, rule.dim), (input_rows(rule.names), rounds), (), ())
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

    records = jnp.zeros((ROWS, contexts.shape[0]), plan.dtype)
    return jax.lax.fori_loop(0, used, advance, (state, records))


def _one_block(state: Any, rows: Any, inputs: Any, before: Any, *, rule: Any, plan: Plan, form: str) -> tuple[Any, Any]:
    """One block, as at the top of this module: (state after it, record)."""
    sequence = {
        "plain": run_plain,
        "pallas": partial(run_pallas, warps=plan.warps),
        "interpret": partial(run_pallas, interpret=True),
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
    return (inverse, coef, start[1], start[2]), record.at[len(TRACE)].set(squares)


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
