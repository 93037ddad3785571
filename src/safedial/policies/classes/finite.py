"""A finite list of functions: Algorithm 2 as the paper writes it, and a tighter confidence set.

| radius | the set | note |
|---|---|---|
| `paper` | ‖f − f̂‖²_D ≤ 8κ² ln(|F|/δ′) | Lemma confidRad |
| `mixture` | SSE(f) ≤ −2κ² ln Σ_h π(h) exp(−SSE(h)/2κ²) + 2κ² ln(1/δ′) | any prior π; the default |

SSE(f) = Σ_s ω_s (y_s − f(x_s))². Why `mixture` holds: for each h, with Δ = √ω(h − f*)(x_s),

    exp(−[SSE(h) − SSE(f*)]/2κ²) = Π_s exp(√ω ξ_s Δ_s/κ² − Δ_s²/2κ²)

is a supermartingale that starts at 1, because E exp(√ω ξ Δ/κ²) ≤ exp(Δ²/2κ²). So is the average over π, and Ville's
inequality bounds it by 1/δ′ for all t with probability ≥ 1 − δ′. The two sets are not nested, so the choice must not
depend on the data; in practice `mixture` is usually much smaller, because it needs no factor 8.

Both sets always contain f̂, so neither is ever empty: data cannot refute a finite class here.

A function whose loss is not a number stays in the set, because nothing rules it out.

Terms of the sum below e^{−CUT} of the largest are omitted, which makes the sum smaller and the set larger.

Rounding: computed in another order, or on another processor, a function's values differ in their last digits, so a
value counts as known to ε = `ROUNDING`·bound, which is added to the range at both ends. √SSE is a norm of the gaps, so
it is known to ε√W, W = Σ_s ω_s, and its sum over N rounds to (N + 8)u relatively:

    (√SSE − ε√W)²(1 − (N + 8)u) ≤ exact SSE ≤ (√SSE + ε√W)²(1 + (N + 8)u)

`mixture` takes the upper losses for its limit, which grows with each of them, and compares the lower ones with it. For
`paper` the same holds of ‖f − f̂‖²_D with 2ε; and the exact SSE of f̂, the least as computed, exceeds the least by at
most the gap s between its two bounds, which adds at most 2s to ‖f* − f̂‖²_D.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from safedial.errors import require
from safedial.model.namespace import UNIT, Array
from safedial.model.spec import SafetySpec
from safedial.policies.classes.function_class import FunctionClass, Interval, Outcomes, check_bound
from safedial.policies.table import Table

CUT = 40.0
ROUNDING = 1e-12
"""The accuracy of the functions' values, as a share of the bound."""


class View(NamedTuple):
    """All functions at one context, (..., F), and the losses so far, (..., targets, F)."""

    values: Array
    context: Array
    state: State

    @property
    def informative_rounds(self) -> Array:
        return self.state.informative_rounds


class State(NamedTuple):
    """Losses SSE (..., targets, F), the count and W = Σ ω; for the paper's set also the rounds themselves, f̂ of the
    last one (`anchor`) and the distances to it.
    """

    loss: Array
    informative_rounds: Array
    weight_sum: Array
    rounds: Table | None
    anchor: Array
    distance: Array

    def enclosed(self, squares: Array, error: float) -> tuple[Array, Array]:
        """Bounds on the exact sums of squares (..., F) over the rounds, if each gap is off by up to `error`."""
        share = (self.informative_rounds + 8.0)[..., None] * UNIT
        root, off = np.sqrt(squares), error * np.sqrt(self.weight_sum)[..., None]
        return np.maximum(root - off, 0.0) ** 2 * (1.0 - share), (root + off) ** 2 * (1.0 + share)


