"""The linear estimate as sums of products, for compiled programs: with seeds on the last axis, or on the first.

With seeds last, contexts are (d, ...) and Σ⁻¹ is (d, d, ...). Sums over d are then sums of whole vectors of seeds,
which a compiler turns into vector instructions; many small matrix products it does not. A GPU's kernel has seeds first,
or every number of Σ⁻¹ apart (`packed`).

All rounds of a chunk in one fused kernel for a GPU: Σ⁻¹ stays in registers from the first round to the last.

A compiled scan reads and writes Σ⁻¹ of every seed in every round, d² numbers each way, and that is what it waits for.
Here Σ⁻¹, θ̂ and μ̂ are read before the first round and written after the last; a round reads d + 4 numbers and writes
two. The rule is the policy's own, as in the scan.

If there are many seeds, and a thread's registers hold half of Σ⁻¹, which is symmetric, every thread has a seed
(`_lanes`), and no sum needs two threads. Otherwise a warp has a few seeds (`_shared`), and contexts and estimates are
filled up with zeros to a power of two, which a kernel's arrays must have.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas

from safedial.bounds.confidence import LEAST, multipliers
from safedial.bounds.estimate import Dual, Estimate, Prediction
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.policies.linear import LinearState
from safedial.simulation.jax_device import triton
from safedial.simulation.rule import Rule, with_numbers
from safedial.simulation.world import Exposure


class Layout(NamedTuple):
    """An arithmetic of the linear policies (`policies.estimates`) in another layout, and the norm of contexts there."""

    norm: Callable[[Any], Any]
    init: Any
    predict: Any
    update: Any
    one_lane = False


def linear(dim: int, *, seeds_last: bool) -> Layout:
    """`bounds.estimate` in either layout. Products with Σ⁻¹, which is symmetric, are sums over its first axis, so that
    a GPU's thread adds numbers of its own.
    """
    over, across = (0, 0) if seeds_last else (-1, -2)

    def wide(number: Any) -> Any:
        return number if seeds_last else number[..., None]

    def row(vector: Any) -> Any:
        return vector[None] if seeds_last else vector[..., None, :]

    def column(vector: Any) -> Any:
        return vector[:, None] if seeds_last else vector[..., None]

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...]) -> Estimate:
        """With seeds last."""
        inverse = jnp.eye(dim).reshape(dim, dim, *(1 for _ in batch)) / ridge * jnp.ones(batch)
        return Estimate(inverse, *(jnp.zeros((dim, *batch)) for _ in range(2)), *(jnp.zeros(batch) for _ in range(2)))

    def dot(left: Any, right: Any) -> Any:
        return jnp.sum(left * right, axis=over)

    def predict(state: Estimate, context: Any, norm: Any) -> Prediction:
        direction = jnp.sum(state.inverse * column(context), axis=across)
        return _seen(dot, state, context, norm, direction=direction, dim=dim)

    def update(state: Estimate, seen: Prediction, reward: Any, cost: Any, weight: Any) -> Estimate:
        squared = seen.width * seen.width
        scaled = wide(weight / (1.0 + weight * squared)) * seen.direction
        return Estimate(
            state.inverse - column(scaled) * row(seen.direction),
            state.reward_coef + scaled * wide(reward - seen.reward),
            state.cost_coef + scaled * wide(cost - seen.cost),
            state.log_det + jnp.log1p(weight * squared),
            state.informative_rounds + jnp.where(weight > 0.0, 1.0, 0.0),
        )

    return Layout(partial(_norm, dot), init, predict, update)


def _norm(dot: Callable[[Any, Any], Any], context: Any) -> Any:
    return jnp.sqrt(dot(context, context))


def _seen(dot: Any, state: Estimate, context: Any, norm: Any, *, direction: Any, dim: int) -> Prediction:
    """The prediction in any layout, from its inner product and from Σ⁻¹x."""
    return Prediction(
        reward=dot(context, state.reward_coef),
        cost=dot(context, state.cost_coef),
        width=jnp.sqrt(jnp.maximum(dot(context, direction), 0.0)),
        norm=norm,
        log_det=state.log_det,
        informative_rounds=state.informative_rounds,
        dim=dim,
        direction=direction,
    )


def packed_place(i: int, j: int) -> int:
    """Where `packed` has number (i, j) of Σ⁻¹, which is symmetric."""
    return max(i, j) * (max(i, j) + 1) // 2 + min(i, j)


def packed(dim: int) -> Layout:
    """`bounds.estimate` for a context of d arrays, and an `Estimate` of tuples of them: of Σ⁻¹ the d(d + 1)/2 below and
    on its diagonal, by rows. It begins from an estimate in another layout.
    """

    def dot(left: Any, right: Any) -> Any:
        return functools.reduce(operator.add, map(operator.mul, left, right))

    def predict(state: Estimate, context: Any, norm: Any) -> Prediction:
        rows = ((state.inverse[packed_place(i, j)] for j in range(dim)) for i in range(dim))
        return _seen(dot, state, context, norm, direction=tuple(dot(row, context) for row in rows), dim=dim)

    def update(state: Estimate, seen: Prediction, reward: Any, cost: Any, weight: Any) -> Estimate:
        growth = weight * seen.width * seen.width
        scaled = [weight / (1.0 + growth) * part for part in seen.direction]
        pairs = [(i, j) for i in range(dim) for j in range(i + 1)]

        def moved(coef: Any, miss: Any) -> Any:
            return tuple(old + part * miss for old, part in zip(coef, scaled, strict=True))

        return Estimate(
            tuple(state.inverse[packed_place(i, j)] - scaled[i] * seen.direction[j] for i, j in pairs),
            moved(state.reward_coef, reward - seen.reward),
            moved(state.cost_coef, cost - seen.cost),
            state.log_det + jnp.log1p(growth),
            state.informative_rounds + jnp.where(weight > 0.0, 1.0, 0.0),
        )

    return Layout(partial(_norm, dot), None, predict, update)


class Solved(NamedTuple):
    """An estimate, b = Σμ̂, and for every a of the radius `self-normalised` D⁻¹, (a, d, d, ...), and D⁻¹μ̂."""

    estimate: Estimate
    target: Any
    solved: Any
    back: Any


def self_normalised(dim: int, spec: SafetySpec) -> Layout:
    """The estimate with what is solved for the radius `self-normalised` (`bounds.confidence`), seeds last.

    D = GΣ⁻¹G + aI = Σ − 2λI + λ²Σ⁻¹ + aI, and a round adds ωxxᵀ to Σ and takes a multiple of uuᵀ, u = Σ⁻¹x, from Σ⁻¹.
    So it changes D by two matrices of rank one, and D⁻¹ and D⁻¹μ̂ follow by Sherman and Morrison's formula, where
    NumPy's engine finds the eigenvectors of Σ⁻¹ anew in every round.

    D commutes with Σ, so D⁻¹u = Σ⁻¹D⁻¹x, and G itself is not needed: with f = D⁻¹x and h = D⁻¹μ̂,

        w = f − λΣ⁻¹f − sh      x − Gw = af + sGh      Gh = μ̂ + (λ − a)h − λ²Σ⁻¹h
    """
    plain, ridge = linear(dim, seeds_last=True), spec.ridge
    weights = jnp.stack([jnp.asarray(a) for a in multipliers(spec)])[:, None, None]

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...]) -> Solved:
        estimate = plain.init(dim, ridge=ridge, batch=batch)
        solved = estimate.inverse * ridge / weights[..., None, None]
        return Solved(estimate, estimate.cost_coef, solved, jnp.zeros_like(solved[:, 0]))

    def times(matrices: Any, vector: Any) -> Any:
        return jnp.sum(matrices * vector, axis=-3)

    def along(left: Any, right: Any) -> Any:
        return jnp.sum(left * right, axis=-3)

    def directions(state: Solved, context: Any) -> tuple[Any, Any]:
        """D⁻¹x and Σ⁻¹D⁻¹x for every a; a compiler finds them once for `predict` and `update`."""
        forward = times(state.solved, context)
        return forward, times(state.estimate.inverse, forward[:, None])

    def predict(state: Solved, context: Any, norm: Any) -> Prediction:
        now, seen = state.estimate, plain.predict(state.estimate, context, norm)
        volume = spec.cost_noise**2 * (seen.log_det + 2.0 * spec.log_inverse_risk)
        forward, turned = directions(state, context)
        width = jnp.sqrt(jnp.maximum(along(forward, context), 0.0))
        squared = volume + weights * (spec.coefficient_bound**2 - along(state.back, state.target))
        root = jnp.sqrt(jnp.maximum(squared, LEAST * volume))
        centre = along(forward, state.target - ridge * now.cost_coef)
        best = jnp.argmin(centre + root * width, axis=0) == jnp.arange(len(weights))[:, None, None]
        a, share = (jnp.sum(best * part, axis=0) for part in (weights, weights * width / root))
        f, after_f, h = (jnp.sum(best[:, None] * part, axis=0) for part in (forward, turned, state.back))
        w = f - ridge * after_f - share * h
        miss = a * f + share * (now.cost_coef + (ridge - a) * h - ridge**2 * times(now.inverse, h))
        size = jnp.sqrt(jnp.maximum(along(w, context - miss + ridge * w), 0.0))
        dual = Dual(along(w, state.target), size, jnp.sqrt(along(miss, miss)))
        return seen._replace(context=context, dual=dual)

    def update(state: Solved, seen: Prediction, reward: Any, cost: Any, weight: Any) -> Solved:
        context, turned = seen.context, seen.direction
        forward, backward = directions(state, context)
        gain = weight / (1.0 + weight * seen.width * seen.width)
        added = weight / (1.0 + weight * along(forward, context))
        backward = backward - (added * along(backward, context))[:, None] * forward
        lifted = gain / (1.0 - ridge**2 * gain * along(backward, turned))
        grown = (added[:, None] * forward)[:, :, None] * forward[:, None]
        shrunk = (ridge**2 * lifted[:, None] * backward)[:, :, None] * backward[:, None]
        back = state.back - (added * along(state.back, context))[:, None] * forward
        moved = lifted * (ridge**2 * along(back, turned) + cost - seen.cost)
        return Solved(
            plain.update(state.estimate, seen, reward, cost, weight),
            state.target + weight * cost * context,
            state.solved - grown + shrunk,
            back + moved[:, None] * backward,
        )

    return Layout(plain.norm, init, predict, update)


def in_layout(policy: Policy, dim: int, spec: SafetySpec) -> Layout:
    """The layout of a scan with seeds last."""
    return (
        self_normalised(dim, spec)
        if policy.options.get("radius") == "self-normalised"
        else linear(dim, seeds_last=True)
    )


# --- All rounds of a chunk in one fused kernel for a GPU

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
    layout: Layout
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

    layout, entries = linear(dim, seeds_last=False), 1024 if wide <= 16 else 2048  # of Σ⁻¹ in a warp, the fastest
    return Form(max(1, entries // wide**2), wide, layout, 0, load, store, lambda ref, at: ref[at, :, :])


def play(rule: Rule, state: Estimate, chunk: Any, passed: Any, *, interpret: bool = False) -> Any:
    """(state, told (rounds, 2, 1, seeds)) of a chunk, as the scan of `jax_engine` has them. `passed`: numbers of the
    rule, which a kernel must be given as an array.
    """
    (numbers, given), (leaves, form_of_passed) = chunk, jax.tree.flatten(passed)
    scalars = jnp.stack([numbers[0], *(jnp.reshape(each, ()) for each in leaves)])
    dim, dtype, rounds, seeds = rule.world.dim, state.inverse.dtype, len(numbers), state.log_det.shape[-1]
    registers = dtype.itemsize // 4 * (dim * (dim + 1) // 2 + 3 * dim)
    form = _lanes(dim) if seeds >= MANY and registers <= REGISTERS else _shared(dim)
    rule = rule._replace(batch=form.block)
    names, missing = tuple(name for name in given if name != "context"), -seeds % form.block

    def kernel(fixed: tuple[Any, Any], before: Any, shown: dict[str, Any], after: Any, told: Any) -> None:
        values, contexts = fixed
        held = [values[place] for place in range(len(scalars))]
        first, known = held[0], with_numbers(rule, jax.tree.unflatten(form_of_passed, held[1:]), lambda _: form.layout)

        def body(index: Any, state: Estimate) -> Estimate:
            index = jnp.asarray(index, jnp.int32)
            here = {name: shown[name][index, :] for name in names} | {"context": form.context(contexts, index)}
            now = Exposure(**{name: here.get(name, 0.0) for name in Exposure._fields})
            coin, number = here.get("coin", 0.0), first + index.astype(dtype)
            learning = LinearState(state)
            decided = known.decide(learning, number, now, coin)
            step, intensity = known.learn(learning, 0, now, decided), decided[2].intensity
            flags = sum(jnp.where(flag, float(1 << place), 0.0) for place, flag in enumerate(step[2:]))
            told[index, 0, :] = intensity.astype(dtype)
            told[index, 1, :] = (flags + 0.0 * intensity).astype(dtype)
            return jax.tree.map(lambda part: part.astype(dtype), learning.sums)

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
