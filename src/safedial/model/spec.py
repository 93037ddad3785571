"""The guarantee and its assumptions, checked when they are stated.

    certified:  with probability ≥ 1 − δ′, for all t:  P(C_t > τ | history, X_t, α_t) ≤ δ,
                hence P(C_t > τ) ≤ δ + δ′ in every round
    joint:      P(C_t > τ in any round) ≤ δ + δ′, by spending δ_t = 6δ/(π² t²)
    conformal:  P(C_t > τ) ≤ δ in every round, for exchangeable rounds; needs none of the constants
    bracket:    the same for costs that keep to a growth bracket, whatever their dose curve
    student:    the same for Gaussian noise of unknown size, whatever the contexts do, if they do not follow past noise

The noise margin, the room left for noise in every round, may use more than a sub-Gaussian constant (`bounds.margin`);
learning about the noise from data has its own risk, `margin_risk`, which is added to the sum.

The numbers of a `SafetySpec` may be arrays: they broadcast against the batch, so a grid of specs is one call,
with one row of results for each value, in simulations and replays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from safedial.errors import InvalidInput, require
from safedial.model.costs import Cost, read_costs, require_one_cost, split_spec
from safedial.model.dose import Dose
from safedial.model.guarantee import CERTIFIED, CONSTANTS, GUARANTEES, PROVED, Guarantee
from safedial.model.namespace import is_zero, namespace, normal_quantile
from safedial.model.noise_scale import NoiseScale, scale_from_dict


def log_inverse(risk: Any) -> Any:
    """ln(1/risk)."""
    return -namespace(risk).log(risk)


def tail(risk: Any, margin: str = "subgaussian") -> Any:
    """q, in units of κ, that noise exceeds with probability at most `risk`: √(2 ln 1/δ), or Φ⁻¹(1−δ) if Gaussian.

    >>> [f"{tail(0.01, margin):.4f}" for margin in ("subgaussian", "gaussian")]
    ['3.0349', '2.3263']
    """
    if margin == "gaussian":
        quantile = -normal_quantile(risk)
        return namespace(quantile).maximum(quantile, 0.0 * quantile)
    return (2.0 * log_inverse(risk)) ** 0.5


# --- The guarantee and its assumptions, checked when they are stated

VIOLATION_SHARE = 0.9
"""The share of `total_risk` for the noise. The noise margin costs reward in every round for ever, the radius less and
less as rounds accumulate; at equal risk the margin costs more, so it gets most of the budget."""

LARGEST = 1e60

POSITIVE = {
    "threshold": "state the largest cost you accept; a threshold of 0 leaves no positive dose",
    "reward_noise": "state the reward's sub-Gaussian constant",
    "cost_noise": "state the cost's sub-Gaussian constant",
    "coefficient_bound": "state an upper bound on the norm of the true coefficients",
    "context_bound": "state an upper bound on the norm of every context",
    "ridge": "1 is the paper's choice",
}


@dataclass(frozen=True, kw_only=True)
class SafetySpec:
    """The guarantee and its assumptions.

    Args:
        threshold: τ, which the realized cost must not exceed; > 0, or of any sign with guarantee="bracket".
        reward_noise, cost_noise: κ_r, κ_c: the noise is κ-sub-Gaussian given the history, X_t and α_t.
        coefficient_bound: S, with ‖θ*‖ ≤ S and ‖μ*‖ ≤ S.
        context_bound: L, with ‖X_t‖ ≤ L.
        violation_risk: δ, the chance in each round that noise pushes the cost above τ.
        estimation_risk: δ′, the chance that the cost's confidence set misses in any round of the study.
        total_risk: instead of the two, their sum; nine tenths go to `violation_risk`.
        ridge: λ > 0, fixed in advance. If it is not stated it is 1, or follows from the other numbers with the radius
            `self-normalised` (`bounds.confidence`).
        guarantee: "certified", in every round; "joint" for "never in any round", certified as well; "conformal", for
            exchangeable rounds: the two noises, S, L and δ′ may then be left out (a start dose is certified from
            `cost_noise` and S, if given), and `total_risk` is δ; "bracket", for exchangeable rounds and a growth
            bracket (`hp_shield`), with neither constants nor an exact dose curve; or "student", for Gaussian noise of
            unknown size (`hp_student`), without constants.
        reward_sensor_noise, cost_sensor_noise: σ_ε of an additive sensor error that does not scale with the dose.
        sensor_dependent: True if the sensor error may depend on the outcome's own noise.
        threshold_on: "measured" if τ limits what the sensor shows, "true" if it limits the cost without the error.
        margin: what the noise margin assumes: "subgaussian" (κ_c alone), "gaussian" (the noise is Gaussian) or
            "bounded" (it lies in a known range).
        margin_risk: δ_q, the chance that what is learned about the noise is wrong in any round. "bounded" may have it,
            and then also learns the variance, which must be constant.
        noise_low, noise_high: the range of ξ_c for "bounded".
        noise_scale: how the noise grows with the dose (`model.noise_scale`), if not in proportion to the intensity.
        costs: several costs by name, each a `Cost` with a threshold of its own, in place of `threshold`; outcomes then
            bring a mapping. "Exceeds" means that any of them does. With guarantee="bracket" each has a bracket; with a
            certified guarantee a noise, in place of `cost_noise`, and a share of the risks (`model.costs`); with
            guarantee="student" only a share.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.02, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> round(spec.violation_risk, 6), round(spec.estimation_risk, 6)
    (0.018, 0.002)
    """

    threshold: Any = None
    reward_noise: Any = None
    cost_noise: Any = None
    coefficient_bound: Any = None
    context_bound: Any = None
    violation_risk: Any = None
    estimation_risk: Any = None
    total_risk: Any = None
    ridge: Any = None
    guarantee: str = "certified"
    reward_sensor_noise: Any = 0.0
    cost_sensor_noise: Any = 0.0
    sensor_dependent: bool = False
    threshold_on: Literal["measured", "true"] = "measured"
    margin: Literal["subgaussian", "gaussian", "bounded"] = "subgaussian"
    margin_risk: Any = None
    noise_low: Any = None
    noise_high: Any = None
    noise_scale: NoiseScale | None = None
    costs: Mapping[str, Cost] | None = field(default=None, hash=False)
    states_ridge: bool = field(init=False, repr=False, compare=False)
    """Whether the ridge was stated."""
    log_inverse_risk: Any = field(init=False, repr=False, compare=False)
    """ln(1/δ′), which every radius needs in every round."""
    tail: Any = field(init=False, repr=False, compare=False)
    """q = √(2 ln 1/δ): κ-sub-Gaussian noise exceeds qκ with probability at most δ; Φ⁻¹(1−δ) for Gaussian noise."""
    same_noise: bool = field(init=False, repr=False, compare=False)
    """Whether κ_r = κ_c, one number: then one radius serves both."""
    least_informative: Any = field(init=False, repr=False, compare=False)
    """σ_ε/κ: below this intensity a sample is mostly sensor noise, and a probe teaches little; None without sensors."""
    sensors: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Which sensors err: that of the "reward", that of the "cost", both or neither."""

    def __post_init__(self) -> None:
        _one_of("guarantee", self.guarantee, PROVED)
        _one_of("margin", self.margin, MARGINS)
        object.__setattr__(self, "states_ridge", self.ridge is not None)
        if not self.states_ridge:
            object.__setattr__(self, "ridge", 1.0)
        if self.costs is not None:
            self._check_costs()
        for name in NUMBERS:
            if getattr(self, name) is not None or not (name in OPTIONAL or self._may_lack(name)):
                object.__setattr__(self, name, _number(name, getattr(self, name)))
        self._split_total_risk()
        self._check_sizes()
        _one_of("threshold_on", self.threshold_on, ("measured", "true"))
        _one_of("sensor_dependent", self.sensor_dependent, (True, False))
        sensors = tuple(name for name in ("reward", "cost") if not is_zero(getattr(self, f"{name}_sensor_noise")))
        object.__setattr__(self, "sensors", sensors)
        self._check_margin()
        self._check_scale()
        self._check_sensors()
        known = self.estimation_risk is not None
        object.__setattr__(self, "log_inverse_risk", log_inverse(self.estimation_risk) if known else None)
        object.__setattr__(self, "tail", tail(self.violation_risk, self.margin))
        plain = isinstance(self.reward_noise, float) and isinstance(self.cost_noise, float)
        object.__setattr__(self, "same_noise", plain and self.reward_noise == self.cost_noise)
        object.__setattr__(self, "least_informative", self._least_informative())
        split_spec(self)

    @property
    def _stated(self) -> Guarantee:
        return GUARANTEES[self.guarantee]

    def _least_informative(self) -> Any:
        if not self.sensors or self.reward_noise is None or self.cost_noise is None:
            return None
        reward = self.reward_sensor_noise / self.reward_noise
        cost = self.cost_sensor_noise / self.cost_noise
        return namespace(reward, cost).maximum(reward, cost)

    def _check_costs(self) -> None:
        way_out = f"use {_named(lambda each: 'costs' in each.takes)}, or state one threshold"
        self._require_taken("costs", "has no proof for several costs", way_out)
        own = {
            "threshold": None,
            "threshold_on": "measured",
            "cost_noise": None,
            "noise_low": None,
            "noise_scale": None,
        }
        for name, plain in own.items():
            way_out = "leave it out" if name in ("noise_low", "noise_scale") else "state it in each Cost"
            given = getattr(self, name)
            require(given == plain, name, given, "cannot be combined with costs", way_out)
        object.__setattr__(self, "costs", read_costs(self.costs, self._stated))

    def _require_taken(self, what: str, rule: str, way_out: str) -> None:
        """Refuse what the guarantee does not take."""
        require(what in self._stated.takes, "guarantee", self.guarantee, rule, way_out)

    def _may_lack(self, name: str) -> bool:
        if name in ("threshold", "cost_noise") and self.costs is not None:
            return True
        return name in CONSTANTS and name not in self._stated.constants

    def _check_sizes(self) -> None:
        """Check that numbers are positive and that their squares and quotients are floats, for the rounding bounds."""
        for name, way_out in POSITIVE.items():
            value = getattr(self, name)
            if value is not None:
                signed = name == "threshold" and "any threshold" in self._stated.takes
                require(signed or np.all(value > 0), name, value, "must be > 0", way_out)
                _of_usual_size(name, value)
        for name in ("reward_sensor_noise", "cost_sensor_noise"):
            value = getattr(self, name)
            require(np.all(value >= 0), name, value, "must be >= 0")
            _of_usual_size(name, value)

    def _check_margin(self) -> None:
        """Check what each margin needs, and what it excludes."""
        if self.margin_risk is not None:
            learns, way_out = self.margin == "bounded", "leave it out, or use margin='bounded'"
            require(learns, "margin_risk", self.margin_risk, "learns nothing here", way_out)
            _risk("margin_risk", self.margin_risk)
        ends = self.noise_low, self.noise_high
        if self.margin == "bounded":
            inside = (
                None not in ends and np.all(np.asarray(self.noise_low) < 0) and np.all(np.asarray(self.noise_high) > 0)
            )
            require(inside, "noise_low, noise_high", ends, "must be given, with noise_low < 0 < noise_high")
            _of_usual_size("noise_low", self.noise_low)
            _of_usual_size("noise_high", self.noise_high)
        else:
            require(ends == (None, None), "noise_low, noise_high", ends, "have no part here", "use margin='bounded'")
        if self.margin != "subgaussian":
            rule = f"does not apply to margin='{self.margin}'"
            self._require_taken("margins", rule, "use guarantee='certified'")

    def _check_scale(self) -> None:
        if self.noise_scale is None:
            return
        if not isinstance(self.noise_scale, NoiseScale):
            object.__setattr__(self, "noise_scale", scale_from_dict(self.noise_scale))
        words, way_out = "cannot be combined with a noise_scale", "with a scale the noise is not i.i.d."
        require(self.margin_risk is None, "margin_risk", self.margin_risk, words, way_out)
        self._require_taken("noise_scale", words, "use guarantee='certified'")

    def _check_sensors(self) -> None:
        if not self.sensors:
            return
        rule = "cannot be combined with sensor noise"
        require(self.margin != "bounded", "margin", self.margin, rule, "use 'subgaussian' or 'gaussian'")
        way_out = "let the scale include it: with_sensor(σ/κ)"
        require(self.noise_scale is None, "noise_scale", self.noise_scale, rule, way_out)

    @property
    def learns_noise(self) -> bool:
        """Whether the margin is learned from the rounds."""
        return self.margin_risk is not None

    @property
    def guaranteed_risk(self) -> Any:
        """The largest probability of a violation in a round: δ, + δ′ and + δ_q where the guarantee counts them."""
        first, *others = (getattr(self, name) for name in self._stated.risks)
        return sum((risk for risk in others if risk is not None), first)

    def constants(self, names: tuple[str, ...]) -> dict[str, Any]:
        """These constants, None where one is not stated; in place of `cost_noise` that of each of several costs."""
        found = {name: getattr(self, name) for name in names}
        if self.costs is not None and found.pop("cost_noise", ...) is not ...:
            found |= {f"noise of costs[{name!r}]": cost.noise for name, cost in self.costs.items()}
        return found

    def _split_total_risk(self) -> None:
        if self.total_risk is not None:
            require(
                self.violation_risk is None and self.estimation_risk is None and self.margin_risk is None,
                "total_risk",
                self.total_risk,
                "cannot be combined with violation_risk, estimation_risk or margin_risk",
                "give the sum, or its parts",
            )
            _risk("total_risk", self.total_risk)
            whole = not self._stated.constants
            object.__setattr__(self, "violation_risk", self.total_risk * (1.0 if whole else VIOLATION_SHARE))
            rest = None if whole else self.total_risk - self.violation_risk
            object.__setattr__(self, "estimation_risk", rest)
            object.__setattr__(self, "total_risk", None)
        _risk("violation_risk", self.violation_risk)
        if self.estimation_risk is not None or self._stated.constants:
            _risk("estimation_risk", self.estimation_risk)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `SafetySpec.from_dict` gives the same spec back."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name in NAMES
            if (value := getattr(self, name)) is not None
        }
        if self.costs is not None:
            plain["costs"] = {name: cost.to_dict() for name, cost in self.costs.items()}
        return plain if self.noise_scale is None else plain | {"noise_scale": self.noise_scale.to_dict()}

    def stated(self) -> dict[str, Any]:
        """`to_dict` without a ridge that was not stated, which an agent or a study may choose by rule."""
        return {name: value for name, value in self.to_dict().items() if name != "ridge" or self.states_ridge}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SafetySpec:
        """The inverse of `to_dict`; an error lists unknown or missing names."""
        unknown = sorted(set(fields) - {each.name for each in dataclass_fields(cls) if each.init})
        near = [get_close_matches(name, NAMES, n=1) for name in unknown]
        way_out = "did you mean " + ", ".join(match[0] for match in near if match) + "?" if any(near) else ""
        require(not unknown, "spec", unknown, "has unknown names", way_out)
        stated = GUARANTEES.get(str(fields.get("guarantee")), CERTIFIED)
        needed = {"threshold", *stated.constants}
        missing = sorted(needed - ({"threshold", "cost_noise"} if fields.get("costs") else set()) - set(fields))
        require(not missing, "spec", missing, "lacks these fields")
        return cls(**fields)


