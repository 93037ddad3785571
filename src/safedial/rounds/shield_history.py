"""The rounds that HP-Shield remembers online, the base that it scales, and the scale that they allow."""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.count_rule import CLIMB, RECENT, SPREAD_RANK, CountWindow, climb_limit, is_calibrated, spread_risk
from safedial.bounds.tolerated import Range, scaled_setting, tolerated_scale
from safedial.errors import require
from safedial.model.namespace import Array
from safedial.policies.shield_rounds import ALIKE, LARGEST_LOG, Bases, Fit, Ridge, fit_own
from safedial.rounds import shield_options

if TYPE_CHECKING:
    from safedial.rounds.rules import Rules

COLUMNS = ("protocol", "start", "limit", "applied", "advised", "scale", "cap")
"""What is kept of each round: the protocol's setting, its start, the tolerated setting (−∞ where not known, NaN where
left out), the applied setting (NaN where not known), the advised one, the scale of the largest that was allowed, before
flooring to a level, and that setting itself."""


LEAST = -1e300
"""A scale below all that are played: rounds that exceed at their start exceed there too."""


@dataclass(eq=False)
class Counted:
    """The rounds that a decision counted, which later ones leave alone, and the scale they were counted at; `numbers`
    are the decisions' by place, and the first of `scales` is that of place `since`.
    """

    scales: Array
    told: NDArray[np.bool_]
    first: int
    last: int
    scale: float
    numbers: list[int]
    since: int

    @property
    def exceeding(self) -> list[int]:
        """The numbers of the decisions among them that would have exceeded."""
        return [self.numbers[place] for place in (self._found + self.since).tolist()]

    @property
    def number(self) -> int:
        """How many these are."""
        return self._found.size

    @property
    def unknown(self) -> int:
        """How many of these are not known."""
        return int(np.count_nonzero(~self.told[self._found]))

    @cached_property
    def _found(self) -> NDArray[np.int64]:
        return self.first + np.flatnonzero(self.scales[self.first : self.last] < self.scale)


