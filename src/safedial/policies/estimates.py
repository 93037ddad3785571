"""The arithmetics behind the linear policies: how least squares are kept, read at a context, and updated.

Each has the same three functions,

    init(dim, ridge=…, batch=lanes) -> sums    predict(sums, context, norm) -> seen    update(sums, seen, …) -> sums

| arithmetic | lanes | for |
|---|---|---|
| `Plain` | any | simulations: Σ⁻¹ by Sherman and Morrison's formula, and functional, so that a scan can carry it |
| `Certified` | one, in place, by BLAS | agents and studies: bounds that hold whatever rounding did |

Compiled programs have the first in other layouts (`simulation.fused_rounds`), and a replay of known outcomes has three
forms that make it fast for long ones (`simulation.replay`).

**What tighter radii and learned margins need besides.**

| needed by | kept | meaning |
|---|---|---|
| `noise-adaptive` | `reward_energy`, `cost_energy` | Σ ω²width²/(1 + ω·width²)·(y − ⟨x,θ̂⟩)², from before each update |
| `self-normalised` | nothing | its bound follows from the estimate (`bounds.confidence`) |
| margins that learn | `past` | contexts and costs, to estimate past noise now and then (`bounds.margin`) |

**Certified.** The sums Σ (`gram`) and b (`reward_rhs`, `cost_rhs`) and a maintained Σ⁻¹ (`inverse`). A direction y =
inverse·x is only a proposal: its residual against `gram` decides what may be claimed (`bounds.rounding`). The matrices
are symmetric and stored as lower triangles in column order, so that a symmetric product reads half the memory. What was
certified for a context is kept until the next sample, since an update mostly follows the decision for the same context.
Energies are bounds from above. For the radius `self-normalised` any vector w is valid, so only the three numbers of its
bound are certified.

A rank-one update reads and writes all of Σ and Σ⁻¹ for each sample. At high dimension the last k samples wait instead,
as columns,

    rows R = [√ω x, …]        moves W = [√(ω/(1 + ω·width²)) y, …]        y the direction of each sample at its time

and the full matrices follow from them (Sherman–Morrison, one sample after the other):

    Σ = gram + RRᵀ            Σ⁻¹ = inverse − WWᵀ

A product with either costs 4dk more flops. When k reaches `ROOM`, `syrk` applies all samples at once. Residuals are
taken against the full Σ, so what `bounds.rounding` certifies still holds: the waiting samples are among the N products
that its bound counts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from safedial.bounds import estimate as plain
from safedial.bounds.confidence import LEAST, dual_of, energy, multipliers, radius_of
from safedial.bounds.estimate import Dual, Estimate, Prediction
from safedial.bounds.margin import past_variance
from safedial.bounds.rounding import certify, certify_dual, round_up
from safedial.model.namespace import UNIT, Array
from safedial.model.spec import SafetySpec
from safedial.policies.table import Table

# --- What past rounds say about the noise, for margins that learn it

FIRST_LOOK, GROWTH = 64, 1.1
MEMORY = 100_000
"""How many rounds are kept: the first ones. They suffice, and choosing them by number causes no bias."""


class PastRounds:
    """Contexts and normalised costs of all lanes, in order, and the lowest bound on their noise's variance so far."""

    def __init__(self, dim: int, lanes: tuple[int, ...] = ()) -> None:
        self.rows = Table(lanes, context=(0.0, (dim,)), cost=-math.inf)
        self.next_look = FIRST_LOOK
        self.best: Any = math.inf

    def append(self, context: Any, cost: Any, known: Any = True) -> None:
        """Add a round; an uninformative one has cost −∞, below every noise."""
        if self.rows.count < MEMORY:
            row = self.rows.append()
            self.rows.context[..., row, :] = context
            self.rows.cost[..., row] = np.where(known, cost, -math.inf)

    @property
    def due(self) -> bool:
        """Whether rounds have grown by a tenth since the last look."""
        return self.rows.count >= self.next_look

    def look(self, spec: SafetySpec, lower: Any, upper: Any) -> None:
        """Take a look with the present bounds on the mean costs, and keep the lowest bound so far."""
        count, cost = self.rows.count, self.rows.rows("cost")
        best = np.minimum(self.best, past_variance(cost, lower, upper, spec))
        self.best = best if best.ndim else float(best)
        self.next_look = math.ceil(GROWTH * (count if count < MEMORY else self.next_look))


# --- Any number of lanes


