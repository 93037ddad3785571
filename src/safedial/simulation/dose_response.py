"""Dose-response worlds: each round is a unit with a cost curve of its own and a tolerance, above which it exceeds.

    T = p(x)·max(exp(⟨f, w⟩ + ζ_u + σξ), least)·fall_t          C(a) > τ  if and only if  a > T

p(x) is a protocol's setting, the context's first column; f are features, uniform on [−1, 1], with weights w that no
protocol knows; ζ_u belongs to a patient who comes again, whose number is the last column; ξ is normal, or Student's t
with 2 degrees of freedom; fall_t is 1 up to a round and `fall` after it. Given T, the curve is one of

| curve | C(a) | a bracket that holds |
|---|---|---|
| `power` | τ(a/T)^e, e uniform on [low, high] | `relative(low, high, floor=…)` |
| `hinge` | τ + s(max(a, k) − T), s uniform on [low, high], k/T uniform on [0, knee] | `additive(low, high)` |
| `binary` | 1 if a > T, else 0 | `spread(step, spread)`, with normal tails and least = 0 |
| `stated` | a power or a hinge, as the bracket of the cost in the spec says | that bracket, if high ≤ 1 |

A hinge is flat up to its knee, and at 0 it costs anything, also less than nothing: a baseline that nobody knows. If the
spec has several costs, the tolerance is that of one of them, drawn anew for each unit; the others tolerate up to e^gap
times as much, and each has a steepness of its own. So one formula gives the clairvoyant that knows w, ζ, σ and fall_t
in all these worlds:

    P(any cost > τ | x) = P(T < a | x) ≤ δ  as long as  a ≤ p(x)·max(exp(⟨f, w⟩ + ζ_u + σ·F⁻¹(δ)), least)·fall_t

Rounds are exchangeable unless the tolerance falls. A share `missing` of the outcomes is lost at random.

Vancomycin on a ward: trough and exposure after two doses a day, by a published population model.

Two compartments (Thomson, Staatz, Tobin, Gall and Lovering, J Antimicrob Chemother 2009;63:1050-7), with creatinine
clearance by Cockcroft and Gault. Half of the daily dose runs in over one hour, every twelve hours. The trough is
measured just before the fifth dose; the exposure is the area under the curve over a day, daily dose / clearance.

Each function works on a batch: every argument is a number or an array, one element for a patient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import is_number, is_whole, require
from safedial.model.brackets import Growth
from safedial.model.costs import by_name
from safedial.model.spec import SafetySpec
from safedial.simulation.world import Array, Draws, Exposure, Generators, Normalised, Outcome, World, normals

CURVES = ("power", "hinge", "binary", "stated")
TOLERANCE, STEEPNESS, KNEE, BINDING, LOST, FALL = range(6)
"""What the last axis of a round's cost noise holds: five uniform numbers, and the logarithm of fall_t."""
BRACKETED = {"relative": "power", "additive": "hinge"}
"""The curve for which a bracket can hold."""
GOLDEN = 0.381966
"""By how much the places of two costs' steepness differ, between 0 and 1."""
CUT = 40.0
"""Where ln T/p ends, so that no cost overflows."""


class Truth(NamedTuple):
    """The weights of the features, (seeds, features), and the patients' log-tolerances, (seeds, units)."""

    weights: Array
    patients: Array


