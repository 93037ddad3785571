"""Growth brackets: how fast a unit's cost can change with the dial, stated from one side.

A round was given the setting s and cost c. A bracket turns that into an upper bound B(a) on what the same round would
have cost at any other setting a, non-decreasing in a. Costs never fall when the setting rises; beyond that a bracket
says, with r = a/s and Δ = a − s:

| bracket | above s | below s, c ≤ τ | below s, c > τ |
|---|---|---|---|
| `relative(low, high, floor)` | max(c, floor)·r^high | c | max(τ, c·r^low) |
| `additive(low, high)` | c + high·Δ | c | max(τ, c + low·Δ) |
| `spread(step, sigma)` | nothing | c | c |

That a cost falls by at least `low` is assumed only while it lies above the threshold τ: below it B is c itself.
Settings are in units of the nominal curve g where one is stated: pass g(s) and g(a).

**Measurement error** |e| ≤ ε that does not shrink with the dose (`error`): the true cost of the round is at most c + ε,
so c + ε takes the place of c. If the guarantee is on the measured cost, what is measured at a is at most B + ε, and the
true cost must stay at or below τ − ε. `floor` alone does not cover such an error: it only replaces small costs.

`relative` reads a negative cost as 0, needs τ > 0 and says nothing of a round given 0. `floor`, a cost, says from where
on a small cost is evidence: at a floor of 0 a cost of 0 would prove that no setting ever costs anything.

**Tolerated settings.** z* = sup{z : B(z) ≤ τ} is what a round surely tolerated (`Growth.tolerated`):

| bracket | z*, c ≤ τ | z*, c > τ |
|---|---|---|
| relative | s·(τ/max(c, floor))^(1/high) | s·(τ/c)^(1/low) |
| additive | s + (τ − c)/high | s + (τ − c)/low |
| spread | s | −∞ |

An exponent or slope of 0 gives ∞ for c ≤ τ and −∞ for c > τ. Every step errs to the safe side.

The other way round, a cost c > τ at s cannot have come from one at or below τ at a setting above (`Growth.beyond`)

    relative: s·(τ/c)^(1/high)      additive: s − (c − τ)/high      spread: s

The public name of this module is `growth`:

>>> from safedial import growth
>>> trough = growth.relative(0.7, 1.4, floor=2)
>>> round(trough.bound(10.0, 500.0, 550.0), 2)  # 10 mg/l at 500 mg: at 550 mg at most this
11.43
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal, NamedTuple

import numpy as np

from safedial.errors import InvalidInput, is_number, require
from safedial.model.namespace import FLOATS, UNIT, namespace

LEAST_ELASTICITY, MOST_ELASTICITY = 1e-6, 1e6
LEAST_SLOPE, MOST_SLOPE = 1e-100, 1e100
LARGEST_EXPONENT = 700.0
"""e^700 is just below the largest float."""

LOWERED = 1e-12
"""By how much a setting or scale is moved to the safe side, relatively: more than a few roundings."""

Reading = Literal["measured", "true"]
"""What the threshold limits: the cost as measured, or without its measurement error."""


class Growth(NamedTuple):
    """A bracket: its name and its parameters as stated, plain numbers or names of features.

    >>> relative(0.7, 1.4, floor=0.5).bound(2.0, 1.0, 2.0)
    5.278031643091577
    """

    name: str
    parameters: Mapping[str, Any]

    @property
    def error(self) -> float:
        return self.parameters["error"]

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it takes numbers from."""
        return tuple(value for value in self.parameters.values() if isinstance(value, str))

    def at(self, features: Mapping[str, Any]) -> Growth:
        """The bracket of one context, or of many (arrays): names replaced by the features' values.

        >>> additive(4, "correction").at({"correction": 40.0}).parameters["high"]
        40.0
        """
        if not self.features:
            return self
        values = dict(self.parameters)
        least, most = _ENDS[self.name]
        for part in ("low", "high"):
            name = values[part]
            if isinstance(name, str):
                require(name in features, part, name, "is no feature of this context", _among(features))
                values[part] = _feature(name, features[name], least, most)
        ordered = np.all(values["low"] <= values["high"])
        require(ordered, "low", values["low"], f"must be at most high = {values['high']}", "in every context")
        return Growth(self.name, values)

    def bound(self, cost: Any, setting: Any, at: Any, *, threshold: Any = math.inf, on: Reading = "measured") -> Any:
        """B(at): an upper bound on what a round that cost `cost` at `setting` would have cost at `at`.

        `on`: of the cost as it would be measured, or of the true one. Without a `threshold` no fall is assumed.
        """
        require(not self.features, "growth", self.to_dict(), "takes numbers from features", "use growth.at(features)")
        before, after = (self.error, self.error if on == "measured" else 0.0)
        return _BOUNDS[self.name](self.parameters, cost + before, setting, at, threshold - after) + after

    def tolerated(self, cost: Any, setting: Any, limit: float) -> Any:
        """z*: the largest setting at which a round with this cost would have kept the limit on its true cost; −∞ where
        there is none, or the cost is NaN.
        """
        return _TOLERATED[self.name](self.parameters, cost + self.error, setting, limit)

    def beyond(self, cost: Any, setting: Any, limit: float) -> Any:
        """A setting above which a round with this cost cannot have kept the limit; ∞ where it did not exceed."""
        high = self.parameters.get("high", 0.0)
        xp, shown = namespace(cost, setting, high), cost - self.error
        over, told = shown > limit, high > 0.0
        shown, slope = xp.where(over, shown, limit), xp.where(told, high, 1.0)
        if self.name == "relative":
            found = setting * (limit / shown) ** (1.0 / slope) * (1.0 + LOWERED)
        else:
            slack = LOWERED * (abs(setting) + (abs(shown) + abs(limit)) / slope)
            found = setting - (shown - limit) / slope + slack
        return xp.where(over, xp.where(told, xp.minimum(setting, found), setting), math.inf)

    def to_dict(self) -> dict[str, Any]:
        return {"growth": self.name, **self.parameters}


