"""Which setting is given under a cap.

Below the cap anything may be given, so nothing here can break a guarantee; a chooser may learn from all rounds, and
sets neither the base nor the rounds that are counted.

| chooser | gives |
|---|---|
| largest | the cap |
| request | the setting that was asked for, at most the cap |
| sign | the cap, or the start where the predicted reward is negative |
| target | the setting from the start to the cap at which the predicted reward is largest |

`sign` predicts the reward per unit of the dose curve, by ridge regression on (1, x). `target` predicts the reward at a
setting a, by ridge regression on (1, x), a·(1, x) and a²·(1, x). Fits are made when there are a tenth more known
outcomes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safedial.model.namespace import Array, namespace, where
from safedial.policies.bases import FIRST_FIT, GROWTH, Ridge, with_one

CHOOSERS = ("largest", "request", "sign", "target")
LEARNING = ("sign", "target")
"""The choosers that learn from rewards."""

STEPS = 64
"""Into how many steps the settings from the start to the cap are divided, on a dial without levels."""

TINY = 1e-100
"""Columns of this size or less are 0."""

WINDOWS = 3
"""`target` gives the cap until there are so many times 1/δ outcomes: before, hardly any setting but the start was
tried, and what a higher one would bring cannot be told."""


class Rewards:
    """What `sign` or `target` has learned of rewards, in each lane."""

    def __init__(self, chooser: str, lanes: tuple[int, ...], dim: int, *, penalty: float, risk: float) -> None:
        self._dim, self._targets = dim, chooser == "target"
        width = (1 + dim) * (3 if self._targets else 1)
        # 1, a and a² are not penalised.
        self.ridge = Ridge(lanes, width, penalty, free=tuple(range(0, width, 1 + dim)))
        self.size, self.coef = np.full((*lanes, width), TINY if self._targets else 1.0), np.zeros((*lanes, width))
        zero: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.count, self.fitted = zero + 0, zero + 0
        self.next_fit = zero + (math.ceil(WINDOWS / risk) if self._targets else FIRST_FIT)

    def learn(self, context: Array, applied: Any, reward: Any, total: Any, known: Any) -> None:
        """One round's rewards, per unit and in all, where they are known."""
        rows = with_one(context)
        if self._targets:
            setting, reward = np.asarray(applied)[..., None], total
            rows = np.concatenate([rows, setting * rows, setting * setting * rows], axis=-1)
            self.size = np.maximum(self.size, np.abs(rows) * np.asarray(known)[..., None])
        self.ridge.add(rows, reward, known)
        self.count = self.count + known

    def begin(self) -> None:
        """Fit where it is due."""
        due = self.count >= self.next_fit
        if np.any(due):
            # In units of each column's size, since the penalty is for columns of one size, and settings may be of any.
            coef = self.ridge.coef(self.size)
            self.coef = np.where(np.asarray(due)[..., None], coef, self.coef)
            following = np.maximum(self.count + 1, (GROWTH * np.asarray(self.count)).astype(np.int64))
            self.fitted = where(due, self.count, self.fitted)
            self.next_fit = int(following) if due is True else np.where(due, following, self.next_fit)

    def by_sign(self, cap: Any, start: Any, context: Array) -> tuple[Any, Any]:
        """The setting, and the predicted reward: 0 where there is none."""
        index = (self.coef * with_one(context)).sum(axis=-1)
        index = index if index.ndim else float(index)
        return where(index >= 0.0, cap, start), index

    def by_target(self, cap: Any, start: Any, context: Array, marks: Any) -> tuple[Any, Any]:
        """The setting, one of `marks` where there are any, and the predicted reward."""
        lanes = np.shape(cap)
        settings = np.linspace(start, cap, STEPS + 1, axis=-1)
        if marks is not None:
            settings = np.broadcast_to(marks, (*lanes, len(marks)))
        parts = self.coef.reshape(*lanes, 3, 1 + self._dim) @ with_one(context)[..., None]
        level, slope, bend = np.moveaxis(parts, -2, 0)
        rewards = level + settings * slope + settings * settings * bend
        low, high = np.asarray(start)[..., None], np.asarray(cap)[..., None]
        rewards = np.where(np.isfinite(rewards) & (settings >= low) & (settings <= high), rewards, -math.inf)
        best = rewards.shape[-1] - 1 - np.argmax(rewards[..., ::-1], axis=-1)  # the largest of equally good ones
        found, index = (np.take_along_axis(part, best[..., None], axis=-1)[..., 0] for part in (settings, rewards))
        if not lanes:
            return (float(found), float(index)) if self.fitted else (cap, 0.0)
        return np.where(self.fitted > 0, found, cap), np.where(self.fitted > 0, index, 0.0)


def requested(cap: Any, request: Any, marks: Any) -> Any:
    """The setting that was asked for, at most the cap, and one of `marks` where there are any."""
    found = namespace(cap, request).minimum(request, cap)
    if marks is None:
        return found
    level = np.asarray(marks)[np.searchsorted(marks, found, side="right") - 1]
    return level if np.ndim(cap) else float(level)
