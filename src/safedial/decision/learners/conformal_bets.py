"""HP-Conformal's bets on p-values, in the order of decisions.

The rank of a calibration round's score among those of the earlier rounds of its group gives a p-value
(`core.conformal.p_value`). While the outcome of a round is not known, because it is open, void, expired or throttled,
its own p-value counts as 1, and for later rounds it scores +∞. In a throttled round the advised setting would have cost
at least what was measured: its p-value is that of the least score it may have. All of this only raises p-values, and
all bets fall with p, so the evidence stays below what all true scores would give, whatever the missing ones depend on.

So bets do not wait: behind an open round they go on from a copy, and are repeated when its outcome comes. Each round is
bet on under the predictors in force when it is older than `lag`, whatever is late: a refit, and `PATIENCE` rounds, end
that, and a round that is still open by then is never ranked. Its outcome then counts only in later ranks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.conformal import p_value
from safedial.policies.conformal.frozen import score
from safedial.policies.conformal.memory import Rounds

Array = NDArray[np.float64]

PATIENCE = 200
"""How many rounds beyond the lag an open round may still be bet on."""


class Ranked(NamedTuple):
    """The capital, and what later rounds are ranked among: each group's known scores, sorted, and how many others."""

    capital: Any
    scores: dict[int, Array]
    unbounded: dict[int, int]


class ConformalBets:
    """`next` is the first round whose bet may still change; `throttled` has the least C/g of throttled rounds."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.next, self.throttled = 0, dict[int, float]()
        self._ranked = self._ahead = Ranked(exchangeability.init(), {}, {})
        self._end = 0

    @property
    def evidence(self) -> float:
        return float(exchangeability.evidence(self._ahead.capital))

    def refit(self, rounds: Rounds) -> None:
        """Refit the predictors, and rank the earlier rounds under them."""
        self._settle(rounds, last=rounds.count - rounds.setup.lag, wait=False)
        rounds.refit()
        self.throttled = {number: least for number, least in self.throttled.items() if number >= rounds.dropped}
        self.next = max(self.next or rounds.fitted, rounds.dropped)
        self.sort(rounds)

    def told(self, rounds: Rounds, place: int) -> None:
        """The outcome of a round is known now, or the round was left out."""
        if rounds.frozen is None:
            return
        if place < self.next:
            self.sort(rounds)
            return
        before = self.next
        self._settle(rounds, last=rounds.count - rounds.setup.lag, wait=True)
        self._look_ahead(rounds, anew=self.next > before or place < self._end)

    def restart(self, rounds: Rounds) -> None:
        """Begin the evidence anew, with the next decision."""
        rounds.capital, rounds.alarmed = exchangeability.init(), False
        self._ranked = self._ranked._replace(capital=rounds.capital)
        if rounds.frozen:
            self.next = rounds.count
            self.sort(rounds)

    def _settle(self, rounds: Rounds, *, last: int, wait: bool) -> None:
        """Place the bets that no later outcome changes."""
        if rounds.frozen is None:
            return
        while self.next < last:
            if wait and self.next >= last - PATIENCE and self._cost(rounds, self.next) == math.inf:
                return
            self._ranked = self._bet(rounds, self._ranked, self.next)
            rounds.capital = self._ranked.capital
            self.next += 1

    def _look_ahead(self, rounds: Rounds, *, anew: bool) -> None:
        """Bet on the reported rounds behind an open one, from a copy."""
        if anew:
            self._ahead, self._end = self._ranked, self.next
        count = rounds.count - rounds.setup.lag
        known = np.isfinite(rounds.cost[self.next - rounds.dropped : count - rounds.dropped])
        places = [*(self.next + np.flatnonzero(known)[-1:]).tolist(), *self.throttled]
        last = max((place + 1 for place in places if place < count), default=0)
        for place in range(self._end, last):
            self._ahead = self._bet(rounds, self._ahead, place)
        self._end = max(self._end, last)

    def _cost(self, rounds: Rounds, place: int) -> float | None:
        """C/g of a round, at least; ∞ while it is not known, None for one that does not calibrate."""
        if place in rounds.left or not rounds.calibrates(np.int64(place)):
            return None
        return self.throttled.get(place, float(rounds.cost[place - rounds.dropped]))

    def _bet(self, rounds: Rounds, ranked: Ranked, place: int) -> Ranked:
        """Rank the score of a round among its group's earlier ones, and bet."""
        cost, frozen, throttled = self._cost(rounds, place), rounds.frozen, place in self.throttled
        if cost is None or frozen is None:
            return ranked
        context = rounds.context[place - rounds.dropped]
        row = context[None, :]
        code = int(rounds.code(context, frozen.reward(row)[0]))
        before, unbounded = ranked.scores.get(code, np.empty(0)), ranked.unbounded.get(code, 0)
        new = score(np.array([cost]), frozen.cost(row))[0]
        capital, scores = ranked.capital, ranked.scores
        if np.isfinite(new) or cost == math.inf:
            chance = 1.0 if cost == math.inf else p_value(before, new, unbounded=unbounded)
            capital = exchangeability.update(capital, chance)
            rounds.alarmed = rounds.alarmed or bool(exchangeability.alarm(capital))
        hidden = throttled or cost == math.inf
        if np.isfinite(new) and not hidden:
            scores = {**scores, code: np.insert(before, np.searchsorted(before, new), new)}
        return Ranked(capital, scores, {**ranked.unbounded, code: unbounded + hidden})

    def sort(self, rounds: Rounds) -> None:
        """Rank the settled rounds under the frozen predictors, and look ahead anew."""
        frozen = rounds.frozen
        if frozen is None:
            self._ranked = self._ahead = Ranked(rounds.capital, {}, {})
            return
        numbers = np.arange(rounds.dropped, self.next)
        numbers = numbers[rounds.calibrates(numbers) & ~np.isin(numbers, list(rounds.left))]
        places = numbers - rounds.dropped
        rows, cost = rounds.context[places], rounds.cost[places]
        hidden = ~np.isfinite(cost)
        scores = score(cost, frozen.cost(rows))
        codes = rounds.code(rows, frozen.reward(rows))
        known = np.isfinite(scores)
        kept = {int(code): np.sort(scores[known & (codes == code)]) for code in np.unique(codes)}
        unbounded = {int(code): int(np.sum(codes[hidden] == code)) for code in np.unique(codes[hidden])}
        self._ranked = self._ahead = Ranked(rounds.capital, kept, unbounded)
        self._look_ahead(rounds, anew=True)
