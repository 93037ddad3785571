"""A policy of a user's own, in one file of fifteen lines: it gives what the mean cost so far allows."""

from dataclasses import dataclass

import numpy as np

from safedial.policies.policy import KNOWN, Bound, Policy, option


@dataclass(frozen=True, kw_only=True)
class Mean(Policy):
    name = "mean"
    first: float = option(0.1, lambda share: 0.0 < share <= 1.0, "must lie in (0, 1]")

    def init(self, lanes=(), *, watch=True):
        return {"cost": np.zeros(lanes), "rounds": np.zeros(lanes)}

    def bound(self, state, asked):
        room, mean = self.spec.threshold - asked.baseline, state["cost"] / np.maximum(state["rounds"], 1.0)
        allowed = np.clip(room / np.maximum(mean, 1e-9), 0.0, 1.0)
        largest = np.where(state["rounds"] > 9, allowed, np.minimum(allowed, self.first))
        return Bound(1.0, largest, {"mean": mean}, certified=room >= 0.0)

    def tell(self, state, place, told):
        known = (told.fate == KNOWN) & (told.weight > 0.0)
        state["cost"] += np.where(known, told.cost, 0.0)
        state["rounds"] += known