NAMES = tuple(each.name for each in dataclass_fields(SafetySpec) if each.init)
MARGINS = ("subgaussian", "gaussian", "bounded")
RISKS = ("violation_risk", "estimation_risk", "total_risk")
OPTIONAL = (*RISKS, "margin_risk", "noise_low", "noise_high")
NUMBERS = (*POSITIVE, *OPTIONAL, "reward_sensor_noise", "cost_sensor_noise")


def _number(name: str, value: Any) -> Any:
    """A Python float, or an array of floats; bool, text, NaN and infinity are refused."""
    way_out = (
        f"{POSITIVE[name]}, or use {_named(lambda each: not each.constants)}, which need none"
        if name in CONSTANTS
        else ""
    )
    require(value is not None, name, value, "must be a finite number", way_out)
    numbers = None if isinstance(value, (bool, str)) else np.asarray(value)
    if numbers is None or numbers.dtype.kind not in "iuf" or not np.all(np.isfinite(numbers)):
        raise InvalidInput(f"{name} = {value!r}: must be a finite number")
    if numbers.ndim == 0:
        return float(numbers)
    return value if hasattr(value, "dtype") and numbers.dtype.kind == "f" else numbers.astype(float)


def _of_usual_size(name: str, value: Any) -> None:
    size = np.abs(np.asarray(value))
    usual = np.all((size >= 1.0 / LARGEST) | (size == 0.0)) and np.all(size <= LARGEST)
    require(usual, name, value, f"must lie between {1.0 / LARGEST:g} and {LARGEST:g}", "choose other units")


