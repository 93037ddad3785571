"""Which setting is given under HP-Shield's cap. Below the cap anything may be given, so nothing here can break the
promise; it may learn from all rounds, and sets neither the base nor the rounds that are counted.

| chooser | gives |
|---|---|
| largest | the cap |
| request | the setting that was asked for, at most the cap |
| sign | the cap, or the start where the predicted reward is negative |
| target | the setting from the start to the cap at which the predicted reward is largest |

`sign` predicts the reward per unit of the dose curve, by ridge regression on (1, x). `target` predicts the reward at a
setting a, by ridge regression on (1, x), a·(1, x) and a²·(1, x). Fits are made when there are a tenth
more known outcomes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedial.decision.learners.shield_options import Stated, played_levels
from safedial.decision.outcome import Sample
from safedial.policies.shield.bases import FIRST_FIT, GROWTH, Ridge
from safedial.policies.shield.batch_chooser import STEPS, TINY, WINDOWS, expanded, with_one

if TYPE_CHECKING:
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]

LEARNING = ("sign", "target")
"""The choosers that learn from rewards."""


class Chooser:
    """Chooses, and remembers what it learns from: contexts, applied settings and rewards, as outcomes become known."""

    def __init__(self, rules: Rules) -> None:
        options, self.rules, self.levels = rules.policy.options, rules, played_levels(rules.dial)
        self.kind = options["chooser"]
        self.learns = self.kind in LEARNING
        self.contexts: list[Array] = []
        self.outcomes: list[tuple[float, float]] = []
        self.fitted, self.next_fit = 0, FIRST_FIT
        if self.kind == "target":
            self.next_fit = math.ceil(WINDOWS / rules.spec.violation_risk)
        self.coef = np.zeros(0)
        self.predict: Callable[[Array], Array] | None = None

    def begin(self) -> None:
        """Fit if it is due. Replaces what it changes, so that a copy can run ahead."""
        count = len(self.outcomes)
        if self.learns and count >= self.next_fit:
            rows, rewards = self._rows(count)
            size = np.ones(rows.shape[1])
            if self.kind == "target":  # the penalty is for columns of one size, and settings may be of any
                size = np.maximum(np.abs(rows).max(axis=0), TINY)
            ridge = Ridge(1, rows.shape[1] - 1, 1, self.rules.spec.ridge)
            plain = np.arange(0, rows.shape[1], self.rules.dim + 1)  # 1, a and a² are not penalised
            ridge.gram[0, plain, plain] = ridge.gram[0, 0, 0]
            ridge.gram[0] += (rows / size).T @ (rows / size)
            ridge.moments[0, :, 0] += (rows / size).T @ rewards
            self.coef, self.fitted = ridge.coef()[0, :, 0] / size, count
            self.next_fit = max(count + 1, int(GROWTH * count))
            self._use()

    def choose(self, cap: float, start: float, context: Array, stated: Stated) -> tuple[float, float]:
        """The setting for a context, at most the cap, and the predicted reward, 0 where there is none."""
        if self.kind == "request":
            request = min(stated.request, cap)
            return request if self.levels is None else self.levels[bisect_right(self.levels, request) - 1], 0.0
        if self.predict is None:
            return cap, 0.0
        if self.kind == "sign":
            index = float(self.predict(context[None])[0])
            return (cap if index >= 0.0 else start), index
        settings = np.linspace(start, cap, STEPS + 1)
        if self.levels is not None:
            settings = np.array([level for level in self.levels if start <= level <= cap])
        rewards = self.predict(np.column_stack([np.broadcast_to(context, (len(settings), len(context))), settings]))
        rewards = np.where(np.isfinite(rewards), rewards, -math.inf)
        best = np.flatnonzero(rewards == rewards.max())[-1]
        return float(settings[best]), float(rewards[best])

    def learn(self, context: Array, sample: Sample) -> None:
        """An outcome; a round that was given nothing tells no reward."""
        if self.learns and sample.weight > 0.0:
            self.contexts.append(context)
            self.outcomes.append((sample.applied, sample.reward))

    def _rows(self, count: int) -> tuple[Array, Array]:
        """What the ridge is fitted to: the first `count` outcomes, (n, k) and (n,)."""
        outcomes = np.array(self.outcomes[:count])
        if self.kind == "sign":
            return with_one(np.array(self.contexts[:count])), outcomes[:, 1]
        return expanded(np.column_stack([np.array(self.contexts[:count]), outcomes[:, 0]])), self._totals(outcomes)

    def _totals(self, outcomes: Array) -> Array:
        """The rewards as they were measured; outcomes hold them per unit of the reward's curve."""
        dial, curve = self.rules.dial, self.rules.dose.reward
        return np.array([reward * float(curve.effect(dial.action(setting))) for setting, reward in outcomes.tolist()])

    def _use(self) -> None:
        """Predict by the fitted coefficients."""
        coef, rows = self.coef, with_one if self.kind == "sign" else expanded
        self.predict = lambda points: rows(points) @ coef

    def state(self) -> dict[str, Any]:
        if not self.learns:
            return {}
        return {
            "chooser_contexts": np.array(self.contexts, dtype=np.float64).reshape(-1, self.rules.dim),
            "chooser_outcomes": np.array(self.outcomes, dtype=np.float64).reshape(-1, 2),
            "chooser_fitted": np.array([self.fitted, self.next_fit], dtype=np.int64),
            "chooser_coef": self.coef,
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """What `state` gave."""
        if not self.learns:
            return
        self.contexts = list(arrays["chooser_contexts"].copy())
        self.outcomes = [(setting, reward) for setting, reward in arrays["chooser_outcomes"].tolist()]
        self.fitted, self.next_fit = arrays["chooser_fitted"].tolist()
        self.coef = arrays["chooser_coef"].copy()
        if self.fitted:
            self._use()