@dataclass(frozen=True, kw_only=True)
class DoseResponseWorld(World):
    """A dose-response world. It needs none of a spec's constants; `reward_noise` is used where it is given.

    Args:
        curve: "power", "hinge" or "binary"; or "stated", for costs with relative or additive brackets in the spec.
        dim: columns of a context: the protocol's setting, features, and a patient's number where there are units.
        low, high: the ends of the exponents of `power`, or of the slopes of `hinge` per unit of the dial; for `stated`,
            places in the bracket of each cost, 0 at its lower end, 1 at its upper one, above 1 multiples of that.
        knee: the largest share of the tolerance up to which a `hinge` may be flat, < 1.
        spread: σ. tails: of ξ, "normal" or "t2".
        least: no unit tolerates less than this share of the protocol's setting: a start there is wholly safe.
        effect: the standard deviation of ⟨f, w⟩; the features then tell something of the tolerance.
        protocol: the mean of p(x), which is uniform on 0.5 to 1.5 times this.
        units, between: how many patients come again and again, and the standard deviation of their ζ.
        fall, after: tolerances are multiplied by `fall` in all rounds after this number.
        gap: with several costs, the logarithm of how much more a cost tolerates that does not bind, at most.
        missing: the share of outcomes that are lost, unrelated to anything.
    """

    curve: Literal["power", "hinge", "binary", "stated"] = "power"
    dim: int = 1
    low: float = 1.0
    high: float = 1.0
    knee: float = 0.0
    spread: float = 0.5
    tails: Literal["normal", "t2"] = "normal"
    least: float = 0.0
    effect: float = 0.0
    protocol: float = 0.2
    units: int = 0
    between: float = 0.3
    fall: float = 1.0
    after: int = 0
    gap: float = 0.5
    missing: float = 0.0

    constants, several_costs = (), True

    def __post_init__(self) -> None:
        require(self.curve in CURVES, "curve", self.curve, "must be one of " + ", ".join(CURVES))
        require(self.tails in ("normal", "t2"), "tails", self.tails, "must be 'normal' or 't2'")
        for name, least in (("dim", 1), ("units", 0), ("after", 0)):
            value = getattr(self, name)
            require(is_whole(value, least), name, value, f"must be a whole number >= {least}")
        for name, (least, most) in _ENDS.items():
            value = getattr(self, name)
            require(
                is_number(value) and least <= value <= most, name, value, f"must be a number from {least:g} to {most:g}"
            )
        require(self.low <= self.high, "low", self.low, f"must be at most high = {self.high:g}")
        finite = self.curve != "power" or self.high <= 10.0
        require(finite, "high", self.high, "must be at most 10 for a power")
        words = f"is too small for a protocol's setting{', a label' if self.units else ''}"
        require(self.features >= 0, "dim", self.dim, words, f"at least {2 if self.units else 1}")
        told = self.features > 0 or self.effect == 0.0
        require(told, "effect", self.effect, f"needs features, and dim = {self.dim} has none")

    def keeps(self, growth: Growth) -> bool:
        """Whether no unit breaks a bracket. Costs of 0 or 1 with a least tolerance break a spread bracket: there the
        share that exceeds leaps.
        """
        if self.curve == "stated":
            return self.high <= 1.0
        if BRACKETED.get(growth.name) != self.curve:
            return False
        return bool(growth.parameters["low"] <= self.low and self.high <= growth.parameters["high"])

    @property
    def features(self) -> int:
        """How many columns of a context are features."""
        return self.dim - 1 - (self.units > 0)

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> Truth:
        """⟨f, w⟩ has the stated deviation, because a feature has a third for its variance."""
        drawn = normals(rngs["truth"], (self.features + self.units,))
        weights, patients = drawn[:, : self.features], drawn[:, self.features :]
        size = np.linalg.norm(weights, axis=-1, keepdims=True)
        return Truth(weights * (self.effect * 3.0**0.5 / np.where(size > 0.0, size, 1.0)), self.between * patients)

    def draw_contexts(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int) -> Array:
        """Each column from numbers of its own round, so that chunks do not matter."""
        context = np.stack([rng.random((rounds, self.dim)) for rng in rngs["context"]])
        context[..., 0] = self.protocol * (0.5 + context[..., 0])
        context[..., 1 : 1 + self.features] = 2.0 * context[..., 1 : 1 + self.features] - 1.0
        if self.units:
            context[..., -1] = np.floor(self.units * context[..., -1])
        return context

    def draw_chunk(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int = 0) -> Draws:
        context = np.ascontiguousarray(np.swapaxes(self.draw_contexts(spec, rngs, rounds, done), 0, 1))
        coin = np.stack([rng.random(rounds) for rng in rngs["coin"]], axis=1)
        reward = np.stack([rng.standard_normal(rounds) for rng in rngs["reward_noise"]], axis=1)
        unit = np.zeros((rounds, coin.shape[1], FALL + 1))
        drawn = np.stack([rng.random((rounds, FALL)) for rng in rngs["cost_noise"]], axis=1)
        unit[..., :FALL] = np.maximum(drawn, 2.0**-54)
        unit[max(0, self.after - done) :, :, FALL] = np.log(self.fall)
        nothing = np.zeros(coin.shape)
        return Draws(context, reward * (spec.reward_noise or 0.0), unit, coin, nothing, nothing)

    def means(self, spec: SafetySpec, truth: Truth, context: Array) -> tuple[Array, Array]:
        """1, the reward of a unit of intensity, and ⟨f, w⟩ + ζ_u, the middle of ln T/p."""
        middle = np.vecdot(context[..., 1 : 1 + self.features], truth.weights)
        if self.units:
            label = context[..., -1].astype(np.int64)
            middle = middle + np.take_along_axis(truth.patients, label.T, axis=1).T
        return np.ones(middle.shape), middle

    def outcome(self, spec: SafetySpec, exposure: Exposure) -> Outcome:
        reward = exposure.reward_intensity * (exposure.reward_mean + exposure.reward_noise)
        tolerance = self._tolerance(exposure, exposure.cost_noise[..., TOLERANCE])
        stated, costs = spec.costs, {}
        if stated is None:
            require(self.curve != "stated", "curve", self.curve, "needs costs in the spec", "choose another curve")
            cost: Any = self._cost(spec.threshold, exposure, tolerance)
            return Outcome(reward, cost, cost)
        place = exposure.cost_noise[..., BINDING] * len(stated)
        for number, (name, each) in enumerate(stated.items()):
            more = np.where(np.floor(place) == number, 0.0, self.gap * (place % 1.0))
            cost = self._cost(each.threshold, exposure, tolerance * np.exp(more), number, each.growth)
            costs[name] = cost if each.direction == "above" else 2.0 * each.threshold - cost
        return Outcome(reward, costs, costs)

    def normalised(self, spec: SafetySpec, exposure: Exposure, weight: Array) -> Normalised:
        reward, cost, _ = self.outcome(spec, exposure)
        by = np.where(weight > 0, exposure.cost_intensity, 1.0)
        one = next(iter(by_name(cost).values()))
        left_out = exposure.cost_noise[..., LOST] < self.missing if self.missing else None
        return Normalised(reward / np.where(weight > 0, exposure.reward_intensity, 1.0), one / by, cost, left_out)

    def exact_intensity(self, spec: SafetySpec, exposure: Exposure) -> Array:
        return np.minimum(self._tolerance(exposure, spec.violation_risk), 1.0)

    def _tolerance(self, exposure: Exposure, share: Any) -> Array:
        """T at a share of its law given the context."""
        factor = np.exp(np.clip(exposure.cost_mean + self.spread * _quantile(self.tails, share), -CUT, CUT))
        fallen = np.exp(exposure.cost_noise[..., FALL])
        return exposure.context[..., 0] * np.maximum(factor, self.least) * fallen

    def _cost(
        self, threshold: Any, exposure: Exposure, tolerance: Array, number: int = 0, growth: Growth | None = None
    ) -> Array:
        setting, unit, curve = exposure.cost_intensity, exposure.cost_noise, self.curve
        steep = self.low + (self.high - self.low) * ((unit[..., STEEPNESS] + GOLDEN * number) % 1.0)
        if curve == "stated":
            curve, steep = _stated(growth, steep)
        if curve == "binary":
            return (setting > tolerance).astype(float)
        if curve == "power":
            return threshold * (setting / tolerance) ** steep
        return threshold + steep * (np.maximum(setting, self.knee * unit[..., KNEE] * tolerance) - tolerance)