def relative(low: float | str, high: float | str, *, floor: float, error: float = 0.0) -> Growth:
    """Raising the setting by 1 % raises a cost by at most `high` %; while above the threshold, lowering it by 1 %
    lowers the cost by at least `low` %.

    Args:
        low, high: elasticities, 0 ≤ low ≤ high, or names of features that hold them.
        floor: a cost below which a small cost is no evidence; at most the threshold. 0 only where low = high, for an
            exact curve: `relative(1, 1, floor=0)` is a cost in proportion to the setting.
        error: ε, the largest measurement error that does not shrink with the dose.

    >>> relative(1.4, 0.7, floor=0.5)
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: low = 1.4: must be at most high = 0.7
    """
    parameters = _slopes(low, high, *_ENDS["relative"])
    level = _number("floor", floor, "must be a finite number >= 0", "state the cost below which a cost is no evidence")
    exact = parameters["low"] == parameters["high"]
    way_out = "give the smallest cost that is evidence, say a tenth of the threshold"
    require(level > 0.0 or exact, "floor", floor, "must be > 0 unless low = high", way_out)
    return Growth("relative", {**parameters, "floor": level, "error": _error(error)})


def additive(low: float | str, high: float | str, *, error: float = 0.0) -> Growth:
    """One more unit of the setting raises a cost by at most `high`; while above the threshold, one unit less lowers it
    by at least `low`. Costs with a baseline, flat at first, or negative are fine.

    Args:
        low, high: slopes, 0 ≤ low ≤ high, or names of features that hold them.
        error: ε, the largest measurement error that does not shrink with the dose.

    >>> additive(0, 3).bound(10.0, 2.0, 4.0)
    16.0
    """
    return Growth("additive", {**_slopes(low, high, *_ENDS["additive"]), "error": _error(error)})


def spread(step: float, sigma: float, *, error: float = 0.0) -> Growth:
    """For costs of 0 or 1: tolerances differ between units by at least `sigma`, the standard deviation of their normal
    logarithms, given the context. The share that exceeds then grows slowly, and we play `step` times what was seen to
    be safe.

    Args:
        step: h > 1, the factor beyond the scale that was tried.
        sigma: σ > 0, a lower bound on the spread.
        error: ε, the largest measurement error.
    """
    times = _number("step", step, "must be a finite number > 1", "1.25 is a common choice", above=1.0)
    rule = "must be a finite number > 0"
    width = _number("sigma", sigma, rule, "state a lower bound on the spread of log-tolerances", above=0.0)
    return Growth("spread", {"step": times, "sigma": width, "error": _error(error)})


GROWTHS: dict[str, Callable[..., Growth]] = {"relative": relative, "additive": additive, "spread": spread}

WRITTEN = 'in a spec file: growth = {growth = "additive", low = 0, high = 3}'
"""How a bracket is written, for messages."""


def growth_from_dict(fields: Any) -> Growth:
    """The inverse of `Growth.to_dict`.

    >>> growth_from_dict({"growth": "additive", "low": 0, "high": 3}) == additive(0, 3)
    True
    """
    table = isinstance(fields, Mapping)
    require(table, "growth", fields, "must be a bracket, or a table with its name under the key growth", WRITTEN)
    given = dict(fields)
    name = given.pop("growth", None)
    rule = f"must be one of {', '.join(GROWTHS)}, under the key growth of the table growth"
    require(name in GROWTHS, "growth", name, rule, WRITTEN)
    try:
        bound = signature(GROWTHS[name]).bind(**given)
    except TypeError as error:
        words = str(error).replace("an unexpected keyword argument", "an unknown key").replace("argument", "key")
        raise InvalidInput(f"growth {name}: {words}; {WRITTEN}") from error
    try:
        return GROWTHS[name](*bound.args, **bound.kwargs)
    except InvalidInput as error:
        raise InvalidInput(f"growth {name}: {error}") from error


