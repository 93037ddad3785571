"""Costs: the limit on each, what a round tells about it, and what each of several is allowed of the risk.

**Brackets** (guarantee="bracket"). A round exceeds if any cost does. The count rule counts rounds, so the risk is one.

**Certified** (hp_probe, hp_ucb, …). Cost k has its own estimate, threshold τ_k, noise and dose curve g_k, and a share
s_k of both risks, Σ s_k = 1. Let a_k be the largest setting that its own certificate allows, with risks s_kδ and s_kδ′.
We play a ≤ min a_k.

*Claim.* With probability ≥ 1 − δ′, for all t: P(C_k > τ_k for any k | history, X_t, a_t) ≤ δ.

*Proof.* Cost k's confidence set holds for all t with probability ≥ 1 − s_kδ′, so all of them do with probability
≥ 1 − Σ s_kδ′ = 1 − δ′ (union bound). On that event z_k(cost_upper + margin) ≤ τ_k at z_k = g_k(a_k). Safe
intensities are an interval from 0 (`bounds.safe_set`) and g_k does not fall, so the lower setting a is safe for cost k:
P(C_k > τ_k | history, X_t, a_t) ≤ s_kδ. The sum over k is δ. ∎

**Student** (hp_student). The same with the Student bounds, which need no noise (`policies.combine`).

Neither step asks how the costs depend on each other. "History" has all costs and the reward: cost k's noise must be
sub-Gaussian given the other costs' past too. The same holds for the joint guarantee, with s_kδ_t in round t.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, is_number, require, require_fields
from safedial.model.brackets import WRITTEN, Growth, Reading, growth_from_dict
from safedial.model.dose import DoseCurve, curve_from_dict
from safedial.model.guarantee import GUARANTEES, Guarantee
from safedial.model.namespace import namespace

if TYPE_CHECKING:
    from safedial.model.spec import SafetySpec

Numbers = float | NDArray[np.float64]

ONE = "cost"
"""The name of the cost where a spec states one."""

NAME = re.compile(r"[\w-]+")
"""The name of a cost."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One cost: its threshold, and either its bracket (guarantee="bracket"), or its noise (a certified guarantee), or
    neither (guarantee="student", which learns the noise).

    Args:
        threshold: τ, in the cost's own units. Of any sign for `additive` and `spread`; > 0 for `relative` and `noise`.
        growth: a bracket. For `direction="below"` it says how fast the cost can *fall* when the setting rises.
        direction: "above": the cost must not exceed τ. "below": it must not fall below τ, as a glucose of 70 mg/dl.
        on: "measured" if τ limits the cost as measured, "true" if the cost without the bracket's or sensor's error.
        unit: for display, for example "mg/l".
        noise: κ of the cost, in place of a bracket: the cost is then linear in the context, and its dose curve exact.
        curve: without a bracket: the cost's dose curve, if it is not the Agent's; one of this package.
        share: without a bracket: its share of the risks, if not an equal one.

    >>> from safedial.model.brackets import additive
    >>> low_glucose = Cost(threshold=70, growth=additive(4, 30), direction="below")
    >>> round(low_glucose.tolerated(100.0, 2.0), 9)  # 100 mg/dl at 2 units: one unit more cannot bring it below 70
    3.0
    """

    threshold: float
    growth: Any = None
    direction: Literal["above", "below"] = "above"
    on: Reading = "measured"
    unit: str = ""
    noise: float | None = None
    curve: DoseCurve | None = field(default=None, hash=False)
    share: float | None = None

    def __post_init__(self) -> None:
        require(is_number(self.threshold), "threshold", self.threshold, "must be a finite number")
        require(self.direction in ("above", "below"), "direction", self.direction, "must be 'above' or 'below'")
        require(self.on in ("measured", "true"), "on", self.on, "must be 'measured' or 'true'")
        require(isinstance(self.unit, str), "unit", self.unit, "must be text")
        if self.noise is None and self.growth is not None:
            self._check_bracket()
        else:
            self._check_noise()

    def _check_noise(self) -> None:
        noise, share = self.noise, self.share
        require(noise is None or (is_number(noise) and noise > 0), "noise", noise, "must be a finite number > 0")
        for name, plain in (("growth", None), ("direction", "above")):
            given, way_out = getattr(self, name), "state a bracket and no noise, for guarantee='bracket'"
            require(given == plain, name, given, "does not go with noise", way_out)
        require(self.threshold > 0, "threshold", self.threshold, "must be > 0 where noise is stated, or no bracket")
        known = self.curve is None or (isinstance(self.curve, DoseCurve) and not self.curve.is_own)
        require(known, "curve", self.curve, "must be a dose curve of this package", "for example hill(ed50=0.5)")
        part = share is None or (is_number(share) and 0.0 < share <= 1.0)
        require(part, "share", share, "must be a number in (0, 1]")

    def _check_bracket(self) -> None:
        growth, rule = self.growth, "must be a bracket"
        require(isinstance(growth, Growth), "growth", growth, rule, "for example additive from 0 to 3")
        for name in ("curve", "share"):
            rule = "does not go with a bracket: the risk is not split, and the curve is the Agent's"
            require(getattr(self, name) is None, name, getattr(self, name), rule, "leave it out")
        if growth.name != "relative":
            return
        way_out, rule = "use additive, which takes thresholds of any sign", "cannot go with a relative bracket"
        require(self.direction == "above", "direction", self.direction, rule, way_out)
        rule = f"must be > error = {growth.error:g}, for a relative bracket"
        require(self.limit > 0.0, "threshold", self.threshold, rule, way_out)
        floor, rule = growth.parameters["floor"], f"must be at most {self.limit:g}, the threshold less the error"
        require(floor <= self.limit, "floor", floor, rule)

    @cached_property
    def limit(self) -> float:
        """What the true cost must not exceed, with the sign turned where the cost must not fall."""
        return self._upwards(float(self.threshold)) - (self.growth.error if self.on == "measured" else 0.0)

    def _upwards(self, cost: Any) -> Any:
        """A cost, with the sign turned where it must not fall."""
        return cost if self.direction == "above" else -cost

    def tolerated(self, cost: Any, setting: Any, features: Mapping[str, Any] | None = None) -> Numbers:
        """z*: the largest setting at which the round would have kept the threshold; −∞ where none, or `cost` is NaN."""
        return self.growth.at(features or {}).tolerated(self._upwards(cost), setting, self.limit)

    def beyond(self, cost: Any, setting: Any) -> Numbers:
        """A setting above which the round cannot have kept its threshold; ∞ where it did not exceed."""
        return self.growth.beyond(self._upwards(cost), setting, self.limit)

    @cached_property
    def middle(self) -> Cost:
        """The same with one elasticity or slope, the mean of both, and a floor low enough to learn from.

        The bracket's own bound lies the lower the further a setting was from the threshold, which a base would follow.
        """
        growth, parameters = self.growth, dict(self.growth.parameters)
        if growth.name == "spread":
            return self
        parameters["low"] = parameters["high"] = 0.5 * (parameters["low"] + parameters["high"])
        if growth.name == "relative":
            parameters["floor"] = min(parameters["floor"], 0.01 * self.limit)
        return replace(self, growth=growth._replace(parameters=parameters))

    @overload
    def exceeded(self, cost: float) -> bool: ...

    @overload
    def exceeded(self, cost: NDArray[np.float64]) -> NDArray[np.bool_]: ...

    def exceeded(self, cost: Any) -> bool | NDArray[np.bool_]:
        """Whether a measured cost lies on the wrong side of the threshold."""
        return cost > self.threshold if self.direction == "above" else cost < self.threshold

    def excess(self, cost: Any) -> Numbers:
        """How far a measured cost lies on the wrong side of the threshold; below 0 where it keeps it."""
        return cost - self.threshold if self.direction == "above" else self.threshold - cost

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"threshold": float(self.threshold)}
        if self.growth is not None:
            fields |= {"growth": self.growth.to_dict(), "direction": self.direction}
        fields |= {"on": self.on, "unit": self.unit or None}
        fields |= {name: value and float(value) for name, value in (("noise", self.noise), ("share", self.share))}
        fields |= {"curve": self.curve and self.curve.to_dict()}
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Cost:
        given = dict(fields)
        if given.get("growth") is not None:
            given["growth"] = growth_from_dict(fields.get("growth"))
        if isinstance(given.get("curve"), Mapping):
            given["curve"] = curve_from_dict(given["curve"])
        require_fields("cost", map(str, given), cls)
        return cls(**given)


def tolerated_setting(
    costs: Mapping[str, Cost], outcome: Mapping[str, Any], setting: Any, features: Mapping[str, Any] | None = None
) -> Any:
    """z* for several costs: the smallest. "Exceeds" then means that any of them does, and the risk is not split."""
    missing = [name for name in costs if name not in outcome]
    require(not missing, "cost", missing, "is not in the outcome", "report every cost, NaN where it is not known")
    found = [cost.tolerated(outcome[name], setting, features) for name, cost in costs.items()]
    least = found[0]
    for other in found[1:]:
        least = namespace(least, other).minimum(least, other)
    return least


def shown_by(costs: Mapping[str, Cost], measured: Mapping[str, Any], applied: Any) -> tuple[Any, Any]:
    """What measured costs show: a setting above which the round cannot have kept all thresholds, and whether it
    exceeded one for certain.
    """
    upper: Any = math.inf
    beyond: Any = False
    for name, cost in costs.items():
        found = cost.beyond(measured[name], applied)
        upper = namespace(upper, found).minimum(upper, found)
        beyond = beyond | (cost.excess(measured[name]) > cost.growth.error)
    return upper, beyond


# --- The costs of a spec


def read_costs(costs: Any, guarantee: Guarantee) -> dict[str, Cost]:
    """Costs by name, each a `Cost` or its plain values, with what the guarantee needs of each."""
    way_out = "for example {'trough': Cost(...), 'auc': Cost(...)}"
    require(isinstance(costs, Mapping) and costs, "costs", costs, "must be a mapping from names to costs", way_out)
    for name in costs:
        proper = isinstance(name, str) and NAME.fullmatch(name)
        require(proper, "costs", name, "must have names of letters, digits, _ and -: they name columns too")
    read = {name: _read(name, cost) for name, cost in costs.items()}
    needed, ways_out = guarantee.cost_states, {"growth": WRITTEN, "noise": "an upper bound on its noise"}
    for name, cost in read.items():
        if needed:
            stated = getattr(cost, needed) is not None
            require(stated, f"costs[{name!r}]: {needed}", None, "must be stated", ways_out[needed])
        else:
            rule = "is a growth bracket, which this guarantee does not use"
            require(cost.growth is None, f"costs[{name!r}]", cost.to_dict(), rule, "use guarantee='bracket'")
    shares = [cost.share for cost in read.values() if cost.share is not None]
    whole = not shares or (len(shares) == len(read) and abs(sum(shares) - 1.0) <= 1e-9)
    require(whole, "share", shares, "must be stated for each cost, with the sum 1, or for none", "for equal ones")
    return read


# --- One cost or several, as people write and read them


def cost_columns(spec: SafetySpec, head: str = "cost") -> dict[str, str]:
    """The columns of a table for each of a spec's costs, with the cost's name: `cost`, or `cost_NAME` for several."""
    return {f"{head}_{name}": name for name in spec.costs} if spec.costs else {head: ONE}


def thresholds(spec: SafetySpec) -> dict[str, Any]:
    """The threshold of each cost, by name."""
    return {name: cost.threshold for name, cost in spec.costs.items()} if spec.costs else {ONE: spec.threshold}


def limits(spec: SafetySpec, **single: Any) -> dict[str, Cost]:
    """The limit on each cost, by name; `single` is what the policy, and not the spec, states of a single one."""
    return dict(spec.costs or {ONE: Cost(threshold=spec.threshold, on=spec.threshold_on, **single)})


def by_name(told: Any) -> Mapping[str, Any]:
    """What was told of the costs, by name; a single one is called "cost"."""
    return told if isinstance(told, Mapping) else {ONE: told}


def as_stated(spec: SafetySpec, told: Mapping[str, Any]) -> Any:
    """The inverse: a mapping where the spec has several costs, else the one value."""
    return dict(told) if spec.costs else told[ONE]


def exceeded(spec: SafetySpec, told: Any, direction: str = "above") -> Any:
    """Whether a measured cost, in plain numbers or arrays, lies on the wrong side of its threshold, in this direction;
    or any of several, each in its own. A cost that is not known, None or NaN, does not.
    """
    costs = spec.costs
    if costs is None:
        return told < spec.threshold if direction == "below" else told > spec.threshold
    found: Any = False
    for name, each in costs.items():
        found = found | each.exceeded(told[name]) if told[name] is not None else found
    return found


def require_one_cost(
    spec: SafetySpec,
    rule: str = "are for an Agent, a study, or a simulation of a policy with a proof for them in a world that has them",
    way_out: str = "state one threshold, and use one cost at a time",
) -> None:
    """Refuse several costs where a tool takes one."""
    several = list(spec.costs or ())
    require(not several, "costs", several, rule, way_out)


def split_spec(spec: SafetySpec) -> dict[str, SafetySpec]:
    """The spec of each of several costs, with its share of the risks; the shares sum to 1. Empty where there is one
    cost, or the guarantee is not split among them.

    >>> from safedial.model.spec import SafetySpec
    >>> costs = {"heat": Cost(threshold=2, noise=0.3), "load": Cost(threshold=5, noise=1)}
    >>> spec = SafetySpec(costs=costs, violation_risk=0.02, estimation_risk=0.01, reward_noise=1, coefficient_bound=1,
    ...                   context_bound=1)
    >>> [(part.threshold, part.cost_noise, part.violation_risk) for part in split_spec(spec).values()]
    [(2.0, 0.3, 0.01), (5.0, 1.0, 0.01)]
    """
    costs = (spec.costs or {}) if GUARANTEES[spec.guarantee].splits else {}
    total = sum(cost.share or 1.0 for cost in costs.values())
    return {name: _part(spec, cost, (cost.share or 1.0) / total) for name, cost in costs.items()}


def each_spec(spec: SafetySpec) -> dict[str, SafetySpec]:
    """The spec of each cost: its part, where it is split, or itself."""
    return split_spec(spec) or {ONE: spec}


def _part(spec: SafetySpec, cost: Cost, share: float) -> SafetySpec:
    risks = {name: getattr(spec, name) for name in ("violation_risk", "estimation_risk", "margin_risk")}
    parts = {name: share * risk for name, risk in risks.items() if risk is not None}
    return replace(
        spec, costs=None, threshold=cost.threshold, threshold_on=cost.on, cost_noise=cost.noise, **parts
    )  # fmt: skip


def _read(name: str, given: Any) -> Cost:
    if isinstance(given, Cost):
        return given
    require(isinstance(given, Mapping), f"costs[{name!r}]", given, "must be a Cost")
    try:
        return Cost.from_dict(given)
    except InvalidInput as error:
        raise InvalidInput(f"costs[{name!r}]: {error}", error.code) from error