class Tight(NamedTuple):
    """An estimate, and the parts of the table above that are needed."""

    estimate: Estimate
    reward_energy: Any
    cost_energy: Any
    past: PastRounds | None


class Plain:
    """Least squares of any number of lanes: functions of a state, which they leave as it is (but `past`)."""

    one_lane = False

    def __init__(self, radius: str | None, spec: SafetySpec) -> None:
        self.radius, self.spec = radius or "mixture", spec
        self.is_plain = not needs_more(radius, spec)

    def init(self, dim: int, *, ridge: Any, batch: tuple[int, ...] = (), xp: Any = np) -> Estimate | Tight:
        """Nothing known."""
        begun = plain.init(dim, ridge=ridge, batch=batch, xp=xp)
        if self.is_plain:
            return begun
        past = PastRounds(dim, batch) if self.spec.learns_noise else None
        return Tight(begun, np.zeros(batch), np.zeros(batch), past)

    def predict(self, sums: Any, context: Any, norm: Any) -> Prediction:
        """What the rounds so far say about contexts (..., d) of these norms."""
        if self.is_plain:
            seen = plain.predict(sums, context, norm)
            return seen if self.spec.noise_scale is None else seen._replace(context=context)
        seen = plain.predict(sums.estimate, context, norm)._replace(
            context=context,
            reward_energy=sums.reward_energy,
            cost_energy=sums.cost_energy,
            noise=sums.past.best if sums.past else None,
        )
        is_dual = self.radius == "self-normalised"
        return seen._replace(dual=dual_of(sums.estimate, seen, self.spec)) if is_dual else seen

    def update(self, sums: Any, seen: Prediction, reward: Any, cost: Any, weight: Any) -> Any:
        """After a round that was seen so, with R/g, C/g and their weight, 0 where nothing is learned."""
        if self.is_plain:
            return plain.update(sums, seen, reward, cost, weight)
        after = Tight(
            plain.update(sums.estimate, seen, reward, cost, weight),
            sums.reward_energy + energy(seen.width, reward - seen.reward, weight),
            sums.cost_energy + energy(seen.width, cost - seen.cost, weight),
            sums.past,
        )
        if after.past is not None:
            after.past.append(seen.context, cost, weight > 0.0)
            if after.past.due:
                self._look(after, after.past)
        return after

    def _look(self, sums: Tight, past: PastRounds) -> None:
        """Present bounds on the mean costs of all rounds so far, to estimate their noise."""
        contexts, now, spec = past.rows.rows("context"), sums.estimate, self.spec
        mean = np.matmul(contexts, now.cost_coef[..., None])[..., 0]
        width = np.sqrt(np.maximum(np.vecdot(np.matmul(contexts, now.inverse), contexts), 0.0))
        here = Prediction(0.0, 0.0, 0.0, 0.0, now.log_det, now.informative_rounds, contexts.shape[-1])
        half = np.asarray(radius_of(self.radius, spec.cost_noise, sums.cost_energy, here, spec))[..., None] * width
        largest = spec.coefficient_bound * np.sqrt(np.vecdot(contexts, contexts))
        past.look(spec, np.maximum(mean - half, -largest), np.minimum(mean + half, largest))


def needs_more(radius: str | None, spec: SafetySpec) -> bool:
    """Whether a radius and a spec's margin need more than the estimate."""
    return radius in ("self-normalised", "noise-adaptive") or spec.learns_noise


# --- One lane, with certified rounding: samples that wait before they are added to the two matrices

_BLAS: Any = get_blas_funcs(("axpy", "dot", "nrm2", "symv", "syr", "gemv", "syrk"), dtype=np.float64)
_LAPACK: Any = get_lapack_funcs(("posv", "potrf", "potri", "potrs"), dtype=np.float64)

daxpy, ddot, dnrm2, dsymv, dsyr, dgemv, dsyrk = _BLAS
dposv, dpotrf, dpotri, dpotrs = _LAPACK

ROOM, FROM_DIM = 16, 1024
"""How many samples may wait, and from which dimension on. Below it the matrices fit the cache, and waiting gains
nothing. With more samples, the update that applies them would take longer than the others save."""


