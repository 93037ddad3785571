"""Which settings are given under HP-Shield's caps, for a whole batch at once: what `decision.learners.shield_chooser`
does for one agent. Below the cap anything may be given, so nothing here can break the promise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require
from safedial.policies.shield.bases import FIRST_FIT, GROWTH, Ridge

Array = NDArray[np.float64]

STEPS = 64
"""Into how many steps the settings from the start to the cap are divided, on a dial without levels."""

TINY = 1e-100
"""Columns of this size or less are 0."""

WINDOWS = 3
"""`target` gives the cap until there are so many times 1/δ outcomes: before, hardly any setting but the start was
tried, and what a higher one would bring cannot be told."""


class BatchChooser:
    """Chooses, and learns from known outcomes; lanes fit when they have a tenth more of them."""

    def __init__(self, lanes: int, dim: int, *, setup: Any, ridge: float, risk: float) -> None:
        self.setup, self.dim, self.penalty = setup, dim, ridge
        self.targets = setup.chooser == "target"
        width = (1 + dim) * (3 if self.targets else 1)
        self.gram, self.moments = np.zeros((lanes, width, width)), np.zeros((lanes, width))
        self.size, self.coef = np.full((lanes, width), TINY if self.targets else 1.0), np.zeros((lanes, width))
        self.count, self.fitted = np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=bool)
        self.next_fit = np.full(lanes, math.ceil(WINDOWS / risk) if self.targets else FIRST_FIT)

    def choose(self, cap: Array, start: Array, context: Array) -> tuple[Array, Array]:
        """The settings for contexts (lanes, d), at most the caps, and the predicted rewards, 0 where there are none."""
        kind, nothing = self.setup.chooser, np.zeros(cap.shape)
        if kind == "largest":
            return cap, nothing
        if kind == "request":
            return self._requested(cap, context), nothing
        rows = with_one(context)
        if kind == "sign":
            index = np.vecdot(rows, self.coef)
            return np.where(index >= 0.0, cap, start), index
        settings = self._settings(cap, start)
        level, slope, bend = np.moveaxis(self.coef.reshape(len(rows), 3, 1, -1) @ rows[:, None, :, None], 1, 0)[..., 0]
        rewards = level + settings * slope + settings * settings * bend
        rewards = np.where((settings >= start[:, None]) & (settings <= cap[:, None]), rewards, -math.inf)
        best = rewards.shape[1] - 1 - np.argmax(rewards[:, ::-1], axis=1)[:, None]  # the largest of equally good ones
        found, index = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (settings, rewards))
        return np.where(self.fitted, found, cap), np.where(self.fitted, index, 0.0)

    def learn(self, context: Array, applied: Array, reward: Array, total: Array, known: Any) -> None:
        """One round's rewards, per unit and in all, where they are known."""
        if self.setup.chooser not in ("sign", "target"):
            return
        rows = with_one(context)
        if self.targets:
            rows, reward = expanded(np.column_stack([context, applied])), total
            self.size = np.maximum(self.size, np.abs(rows) * known[:, None])
        rows = rows * known[:, None]
        self.gram += rows[:, :, None] * rows[:, None, :]
        self.moments += rows * np.where(known, reward, 0.0)[:, None]
        self.count += known
        due = np.flatnonzero(self.count >= self.next_fit)
        if due.size:
            self._fit(due)

    def _requested(self, cap: Array, context: Array) -> Array:
        asked, levels = self.setup.request(context), self.setup.levels
        require(np.all(asked >= 0.0), "request", float(np.min(asked)), "must be a number >= 0 in every context")
        request = np.minimum(asked, cap)
        if levels is None:
            return request
        return np.array((0.0, *levels))[np.searchsorted(levels, request, side="right")]

    def _settings(self, cap: Array, start: Array) -> Array:
        if self.setup.levels is not None:
            return np.broadcast_to(self.setup.levels, (len(cap), len(self.setup.levels)))
        return np.linspace(start, cap, STEPS + 1, axis=-1)

    def _fit(self, due: Any) -> None:
        """In units of each column's size, since the penalty is for columns of one size."""
        size, width = self.size[due], self.size.shape[1]
        ridge = Ridge(len(due), width - 1, 1, self.penalty)
        plain = np.arange(0, width, self.dim + 1)  # 1, a and a² are not penalised
        ridge.gram[:, plain, plain] = ridge.gram[0, 0, 0]
        ridge.gram += self.gram[due] / (size[:, :, None] * size[:, None, :])
        ridge.moments[..., 0] += self.moments[due] / size
        self.coef[due], self.fitted[due] = ridge.coef()[..., 0] / size, True
        self.next_fit[due] = np.maximum(self.count[due] + 1, (GROWTH * self.count[due]).astype(np.int64))


def with_one(rows: Array) -> Array:
    return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)


def expanded(points: Array) -> Array:
    """(1, x), a·(1, x) and a²·(1, x) of points (x, a)."""
    rows, setting = with_one(points[:, :-1]), points[:, -1:]
    return np.concatenate([rows, setting * rows, setting * setting * rows], axis=1)
