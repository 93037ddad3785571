"""HP-Conformal for one online learner: rounds that may be open, refits by count, and a bet on every p-value.

A decision opens a round; its outcome fills it, late or never. The first decision after rounds have grown by a tenth
refits: the time of a refit depends on the number of rounds alone, and it knows every outcome reported by then.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.action import Choice
from safedial.core.conformal import p_value
from safedial.errors import InvalidInput
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
        self.samples = 0
        self._sorted: dict[int, Array] = {}

    def begin(self) -> None:
        """Refit if it is due: before a decision, never after."""
        if self.rounds.count >= self.rounds.next_fit:
            self.rounds.refit()
            self._sort()

    def predict(self, context: Array, norm: float) -> Outlook:  # noqa: ARG002 -- the linear learner needs the norm
        return self.policy.predict(self.rounds, context)

    def view(self, outlook: Outlook, choice: Choice) -> tuple[View, Choice]:
        """The outlook and the choice as plain values that later rounds leave alone."""
        rounds, frozen = self.rounds, self.rounds.frozen
        label = None
        if rounds.setup.group is not None:
            label = rounds.name_of(outlook.context)
        seen = View(
            outlook.reward,
            outlook.cost,
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

    def is_open(self, number: int, context: Array) -> bool:
        """Whether the open round of that number has this context (or has left the window)."""
        place = number - self.rounds.dropped
        return place < 0 or bool(np.array_equal(self.rounds.context[place], context))

    def learn(self, context: Array, norm: float, sample: Sample, number: int | None) -> None:  # noqa: ARG002 -- as above
        """An outcome: of the open round `number`, or of a round from before (None)."""
        if number is None:
            number = self.open(context)
        if sample.weight > 0.0:
            self.rounds.fill(number, sample.reward, sample.cost)
            self.samples += 1
            self._bet(number, context, sample.cost)

    def _bet(self, number: int, context: Array, cost: float) -> None:
        """Rank a calibration round's score among the earlier ones of its group, and bet."""
        rounds, frozen = self.rounds, self.rounds.frozen
        if frozen is None or number < rounds.dropped or not calibrates(np.int64(number), rounds.setup.form):
            return
        row = context[None, :]
        new = score(np.array([cost]), frozen.cost(row), frozen.scale(row))
        if np.isfinite(new[0]):
            code = int(rounds.code(context, frozen.reward(row)[0]))
            before = self._sorted.get(code, np.empty(0))
            rounds.capital = exchangeability.update(rounds.capital, p_value(before, new[0]))
            self._sorted[code] = np.insert(before, np.searchsorted(before, new[0]), new[0])

    @property
    def evidence(self) -> float:
        return float(exchangeability.evidence(self.rounds.capital))

    def watch_afresh(self) -> None:
        self.rounds.capital = exchangeability.init()

    def forget(self) -> None:
        """Start again with no rounds, as after a change that made the earlier ones worthless."""
        self.rounds, self.samples, self._sorted = self.policy.init(self.dim, ridge=self.ridge), 0, {}

    def _sort(self) -> None:
        """The known scores of each group under the frozen predictors, those that came after the refit included."""
        rounds, frozen = self.rounds, self.rounds.frozen
        if frozen is None:
            return
        held = calibrates(np.arange(rounds.dropped, rounds.count), rounds.setup.form)
        rows, cost = (getattr(rounds, name)[: held.size][held] for name in ("context", "cost"))
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
        scalars = np.array([rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples], dtype=np.int64)
        labels = np.array(json.dumps(list(rounds.labels)))
        capital = np.append(rounds.capital.held, rounds.capital.seen)
        parts = {name: getattr(rounds, name)[:here] for name in COLUMNS}
        return {**parts, "known": rounds.known, "scalars": scalars, "labels": labels, "capital": capital}

    def restore(self, arrays: dict[str, Any]) -> None:
        rounds = self.rounds
        for name in COLUMNS:
            setattr(rounds, name, arrays[name].copy())
        rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples = (
            int(value) for value in arrays["scalars"]
        )
        rounds.known = arrays["known"].astype(bool)
        rounds.labels = {label: number for number, label in enumerate(json.loads(str(arrays["labels"])))}
        rounds.capital = exchangeability.Capital(arrays["capital"][:-1].copy(), arrays["capital"][-1])
        rounds.refreeze()
        self._sort()
