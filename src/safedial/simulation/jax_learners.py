"""The linear learner as sums of products, for compiled programs: with seeds on the last axis, or on the first.

With seeds last, contexts are (d, ...) and Σ⁻¹ is (d, d, ...). Sums over d are then sums of whole vectors of seeds,
which a compiler turns into vector instructions; many small matrix products it does not. A GPU's kernel has seeds first,
or every number of Σ⁻¹ apart (`packed`).
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import jax.numpy as jnp

from safedial.core.estimate import Dual, Estimate, Prediction
from safedial.core.self_normalised import LEAST, multipliers
from safedial.core.spec import SafetySpec
from safedial.core.tighter_radii import Learner


def linear(dim: int, *, seeds_last: bool) -> Learner:
    """The learner of `core.estimate` in either layout. Products with Σ⁻¹, which is symmetric, are sums over its first
    axis, so that a GPU's thread adds numbers of its own.
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

    def predict(state: Estimate, context: Any) -> Prediction:
        direction = jnp.sum(state.inverse * column(context), axis=across)
        squared = jnp.sum(context * direction, axis=over)
        return Prediction(
            reward=jnp.sum(context * state.reward_coef, axis=over),
            cost=jnp.sum(context * state.cost_coef, axis=over),
            width=jnp.sqrt(jnp.maximum(squared, 0.0)),
            norm=jnp.sqrt(jnp.sum(context * context, axis=over)),
            log_det=state.log_det,
            informative_rounds=state.informative_rounds,
            dim=dim,
            direction=direction,
        )

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

    return Learner(init, predict, update)


def packed_place(i: int, j: int) -> int:
    """Where `packed` has number (i, j) of Σ⁻¹, which is symmetric."""
    return max(i, j) * (max(i, j) + 1) // 2 + min(i, j)


def packed(dim: int) -> Learner:
    """The learner of `core.estimate` for a context of d arrays, and an `Estimate` of tuples of them: of Σ⁻¹ the d(d +
    1)/2 below and on its diagonal, by rows. It begins from an estimate in another layout.
    """

    def dot(left: Any, right: Any) -> Any:
        return functools.reduce(operator.add, map(operator.mul, left, right))

    def predict(state: Estimate, context: Any) -> Prediction:
        rows = ((state.inverse[packed_place(i, j)] for j in range(dim)) for i in range(dim))
        direction = tuple(dot(row, context) for row in rows)
        return Prediction(
            reward=dot(context, state.reward_coef),
            cost=dot(context, state.cost_coef),
            width=jnp.sqrt(jnp.maximum(dot(context, direction), 0.0)),
            norm=jnp.sqrt(dot(context, context)),
            log_det=state.log_det,
            informative_rounds=state.informative_rounds,
            dim=dim,
            direction=direction,
        )

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

    return Learner(None, predict, update)


class Solved(NamedTuple):
    """An estimate, b = Σμ̂, and for every a of the radius `self-normalised` D⁻¹, (a, d, d, ...), and D⁻¹μ̂."""

    estimate: Estimate
    target: Any
    solved: Any
    back: Any


def self_normalised(dim: int, spec: SafetySpec) -> Learner:
    """The learner of the radius `self-normalised` (`core.self_normalised`), seeds last.

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

    def predict(state: Solved, context: Any) -> Prediction:
        now, seen = state.estimate, plain.predict(state.estimate, context)
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

    return Learner(init, predict, update)


def in_layout(radius: Any, dim: int, spec: SafetySpec) -> Learner:
    """The learner of a scan with seeds last."""
    return self_normalised(dim, spec) if radius == "self-normalised" else linear(dim, seeds_last=True)