class Pending:
    """The waiting columns; `count` of them are in use."""

    def __init__(self, dim: int) -> None:
        self.room = ROOM if dim >= FROM_DIM else 0
        self.rows, self.moves = (np.zeros((dim, self.room), order="F") for _ in range(2))
        self.count = 0

    def add(self, row: Array, move: Array) -> None:
        self.rows[:, self.count], self.moves[:, self.count] = row, move
        self.count += 1

    def less(self, columns: Array, vector: Array, product: Array) -> Array:
        """product − CCᵀ·vector, in its place, with C the waiting `rows` or `moves`."""
        waiting = columns[:, : self.count]
        return dgemv(-1.0, waiting, dgemv(1.0, waiting, vector, trans=1), beta=1.0, y=product, overwrite_y=1)

    def apply(self, gram: Array, inverse: Array) -> None:
        """Add all waiting samples to the lower triangles of both matrices, in place."""
        if self.count:
            dsyrk(1.0, self.rows[:, : self.count], beta=1.0, c=gram, lower=1, overwrite_c=1)
            dsyrk(-1.0, self.moves[:, : self.count], beta=1.0, c=inverse, lower=1, overwrite_c=1)
            self.count = 0


# --- One lane, with certified rounding: the sums

REFINE_ABOVE, REBUILD_ABOVE = 1e-7, 1e-2
"""A relative residual above the first triggers one step of refinement; above the second, a new inverse before the next
update, so that errors do not build up."""

REBUILD_ROUNDS, REBUILD_DIMS = 4096, 64
"""The inverse is recomputed from `gram` every max(REBUILD_ROUNDS, REBUILD_DIMS·d) samples. The schedule is fixed, so
that the state depends only on the data; the cubic cost is spread over many quadratic updates."""

STRIPE = 256


def copy_lower_to_upper(source: NDArray[np.float64], target: NDArray[np.float64]) -> None:
    """Copy the lower triangle of `source`, with its diagonal, to the upper triangle of `target`, stripe by stripe."""
    for start in range(0, len(source), STRIPE):
        stop = start + STRIPE
        target[start:stop, stop:] = source[stop:, start:stop].T
        corner = target[start:stop, start:stop]
        upper = np.tri(len(corner), dtype=bool).T
        np.copyto(corner, source[start:stop, start:stop].T, where=upper)


