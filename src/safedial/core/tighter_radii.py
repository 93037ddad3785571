"""The linear estimate, and what the tighter radii and the learned margins need besides.

| needed by | kept | meaning |
|---|---|---|
| `noise-adaptive` | `reward_energy`, `cost_energy` | Σ ω²width²/(1 + ω·width²)·(y − ⟨x,θ̂⟩)², from before each update |
| `constrained` | `ridges`, `losses`, `loss` | estimates with other ridges a, and the least regularised loss with each |
| `self-normalised` | nothing | its bound follows from the estimate (`core.self_normalised`) |
| margins that learn | `rounds` | contexts and costs, to estimate past noise now and then (`core.noise`) |

The least regularised loss grows by ω(y − ⟨x,μ̂⟩)²/(1 + ω·width²) with each sample and is Σ ωy² − bᵀA_a⁻¹b, so
bᵀ(A_a⁻¹ − Σ⁻¹)b is the loss with λ less the loss with a.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.core import estimate as plain
from safedial.core.confidence import cost_radius_of
from safedial.core.estimate import Estimate, Prediction, Ridges
from safedial.core.namespace import namespace
from safedial.core.noise import Rounds
from safedial.core.self_normalised import dual_of
from safedial.core.spec import SafetySpec

MULTIPLES = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
"""Ridges that `constrained` tries besides λ, in units of κ_c²/S²: where a·S² meets κ²V, 9κ² and more."""


class Tight(NamedTuple):
    """An estimate, and the parts above that are needed."""

    estimate: Estimate
    reward_energy: Any
    cost_energy: Any
    loss: Any
    ridges: Estimate | None
    losses: Any
    rounds: Rounds | None


class Learner(NamedTuple):
    """How a policy learns: init(dim, ridge, batch), predict(state, context), update(state, prediction, R/g, C/g, ω)."""

    init: Any
    predict: Any
    update: Any


PLAIN = Learner(plain.init, plain.predict, plain.update)


def needs_more(radius: str | None, spec: SafetySpec) -> bool:
    """Whether a radius and a spec's margin need more than the plain estimate."""
    return radius in ("constrained", "self-normalised", "noise-adaptive") or spec.learns_noise


def other_ridges(spec: SafetySpec) -> tuple[float, ...]:
    """The ridges a that `constrained` tries, λ first."""
    unit = (spec.cost_noise / spec.coefficient_bound) ** 2
    return (spec.ridge, *(multiple * unit for multiple in MULTIPLES))


def learner(radius: str | None, spec: SafetySpec) -> Learner:
    """The learner that a radius and a spec's margin need; its bounds on past noise are those of this spec."""
    if not needs_more(radius, spec):
        return PLAIN
    chosen = radius or "mixture"
    grid = other_ridges(spec)[1:] if radius == "constrained" else ()

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = ()) -> Tight:
        zeros, wide = np.zeros(batch), (*batch, len(grid))
        ridges = plain.init(dim, ridge=np.array(grid), batch=wide) if grid else None
        rounds = Rounds(dim, batch) if spec.learns_noise else None
        return Tight(plain.init(dim, ridge=ridge, batch=batch), zeros, zeros, zeros, ridges, np.zeros(wide), rounds)

    def predict(state: Tight, context: Any) -> Prediction:
        seen = plain.predict(state.estimate, context)._replace(
            context=context,
            reward_energy=state.reward_energy,
            cost_energy=state.cost_energy,
            noise=state.rounds.best if state.rounds else None,
        )
        if radius == "self-normalised":
            return seen._replace(dual=dual_of(state.estimate, seen, spec))
        if state.ridges is None:
            return seen
        others = plain.predict(state.ridges, context[..., None, :])
        gap = state.loss[..., None] - state.losses
        return seen._replace(ridges=Ridges(np.array(grid), others.cost, others.width, gap, others))

    def update(state: Tight, prediction: Prediction, reward: Any, cost: Any, weight: Any) -> Tight:
        after = _updated(state, prediction, reward, cost, weight)
        if after.rounds is not None:
            after.rounds.append(prediction.context, cost, weight > 0.0)
            if after.rounds.due:
                _look(after, after.rounds, chosen, spec)
        return after

    return Learner(init, predict, update)


def energy(width: Any, error: Any, weight: Any) -> Any:
    """ω²width²/(1 + ω·width²)·error²: what one sample adds to the energy of `noise-adaptive`."""
    leverage = weight * width * width
    return weight * leverage / (1.0 + leverage) * error * error


def _updated(state: Tight, seen: Prediction, reward: Any, cost: Any, weight: Any) -> Tight:
    error = cost - seen.cost
    leverage = weight * seen.width * seen.width
    ridges, losses = state.ridges, state.losses
    if ridges is not None and seen.ridges is not None:
        others, xp = seen.ridges.seen, namespace(seen.width)
        given = [xp.asarray(value)[..., None] for value in (reward, cost, weight)]
        miss = given[1] - others.cost
        losses = losses + given[2] / (1.0 + given[2] * others.width**2) * miss * miss
        ridges = plain.update(ridges, others, *given)
    return Tight(
        plain.update(state.estimate, seen, reward, cost, weight),
        state.reward_energy + energy(seen.width, reward - seen.reward, weight),
        state.cost_energy + energy(seen.width, error, weight),
        state.loss + weight / (1.0 + leverage) * error * error,
        ridges,
        losses,
        state.rounds,
    )


def _look(state: Tight, rounds: Rounds, radius: str, spec: SafetySpec) -> None:
    """Present bounds on the mean costs of all rounds so far, to estimate their noise."""
    contexts, _ = rounds.seen
    now = state.estimate
    mean = np.matmul(contexts, now.cost_coef[..., None])[..., 0]
    width = np.sqrt(np.maximum(np.vecdot(np.matmul(contexts, now.inverse), contexts), 0.0))
    here = Prediction(0.0, 0.0, 0.0, 0.0, now.log_det, now.informative_rounds, contexts.shape[-1])
    half = np.asarray(cost_radius_of(radius, here._replace(cost_energy=state.cost_energy), spec))[..., None] * width
    largest = spec.coefficient_bound * np.sqrt(np.vecdot(contexts, contexts))
    rounds.look(spec, np.maximum(mean - half, -largest), np.minimum(mean + half, largest))
