"""HP-Shield's watch: evidence that rounds are not exchangeable or break their bracket, and that the start is unsafe.

**Rounds.** Let T_i be the true tolerated scale of round i under the protocol's base, one family for the whole life. The
bracket says T̂_i ≤ T_i, and, of a round that exceeded, T_t ≤ T̄_t: a cost c > τ at the setting s cannot have come from
a cost at or below τ at a setting above

    relative: s·(τ/c)^(1/high)      additive: s − (c − τ)/high      spread: s

(T̄_t = ∞ for other rounds). So

    p̄_t = (1 + #{i < t : T̂_i ≤ T̄_t}) / t   ≥   (1 + #{i < t : T_i ≤ T_t}) / t

which in the order of decisions is a conformal p-value. Bets that do not rise with p (`core.exchangeability`) are then
worth at most what the true p-values would have made of them, a supermartingale: if rounds are exchangeable and keep to
the bracket, the evidence ever reaches 100 with probability at most 0.01. A round that is open counts with p̄ = 1 and
T̂ = −∞, which only lowers; one that is left out is no member. So bets do not wait: behind an open round they go on from
a copy, and are repeated when its outcome comes, for `lag` + `PATIENCE` rounds; after that it is never ranked. In a
round whose setting was lowered because of the outcome the advised setting s would have cost at least c, and T̄ falls
with c, so T̄ at (s, c) holds; T̂ = −∞. Neither T̂ themselves (they depend on settings) nor counted excesses make a valid
process here.

**Start.** Whether a round would exceed at its start does not depend on settings, and for independent rounds not on the
past. An excess at or below the start shows that it would. So the monitor of `core.monitor` at risk δ, fed with what is
shown and with 0 elsewhere, is a supermartingale as long as the start exceeds with probability at most δ.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from safedial.core import exchangeability, monitor
from safedial.core.tolerated import Cost

RAISED = 1.0 + 1e-12
"""What rounding could take from an upper bound."""

PATIENCE = 200
"""How many rounds beyond the lag an open round may still be bet on."""


class Told(NamedTuple):
    """A round's bounds on its tolerated scale, and whether it exceeded at its start or below."""

    lower: float = -math.inf
    upper: float = math.inf
    at_start: bool = False


def upper_setting(cost: Cost, measured: float, applied: float) -> float:
    """A setting above which the round cannot have been within its threshold; ∞ where it did not exceed."""
    growth = cost.growth
    shown = (measured if cost.direction == "above" else -measured) - growth.error
    if not shown > cost.limit:
        return math.inf
    high = growth.parameters.get("high", 0.0)
    if high == 0.0:
        return applied
    if growth.name == "relative":
        return min(applied, applied * (cost.limit / shown) ** (1.0 / high) * RAISED)
    fall = (shown - cost.limit) / high
    return min(applied, applied - fall + (RAISED - 1.0) * (abs(applied) + (abs(shown) + abs(cost.limit)) / high))


def shown_by(costs: Mapping[str, Cost], measured: Mapping[str, float], applied: float) -> tuple[float, bool]:
    """What measured costs show: a setting above which the round cannot have kept all thresholds, and whether it
    exceeded one for certain.
    """
    upper = min(upper_setting(cost, measured[name], applied) for name, cost in costs.items())
    return upper, any(cost.excess(measured[name]) > cost.growth.error for name, cost in costs.items())


class Ahead(NamedTuple):
    """The evidence with the bets on reported rounds behind an open one, up to the round `end`."""

    capital: exchangeability.Capital
    starts: monitor.Monitor
    lower: list[float]
    end: int


class ShieldWatch:
    """Bets in the order of decisions; `next` is the first round whose bet may still change."""

    def __init__(self, risk: float, lag: int) -> None:
        self.risk, self.patience = risk, lag + PATIENCE
        self.capital, self.starts = exchangeability.init(), monitor.init()
        self.crossed = ""
        self.lower: list[float] = []
        self.next = 0
        self.waiting: dict[int, Told | None] = {}
        self.ahead: Ahead | None = None

    @property
    def evidence(self) -> float:
        return float(exchangeability.evidence((self.ahead or self).capital))

    def tell(self, place: int, told: Told | None, count: int) -> None:
        """What is known of a round, None if it is left out; `count` rounds have been decided."""
        before, known = self.next, self.ahead
        if place >= self.next:
            self.waiting[place] = told
        while self.next < count and (self.next in self.waiting or self.next < count - self.patience):
            seen = self.waiting.pop(self.next, Told())
            self.next += 1
            self.capital, self.starts = self._bet(self.capital, self.starts, seen, self.lower)
        self.ahead = known if known and self.next == before and place >= known.end else None
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Bet on the reported rounds behind an open one, from a copy."""
        if not self.waiting:
            return
        capital, starts, lower, end = self.ahead or Ahead(self.capital, self.starts, [], self.next)
        last = max(self.waiting) + 1
        for place in range(end, last):
            capital, starts = self._bet(capital, starts, self.waiting.get(place, Told()), lower, earlier=self.lower)
        self.ahead = Ahead(capital, starts, lower, max(end, last))

    def _bet(
        self, capital: Any, starts: Any, told: Told | None, lower: list[float], *, earlier: list[float] | None = None
    ) -> tuple[Any, Any]:
        """Rank a round among the `earlier` ones and those in `lower`, which it joins, and bet."""
        if told is None:
            return capital, starts
        rank = 1 + bisect_right(lower, told.upper) + bisect_right(earlier or [], told.upper)
        insort(lower, told.lower)
        capital = exchangeability.update(capital, rank / (len(lower) + len(earlier or [])))
        starts = monitor.update(starts, told.at_start, self.risk)
        if told.at_start and bool(monitor.alarm(starts)):
            self.crossed = self.crossed or "start_refuted"
        if bool(exchangeability.alarm(capital)):
            self.crossed = self.crossed or "bracket_drift"
        return capital, starts

    def afresh(self, count: int) -> None:
        """Begin the evidence anew after `count` decisions; the rounds so far stay those that later ones are compared
        with.
        """
        while self.next < count:
            seen = self.waiting.pop(self.next, Told())
            self.next += 1
            if seen is not None:
                insort(self.lower, seen.lower)
        self.capital, self.starts, self.crossed, self.ahead = exchangeability.init(), monitor.init(), "", None

    def state(self) -> dict[str, Any]:
        waiting = [(place, *(told or (math.nan, 0.0, False))) for place, told in self.waiting.items()]
        return {
            "watch_lower": np.array(self.lower),
            "watch_waiting": np.array(waiting, dtype=float).reshape(-1, 4),
            "watch_capital": np.append(self.capital.held, self.capital.seen),
            "watch_starts": np.append(self.starts.log_evidence, [self.starts.rounds, self.starts.violations]),
            "watch_next": np.array(self.next),
            "watch_crossed": np.array(self.crossed),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        self.lower = arrays["watch_lower"].tolist()
        rows = arrays["watch_waiting"].tolist()
        self.waiting = {int(row[0]): None if row[1] != row[1] else Told(row[1], row[2], bool(row[3])) for row in rows}
        held = arrays["watch_capital"]
        self.capital = exchangeability.Capital(held[:-1].copy(), held[-1])
        *log_evidence, rounds, violations = arrays["watch_starts"]
        self.starts = monitor.Monitor(np.array(log_evidence), rounds, violations)
        self.next, self.crossed = int(arrays["watch_next"]), str(arrays["watch_crossed"])
        self.ahead = None
        self._look_ahead()
