"""The rounds that HP-Shield remembers online, the base that it scales, and the scale that they allow."""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.count_rule import CLIMB, RECENT, SPREAD_RANK, is_calibrated, spread_risk
from safedial.core.count_window import CountWindow
from safedial.core.tolerated import Range, tolerated_scale
from safedial.policies.shield.bases import LARGEST_LOG, Bases, Fit, Ridge

if TYPE_CHECKING:
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]

COLUMNS = ("protocol", "start", "limit", "applied", "advised", "scale")
"""What is kept of each round: the protocol's setting, its start, the tolerated setting (−∞ where not known, NaN where
left out), the applied setting (NaN where not known), the advised one, and its scale before flooring to a level."""


class Counted(NamedTuple):
    """The rounds that a decision counted, which later ones leave alone, and the scale they were counted at."""

    scales: Array
    told: NDArray[np.bool_]
    first: int
    last: int
    scale: float
    offset: int

    @property
    def exceeding(self) -> list[int]:
        """The numbers of the decisions among them that would have exceeded."""
        return (self._found + self.offset).tolist()

    @property
    def unknown(self) -> int:
        """How many of these are not known."""
        return int(np.count_nonzero(~self.told[self._found]))

    @property
    def _found(self) -> NDArray[np.int64]:
        return self.first + np.flatnonzero(self.scales[self.first : self.last] < self.scale)


class ShieldHistory:
    """Rounds by their place, from 0, and their tolerated scales under the present base."""

    def __init__(self, rules: Rules) -> None:
        self.options, self.dim, dial = rules.policy.options, rules.dim, rules.dial
        growth, risk = self.options["growth"], rules.spec.violation_risk
        spread = getattr(growth, "name", "") == "spread"
        self.risk = spread_risk(growth, risk) if spread else risk
        self.step, self.least = (growth.parameters["step"], SPREAD_RANK) if spread else (1.0, 1)
        self.levels = None if dial.levels is None else tuple(sorted({dial.low, *dial.levels}))
        self.end = dial.high if self.levels is None else self.levels[-1]
        # Shares that exceed grow slowly with the scale, not from level to level (core.count_rule).
        self.counted_levels = None if spread else self.levels
        self.columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
        self.contexts: list[Array] = []
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
        bases = copy.copy(self.bases)
        bases.waiting = list(bases.waiting)
        if self.count >= bases.next_fit:
            bases.add(self.count, self.ridge.coef()[..., 0])
        count = self._countable(0)
        since = [self._countable(fit.since) for fit in bases.waiting]
        ready = [place for place, own in enumerate(since) if is_calibrated(own, count, self.risk)]
        bases.waiting = bases.waiting[max(ready, default=0) :]
        self.bases = bases
        if bases.waiting[0] is not self.base:
            self._restate(bases.waiting[0])

    def _countable(self, since: int) -> int:
        """How many rounds from `since` on count: older than the lag, less those left out."""
        last = self.count - self.options["lag"]
        return max(0, last - since - (bisect_left(self.left, last) - bisect_left(self.left, since)))

    def base_at(self, context: Array, protocol: float) -> float:
        """The setting that is scaled."""
        return float(self._settings(self.base, context[None], protocol)) if self.options["learned"] else protocol

    def _settings(self, base: Fit, contexts: Array, protocol: Any) -> Any:
        """The same at contexts (n, d), for a learned base."""
        grown = np.exp(np.clip(base.value(contexts[None])[0], -LARGEST_LOG, LARGEST_LOG))
        return protocol * (grown[0] if isinstance(protocol, float) else grown)

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

    def counted(self, scale: float, before: int) -> Counted:
        """The counted rounds, as they stand, and a scale; `before` decisions came before place 0."""
        first, last = self.window.span
        return Counted(self.scales, self.told, first, last, scale, self.base.since + before + 1)

    def open(self, context: Array, kept: tuple[float, ...]) -> int:
        """A round without an outcome, with its columns; its place."""
        self.contexts.append(context)
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
        self._set(place, tolerated_scale(limit, base, self.range(columns["start"][place])), told=True)
        # A setting that was rounded down is evidence for the scale it had. One that was lowered by much is neither
        # evidence for its scale nor a reason to climb anew, unless there is nothing else to climb from.
        if applied > 0.0 and (applied * CLIMB >= columns["advised"][place] or not self.used):
            lowered = applied < columns["advised"][place]
            scale = min(columns["scale"][place], applied / base) if lowered else columns["scale"][place]
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
            self.scales, self.told = self.scales.copy(), self.told.copy()  # certificates may have counted it
            self.window.set(number, scale)
            self.scales[number], self.told[number] = scale, told

    def _restate(self, base: Fit) -> None:
        """Count all rounds since the fit, and the scales of the last known ones, in the new base's scale."""
        protocol, start, limit, applied, _, _ = (np.array(self.columns[name]) for name in COLUMNS)
        settings, since = self._settings(base, np.array(self.contexts), protocol), slice(base.since, None)
        scales = tolerated_scale(limit[since], settings[since], self.range(start[since]))
        self._use(base, np.where(np.isnan(limit[since]), math.nan, scales))
        self.used = (applied[self.recent] / settings[self.recent]).tolist()

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
        self.scales = scales.copy()
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
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        self.columns = {name: arrays[name].tolist() for name in COLUMNS}
        self.contexts = list(arrays["contexts"].copy())
        self.left, self.recent, self.used = (arrays[name].tolist() for name in ("left", "recent", "used"))
        self.ridge.gram, self.ridge.moments = arrays["gram"].copy(), arrays["moments"].copy()
        self.bases.next_fit, *since = arrays["fitted"].tolist()
        self.bases.waiting = list(map(Fit, since, arrays["coefs"].copy()))
        self._use(self.bases.waiting[0], arrays["scales"])
