"""The count rule: the largest scale at which at most m − 1 of the latest n rounds would have exceeded.

T̂_i is the tolerated scale of round i (`bounds.tolerated`): for every λ ≤ T̂_i the round keeps its threshold at a_λ(X_i),
whatever its setting was.

**Theorem.** Let rounds (X_i, C_i(·)) be exchangeable, each C_i non-decreasing in the setting, and n rounds chosen by
number. If m = ⌊δ(n+1)⌋ ≥ 1 and at most m − 1 of the n have T̂_i < λ̂, then for any applied a ≤ a_λ̂(X_{n+1})

    P(C_{n+1}(a) > τ) ≤ m/(n+1) ≤ δ

*Proof.* At most m − 1 of the n rounds exceed at λ̂. If round n+1 exceeds at a ≤ a_λ̂, it exceeds at λ̂ by monotonicity,
and so does every round that tolerates no scale that round n+1 does not tolerate: with round n+1 itself at most m. So
round n+1 is among the m lowest of n+1 in an order that depends on no setting, ties counted against it; at most m of
n+1 rounds can be, and rounds are exchangeable. ∎

Adaptive settings are harmless because T̂ bounds what does not depend on them. The largest such λ̂ is the m-th smallest
T̂, since `bounds.tolerated` lowers each T̂ until the supremum is attained. It is −∞ where nothing can be said (too few
rounds, or m of them tolerate nothing): the start a₀ is then played, which the user declares safe.

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

The count rule in worlds that drift: a per-round guarantee for exchangeable rounds, a long-run one for any sequence.

Adaptive conformal inference over the same caps, clipped at δ. The level starts at δ₁ = δ and follows the outcomes,

    δ_{t+1} = min(δ, δ_t + γ(δ − 1{C_t > τ}))          m_t = ⌊δ_t(n+1)⌋, the start where m_t ≤ 0

while n is chosen with δ: a window sized by outcomes would lose the proof. There is no clip from below.

**Exchangeable rounds**: δ_t ≤ δ, so m_t ≤ m and P(C_t > τ) ≤ δ stays true in each round.

**Any sequence**, adversarial ones included: over the K rounds with known outcomes

    Σ 1{C > τ} ≤ δK + δ₁/γ + (1 − δ)(D + N₀)

with D the most rounds ever open at once (1 if none is late) and N₀ the excesses at the start. *Proof.* The clip only
lowers, so the excesses are at most δK + (δ₁ − δ_{K+1})/γ. The level falls, by γ(1 − δ), only at an excess. While it is
at or below 0 only starts are played, so beyond the N₀ excesses at the start only the D rounds that were open when it
reached 0 can lower it: δ_{K+1} ≥ −γ(1 − δ)(D + N₀). ∎ Add the rounds that are open now. A round that somebody raised
above its cap stays out of the recursion and of the sum.

Reference: Gibbs and Candès, "Adaptive conformal inference under distribution shift" (2021); the clip is this project's.

The count rule round after round: for one sequence as it comes, and for a batch of simulated ones.

Both answer with the m-th smallest tolerated scale of the latest n countable rounds, as `bounds.count_rule` says, and
change only by what enters and leaves the window. `CountWindow` keeps it sorted. `BatchWindow` keeps each answer λ̂ and
how many scales lie below it and up to it: λ̂ is still the answer while fewer than m lie below and at least m up to it,
which fails in a share of about 2δ of the rounds; only then the window is searched.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.ranks import NEAR
from safedial.errors import is_number, is_whole, require
from safedial.model.brackets import Growth
from safedial.model.namespace import namespace, normal_quantile

CLIMB = 1.25
"""How many times the largest scale of the last known rounds may be used."""

RECENT = 5
"""How many known rounds the climb limit looks back on."""

HIGHEST = 1e300
"""Where a scale that no round limits stops climbing."""

SPREAD_RANK = 3
"""The least m for 0/1 costs: with m = 1 a single excess in the window leads back to the start."""


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

    low, high = 0, size + 1
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle, size + 1.0 - middle, risk) >= confidence:
            low = middle
        else:
            high = middle
    return low


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
    low = size // 2
    while size - low > 1:
        middle = (low + size) // 2
        low, size = (low, middle) if _rank(middle, risk, confidence) >= least else (middle, size)
    return size


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


def check_rate(rate: Any, risk: float) -> float:
    """γ, as a number > 0. A large one reacts fast and wastes scale; δ/5 is a common choice."""
    number = is_number(rate) and 0.0 < rate <= 1.0
    require(number, "adapt", rate, "must be a number in (0, 1]", f"{risk / 5:g} is a common choice at this risk")
    return float(rate)


# --- The count rule round after round

_NONE = -(2**40)
"""As many scales are held by a window that was not searched yet: never as many as it should hold."""


class CountWindow:
    """The tolerated scales of one sequence of rounds, by number from 0, and the scale that the next may use.

    Args:
        risk: δ. lag: how many of the latest rounds do not count. confidence, least: as for `count_rule.window`.
        earlier: how many countable rounds came before the first one here, where a base was fitted in between.
        values: the tolerated scales so far, NaN for rounds that are left out.

    >>> rounds = CountWindow(0.25)
    >>> for tolerated in (0.8, 0.5, 0.9):
    ...     _ = rounds.append(tolerated)
    >>> rounds.scale(), rounds.exceeding(0.7)
    (0.5, [1])
    """

    def __init__(
        self,
        risk: float,
        *,
        lag: int = 0,
        confidence: float | None = None,
        least: int = 1,
        earlier: int = 0,
        values: Iterable[float] = (),
    ) -> None:
        require(is_whole(lag, 0), "lag", lag, "must be a whole number >= 0")
        self.risk, self.lag, self.confidence, self.least, self.earlier = risk, lag, confidence, least, earlier
        self.values = list(values)
        self._ordered: list[float] = []
        self._first = self._last = self._count = 0
        self._moved: tuple[int, int, int] | None = None
        self.window = window(0, risk, confidence=confidence, least=least)

    def append(self, tolerated: float = -math.inf) -> int:
        """The next round; −∞ until its outcome is known. Returns its number."""
        self.values.append(tolerated)
        return len(self.values) - 1

    def set(self, number: int, tolerated: float) -> None:
        """A round's tolerated scale, now that its outcome is known or corrected; NaN leaves the round out.

        Leaving a round out needs somebody's word that the reason is unrelated to its context, cost and setting.
        """
        before = self.values[number]
        self.values[number] = tolerated
        if number >= self._last:
            return
        self._count += (before != before) - (tolerated != tolerated)
        if number >= self._first:
            self._remove(before)
            self._insert(tolerated)

    def scale(self, level: float | None = None) -> float:
        """λ̂ for the next round; −∞ where it gets the start. `level`: δ_t ≤ δ of the adaptive rule."""
        self.advance()
        size, rank = self.window
        if level is not None:
            rank = adapted_rank(level, size, rank)
        return self._ordered[rank - 1] if rank else -math.inf

    @property
    def span(self) -> tuple[int, int]:
        """The first of the counted rounds, and the number after the last; none are counted where both are equal."""
        return (self._first if self.window.rank else self._last), self._last

    def exceeding(self, scale: float) -> list[int]:
        """The numbers of the counted rounds that would have exceeded at a scale."""
        self.advance()
        return [number for number in range(*self.span) if self.values[number] < scale]

    def advance(self) -> None:
        """Move the window to the latest rounds. `scale` does so too; called when an outcome arrives, it saves the next
        decision that time.
        """
        last = max(self._last, len(self.values) - self.lag)
        if self._moved == (last, self._count, self.earlier):
            return
        for value in self.values[self._last : last]:
            self._count += value == value
            self._insert(value)
        self._last = last
        self.window = window(
            self.earlier + self._count,
            self.risk,
            since=self._count,
            confidence=self.confidence,
            least=self.least,
        )
        if self.window.rank:
            self._resize(self.window)
        self._moved = (last, self._count, self.earlier)

    def _resize(self, window: Window) -> None:
        while len(self._ordered) > window.size:
            self._remove(self.values[self._first])
            self._first += 1
        while len(self._ordered) < window.size:
            self._first -= 1
            self._insert(self.values[self._first])

    def _insert(self, value: float) -> None:
        if value == value:
            insort(self._ordered, value)

    def _remove(self, value: float) -> None:
        if value == value:
            del self._ordered[bisect_left(self._ordered, value)]


class BatchWindow:
    """The count rule for many sequences at once: one lane for each, or for each seed and group.

    `append` and `scales` take the lanes they are about; a lane's rounds that are not appended do not count.

    Args:
        lanes: how many, or the tolerated scales so far, (lanes, rounds).
        risk, confidence, least, earlier: as for `CountWindow`.
    """

    def __init__(
        self, lanes: Any, risk: float, *, confidence: float | None = None, least: int = 1, earlier: int = 0
    ) -> None:
        self.options = {"risk": risk, "confidence": confidence, "least": least}
        past = np.empty((lanes, 0)) if isinstance(lanes, int) else np.asarray(lanes, dtype=float)
        count = len(past)
        self.values = np.full((count, 64), -math.inf)
        self.earlier, self.count, self._held, self._below, self._upto = np.zeros((5, count), dtype=np.int64)
        self._scale = np.full(count, -math.inf)
        self._lanes = np.arange(count)
        self._known: dict[tuple[int, int], Window] = {}
        self.restate(past, earlier)

    def restate(self, past: Any, earlier: Any, lanes: Any = None) -> None:
        """Begin anew with the tolerated scales of other rounds, (lanes, rounds); NaN leaves a round out.

        `earlier`: how many countable rounds of each lane came before the first of these.
        """
        part = slice(None) if lanes is None else lanes
        counted = past == past
        rounds = counted.sum(axis=1)
        self._even = lanes is None and np.unique(rounds).size <= 1 and np.unique(earlier).size == 1
        self._make_room(past.shape[1] + 1)
        order = np.argsort(~counted, axis=1, kind="stable")  # the rounds that count, in their order
        self.values[part, : past.shape[1]] = np.take_along_axis(past, order, axis=1)
        self.count[part], self.earlier[part] = rounds, earlier
        self._held[part] = _NONE

    def append(self, tolerated: Any, lanes: Any = None) -> None:
        """One more countable round of each lane; −∞ where its outcome is not known, as which NaN is taken."""
        tolerated = np.fmax(tolerated, -math.inf)
        part = slice(None) if lanes is None else lanes
        places = self.count[part]
        self._even = self._even and lanes is None
        self._make_room(int(places.max(initial=0)) + 1)
        self.values[self._lanes[part], places] = tolerated
        self.count[part] += 1
        self._move(part, tolerated, 1)

    def scales(self, lanes: Any = None, level: Any = None) -> NDArray[np.float64]:
        """λ̂ of the next round of each lane; −∞ where it gets the start. `level`: δ_t of the adaptive rule."""
        part = slice(None) if lanes is None else lanes
        size, rank = self._windows(part)
        held = self._held[part]
        leaves = (held == size + 1) & (size > 0)
        if leaves.any():
            gone = part if leaves.all() else self._lanes[part][leaves]
            rows, last = self._lanes[gone], self.count[gone]
            self._move(gone, self.values[rows, last - 1 - (size if isinstance(size, int) else size[leaves])], -1)
            held = self._held[part]
        if level is not None:
            rank = adapted_rank(np.asarray(level, dtype=float), size, rank)
        fits = (held == size) & (self._below[part] < rank) & (rank <= self._upto[part])
        stale = np.flatnonzero(~fits & (rank > 0))
        if stale.size:
            numbers, shape = self._lanes[part][stale], fits.shape
            if isinstance(size, int) and isinstance(rank, int):
                self._search(numbers, size, rank)
            else:
                size, place = (np.broadcast_to(each, shape)[stale] for each in (size, rank))
                for one, other in {*zip(size.tolist(), place.tolist(), strict=True)}:
                    self._search(numbers[(size == one) & (place == other)], one, other)
        return np.where(rank > 0, self._scale[part], -math.inf)

    def _windows(self, part: Any) -> tuple[Any, Any]:
        """n and m of lanes: two numbers where all lanes have as many rounds, as in most simulations."""
        if self._even:
            return self._window(int(self.earlier[0]), int(self.count[0]))
        pairs, place = np.unique(np.stack([self.earlier[part], self.count[part]]), axis=1, return_inverse=True)
        found = np.array([self._window(*pair) for pair in pairs.T.tolist()], dtype=np.int64).reshape(-1, 2)
        return found[place, 0], found[place, 1]

    def _window(self, earlier: int, count: int) -> Window:
        found = self._known.get((earlier, count))
        if found is None:
            found = self._known[earlier, count] = window(earlier + count, since=count, **self.options)
        return found

    def _make_room(self, rounds: int) -> None:
        while rounds > self.values.shape[1]:
            self.values = np.concatenate([self.values, np.full(self.values.shape, -math.inf)], axis=1)

    def _move(self, part: Any, values: Any, step: int) -> None:
        """Count scales that enter (1) or leave (−1) the windows of lanes."""
        scale = self._scale[part]
        self._held[part] += step
        self._below[part] += step * (values < scale)
        self._upto[part] += step * (values <= scale)

    def _search(self, lanes: Any, size: int, rank: int) -> None:
        """Find the answers of lanes anew whose windows have one size and rank."""
        last = self.count[lanes]
        if self._even:
            rows = self.values[lanes, last[0] - size : last[0]]
        else:
            rows = self.values[lanes[:, None], (last - size)[:, None] + np.arange(size)]
        scale = np.partition(rows, rank - 1, axis=-1)[:, rank - 1]
        self._scale[lanes] = scale
        self._held[lanes] = size
        self._below[lanes], self._upto[lanes] = (
            np.count_nonzero(each, axis=-1) for each in (rows < scale[:, None], rows <= scale[:, None])
        )
