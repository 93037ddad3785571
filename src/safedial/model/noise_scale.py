"""How the noise grows with the dose: C = b₀(x) + z·c(x) + h(z, x)·ξ, with h known and ξ κ-sub-Gaussian.

z = g(α) is the intensity, so a scale in the action, h(α, x), is h(g⁻¹(z), x) here; the reward's noise follows the same
h at the reward's intensity. h must be ≥ 0 and must not fall as the dose grows, at any context: `check_rises` checks
your own function on a grid, at each new context; between the values of the grid it is an assumption.

| scale | h(z, x) | model |
|---|---|---|
| `proportional` | z | the paper's: noise scales with the dose (no scale at all is the same) |
| `with_sensor` | √(z² + ρ²) | an independent sensor error as well, ρ = σ_ε/κ |
| `with_any_sensor` | z + ρ | a sensor error of any kind |
| `power_scale` | z^p | noise that grows faster or slower than the dose |
| `own_scale` | your function of (z, x) | anything that does not fall with z |

**Learning.** C/z = c + (h/z)ξ; √ω times it, with ω = (z/h)², has κ-sub-Gaussian noise again, so every radius but
`paper` holds as it stands (`paper` counts rounds, and needs ω ≤ 1). The smaller ω of reward and cost serves both.

**The safe set.** z is safe if z·u + m·h(z, x) ≤ τ, u = cost_upper, m the noise margin. For u ≥ 0 the left-hand side
rises, and bisection finds the largest z. For u < 0 it need not be monotone, and every smaller dose must be safe too
(the applied dose may be lower than the advised). On an interval [a, b] it is at most a·u + m·h(b, x), as −z·u and h
rise. So we walk up from 0 by steps that this proves, halving the step where it does not: what lies below the end is
safe, whatever the shape of h, and where the left-hand side crosses τ once the walk converges to the crossing (where it
is nearly flat, u near −m, `STEPS` end the walk a little short of it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import InvalidInput, is_number, require
from safedial.model.namespace import FLOATS, namespace

STEPS = 600
"""The most steps of the walk; it ends when a step is no larger than rounding."""

LEAST_STEP = 2.0**-54

RISING = tuple(step / 32.0 for step in range(33))
"""The intensities that `check_rises` checks."""

FLAT = 1e-12
"""How far rounding may lower the next value, relatively, if a scale hardly rises."""


class NoiseScale(NamedTuple):
    """A scale h(intensity, context) and its written form. `of` works on floats and NumPy arrays."""

    name: str
    parameters: Mapping[str, Any]
    of: Callable[[Any, Any], Any]

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own: its written form then does not define it."""
        return self.name == "own_scale"

    def __reduce__(self) -> tuple[Any, ...]:
        """Compare scales of this package by their written form, the user's own by function."""
        return (NoiseScale._make, (tuple(self),)) if self.is_own else (scale_from_dict, (self.to_dict(),))

    def to_dict(self) -> dict[str, Any]:
        return {"scale": self.name, **self.parameters}


@lru_cache(maxsize=64)
def proportional() -> NoiseScale:
    """h = z, the paper's model."""
    return NoiseScale("proportional", {}, lambda intensity, _: intensity)


@lru_cache(maxsize=64)
def with_sensor(ratio: float) -> NoiseScale:
    """h = √(z² + ρ²): noise that scales with the dose and an independent sensor error, ρ = σ_ε/κ.

    >>> with_sensor(0.3).of(0.4, None)
    0.5
    """
    share = _at_least_zero("ratio", ratio)
    return NoiseScale(
        "with_sensor",
        {"ratio": share},
        lambda intensity, _: namespace(intensity).sqrt(intensity * intensity + share * share),
    )


@lru_cache(maxsize=64)
def with_any_sensor(ratio: float) -> NoiseScale:
    """h = z + ρ: as `with_sensor`, the error of any kind."""
    share = _at_least_zero("ratio", ratio)
    return NoiseScale("with_any_sensor", {"ratio": share}, lambda intensity, _: intensity + share)


@lru_cache(maxsize=64)
def power_scale(exponent: float) -> NoiseScale:
    """h = z^p."""
    by = _at_least_zero("exponent", exponent)
    return NoiseScale("power_scale", {"exponent": by}, lambda intensity, _: intensity**by)


def own_scale(function: Callable[[Any, Any], Any]) -> NoiseScale:
    """Your own h(intensity, context): contexts are (..., d), intensities (...). It must not fall with the intensity.

    A save file does not hold it: give it again on load.
    """
    require(callable(function), "function", function, "must be a function of (intensity, context)")
    return NoiseScale("own_scale", {"function": getattr(function, "__name__", "function")}, function)


