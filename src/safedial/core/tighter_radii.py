"""The linear estimate, and what the tighter radii and the learned margins need besides.

| needed by | kept | meaning |
|---|---|---|
| `noise-adaptive` | `reward_energy`, `cost_energy` | Σ ω²width²/(1 + ω·width²)·(y − ⟨x,θ̂⟩)², from before each update |
| `self-normalised` | nothing | its bound follows from the estimate (`core.self_normalised`) |
| margins that learn | `rounds` | contexts and costs, to estimate past noise now and then (`core.noise`) |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.core import estimate as plain
from safedial.core.confidence import cost_radius_of
from safedial.core.estimate import Estimate, Prediction
from safedial.core.noise import Rounds
from safedial.core.self_normalised import dual_of
from safedial.core.spec import SafetySpec


class Tight(NamedTuple):
    """An estimate, and the parts above that are needed."""

    estimate: Estimate
    reward_energy: Any
    cost_energy: Any
    rounds: Rounds | None


class Learner(NamedTuple):
    """How a policy learns: init(dim, ridge, batch), predict(state, context), update(state, prediction, R/g, C/g, ω)."""

    init: Any
    predict: Any
    update: Any


PLAIN = Learner(plain.init, plain.predict, plain.update)


def needs_more(radius: str | None, spec: SafetySpec) -> bool:
    """Whether a radius and a spec's margin need more than the plain estimate."""
    return radius in ("self-normalised", "noise-adaptive") or spec.learns_noise


def learner(radius: str | None, spec: SafetySpec) -> Learner:
    """The learner that a radius and a spec's margin need; its bounds on past noise are those of this spec."""
    if not needs_more(radius, spec):
        return PLAIN
    chosen = radius or "mixture"

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = ()) -> Tight:
        rounds = Rounds(dim, batch) if spec.learns_noise else None
        return Tight(plain.init(dim, ridge=ridge, batch=batch), np.zeros(batch), np.zeros(batch), rounds)

    def predict(state: Tight, context: Any) -> Prediction:
        seen = plain.predict(state.estimate, context)._replace(
            context=context,
            reward_energy=state.reward_energy,
            cost_energy=state.cost_energy,
            noise=state.rounds.best if state.rounds else None,
        )
        return seen._replace(dual=dual_of(state.estimate, seen, spec)) if radius == "self-normalised" else seen

    def update(state: Tight, prediction: Prediction, reward: Any, cost: Any, weight: Any) -> Tight:
        after = Tight(
            plain.update(state.estimate, prediction, reward, cost, weight),
            state.reward_energy + energy(prediction.width, reward - prediction.reward, weight),
            state.cost_energy + energy(prediction.width, cost - prediction.cost, weight),
            state.rounds,
        )
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