class Sums:
    """Σ, Σ⁻¹ and b of reward and cost, which BLAS writes into, and what bounds the rounding of their numbers."""

    def __init__(self, dim: int, ridge: float) -> None:
        self.gram = np.asfortranarray(np.eye(dim) * ridge)
        self.inverse = np.asfortranarray(np.eye(dim) / ridge)
        self.reward_rhs, self.cost_rhs = np.zeros(dim), np.zeros(dim)
        self.pending = Pending(dim)
        self.samples = 0
        self.log_det = self.reward_squares = self.cost_squares = 0.0
        self.reward_energy = self.cost_energy = 0.0
        self.past: PastRounds | None = None
        self._dim, self._ridge, self._norm_error = dim, ridge, 1.0 + (dim + 8) * UNIT
        self._known: tuple[bytes, tuple[float, float, Array, float]] | None = None
        self._factors: Factors | None = None
        self._scaled = -1
        """The number of samples that `_diagonal`, `_scale` and `_scale_norm` belong to."""

    @property
    def terms(self) -> int:
        """How many terms Σ and b are sums of, at most."""
        return self.samples + self._dim

    def certified(self, context: Array, norm: float) -> tuple[float, float, Array, float]:
        """(width, slack of the mean cost, direction, relative residual), repaired if the residual is large."""
        known, same = self._known, context.tobytes()
        if known is not None and known[0] == same:
            return known[1]
        direction = self.direction(context)
        width, slack, error = self.bounds(context, norm, direction, math.sqrt(self.cost_squares))
        found = (width, slack, direction, error) if error <= REFINE_ABOVE else self._repaired(context, norm, direction)
        self._known = same, found
        return found

    def read(self, context: Array, norm: float) -> Prediction:
        """What a decision depends on at a context of norm `norm`: cost, width and norm are upper bounds."""
        width, slack, direction, _ = self.certified(context, norm)
        cost, seen = ddot(direction, self.cost_rhs), ddot(direction, self.reward_rhs)
        own = 32.0 * UNIT * abs(cost)
        return Prediction(
            seen, cost + own + slack, width, norm * self._norm_error, self.log_det, float(self.samples), self._dim,
            direction, context, cost_slack=2.0 * (own + slack),
        )  # fmt: skip

    def add(self, context: Array, norm: float, reward: float, cost: float, weight: float) -> None:
        """Learn from one normalised sample with weight ω > 0."""
        width, _, direction, error = self.certified(context, norm)
        if error > REBUILD_ABOVE:
            self.rebuild()
            width, _, direction, _ = self.certified(context, norm)
        gained = weight * width * width
        self._add(context, direction, weight, weight / (1.0 + gained))
        daxpy(context, self.reward_rhs, a=weight * reward)
        daxpy(context, self.cost_rhs, a=weight * cost)
        self.reward_squares += weight * reward * reward
        self.cost_squares += weight * cost * cost
        self.log_det = round_up(self.log_det + math.log1p(gained))
        self.samples += 1
        self._scaled = self.samples
        if self.samples % max(REBUILD_ROUNDS, REBUILD_DIMS * self._dim) == 0:
            self.rebuild()

    def error(self, context: Array, norm: float, reward: float, cost: float) -> tuple[float, float, float]:
        """(width, |R/g − ⟨x,θ̂⟩|, |C/g − ⟨x,μ̂⟩|) before an update; the first and the last are upper bounds."""
        width, slack, direction, _ = self.certified(context, norm)
        mean = ddot(direction, self.cost_rhs)
        miss = abs(cost - mean) + slack + 32.0 * UNIT * (abs(mean) + abs(cost))
        return width, abs(reward - ddot(direction, self.reward_rhs)), miss

    def rounding(self, context: Array, norm: float) -> float:
        """How far rounding may move a prediction's numbers at a context, on this or another processor: the slack of a
        mean whose outcomes have the larger of the two targets' norms, and at least norm 1.
        """
        largest = math.sqrt(max(1.0, self.reward_squares, self.cost_squares))
        return self.bounds(context, norm, self.certified(context, norm)[2], largest)[1]

    def unshrunk(self, context: Array, norm: float) -> float:
        """How much of S the estimate at a context may miss because λ shrinks it: λ‖Σ⁻¹x‖, as y is off by ‖ρ‖/λ."""
        _, _, direction, error = self.certified(context, norm)
        return self._ridge * dnrm2(direction) + error * norm

    def _add(self, context: Array, direction: Array, weight: float, gain: float) -> None:
        """Σ += weight·xxᵀ and Σ⁻¹ −= gain·yyᵀ, at once or when enough samples wait."""
        self._known, pending = None, self.pending
        if not pending.room:
            dsyr(-gain, direction, a=self.inverse, overwrite_a=1, lower=1)
            dsyr(weight, context, a=self.gram, overwrite_a=1, lower=1)
            self._refresh_scale()
            return
        self._settle_scale()
        row = math.sqrt(weight) * context
        pending.add(row, math.sqrt(gain) * direction)
        if pending.count == pending.room:
            self.apply_pending()
        else:
            self._diagonal += row * row
            self._set_scale()

    def apply_pending(self) -> None:
        self.pending.apply(self.gram, self.inverse)
        self._refresh_scale()

    def rebuild(self) -> None:
        """Recompute Σ⁻¹ from Σ by Cholesky; keep the old one if Σ is numerically singular.

        Σ is factored and inverted in the unused upper triangle of `inverse`, which saves a third matrix; only the
        diagonal, which both triangles share, is set aside.
        """
        self._known = None
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

    def direction(self, vector: Array) -> Array:
        """inverse·vector, waiting samples included."""
        product = dsymv(1.0, self.inverse, vector, lower=1)
        return self.pending.less(self.pending.moves, vector, product) if self.pending.count else product

    def residual(self, context: Array, direction: Array) -> Array:
        """x − Σy, waiting samples included."""
        residual = dsymv(-1.0, self.gram, direction, beta=1.0, y=context, lower=1)
        return self.pending.less(self.pending.rows, direction, residual) if self.pending.count else residual

    def bounds(self, context: Array, norm: float, direction: Array, targets: float) -> tuple[float, float, float]:
        """`bounds.rounding.certify` for any direction, and outcomes of the norm `targets`."""
        residual = self.residual(context, direction)
        self._settle_scale()
        return certify(
            self._ridge,
            self.terms,
            quadratic=ddot(context, direction),
            direction_residual=ddot(direction, residual),
            residual_norm=dnrm2(residual),
            context_norm=norm,
            direction_norm=dnrm2(direction),
            scale_direction=ddot(self._scale, np.abs(direction)),
            scale_norm=self._scale_norm,
            target_norm=targets,
        )

    def _repaired(self, context: Array, norm: float, direction: Array) -> tuple[float, float, Array, float]:
        """The best of three directions: the given one, one step of refinement, and 0, which is as good as no data.

        A direction that is not finite has a NaN residual, and loses to 0.
        """
        residual = self.residual(context, direction)
        proposals = (np.zeros(self._dim), direction, direction + self.direction(residual))
        best = (math.inf, math.inf, proposals[0], math.inf)
        for proposal in proposals:
            width, slack, error = self.bounds(context, norm, proposal, math.sqrt(self.cost_squares))
            if error < best[3]:
                best = width, slack, proposal, error
        return best

    def _settle_scale(self) -> None:
        """Make the scale of Σ as it is now: a state that was read from a file has that of no samples."""
        if self._scaled != self.samples:
            self._refresh_scale()

    def _refresh_scale(self) -> None:
        self._diagonal: Array = self.gram.diagonal().copy()
        for row in self.pending.rows.T[: self.pending.count]:  # one by one, as they were added
            self._diagonal += row * row
        self._set_scale()

    def _set_scale(self) -> None:
        self._scale: Array = np.sqrt(self._diagonal)
        self._scale_norm: float = dnrm2(self._scale)
        self._scaled = self.samples

    def read_many(self, contexts: Array) -> tuple[Array, Array, Array]:
        """(lower and upper bound on ⟨x,μ̂⟩, upper bound on the width) of many contexts, (n, d)."""
        self.apply_pending()
        inverse, gram = (np.tril(matrix) + np.tril(matrix, -1).T for matrix in (self.inverse, self.gram))
        parts = [self._read_rows(contexts[at : at + ROWS], inverse, gram) for at in range(0, len(contexts), ROWS)]
        lower, upper, width = (np.concatenate(column) for column in zip(*parts, strict=True))
        return lower, upper, width

    def _read_rows(self, contexts: Array, inverse: Array, gram: Array) -> tuple[Array, Array, Array]:
        directions = contexts @ inverse
        residuals = contexts - directions @ gram
        means = directions @ self.cost_rhs
        width, slack, _ = certify(
            self._ridge,
            self.terms,
            quadratic=np.vecdot(contexts, directions),
            direction_residual=np.vecdot(directions, residuals),
            residual_norm=np.linalg.norm(residuals, axis=1),  # pyright: ignore[reportArgumentType] -- arrays, as xp = NumPy
            context_norm=np.linalg.norm(contexts, axis=1),  # pyright: ignore[reportArgumentType]
            direction_norm=np.linalg.norm(directions, axis=1),  # pyright: ignore[reportArgumentType]
            scale_direction=np.abs(directions) @ self._scale,  # pyright: ignore[reportArgumentType]
            scale_norm=self._scale_norm,
            target_norm=math.sqrt(self.cost_squares),
            xp=np,
        )
        room = 32.0 * UNIT * np.abs(means) + slack
        return means - room, means + room, np.asarray(width)