SCALES: dict[str, Callable[..., NoiseScale]] = {
    "proportional": proportional,
    "with_sensor": with_sensor,
    "with_any_sensor": with_any_sensor,
    "power_scale": power_scale,
}


def scale_from_dict(fields: Any) -> NoiseScale:
    """The inverse of `NoiseScale.to_dict`."""
    require(isinstance(fields, Mapping), "noise_scale", fields, "must be a NoiseScale, or a table with its name")
    given = dict(fields)
    name = given.pop("scale", None)
    way_out = "give your own function again, in the spec" if name == "own_scale" else "use " + ", ".join(SCALES)
    require(name in SCALES, "noise_scale", name, "is not a scale with a written form", way_out)
    try:
        return SCALES[name](*signature(SCALES[name]).bind(**given).args)
    except TypeError as error:
        raise InvalidInput(f"noise_scale {name}: {error}") from error


def check_rises(scale: NoiseScale | None, context: Any) -> None:
    """Refuse your own scale if it is negative, falls with the intensity or is NaN, at contexts (..., d).

    >>> check_rises(own_scale(lambda intensity, _: 1.0 - intensity), np.zeros(2))
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: noise_scale = 'own_scale': must not fall, and is 1 at z = 0, 0.96875 at z = 0.03125
    """
    if scale is None or not scale.is_own:
        return
    shape = np.shape(context)[:-1]
    before, at = np.zeros(shape), 0.0
    for intensity in RISING:
        height = np.broadcast_to(scale.of(np.full(shape, intensity) if shape else intensity, context), shape)
        falls = ~(height >= before * (1.0 - FLAT))
        if np.any(falls):
            high, low = float(before[falls][0]), float(height[falls][0])
            rule = f"must not fall, and is {high:g} at z = {at:g}, {low:g} at z = {intensity:g}"
            raise InvalidInput(f"noise_scale = {scale.name!r}: {rule if intensity else 'must be a number >= 0'}")
        before, at = height, intensity


def scaled_weight(scale: NoiseScale, intensity: Any, context: Any) -> Any:
    """ω = (z/h)², 0 if z = 0. Outcomes without noise would have infinite weight, so h > 0 if z > 0."""
    height = scale.of(intensity, context)
    xp = namespace(intensity, height)
    played = intensity > 0.0
    if xp in (np, FLOATS):  # a compiled program cannot look, and takes no scale of the user's own
        sound = np.all(np.where(played, height, 1.0) > 0.0)
        require(sound, "noise_scale", scale.name, "must be a number > 0 at every positive intensity")
    ratio = intensity / xp.where(played, height, 1.0 + 0.0 * height)
    return xp.where(played, ratio * ratio, 0.0 * ratio)


def largest_scaled_intensity(
    cost_upper: Any, noise_margin: Any, *, threshold: Any, scale: NoiseScale, context: Any
) -> tuple[Any, Any]:
    """(z, certified): the end of the walk, and whether z = 0 itself is safe.

    >>> z, _ = largest_scaled_intensity(0.2, 0.8, threshold=0.5, scale=proportional(), context=None)
    >>> round(z, 12)
    0.5
    """
    xp = namespace(cost_upper, noise_margin, threshold)
    rise = xp.maximum(cost_upper, 0.0 * cost_upper)
    fall = xp.minimum(cost_upper, 0.0 * cost_upper)

    def proven(low: Any, high: Any) -> Any:
        return high * rise + low * fall + noise_margin * scale.of(high, context) <= threshold

    def walk(place: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        low, step, taken = place
        high = xp.minimum(low + step, 1.0 + 0.0 * low)
        safe = proven(low, high)
        return xp.where(safe, high, low), xp.where(safe, step, 0.5 * step), taken + 1

    def goes_on(place: tuple[Any, Any, Any]) -> Any:
        low, step, taken = place
        done = xp.logical_or(low >= 1.0, step <= LEAST_STEP)
        return (taken < STEPS) & ~(xp.all(done) if xp is not FLOATS else np.bool_(done))

    low = 0.0 * (cost_upper + noise_margin + threshold)
    certified, place = proven(low, low), (low, low + 1.0, 0)
    if xp in (np, FLOATS):
        while goes_on(place):
            place = walk(place)
    else:
        from jax.lax import while_loop

        place = while_loop(goes_on, walk, place)
    return xp.where(certified, place[0], 0.0), certified


def _at_least_zero(name: str, value: Any) -> float:
    require(is_number(value) and 0.0 <= value < float("inf"), name, value, "must be a finite number >= 0")
    return float(value)
