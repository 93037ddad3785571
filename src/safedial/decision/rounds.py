"""A round between its decision and its outcome."""

from __future__ import annotations

from typing import Any, NamedTuple


class Advice(NamedTuple):
    """What is remembered of a decision until its outcome is reported: its place in the learner, and what was advised.

    `watched` says whether the monitor counts the round: only where something was promised.
    """

    place: Any
    action: float
    baseline_cost: float
    watched: bool