def _relative(parameters: Mapping[str, Any], cost: Any, setting: Any, at: Any, threshold: Any) -> Any:
    low, high, floor = parameters["low"], parameters["high"], parameters["floor"]
    xp = namespace(cost, setting, at, threshold, high)
    load = xp.where(cost > 0.0, cost, 0.0)
    told = setting > 0.0
    ratio = xp.where(told, at / xp.where(told, setting, 1.0), 1.0)
    above = _times_power(xp, xp.where(load > floor, load, floor), ratio, high)
    lower = xp.where(load <= threshold, load, _larger(xp, _times_power(xp, load, ratio, low), threshold))
    return xp.where(told, xp.where(ratio > 1.0, above, lower), math.inf)


def _times_power(xp: Any, value: Any, ratio: Any, exponent: Any) -> Any:
    """value·ratio^exponent; a ratio of 0 gives 0, or `value` at exponent 0, and nothing overflows."""
    positive = ratio > 0.0
    power = exponent * xp.log(xp.where(positive, ratio, 1.0))
    power = _larger(xp, power, -LARGEST_EXPONENT)
    power = xp.where(power < LARGEST_EXPONENT, power, LARGEST_EXPONENT)
    return xp.where(positive, value * xp.exp(power), xp.where(exponent > 0.0, 0.0, value))


def _larger(xp: Any, value: Any, other: Any) -> Any:
    return xp.where(value > other, value, other)


def _additive(parameters: Mapping[str, Any], cost: Any, setting: Any, at: Any, threshold: Any) -> Any:
    change = at - setting
    above, lower = cost + parameters["high"] * change, cost + parameters["low"] * change
    xp = namespace(above, lower, threshold)
    lower = xp.where(cost <= threshold, cost, _larger(xp, lower, threshold))
    return xp.where(change > 0.0, above, lower)


def _spread(parameters: Mapping[str, Any], cost: Any, setting: Any, at: Any, threshold: Any) -> Any:
    return namespace(cost, setting, at).where(at <= setting, cost, math.inf)


_BOUNDS: dict[str, Callable[..., Any]] = {"relative": _relative, "additive": _additive, "spread": _spread}


# --- z*, the inverse of B


def _relative_tolerated(parameters: Mapping[str, Any], cost: Any, setting: Any, limit: float) -> Any:
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


def _additive_tolerated(parameters: Mapping[str, Any], cost: Any, setting: Any, limit: float) -> Any:
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


def _spread_tolerated(parameters: Mapping[str, Any], cost: Any, setting: Any, limit: float) -> Any:
    return namespace(cost, setting).where(cost <= limit, setting, -math.inf)


_TOLERATED: dict[str, Callable[..., Any]] = {
    "relative": _relative_tolerated,
    "additive": _additive_tolerated,
    "spread": _spread_tolerated,
}

# --- Its parameters

_ENDS = {"relative": (LEAST_ELASTICITY, MOST_ELASTICITY), "additive": (LEAST_SLOPE, MOST_SLOPE)}


def _slopes(low: Any, high: Any, least: float, most: float) -> dict[str, Any]:
    """Both ends, as numbers or names; a number is 0 or within the range that floats can follow."""
    ends = {}
    for name, value in (("low", low), ("high", high)):
        if isinstance(value, str):
            require(value, name, value, "must be a number or the name of a feature")
            ends[name] = value
        else:
            rule = f"must be 0, a number from {least:g} to {most:g}, or the name of a feature"
            ends[name] = _number(name, value, rule)
            require(_within(ends[name], least, most), name, value, rule)
    numbers = not any(isinstance(value, str) for value in ends.values())
    require(not numbers or ends["low"] <= ends["high"], "low", low, f"must be at most high = {high}")
    return ends


def _feature(name: str, value: Any, least: float, most: float) -> Any:
    number = np.asarray(value, dtype=float) if isinstance(value, (list, tuple)) else value
    rule = f"must hold 0 or numbers from {least:g} to {most:g}"
    try:
        held = bool(np.all(_within(number, least, most)))
    except TypeError:
        held = False
    require(held, f"feature {name}", value, rule, "it states how fast a cost can grow")
    return float(number) if namespace(number) is FLOATS else number


def _within(value: Any, least: float, most: float) -> Any:
    return (value == 0.0) | ((value >= least) & (value <= most))


def _among(features: Mapping[str, Any]) -> str:
    return "it has " + ", ".join(map(str, features)) if features else "it has none"


def _error(error: Any) -> float:
    return _number("error", error, "must be a finite number >= 0", "0 where costs are measured exactly")


def _number(name: str, value: Any, rule: str, way_out: str = "", *, above: float | None = None) -> float:
    holds = is_number(value) and (value >= 0.0 if above is None else value > above)
    require(holds, name, value, rule, way_out)
    return float(value)