def _risk(name: str, value: Any) -> None:
    parts = "give violation_risk and estimation_risk, or total_risk; violation_risk alone where nothing else is risked"
    require(value is not None, name, value, "is missing", parts)
    require(
        np.all(value >= 1.0 / LARGEST) and np.all(value < 1),
        name,
        value,
        "must lie strictly between 0 and 1",
        "0.01 means one round in a hundred",
    )


def _named(fits: Callable[[Guarantee], bool]) -> str:
    """The guarantees of a spec that fit, in words."""
    return "guarantee=" + " or ".join(repr(name) for name in PROVED if fits(GUARANTEES[name]))


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    require(value in allowed, name, value, "must be one of " + ", ".join(map(repr, allowed)))


# --- Specs whose fields are grids

SWEPT = ("threshold", "violation_risk", "estimation_risk")
"""The spec fields that may be 1-d arrays."""


def check_grids(spec: SafetySpec, *, several: bool = False) -> int:
    """The number of rows of a spec; grids of other fields, of more dimensions or of unequal length are refused.

    `several`: whether the spec may have several costs.
    """
    if not several:
        require_one_cost(spec)
    for name in NUMBERS:
        value, allowed = getattr(spec, name), 1 if name in SWEPT else 0
        require(np.ndim(value) <= allowed, name, value, f"may have at most {allowed} dimensions here")
    sizes = {name: np.size(getattr(spec, name)) for name in SWEPT}
    rows = max(sizes.values())
    require(set(sizes.values()) <= {1, rows}, "spec", sizes, "has grids of unequal length")
    return rows