@dataclass(frozen=True)
class Finite(FunctionClass):
    """The functions of a list, one of which is the truth.

    Args:
        functions: a list of functions from contexts (..., d) to values (...), or one function to values (..., F), which
            is faster; with values in [−bound, bound], computed to within 1e-12·bound. 100,000 functions are fine.
        radius: "mixture" (default) or "paper", chosen in advance.
        prior: π, F positive weights (they are scaled to sum 1), for "mixture"; equal by default.
        bound: a bound on |f|; 1 in the paper.

    >>> directions = np.array([[1.0, 0.0, 0.6], [0.0, 1.0, 0.8]])
    >>> finite(lambda x: np.tanh(x @ directions)).init(2).loss.shape
    (2, 3)
    """

    name = "finite"
    label = "certified"
    functions: Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
    _: KW_ONLY
    radius: Literal["mixture", "paper"] = "mixture"
    prior: Any = None
    bound: float = 1.0

    def __post_init__(self) -> None:
        """Check the options."""
        radius, functions, prior = self.radius, self.functions, self.prior
        require(radius in ("mixture", "paper"), "radius", radius, "must be 'mixture' or 'paper'")
        check_bound("bound", self.bound)
        several = isinstance(functions, Sequence) and len(functions) > 0 and all(map(callable, functions))
        rule = "must be a function of contexts, or a list of at least one"
        require(callable(functions) or several, "functions", functions, rule)
        if prior is not None:
            require(radius == "mixture", "prior", prior, "is for radius 'mixture'; the paper's radius has none")
            weights = np.asarray(prior, dtype=float)
            sound = weights.ndim == 1 and weights.size > 0 and np.all(weights > 0) and np.all(np.isfinite(weights))
            require(sound, "prior", prior, "must be a list of positive numbers, one for each function")
            object.__setattr__(self, "prior", tuple(weights.tolist()))

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("the mean is one of the functions of the list", "list and prior fixed in advance")

    @property
    def error(self) -> float:
        """How far each value may be off."""
        return ROUNDING * self.bound

    @cached_property
    def log_prior(self) -> Array | None:
        """ln π, with π scaled to sum 1."""
        return None if self.prior is None else np.log(np.array(self.prior) / np.sum(self.prior))

    def values(self, context: Any) -> Array:
        """The functions' values at contexts, (..., F)."""
        if callable(self.functions):
            return np.asarray(self.functions(context), dtype=float)
        return np.stack([np.asarray(each(context), dtype=float) for each in self.functions], axis=-1)

    def at(self, context: Any, count: int | None = None) -> Array:
        """The same, checked: of as many functions as before."""
        values, lead, bound = self.values(context), np.shape(context)[:-1], self.bound
        shaped = values.ndim == len(lead) + 1 and values.shape[:-1] == lead and values.shape[-1] > 0
        require(shaped, "functions", values.shape, f"must give values of shape {(*lead, 'F')} for these contexts")
        rule = f"changed in number: there were {count}"
        require(count in (None, values.shape[-1]), "functions", values.shape[-1], rule, "a class is fixed in advance")
        seen = max(float(np.max(values)), float(np.min(values)), key=abs)
        rule, way_out = f"must have values in [-{bound:g}, {bound:g}]", "scale outcomes, or state `bound`"
        require(abs(seen) <= bound * (1.0 + ROUNDING), "functions", seen, rule, way_out)
        return values

    def init(self, dim: int, *, ridge: Any = None, batch: tuple[int, ...] = (), targets: int = 2) -> State:
        count = self.at(np.zeros((1, dim))).shape[-1]
        same = self.prior is None or len(self.prior) == count
        require(same, "prior", self.prior, f"must have one weight for each of the {count} functions")
        zeros, paper = np.zeros((*batch, targets, count)), self.radius == "paper"
        rounds = Table(batch, context=(0.0, (dim,)), weight=0.0) if paper else None
        anchor = np.full((*batch, targets), -1)
        return State(zeros, np.zeros(batch), np.zeros(batch), rounds, anchor, zeros.copy() if paper else zeros)

    def look(self, state: State, context: Any) -> View:
        return View(self.at(context, state.loss.shape[-1]), np.asarray(context, dtype=float), state)

    def bounds(self, view: View, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        state, values, error = view.state, view.values, self.error
        loss = state.loss[..., target, :]
        best = np.argmin(loss, axis=-1)
        least, most = state.enclosed(loss, error)
        if self.radius == "mixture":
            outside = least > _mixture_limit(most, noise, spec, self.log_prior)[..., None]
        else:
            limit = 8.0 * noise * noise * (np.log(loss.shape[-1]) + spec.log_inverse_risk) * (1.0 + ROUNDING)
            low, high = (np.take_along_axis(part, best[..., None], axis=-1) for part in (least, most))
            distance, _ = state.enclosed(self._distance(state, target, best), 2.0 * error)
            outside = distance > np.asarray(limit)[..., None] + 2.0 * (high - low)
        inside = ~outside
        spread = np.broadcast_to(values, loss.shape)
        lower = np.min(spread, axis=-1, where=inside, initial=np.inf) - error
        upper = np.max(spread, axis=-1, where=inside, initial=-np.inf) + error
        estimate = np.take_along_axis(spread, best[..., None], axis=-1)[..., 0]
        return Interval(estimate, lower, upper, np.zeros(best.shape, dtype=bool))

    def update(self, state: State, view: View, outcomes: Outcomes) -> State:
        weight = np.broadcast_to(outcomes.weight, state.informative_rounds.shape)
        values = np.broadcast_to(view.values, (*weight.shape, state.loss.shape[-1]))
        for target, outcome in enumerate(outcomes.targets):
            gap = values - np.broadcast_to(outcome, weight.shape)[..., None]
            gap *= gap
            gap *= weight[..., None]
            state.loss[..., target, :] += gap
        if (rounds := state.rounds) is not None:
            row = rounds.append()
            rounds.context[..., row, :], rounds.weight[..., row] = view.context, weight
            least = np.take_along_axis(values, np.maximum(state.anchor, 0), axis=-1)[..., None]
            gap = values[..., None, :] - least
            np.add(state.distance, weight[..., None, None] * gap * gap, out=state.distance)
        count = state.informative_rounds + (weight > 0.0)
        return state._replace(informative_rounds=count, weight_sum=state.weight_sum + weight)

    def ceiling(self, view: View, spec: SafetySpec) -> Any:
        return self.bound

    def first(self, spec: SafetySpec) -> Any:
        return self.bound

    def _distance(self, state: State, target: int, best: Array) -> Array:
        """‖f − f̂‖²_D for every f: kept while f̂ stays the same, recomputed from the rounds when it changes."""
        moved = np.asarray(state.anchor[..., target] != best)
        if np.any(moved):
            fresh = np.zeros((int(moved.sum()), state.loss.shape[-1]))
            index: Any = best[moved]
            rounds: Any = state.rounds
            contexts, weights = rounds.rows("context"), rounds.rows("weight")
            for row in range(weights.shape[-1]):
                spread = self.values(contexts[..., row, :][moved])
                gap = spread - np.take_along_axis(spread, index[:, None], axis=-1)
                fresh += weights[..., row][moved][:, None] * gap * gap
            state.distance[..., target, :][moved] = fresh
            state.anchor[..., target] = best
        return state.distance[..., target, :]


finite = Finite


def _mixture_limit(loss: Array, noise: Any, spec: SafetySpec, log_prior: Array | None) -> Array:
    """−2κ² ln Σ π exp(−SSE/2κ²) + 2κ² ln(1/δ′), rounded up."""
    scale = 2.0 * noise * noise
    exponent = loss / -scale
    if log_prior is not None:
        exponent = exponent + log_prior
    top = np.max(exponent, axis=-1, keepdims=True)
    exponent -= top
    total = np.sum(np.exp(exponent, where=~(exponent <= -CUT), out=np.zeros_like(exponent)), axis=-1)
    uniform = np.log(loss.shape[-1]) if log_prior is None else 0.0
    limit = scale * (uniform - top[..., 0] - np.log(total) + spec.log_inverse_risk)
    return limit + ROUNDING * (scale + np.abs(limit)) * loss.shape[-1] ** 0.5
