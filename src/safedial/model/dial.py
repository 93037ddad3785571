"""Natural units: the dial's own scale and levels, and raw feature values.

Conversions to the dial are rounded down, so that a setting never means a larger action than was certified.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, printable, refusal, require

Setting = TypeVar("Setting", float, NDArray[np.float64])

ABOVE = 1.0 + 8.0 * 2.0**-53
"""An upper bound on the rounding of one subtraction and one division."""


@dataclass(frozen=True, kw_only=True)
class Dial:
    """The range, unit and levels of the dial.

    Args:
        low: the setting without effect (action 0).
        high: the largest setting (action 1).
        unit: for display, for example "mg".
        levels: the available settings, if there are only some; advice is rounded down to one of them, or to `low`. If
            the safe setting lies below the lowest level, no dose is given and nothing is learned from that round.

    Dose curves act on the action in [0, 1]: a half-effect dose of 8 mg is `hill(ed50=dial.action(8))`.

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
        require(isinstance(self.unit, str), "unit", self.unit, "must be text")
        require(self.high > self.low, "high", self.high, f"must be above low = {self.low}")
        require(math.isfinite(self.high - self.low), "high", self.high, f"is too far above low = {self.low}")
        if self.levels is not None:
            levels = sorted(set(_reals("levels", self.levels)))
            require(levels, "levels", self.levels, "must not be empty", "leave it out for a continuous dial")
            inside = self.low <= levels[0] and levels[-1] <= self.high
            require(inside, "levels", self.levels, f"must lie between low = {self.low} and high = {self.high}")
            object.__setattr__(self, "levels", tuple(levels))

    @property
    def is_plain(self) -> bool:
        return self.low == 0.0 and self.high == 1.0 and self.levels is None

    @property
    def lowest_level(self) -> float | None:
        """The lowest level with an effect; None if there is none or the dial is continuous."""
        return next((level for level in self.levels or () if level > self.low), None)

    def setting(self, action: float) -> float:
        """The dial's setting for an action in [0, 1], rounded down."""
        value = self.low + action * (self.high - self.low) if action < 1.0 else self.high
        steps = 0
        while value > self.low and action < 1.0 and self.action(math.nextafter(value, math.inf)) * ABOVE > action:
            # Near 0 on a dial that begins below it, the next floats differ by less than an action can show.
            value, steps = math.nextafter(value, -math.inf) - (math.ulp(self.low) if steps >= 64 else 0.0), steps + 1
        if self.levels is None:
            return value
        index = bisect_right(self.levels, value)
        return self.levels[index - 1] if index else self.low

    def action(self, setting: Setting) -> Setting:
        """The action in [0, 1] of a setting, or of an array of settings."""
        return (setting - self.low) / (self.high - self.low)

    def text(self, setting: float) -> str:
        """A setting with its unit, rounded down to four digits, so that the text never exceeds the certificate."""
        return printable(f"{rounded_down(setting, self.low)} {self.unit}".rstrip())

    def amount(self, action: float, *, digits: int = 4) -> str:
        """Roughly the setting of an action, for display; levels are ignored.

        >>> Dial(high=4000, unit="mg").amount(0.0777), Dial().amount(0.0777)
        ('310.8 mg', '0.0777 of the dial')
        """
        near = significant(self.low + action * (self.high - self.low), digits)
        unit = "of the dial" if self.is_plain and not self.unit else self.unit
        return printable(f"{near} {unit}".rstrip())

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "unit": self.unit, "levels": self.levels and list(self.levels)}