def as_columns(spec: SafetySpec) -> SafetySpec:
    """Grids as (rows, 1), to broadcast against (rows, seeds) or (rows, rounds)."""
    grids = {name: np.asarray(value)[:, None] for name in SWEPT if np.ndim(value := getattr(spec, name))}
    return replace(spec, **grids)


def one_row(spec: SafetySpec, row: int) -> SafetySpec:
    """One row of a spec, of plain floats."""
    grids = {name: np.asarray(value) for name in SWEPT if np.ndim(value := getattr(spec, name))}
    return replace(spec, **{name: float(value[row if value.size > 1 else 0]) for name, value in grids.items()})


def split_rows(spec: SafetySpec) -> tuple[SafetySpec, ...]:
    """One spec of plain floats for each row.

    >>> grid = SafetySpec(threshold=[0.1, 0.5], violation_risk=0.01, estimation_risk=0.01, reward_noise=1,
    ...                   cost_noise=1, coefficient_bound=1, context_bound=1)
    >>> [row.threshold for row in split_rows(grid)]
    [0.1, 0.5]
    """
    rows = check_grids(spec)
    columns = {name: np.broadcast_to(getattr(spec, name), rows).tolist() for name in SWEPT}
    return tuple(replace(spec, **{name: columns[name][row] for name in SWEPT}) for row in range(rows))


def dose_free_learning(spec: SafetySpec, dose: Dose, baseline_cost: Any) -> bool:
    """Whether all rows learn the same: R/g and C/g do not depend on the dose, and only the reward decides if z > 0."""
    plain = (
        spec.noise_scale is None
        and spec.reward_sensor_noise == 0
        and spec.cost_sensor_noise == 0
        and not np.any(baseline_cost)
    )
    return bool(plain and dose.is_identity and np.ndim(spec.estimation_risk) == 0)
