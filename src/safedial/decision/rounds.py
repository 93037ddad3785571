"""The life of a round from its decision to its outcome: its statuses, and what is kept while it is open."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

STATUSES = ("open", "known", "void", "expired", "nothing given", "throttled", "corrected", "imported")


def next_status(before: str, status: str, *, throttled: bool = False, given: bool = True) -> str:
    """The status of a round after an event: "nothing given" if the decision advised no dose, "throttled" if the setting
    was lowered because of the outcome. An expired round can still become known, a void one cannot.

    >>> next_status("", "open"), next_status("", "open", given=False), next_status("", "imported")
    ('open', 'nothing given', 'imported')
    >>> next_status("open", "known"), next_status("known", "corrected"), next_status("open", "known", throttled=True)
    ('known', 'corrected', 'throttled')
    >>> next_status("nothing given", "known"), next_status("known", "void"), next_status("void", "known")
    ('nothing given', 'void', 'void')
    """
    if status in ("void", "expired"):
        return status
    if before in ("void", "nothing given"):  # a report does not change these
        return before
    if not given:
        return "nothing given"
    return "throttled" if throttled else status


class Asked(NamedTuple):
    """A request for a decision: the context, its norm, the features outside their ranges, the known cost of doing
    nothing, what else the learner reads from the request, and the proposal that came with it.
    """

    vector: Vector
    norm: float
    extrapolated: tuple[str, ...] = ()
    baseline_cost: float = 0.0
    stated: Any = None
    proposal: float | None = None


class Round(NamedTuple):
    """A decided round that waits for its outcome.

    `place` is its place in the learner; `watched` says whether the monitor counts it. A save file keeps the first five
    fields. A study also keeps the context, its norm, the time of the decision and the first hexadecimal digits of its
    event's hash (`tag`).
    """

    number: int
    place: Any
    action: float
    baseline_cost: float
    watched: bool
    context: Any = None
    norm: float = 0.0
    at: int = 0
    tag: str = ""