def _stated(growth: Any, place: Array) -> tuple[str, Array]:
    """The curve of a cost with a bracket, and its steepness by place: 0 is the lower end, or a twentieth of the upper
    one if that is more, 1 the upper end, and places above 1 are multiples of it.
    """
    known = growth.name in BRACKETED and not growth.features
    require(known, "growth", growth.name, "must be relative or additive, with numbers, for the curve 'stated'")
    high = growth.parameters["high"]
    low = max(growth.parameters["low"], 0.05 * high)
    return BRACKETED[growth.name], np.where(place <= 1.0, low + (high - low) * place, high * place)


_ENDS = {
    "low": (0.0, 1e6),
    "high": (0.0, 1e6),
    "knee": (0.0, 0.99),
    "spread": (0.0, 10.0),
    "least": (0.0, 10.0),
    "effect": (0.0, 10.0),
    "protocol": (0.001, 0.66),
    "between": (0.0, 10.0),
    "fall": (0.01, 100.0),
    "gap": (0.0, 10.0),
    "missing": (0.0, 1.0),
}


def _quantile(tails: str, share: Any) -> Any:
    """F⁻¹ of ξ.

    >>> [round(float(_quantile(tails, 0.05)), 3) for tails in ("normal", "t2")]
    [-1.645, -2.92]
    """
    if tails == "t2":
        return (2.0 * share - 1.0) / np.sqrt(2.0 * share * (1.0 - share))
    from scipy.special import ndtri

    return ndtri(share)


# --- Vancomycin on a ward

