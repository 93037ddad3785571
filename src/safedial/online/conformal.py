"""HP-Conformal for one online learner: rounds that may be open, refits by count, and a bet on every p-value.

A decision opens a round; its outcome fills it, late or never. The first decision after rounds have grown by a tenth
refits: the time of a refit depends on the number of rounds alone, and it knows every outcome reported by then. Bets are
placed in the order of decisions: behind an open calibration round they wait, until the next refit at the longest, which
passes over it. (In the order of reports, bad outcomes that come late would look like a drift.)
"""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.action import Choice
from safedial.core.conformal import p_value
from safedial.errors import InvalidInput, require
from safedial.online.outcome import Sample
from safedial.policies import Policy
from safedial.policies.conformal.frozen import calibrates, score
from safedial.policies.conformal.rounds import COLUMNS, Rounds
from safedial.policies.hp_conformal import Outlook

Array = NDArray[np.float64]


class View(NamedTuple):
    """What a decision keeps of its round's outlook: plain values, and the group sizes of the last refit."""

    reward: float
    cost: float
    scale: float
    norm: float
    code: int
    label: Any
    sizes: Any
    rounds: int
    known: int
    fitted: int


class ConformalLearner:
    """One learner's rounds, with what is known of them so far."""

    def __init__(self, policy: Policy, dim: int, ridge: float) -> None:
        self.policy, self.dim, self.ridge = policy, dim, ridge
        self.rounds: Rounds = policy.init(dim, ridge=ridge)
        self.samples = self.bets = 0
        self._sorted: dict[int, Array] = {}

    def begin(self) -> None:
        """Refit if it is due: before a decision, never after."""
        if self.rounds.count >= self.rounds.next_fit:
            self._bet(wait=False)
            self.rounds.refit()
            self._sort()

    def predict(self, context: Array, norm: float) -> Outlook:
        return self.policy.predict(self.rounds, context)

    def foresee(self, context: Array, norm: float) -> Outlook:
        """`predict` after the refit that the next decision would begin with, which is not kept."""
        rounds = self.rounds
        if rounds.count >= rounds.next_fit:
            rounds = copy.copy(rounds)
            rounds.refit()
        return self.policy.predict(rounds, context)

    def view(self, outlook: Outlook, choice: Choice) -> tuple[View, Choice]:
        """The outlook and the choice as plain values that later rounds leave alone."""
        rounds, frozen = outlook.rounds, outlook.rounds.frozen
        full = frozen.full if frozen else None
        label = None
        if rounds.setup.group is not None:
            label = rounds.name_of(outlook.context)
        seen = View(
            outlook.reward,
            outlook.cost if full is None else float(outlook.context @ full.coef),
            outlook.scale,
            outlook.norm,
            outlook.code,
            label,
            frozen.sizes if frozen else np.zeros(1, dtype=np.int64),
            rounds.count,
            self.samples,
            rounds.fitted,
        )
        return seen, choice

    def open(self, context: Array) -> int:
        return self.rounds.append(context, 0.0, np.inf)

    def check_report(self, context: Array, round: int, number: int | None, decisions: int) -> None:
        """An outcome by context must fit the round it is taken for; 0 is history, before the first decision only."""
        if round == 0:
            require(
                decisions == 0,
                "context",
                context.tolist(),
                "has an outcome though no round is open; was it reported already?",
                "give history before the first decision",
            )
        place = -1 if number is None else number - self.rounds.dropped
        if place >= 0 and not np.array_equal(self.rounds.context[place], context):
            raise InvalidInput(
                f"context: is not that of round {round}, the oldest open one or the one you named, and hp_conformal "
                "must know which it is; report the Decision itself, or round=..."
            )

    def learn(self, context: Array, norm: float, sample: Sample, number: int | None) -> None:
        """An outcome: of the open round `number`, or of a round from before (None)."""
        if number is None:
            number = self.open(context)
        if sample.weight > 0.0 and number >= self.rounds.dropped:
            self.rounds.fill(number, sample.reward, sample.cost)
            self.samples += 1
            self._bet(wait=True)

    def _bet(self, *, wait: bool) -> None:
        """Rank each new calibration round's score among the earlier ones of its group, in order, and bet."""
        rounds, frozen = self.rounds, self.rounds.frozen
        if frozen is None:
            return
        self.bets = max(self.bets, rounds.fitted)
        last = rounds.count if wait else rounds.count - rounds.setup.lag
        while self.bets < last:
            place = self.bets - rounds.dropped
            if calibrates(np.int64(self.bets), rounds.setup.form):
                if wait and not np.isfinite(rounds.cost[place]):
                    return
                self._bet_on(rounds.context[place], rounds.cost[place : place + 1])
            self.bets += 1

    def _bet_on(self, context: Array, cost: Array) -> None:
        rounds, frozen = self.rounds, self.rounds.frozen
        row = context[None, :]
        new = score(cost, frozen.cost(row), frozen.scale(row))[0] if frozen else np.inf
        if frozen and np.isfinite(new):
            code = int(rounds.code(context, frozen.reward(row)[0]))
            before = self._sorted.get(code, np.empty(0))
            rounds.capital = exchangeability.update(rounds.capital, p_value(before, new))
            rounds.alarmed = rounds.alarmed or bool(exchangeability.alarm(rounds.capital))
            self._sorted[code] = np.insert(before, np.searchsorted(before, new), new)

    @property
    def evidence(self) -> float:
        return float(exchangeability.evidence(self.rounds.capital))

    @property
    def alarmed(self) -> bool:
        """Whether the evidence ever reached 100 since the watch began."""
        return bool(self.rounds.alarmed)

    def watch_afresh(self) -> None:
        self.rounds.capital, self.rounds.alarmed = exchangeability.init(), False

    def forget(self) -> None:
        """Start again with no rounds, as after a change that made the earlier ones worthless."""
        self.rounds, self._sorted = self.policy.init(self.dim, ridge=self.ridge), {}
        self.samples = self.bets = 0

    def _sort(self) -> None:
        """The known scores of each group under the frozen predictors, of the refit's rounds and those bet on since."""
        rounds, frozen = self.rounds, self.rounds.frozen
        if frozen is None:
            return
        held = calibrates(np.arange(rounds.dropped, max(self.bets, rounds.fitted)), rounds.setup.form)
        rows, cost = (getattr(rounds, name)[: held.size][held] for name in ("context", "cost"))
        known = np.arange(held.size)[held] >= rounds.known.size
        known |= rounds.known[np.minimum(np.arange(held.size)[held], rounds.known.size - 1)]
        cost = np.where(known, cost, np.inf)
        scores = score(cost, frozen.cost(rows), frozen.scale(rows))
        codes = rounds.code(rows, frozen.reward(rows))
        known = np.isfinite(scores)
        self._sorted = {int(code): np.sort(scores[known & (codes == code)]) for code in np.unique(codes)}

    def coef(self, target: str) -> Array:
        """The predictor's coefficients, by its answers at the unit vectors."""
        frozen = self.rounds.frozen
        if frozen is None:
            return np.zeros(self.dim)
        if self.rounds.setup.predictor is not None:
            raise InvalidInput(f"{target}_coef: the predictor is not linear; ask a decision for its prediction")
        return (frozen.reward if target == "reward" else frozen.cost)(np.eye(self.dim))

    def state(self) -> dict[str, Any]:
        """The arrays to save; `restore` takes them back and freezes again what the last refit froze."""
        rounds = self.rounds
        here = rounds.count - rounds.dropped
        counts = (rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples, self.bets)
        labels = np.array(json.dumps(list(rounds.labels)))
        capital = np.append(rounds.capital.held, rounds.capital.seen)
        parts = {name: getattr(rounds, name)[:here] for name in COLUMNS}
        return {
            **parts,
            "known": rounds.known,
            "scalars": np.array(counts, dtype=np.int64),
            "labels": labels,
            "capital": capital,
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        rounds = self.rounds
        for name in COLUMNS:
            setattr(rounds, name, arrays[name].copy())
        counts = (int(value) for value in arrays["scalars"])
        rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples, self.bets = counts
        rounds.known = arrays["known"].astype(bool)
        rounds.labels = {label: number for number, label in enumerate(json.loads(str(arrays["labels"])))}
        rounds.capital = exchangeability.Capital(arrays["capital"][:-1].copy(), arrays["capital"][-1])
        rounds.refreeze()
        self._sort()
