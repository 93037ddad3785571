"""The tolerated scale: the largest scale of a base at which a past round would have kept the threshold.

The setting a_λ(x), non-decreasing in its scale λ, is what is really played: λ times the base, floored to a level, at
most the dial's end, never below the start a₀(x). For a round with setting s and cost c, the bracket's bound B
(`model.brackets`) gives

    z* = sup{z : B(z) ≤ τ}                   the tolerated setting (`Cost.tolerated`), the smallest over several costs
    T̂ = sup{λ : a_λ(x) ≤ z*}                 the tolerated scale (`tolerated_scale`)

T̂ = ∞ where the dial's end is tolerated and −∞ where not even the start is, or nothing is known. Since B bounds the
round's own cost curve whatever s was, T̂ is at most the true tolerance, which does not depend on any setting.

| bracket | z*, c ≤ τ | z*, c > τ |
|---|---|---|
| relative | s·(τ/max(c, floor))^(1/high) | s·(τ/c)^(1/low) |
| additive | s + (τ − c)/high | s + (τ − c)/low |
| spread | s | −∞ |

An exponent or slope of 0 gives ∞ for c ≤ τ and −∞ for c > τ. With b the first setting above z* that can be played (z*
itself on a dial without levels), T̂ = b/base.

**Rounding.** Every step errs to the safe side. On a dial with levels the supremum is not attained: at b/base the level
b itself is played. So T̂ is lowered by 1e-12·max(1, |T̂|); a_λ(x) ≤ z* then holds in floating point for
every λ ≤ T̂, and "the m-th smallest T̂" may be played as it stands.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.rounding import UNIT
from safedial.errors import require, require_fields
from safedial.model.brackets import LARGEST_EXPONENT, Growth, Reading, growth_from_dict
from safedial.model.dose import DoseCurve, curve_from_dict
from safedial.model.namespace import FLOATS, namespace, where

Numbers = float | NDArray[np.float64]

LOWERED = 1e-12


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
        share: without a bracket: its share of the risks, if not an equal one (`model.costs`).

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
        threshold = self.threshold
        require(_is_number(threshold), "threshold", threshold, "must be a finite number")
        require(self.direction in ("above", "below"), "direction", self.direction, "must be 'above' or 'below'")
        require(self.on in ("measured", "true"), "on", self.on, "must be 'measured' or 'true'")
        require(isinstance(self.unit, str), "unit", self.unit, "must be text")
        if self.noise is None and self.growth is not None:
            self._check_bracket()
        else:
            self._check_noise()

    def _check_noise(self) -> None:
        noise: Any = self.noise
        proper = noise is None or (_is_number(noise) and noise > 0)
        require(proper, "noise", noise, "must be a finite number > 0")
        for name, plain in (("growth", None), ("direction", "above")):
            given, way_out = getattr(self, name), "state a bracket and no noise, for guarantee='bracket'"
            require(given == plain, name, given, "does not go with noise", way_out)
        require(self.threshold > 0, "threshold", self.threshold, "must be > 0 where noise is stated, or no bracket")
        known = self.curve is None or (isinstance(self.curve, DoseCurve) and not self.curve.is_own)
        require(known, "curve", self.curve, "must be a dose curve of this package", "for example hill(ed50=0.5)")
        part = self.share is None or (_is_number(self.share) and 0.0 < self.share <= 1.0)
        require(part, "share", self.share, "must be a number in (0, 1]")

    def _check_bracket(self) -> None:
        threshold = self.threshold
        require(
            isinstance(self.growth, Growth),
            "growth",
            self.growth,
            "must be a bracket",
            "for example additive from 0 to 3",
        )
        for name in ("curve", "share"):
            rule = "does not go with a bracket: the risk is not split, and the curve is the Agent's"
            require(getattr(self, name) is None, name, getattr(self, name), rule, "leave it out")
        if self.growth.name == "relative":
            way_out = "use additive, which takes thresholds of any sign"
            require(
                self.direction == "above", "direction", self.direction, "cannot go with a relative bracket", way_out
            )
            rule = f"must be > error = {self.growth.error:g}, for a relative bracket"
            require(self.limit > 0.0, "threshold", threshold, rule, way_out)
            floor, rule = (
                self.growth.parameters["floor"],
                f"must be at most {self.limit:g}, the threshold less the error",
            )
            require(floor <= self.limit, "floor", floor, rule)

    @cached_property
    def limit(self) -> float:
        """What the true cost must not exceed, with the sign turned where the cost must not fall."""
        sign = 1.0 if self.direction == "above" else -1.0
        return sign * float(self.threshold) - (self.growth.error if self.on == "measured" else 0.0)

    def tolerated(self, cost: Any, setting: Any, features: Mapping[str, Any] | None = None) -> Numbers:
        """z*: the largest setting at which the round would have kept the threshold; −∞ where none, or `cost` is NaN."""
        growth = self.growth.at(features or {})
        signed = cost if self.direction == "above" else -cost
        return _TOLERATED[growth.name](growth.parameters, signed + growth.error, setting, self.limit)

    def beyond(self, cost: Any, setting: Any) -> Numbers:
        """A setting above which the round cannot have kept its threshold; ∞ where it did not exceed. See
        `policies.shield`.
        """
        growth, high = self.growth, self.growth.parameters.get("high", 0.0)
        xp = namespace(cost, setting, high)
        shown = (cost if self.direction == "above" else -cost) - growth.error
        over, told = shown > self.limit, high > 0.0
        shown, slope = xp.where(over, shown, self.limit), where(told, high, 1.0)
        if growth.name == "relative":
            found = setting * (self.limit / shown) ** (1.0 / slope) * (1.0 + LOWERED)
        else:
            slack = LOWERED * (abs(setting) + (abs(shown) + abs(self.limit)) / slope)
            found = setting - (shown - self.limit) / slope + slack
        return xp.where(over, xp.where(told, xp.minimum(setting, found), setting), math.inf)

    @cached_property
    def middle(self) -> Cost:
        """The same with one elasticity or slope, the mean of both, and a floor low enough to learn from.

        The bracket's own bound lies the lower the further a setting was from the threshold, which a base would follow.
        """
        growth = self.growth
        if growth.name == "spread":
            return self
        parameters = dict(growth.parameters)
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


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return bool(number and math.isfinite(value))


class Range(NamedTuple):
    """What can be played in a round: from its start to the dial's end, and which levels there are.

    `start` and `end` may be arrays; `levels` rise, and where given, `start` and `end` are among them.
    """

    start: Any
    end: Any
    levels: tuple[float, ...] | None = None

    def played(self, setting: Any) -> Any:
        """A setting as it is really played: floored to a level, at most the end, never below the start."""
        xp = namespace(setting, self.start, self.end)
        within = xp.where(setting < self.end, setting, self.end)
        if self.levels is not None:
            within = _level(xp, (-math.inf, *self.levels), within, 0)
        return xp.where(within > self.start, within, self.start)

    def reach(self, tolerated: Any) -> Any:
        """The supremum of the settings that are played at or below the tolerated one: ∞ from the end on, −∞ below the
        start. On a dial with levels it is the next level, which is itself played above.
        """
        xp = namespace(tolerated, self.start, self.end)
        reach = tolerated if self.levels is None else _level(xp, (-math.inf, *self.levels, math.inf), tolerated, 1)
        reach = xp.where(tolerated >= self.end, math.inf, reach)
        return xp.where(tolerated >= self.start, reach, -math.inf)


def _level(xp: Any, marks: tuple[float, ...], setting: Any, step: int) -> Any:
    """The largest mark at or below a setting, or the one `step` further."""
    if xp is FLOATS:
        return marks[min(bisect_right(marks, setting) - 1 + step, len(marks) - 1)]
    places = xp.searchsorted(xp.asarray(marks), xp.asarray(setting), side="right") - 1 + step
    return xp.take(xp.asarray(marks), xp.clip(places, 0, len(marks) - 1))


def scaled_setting(scale: Any, base: Any, range: Range) -> Any:
    """λ times a base ≥ 0, as it is played.

    >>> scaled_setting(1.5, 4.0, Range(1.0, 10.0, (1.0, 5.0, 10.0)))
    5.0
    """
    xp = namespace(scale, base)
    return range.played(xp.where(base > 0.0, scale * xp.where(base > 0.0, base, 1.0), -math.inf))


def tolerated_scale(tolerated: Any, base: Any, range: Range) -> Any:
    """T̂: ∞ where the base is 0 and the start is tolerated, for nothing else is played then.

    >>> smooth, stepped = Range(1.0, 10.0), Range(1.0, 10.0, (1.0, 5.0, 10.0))
    >>> round(tolerated_scale(6.0, 4.0, smooth), 9), round(tolerated_scale(6.0, 4.0, stepped), 9)
    (1.5, 2.5)
    """
    reach = range.reach(tolerated)
    xp = namespace(reach, base)
    ratio = reach / xp.where(base > 0.0, base, 1.0)
    return lowered(xp.where(base > 0.0, ratio, xp.where(reach > -math.inf, math.inf, -math.inf)))


def lowered(scale: Any) -> Any:
    """A scale just below, at which the supremum is attained, floored dials and rounding included; ±∞ as they are."""
    xp = namespace(scale)
    finite = abs(scale) < math.inf
    number = xp.where(finite, scale, 0.0)
    return xp.where(finite, number - LOWERED * xp.where(abs(number) > 1.0, abs(number), 1.0), scale)


def _relative(parameters: Mapping[str, Any], cost: Any, setting: Any, limit: float) -> Any:
    """s·(τ/load)^(1/power), by logarithms, which err by u relatively; the power multiplies that error."""
    low, high, floor = parameters["low"], parameters["high"], parameters["floor"]
    xp = namespace(cost, setting, high, low)
    known, fine = abs(cost) < math.inf, cost <= limit
    load = xp.where(cost > floor, cost, floor)  # a cost above the threshold is above the floor too
    power = xp.where(fine, high, low)
    told = xp.logical_and(xp.logical_and(load > 0.0, known), power > 0.0)
    power = xp.where(told, power, 1.0)
    top, bottom = math.log(limit), xp.log(xp.where(told, load, limit))
    exponent = (top - bottom) / power
    slack = UNIT * (16.0 + 4.0 * (abs(top) + abs(bottom)) / power + 4.0 * abs(exponent))
    exponent = xp.where(exponent < LARGEST_EXPONENT, exponent, LARGEST_EXPONENT)
    found = setting * xp.exp(xp.where(exponent > -LARGEST_EXPONENT, exponent, -LARGEST_EXPONENT)) * (1.0 - slack)
    return xp.where(setting > 0.0, _settled(xp, found, told, setting, xp.logical_and(fine, known)), -math.inf)


def _additive(parameters: Mapping[str, Any], cost: Any, setting: Any, limit: float) -> Any:
    xp = namespace(cost, setting, parameters["high"], parameters["low"])
    known, fine = abs(cost) < math.inf, cost <= limit
    slope = xp.where(fine, parameters["high"], parameters["low"])
    told = xp.logical_and(slope > 0.0, known)
    number, slope = xp.where(known, cost, 0.0), xp.where(told, slope, 1.0)
    slack = 8.0 * UNIT * (abs(setting) + (abs(limit) + abs(number)) / slope)
    found = setting + (limit - number) / slope - slack
    return _settled(xp, found, told, setting, xp.logical_and(fine, known))


def _settled(xp: Any, found: Any, told: Any, setting: Any, fine: Any) -> Any:
    """`found` where the bracket has told it, else ∞ or −∞; a setting that kept the threshold is tolerated, exactly."""
    found = xp.where(told, found, xp.where(fine, math.inf, -math.inf))
    return xp.where(xp.logical_and(fine, found < setting), setting, found)


def _spread(parameters: Mapping[str, Any], cost: Any, setting: Any, limit: float) -> Any:
    return namespace(cost, setting).where(cost <= limit, setting, -math.inf)


_TOLERATED = {"relative": _relative, "additive": _additive, "spread": _spread}