class ShieldHistory:
    """Rounds of one group by their place, from 0, and their tolerated scales under the present base."""

    def __init__(self, rules: Rules) -> None:
        self.options, self.dim, dial = rules.policy.options, rules.dim, rules.dial
        growth, risk = self.options["growth"], rules.spec.violation_risk
        spread = getattr(growth, "name", "") == "spread"
        self.risk = spread_risk(growth, risk) if spread else risk
        self.step, self.least = (growth.parameters["step"], SPREAD_RANK) if spread else (1.0, 1)
        self.levels = shield_options.played_levels(dial)
        self.end = dial.high if self.levels is None else self.levels[-1]
        # Shares that exceed grow slowly with the scale, not from level to level (bounds.count_rule).
        self.counted_levels = None if spread else self.levels
        self.learned = self.options["learned"]
        self.common_start = rules.start_action is not None
        self.columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
        self.contexts: list[Array] = []
        self.numbers: list[int] = []
        self.lessons: list[tuple[int, float]] = []
        self.left: list[int] = []
        self.ridge, self.bases = Ridge(1, self.dim, 2, rules.spec.ridge), Bases(1, self.dim)
        self.recent: list[int] = []
        self.used: list[float] = []
        self._use(self.bases.waiting[0], np.empty(0))

    @property
    def count(self) -> int:
        return len(self.contexts)

    def renew_base(self) -> None:
        """Fit a base if it is due, and use the newest that is calibrated. Replaces what it changes, so that a copy can
        run ahead.
        """
        waiting = self.bases.waiting
        if self.count < self.bases.next_fit and (len(waiting) == 1 or not self._is_ready(waiting[1])):
            return  # a newer base has fewer rounds since its fit, so it is not ready either
        bases = copy.copy(self.bases)
        bases.waiting = list(bases.waiting)
        if self.count >= bases.next_fit:
            bases.add(self.count, self.ridge.coef()[..., 0])
            bases.waiting[-1] = self._with_model(bases.waiting[-1]._replace(told=len(self.lessons)))
        ready = [place for place, fit in enumerate(bases.waiting) if self._is_ready(fit)]
        bases.waiting = bases.waiting[max(ready, default=0) :]
        self.bases = bases
        if bases.waiting[0] is not self.base:
            self._restate(bases.waiting[0])

    def _is_ready(self, fit: Fit) -> bool:
        return is_calibrated(self._countable(fit.since), self._countable(0), self.risk)

    def _countable(self, since: int) -> int:
        """How many rounds from `since` on count: older than the lag, less those left out."""
        last = self.count - self.options["lag"]
        return max(0, last - since - (bisect_left(self.left, last) - bisect_left(self.left, since)))

    def _with_model(self, fit: Fit) -> Fit:
        """A fit with the user's model, on the outcomes that were known then; the ridge's predictions until it has
        enough.
        """
        model = self.options["regressor"]
        if model is None or not fit.since:
            return fit
        places = [place for place, _ in self.lessons[: fit.told]]
        rows, targets = np.array(self.contexts)[places], np.array([target for _, target in self.lessons[: fit.told]])
        return fit._replace(own=fit_own(model, rows, targets, fit.value))

    def base_at(self, context: Array, protocol: float) -> float:
        """The setting that is scaled."""
        if not self.learned:
            return protocol
        if self.base.own is not None:
            return float(self._bases(self.base, context[None], np.array([protocol]))[0])
        coef = self.base.coef[0]
        # Not by BLAS, whose last digit can depend on where in memory an array begins, which loading changes.
        value = float(coef[0] + (coef[1:] * context).sum())
        return protocol * math.exp(min(max(value, -LARGEST_LOG), LARGEST_LOG))

    def _bases(self, base: Fit, contexts: Array, protocol: Array, *, slack: float = 0.0) -> Array:
        """The same at contexts (n, d), for a learned base; NaN where a model's answer is no number. Such a round gets
        the start, and counts as not known: a model that fails for a while must not change the scale of others.

        A user's model may answer many rows at once a little otherwise than each alone, as a decision asks it. `slack`
        is how far, relatively; past rounds take the end of that at which they tolerate less, so that none is counted
        for a setting above the one that it would get.
        """
        value = (base.own or base.value)(contexts[None])[0]
        if base.own is not None:
            value = value + slack * np.maximum(np.abs(value), 1.0)
        return protocol * np.exp(np.clip(value, -LARGEST_LOG, LARGEST_LOG))

    def find(self, base: float, raw_start: float, level: float | None) -> tuple[Any, ...]:
        """The largest setting: λ̂ times the base, under the climb limit, never below the start.

        Returns it, also before flooring to a level; the start; what the count rule allows (λ̂, −∞: the start) and what
        the climb limit; the scale that is counted, the one that a climb may start from, and whether the climb limit
        set the setting.
        """
        climb, start = self.options["climb"], self.floored(raw_start)
        found = self.window.scale(level) if base == base else -math.inf
        allowed = self.step * found
        most = math.inf if climb is None else climb_limit(self.used, -math.inf, climb=climb)
        smooth = Range(start, self.end)
        scale, counted = min(allowed, most), min(found, most / self.step)  # a quotient of λ̂ may round up
        unfloored, climbing = scaled_setting(scale, base, smooth), most < allowed
        # A start that is one setting for all gives small bases large scales, which say nothing of the large bases.
        scale = max(scale, raw_start / (max(base, self.end) if self.common_start else base))
        safe = unfloored if self.levels is None else Range(start, self.end, self.levels).played(unfloored)
        return safe, unfloored, start, allowed, most, max(counted, LEAST), scale, climbing

    def _tolerated(self, limit: Any, base: Any, start: Any) -> Any:
        """T̂ of rounds that tolerate settings up to `limit`; −∞ where the base is no number."""
        if isinstance(base, float):
            limit = limit if base == base else -math.inf
        else:
            limit = np.where(np.isnan(base), -math.inf, limit)
        return tolerated_scale(limit, base, self.range(start))

    def floored(self, start: Any) -> Any:
        """A start, or an array of them, as it is played."""
        if self.levels is None:
            return start
        if isinstance(start, float):
            return self.levels[bisect_right(self.levels, start) - 1]
        return np.array(self.levels)[np.searchsorted(self.levels, start, side="right") - 1]

    def range(self, start: Any) -> Range:
        """What counts as played in rounds with this start."""
        return Range(self.floored(start), self.end, self.counted_levels)

    def counted(self, scale: float) -> Counted:
        """The counted rounds, as they stand, and a scale."""
        first, last = self.window.span
        self.shown = max(self.shown, last)
        return Counted(self.scales, self.told, first, last, scale, self.numbers, self.base.since)

    def open(self, context: Array, number: int, kept: tuple[float, ...]) -> int:
        """A round without an outcome, with its decision's number and its columns; its place."""
        self.contexts.append(context)
        self.numbers.append(number)
        for name, value in zip(COLUMNS, kept, strict=True):
            self.columns[name].append(value)
        if self.window.append() >= self.scales.size:
            more = self.scales.size + 64
            self.scales = np.concatenate([self.scales, np.full(more, -math.inf)])
            self.told = np.concatenate([self.told, np.full(more, False)])
        return self.count - 1

    def fill(self, place: int, limit: float, applied: float) -> None:
        """A round's outcome: what it tolerates, and what was applied."""
        columns = self.columns
        columns["limit"][place], columns["applied"][place] = limit, applied
        base = self.base_at(self.contexts[place], columns["protocol"][place])
        self._set(place, self._tolerated(limit, base, columns["start"][place]), told=True)
        self.window.advance()
        # A setting that was rounded down is evidence for the scale it had. One that was lowered by much is neither
        # evidence for its scale nor a reason to climb anew, unless there is nothing else to climb from.
        cap = columns["cap"][place]
        if applied > 0.0 and base == base and (applied * CLIMB >= cap or not self.used):
            scale = columns["scale"][place]
            scale = min(scale, applied / base) if applied < cap else scale
            self.recent = [*self.recent, place][-RECENT:]
            self.used = [*self.used, scale][-RECENT:]

    def leave_out(self, place: int) -> None:
        insort(self.left, place)
        self.columns["limit"][place] = math.nan
        self._set(place, math.nan, told=False)
        self.window.earlier -= place < self.base.since

    def _set(self, place: int, scale: float, *, told: bool) -> None:
        number = place - self.base.since
        if number >= 0:
            if number < self.shown:  # a certificate has counted it
                self.scales, self.told, self.shown = self.scales.copy(), self.told.copy(), 0
            self.window.set(number, scale)
            self.scales[number], self.told[number] = scale, told

    def _restate(self, base: Fit) -> None:
        """Count all rounds since the fit, and the scales of the last known ones, in the new base's scale."""
        self._use(base, self._scales(base))
        if self.recent:
            protocol, applied = (np.array(self.columns[name])[self.recent] for name in ("protocol", "applied"))
            given = applied / self._bases(base, np.array(self.contexts)[self.recent], protocol)
            self.used = np.where(np.isnan(given), -math.inf, given).tolist()

    def _scales(self, base: Fit) -> Array:
        """T̂ of all rounds since a base's fit, in its scale."""
        protocol, start, limit = (np.array(self.columns[name])[base.since :] for name in COLUMNS[:3])
        bases = self._bases(base, np.array(self.contexts)[base.since :], protocol, slack=ALIKE)
        return np.where(np.isnan(limit), math.nan, self._tolerated(limit, bases, start))

    def _use(self, base: Fit, scales: Array) -> None:
        """Count the rounds since a base's fit by these tolerated scales."""
        self.base = base
        self.window = CountWindow(
            self.risk,
            lag=self.options["lag"],
            confidence=self.options["confidence"],
            least=self.least,
            earlier=base.since - bisect_left(self.left, base.since),
            values=scales.tolist(),
        )
        self.scales, self.shown = scales.copy(), 0
        self.told = np.isfinite(self.columns["applied"])[base.since :]

    def state(self) -> dict[str, Any]:
        fits = self.bases.waiting
        return {
            **{name: np.array(values, dtype=np.float64) for name, values in self.columns.items()},
            "contexts": np.array(self.contexts, dtype=np.float64).reshape(self.count, self.dim),
            "left": np.array(self.left, dtype=np.int64),
            "recent": np.array(self.recent, dtype=np.int64),
            "used": np.array(self.used, dtype=np.float64),
            "scales": np.array(self.window.values, dtype=np.float64),
            "gram": self.ridge.gram,
            "moments": self.ridge.moments,
            "fitted": np.array([self.bases.next_fit, *(fit.since for fit in fits)], dtype=np.int64),
            "coefs": np.stack([fit.coef for fit in fits]),
            "fits_told": np.array([fit.told for fit in fits], dtype=np.int64),
            "lessons": np.array(self.lessons, dtype=np.float64).reshape(-1, 2),
        }

    def restore(self, arrays: dict[str, Any], numbers: list[int]) -> None:
        """What `state` gave, with the decisions' numbers; a user's model is fitted again to the same outcomes."""
        self.numbers = numbers
        self.columns = {name: arrays[name].tolist() for name in COLUMNS}
        self.contexts = list(arrays["contexts"].copy())
        self.left, self.recent, self.used = (arrays[name].tolist() for name in ("left", "recent", "used"))
        self.ridge.gram, self.ridge.moments = arrays["gram"].copy(), arrays["moments"].copy()
        self.bases.next_fit, *since = arrays["fitted"].tolist()
        self.lessons = [(int(place), target) for place, target in arrays["lessons"].tolist()]
        fits = map(Fit, since, arrays["coefs"].copy(), arrays["fits_told"].tolist())
        self.bases.waiting = [self._with_model(fit) for fit in fits]
        self._use(self.bases.waiting[0], arrays["scales"])
        if self.base.own is not None:
            again = self._scales(self.base)
            size = np.abs(arrays["scales"][np.isfinite(arrays["scales"])])
            atol = 1e-3 * float(np.median(size)) if size.size else 0.0
            same = np.allclose(again, arrays["scales"], rtol=1e-3, atol=atol, equal_nan=True)
            require(same, "regressor", self.options["regressor"], "gives other predictions than the saved one")