ROWS = 4096
"""Contexts that `Sums.read_many` reads at a time."""


class Certified:
    """Least squares of one lane, in place, with certified rounding, and what tighter bounds need besides."""

    one_lane = True

    def __init__(self, radius: str | None, spec: SafetySpec) -> None:
        self.radius, self.spec = radius or "mixture", spec
        self.is_plain = not needs_more(radius, spec)

    def init(self, dim: int, *, ridge: float, batch: tuple[int, ...] = ()) -> Sums:
        """Nothing known."""
        made = Sums(dim, ridge)
        made.past = PastRounds(dim) if self.spec.learns_noise else None
        return made

    def predict(self, sums: Sums, context: Array, norm: float) -> Prediction:
        """The certified numbers at a context, with what the radius and the margin need."""
        seen = sums.read(context, norm)
        if self.is_plain:
            return seen
        if self.radius == "noise-adaptive":
            seen = seen._replace(reward_energy=sums.reward_energy, cost_energy=sums.cost_energy)
        elif self.radius == "self-normalised":
            if sums._factors is None or sums._factors.of != sums.samples:
                sums._factors = factors_of(sums, self.spec)
            dual = certified_dual(sums, sums._factors, context, norm)
            seen = seen._replace(dual=dual, unshrunk=sums.unshrunk(context, norm))
        return seen if sums.past is None else seen._replace(noise=sums.past.best)

    def update(self, sums: Sums, seen: Prediction, reward: float, cost: float, weight: float) -> Sums:
        """Learn from a sample with weight ω > 0. Residuals use only what was known before the outcome."""
        context, norm = seen.context, dnrm2(seen.context)
        if self.is_plain:
            sums.add(context, norm, reward, cost, weight)
            return sums
        if self.radius == "noise-adaptive":
            width, reward_error, cost_error = sums.error(context, norm, reward, cost)
            sums.reward_energy += energy(width, reward_error, weight)
            sums.cost_energy = round_up(sums.cost_energy + energy(width, cost_error, weight))
        if sums.past is not None:
            sums.past.append(context, cost)
        sums.add(context, norm, reward, cost, weight)
        if sums.past is not None and sums.past.due:
            self._look(sums, sums.past)
        return sums

    def _look(self, sums: Sums, past: PastRounds) -> None:
        """Estimate the past noise again, with the present bounds on the mean costs."""
        contexts, spec = past.rows.rows("context"), self.spec
        lower, upper, width = sums.read_many(contexts)
        here = Prediction(0.0, 0.0, 0.0, 0.0, sums.log_det, float(sums.samples), sums._dim)
        half = round_up(radius_of(self.radius, spec.cost_noise, sums.cost_energy, here, spec)) * width
        largest = spec.coefficient_bound * sums._norm_error * np.linalg.norm(contexts, axis=1)
        past.look(spec, np.maximum(lower - half, -largest), np.minimum(upper + half, largest))


