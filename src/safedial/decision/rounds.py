"""The life of a round, from its decision to its outcome: the one rule of its statuses, and what is kept meanwhile."""

from __future__ import annotations

from typing import Any, NamedTuple

STATUSES = ("open", "known", "void", "expired", "nothing given", "throttled", "corrected", "imported")


def next_status(before: str, status: str, *, throttled: bool = False, given: bool = True) -> str:
    """The status of a round that is declared to have one: "nothing given" where a decision advised nothing, "throttled"
    where the setting was lowered because of the outcome. An expired round can still become known, a void one cannot.

    >>> next_status("", "open"), next_status("", "open", given=False), next_status("", "imported")
    ('open', 'nothing given', 'imported')
    >>> next_status("open", "known"), next_status("known", "corrected"), next_status("open", "known", throttled=True)
    ('known', 'corrected', 'throttled')
    >>> next_status("nothing given", "known"), next_status("known", "void"), next_status("void", "known")
    ('nothing given', 'void', 'void')
    """
    if status in ("void", "expired"):
        return status
    if before in ("void", "nothing given"):  # what is reported of these rounds does not change what they are
        return before
    if not given:
        return "nothing given"
    return "throttled" if throttled else status


class Advice(NamedTuple):
    """What is remembered of a decision until its outcome is reported: its place in the learner, and what was advised.

    `watched` says whether the monitor counts the round: only where something was promised.
    """

    place: Any
    action: float
    baseline_cost: float
    watched: bool
