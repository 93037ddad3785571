"""The life of a round, from its decision to its outcome: the one table of its statuses, and what is kept meanwhile.

| event | status after it |
|---|---|
| decided | `open`; `nothing given` where nothing was advised, which stays so |
| outcome | `known`; `throttled` where the setting was lowered because of the outcome |
| correction | `corrected`; `throttled` if it says so |
| voided | `void`, which stays so |
| expired | `expired`, until an outcome comes after all |
| imported | `imported` |
"""

from __future__ import annotations

from typing import Any, NamedTuple

STATUSES = ("open", "known", "void", "expired", "nothing given", "throttled", "corrected", "imported")

FINAL = ("void", "nothing given")
"""No event changes these any more, except that a round with nothing given can be declared void."""


def first_status(kind: str, intensity: float) -> str:
    """The status of a round after the event that began it: "decided" or "imported"."""
    if kind == "imported":
        return "imported"
    return "open" if intensity > 0.0 else "nothing given"


def next_status(status: str, kind: str, *, throttled: bool = False) -> str:
    """The status of a round after one more event about it.

    >>> next_status("open", "outcome"), next_status("known", "correction"), next_status("expired", "outcome")
    ('known', 'corrected', 'known')
    >>> next_status("open", "expired"), next_status("known", "voided"), next_status("void", "outcome")
    ('expired', 'void', 'void')
    """
    if kind in ("voided", "expired"):
        return "void" if kind == "voided" else "expired"
    if status in FINAL:
        return status
    if throttled:
        return "throttled"
    return "corrected" if kind == "correction" else "known"


class Advice(NamedTuple):
    """What is remembered of a decision until its outcome is reported: its place in the learner, and what was advised.

    `watched` says whether the monitor counts the round: only where something was promised.
    """

    place: Any
    action: float
    baseline_cost: float
    watched: bool