@dataclass(frozen=True, kw_only=True)
class Features:
    """How raw values become the context: x = [(raw − center)/scale, 1 if intercept].

    Args:
        names: one for each feature; contexts may then be mappings, in any order.
        center, scale: one number for each feature; 0 and 1 by default.
        intercept: append a constant 1. It counts in ‖x‖ ≤ L.
        ranges: {name: (low, high)} of plausible raw values, for any of the features. A context outside them is refused
            unless the caller allows it (`allow_extrapolation`): an age of 600 years is a typing error.
        units: {name: unit}, for display.

    >>> features = Features(names=("age", "weight"), center=(50, 70), scale=(30, 40), intercept=True,
    ...                     ranges={"age": (0, 120)}, units={"age": "years"})
    >>> features.transform({"weight": 90, "age": 65}).tolist()
    [0.5, 0.5, 1.0]
    >>> features.outside([600, 90]), features.text([65, 90])
    (('age',), 'age 65 years, weight 90')
    """

    names: tuple[str, ...]
    center: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    intercept: bool = False
    ranges: Mapping[str, tuple[float, float]] | None = field(default=None, hash=False)
    units: Mapping[str, str] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        listed = np.iterable(self.names) and not isinstance(self.names, str)
        names = tuple(self.names) if listed else ()
        proper = names and all(isinstance(name, str) for name in names)
        require(proper, "names", self.names, "must be a list of at least one name")
        require(isinstance(self.intercept, bool), "intercept", self.intercept, "must be True or False")
        require(len(set(names)) == len(names), "names", names, "must all differ")
        object.__setattr__(self, "names", names)
        for name, default in (("center", 0.0), ("scale", 1.0)):
            given = getattr(self, name)
            values = _reals(name, given if given is not None else [default] * len(names))
            require(len(values) == len(names), name, given, f"must have one number for each of {len(names)} features")
            object.__setattr__(self, name, values)
        require(all(value > 0 for value in self.scale or ()), "scale", self.scale, "must be > 0")
        object.__setattr__(self, "_center", np.array(self.center))
        object.__setattr__(self, "_scale", np.array(self.scale))
        object.__setattr__(self, "ranges", self._by_name("ranges", _ends))
        object.__setattr__(self, "units", self._by_name("units", _unit))

    def _by_name(self, what: str, read: Callable[[str, Any], Any]) -> dict[str, Any]:
        """A checked mapping by feature, in the order of `names`."""
        given = getattr(self, what) or {}
        require(isinstance(given, Mapping), what, given, "must be a mapping from names of features")
        unknown = sorted(set(given) - set(self.names), key=str)
        require(not unknown, what, unknown, "names unknown features", "choose from " + ", ".join(self.names))
        return {name: read(f"{what}[{name!r}]", given[name]) for name in self.names if name in given}

    @property
    def dim(self) -> int:
        return len(self.names) + bool(self.intercept)

    def outside(self, raw: Any) -> tuple[str, ...]:
        """The features whose raw value, in the order of `names`, lies outside its range."""
        ranges: Mapping[str, tuple[float, float]] = self.ranges or {}
        found = ((name, value, ranges[name]) for name, value in zip(self.names, raw, strict=True) if name in ranges)
        return tuple(name for name, value, (low, high) in found if not low <= value <= high)

    def text(self, raw: Any) -> str:
        """Raw values in the order of `names`, as text."""
        units: Mapping[str, str] = self.units or {}
        return ", ".join(
            printable(f"{name} {float(value):.6g} {units.get(name, '')}".rstrip())
            for name, value in zip(self.names, raw, strict=True)
        )

    def values(self, raw: Any) -> NDArray[np.float64]:
        """Raw values in the order of `names`, from a list in that order or from anything with keys (dict, row)."""
        if hasattr(raw, "keys"):
            given = set(raw.keys())
            missing, extra = sorted(set(self.names) - given), sorted(given - set(self.names), key=str)
            if missing or extra:
                parts = (("lacks the features", missing), ("has unknown features", extra))
                words = "; ".join(f"{what} {', '.join(map(str, names))}" for what, names in parts if names)
                raise InvalidInput(
                    f"context: {words}", "wrong_features", public=_public_words(self.names, missing, len(extra))
                )
            raw = [real(f"context[{name!r}]", raw[name], finite=False) for name in self.names]
        return as_vector(raw, len(self.names), "context")

    def transform(self, raw: Any) -> NDArray[np.float64]:
        """The context of one round, from its raw values."""
        scaled = (self.values(raw) - self._center) / self._scale  # type: ignore[attr-defined] -- set in __post_init__
        return np.append(scaled, 1.0) if self.intercept else scaled

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "center": list(self.center or ()),
            "scale": list(self.scale or ()),
            "intercept": self.intercept,
            **({"ranges": {name: list(ends) for name, ends in self.ranges.items()}} if self.ranges else {}),
            **({"units": dict(self.units)} if self.units else {}),
        }


def _ends(name: str, given: Any) -> tuple[float, float]:
    two = isinstance(given, (list, tuple)) and len(given) == 2
    require(two, name, given, "must be two numbers, low and high")
    low, high = (real(name, end) for end in given)
    require(low <= high, name, given, "must have the lower end first")
    return low, high


def _unit(name: str, given: Any) -> str:
    require(isinstance(given, str), name, given, "must be text")
    return given