INFUSION, INTERVAL, BEFORE_FIFTH = 1.0, 12.0, 48.0
"""Hours: how long a dose runs in, how far doses lie apart, when the trough is measured."""

SPREAD = {"clearance": 0.27, "central": 0.15, "peripheral": 1.30, "exchange": 0.49}
"""Between patients: coefficients of variation of log-normal factors."""
RELATIVE_ERROR, ABSOLUTE_ERROR = 0.15, 1.6
"""Of a measured concentration: as a share of it, and in mg/l."""


class Patients(NamedTuple):
    """What a clinician sees (age in years, weight in kg, creatinine in mg/dl, sex, clearance of creatinine in ml/min),
    and what nobody sees: clearances in l/h, volumes in l, and the two errors of the assay.
    """

    age: Array
    weight: Array
    female: NDArray[np.bool_]
    creatinine: Array
    creatinine_clearance: Array
    clearance: Array
    central: Array
    peripheral: Array
    exchange: Array
    errors: Array


def draw_patients(rng: np.random.Generator, size: int) -> Patients:
    """Adults on a ward.

    >>> patients = draw_patients(np.random.default_rng(1), 1000)
    >>> bool(patients.weight.min() >= 40.0)
    True
    """
    female = rng.random(size) < 0.5
    age = np.clip(rng.normal(62.0, 16.0, size), 18.0, 95.0)
    weight = np.clip(rng.normal(np.where(female, 70.0, 84.0), 16.0), 40.0, 150.0)
    creatinine = 0.85 * np.exp(0.25 * rng.normal(size=size))
    filtered = cockcroft_gault(age, weight, creatinine, female)
    factor = {name: np.exp(np.sqrt(np.log1p(cv * cv)) * rng.normal(size=size)) for name, cv in SPREAD.items()}
    return Patients(
        age,
        weight,
        female,
        creatinine,
        filtered,
        clearance=np.maximum(2.99 * (1.0 + 0.0154 * (filtered - 66.0)), 0.1) * factor["clearance"],
        central=0.675 * weight * factor["central"],
        peripheral=0.732 * weight * factor["peripheral"],
        exchange=2.28 * factor["exchange"],
        errors=rng.normal(size=(2, size)),
    )


def cockcroft_gault(age: Any, weight: Any, creatinine: Any, female: Any) -> Array:
    """Creatinine clearance in ml/min; at most 150."""
    return np.minimum((140.0 - age) * weight * np.where(female, 0.85, 1.0) / (72.0 * creatinine), 150.0)


def protocol_dose(patients: Patients) -> Array:
    """A common rule, mg a day: 30 mg/kg, less where the kidneys are weak."""
    return 30.0 * patients.weight * np.minimum(1.0, patients.creatinine_clearance / 90.0)


def exposure(patients: Patients, daily_dose: Any) -> Array:
    """The area under the curve over 24 hours at steady state, mg·h/l."""
    return daily_dose / patients.clearance


def concentration(patients: Patients, daily_dose: Any, hours: float) -> Array:
    """mg/l in the central compartment, by superposition of the infusions that began before `hours`."""
    fast, slow, weights = _exponentials(patients)
    rate = 0.5 * daily_dose / INFUSION / patients.central
    total = np.zeros(np.broadcast_shapes(np.shape(daily_dose), patients.clearance.shape))
    for begin in np.arange(0.0, hours, INTERVAL):
        running = min(INFUSION, hours - begin)
        since = hours - begin - running
        for speed, weight in zip((fast, slow), weights, strict=True):
            total += rate * weight / speed * -np.expm1(-speed * running) * np.exp(-speed * since)
    return total


def measured_trough(patients: Patients, daily_dose: Any) -> Array:
    """What the laboratory reports before the fifth dose; never below 0."""
    relative, absolute = patients.errors
    true = concentration(patients, daily_dose, BEFORE_FIFTH)
    return np.maximum(true * (1.0 + RELATIVE_ERROR * relative) + ABSOLUTE_ERROR * absolute, 0.0)


def _exponentials(patients: Patients) -> tuple[Array, Array, tuple[Array, Array]]:
    """The two rates of decay, 1/h, and the share of each after a dose into the central compartment."""
    out, there = patients.clearance / patients.central, patients.exchange / patients.central
    back = patients.exchange / patients.peripheral
    total = out + there + back
    fast = 0.5 * (total + np.sqrt(total * total - 4.0 * out * back))
    slow = out * back / fast
    return fast, slow, ((fast - back) / (fast - slow), (back - slow) / (fast - slow))
