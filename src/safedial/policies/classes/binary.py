"""The norm-constrained logistic fit and the size of its confidence set, for a batch of learners at once.

Rounds s have context x_s, known offset o_s = ln z_s and label y_s ∈ {0, 1}; p_s = 1/(1 + exp(−(⟨x_s, μ⟩ + o_s))). The
negative log-likelihood is L(μ) = Σ_s [ln(1 + e^{u_s}) − y_s u_s], u_s = ⟨x_s, μ⟩ + o_s, and μ̂ minimises it on ‖μ‖ ≤ S.

**The confidence sequence** (after Lee, Yun and Jun, 2024, with another last step). exp(L(μ*) − L(μ)) is a martingale
for every μ, hence so is its average over μ uniform on the ball ‖μ‖ ≤ `PRIOR`·S; Ville: with probability ≥ 1 − δ′ the
average stays below 1/δ′ for all t. Bound it from below by Jensen over Q, uniform on the ball of radius h around μ̂,
which lies in the prior's ball for h ≤ (PRIOR − 1)S and has divergence d ln(PRIOR·S/h) from it:

    L(μ*) − E_Q L ≤ ln(1/δ′) + d ln(PRIOR·S/h)

Q has mean μ̂, so the first-order term of E_Q L vanishes; its curvatures exceed those at μ̂ by at most e^{hX}
(self-concordance of the logistic loss, X = max ‖x_s‖). With H = Σ p_s(1 − p_s) x_s x_sᵀ at μ̂, for every such h

    L(μ*) − L(μ̂) ≤ ln(1/δ′) + d ln(PRIOR·S/h) + ½ e^{hX} h² tr H/(d + 2) =: ln(1/δ′) + excess

and the least of them over a grid of h is used; it grows like (d/2) ln n, the published form like d ln n. μ̂ may be any
point of the ball ‖μ‖ ≤ S: nothing above needs it to be the exact minimiser.

**From the set to a range.** Again by self-concordance, for ‖μ‖ ≤ S and ū ≥ max_s |⟨x_s, μ − μ̂⟩|

    L(μ) − L(μ̂) ≥ ⟨∇L(μ̂), μ − μ̂⟩ + ‖μ − μ̂‖²_H/(2 + ū) ≥ −gap + ‖μ − μ̂‖²_H/(2 + ū),
    gap = ⟨∇L(μ̂), μ̂⟩ + S‖∇L(μ̂)‖ ≥ 0, zero at the exact minimiser.

Hence on the set ‖μ − μ̂‖²_A ≤ r² := (2 + ū)(ln(1/δ′) + excess + gap) + 4S²λ with A = H + λI, and |⟨x, μ − μ̂⟩| ≤
r‖x‖_{A⁻¹}. ū starts at 2SX and is replaced by r·max_s‖x_s‖_{A⁻¹} while that is smaller. `logistic_upper` goes on from
there to the set itself.

The largest ⟨x, μ⟩ over the logistic confidence set itself, by duality: any multiplier gives a valid bound.

    maximise ⟨x, μ⟩   subject to   G(μ) := L(μ) + (λ/2)‖μ‖² ≤ B := L(μ̂) + ln(1/δ′) + excess + (λ/2)S²

contains the confidence set (‖μ*‖ ≤ S there). For every t > 0 and every point m, G being λ-strongly convex,

    max ⟨x, μ⟩ ≤ max_μ [⟨x, μ⟩ + (B − G(μ))/t] ≤ ⟨x, m⟩ + (B − G(m))/t + t‖x − ∇G(m)/t‖²/(2λ).

So the bound holds whatever the optimiser did, and is tight at the optimum. The optimiser is Newton's method on the
optimality conditions: with p = (∇²G)⁻¹∇G, q = (∇²G)⁻¹x at the present m, the quadratic model of G reaches B at

    m ← m − p + tq,      t² = 2(B − G(m) + ½⟨∇G, p⟩)/⟨x, q⟩.

If events are rare, the set reaches less far up than down, because curvature grows with the chance of an event; the
ellipsoid does not reflect this. The smaller of the two bounds is used; both hold on the same event.

Toxicity yes or no: a logistic model of the chance that the cost is 1, with the dose acting on the odds.

    P(C = 1 | x, z) / P(C = 0 | x, z) = z · odds · exp⟨x, μ*⟩,      ‖μ*‖ ≤ S,      z = g(α) in [0, 1]

so a dose of 0 has no risk, and the log-odds are ⟨x, μ*⟩ + ln z + ln odds, where `odds`, the odds at context 0 and full
dose, are known: logistic regression with a known offset. With a power curve g this is the two-parameter logistic model
of dose finding. Realized safety is P(C = 1) ≤ δ itself: there is no noise margin, and outcomes are not divided by g.
With U ≥ ⟨x, μ*⟩ on the confidence event, the largest safe intensity is

    z_safe = min(1, δ/(1 − δ) · exp(−U)/odds),      U ≤ S‖x‖ before any data.

The confidence set is the one of Lee, Yun and Jun, "A Unified Confidence Sequence for Generalized Linear Models, with
Applications to Bandits" (2024); `logistic_fit` derives the form used here. It holds for all t at once, so the fit may
be updated on a schedule (each round at first, then whenever the rounds have grown by a twentieth).

How informative a round is depends on its dose: at P(C = 1) = p the information is p(1 − p). Rare events are learned
slowly: at δ = .01, a hundred rounds bring one event.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import require
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies.classes.function_class import FunctionClass, Interval, Outcomes, check_bound
from safedial.policies.table import Table

PRIOR = 1.5
SHRINKS = (PRIOR - 1.0) * np.exp(-np.linspace(0.0, 14.0, 57))
STEPS = 30
FARTHEST = 300.0
"""A radius h with larger hX is left out of the grid: e^{hX} times a curvature that underflows would not be a bound."""


class Fit(NamedTuple):
    """μ̂, A⁻¹, and what the range needs; the batch axes come first."""

    coef: Array
    inverse: Array
    excess: Array
    gap: Array
    reach: Array
    spread: Array


def fit(
    contexts: Array, offsets: Array, labels: Array, weights: Array, start: Array, *, size: float, ridge: float
) -> Fit:
    """Fit every learner of a batch: contexts (..., n, d), the rest (..., n); weights 0 or 1 say which rounds count."""
    coef = _minimise(contexts, offsets, labels, weights, start, size=size)
    gradient, hessian = derivatives(contexts, offsets, labels, weights, coef)
    dim = contexts.shape[-1]
    largest = np.sqrt(np.max(weights * np.vecdot(contexts, contexts), axis=-1))
    inverse: Any = np.linalg.inv(hessian + ridge * np.eye(dim))
    inner = np.vecdot(gradient, coef)
    spread = size * SHRINKS.reshape(-1, *[1] * inner.ndim)
    far = spread * largest > FARTHEST
    growth = np.exp(np.where(far, 0.0, spread * largest))
    curvature = np.trace(hessian, axis1=-2, axis2=-1) / (dim + 2)
    costs = dim * np.log(PRIOR * size / spread) + np.where(far, np.inf, 0.5 * growth * spread**2 * curvature)
    widths = np.vecdot(contexts, np.matmul(contexts, inverse)) * weights
    return Fit(
        coef,
        inverse,
        np.min(costs, axis=0),
        np.maximum(inner + size * np.sqrt(np.vecdot(gradient, gradient)), 0.0),
        np.sqrt(np.maximum(np.max(widths, axis=-1), 0.0)),
        2.0 * size * largest,
    )


def radius(fitted: Fit, log_inverse_risk: Any, *, size: float, ridge: float) -> Any:
    """r, by the self-bounding iteration for ū."""
    level = log_inverse_risk + fitted.excess + fitted.gap
    spread = fitted.spread + 0.0 * level
    for _ in range(STEPS):
        reach = np.sqrt((2.0 + spread) * level + 4.0 * size**2 * ridge)
        spread = np.minimum(spread, reach * fitted.reach)
    return np.sqrt((2.0 + spread) * level + 4.0 * size**2 * ridge)


def derivatives(contexts: Array, offsets: Array, labels: Array, weights: Array, coef: Array) -> tuple[Array, Array]:
    """∇L and H at a point."""
    from scipy.special import expit

    scores = np.matmul(contexts, coef[..., None])[..., 0] + offsets
    chance = expit(scores)
    gradient = np.matmul(np.swapaxes(contexts, -1, -2), (weights * (chance - labels))[..., None])[..., 0]
    curvature = weights * chance * expit(-scores)
    hessian = np.matmul(np.swapaxes(contexts, -1, -2), curvature[..., None] * contexts)
    return gradient, hessian


def _minimise(contexts: Array, offsets: Array, labels: Array, weights: Array, start: Array, *, size: float) -> Array:
    """Newton steps on L(μ) + (ν/2)‖μ‖², with ν ≥ 0 moved so that ‖μ‖ ≤ S; ends inside the ball."""
    coef, price = start.copy(), np.zeros(start.shape[:-1])
    eye = np.eye(start.shape[-1])
    for _ in range(STEPS):
        gradient, hessian = derivatives(contexts, offsets, labels, weights, coef)
        least = 1e-9 * (1.0 + np.trace(hessian, axis1=-2, axis2=-1))
        shifted = hessian + (price + least)[..., None, None] * eye
        right = np.matmul(hessian, coef[..., None]) - gradient[..., None]
        target = np.linalg.solve(shifted, right)[..., 0]
        norm = np.sqrt(np.vecdot(target, target))
        slope = np.vecdot(target, np.linalg.solve(shifted, target[..., None])[..., 0])
        move = norm**2 * (norm - size) / (size * np.maximum(slope, 1e-300))
        price = np.maximum(price + np.where(norm > 0.0, move, 0.0), 0.0)
        step = target - coef
        length = np.sqrt(np.vecdot(step, step))
        coef = coef + step * np.minimum(1.0, 2.0 * size / np.maximum(length, 1e-300))[..., None]
        if np.all(length <= 1e-10 * size) and np.all((norm <= size * (1.0 + 1e-9)) | (price == 0.0)):
            break
    norm = np.sqrt(np.vecdot(coef, coef))
    return coef * np.minimum(1.0, size / np.maximum(norm, 1e-300))[..., None]


# --- The largest ⟨x, μ⟩ over the logistic confidence set itself, by duality

Rounds = tuple[Array, Array, Array, Array]

DUAL_STEPS = 8
ROUNDING = 1e-13
"""The bound is rounded up by this share of its terms: sums over rounds err by a few units in the last place."""


def loss(contexts: Array, offsets: Array, labels: Array, weights: Array, coef: Array) -> Array:
    """L(μ), (...)."""
    scores = np.matmul(contexts, coef[..., None])[..., 0] + offsets
    return np.sum(weights * (np.logaddexp(0.0, scores) - labels * scores), axis=-1)


def upper(rounds: Rounds, fitted: Fit, context: Array, start: Array, log_inverse_risk: Any, *, size: float) -> Array:
    """A bound on ⟨x, μ*⟩ for each learner of the batch, starting from `start`, the ellipsoid's bound."""
    damp = 1.0 / size**2
    level = loss(*rounds, fitted.coef) + log_inverse_risk + fitted.excess + 0.5
    direction = np.matmul(fitted.inverse, context[..., None])[..., 0]
    width = np.maximum(np.vecdot(context, direction), 1e-300)
    reach = (start - np.vecdot(context, fitted.coef)) / width
    point = fitted.coef + 0.7 * reach[..., None] * direction
    best = np.asarray(start, dtype=float)
    eye = np.eye(context.shape[-1])
    for _ in range(DUAL_STEPS):
        value = loss(*rounds, point) + 0.5 * damp * np.vecdot(point, point)
        gradient, hessian = derivatives(*rounds, point)
        gradient = gradient + damp * point
        both = np.linalg.solve(hessian + damp * eye, np.stack([gradient, context], axis=-1))
        room = level - value + 0.5 * np.vecdot(gradient, both[..., 0])
        price = np.sqrt(np.maximum(2.0 * room, 1e-12) / np.maximum(np.vecdot(context, both[..., 1]), 1e-300))
        miss = context - gradient / price[..., None]
        along, slip = np.vecdot(context, point), price * np.vecdot(miss, miss) / (2.0 * damp)
        terms = np.abs(along) + (np.abs(level) + np.abs(value)) / price + slip
        bound = along + (level - value) / price + slip + ROUNDING * terms
        best = np.minimum(best, np.where(np.isfinite(bound), bound, np.inf))
        point = point - both[..., 0] + price[..., None] * both[..., 1]
    return best