def _public_words(names: tuple[str, ...], missing: list[str], unknown: int) -> str:
    """Which features are wrong, naming only those of the specification; unknown ones are counted.

    >>> _public_words(("age", "weight"), ["weight"], 1)
    'missing: weight; not known: 1 other; the features are age, weight'
    """
    parts = [f"missing: {_listed(missing)}"] if missing else []
    parts += [f"not known: {unknown} other" + ("s" if unknown > 1 else "")] if unknown else []
    return "; ".join([*parts, f"the features are {_listed(names)}"])


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def significant(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, without an exponent where possible.

    >>> significant(0.48963947731781143), significant(1912.3, 3), significant(149.6, 2), significant(2e-7)
    ('0.4896', '1910', '150', '2e-07')
    """
    return f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"


def rounded_down(value: float, least: float = -math.inf) -> str:
    """A number rounded down to four significant digits (whole numbers in full), but not below `least`.

    >>> rounded_down(13.7559), rounded_down(0.3), rounded_down(123456.7), rounded_down(20.0)
    ('13.75', '0.3', '123456', '20')
    """
    if value == 0.0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    if float(text) > value:
        text = f"{max(Decimal(text) - Decimal(1).scaleb(-digits), Decimal(max(least, -1e300))):.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def as_vector(values: Any, dim: int, name: str) -> NDArray[np.float64]:
    """`values` as a float vector of length `dim`; text, booleans and other shapes are refused."""
    array = values if type(values) is np.ndarray else _array(values, name)
    if array.dtype.kind not in "iuf":
        raise InvalidInput(f"{name}: must hold numbers, not {array.dtype}", "not_finite")
    if array.shape != (dim,):
        size = f"{len(array)} numbers" if array.ndim == 1 else f"the shape {array.shape}"
        raise InvalidInput(f"{name}: has {size}, must have {dim} numbers", "wrong_dimension")
    return array.astype(np.float64)


def _array(values: Any, name: str) -> Any:
    if not np.iterable(values) or isinstance(values, (str, bytes, Mapping, np.ma.MaskedArray)):
        kind = type(values).__name__
        words = f"{name}: must be a flat list of numbers, not {kind}; named values need Features"
        raise InvalidInput(words, "wrong_dimension")
    items = list(values)
    for index, item in enumerate(items):
        if type(item) is not float and not isinstance(item, (list, tuple)) and np.ndim(item) == 0:
            real(f"{name}[{index}]", item.item() if isinstance(item, np.ndarray) else item, finite=False)
    try:
        return np.asarray(items, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{name}: must be a flat list of numbers ({error})", "wrong_dimension") from error


def real(name: str, value: Any, *, finite: bool = True) -> float:
    """`value` as a finite float; text, booleans, NaN and infinity are refused."""
    if type(value) is float and math.isfinite(value):
        return value
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    if not is_number:
        raise _no_number(name, value)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidInput(f"{name}: is a whole number too large for a float", "not_finite") from None
    require(math.isfinite(number) or not finite, name, value, "must be a finite number", code="not_finite")
    return number


def _no_number(name: str, value: Any) -> InvalidInput:
    """The refusal of text and the like in place of a number; what everybody may read names no value."""
    rule = "must be a number"
    if isinstance(value, str):
        rule += ", not text"
        if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", value):
            rule += "; write a decimal point, not a comma"
    told = refusal(name, value, rule, code="not_finite")
    told.public = f"{name}: {rule}"
    return told


def reals(given: Mapping[str, Any]) -> list[float]:
    """`real` of each value; the keys are the names."""
    return [real(name, value) for name, value in given.items()]


def _reals(name: str, values: Any) -> tuple[float, ...]:
    require(np.iterable(values) and not isinstance(values, (str, bytes)), name, values, "must be a list of numbers")
    return tuple(real(f"{name}[{index}]", value) for index, value in enumerate(values))


# --- What a study may call its cost, its reward and its units, for the people who read it

LABELS = ("cost", "cost_unit", "reward", "reward_unit", "unit")
"""What the cost and the reward measure, in which units, and what a unit is."""
LONGEST_LABEL = 40


def read_labels(given: Any, *, columns: Collection[str] = ("cost",)) -> dict[str, str]:
    """The labels, checked; `columns`: of the costs. Several have names and units of their own.

    >>> read_labels({"cost": "trough", "cost_unit": "mg/l", "unit": "patient"})["cost"]
    'trough'
    """
    choose = "choose from " + ", ".join(LABELS)
    require(isinstance(given, Mapping), "labels", given, "must be an object of names", choose)
    for name, label in given.items():
        near = get_close_matches(str(name), LABELS, n=1)
        way_out = f"did you mean {near[0]!r}? C{choose[1:]}" if near else choose
        require(name in LABELS, "labels", name, "is not a label", way_out)
        fits = isinstance(label, str) and 0 < len(label.strip()) == len(label) <= LONGEST_LABEL and label.isprintable()
        require(fits, f"labels.{name}", label, f"must be printable text of 1 to {LONGEST_LABEL} characters")
        own = name.startswith("cost") and "cost" not in columns
        require(not own, f"labels.{name}", label, "is for one cost", "several have names, and units in `costs`")
    return dict(given)
