"""The count rule: the largest scale at which at most m − 1 of the latest n rounds would have exceeded.

**Tolerated scales.** The setting a_λ(x), non-decreasing in its scale λ, is what is really played: λ times a base,
floored to a level, at most the dial's end, never below the start a₀(x). Of a round that surely tolerated the setting z*
(`model.brackets`; the smallest over several costs),

    T̂ = sup{λ : a_λ(x) ≤ z*}

is the tolerated scale: b/base, with b the first setting above z* that can be played (z* itself on a dial without
levels); ∞ where the dial's end is tolerated, and −∞ where not even the start is, or nothing is known. The round keeps
its threshold at every λ ≤ T̂, whatever its setting was. At b/base the level b itself is played, so T̂ is lowered by
1e-12·max(1, |T̂|): a_λ(x) ≤ z* then holds in floating point for every λ ≤ T̂.

**Theorem.** Let rounds (X_i, C_i(·)) be exchangeable, each C_i non-decreasing in the setting, and n rounds chosen by
number. If m = ⌊δ(n+1)⌋ ≥ 1 and at most m − 1 of the n have T̂_i < λ̂, then for any applied a ≤ a_λ̂(X_{n+1})

    P(C_{n+1}(a) > τ) ≤ m/(n+1) ≤ δ

*Proof.* At most m − 1 of the n rounds exceed at λ̂. If round n+1 exceeds at a ≤ a_λ̂, it exceeds at λ̂ by monotonicity,
and so does every round that tolerates no scale that round n+1 does not tolerate: with round n+1 itself at most m. So
round n+1 is among the m lowest of n+1 in an order that depends on no setting, ties counted against it; at most m of
n+1 rounds can be, and rounds are exchangeable. ∎

Adaptive settings are harmless because T̂ bounds what does not depend on them. The largest such λ̂ is the m-th smallest
T̂. It is −∞ where nothing can be said (too few rounds, or m of them tolerate nothing): the start a₀ is then played,
which the user declares safe.

**Which rounds.** Of N countable ones the latest n = ⌈m/δ⌉ − 1, with m = max(1, ⌊δ(N/2 + 1)⌋): about half, because later
rounds were played nearer to the limit and tell more; m/(n+1) = δ where 1/δ is whole. A base fitted at round s counts
only the N_s rounds from s on. A round whose outcome is not known counts with T̂ = −∞, unless somebody vouches that it
is unrelated to context, cost and setting: then it does not count. The latest `lag` rounds do not count, known or not.

**Given the past.** F(λ̂), F(λ) the share of units that exceed at λ, is stochastically at most Beta(m, n + 1 − m), for
i.i.d. rounds, at one t. `confidence` takes the largest m with which it is at most δ with the stated probability,
and at most ⌊δ(n+1)⌋.

**0/1 costs** (`growth.spread`). Such a round tells only that its own scale was kept. The assumption bounds the growth
of the share that exceeds, F(hλ) ≤ ω(F(λ)) with ω(p) = Φ(Φ⁻¹(p) + ln h/σ), concave; so the count rule runs at the lower
risk δ₀ = ω⁻¹(δ) and h·λ̂ is played: E F(hλ̂) ≤ E ω(F(λ̂)) ≤ ω(E F(λ̂)) ≤ ω(δ₀) = δ (Jensen; i.i.d. rounds). The scale
family must be taken without levels there, and floored only when played: between two levels F does not grow slowly.

**Climb limit.** λ_t is at most 1.25 times the largest λ used in the last five known rounds. It only lowers, so the
proof stays; and it finds out a false bracket while that costs little.

**Worlds that drift.** Adaptive conformal inference over the same caps, clipped at δ. The level starts at δ₁ = δ and
follows the outcomes,

    δ_{t+1} = min(δ, δ_t + γ(δ − 1{C_t > τ}))          m_t = ⌊δ_t(n+1)⌋, the start where m_t ≤ 0

while n is chosen with δ: a window sized by outcomes would lose the proof. There is no clip from below. For exchangeable
rounds δ_t ≤ δ, so m_t ≤ m and P(C_t > τ) ≤ δ stays true in each round. For *any* sequence, adversarial ones included,
over the K rounds with known outcomes

    Σ 1{C > τ} ≤ δK + δ₁/γ + (1 − δ)(D + N₀)

with D the most rounds ever open at once (1 if none is late) and N₀ the excesses at the start. *Proof.* The clip only
lowers, so the excesses are at most δK + (δ₁ − δ_{K+1})/γ. The level falls, by γ(1 − δ), only at an excess. While it is
at or below 0 only starts are played, so beyond the N₀ excesses at the start only the D rounds that were open when it
reached 0 can lower it: δ_{K+1} ≥ −γ(1 − δ)(D + N₀). ∎ Add the rounds that are open now. A round that somebody raised
above its cap stays out of the recursion and of the sum.

Reference: Gibbs and Candès, "Adaptive conformal inference under distribution shift" (2021); the clip is this project's.

**Round after round** (`CountWindow`), the answer λ̂ is kept with how many scales lie below it and up to it.
It is still the answer while fewer than m lie below and at least m up to it, which fails in a share of about 2δ of the
rounds; only then the window is searched.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.ranks import NEAR
from safedial.errors import is_number, require
from safedial.model.brackets import LOWERED, Growth
from safedial.model.namespace import FLOATS, every, namespace, normal_quantile, some, where

CLIMB = 1.25
"""How many times the largest scale of the last known rounds may be used."""

RECENT = 5
"""How many known rounds the climb limit looks back on."""

HIGHEST = 1e300
"""Where a scale that no round limits stops climbing."""

SPREAD_RANK = 3
"""The least m for 0/1 costs: with m = 1 a single excess in the window leads back to the start."""


# --- The tolerated scale


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


# --- Which rounds count, and how many of them may exceed


class Window(NamedTuple):
    """The latest `size` countable rounds (n), of which fewer than `rank` (m) may exceed; (0, 0) before there are
    enough.
    """

    size: int
    rank: int


def window(
    count: int, risk: float, *, since: int | None = None, confidence: float | None = None, least: int = 1
) -> Window:
    """How many of `count` countable rounds are used, and the rank, in exact arithmetic.

    Args:
        count: N. risk: δ, read as the decimal number it is written as: 100·0.29 is 29.
        since: N_s, the countable rounds since the base was fitted; None: all.
        confidence: None, or the probability with which the risk is kept given the past rounds.
        least: the smallest m to act on.

    >>> window(19, 0.05), window(18, 0.05), window(200, 0.05), window(198, 0.29)
    (Window(size=19, rank=1), Window(size=0, rank=0), Window(size=99, rank=5), Window(size=99, rank=29))
    """
    own = count if since is None else since
    if confidence is not None:
        size = min(own, max(count // 2, _least_size(risk, confidence, least)))
        rank = _rank(size, risk, confidence)
        return Window(size, rank) if rank >= least else Window(0, 0)
    over, under = _ratio(risk)
    fewest = -(-least * under // over) - 1
    half = min(2 * own, max(count, 2 * fewest))
    rank = over * (half + 2) // (2 * under)
    return Window(-(-rank * under // over) - 1, rank) if rank >= least else Window(0, 0)


def is_calibrated(since: Any, count: Any, risk: float) -> Any:
    """Whether a base has enough countable rounds since its fit: the newest such base is used. Counts may be arrays.

    >>> is_calibrated(40, 100, 0.05), is_calibrated(30, 100, 0.05), is_calibrated(18, 20, 0.05)
    (True, False, False)
    """
    over, under = _ratio(risk)
    return (since >= -(-under // over) - 1) & (3 * since >= count)


@lru_cache(maxsize=64)
def _ratio(risk: float) -> tuple[int, int]:
    """The risk as a ratio of whole numbers, checked."""
    share = is_number(risk) and 0.0 < risk < 1.0
    require(share, "risk", risk, "must be a number in (0, 1)", "0.05 accepts one excess in 20")
    return Fraction(repr(float(risk))).as_integer_ratio()


@lru_cache(maxsize=65536)
def sure_rank(size: int, risk: float, confidence: float) -> int:
    """The largest m with P(Beta(m, n + 1 − m) ≤ δ) ≥ confidence, by halving; 0 where there is none.

    >>> sure_rank(1000, 0.05, 0.9)
    41
    """
    from scipy.special import betainc

    return bisect_right(range(1, size + 1), -confidence, key=lambda rank: -betainc(rank, size + 1.0 - rank, risk))


def _rank(size: int, risk: float, confidence: float) -> int:
    """The sure rank, but never above ⌊δ(n+1)⌋: with a low confidence it would be, and P(C > τ) ≤ δ would fail."""
    over, under = _ratio(risk)
    return min(sure_rank(size, risk, confidence), over * (size + 1) // under)


@lru_cache(maxsize=64)
def _least_size(risk: float, confidence: float, least: int) -> int:
    """The fewest rounds with a sure rank of at least `least`."""
    _ratio(risk)
    proper = isinstance(confidence, float) and 0.0 < confidence < 1.0
    require(proper, "confidence", confidence, "must be a number in (0, 1) or None")
    size = 1
    while _rank(size, risk, confidence) < least:
        size *= 2
    return bisect_left(range(size), least, lo=1, key=lambda size: _rank(size, risk, confidence))


def climb_limit(used: Any, start: Any, *, climb: float = CLIMB) -> Any:
    """The largest scale that the climb limit allows.

    Args:
        used: the scales used in the last `RECENT` known rounds, on the last axis, after this limit and before flooring
            to levels. A round that was given less than its scale allows is not among them: it is no evidence for that
            scale, nor a reason to fall back.
        start: λ₀ > 0, used before any round is known.

    >>> climb_limit([0.2, 0.25, 0.24], 0.1), climb_limit([], 0.1)
    (0.3125, 0.1)
    """
    if not len(used):
        return start
    most = max(used) if isinstance(used, list) else np.max(used, axis=-1)
    return namespace(most).minimum(climb * most, HIGHEST)


def spread_risk(growth: Growth, risk: float) -> float:
    """δ₀ = Φ(Φ⁻¹(δ) − ln h/σ): the risk at which the count rule runs for 0/1 costs, h·λ̂ being played.

    >>> from safedial.model.brackets import spread
    >>> round(spread_risk(spread(1.25, 0.5), 0.05), 4)
    0.0183
    """
    from scipy.special import ndtr

    step, sigma = growth.parameters["step"], growth.parameters["sigma"]
    return float(ndtr(normal_quantile(risk) - math.log(step) / sigma))


# --- The count rule in worlds that drift


def adapted(level: Any, exceeded: Any, *, risk: Any, rate: float) -> Any:
    """δ_{t+1} from δ_t once an outcome is known; levels and outcomes may be arrays.

    >>> adapted(0.05, True, risk=0.05, rate=0.01), adapted(0.05, False, risk=0.05, rate=0.01)
    (0.0405, 0.05)
    """
    moved = level + rate * (risk - exceeded)
    xp = namespace(moved, risk)
    return xp.where(moved < risk, moved, risk)


def adapted_rank(level: Any, size: Any, rank: Any) -> Any:
    """m_t = ⌊δ_t(n+1)⌋, at most m and at least 0; a product within rounding of a whole number is that number.

    >>> adapted_rank(0.05, 99, 5), adapted_rank(0.0405, 99, 5), adapted_rank(-0.01, 99, 5)
    (5, 4, 0)
    """
    found = level * (size + 1.0) * (1.0 + NEAR)
    if isinstance(found, float):
        return min(rank, max(0, math.floor(found)))
    return np.clip(np.floor(found), 0.0, rank).astype(np.int64)


def excess_bound(known: Any, *, risk: float, rate: float, open_at_once: Any = 1, at_start: Any = 0) -> Any:
    """The most excesses that any sequence of `known` rounds can have had.

    >>> round(excess_bound(1000, risk=0.05, rate=0.01), 9)
    55.95
    """
    return risk * known + risk / rate + (1.0 - risk) * (open_at_once + at_start)


# --- The count rule round after round


class CountWindow:
    """λ̂ of sequences of rounds: of one, in plain numbers, or of one for each of `lanes`, in arrays.

    The tolerated scales stay with the caller, (rounds,) or (lanes, rounds): −∞ where an outcome is not known, NaN where
    a round does not count. A window only remembers where it stands in them, so that one made anew gives the same.

    Args:
        lanes: how many sequences; None for one.
        risk: δ. confidence, least: as for `count_rule.window`.

    Attributes:
        last: the rounds before this one have entered. since: from where on a lane counts.
        window: n and m; of each lane, unless all lanes count as many rounds (`even`).
        own: how many of the rounds in [since, last) count; of those in [first, last) `held`, of whose scales `below`
            lie below the answer `scale`, and `upto` up to it.

    >>> rounds = CountWindow(None, 0.25)
    >>> rounds.read(np.array([0.8, 0.5, 0.9]), 3), rounds.window
    (0.5, Window(size=3, rank=1))
    """

    def __init__(self, lanes: int | None, risk: float, *, confidence: float | None = None, least: int = 1) -> None:
        self._rule = {"risk": risk, "confidence": confidence, "least": least}
        self._lanes = None if lanes is None else np.arange(lanes)
        zero: Any = 0 if lanes is None else np.zeros(lanes, dtype=np.int64)
        self.last, self.window, self.even = 0, Window(0, 0), True
        self.since: Any = zero - 1
        """The first `read` sets it."""
        counts: list[Any] = [zero + 0 for _ in range(5)]
        self.own, self.held, self.first, self.below, self.upto = counts
        self.scale: Any = zero - math.inf
        self._nothing = zero - math.inf

    def read(self, scales: NDArray[np.float64], last: int, since: Any = 0, earlier: Any = 0, level: Any = None) -> Any:
        """λ̂ for the next round; −∞ where it gets the start.

        Args:
            scales: the tolerated scales. last: the rounds before this one count.
            since: the rounds from this one on count, for a base that was fitted there; of each lane.
            earlier: how many countable rounds came before it.
            level: δ_t ≤ δ of the adaptive rule.
        """
        if some(since != self.since):
            self._restart(scales, since)
        while self.last < last:
            self._enter(_entry(scales, self.last, self._lanes))
        self.window = size, rank = self._sizes(earlier)
        full, wanted = rank > 0, rank
        self._leave(scales, size, full)
        if level is not None:  # where the level allows no excess, the window still moves on
            rank = adapted_rank(level, size, rank)
            wanted = namespace(rank).maximum(rank, 1)
        stale = full & ((self.held != size) | (self.below >= wanted) | (self.upto < wanted))
        if some(stale):
            self._search(scales, stale, size, wanted)
        return where(rank > 0, self.scale, self._nothing)

    def change(self, round: int, before: Any, after: Any) -> None:
        """Another scale of a round, in each lane: its outcome is known now, or it is left out, which is NaN.

        Leaving a round out needs somebody's word that the reason is unrelated to its context, cost and setting.
        """
        if round >= self.last:
            return
        step, inside = 1 * (before != before) - 1 * (after != after), round >= self.first
        self.even = self.even and not some(step != 0)
        self.own, self.held = self.own + (round >= self.since) * step, self.held + inside * step
        self.below = self.below + inside * (1 * (after < self.scale) - 1 * (before < self.scale))
        self.upto = self.upto + inside * (1 * (after <= self.scale) - 1 * (before <= self.scale))

    def exceeding(self, scales: NDArray[np.float64], scale: float) -> NDArray[np.int64]:
        """Which of the counted rounds of one sequence would have exceeded at a scale, as of the last `read`."""
        if not self.window.rank:
            return np.empty(0, dtype=np.int64)
        return (scales[self.first : self.last] < scale).nonzero()[0] + self.first

    def _restart(self, scales: NDArray[np.float64], since: Any) -> None:
        """Count from other rounds on, in the lanes where `since` differs; nothing is held there until a search."""
        moved = since != self.since
        self.even = self.even and every(moved) and every(since == np.ravel(since)[0])
        self.since = where(moved, since, self.since)
        entered = scales[..., : self.last]
        counted = (entered == entered) & (np.arange(self.last) >= np.reshape(self.since, (*np.shape(self.since), 1)))
        own = np.count_nonzero(counted, axis=-1)
        self.own = where(moved, int(own) if self._lanes is None else own, self.own)
        self.first, self.held = where(moved, self.since, self.first), where(moved, NONE_HELD, self.held)

    def _enter(self, new: Any) -> None:
        counts = (new == new) & (self.last >= self.since)
        self.even = self.even and every(counts)
        self.own, self.held = self.own + counts, self.held + counts
        self.below, self.upto = self.below + (new < self.scale), self.upto + (new <= self.scale)
        self.last += 1

    def _sizes(self, earlier: Any) -> Window:
        """n and m of each lane."""
        if self._lanes is None:
            return window(earlier + self.own, since=self.own, **self._rule)
        if self.even:  # as in most simulations
            own = int(self.own[0])
            return window(int(np.ravel(earlier)[0]) + own, since=own, **self._rule)
        counts = np.stack([np.broadcast_to(earlier, self.own.shape), self.own])
        pairs, place = np.unique(counts, axis=1, return_inverse=True)
        found = [window(before + own, since=own, **self._rule) for before, own in pairs.T.tolist()]
        return Window(*np.array(found, dtype=np.int64)[place].T)

    def _leave(self, scales: NDArray[np.float64], size: Any, full: Any) -> None:
        while some(over := (self.held > size) & full):
            old = _entry(scales, self.first, self._lanes)
            self.held, self.first = self.held - (over & (old == old)), self.first + over
            self.below, self.upto = self.below - (over & (old < self.scale)), self.upto - (over & (old <= self.scale))

    def _search(self, scales: NDArray[np.float64], stale: Any, size: Any, rank: Any) -> None:
        """Find the answers of these lanes anew, those of one size and rank together."""
        lanes = ALONE if self._lanes is None else stale.nonzero()[0]
        if isinstance(size, int) and isinstance(rank, int):  # as in most simulations
            self._search_alike(scales, lanes, size, rank)
            return
        size, rank = (np.broadcast_to(each, stale.shape)[lanes] for each in (size, rank))
        for n, m in {*zip(size.tolist(), rank.tolist(), strict=True)}:
            self._search_alike(scales, lanes[(size == n) & (rank == m)], n, m)

    def _search_alike(self, scales: NDArray[np.float64], lanes: Any, size: int, rank: int) -> None:
        start, rows = self.last - size if self.even else 0, scales.reshape(-1, scales.shape[-1])
        rows = rows[slice(None) if lanes.size == len(rows) else lanes, start : self.last]
        first, beyond = start, 0
        if not self.even:  # rounds that do not count, or lie before the window, are out of the way at ∞
            counted = rows == rows
            inside = counted & (np.cumsum(counted[:, ::-1], axis=1)[:, ::-1] <= size)
            rows, first, beyond = np.where(inside, rows, math.inf), np.argmax(inside, axis=1), self.last - size
        scale = np.partition(rows, rank - 1, axis=1)[:, rank - 1]
        below = np.count_nonzero(rows < scale[:, None], axis=1)
        upto = np.count_nonzero(rows <= scale[:, None], axis=1) - beyond * (scale == math.inf)
        found: list[Any] = [scale, size, first, below, upto]
        if self._lanes is None:
            found = [each if isinstance(each, int) else each.item() for each in found]
            self.scale, self.held, self.first, self.below, self.upto = found
            return
        columns: list[Any] = [self.scale, self.held, self.first, self.below, self.upto]
        for column, values in zip(columns, found, strict=True):
            column[lanes] = values


ALONE = np.zeros(1, dtype=np.int64)
"""The lanes, where there is one."""

NONE_HELD = -(2**40)
"""What a window holds that was not searched yet: never as much as it should hold."""


def _entry(scales: NDArray[np.float64], rows: Any, lanes: Any) -> Any:
    """The scale in a row, or in one of each lane."""
    return scales.item(rows) if lanes is None else scales[lanes, rows]