# --- One lane, with certified rounding: the bound of the radius `self-normalised`


class Factors(NamedTuple):
    """What the vector w needs besides the context: Gμ̂ and, for each a, (a, the Cholesky factor of D, D⁻¹μ̂, the root).

    They change only with the sums, whose number of samples they carry in `of`.
    """

    of: int
    unshrunk: Array
    solved: list[tuple[float, Array, Array, float]]


def factors_of(sums: Sums, spec: SafetySpec) -> Factors:
    """The factors, with GΣ⁻¹G = Σ − 2λI + λ²Σ⁻¹, for each a whose D is not numerically singular."""
    ridge, coef, rhs = sums._ridge, sums.direction(sums.cost_rhs), sums.cost_rhs
    volume, bound = spec.cost_noise**2 * (sums.log_det + 2.0 * spec.log_inverse_risk), spec.coefficient_bound**2
    matrix = sums.gram + ridge * ridge * sums.inverse
    diagonal = matrix.T.reshape(-1)[:: sums._dim + 1]
    diagonal -= 2.0 * ridge
    solved, before = [], 0.0
    for a in multipliers(spec):
        diagonal += a - before
        before = a
        factor, shrunk, failed = dposv(matrix, coef, lower=1)
        if not failed:
            root = math.sqrt(max(volume + a * (bound - ddot(rhs, shrunk)), LEAST * volume))
            solved.append((a, factor, shrunk, root))
    return Factors(sums.samples, rhs - ridge * coef, solved)


def certified_dual(sums: Sums, factors: Factors, context: Array, norm: float) -> Dual:
    """Upper bounds on ⟨w,b⟩ of the cost, ‖w‖_Σ and ‖x − Gw‖ (`bounds.rounding`), with G = Σ − λI."""
    w = _vector(sums, factors, context)
    residual = sums.residual(context, w)
    sums._settle_scale()
    numbers = certify_dual(
        sums._ridge,
        sums.terms,
        cost=ddot(w, sums.cost_rhs),
        squared=ddot(w, context - residual),
        miss=dnrm2(residual + sums._ridge * w),
        context_norm=norm,
        direction_norm=dnrm2(w),
        scale_direction=ddot(sums._scale, np.abs(w)),
        scale_norm=sums._scale_norm,
        target_norm=math.sqrt(sums.cost_squares),
    )
    return Dual(*numbers)


def _vector(sums: Sums, factors: Factors, context: Array) -> Array:
    """The vector w of `bounds.confidence`; 0 where every D is numerically singular."""
    lowest, best = math.inf, None
    for a, factor, shrunk, root in factors.solved:
        turned, _ = dpotrs(factor, context, lower=1)
        width = math.sqrt(max(ddot(context, turned), 0.0))
        upper = ddot(factors.unshrunk, turned) + root * width
        if upper < lowest:
            lowest, best = upper, (turned, a * width / root, shrunk)
    if best is None:
        return np.zeros(sums._dim)
    turned, share, shrunk = best
    return turned - sums._ridge * sums.direction(turned) - share * shrunk
