"""Natural units: the dial's own scale and levels, and raw feature values.

Conversions towards the dial are rounded down: what is advised never stands for a larger action than was certified.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, require

ABOVE = 1.0 + 8.0 * 2.0**-53
"""The rounding of one subtraction and one division, with room."""


@dataclass(frozen=True, kw_only=True)
class Dial:
    """The range, unit and levels of the dial.

    Args:
        low: the setting with no effect at all (action 0). high: the largest setting (action 1).
        unit: for people, for example "mg".
        levels: the settings that exist, if only some do; advice is rounded down to one of them, or to `low`.

    >>> dial = Dial(low=0, high=20, unit="mg", levels=[5, 10, 20])
    >>> dial.setting(0.7), dial.setting(0.2), dial.text(10.0)
    (10.0, 0.0, '10 mg')
    """

    low: float = 0.0
    high: float = 1.0
    unit: str = ""
    levels: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, real(name, getattr(self, name)))
        require(self.high > self.low, "high", self.high, f"must be above low = {self.low}")
        require(math.isfinite(self.high - self.low), "high", self.high, f"is too far above low = {self.low}")
        if self.levels is not None:
            levels = sorted({real("levels", level) for level in self.levels})
            require(levels, "levels", self.levels, "must not be empty", "leave it out for a continuous dial")
            inside = self.low <= levels[0] and levels[-1] <= self.high
            require(inside, "levels", self.levels, f"must lie between low = {self.low} and high = {self.high}")
            object.__setattr__(self, "levels", tuple(levels))

    @property
    def is_plain(self) -> bool:
        return self.low == 0.0 and self.high == 1.0 and self.levels is None

    def setting(self, action: float) -> float:
        """The dial's setting for an action in [0, 1], rounded down."""
        value = self.low + action * (self.high - self.low) if action < 1.0 else self.high
        while value > self.low and action < 1.0 and self.action(math.nextafter(value, math.inf)) * ABOVE > action:
            value = math.nextafter(value, -math.inf)
        if self.levels is None:
            return value
        index = bisect_right(self.levels, value)
        return self.levels[index - 1] if index else self.low

    def action(self, setting: float) -> float:
        """The action in [0, 1] that a setting stands for."""
        return (setting - self.low) / (self.high - self.low)

    def text(self, setting: float) -> str:
        """A setting as a person writes it: four digits, rounded down, so that words never exceed the certificate."""
        shown = Decimal(f"{setting:.4g}")
        exact = Decimal(setting)
        if shown > exact:
            shown -= Decimal((0, (1,), Decimal(f"{setting:.3e}").as_tuple().exponent))  # pyright: ignore[reportArgumentType] -- finite
        return f"{max(float(shown), self.low):.4g} {self.unit}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "unit": self.unit, "levels": self.levels and list(self.levels)}


@dataclass(frozen=True, kw_only=True)
class Features:
    """How raw values become the context: x = [(raw − center)/scale, 1 if intercept].

    Args:
        names: one a feature; contexts may then be given as a mapping, in any order.
        center, scale: one number a feature; 0 and 1 by default.
        intercept: append a constant 1. It counts in ‖x‖ ≤ L.

    >>> Features(names=("age", "weight"), center=(50, 70), scale=(30, 40), intercept=True).transform(
    ...     {"weight": 90, "age": 65}).tolist()
    [0.5, 0.5, 1.0]
    """

    names: tuple[str, ...]
    center: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    intercept: bool = False

    def __post_init__(self) -> None:
        names = tuple(self.names)
        require(not isinstance(self.names, str) and names, "names", self.names, "must be a list of at least one name")
        require(len(set(names)) == len(names), "names", names, "must all differ")
        object.__setattr__(self, "names", names)
        for name, default in (("center", 0.0), ("scale", 1.0)):
            given = getattr(self, name)
            values = tuple(real(name, value) for value in (given if given is not None else [default] * len(names)))
            require(len(values) == len(names), name, given, f"must have one number for each of {len(names)} features")
            object.__setattr__(self, name, values)
        require(all(value > 0 for value in self.scale or ()), "scale", self.scale, "must be > 0")
        object.__setattr__(self, "_center", np.array(self.center))
        object.__setattr__(self, "_scale", np.array(self.scale))

    @property
    def dim(self) -> int:
        return len(self.names) + bool(self.intercept)

    def transform(self, raw: Mapping[str, float] | Sequence[float]) -> NDArray[np.float64]:
        """The context of one round."""
        if isinstance(raw, Mapping):
            missing, extra = sorted(set(self.names) - set(raw)), sorted(set(raw) - set(self.names))
            if missing or extra:
                raise InvalidInput(f"context: missing features {missing}, unknown features {extra}")
            raw = [raw[name] for name in self.names]
        values = as_vector(raw, len(self.names), "context")
        scaled = (values - self._center) / self._scale  # type: ignore[attr-defined] -- set in __post_init__
        return np.append(scaled, 1.0) if self.intercept else scaled

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "center": list(self.center or ()),
            "scale": list(self.scale or ()),
            "intercept": self.intercept,
        }


def as_vector(values: Any, dim: int, name: str) -> NDArray[np.float64]:
    """`values` as a float vector of length `dim`; text, booleans and other shapes are refused."""
    array = values if type(values) is np.ndarray else _array(values, name)
    if array.dtype.kind not in "iuf":
        raise InvalidInput(f"{name}: must hold numbers, not {array.dtype}")
    if array.shape != (dim,):
        raise InvalidInput(f"{name}: has shape {array.shape}, must have shape ({dim},)")
    return array.astype(np.float64, copy=False)


def _array(values: Any, name: str) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInput(f"{name}: must not be a masked array; fill or drop what is masked")
    try:
        items = list(values) if np.iterable(values) and not isinstance(values, (str, bytes, Mapping)) else values
        array = np.asarray(items)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{name}: must be a flat list of numbers ({error})") from error
    if isinstance(items, list) and any(np.asarray(item).dtype.kind == "b" for item in items):
        raise InvalidInput(f"{name}: must hold numbers, not booleans")
    return array


def real(name: str, value: Any) -> float:
    """`value` as a finite float; text, booleans, NaN and infinity are refused."""
    if type(value) is float and math.isfinite(value):
        return value
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        raise InvalidInput(f"{name}: is a whole number too large for a float") from None
    require(math.isfinite(number), name, value, "must be a finite number")
    return number
