"""All evidence by ranks: bets on p-values in order of decision, which go on behind open rounds.

A round has two numbers: `low`, which later rounds are ranked among, and `up`, which it is ranked by. Its p-value
(`bounds.ranks.chances`) is the share of the earlier rounds of its group with low ≤ up. Under the policy's assumptions
the p-values of the *true* numbers are independent and uniform, or larger, and no bet rises with p. low = −∞ and up = ∞
only raise p-values, and that is what an unknown round has. So the evidence waits for nobody, and never exceeds what all
true numbers would give, whatever the missing ones depend on. A policy only says what its two numbers are:

| | low | up |
|---|---|---|
| HP-Conformal | −score | −score, or that of the least score it may have |
| HP-Shield | a scale that it surely tolerated | one that it surely did not; ∞ where it did not exceed |

A bet is *placed* when no later outcome changes it: when the rounds up to it are told, or have been open for more than
`PATIENCE` rounds. Behind an open round the bets go on from a copy, and are repeated when its outcome comes.

Nothing is computed before somebody reads the evidence, or an outcome would change a bet that is due. So many lanes,
whose evidence is read seldom, bet on many rounds at once; a single lane bets round by round, from sorted lists.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from safedial.bounds import monitor, ranks
from safedial.model.namespace import some
from safedial.policies.policy import Evidence
from safedial.policies.table import Table

PATIENCE = 200
"""For how many rounds an open round may still be bet on."""

BLOCK = 64
"""Many lanes bet on at least so many rounds at once; or on a tenth of the earlier ones, if that is more."""

RANKS, STARTS = 1, 2
"""Which evidence crossed its limit first: that by ranks, or that of the counted rounds."""


class Bets:
    """The rounds of each lane, and what the bets on them have made.

    Columns of `rounds`: `low`, `up`, `group`; `member`: whether it is ranked at all; `told`: whether its outcome is
    known, so that no bet waits for it; `hit`: whether it counts as a violation, where these are watched too.

    Attributes:
        capital: what the placed bets have made.
        starts: the evidence of the hits among them (`bounds.monitor`), None where they are not watched.
        crossed: by lane, which evidence reached its limit first, `RANKS` or `STARTS`; 0 where none did.
        next: by lane, the first round whose bet may still change.
        reported: how many rounds there were at the last report, which is what the evidence goes by.
    """

    def __init__(
        self,
        lanes: tuple[int, ...] = (),
        *,
        lag: int = 0,
        patience: int = PATIENCE,
        tie: float = 0.0,
        late: bool = True,
        hit_risk: Any = None,
    ) -> None:
        """The latest `lag` rounds are not bet on yet. Numbers this near, relatively to the largest `low`, are tied.

        late: whether an outcome that comes after the bet on its round still counts in the ranks of later rounds.
        hit_risk: the chance of a hit that is allowed in each round, if they are watched.
        """
        self.rounds = Table(lanes, low=-math.inf, up=math.inf, group=0, member=True, told=False, hit=False)
        self.capital, self.starts = ranks.init(lanes), None if hit_risk is None else monitor.init(lanes)
        self.crossed = np.zeros(lanes, dtype=np.int64)
        self.next: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.reported = 0
        self._lanes, self._lag, self._patience, self._tie, self._late = lanes, lag, patience, tie, late
        self._risk = hit_risk
        self._sorted: Sorted | None = None
        self._ahead: Ahead | None = None
        self._found: Any = None
        self._hits: Any = None
        self._latest: tuple[int, float] | None = None

    def open(self, **known: Any) -> int:
        """One more round, of which nothing is known but these columns of `rounds`. Returns its place."""
        rows = self.rounds
        row = rows.append()
        for name, value in known.items():
            getattr(rows, name)[..., row] = value
        return rows.first + row

    def tell(self, place: int, told: Any = True, **numbers: Any) -> None:
        """What is known of a round, in the lanes where it is `told`: values of columns of `rounds`."""
        row, told = self._report(place, told)
        if row >= 0 and (told is True or np.any(told)):
            for name, value in (*numbers.items(), ("told", True)):
                column = getattr(self.rounds, name)
                column[..., row] = value if told is True else np.where(told, value, column[..., row])

    def leave_out(self, place: int, left: Any = True) -> None:
        """A round is no member, in the lanes where it is `left`. (No bet waits for it, and it ends no waiting.)"""
        row, left = self._report(place, left)
        if row >= 0:
            self.rounds.member[..., row] &= np.logical_not(left)

    def _report(self, place: int, here: Any) -> tuple[int, Any]:
        """Place the bets due before a report. Returns the row of its round, and the lanes in which it still counts."""
        placed = np.any(place < self.next) if self._lanes else place < self.next
        if placed or place < self.reported - self._lag - self._patience:
            self.settle()
            placed = place < self.next
        rows = self.rounds
        self.reported, self._found = rows.first + rows.count, None
        if self._ahead is not None and place < self._ahead.next:
            self._ahead = None
        if placed if type(placed) is bool else np.any(placed):
            self._sorted = self._ahead = None
            here = here if self._late else np.logical_and(here, np.logical_not(placed))
        return place - rows.first, here

    def settle(self) -> None:
        """Place the bets that no later outcome changes."""
        last, rows = self.reported - self._lag, self.rounds
        if not self._lanes:
            place, patient = self.next, last - self._patience - rows.first
            row = place - rows.first
            while row < last - rows.first and (row < patient or rows.told[row] or not rows.member[row]):
                row += 1
            self._place(row + rows.first)
        elif (first := int(self.next.min())) < last:
            here = self._rows(first, last)
            due = rows.told[here] | ~rows.member[here]
            due |= np.arange(first, last) < np.maximum(self.next, last - self._patience)[..., None]
            self._place(np.where(due.all(axis=-1), last, first + np.argmin(due, axis=-1)))

    def settle_all(self) -> None:
        """Place the bets on all rounds older than the lag, because the numbers are about to change."""
        self._place(self.next * 0 + self.rounds.first + self.rounds.count - self._lag)

    def restate(self, *, begin: int = 0, **numbers: Any) -> None:
        """The numbers of all rounds anew: columns of `rounds`. Rounds before `begin` are never bet on."""
        rows = self.rounds
        for name, values in numbers.items():
            rows.rows(name)[...] = values
        first = max(begin, rows.first)
        self.next = np.maximum(self.next, first) if self._lanes else max(self.next, first)
        self.reported = rows.first + rows.count
        self._sorted = self._ahead = self._found = None

    def cut(self, count: int) -> None:
        """Forget the first `count` rounds. `restate` must follow."""
        self.rounds.cut(count)

    def restart(self) -> None:
        """Begin the evidence anew with the next round; later ones are still ranked among the rounds so far."""
        self.capital = ranks.init(self._lanes)
        self.starts = None if self.starts is None else monitor.init(self._lanes)
        self.crossed = np.zeros(self._lanes, dtype=np.int64)
        self.restate(begin=self.rounds.first + self.rounds.count)

    def keep_starts(self, before: Bets) -> None:
        """Go on from the hits of earlier rounds, after the rest began anew."""
        self.starts, self._found = before._now()[1], None
        self._cross(monitor.alarm(self.starts), STARTS)

    def evidence(self) -> Evidence:
        """The evidence by ranks: 1 at the start; ever ≥ 100 with probability at most 0.01 if the assumptions hold."""
        return self._now()[0]

    def hits(self) -> Evidence:
        """That of the hits, as above."""
        starts = self._now()[1]
        if self._hits is None:
            self._hits = Evidence(monitor.evidence(starts), self.crossed == STARTS)
        return self._hits

    def _now(self) -> tuple[Evidence, Any]:
        """The evidence by ranks and the hits, with the bets behind open rounds, as of the last report."""
        if self._found is None:
            self.settle()
            capital, starts = self._behind()
            found = Evidence(ranks.evidence(capital), self.crossed == RANKS, bet=self._latest)
            self._found, self._hits = (found, starts), None
        return self._found

    # --- Placing bets

    def _place(self, stop: Any) -> None:
        """Bet on the rounds before `stop`, by lane, for good."""
        if self._lanes:
            stop = np.maximum(stop, self.next)
            self._bet_together(self, stop)
            self.next = stop
        elif stop > self.next:
            self._bet_alone(self, stop)
            self._ahead = None

    def _behind(self) -> tuple[Any, Any]:
        """What the bets on told rounds behind an open one make of the placed ones."""
        last = self.reported - self._lag
        first = int(self.next.min()) if self._lanes else self.next
        told = self.rounds.told[self._rows(first, last)] if first < last else np.zeros(0, dtype=bool)
        if not told.any():
            return self.capital, self.starts
        end = np.where(told.any(axis=-1), last - np.argmax(told[..., ::-1], axis=-1), 0)
        if self._lanes:
            ahead = Ahead(self)
            self._bet_together(ahead, np.maximum(end, self.next))
        else:
            ahead = self._ahead = self._ahead or Ahead(self)
            self._bet_alone(ahead, int(end))
        return ahead.capital, ahead.starts

    def _bet_together(self, purse: Any, stop: Any) -> None:
        """Bet on the rounds from `next` to `stop`, by lane, in all lanes at once."""
        first, last = int(self.next.min()), int(stop.max())
        while first < last:
            end = min(last, first + max(BLOCK, (first - self.rounds.first) // 10))
            found, hits = self.chances(first, end), self.rounds.hit[self._rows(first, end)]
            for step in range(end - first):
                here = (self.next <= first + step) & (first + step < stop) & ~np.isnan(found[..., step])
                if here.any():
                    self._bet(purse, np.where(here, found[..., step], math.nan), hits[..., step])
            first = end

    def chances(self, first: int, stop: int) -> Any:
        """The p-values of the rounds from `first` to `stop`, (*lanes, stop − first); NaN for one that is no member."""
        start, rows = self.rounds.first, self._rows(self.rounds.first, stop)
        member = self.rounds.member[rows].reshape(-1, stop - start)
        ranked = np.flatnonzero(member.any(axis=0))
        names = ("low", "up", "group", "member")
        columns = (getattr(self.rounds, name)[rows].reshape(-1, stop - start) for name in names)
        low, up, group, member = (np.take(column, ranked, axis=1) for column in columns)
        if self._tie:
            sizes = np.maximum.accumulate(np.where(member & np.isfinite(low), np.abs(low), 0.0), axis=1)
            sizes = np.concatenate([np.zeros((len(sizes), 1)), sizes[:, :-1]], axis=1)
            up = np.where(np.isfinite(up), up + self._tie * np.maximum(np.abs(up), sizes), up)
        begin = int(np.searchsorted(ranked, first - start))
        found = np.full((len(member), stop - first), math.nan)
        found[:, ranked[begin:] - (first - start)] = ranks.chances(low, up, group, member, first=begin)
        return found.reshape(*self._lanes, stop - first)

    def _bet_alone(self, purse: Any, stop: int) -> None:
        """Bet on the rounds before `stop` of the one lane, each among those before it."""
        rows, start = self.rounds, self.rounds.first
        purse._sorted = own = purse._sorted or self._sort(purse.next)
        for row in range(purse.next - start, stop - start):
            if rows.member[row]:
                group, low, up = int(rows.group[row]), float(rows.low[row]), float(rows.up[row])
                if self._tie and up < math.inf:
                    up += self._tie * max(abs(up), own.size)
                above, count = own.rank(group, up)
                chance = (1.0 + above) / (1.0 + count)
                self._bet(purse, chance, bool(rows.hit[row]))
                if purse is self:
                    self._latest = start + row, chance
                own.add(group, low)
        purse.next = max(purse.next, stop)

    def _bet(self, purse: Any, p: Any, hit: Any) -> None:
        """One more round in each lane; NaN where there is none."""
        if purse.starts is not None:
            watched = monitor.update(purse.starts, hit, self._risk)
            if self._lanes:
                log_evidence = np.where(np.isnan(p)[..., None], purse.starts.log_evidence, watched.log_evidence)
                watched = watched._replace(log_evidence=log_evidence)
            purse.starts = watched
            if some(hit):
                self._cross(monitor.alarm(purse.starts), STARTS)
        purse.capital = ranks.update(purse.capital, p)
        self._cross(ranks.alarm(purse.capital), RANKS)

    def _cross(self, over: Any, code: int) -> None:
        if some(over):
            self.crossed = np.where((self.crossed == 0) & over, code, self.crossed)

    def _sort(self, stop: int) -> Sorted:
        """The rounds before `stop` of the one lane, by group."""
        rows = self._rows(self.rounds.first, stop)
        member = self.rounds.member[rows]
        low, group = self.rounds.low[rows][member], self.rounds.group[rows][member]
        size = np.max(np.abs(low), where=np.isfinite(low), initial=0.0)
        return Sorted({code: np.sort(low[group == code]).tolist() for code in np.unique(group).tolist()}, float(size))

    def _rows(self, first: int, stop: int) -> tuple[Any, ...]:
        """The index of the rounds from place `first` to `stop` in a column."""
        start = self.rounds.first
        return ..., slice(first - start, stop - start)


class Sorted:
    """What rounds of one lane are ranked among: by group, their `low`, sorted; and the largest size of any."""

    def __init__(self, lows: dict[int, list[float]], size: float) -> None:
        self.lows, self.size = lows, size

    def rank(self, group: int, up: float) -> tuple[int, int]:
        """How many of the group are at most `up`, and how many there are."""
        lows = self.lows.get(group, [])
        return bisect_right(lows, up), len(lows)

    def add(self, group: int, low: float) -> None:
        insort(self.lows.setdefault(group, []), low)
        if low > -math.inf:
            self.size = max(self.size, abs(low))


class Ahead:
    """What the placed bets have made, if they go on behind an open round up to the round `next`."""

    def __init__(self, bets: Bets) -> None:
        self.capital, self.starts, self.next, own = bets.capital, bets.starts, bets.next, bets._sorted
        self._sorted = own and Sorted({group: [*lows] for group, lows in own.lows.items()}, own.size)
