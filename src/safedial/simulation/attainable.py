"""The attainable reward: that of a policy which knows the cost exactly and learns only the sign of the reward.

Nobody can earn the whole of the clairvoyant's reward, because the sign of the reward must be learned; this much is lost
however sharp the bound on the cost. R/g does not depend on the dose, and a vanishing dose teaches as much as a full
one. So the learner here sees every round of a simulation, on the same random numbers, whatever the policy did. It
estimates the reward by ridge regression with λ = d·κ_r²/S², the best one for coefficients of norm S whose direction is
unknown, and takes the exact clairvoyant's intensity where its estimate is ≥ 0, else none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec, as_columns, check_grids
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.world import Array, Exposure, World, generators

LEAST_BLOCK = 16
"""Rounds in a block, or d if that is more. Estimates do not depend on it, up to rounding."""

LEAST_RIDGE = 1e-6
"""λ/L² is at least this, so that with hardly any noise nothing is singular."""


class RewardLearner:
    """Ridge regression of R/g on the context, all seeds at once.

    A block of rounds needs one Cholesky factor and no loop. Given all rounds before it, with P = Σ⁻¹ and the estimate
    θ̂, its outcomes y at contexts X have in units of the noise the covariance I + XPXᵀ, and PXᵀ with the coefficients,
    whose own is P. In the factor L of both together, with y − Xθ̂ as a further row u: L_ii·u_i is y_i less its estimate
    from all rounds before it, the row of the coefficients times u is the step of θ̂, and their corner is the factor of
    the next P.
    """

    def __init__(self, dim: int, seeds: int, ridge: float) -> None:
        self.block = max(LEAST_BLOCK, dim)
        self.inverse = np.broadcast_to(np.eye(dim) / ridge, (seeds, dim, dim))
        self.coef = np.zeros((seeds, dim))

    def estimates(self, context: Array, outcome: Array) -> Array:
        """Each round's estimate from all rounds before it: contexts (rounds, seeds, d), outcomes (rounds, seeds)."""
        parts = [slice(at, at + self.block) for at in range(0, len(outcome), self.block)]
        return np.concatenate([self._learn(context[part], outcome[part]) for part in parts])

    def _learn(self, context: Array, outcome: Array) -> Array:
        size, (seeds, dim) = len(outcome), self.coef.shape
        rows = np.swapaxes(context, 0, 1)
        spread, before = rows @ self.inverse, (rows @ self.coef[..., None])[..., 0]
        joint = np.zeros((seeds, size + dim + 1, size + dim + 1))
        joint[:, :size, :size] = np.eye(size) + spread @ np.swapaxes(rows, 1, 2)
        joint[:, size:-1, :size] = np.swapaxes(spread, 1, 2)
        joint[:, size:-1, size:-1] = self.inverse
        joint[:, -1, :size] = outcome.T - before
        joint[:, -1, -1] = 1e300
        factor = np.linalg.cholesky(joint)
        step, corner = factor[:, -1, :size], factor[:, size:-1, size:-1]
        self.coef = self.coef + (factor[:, size:-1, :size] @ step[..., None])[..., 0]
        self.inverse = corner @ np.swapaxes(corner, 1, 2)
        found = outcome - (np.diagonal(factor, axis1=1, axis2=2)[:, :size] * step).T
        found[0] = before[:, 0]  # exactly 0 in the first round of all, which rounding must not turn into a refusal
        return found


def attainable_curve(
    world: World,
    spec: SafetySpec,
    *,
    checkpoints: NDArray[np.int64],
    seeds: list[int],
    dose: Dose,
    chunk: int,
    context: Array | None = None,
) -> Array | None:
    """The attainable reward up to each checkpoint, (checkpoint, spec row, seed), its random numbers drawn again; the
    contexts, (rounds, seeds, d), if they are not given.

    None where there is none: a mean reward that is not linear, contexts that answer to the policy, or no exact
    clairvoyant (sensor noise, a noise scale, a guarantee for all rounds together).
    """
    world = world.under(spec)
    linear = isinstance(world, LinearWorld) and world.mean == "linear" and not world.is_own and not world.adversarial
    plain = not (spec.noise_scale or spec.reward_sensor_noise or spec.cost_sensor_noise)
    if not (linear and plain and GUARANTEES[spec.guarantee].each_round):
        return None
    columns, rngs = as_columns(spec), generators(seeds, ("truth", "context", "reward_noise"))
    truth = world.draw_truth(spec, rngs)
    ridge = world.dim * (spec.reward_noise / spec.coefficient_bound) ** 2
    learner = RewardLearner(world.dim, len(seeds), max(ridge, LEAST_RIDGE * spec.context_bound**2))
    total, curve = np.zeros((check_grids(spec, several=True), len(seeds))), []
    for done in range(0, int(checkpoints[-1]), chunk):
        size = min(chunk, int(checkpoints[-1]) - done)
        if context is None:
            seen = np.ascontiguousarray(np.swapaxes(world.draw_contexts(columns, rngs, size, done), 0, 1))
        else:
            seen = context[done : done + size]
        noise = np.swapaxes(world.draw_noise("reward_noise", columns, rngs, size), 0, 1)
        reward, cost = world.means(columns, truth, seen)
        nothing = np.zeros(reward.shape)[:, None]
        exposure = Exposure(seen[:, None], reward[:, None], cost[:, None], *[nothing] * 6)
        best: Any = world.exact_intensity(columns, exposure)
        wanted = learner.estimates(seen, reward + noise * world.noise_scale(columns, seen)) >= 0.0
        gain = dose.reward.effect(dose.cost.action(np.where(wanted[:, None], best, 0.0)))
        running = total + np.cumsum(gain * reward[:, None], axis=0)
        total = running[-1]
        marks = checkpoints[(checkpoints > done) & (checkpoints <= done + len(running))] - done
        curve.append(running[marks - 1])
    return np.concatenate(curve)
