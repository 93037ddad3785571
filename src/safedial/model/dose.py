"""A dose curve: a function g and its inverse, checked when you make your own.

A guarantee divides outcomes by g and limits doses through its inverse, so a curve that breaks one of these rules breaks
the guarantee:

    g(0) = 0, g(1) = 1, g does not fall        0 ≤ g⁻¹(z) ≤ 1 and g(g⁻¹(z)) ≤ z: the inverse is rounded down

`DoseCurve(...)` checks them on `GRID`, 136 values from 0 to 1 that are denser near 0, where probes lie. Between these
values the rules are assumptions. The curves of `model.dose` are proved and tested, and are not checked again.

Dose curves: how the action determines the intensity.

    action α in [0, 1]  ──g──►  intensity z = g(α) in [0, 1]      g increasing, g(0) = 0, g(1) = 1

| curve | g(α) |
|---|---|
| `identity` | α |
| `power` | α^p |
| `hill` (Emax for slope 1) | (1 + k) α^h / (k + α^h), k = ed50^h |
| `logistic` | (σ(s(α − m)) − σ(−sm)) / (σ(s(1 − m)) − σ(−sm)) |
| `tabulated` | monotone cubic (PCHIP) through given points |

Every inverse is rounded down: `curve.effect(curve.action(z)) <= z` holds in floating point, so rounding never raises a
dose; and it is within 1e-12 of the exact inverse, in action or in intensity. A closed form proposes the action, and
`_round_down` makes it safe. Reward and cost may follow different curves (the paper's footnote): the safe set limits the
cost's intensity, and the learner divides the reward by the reward's curve and the cost by the cost's.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from safedial.errors import InvalidInput, is_number, require, require_fields
from safedial.model.namespace import FLOATS, namespace

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

        >>> from safedial.model.dose import identity, power, tabulated
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


# --- Dose curves: how the action determines the intensity

HALVINGS = 60
"""Bisection steps of a bracketed inverse: 2^-60 of an interval is below the spacing of doubles at its end."""

LARGEST_EXPONENT = 700.0
"""e^700 is just below the largest float."""

SHRINKS = 52
"""How often the step that lowers an inverse may double, from one unit in the last place, before the answer is 0."""


class Dose(NamedTuple):
    """The reward's curve and the cost's. `Dose.of(curve)` gives both the same."""

    reward: DoseCurve
    cost: DoseCurve

    @classmethod
    def of(cls, curve: DoseCurve) -> Dose:
        return cls(curve, curve)

    @property
    def is_identity(self) -> bool:
        return self.reward.name == self.cost.name == "identity"

    def to_dict(self) -> dict[str, Any]:
        return {"reward": self.reward.to_dict(), "cost": self.cost.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Dose:
        """The inverse of `to_dict`; a single curve is used for both.

        >>> Dose.from_dict({"curve": "power", "exponent": 2.0}).reward.name
        'power'
        """
        if "curve" in fields:
            return cls.of(curve_from_dict(fields))
        both = set(fields) == {"reward", "cost"} and all(isinstance(part, Mapping) for part in fields.values())
        require(both, "dose", sorted(fields), "must have `curve`, or `reward` and `cost`")
        return cls(curve_from_dict(fields["reward"]), curve_from_dict(fields["cost"]))


def identity() -> DoseCurve:
    """The action is the intensity.

    >>> identity().action(0.3)
    0.3
    """
    return DoseCurve._make(("identity", {}, lambda action: action, lambda intensity: intensity, 0.0))


def power(exponent: float) -> DoseCurve:
    """g(α) = α^p: p > 1 starts slowly, p < 1 saturates.

    >>> round(power(2.0).action(0.25), 12)
    0.5
    """
    exponent = _positive("exponent", exponent)

    def effect(action: Any) -> Any:
        return action**exponent

    inverse = _round_down(effect, lambda intensity: intensity ** (1.0 / exponent))
    return DoseCurve._make(("power", {"exponent": exponent}, effect, inverse, 8.0))


def hill(ed50: float, slope: float = 1.0) -> DoseCurve:
    """The Hill curve scaled to g(1) = 1; with slope 1 the Emax curve.

    `ed50` is the action at which the unscaled curve reaches half of its plateau.

    >>> curve = hill(ed50=0.5, slope=2.0)
    >>> float(curve.effect(1.0)), round(curve.effect(0.5), 3)
    (1.0, 0.625)
    """
    ed50 = _positive("ed50", ed50)
    slope = _positive("slope", slope)
    half = float(np.float64(ed50) ** np.float64(slope)) if slope * abs(math.log(ed50)) < LARGEST_EXPONENT else 0.0
    require(half > 0, "ed50", ed50, "raised to the slope leaves the range of floats", "use a smaller slope")

    def effect(action: Any) -> Any:
        powered = action**slope
        return powered * (1.0 + half) / (half + powered)

    def guess(intensity: Any) -> Any:
        return (intensity * half / ((1.0 - intensity) + half)) ** (1.0 / slope)

    return DoseCurve._make(("hill", {"ed50": ed50, "slope": slope}, effect, _round_down(effect, guess), 16.0))


def logistic(midpoint: float, steepness: float) -> DoseCurve:
    """The logistic curve shifted and scaled to g(0) = 0 and g(1) = 1.

    With σ(a) − σ(b) = (e^a − e^b) / ((1 + e^a)(1 + e^b)) the shift cancels without loss near α = 0:
    g(α) = (1 − e^{−sα}) / (1 + e^{−s(α−m)}) · c, where c makes g(1) = 1.

    >>> curve = logistic(midpoint=0.5, steepness=8.0)
    >>> float(curve.effect(0.0)), float(curve.effect(1.0)), round(curve.effect(0.5), 12)
    (0.0, 1.0, 0.5)
    """
    steepness = _positive("steepness", steepness)
    is_number = isinstance(midpoint, (int, float, np.floating)) and not isinstance(midpoint, bool)
    require(is_number and math.isfinite(midpoint), "midpoint", midpoint, "must be a finite number")
    require(
        steepness <= 200,
        "steepness",
        steepness,
        "must be at most 200",
        "a steeper curve is a step and does not increase",
    )
    shift = math.exp(max(min(steepness * midpoint, LARGEST_EXPONENT), -LARGEST_EXPONENT))

    def raw(action: Any) -> Any:
        xp = namespace(action)
        return -xp.expm1(-steepness * action) / (1.0 + shift * xp.exp(-steepness * action))

    top, last = float(raw(1.0)), math.exp(-steepness)
    rest = last * (1.0 + shift) / (1.0 + shift * last)  # 1 − top, without cancellation
    require(top > 1e-12, "midpoint", midpoint, "puts the whole rise beyond the dial's end", "use a smaller midpoint")

    def effect(action: Any) -> Any:
        return raw(action) / top

    def guess(intensity: Any) -> Any:
        ratio = intensity * top * (1.0 + shift) / ((1.0 - intensity) + intensity * rest)
        return namespace(intensity).log1p(ratio) / steepness

    parameters = {"midpoint": midpoint, "steepness": steepness}
    return DoseCurve._make(("logistic", parameters, effect, _round_down(effect, guess), 16.0 + 4.0 * steepness))


def tabulated(actions: Sequence[float], intensities: Sequence[float]) -> DoseCurve:
    """A monotone cubic (PCHIP) through measured points; the first must be (0, 0), the last (1, 1).

    >>> curve = tabulated([0, 0.2, 0.6, 1], [0, 0.1, 0.7, 1])
    >>> round(float(curve.effect(0.6)), 12), round(float(curve.action(0.7)), 9)
    (0.7, 0.6)
    """
    from scipy.interpolate import PchipInterpolator

    try:
        knots, levels = np.asarray(actions, dtype=float), np.asarray(intensities, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"actions, intensities: must be two lists of numbers ({error})") from error
    require(
        knots.ndim == 1 and knots.shape == levels.shape and len(knots) >= 2,
        "actions, intensities",
        (knots.shape, levels.shape),
        "must be two lists of equal length, at least 2",
    )
    for name, values in (("actions", knots), ("intensities", levels)):
        require(np.all(np.isfinite(values)), name, values.tolist(), "must be finite")
        require(np.all(np.diff(values) > 0), name, values.tolist(), "must be strictly increasing")
        require(values[0] == 0 and values[-1] == 1, name, values.tolist(), "must start at 0 and end at 1")
    cubics = PchipInterpolator(knots, levels).c
    last = len(knots) - 2

    def pieces(xp: Any, marks: Any, value: Any) -> tuple[Any, ...]:
        """Start, length and coefficients of the cubic whose interval of `marks` holds `value`."""
        if xp is FLOATS:
            index = min(max(bisect_right(marks, value) - 1, 0), last)
            return float(knots[index]), float(knots[index + 1]), *(float(row[index]) for row in cubics)
        index = xp.clip(xp.searchsorted(xp.asarray(marks), value, side="right") - 1, 0, last)
        ends = (xp.take(xp.asarray(ends), index) for ends in (knots[:-1], knots[1:]))
        return *ends, *(xp.take(xp.asarray(row), index) for row in cubics)

    def cubic(xp: Any, step: Any, coefficients: tuple[Any, ...]) -> Any:
        c3, c2, c1, c0 = coefficients
        value = ((c3 * step + c2) * step + c1) * step + c0
        return xp.minimum(xp.maximum(value, 0.0 * value), 0.0 * value + 1.0)

    def effect(action: Any) -> Any:
        xp = namespace(action)
        start, _, *coefficients = pieces(xp, knots, action)
        value = cubic(xp, action - start, tuple(coefficients))
        return xp.where(action >= 1.0, 0.0 * value + 1.0, value)

    def guess(intensity: Any) -> Any:
        xp = namespace(intensity)
        start, end, *coefficients = pieces(xp, levels, intensity)
        low, high = 0.0 * intensity, end - start
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            above = cubic(xp, middle, tuple(coefficients)) > intensity
            low, high = xp.where(above, low, middle), xp.where(above, middle, high)
        return start + low

    parameters = {"actions": knots.tolist(), "intensities": levels.tolist()}
    return DoseCurve._make(("tabulated", parameters, effect, _round_down(effect, guess), 64.0))


def as_dose(dose: DoseCurve | Dose | None) -> Dose:
    """One curve for both, a pair of curves, or (None) the identity.

    >>> as_dose(power(2.0)).cost.name, as_dose(None).is_identity
    ('power', True)
    """
    pair = dose if isinstance(dose, Dose) else Dose.of(identity() if dose is None else dose)
    curves = isinstance(pair.reward, DoseCurve) and isinstance(pair.cost, DoseCurve)
    require(curves, "dose", dose, "must be a dose curve or a Dose", "for example hill(ed50=0.5)")
    return pair


CURVES: dict[str, Callable[..., DoseCurve]] = {
    "identity": identity,
    "power": power,
    "hill": hill,
    "logistic": logistic,
    "tabulated": tabulated,
}


def curve_from_dict(fields: Mapping[str, Any]) -> DoseCurve:
    """The curve that `DoseCurve.to_dict` wrote.

    >>> curve_from_dict({"curve": "power", "exponent": 2.0}).name
    'power'
    """
    name = fields.get("curve")
    require(name in CURVES, "curve", name, "must be one of " + ", ".join(CURVES))
    parameters = {key: value for key, value in fields.items() if key != "curve"}
    require_fields(f"curve {name}", parameters, CURVES[str(name)])
    return CURVES[str(name)](**parameters)


def _positive(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
    require(
        is_number and 0 < value < np.inf, name, value, "must be a finite number > 0", "otherwise g would not increase"
    )
    return float(value)


def _round_down(effect: Callable[[Any], Any], guess: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make an approximate inverse safe: shrink the action until `effect(action) <= intensity`.

    The guess is a few units in the last place off, so the shrinkage doubles from one unit and ends at once; the last
    resort, 0, is always safe.
    """

    def action(intensity: Any) -> Any:
        proposed = guess(intensity)
        xp = namespace(proposed, intensity)
        zero, one = 0.0 * intensity, 0.0 * intensity + 1.0
        proposed = xp.minimum(xp.maximum(proposed, zero), one)
        shrink = (float(xp.finfo(proposed.dtype).eps) if hasattr(proposed, "dtype") else 2.0**-52) / 2.0
        for _ in range(SHRINKS):
            above = effect(proposed) > intensity
            if xp in (np, FLOATS) and not np.any(above):
                break
            proposed = xp.where(above, proposed * (1.0 - shrink), proposed)
            shrink *= 2.0
        proposed = xp.where(effect(proposed) <= intensity, proposed, zero)
        return xp.where(intensity >= 1.0, one, proposed)

    return action
