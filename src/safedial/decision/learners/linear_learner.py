"""The online linear learner: in-place BLAS, and bounds that hold whatever rounding did.

It keeps the accumulators Σ (`gram`) and b (`reward_rhs`, `cost_rhs`) and a maintained Σ⁻¹ (`inverse`). A direction
y = inverse·x is only a proposal: its residual against `gram` decides what may be claimed (core.rounding). The matrices
are symmetric and stored as lower triangles in column order, so that a symmetric product reads half the memory. At high
dimension the last few samples wait and are applied together (`pending_samples`). What was certified for a context is
kept until the next sample, since an update mostly follows the decision for the same context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.confidence import cost_radius_of, reward_radius_of
from safedial.core.estimate import Prediction
from safedial.core.rounding import UNIT, certify, round_up
from safedial.decision.certificates import linear_terms
from safedial.decision.learners.blas import copy_lower_to_upper, daxpy, ddot, dnrm2, dpotrf, dpotri, dsymv, dsyr
from safedial.decision.learners.level_warning import warn_where_no_level_is_reached
from safedial.decision.learners.pending_samples import Pending
from safedial.decision.learners.protocol import Learner, Residuals
from safedial.decision.outcome import Sample

if TYPE_CHECKING:
    from safedial.decision.learners.radius_state import RadiusState
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]

REFINE_ABOVE, REBUILD_ABOVE = 1e-7, 1e-2
"""A relative residual above the first triggers one step of refinement; above the second, a new inverse before the next
update, so that errors do not build up."""

REBUILD_ROUNDS, REBUILD_DIMS = 4096, 64
"""The inverse is recomputed from `gram` every max(REBUILD_ROUNDS, REBUILD_DIMS·d) samples. The schedule is fixed, so
that the state depends only on the data; the cubic cost is spread over many quadratic updates."""


class LinearLearner(Learner):
    """Ridge regression of reward and cost on shared contexts. `extras` keeps what tighter bounds need;
    `coefficient_bound` is the stated S, which the data may refute.
    """

    certificate_terms = linear_terms
    fixed_assumptions: Any = staticmethod(linear_terms.assumptions)
    kept_through = ("threshold", "fallback_action", "high_fallback", "guard")

    def __init__(
        self, dim: int, ridge: float, extras: RadiusState | None = None, *, coefficient_bound: float = math.inf
    ) -> None:
        self.dim, self.ridge, self.extras, self.coefficient_bound = dim, ridge, extras, coefficient_bound
        self.gram = np.asfortranarray(np.eye(dim) * ridge)
        self.inverse = np.asfortranarray(np.eye(dim) / ridge)
        self.reward_rhs, self.cost_rhs = np.zeros(dim), np.zeros(dim)
        self.pending = Pending(dim)
        self.samples = self.revisions = 0
        self.norm_error = 1.0 + (dim + 8) * UNIT
        self.log_det = self.reward_squares = self.cost_squares = 0.0
        self.known: tuple[tuple[bytes, float], tuple[float, float, Array, float]] | None = None
        self._refresh_scale()

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        rules = super().started(rules, start_action)
        warn_where_no_level_is_reached(rules)
        return rules

    def read(self, context: Array, norm: float) -> tuple[float, float, float, float]:
        """(reward, cost, width, how far rounding raised the cost) at a context of norm `norm`; cost and width are
        certified upper values. Changes nothing.
        """
        width, slack, direction, _ = self._certified(context, norm)
        cost = ddot(direction, self.cost_rhs)
        own = 32.0 * UNIT * abs(cost)
        return ddot(direction, self.reward_rhs), cost + own + slack, width, 2.0 * (own + slack)

    def predict(self, context: Array, norm: float) -> Prediction:
        """What a decision depends on, with the norm rounded up."""
        seen = self._estimate(context, norm)
        return seen if self.extras is None else self.extras.add(self, seen, context, norm)

    def _estimate(self, context: Array, norm: float) -> Prediction:
        reward, cost, width, slack = self.read(context, norm)
        length, rounds = norm * self.norm_error, float(self.samples)
        return Prediction(reward, cost, width, length, self.log_det, rounds, self.dim, cost_slack=slack)

    def residuals(self, rules: Any, context: Array, norm: float, sample: Sample) -> Residuals | None:
        """The residuals of an outcome. The slack is radius times width, so the policy must have a radius."""
        radius, spec = rules.policy.options.get("radius"), rules.spec
        if radius is None:
            return None
        seen = self.predict(context, norm) if radius == "noise-adaptive" else self._estimate(context, norm)
        share = math.sqrt(sample.weight)
        if radius == "self-normalised":
            slacks = [share * slack for slack in self._noise_slacks(spec, seen, context, norm)]
        else:
            slacks = [each(radius, seen, spec) * (share * seen.width) for each in (reward_radius_of, cost_radius_of)]
        reward, cost = share * (sample.reward - seen.reward), share * (sample.cost - seen.cost)
        return reward, slacks[0], cost, slacks[1], share * seen.cost_slack

    def _noise_slacks(self, spec: Any, seen: Prediction, context: Array, norm: float) -> list[float]:
        """κ√V·width + S·λ‖Σ⁻¹x‖ of both, for μ̂ − μ* = Σ⁻¹(Xᵀξ − λμ*); y is off by at most ‖ρ‖/λ."""
        _, _, direction, error = self._certified(context, norm)
        rest = spec.coefficient_bound * (self.ridge * dnrm2(direction) + error * norm)
        root = math.sqrt(seen.log_det + 2.0 * spec.log_inverse_risk) * seen.width
        return [noise * root + rest for noise in (spec.reward_noise, spec.cost_noise)]

    def view(self, prediction: Prediction, choice: Choice) -> tuple[Prediction, Choice]:
        """Both unchanged, but refuted if even the lowest mean cost in the confidence set, ⟨x,μ̂⟩ − β·width, exceeds
        S‖x‖.

        `core.confidence.bound` detects data below what the stated norms allow; the clip would hide data above it. While
        the confidence set holds, either refutes ‖μ*‖ ≤ S.
        """
        bounds = choice.bounds
        lowest = prediction.cost - prediction.cost_slack - bounds.cost_radius * prediction.width
        if lowest > self.coefficient_bound * prediction.norm:
            choice = choice._replace(bounds=bounds._replace(refuted=True))
        return prediction, choice

    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Learn from an outcome with a positive weight."""
        if sample.weight > 0.0:
            self.update(context, norm, sample.reward, sample.cost, sample.weight)

    @property
    def terms(self) -> int:
        """How many terms Σ and b are sums of, at most: two roundings for each revision."""
        return self.samples + self.dim + 2 * self.revisions

    @classmethod
    def revises(cls, rules: Rules) -> bool:
        """Energies of residuals, and margins that learn the noise, depend on the order in which outcomes came."""
        return rules.policy.options.get("radius") != "noise-adaptive" and not rules.spec.learns_noise

    def revise(self, context: Array, before: Sample, after: Sample) -> None:
        """Σ stays; b changes by ω(y′ − y)x. With it goes what bounds its rounding: one more term in its sum, and, by
        the triangle inequality, a larger norm of the targets.
        """
        weight, self.known = after.weight, None
        reward, cost = after.reward - before.reward, after.cost - before.cost
        daxpy(context, self.reward_rhs, a=weight * reward)
        daxpy(context, self.cost_rhs, a=weight * cost)
        share = math.sqrt(weight)
        self.reward_squares = round_up((math.sqrt(self.reward_squares) + share * abs(reward)) ** 2)
        self.cost_squares = round_up((math.sqrt(self.cost_squares) + share * abs(cost)) ** 2)
        self.revisions += 1

    def coef(self, target: str) -> Array:
        """The least-squares estimate of "reward" or "cost"."""
        return self.direction(self.reward_rhs if target == "reward" else self.cost_rhs)

    def update(self, context: Array, norm: float, reward: float, cost: float, weight: float) -> None:
        """Learn from one normalised sample with weight ω > 0."""
        width, _, direction, error = self._certified(context, norm)
        if error > REBUILD_ABOVE:
            self.rebuild()
            width, _, direction, _ = self._certified(context, norm)
        if self.extras is not None:
            self.extras.learn(self, context, norm, (reward, cost, weight))
        gained = weight * width * width
        self._add(context, direction, weight, weight / (1.0 + gained))
        daxpy(context, self.reward_rhs, a=weight * reward)
        daxpy(context, self.cost_rhs, a=weight * cost)
        self.reward_squares += weight * reward * reward
        self.cost_squares += weight * cost * cost
        self.log_det = round_up(self.log_det + math.log1p(gained))
        self.samples += 1
        if self.samples % max(REBUILD_ROUNDS, REBUILD_DIMS * self.dim) == 0:
            self.rebuild()
        if self.extras is not None:
            self.extras.look(self)

    def error(self, context: Array, norm: float, reward: float, cost: float) -> tuple[float, float, float]:
        """(width, |R/g − ⟨x,θ̂⟩|, |C/g − ⟨x,μ̂⟩|) before an update; the first and the last are upper bounds."""
        width, slack, direction, _ = self._certified(context, norm)
        mean = ddot(direction, self.cost_rhs)
        miss = abs(cost - mean) + slack + 32.0 * UNIT * (abs(mean) + abs(cost))
        return width, abs(reward - ddot(direction, self.reward_rhs)), miss

    def rounding(self, context: Array, norm: float) -> float:
        """How far rounding may move a prediction's numbers at a context, on this or another processor: the slack of a
        mean whose outcomes have the larger of the two targets' norms, and at least norm 1.
        """
        largest = math.sqrt(max(1.0, self.reward_squares, self.cost_squares))
        return self._bounds(context, norm, self._certified(context, norm)[2], largest)[1]

    def reread(self, rules: Rules, values: Mapping[str, Any], context: Array, norm: float) -> Prediction:
        return self.read_written(rules, values)._replace(cost_slack=self.predict(context, norm).cost_slack)

    def _add(self, context: Array, direction: Array, weight: float, gain: float) -> None:
        """Σ += weight·xxᵀ and Σ⁻¹ −= gain·yyᵀ, at once or when enough samples wait."""
        self.known, pending = None, self.pending
        if not pending.room:
            dsyr(-gain, direction, a=self.inverse, overwrite_a=1, lower=1)
            dsyr(weight, context, a=self.gram, overwrite_a=1, lower=1)
            self._refresh_scale()
            return
        row = math.sqrt(weight) * context
        pending.add(row, math.sqrt(gain) * direction)
        if pending.count == pending.room:
            self.apply_pending()
        else:
            self.diagonal += row * row
            self._set_scale()

    def apply_pending(self) -> None:
        self.pending.apply(self.gram, self.inverse)
        self._refresh_scale()

    def rebuild(self) -> None:
        """Recompute Σ⁻¹ from Σ by Cholesky; keep the old one if Σ is numerically singular.

        Σ is factored and inverted in the unused upper triangle of `inverse`, which saves a third matrix; only the
        diagonal, which both triangles share, is set aside.
        """
        self.known = None
        if self.pending.count:
            self.apply_pending()
        diagonal = self.inverse.diagonal().copy()
        copy_lower_to_upper(self.gram, self.inverse)
        _, failed = dpotrf(self.inverse, lower=0, clean=0, overwrite_a=1)
        if not failed:
            _, failed = dpotri(self.inverse, lower=0, overwrite_c=1)
        if not failed and np.isfinite(self.inverse[0, -1]):
            copy_lower_to_upper(self.inverse.T, self.inverse.T)
        else:
            np.fill_diagonal(self.inverse, diagonal)

    def _certified(self, context: Array, norm: float) -> tuple[float, float, Array, float]:
        """(width, slack of the mean cost, direction, relative residual), repaired if the residual is large."""
        known, same = self.known, (context.tobytes(), norm)
        if known is not None and known[0] == same:
            return known[1]
        direction = self.direction(context)
        width, slack, error = self._bounds(context, norm, direction, math.sqrt(self.cost_squares))
        found = (width, slack, direction, error) if error <= REFINE_ABOVE else self._repaired(context, norm, direction)
        self.known = same, found
        return found

    def direction(self, vector: Array) -> Array:
        """inverse·vector, waiting samples included."""
        product = dsymv(1.0, self.inverse, vector, lower=1)
        return self.pending.less_moves(vector, product) if self.pending.count else product

    def residual(self, context: Array, direction: Array) -> Array:
        """x − Σy, waiting samples included."""
        residual = dsymv(-1.0, self.gram, direction, beta=1.0, y=context, lower=1)
        return self.pending.less_rows(direction, residual) if self.pending.count else residual

    def _repaired(self, context: Array, norm: float, direction: Array) -> tuple[float, float, Array, float]:
        """The best of three directions: the given one, one step of refinement, and 0, which is as good as no data.

        A direction that is not finite has a NaN residual, and loses to 0.
        """
        residual = self.residual(context, direction)
        proposals = (np.zeros(self.dim), direction, direction + self.direction(residual))
        best = (math.inf, math.inf, proposals[0], math.inf)
        for proposal in proposals:
            width, slack, error = self._bounds(context, norm, proposal, math.sqrt(self.cost_squares))
            if error < best[3]:
                best = width, slack, proposal, error
        return best

    def _bounds(self, context: Array, norm: float, direction: Array, targets: float) -> tuple[float, float, float]:
        residual = self.residual(context, direction)
        return certify(
            self.ridge,
            self.terms,
            quadratic=ddot(context, direction),
            direction_residual=ddot(direction, residual),
            residual_norm=dnrm2(residual),
            context_norm=norm,
            direction_norm=dnrm2(direction),
            scale_direction=ddot(self.scale, np.abs(direction)),
            scale_norm=self.scale_norm,
            target_norm=targets,
        )

    def _refresh_scale(self) -> None:
        self.diagonal: Array = self.gram.diagonal().copy()
        if self.pending.count:
            self.pending.add_to_diagonal(self.diagonal)
        self._set_scale()

    def _set_scale(self) -> None:
        self.scale: Array = np.sqrt(self.diagonal)
        self.scale_norm: float = dnrm2(self.scale)

    def state(self) -> dict[str, Array]:
        """The arrays to save; `restore` reads them bit for bit."""
        scalars = np.array([self.samples, self.revisions, self.log_det, self.reward_squares, self.cost_squares])
        return {
            "gram": self.gram,
            "inverse": self.inverse,
            "reward_rhs": self.reward_rhs,
            "cost_rhs": self.cost_rhs,
            "scalars": scalars,
            **self.pending.state(),
            **(self.extras.state() if self.extras is not None else {}),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        self.gram, self.inverse = np.asfortranarray(arrays["gram"]), np.asfortranarray(arrays["inverse"])
        self.reward_rhs, self.cost_rhs = arrays["reward_rhs"].copy(), arrays["cost_rhs"].copy()
        samples, revisions, self.log_det, self.reward_squares, self.cost_squares = arrays["scalars"].tolist()
        self.samples, self.revisions = int(samples), int(revisions)
        self.known = None
        self.pending.restore(arrays)
        if self.extras is not None:
            self.extras.restore(arrays)
        self._refresh_scale()
