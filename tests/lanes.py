"""Lanes of the count rule and of a policy, round after round."""

import math

import numpy as np

from safedial.bounds.count_rule import CountWindow
from safedial.model.dose import Dose, identity
from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, Asked, Task, Told


class Windows:
    """The count rule for lanes whose scales come one by one; a lane that is not named has no round."""

    def __init__(self, lanes, risk, **how):
        self.scaled, self.window = np.empty((lanes, 0)), CountWindow(lanes, risk, **how)

    def append(self, tolerated, lanes=None):
        column = np.full(len(self.scaled), math.nan)
        column[slice(None) if lanes is None else lanes] = tolerated
        self.scaled = np.column_stack([self.scaled, column])

    def scales(self, level=None):
        return self.window.read(self.scaled, self.scaled.shape[1], level=level)


class Lanes:
    """A policy in lanes of a task; a simulation's by default."""

    def __init__(self, policy, spec, *, dim, lanes, **task):
        parts = {"dose": Dose.of(identity()), **task}
        self.policy, self.lanes, self.number = policy.on(Task(dim=dim, spec=spec, **parts)), lanes, 0
        self.state = self.policy.init(lanes)

    def decide(self, context, **more):
        """What is chosen, in each lane."""
        self.number += 1
        self.asked = Asked(context, np.linalg.norm(context, axis=-1), self.number, **more)
        self.policy.begin(self.state, self.asked)
        self.bound = self.policy.bound(self.state, self.asked)
        self.chosen = self.policy.choose(self.bound, self.asked)
        assert np.all(self.chosen <= self.bound.largest)
        return self.chosen

    def open(self):
        self.policy.open(self.state, self.asked, self.bound, self.chosen)
        return self.number - 1

    def tell(self, place, context, applied, cost, *, reward=0.0, fate=KNOWN):
        """What became of a round: `cost` as measured, `reward` per unit."""
        zero, fate = 0.0 * applied, np.broadcast_to(fate, np.shape(applied))
        told = Told(
            fate, reward + zero, zero, 1.0 + zero, cost, 0.0, applied, applied, context, reward_intensity=applied
        )
        self.policy.tell(self.state, place, told)

    def update(self, context, applied, cost, *, reward=0.0, lost=False, left_out=False):
        """The outcome of the round that was decided last."""
        fate = np.where(left_out, LEFT_OUT, np.where(lost, LOST, KNOWN))
        self.tell(self.open(), context, applied, cost, reward=reward, fate=fate)
