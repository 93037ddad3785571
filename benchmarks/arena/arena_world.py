"""What a world of the arena is: contexts, an act, its outcome, and the clairvoyant's value where it is known.

Every dial runs from 0 to 1. Arrays are (seeds,), because all seeds run side by side; contexts are (seeds, d).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from safedial.errors import is_whole, require
from safedial.model.brackets import Growth
from safedial.model.dose import Dose, identity

Array = NDArray[np.float64]
LINE = Dose(identity(), identity())


class Outcome(NamedTuple):
    """What a setting did. A learner is shown `reward` and `cost`; `value` is what it scores, without noise where that
    is known. `clairvoyant` is the value of an all-knowing policy in this round. `measures` are means to report besides.
    """

    reward: Array
    cost: Array
    value: Array
    clairvoyant: Array | None = None
    measures: Mapping[str, Array] = {}


class Stream(Protocol):
    """The rounds of all seeds: what is known before a round, and `act`, which plays it and goes on to the next.

    `protocol` is the setting of the usual rule, `baseline` a cost that is there without any setting and known, and
    `stated` has the values of the world's `stated` names.
    """

    context: Array
    protocol: Array
    baseline: Array
    stated: dict[str, Any]

    def act(self, setting: Array) -> Outcome: ...


@dataclass(frozen=True, kw_only=True)
class ArenaWorld:
    """A problem, and what somebody who has it would state about it.

    Args:
        name: its name in tables.
        dim: columns of a context. context_bound: an upper bound on the norm of every context.
        threshold: the largest cost that is accepted.
        begin: begin(seeds, rounds), the stream of these seeds.
        growth: the bracket of a cost of this world. start_scale: the share of the protocol that is safe for everybody.
        start: a setting that is safe for everybody.
        unit: what the reward counts.
        signed: whether a dose can do harm that the reward shows, so that its sign must be learned.
        constants: of a `SafetySpec`, for certified policies; None: estimated from a pilot (`players.pilot_constants`).
        dose: the dose curves that certified policies are told.
        stated: names of what is stated for each context, with a usual size. Brackets may refer to them; "one_dose" is
            the setting that gives everybody the same amount.
        most_rounds: how many rounds it has; None if as many as are wanted.
    """

    name: str
    dim: int
    threshold: float
    begin: Callable[[list[int], int], Stream]
    growth: Growth
    start_scale: float
    start: float
    context_bound: float
    unit: str
    signed: bool = False
    constants: Mapping[str, Any] | None = None
    dose: Dose = LINE
    stated: Mapping[str, float] = field(default_factory=dict)
    most_rounds: int | None = None

    def __post_init__(self) -> None:
        require(is_whole(self.dim), "dim", self.dim, "must be a whole number >= 1")
        for name in ("start_scale", "start"):
            value = getattr(self, name)
            require(0.0 < value <= 1.0, name, value, "must be a number in (0, 1]")


def nothing(seeds: int) -> Array:
    return np.zeros(seeds)
