"""Toxicity yes or no: a logistic model of the chance that the cost is 1, with the dose acting on the odds.

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

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.function_classes.function_class import FunctionClass, Interval, Outcomes, check_bound
from safedial.function_classes.logistic_fit import Fit, fit, nothing_yet, radius
from safedial.function_classes.logistic_upper import Rounds, upper

Array = NDArray[np.float64]

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
    """The rounds so far, (n, ..., d) and (n, ...), and the latest fit."""

    __slots__ = (
        "batch",
        "contexts",
        "count",
        "fitted",
        "informative_rounds",
        "labels",
        "next_fit",
        "offsets",
        "used",
        "weights",
    )

    def __init__(self, dim: int, batch: tuple[int, ...], fitted: Fit) -> None:
        self.batch, self.fitted, self.count, self.next_fit = batch, fitted, 0, 1
        self.contexts = np.empty((0, *batch, dim))
        self.offsets, self.labels, self.weights = (np.empty((0, *batch)) for _ in range(3))
        self.informative_rounds = np.zeros(batch)
        self.used: Rounds | None = None

    def append(self, context: Array, offset: Array, label: Array, weight: Array) -> None:
        if self.count == len(self.offsets):
            more = max(64, self.count)
            for name in ("contexts", "offsets", "labels", "weights"):
                held = getattr(self, name)
                setattr(self, name, np.concatenate([held, np.zeros((more, *held.shape[1:]))]))
        for held, value in zip(
            (self.contexts, self.offsets, self.labels, self.weights), (context, offset, label, weight), strict=True
        ):
            held[self.count] = value
        self.count += 1
        self.informative_rounds = self.informative_rounds + weight

    def rounds(self, count: int) -> Rounds:
        """Contexts, offsets, labels and weights of the first rounds; the axis of rounds comes after the batch's."""
        held = (self.contexts, self.offsets, self.labels, self.weights)
        first, second, third, fourth = (
            np.ascontiguousarray(np.moveaxis(values[:count], 0, len(self.batch))) for values in held
        )
        return first, second, third, fourth


def binary(*, norm: float = 1.0, odds: float = 1.0) -> FunctionClass:
    """The logistic class above, for costs that are 0 or 1.

    Args:
        norm: S, with ‖μ*‖ ≤ S.
        odds: the known odds of an event at full intensity in context 0, which the model does not estimate.

    `bounds` gives log-odds at full intensity, ⟨x, μ⟩ + ln odds.

    >>> binary(norm=2.0).binary
    True
    """
    size, base = check_bound("norm", norm), float(np.log(check_bound("odds", odds)))
    damp = 1.0 / size**2

    def init(dim: int, *, ridge: Any = None, batch: tuple[int, ...] = (), targets: int = 1) -> Trials:
        return Trials(dim, batch, nothing_yet(dim, damp, batch))

    def look(state: Trials, context: Any) -> View:
        context = np.broadcast_to(np.asarray(context, dtype=float), (*state.batch, np.shape(context)[-1]))
        direction = np.matmul(state.fitted.inverse, context[..., None])[..., 0]
        width = np.sqrt(np.maximum(np.vecdot(context, direction), 0.0))
        norm_of = np.sqrt(np.vecdot(context, context))
        value = np.vecdot(context, state.fitted.coef)
        return View(value, width, norm_of, state.informative_rounds, state.fitted, context, state.used)

    def bounds(view: View, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        reach = radius(view.fitted, spec.log_inverse_risk, size=size, ridge=damp) * view.width
        top = size * view.norm
        lower, above = view.value - reach, view.value + reach
        refuted = (above < -top) | (lower > top)
        if view.rounds is not None:
            above = upper(view.rounds, view.fitted, view.context, above, spec.log_inverse_risk, size=size)
        return Interval(view.value + base, lower + base, above + base, refuted)

    def update(state: Trials, view: View, outcomes: Outcomes) -> Trials:
        label = np.broadcast_to(outcomes.targets[-1], state.batch).astype(float)
        intensity = np.broadcast_to(outcomes.intensity, state.batch)
        weight = np.broadcast_to(outcomes.weight, state.batch)
        used = (weight > 0.0) & (intensity > 0.0)
        odd = label[used & (label != 0.0) & (label != 1.0)]
        require(
            odd.size == 0, "cost", odd[0] if odd.size else None, "must be 0 or 1 for class binary", "use another class"
        )
        offset = np.log(np.where(used, intensity, 1.0)) + base
        state.append(view.context, offset, np.where(used, label, 0.0), used.astype(float))
        if state.count >= state.next_fit:
            state.used = state.rounds(state.count)
            state.fitted = fit(*state.used, state.fitted.coef, size=size, ridge=damp)
            state.next_fit = max(state.count + 1, int(state.count * GROWTH))
        return state

    assumptions = (
        f"the cost is 0 or 1, with odds {odds:g}·z·exp⟨x, μ⟩, ‖μ‖ at most {size:g}, given all earlier rounds",
        "each dose uses nothing about its round's outcome beyond the context",
    )
    limits = (lambda view, spec: size * view.norm + base, lambda spec: size * spec.context_bound + base)
    steps = (init, look, bounds, update, *limits, _pack, _unpack)
    return FunctionClass("binary", "certified", {"norm": size, "odds": odds}, assumptions, *steps, binary=True)


def _pack(state: Trials) -> dict[str, Any]:
    held = {name: getattr(state, name)[: state.count] for name in ("contexts", "offsets", "labels", "weights")}
    fitted = {f"fitted.{name}": value for name, value in state.fitted._asdict().items()}
    used = 0 if state.used is None else state.used[1].shape[-1]
    return {**held, **fitted, "schedule": np.array([state.count, state.next_fit, used])}


def _unpack(arrays: dict[str, Any]) -> Trials:
    contexts = arrays["contexts"]
    state = Trials(contexts.shape[-1], contexts.shape[1:-1], Fit(*(arrays[f"fitted.{name}"] for name in Fit._fields)))
    for name in ("contexts", "offsets", "labels", "weights"):
        setattr(state, name, np.array(arrays[name]))
    state.count, state.next_fit, used = (int(value) for value in arrays["schedule"])
    state.informative_rounds = state.weights.sum(axis=0)
    state.used = state.rounds(used) if used else None
    return state
