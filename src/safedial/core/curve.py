"""A dose curve: a function g and its inverse, checked when you make your own.

A promise divides outcomes by g and limits doses through its inverse, so a curve that breaks one of these rules breaks
the promise:

    g(0) = 0, g(1) = 1, g does not fall        0 ≤ g⁻¹(z) ≤ 1 and g(g⁻¹(z)) ≤ z: the inverse is rounded down

`DoseCurve(...)` checks them on `GRID`, 136 values from 0 to 1 that are denser near 0, where probes lie. Between these
values the rules are assumptions. The curves of `core.dose` are proved and tested, and are not checked again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from safedial.errors import InvalidInput, is_number, require

BUILT_IN = ("identity", "power", "hill", "logistic", "tabulated")
"""The curves of this package, which a save file and a log keep by name and parameters."""

GRID = tuple(sorted({*(step / 128.0 for step in range(129)), *(10.0**-power for power in range(3, 10))}))

TOLERANCE = 1e-12
"""How far g(1) may be from 1, and how far g may fall from one value of the grid to the next, relatively."""

MOST_UNITS = 2.0**20


class Fields(NamedTuple):
    name: str
    parameters: Mapping[str, Any]
    effect: Callable[[Any], Any]
    action: Callable[[Any], Any]
    error_units: float = 0.0


class DoseCurve(Fields):
    """A curve g (`effect`) and its inverse (`action`), both functions of a number or an array.

    `name` and `parameters` are its written form, plain values. `effect` errs by at most `error_units`·2⁻⁵³, relatively;
    an online learner allows for it.

    >>> DoseCurve("half", {}, lambda action: action / 2, lambda intensity: intensity)
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: dose curve 'half', effect(1) = 0.5: must be 1
    """

    __slots__ = ()

    def __new__(
        cls,
        name: str,
        parameters: Mapping[str, Any],
        effect: Callable[[Any], Any],
        action: Callable[[Any], Any],
        error_units: float = 0.0,
    ) -> Self:
        curve = super().__new__(cls, name, parameters, effect, action, error_units)
        _check_form(curve)
        _check_effect(curve)
        _check_inverse(curve)
        return curve

    def _replace(self, /, **changes: Any) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride] -- it checks too
        return type(self)(**(self._asdict() | changes))

    def __reduce__(self) -> tuple[Any, ...]:
        """Compare curves of this package by their written form, the user's own by functions."""
        from safedial.core.dose import curve_from_dict

        return (type(self)._make, (tuple(self),)) if self.is_own else (curve_from_dict, (self.to_dict(),))

    def __copy__(self) -> Self:
        """The curve itself, which is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own: its written form then does not define it."""
        return self.name not in BUILT_IN

    def to_dict(self) -> dict[str, Any]:
        return {"curve": self.name, **self.parameters}

    @property
    def words(self) -> str:
        """The curve as text, with numbers of four digits.

        >>> from safedial.core.dose import identity, power, tabulated
        >>> power(0.48963947731781143).words, identity().words, tabulated([0, 0.5, 1], [0, 0.2, 1]).words
        ('power (exponent 0.4896)', 'identity', 'tabulated (actions 0 0.5 1, intensities 0 0.2 1)')
        """
        told = [f"{name} {_shown(value)}" for name, value in self.parameters.items()]
        return f"{self.name} ({', '.join(told)})" if told else self.name

    def heights(self) -> list[float]:
        """g on `GRID`, to tell two curves of the same name apart."""
        return [_number(self, "effect", action) for action in GRID]


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_shown(part) for part in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _check_form(curve: DoseCurve) -> None:
    text = isinstance(curve.name, str) and curve.name != ""
    require(text, "name", curve.name, "must be text")
    rule = "is the name of a curve of this package"
    require(curve.is_own, "name", curve.name, rule, f"use safedial.{curve.name}(...), or take another name")
    try:
        plain = isinstance(curve.parameters, Mapping) and "curve" not in curve.parameters
        json.dumps(dict(curve.parameters), allow_nan=False)
    except (TypeError, ValueError):
        plain = False
    require(plain, "parameters", curve.parameters, "must be a mapping of names to plain values", "files store them")
    units = curve.error_units
    known = is_number(units) and 0.0 <= units <= MOST_UNITS
    require(known, "error_units", units, f"must be a number from 0 to {MOST_UNITS:g}")


def _check_effect(curve: DoseCurve) -> None:
    """Check the ends of g, and that it does not fall."""
    heights = curve.heights()
    require(heights[0] == 0.0, _words(curve, "effect", 0.0), heights[0], "must be 0")
    require(abs(heights[-1] - 1.0) <= TOLERANCE, _words(curve, "effect", 1.0), heights[-1], "must be 1")
    for before, after, at in zip(heights, heights[1:], GRID[1:], strict=False):
        rises = after >= before * (1.0 - TOLERANCE)
        require(rises, _words(curve, "effect", at), after, f"must not fall: for a smaller action it is {before:g}")


def _check_inverse(curve: DoseCurve) -> None:
    """Check that the inverse never gives more effect than requested."""
    way_out = "round the inverse down, or state the rounding of `effect` as error_units"
    for intensity in GRID:
        action = _number(curve, "action", intensity)
        require(0.0 <= action <= 1.0, _words(curve, "action", intensity), action, "must lie between 0 and 1")
        reached = _number(curve, "effect", action)
        fits = reached <= intensity * (1.0 + curve.error_units * 2.0**-53)
        require(fits, _words(curve, "effect", f"action({intensity:g})"), reached, f"must be <= {intensity!r}", way_out)


def _number(curve: DoseCurve, part: str, value: float) -> float:
    """`effect` or `action` of a float, as a float."""
    try:
        return float(getattr(curve, part)(value))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InvalidInput(
            f"{_words(curve, part, value)}: is not a number ({error}); give a function of one"
        ) from error


def _words(curve: DoseCurve, part: str, of: Any) -> str:
    return f"dose curve {curve.name!r}, {part}({of if isinstance(of, str) else f'{of:g}'})"