# --- Toxicity yes or no

GROWTH = 1.05


class View(NamedTuple):
    value: Array
    width: Array
    norm: Array
    informative_rounds: Array
    fitted: Fit
    context: Array
    rounds: Rounds | None


class Trials:
    """The rounds so far, the latest fit, how many rounds it is of, and how many the next one will be of."""

    def __init__(self, dim: int, batch: tuple[int, ...], fitted: Fit) -> None:
        self.rounds = Table(batch, context=(0.0, (dim,)), offset=0.0, label=0.0, weight=0.0)
        self.fitted, self.used, self.next_fit = fitted, 0, 1
        self.informative_rounds = np.zeros(batch)
        self._fitted_to: Rounds | None = None

    @property
    def fitted_to(self) -> Rounds | None:
        """Contexts, offsets, labels and weights of the rounds that the fit is of, copied without gaps between lanes."""
        if self.used and self._fitted_to is None:
            context = np.ascontiguousarray(self.rounds.rows("context")[..., : self.used, :])
            columns = (self.rounds.rows(name)[..., : self.used] for name in ("offset", "label", "weight"))
            offset, label, weight = map(np.ascontiguousarray, columns)
            self._fitted_to = context, offset, label, weight
        return self._fitted_to

    def refit(self, *, size: float, ridge: float) -> None:
        """Fit all rounds so far."""
        self.used, self._fitted_to = self.rounds.count, None
        self.fitted = fit(*self.fitted_to, self.fitted.coef, size=size, ridge=ridge)  # pyright: ignore
        self.next_fit = max(self.used + 1, int(self.used * GROWTH))


