"""The sequential part of a run of n rounds in JAX: one fused Pallas kernel on a GPU, or a plain loop.

A run owns its corner of the block, G (n, n) and m (n,) for each target. Round j reads width² = G_jj and the two means,
decides by the policy's own rule, and eliminates itself (`blocked`):

    s = ω/(1 + ω·G_jj)      G ← G − s·G_:j G_j:      m ← m + s(y_j − m_j)·G_:j

Below G it keeps T (n, n), first the identity, on which the same elimination acts: column c > j of both loses s·G_jc
times column j. After the run Tᵀ turns any rows that belong to these rounds, of G or of E, into what each round saw at
its turn, so the rest of the block follows by matrix products alone, without a factor or a solve, which are slow on a
GPU.

The body works on whole vectors with masks, never on slices, because a kernel can hold those in registers; the same body
runs in both forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from safedial.core.estimate import Prediction, sample_weight
from safedial.core.spec import SafetySpec
from safedial.jax_device import triton

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

    decide: Callable[..., Any]
    learns: bool
    spec: SafetySpec
    dim: int
    curves: tuple[Callable[[Any], Any], ...] | None
    """(cost.action, reward.effect, cost.effect), or None for the identity."""
    names: tuple[str, ...]
    """The per-round inputs, in order: norm, rewards, costs, seen, and where needed coins, baseline, sensor errors."""


def learned(rule: Rule, prediction: Prediction, given: dict[str, Any], number: Any) -> tuple[Any, Any, Any, Any]:
    """(choice, weight, R/g, C/g) of one round."""
    nothing = 0.0 * given["seen"]
    coin, baseline = given.get("coins", nothing), given.get("baseline_cost", nothing)
    choice = rule.decide(prediction, rule.spec, round=number, coin=coin, baseline_cost=baseline)
    reward_intensity = cost_intensity = choice.intensity
    if rule.curves is not None:
        action_of, reward_effect, cost_effect = rule.curves
        action = action_of(choice.intensity)
        reward_intensity, cost_intensity = reward_effect(action), cost_effect(action)
    if not rule.learns:
        return choice, nothing, given["rewards"], given["costs"]
    weight = sample_weight(rule.spec, reward_intensity, cost_intensity) * given["seen"]
    if choice.learn is not True:
        weight = jnp.where(choice.learn, weight, nothing)
    reward, cost = given["rewards"], given["costs"]
    if "reward_sensor" in given:
        reward = reward + given["reward_sensor"] / jnp.where(weight > 0.0, reward_intensity, 1.0)
    if "cost_sensor" in given:
        cost = cost + given["cost_sensor"] / jnp.where(weight > 0.0, cost_intensity, 1.0)
    return choice, weight, reward, cost


def _sequence(
    rule: Rule, both: Any, means: tuple[Any, Any], start: tuple[Any, Any, Any], *, read: Any, emit: Any
) -> Any:
    """Loop over the run's rounds on `both` = G above T, (2n, n), with the means padded to 2n.

    `read(k, j)` is input k of round j, `emit(record, j, values)` writes the record.
    """
    size, dtype = both.shape[1], both.dtype
    first, log_det, count = start
    across = lax.broadcasted_iota(jnp.int32, (2 * size, size), 1)
    down = lax.broadcasted_iota(jnp.int32, (2 * size, size), 0)
    place = lax.iota(jnp.int32, 2 * size)
    zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)

    def body(index: Any, carry: Any) -> Any:
        both, reward_mean, cost_mean, log_det, count, record = carry
        index = jnp.asarray(index, jnp.int32)
        column = jnp.sum(jnp.where(across == index, both, zero), axis=1)
        row = jnp.sum(jnp.where(down == index, both, zero), axis=0)
        here = place == index
        squared = jnp.maximum(jnp.sum(jnp.where(here, column, zero)), zero)
        reward = jnp.sum(jnp.where(here, reward_mean, zero))
        cost = jnp.sum(jnp.where(here, cost_mean, zero))
        given = {name: read(number, index) for number, name in enumerate(rule.names)}
        width = jnp.sqrt(squared)
        prediction = Prediction(reward, cost, width, given["norm"], log_det, count, rule.dim)
        choice, weight, *targets = learned(rule, prediction, given, first + index.astype(dtype) + 1.0)
        gain = (weight / (1.0 + weight * squared)).astype(dtype)
        growth = jnp.log1p(weight * squared).astype(dtype)
        steps = [gain * (target - mean) for target, mean in zip(targets, (reward, cost), strict=True)]
        seen = (reward, cost, width, log_det, count)
        certified = jnp.where(choice.safe.certified, one, zero)
        chosen = (choice.intensity, choice.reward_index + zero, choice.bounds.cost_upper, certified)
        record = emit(record, index, [value.astype(dtype) for value in (gain, *steps, *seen, *chosen, growth)])
        after = jnp.where(across > index, (gain * row)[None, :], zero)
        return (
            both - column[:, None] * after,
            reward_mean + steps[0] * column,
            cost_mean + steps[1] * column,
            log_det + growth,
            count + jnp.where(weight > 0.0, one, zero),
            record,
        )

    record = emit(None, None, None)
    both, *_, record = lax.fori_loop(0, size, body, (both, *means, log_det, count, record))
    return both, record


def run_plain(rule: Rule, gram: Any, means: Any, start: Any, inputs: Any) -> tuple[Any, Any]:
    """(T, record) of one run by a plain JAX loop. means (2, n), start (4,): rounds before, ln det, N; inputs (K, n)."""

    def emit(record: Any, index: Any, values: Any) -> Any:
        if record is None:
            return jnp.zeros((ROWS, gram.shape[1]), gram.dtype)
        column = jnp.zeros(ROWS, gram.dtype).at[: len(values)].set(jnp.stack(values))
        return lax.dynamic_update_index_in_dim(record, column, index, 1)

    def read(number: int, index: Any) -> Any:
        return lax.dynamic_index_in_dim(inputs[number], index, keepdims=False)

    both, means = _stacked(gram, means)
    both, record = _sequence(rule, both, (means[0], means[1]), (start[0], start[1], start[2]), read=read, emit=emit)
    return both[gram.shape[0] :], record


def run_pallas(
    rule: Rule, gram: Any, means: Any, start: Any, inputs: Any, *, warps: int = 1, interpret: bool = False
) -> tuple[Any, Any]:
    """`run_plain` as one kernel: G, T and m stay in registers from the first round of the run to the last."""
    from jax.experimental import pallas

    size, dtype = gram.shape[0], gram.dtype
    both, means = _stacked(gram, means)

    def kernel(sums: tuple[Any, Any], start_ref: Any, inputs_ref: Any, turned_ref: Any, record_ref: Any) -> None:
        both_ref, means_ref = sums

        def emit(record: Any, index: Any, values: Any) -> Any:
            if record is None:
                return jnp.zeros((), jnp.int32)
            for number, value in enumerate(values):
                record_ref[number, index] = value
            return record

        def read(number: int, index: Any) -> Any:
            return inputs_ref[number, index]

        means = (means_ref[0, :], means_ref[1, :])
        turned_ref[:, :], _ = _sequence(
            rule, both_ref[:, :], means, (start_ref[0], start_ref[1], start_ref[2]), read=read, emit=emit
        )

    shapes = [jax.ShapeDtypeStruct((2 * size, size), dtype), jax.ShapeDtypeStruct((ROWS, size), dtype)]
    options: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": triton(warps)}
    both, record = pallas.pallas_call(kernel, out_shape=shapes, **options)((both, means), start, inputs)
    return both[size:], record


def _stacked(gram: Any, means: Any) -> tuple[Any, Any]:
    """G above the identity, and the means padded beside it."""
    size = gram.shape[0]
    return jnp.concatenate([gram, jnp.eye(size, dtype=gram.dtype)]), jnp.pad(means, ((0, 0), (0, size)))


def input_rows(names: Any) -> int:
    """Rows of the inputs' array: a power of two, as a kernel needs."""
    return 1 << (len(names) - 1).bit_length()


def padded_inputs(columns: list[Any], size: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Per-round inputs as (K, size), zeros after the last round (seen = 0, so they teach nothing)."""
    inputs = np.zeros((input_rows(columns), size), dtype=dtype)
    for number, column in enumerate(columns):
        inputs[number, : len(column)] = np.nan_to_num(column)
    return inputs
