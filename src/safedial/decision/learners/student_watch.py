"""The evidence of HP-Student: bets on p-values, and a count of the rounds that exceeded a bound.

If the noise is Gaussian and contexts do not follow it, the residuals (Y_i − ⟨x_i,μ̂⟩)/(s√(1+w²)), each with the fit
before its round, have independent and uniform p-values, whatever was late, so bets on small ones are fair
(`core.exchangeability`). Contexts that react void this, so the anytime promise counts Y_i > U_i instead, U_i from that
same fit, which has probability ≤ δ given the past while the bound holds (`core.monitor`).

A lost round ends the bets, and an open one holds them up: the fits after it would rest on a selection. So the rounds
decided after one that was lost, or while one is waited for, are counted as for the anytime promise, with U_i the
tolerance bound of the rounds before it, which no selection touched.
All bounds, of every such fit for every later round, hold at once but with probability ½/100, the sum of their failures
(`spent_in`, for the fit and for the round). While they hold, the evidence of the count, of which half is shown, ever
reaches 200 with probability ½/100. In a throttled round the advised setting would have cost at least what was measured,
so Y_i is at least that over the advised intensity, and counts if this exceeds U_i.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core import exchangeability, monitor


class StudentWatch:
    """`crossed`: whether the evidence ever reached `alarm_at`."""

    alarm_at = 100.0

    def __init__(self, *, anytime: bool) -> None:
        self.anytime = anytime
        self.restart()

    def restart(self) -> None:
        self.capital, self.monitor, self.crossed = exchangeability.init(), monitor.init(), False

    @property
    def evidence(self) -> float:
        counted = float(monitor.evidence(self.monitor))
        if self.anytime:
            return counted
        bet = float(exchangeability.evidence(self.capital))
        return max(bet, counted / 2.0) if self.monitor.rounds else bet

    def bet(self, chance: float) -> None:
        """Bet on a round's p-value."""
        self.capital = exchangeability.update(self.capital, chance)
        self._notice()

    def promise(self, risk: float) -> None:
        """Count a decided round as one that kept its bound, so that open and lost rounds hide nothing."""
        self.monitor = monitor.update(self.monitor, False, risk)

    def exceed(self) -> None:
        """Count a promised round as one that exceeded its bound."""
        self.monitor = monitor.revise(self.monitor)
        self._notice()

    def _notice(self) -> None:
        self.crossed = self.crossed or self.evidence >= self.alarm_at

    def state(self) -> dict[str, Any]:
        return {
            "capital": np.append(self.capital.held, self.capital.seen),
            "exceeded": np.append(self.monitor.log_evidence, [self.monitor.rounds, self.monitor.violations]),
        }

    def restore(self, arrays: dict[str, Any], *, crossed: bool) -> None:
        held, self.crossed = arrays["capital"], crossed
        self.capital = exchangeability.Capital(held[:-1].copy(), held[-1])
        *log_evidence, seen, over = arrays["exceeded"].tolist()
        self.monitor = monitor.Monitor(np.array(log_evidence), seen, over)
