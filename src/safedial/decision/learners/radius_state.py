"""What an online learner keeps besides its estimate for tighter radii and learned margins, rounded up.

It is what `core.tighter_radii` keeps for a batch: energies of residuals (`noise-adaptive`), past rounds (margins that
learn the noise). Here every number is a bound that holds whatever rounding did: energies from above.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.confidence import cost_radius_of
from safedial.core.estimate import Prediction
from safedial.core.noise import Rounds
from safedial.core.rounding import UNIT, certify, round_up
from safedial.core.spec import SafetySpec
from safedial.core.tighter_radii import energy, needs_more
from safedial.decision.learners.dual_vector import Factors, certified_dual, factors_of
from safedial.decision.learners.linear_learner import LinearLearner
from safedial.policies import Policy

Array = NDArray[np.float64]

ROWS = 4096
"""Contexts that `read_many` reads at a time."""


def make_radius_state(policy: Policy, dim: int, spec: SafetySpec) -> RadiusState | None:
    """What a policy's radius and a spec's margin need, or None; `spec` is rounded to the safe side."""
    radius = policy.options.get("radius")
    return RadiusState(radius or "mixture", dim, spec) if needs_more(radius, spec) else None


class RadiusState:
    """Energies and past rounds of one learner, and what `self-normalised` solved last."""

    def __init__(self, radius: str, dim: int, spec: SafetySpec) -> None:
        self.radius, self.spec = radius, spec
        self.reward_energy = self.cost_energy = 0.0
        self.rounds = Rounds(dim) if spec.learns_noise else None
        self.factors: Factors | None = None

    def add(self, learner: LinearLearner, seen: Prediction, context: Array, norm: float) -> Prediction:
        """The prediction with what the radius and the margin need."""
        noise, dual = None if self.rounds is None else self.rounds.best, None
        if self.radius == "self-normalised":
            if self.factors is None or not self.factors.fits(learner):
                self.factors = factors_of(learner, self.spec)
            dual = certified_dual(learner, self.factors, context, norm)
        energies = {"reward_energy": self.reward_energy, "cost_energy": self.cost_energy}
        return seen._replace(**energies, noise=noise, dual=dual)

    def learn(self, learner: LinearLearner, context: Array, norm: float, sample: tuple[float, float, float]) -> None:
        """Called before the learner's own update, because residuals use only what was known before the outcome."""
        reward, cost, weight = sample
        if self.radius == "noise-adaptive":
            width, reward_error, cost_error = learner.error(context, norm, reward, cost)
            self.reward_energy += energy(width, reward_error, weight)
            self.cost_energy = round_up(self.cost_energy + energy(width, cost_error, weight))
        if self.rounds is not None:
            self.rounds.append(context, cost)

    def look(self, learner: LinearLearner) -> None:
        """Called after the learner's update: estimate the past noise again if rounds have grown by a tenth."""
        rounds, spec = self.rounds, self.spec
        if rounds is None or not rounds.due:
            return
        contexts = rounds.seen[0]
        lower, upper, width = read_many(learner, contexts)
        here = Prediction(0.0, 0.0, 0.0, 0.0, learner.log_det, float(learner.samples), learner.dim)
        half = round_up(cost_radius_of(self.radius, here._replace(cost_energy=self.cost_energy), spec)) * width
        largest = spec.coefficient_bound * learner.norm_error * np.linalg.norm(contexts, axis=1)
        rounds.look(spec, np.maximum(lower - half, -largest), np.minimum(upper + half, largest))

    def state(self) -> dict[str, Array]:
        """The arrays to save."""
        arrays = {"energies": np.array([self.reward_energy, self.cost_energy])}
        if self.rounds is not None:
            arrays["seen_contexts"], arrays["seen_costs"] = self.rounds.seen
            arrays["seen_noise"] = np.array([self.rounds.best, self.rounds.next_look])
        return arrays

    def restore(self, arrays: dict[str, Any]) -> None:
        self.factors = None
        self.reward_energy, self.cost_energy = (float(value) for value in arrays["energies"])
        if self.rounds is not None:
            self.rounds = Rounds(self.rounds.dim)
            for context, cost in zip(arrays["seen_contexts"], arrays["seen_costs"], strict=True):
                self.rounds.append(context, float(cost))
            best, following = arrays["seen_noise"].tolist()
            self.rounds.best, self.rounds.next_look = best, int(following)


def read_many(learner: LinearLearner, contexts: Array) -> tuple[Array, Array, Array]:
    """(lower and upper bound on ⟨x,μ̂⟩, upper bound on the width) of many contexts, (n, d)."""
    learner.apply_pending()
    inverse, gram = (np.tril(matrix) + np.tril(matrix, -1).T for matrix in (learner.inverse, learner.gram))
    parts = [_read_rows(learner, contexts[at : at + ROWS], inverse, gram) for at in range(0, len(contexts), ROWS)]
    lower, upper, width = (np.concatenate(column) for column in zip(*parts, strict=True))
    return lower, upper, width


def _read_rows(learner: LinearLearner, contexts: Array, inverse: Array, gram: Array) -> tuple[Array, Array, Array]:
    directions = contexts @ inverse
    residuals = contexts - directions @ gram
    means = directions @ learner.cost_rhs
    width, slack, _ = certify(
        learner.ridge,
        learner.terms,
        quadratic=np.vecdot(contexts, directions),
        direction_residual=np.vecdot(directions, residuals),
        residual_norm=np.linalg.norm(residuals, axis=1),  # pyright: ignore[reportArgumentType] -- arrays, as xp = NumPy
        context_norm=np.linalg.norm(contexts, axis=1),  # pyright: ignore[reportArgumentType]
        direction_norm=np.linalg.norm(directions, axis=1),  # pyright: ignore[reportArgumentType]
        scale_direction=np.abs(directions) @ learner.scale,  # pyright: ignore[reportArgumentType]
        scale_norm=learner.scale_norm,
        target_norm=math.sqrt(learner.cost_squares),
        xp=np,
    )
    room = 32.0 * UNIT * np.abs(means) + slack
    return means - room, means + room, np.asarray(width)
