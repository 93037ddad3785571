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
        mean = state["cost"] / np.maximum(state["rounds"], 1.0)
        largest = np.where(state["rounds"] > 9, self.spec.threshold / np.maximum(mean, self.spec.threshold), self.first)
        return Bound(np.ones(np.shape(largest)), largest, {"mean": mean})

    def tell(self, state, place, told):
        state["cost"] += np.where(told.fate == np.asarray(KNOWN), told.cost, 0.0)
        state["rounds"] += told.fate == np.asarray(KNOWN)
