"""The tolerated scale: the largest scale of a base at which a past round would have kept the threshold.

The setting a_λ(x), non-decreasing in its scale λ, is what is really played: λ times the base, floored to a level, at
most the dial's end, never below the start a₀(x). For a round with setting s and cost c, the bracket's bound B
(`model.brackets`) gives

    z* = sup{z : B(z) ≤ τ}                   the tolerated setting (`model.costs`), the smallest over several costs
    T̂ = sup{λ : a_λ(x) ≤ z*}                 the tolerated scale (`tolerated_scale`)

T̂ = ∞ where the dial's end is tolerated and −∞ where not even the start is, or nothing is known. Since B bounds the
round's own cost curve whatever s was, T̂ is at most the true tolerance, which does not depend on any setting.

With b the first setting above z* that can be played (z* itself on a dial without levels), T̂ = b/base.

**Rounding.** On a dial with levels the supremum is not attained: at b/base the level b itself is played. So T̂ is
lowered by 1e-12·max(1, |T̂|); a_λ(x) ≤ z* then holds in floating point for every λ ≤ T̂, and "the m-th smallest T̂"
may be played as it stands.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, NamedTuple

from safedial.model.brackets import LOWERED
from safedial.model.namespace import FLOATS, namespace


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
