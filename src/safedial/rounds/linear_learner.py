"""The online linear learner: in-place BLAS, and bounds that hold whatever rounding did.

It keeps the accumulators Σ (`gram`) and b (`reward_rhs`, `cost_rhs`) and a maintained Σ⁻¹ (`inverse`). A direction y =
inverse·x is only a proposal: its residual against `gram` decides what may be claimed (bounds.rounding). The matrices
are symmetric and stored as lower triangles in column order, so that a symmetric product reads half the memory. At high
dimension the last few samples wait and are applied together (`Pending`). What was certified for a context is kept until
the next sample, since an update mostly follows the decision for the same context.

A rank-one update reads and writes all of Σ and Σ⁻¹ for each sample. Instead the last k samples wait as columns,

    rows R = [√ω x, …]        moves W = [√(ω/(1 + ω·width²)) y, …]        y the direction of each sample at its time

and the full matrices follow from them (Sherman–Morrison, one sample after the other):

    Σ = gram + RRᵀ            Σ⁻¹ = inverse − WWᵀ

A product with either costs 4dk more flops. When k reaches `ROOM`, `syrk` applies all samples at once. Residuals are
taken against the full Σ, so what bounds.rounding certifies still holds: the waiting samples are among the N products
that its bound counts.

For the radius `self-normalised` any vector w is valid, so only the three numbers of its bound are certified.

For tighter radii and learned margins it keeps, besides its estimate, what `bounds.radii` keeps for a batch: energies of
residuals (`noise-adaptive`), past rounds (margins that learn the noise). Here every number is a bound that holds
whatever rounding did: energies from above.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from safedial.bounds.choice import Choice
from safedial.bounds.confidence import cost_radius_of, reward_radius_of
from safedial.bounds.estimate import Dual, Prediction
from safedial.bounds.margin import Rounds
from safedial.bounds.radii import LEAST, energy, multipliers, needs_more
from safedial.bounds.rounding import UNIT, certify, certify_dual, round_up
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.policies.baselines import fixed
from safedial.rounds import linear_terms
from safedial.rounds.learner import Learner, Residuals
from safedial.rounds.outcome import Sample
from safedial.rounds.rules import Rules, longest_context

_BLAS: Any = get_blas_funcs(("axpy", "dot", "nrm2", "symv", "syr"), dtype=np.float64)
_LAPACK: Any = get_lapack_funcs(("posv", "potrf", "potri", "potrs"), dtype=np.float64)

daxpy, ddot, dnrm2, dsymv, dsyr = _BLAS
dposv, dpotrf, dpotri, dpotrs = _LAPACK

STRIPE = 256


def copy_lower_to_upper(source: NDArray[np.float64], target: NDArray[np.float64]) -> None:
    """Copy the lower triangle of `source`, with its diagonal, to the upper triangle of `target`, stripe by stripe."""
    for start in range(0, len(source), STRIPE):
        stop = start + STRIPE
        target[start:stop, stop:] = source[stop:, start:stop].T
        corner = target[start:stop, start:stop]
        upper = np.tri(len(corner), dtype=bool).T
        np.copyto(corner, source[start:stop, start:stop].T, where=upper)


# --- A warning for dials whose lowest level may be out of reach


def warn_where_no_level_is_reached(rules: Rules) -> None:
    """Warn if levels may keep an agent at zero for ever: without a dose there is nothing to learn from."""
    if not rules.dial.levels:
        return
    longest = longest_context(rules.dim, rules.spec.context_bound)
    first = Prediction(0.0, 0.0, 0.0, rules.spec.context_bound, 0.0, 0.0, rules.dim, context=longest)
    safe = fixed().decide(first, rules.spec, round=1.0, coin=0.5).safe.intensity
    lowest = next(level for level in rules.dial.levels if level > rules.dial.low or level == rules.dial.levels[-1])
    needed = float(rules.dose.cost.effect(rules.dial.action(lowest)))
    if safe < needed:
        warnings.warn(
            f"the lowest level, {rules.dial.text(lowest)}, has intensity {needed:.3g}; at contexts of norm L the first "
            f"safe intensity is {safe:.3g}. Such rounds get no dose and teach nothing; unless shorter contexts come, "
            "the agent stays at zero. A lower level, a higher threshold or less noise would help",
            UserWarning,
            stacklevel=5,
        )


# --- Samples that wait before they are added to a learner's two matrices

ROOM, FROM_DIM = 16, 1024
"""How many samples may wait, and from which dimension on. Below it the matrices fit the cache, and waiting gains
nothing. With more samples, the update that applies them would take longer than the others save."""

_MATRIX_BLAS: Any = get_blas_funcs(("gemv", "syrk"), dtype=np.float64)
dgemv, dsyrk = _MATRIX_BLAS


class Pending:
    """The waiting columns; `count` of them are in use."""

    def __init__(self, dim: int) -> None:
        self.room = ROOM if dim >= FROM_DIM else 0
        self.rows, self.moves = (np.zeros((dim, self.room), order="F") for _ in range(2))
        self.count = 0

    def add(self, row: Array, move: Array) -> None:
        self.rows[:, self.count], self.moves[:, self.count] = row, move
        self.count += 1

    def less_moves(self, vector: Array, product: Array) -> Array:
        """inverse·vector − WWᵀ·vector, in place of `product`, its first term."""
        return _corrected(self.moves[:, : self.count], vector, product)

    def less_rows(self, vector: Array, residual: Array) -> Array:
        """x − gram·vector − RRᵀ·vector, in place of `residual`, its first two terms."""
        return _corrected(self.rows[:, : self.count], vector, residual)

    def apply(self, gram: Array, inverse: Array) -> None:
        """Add all waiting samples to the lower triangles of both matrices, in place."""
        if self.count:
            dsyrk(1.0, self.rows[:, : self.count], beta=1.0, c=gram, lower=1, overwrite_c=1)
            dsyrk(-1.0, self.moves[:, : self.count], beta=1.0, c=inverse, lower=1, overwrite_c=1)
            self.count = 0

    def add_to_diagonal(self, diagonal: Array) -> None:
        """Turn the diagonal of `gram` into that of Σ by adding the waiting samples one by one."""
        for row in self.rows.T[: self.count]:
            diagonal += row * row

    def state(self) -> dict[str, Array]:
        """The columns in use, to save; empty if samples never wait."""
        if self.room == 0:
            return {}
        return {"pending_rows": self.rows[:, : self.count], "pending_moves": self.moves[:, : self.count]}

    def restore(self, arrays: dict[str, Any]) -> None:
        rows = arrays.get("pending_rows")
        self.count = 0 if rows is None else rows.shape[1]
        if rows is not None:
            self.rows[:, : self.count], self.moves[:, : self.count] = rows, arrays["pending_moves"]


def _corrected(columns: Array, vector: Array, target: Array) -> Array:
    return dgemv(-1.0, columns, dgemv(1.0, columns, vector, trans=1), beta=1.0, y=target, overwrite_y=1)


# --- The online linear learner: in-place BLAS, and bounds that hold whatever rounding did

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

        `bounds.confidence.bound` detects data below what the stated norms allow; the clip would hide data above it.
        While the confidence set holds, either refutes ‖μ*‖ ≤ S.
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


# --- The bound of the radius `self-normalised` online


class Factors(NamedTuple):
    """What the vector w needs besides the context: Gμ̂ and, for each a, (a, the Cholesky factor of D, D⁻¹μ̂, the root).

    They change only with the learner's sums, whose numbers of `samples` and `revisions` they carry.
    """

    samples: int
    revisions: int
    unshrunk: Array
    solved: list[tuple[float, Array, Array, float]]

    def fits(self, learner: LinearLearner) -> bool:
        return self.samples == learner.samples and self.revisions == learner.revisions


def factors_of(learner: LinearLearner, spec: SafetySpec) -> Factors:
    """The factors, with GΣ⁻¹G = Σ − 2λI + λ²Σ⁻¹, for each a whose D is not numerically singular."""
    ridge, coef, rhs = learner.ridge, learner.coef("cost"), learner.cost_rhs
    volume, bound = spec.cost_noise**2 * (learner.log_det + 2.0 * spec.log_inverse_risk), spec.coefficient_bound**2
    matrix = learner.gram + ridge * ridge * learner.inverse
    diagonal = matrix.T.reshape(-1)[:: learner.dim + 1]
    diagonal -= 2.0 * ridge
    solved, before = [], 0.0
    for a in multipliers(spec):
        diagonal += a - before
        before = a
        factor, shrunk, failed = dposv(matrix, coef, lower=1)
        if not failed:
            root = math.sqrt(max(volume + a * (bound - ddot(rhs, shrunk)), LEAST * volume))
            solved.append((a, factor, shrunk, root))
    return Factors(learner.samples, learner.revisions, rhs - ridge * coef, solved)


def certified_dual(learner: LinearLearner, factors: Factors, context: Array, norm: float) -> Dual:
    """Upper bounds on ⟨w,b⟩ of the cost, ‖w‖_Σ and ‖x − Gw‖ (`bounds.rounding`), with G = Σ − λI."""
    w = _vector(learner, factors, context)
    residual = learner.residual(context, w)
    numbers = certify_dual(
        learner.ridge,
        learner.terms,
        cost=ddot(w, learner.cost_rhs),
        squared=ddot(w, context - residual),
        miss=dnrm2(residual + learner.ridge * w),
        context_norm=norm,
        direction_norm=dnrm2(w),
        scale_direction=ddot(learner.scale, np.abs(w)),
        scale_norm=learner.scale_norm,
        target_norm=math.sqrt(learner.cost_squares),
    )
    return Dual(*numbers)


def _vector(learner: LinearLearner, factors: Factors, context: Array) -> Array:
    """The vector w of `bounds.radii`; 0 where every D is numerically singular."""
    lowest, best = math.inf, None
    for a, factor, shrunk, root in factors.solved:
        turned, _ = dpotrs(factor, context, lower=1)
        width = math.sqrt(max(ddot(context, turned), 0.0))
        upper = ddot(factors.unshrunk, turned) + root * width
        if upper < lowest:
            lowest, best = upper, (turned, a * width / root, shrunk)
    if best is None:
        return np.zeros(learner.dim)
    turned, share, shrunk = best
    return turned - learner.ridge * learner.direction(turned) - share * shrunk


# --- What an online learner keeps besides its estimate for tighter radii and learned margins

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