@dataclass(frozen=True, kw_only=True)
class Binary(FunctionClass):
    """The logistic class above, for costs that are 0 or 1.

    Args:
        norm: S, with ‖μ*‖ ≤ S.
        odds: the known odds of an event at full intensity in context 0, which the model does not estimate.

    `bounds` gives log-odds at full intensity, ⟨x, μ⟩ + ln odds.

    >>> binary(norm=2.0).binary
    True
    """

    name = "binary"
    label = "certified"
    binary = True
    norm: float = 1.0
    odds: float = 1.0

    def __post_init__(self) -> None:
        """Check the options."""
        object.__setattr__(self, "norm", check_bound("norm", self.norm))
        check_bound("odds", self.odds)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"the cost is 0 or 1, with odds {self.odds:g}·z·exp⟨x, μ⟩, ‖μ‖ at most {self.norm:g}, given all earlier "
            "rounds",
            "each dose uses nothing about its round's outcome beyond the context",
        )

    @cached_property
    def damp(self) -> float:
        """λ."""
        return 1.0 / self.norm**2

    @cached_property
    def base(self) -> float:
        """ln odds."""
        return float(np.log(self.odds))

    def init(self, dim: int, *, ridge: Any = None, batch: tuple[int, ...] = (), targets: int = 1) -> Trials:
        inverse, zeros = np.broadcast_to(np.eye(dim) / self.damp, (*batch, dim, dim)).copy(), np.zeros(batch)
        excess = zeros + dim * np.log(PRIOR / (PRIOR - 1.0))  # before any data: the ball itself
        return Trials(dim, batch, Fit(np.zeros((*batch, dim)), inverse, excess, zeros, zeros, zeros))

    def look(self, state: Trials, context: Any) -> View:
        batch = state.informative_rounds.shape
        context = np.broadcast_to(np.asarray(context, dtype=float), (*batch, np.shape(context)[-1]))
        direction = np.matmul(state.fitted.inverse, context[..., None])[..., 0]
        width = np.sqrt(np.maximum(np.vecdot(context, direction), 0.0))
        norm, value = np.sqrt(np.vecdot(context, context)), np.vecdot(context, state.fitted.coef)
        return View(value, width, norm, state.informative_rounds, state.fitted, context, state.fitted_to)

    def bounds(self, view: View, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        size, damp, base = self.norm, self.damp, self.base
        reach = radius(view.fitted, spec.log_inverse_risk, size=size, ridge=damp) * view.width
        top = size * view.norm
        lower, above = view.value - reach, view.value + reach
        refuted = (above < -top) | (lower > top)
        if view.rounds is not None:
            above = upper(view.rounds, view.fitted, view.context, above, spec.log_inverse_risk, size=size)
        return Interval(view.value + base, lower + base, above + base, refuted)

    def update(self, state: Trials, view: View, outcomes: Outcomes) -> Trials:
        batch = state.informative_rounds.shape
        label = np.broadcast_to(outcomes.targets[-1], batch).astype(float)
        intensity = np.broadcast_to(outcomes.intensity, batch)
        used = (np.broadcast_to(outcomes.weight, batch) > 0.0) & (intensity > 0.0)
        odd = label[used & (label != 0.0) & (label != 1.0)]
        require(not odd.size, "cost", odd[:1].tolist(), "must be 0 or 1 for class binary", "use another class")
        rounds = state.rounds
        row = rounds.append()
        rounds.context[..., row, :], rounds.weight[..., row] = view.context, used
        rounds.offset[..., row] = np.log(np.where(used, intensity, 1.0)) + self.base
        rounds.label[..., row] = np.where(used, label, 0.0)
        state.informative_rounds = state.informative_rounds + used
        if rounds.count >= state.next_fit:
            state.refit(size=self.norm, ridge=self.damp)
        return state

    def ceiling(self, view: View, spec: SafetySpec) -> Any:
        return self.norm * view.norm + self.base

    def first(self, spec: SafetySpec) -> Any:
        return self.norm * spec.context_bound + self.base


binary = Binary
